//! The machine and the versions on which the figures depend.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;

use socket2::SockRef;

/// When and where a part is measured.
pub(crate) fn moment() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Measured on {date}, commit {commit}, on {processor} with {cores} cores, Linux {kernel}, {congestion} by default.\n\
         The load was {load} before it (1, 5 and 15 minutes).",
        date = output("date", &["-u", "+%F at %H:%M UTC"]),
        commit = output("git", &["describe", "--always", "--dirty"]),
        processor = processor(),
        kernel = file("/proc/sys/kernel/osrelease"),
        congestion = congestion_control().unwrap_or_else(|_| unknown()),
        load = file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", "),
    )
}

/// The names of the peers, and their versions.
pub(crate) fn peers() -> Vec<(&'static str, String)> {
    vec![
        ("nginx", matching_line("nginx", "-V", "nginx version: nginx/")),
        ("nginx's TLS", matching_line("nginx", "-V", "built with ")),
        ("HAProxy", matching_line("haproxy", "-v", "HAProxy version ")),
        ("Varnish", matching_line("varnishd", "-V", "varnishd (varnish-")),
        ("keepalived", matching_line("keepalived", "-v", "Keepalived v")),
        ("wrk", matching_line("wrk", "-v", "wrk ")),
        ("ab", matching_line("ab", "-V", "This is ApacheBench, Version ")),
        ("h2load", matching_line("h2load", "--version", "h2load nghttp2/")),
        ("oha", matching_line("oha", "--version", "oha ")),
    ]
}

fn processor() -> String {
    let text = file("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(unknown, |(_, model)| model.to_owned())
}

/// The congestion control of a server that sets none.
fn congestion_control() -> io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let name = SockRef::from(&listener.accept()?.0).tcp_congestion()?;
    drop(client);
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

fn file(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(unknown, |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The text after `prefix` in the version that a program prints, on either output.
fn matching_line(program: &str, flag: &str, prefix: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return unknown() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix(prefix)).map_or_else(unknown, str::to_owned)
}

fn unknown() -> String {
    "unknown".to_owned()
}
