//! `watari watch pcap`: reads captures.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use watari_watch::batch::{self, Batch, Summary};
use watari_watch::files::Files;
use watari_watch::profile::ProfileFile;

use super::options::Options;
use super::output::{self, Format, Output, What};
use crate::commands::print::print;
use crate::failure::Failure;
use crate::output::print_line;

/// Read captures: how each connection ended, and the states of servers
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each flag of the command line is a field")]
pub(crate) struct Pcap {
    /// Captures in pcap or pcapng, compressed by gzip or not, read as one; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print an object of JSON for each connection
    #[arg(long)]
    json: bool,
    /// Print a line of CSV for each connection
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the spans of time in which each server was normal, saturated, stopped or idle, instead of connections
    #[arg(long)]
    states: bool,
    /// Print requests instead of connections
    #[arg(long, conflicts_with = "states")]
    requests: bool,
    /// Read at the speed of the packets, not as fast as possible
    #[arg(long)]
    real_time: bool,
    /// Learn the normal state of a server from the capture, and print a profile
    #[arg(long, conflicts_with_all = ["json", "csv", "states", "requests"])]
    learn: bool,
    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  watari watch pcap day.pcap.gz                         states of servers, and how connections ended
  watari watch pcap --json day.pcap                     a line for each connection, with Zeek's conn_state and history
  watari watch pcap --json --states day.pcap            a line for each span of time
  watari watch pcap --csv --requests --port 80 day.pcap
  watari watch pcap --json --anonymize clients day.pcap
  tcpdump -i eth0 -s 96 -w - tcp | watari watch pcap --json -
  watari watch pcap --learn --server 192.0.2.1:443 monday.pcap > monday.toml
  watari watch pcap --profile monday.toml tuesday.pcap

96 octets of each packet suffice for states; values of TLS and HTTP need more.
Exit status: 0 done, 1 a capture could not be read to its end, 2 wrong usage.";

impl Pcap {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let profile = self.options.profile()?;
        let options = batch::Options { analysis: self.options.analysis()?, profile, learns: self.learn };
        let mut files = Files::open(&self.files, self.real_time)?;
        let what = match (self.states, self.requests) {
            (true, _) => What::Spans,
            (_, true) => What::Requests,
            _ => What::Connections,
        };
        let format = match (self.json, self.csv, self.learn) {
            (true, ..) => Format::Json,
            (_, true, _) => Format::Csv,
            (.., true) => Format::Nothing,
            _ => Format::Text,
        };
        let sink = output::sink(format, what, io::stdout().lock())?;
        // Another process may still be writing the input.
        let is_fed = self.real_time || self.files.iter().any(|file| file == Path::new("-"));
        let (summary, sink, failure) = read(&mut files, options, sink, is_fed)?;
        sink.finish(&summary)?;
        let strays = files.strays();
        if strays > 0 {
            let (are, they) = if strays == 1 { ("packet is", "it is") } else { ("packets are", "they are") };
            let said = "dated hours ahead of the packets around";
            print_line(format_args!("watari: {strays} {are} {said}: {they} counted at the time of the packets before"));
        }
        if self.learn {
            print(learned(&summary, profile)?.to_toml())?;
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The results, and the error that ended the input early: a truncated file still has whole packets before. `is_fed`:
/// results are shown soon, not only when a buffer is full.
fn read<W: Write>(
    files: &mut Files,
    options: batch::Options,
    sink: Output<W>,
    is_fed: bool,
) -> Result<(Summary, Output<W>, Option<Failure>), Failure> {
    let mut batch = Batch::new(options, sink);
    let mut failure = None;
    let mut flushed = Instant::now();
    loop {
        match files.next_frame() {
            Ok(Some(frame)) => {
                batch.see(&frame)?;
                if is_fed && flushed.elapsed() >= SOON {
                    batch.sink_mut().flush()?;
                    flushed = Instant::now();
                }
            }
            Ok(None) => break,
            Err(error) => {
                if let Some(earlier) = failure.replace(error.into()) {
                    print_line(format_args!("watari: {earlier}"));
                }
            }
        }
    }
    let (summary, sink) = batch.finish()?;
    Ok((summary, sink, failure))
}

fn learned(summary: &Summary, base: watari_endings::Profile) -> Result<ProfileFile, Failure> {
    let servers: Vec<_> = summary.servers.keys().collect();
    let [server] = servers[..] else {
        let named = servers.iter().take(NAMED_MAX).map(|server| SocketAddr::to_string(server)).collect::<Vec<_>>();
        let rest = if servers.len() > NAMED_MAX { ", .." } else { "" };
        let count = servers.len();
        let named = named.join(", ");
        return Err(Failure::Usage(format!(
            "--learn needs one server, and there are {count} ({named}{rest}): select one with --server"
        )));
    };
    let profile = summary.learned(server, base).ok_or_else(|| {
        let least = base.ended_min;
        Failure::Usage(format!(
            "too few connections of {server} to learn from: three minutes with {least} connections are needed"
        ))
    })?;
    Ok(ProfileFile::of(&profile))
}

const SOON: Duration = Duration::from_millis(100);
/// The most servers that an error names.
const NAMED_MAX: usize = 8;
