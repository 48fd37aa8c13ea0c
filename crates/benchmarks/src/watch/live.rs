//! A server under full load, watched and not watched.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::program::watari;
use crate::Scale;
use crate::clients::Clients;
use crate::failure::{Failure, doing};
use crate::measure::{Samples, interleaved};
use crate::process::Process;
use crate::report::{Report, Row, Unit};
use crate::servers::nginx_for_generators;
use crate::site::{SMALL, Site};

/// Target: the monitor's share of one core.
const CPU_TARGET: f64 = 0.1;

/// Time in which captured packets are counted, with a margin. The monitor reports each second.
const COUNTED_WITHIN: Duration = Duration::from_secs(2);

/// Whether the monitor runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Yes,
    No,
}

/// Measures the time of wrk's requests to nginx, the CPU time of the monitor, and the packets that it dropped.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("a server that is watched ..");
    let asked = nginx_for_generators(site, &Clients::new(site)?)?;
    let url = format!("http://{}{}", asked.plain, SMALL.path);
    let sample = |watched: &Watched| match watched {
        Watched::No => Ok(vec![1.0 / wrk(&url, scale.generator_s)?]),
        Watched::Yes => watch(site, asked.plain, &url, scale.generator_s),
    };
    let costs = interleaved(scale.rounds, &[Watched::Yes, Watched::No], sample)?;
    let [watched, alone] = [0, 1].map(|at: usize| Samples::of(&costs[at], |costs| costs[0]));
    let [cpu, dropped, packets] = [1, 2, 3].map(|at| Samples::of(&costs[0], |costs| costs[at]));
    let none = || Samples::new(vec![0.0]);
    let row = "watch: time of a request from wrk to nginx, watched".to_owned();
    report.add(Row::against(row, Unit::Microseconds, watched, "not watched", alone, None));
    let row = "watch: CPU of the monitor while wrk and nginx run at full speed".to_owned();
    report.add(Row::limited(row, Unit::Percent, cpu, "no monitor", none(), CPU_TARGET));
    let row = "watch: packets dropped while wrk and nginx run at full speed".to_owned();
    report.add(Row::limited(row, Unit::Count, dropped, "packets captured", packets, 0.0));
    Ok(())
}

/// Returns seconds per request, the share of a core, packets dropped, and packets captured.
fn watch(site: &Site, server: SocketAddr, url: &str, seconds: u64) -> Result<Vec<f64>, Failure> {
    let metrics = site.address()?;
    let (program, log) = (watari()?, site.path("watch.log"));
    let (filter, metrics_text) = (format!("tcp port {}", server.port()), metrics.to_string());
    let arguments = ["watch", "live", "-i", "lo", "--plain", "--filter", &filter, "--metrics", &metrics_text];
    let mut process = Process::start("watari watch live", &program.to_string_lossy(), &arguments, log)?;
    process.wait_until(|| scraped(metrics))?;
    let (before, began) = (process.cpu()?, Instant::now());
    let rate = wrk(url, seconds)?;
    let used = process.cpu()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    // All packets are counted when the count no longer grows.
    let seen = |text: &str| count(text, "packets_total");
    let mut before = 0.0;
    let text = process.wait_until(|| {
        thread::sleep(COUNTED_WITHIN);
        let text = scraped(metrics)?;
        let is_all = before > 0.0 && seen(&text) <= before;
        before = seen(&text);
        if is_all { Ok(text) } else { Err("packets are still counted".to_owned()) }
    })?;
    Ok(vec![1.0 / rate, used, count(&text, "packets_dropped_total"), seen(&text)])
}

/// Runs wrk, and returns its requests per second.
fn wrk(url: &str, seconds: u64) -> Result<f64, Failure> {
    let duration = format!("-d{seconds}s");
    let output = Command::new("wrk").args(["-t1", "-c50", &duration, url]).stderr(Stdio::inherit()).output();
    let said = String::from_utf8_lossy(&output.map_err(doing("starting wrk"))?.stdout).into_owned();
    let rate =
        said.lines().find_map(|line| line.strip_prefix("Requests/sec:")).and_then(|rate| rate.trim().parse().ok());
    rate.ok_or_else(|| Failure::Generator { name: "wrk", said })
}

/// The text of all metrics.
fn scraped(address: SocketAddr) -> Result<String, String> {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    ask().map_err(|error: std::io::Error| error.to_string())
}

/// The sum of a metric's values, with any labels.
fn count(text: &str, name: &str) -> f64 {
    let of_metric =
        |line: &&str| line.strip_prefix("watari_watch_").is_some_and(|rest| rest.starts_with(&format!("{name}{{")));
    text.lines().filter(of_metric).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
