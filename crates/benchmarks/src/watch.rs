//! The state monitor, `watari watch`:
//!
//! * the CPU time to read captures, beside tcptrace and tshark;
//! * the memory of a connection;
//! * the CPU time to capture live at a server under full load.

mod captures;
mod live;
mod program;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::ioctl_fionread;

use crate::Scale;
use crate::cpu;
use crate::failure::{Failure, doing};
use crate::measure::{Samples, interleaved};
use crate::process::Process;
use crate::report::{Report, Row, Unit};
use crate::site::Site;

use captures::Capture;
use program::watari;

/// Programs that read captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Watari,
    Tcptrace,
    Tshark,
}

/// Targets: CPU seconds per million packets of long connections, and of short connections.
const LONG_TARGET_S: f64 = 0.15;
const SHORT_TARGET_S: f64 = 0.4;
/// Target: the ratio to tcptrace's CPU time for keep-alive HTTP/1 in clear text. tcptrace reads no heads.
const KEPT_TARGET: f64 = 0.8;
/// Targets: the memory of an open connection, and of a closed one, in bytes.
const OPEN_TARGET: f64 = 1024.0;
const CLOSED_TARGET: f64 = 64.0;

/// Measures captures, memory and live capture.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let long = captures::long_flows(site, scale.packets)?;
    let short = captures::short_connections(site, "short.pcap", scale.packets / captures::PACKETS_OF_SHORT)?;
    for (what, capture, target) in
        [("long connections", &long, LONG_TARGET_S), ("short connections", &short, SHORT_TARGET_S)]
    {
        eprintln!("a capture of {what} ..");
        reading(what, capture, target, scale, report)?;
    }
    eprintln!("a capture of keep-alive HTTP ..");
    reading_kept(&captures::kept_connections(site, scale.packets)?, scale, report)?;
    holding(site, &short, scale, report)?;
    live::measure(site, scale, report)
}

fn reading(what: &str, capture: &Capture, target: f64, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    // tshark takes at least ten times as long, so two rounds are exact enough.
    for (peer, rounds) in [(Reader::Tcptrace, scale.rounds), (Reader::Tshark, scale.rounds.min(2))] {
        let cost = |reader: &Reader| reader.cpu(&capture.path).map(|cpu_s| vec![cpu_s / capture.packets as f64 * 1e6]);
        let costs = interleaved(rounds, &[Reader::Watari, peer], cost)?;
        let [ours, theirs] = [0, 1].map(|reader: usize| Samples::of(&costs[reader], |costs| costs[0]));
        let what = format!("watch: million packets of {what}");
        report.add(Row::limited(what, Unit::Seconds, ours, peer.name(), theirs, target));
    }
    Ok(())
}

fn reading_kept(capture: &Capture, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let cost = |reader: &Reader| reader.cpu(&capture.path).map(|cpu_s| vec![cpu_s / capture.packets as f64 * 1e6]);
    let costs = interleaved(scale.rounds, &[Reader::Watari, Reader::Tcptrace], cost)?;
    let [ours, theirs] = [0, 1].map(|reader: usize| Samples::of(&costs[reader], |costs| costs[0]));
    let what = "watch: million packets of keep-alive HTTP";
    report.add(Row::against(what.to_owned(), Unit::Seconds, ours, Reader::Tcptrace.name(), theirs, Some(KEPT_TARGET)));
    Ok(())
}

/// Measures the memory of a connection when `watari watch` has read a capture and waits for more of it.
fn holding(site: &Site, short: &Capture, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let few = short.connections / 10;
    let capture = |name, count| captures::short_connections(site, name, count);
    let open = [
        captures::open_connections(site, "open.pcap", short.connections)?,
        captures::open_connections(site, "open-few.pcap", few)?,
    ];
    let closed = [capture("closed.pcap", short.connections)?, capture("closed-few.pcap", few)?];
    for (what, [many, few], target) in [("open", open, OPEN_TARGET), ("closed", closed, CLOSED_TARGET)] {
        eprintln!("memory of connections that are {what} ..");
        let mut samples = Vec::new();
        for _ in 0..scale.rounds {
            let bytes = held(site, &many)? as f64 - held(site, &few)? as f64;
            samples.push(bytes / (many.connections - few.connections) as f64);
        }
        let none = Samples::new(vec![0.0]);
        let what = format!("watch: memory of a connection, {what}");
        report.add(Row::limited(what, Unit::Bytes, Samples::new(samples), "no peer", none, target));
    }
    Ok(())
}

/// Memory of `watari watch pcap` when it has read a capture and waits for more of it, in bytes.
fn held(site: &Site, capture: &Capture) -> Result<u64, Failure> {
    let pipe = site.path("capture.pipe");
    // The pipe of the previous round.
    let _ = fs::remove_file(&pipe);
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(|error| doing("making a pipe")(error.into()))?;
    let (watari, log) = (watari()?, site.path("watch.log"));
    let arguments = ["watch", "pcap", &pipe.to_string_lossy()];
    let mut process = Process::start("watari watch", &watari.to_string_lossy(), &arguments, log)?;
    // Blocks until the process opens the pipe for reading.
    let mut writer = File::create(&pipe).map_err(doing("opening a pipe"))?;
    let mut file = File::open(&capture.path).map_err(doing("opening a capture"))?;
    io::copy(&mut file, &mut writer).map_err(doing("writing a capture into a pipe"))?;
    let id = process.id();
    process.wait_until(|| match (ioctl_fionread(&writer), state(id)) {
        (Ok(0), Some('S')) => Ok(()),
        (left, state) => Err(format!("it is {state:?}, and {left:?} bytes are left")),
    })?;
    process.memory()
}

/// The state of a process (proc(5)). `S` means that it waits.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Self::Watari => "watari watch",
            Self::Tcptrace => "tcptrace",
            Self::Tshark => "tshark",
        }
    }

    /// CPU seconds to read a capture.
    fn cpu(self, capture: &Path) -> Result<f64, Failure> {
        let mut command = match self {
            Self::Watari => {
                let mut command = Command::new(watari()?);
                command.args(["watch", "pcap", "--json"]);
                command
            }
            Self::Tcptrace => {
                let mut command = Command::new("tcptrace");
                command.args(["-n", "-l"]);
                command
            }
            Self::Tshark => {
                let mut command = Command::new("tshark");
                command.args(["-n", "-q", "-z", "conv,tcp", "-r"]);
                command
            }
        };
        let doing_what = || format!("reading a capture by {}", self.name());
        let out = File::create("/dev/null").map_err(doing(doing_what()))?;
        let before = cpu::of_ended_children().map_err(doing(doing_what()))?;
        let status = command.arg(capture).stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).status();
        let status = status.map_err(doing(doing_what()))?;
        if !status.success() {
            return Err(Failure::Generator { name: self.name(), said: status.to_string() });
        }
        let after = cpu::of_ended_children().map_err(doing(doing_what()))?;
        Ok(after.saturating_sub(before).as_secs_f64())
    }
}
