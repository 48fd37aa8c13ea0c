//! Compares Watari with its peers: the CPU time that each needs for the same work.
//!
//! ```text
//! record  ----------------------------------------- our record layer | rustls, both in this process
//! https   load --> server(s), interleaved --> CPU -- agent, dispatcher | nginx, HAProxy, nginx stream
//! proxy   load --> server(s) --> one nginx, interleaved --> CPU -- an agent | nginx, HAProxy
//! cache   load --> server(s), interleaved --> CPU -- an agent | nginx, HAProxy + Varnish, an agent with files
//! handovers  one download --> an agent --> origins, near and far -- ordered to move, cut | left alone
//! moves   load --> one cluster, two sets of client addresses -- moved | stayed
//! in_response  a download from one cluster, and orders to move -- followed | refused
//! drains  idle connections, and a server that is replaced -- an agent | HAProxy, nginx
//! storm   users who come back while a service address moves --> CPU by the second -- sessions shared | private
//! takeovers  the owner of a service address is killed -- Watari | keepalived with HAProxy
//! multipath  load balancers behind multipath routes come, leave and are killed -- Watari | HAProxy
//! bursts  thousands of connections that open and close --> memory -- kept | taken by the connections
//! sessions  connections that resume -- an agent | nginx; sharing modes; lookups among more and more sessions
//! watch  captures --> CPU, memory -- `watari watch` | tcptrace, tshark; a server under load -- watched | not
//! generators  requests to one nginx -- CPU of `watari bench` | wrk, ab, h2load, oha
//! ```
//!
//! * `servers` starts the processes that are measured, on loopback, with their own configurations.
//! * `load` has the work, which `clients` sends: loads of `watari_bench_engine`. The load generator checks every response.
//! * `measure` interleaves the candidates and takes medians.
//! * `report` writes the tables, and lists the targets that were missed.

// The converted numbers, amounts of work and their times, are far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod agents;
mod bursts;
mod cache;
mod clients;
mod congestion;
mod connection;
mod cpu;
mod drains;
mod failure;
mod generators;
mod handovers;
mod https;
mod in_response;
mod load;
mod machine;
mod measure;
mod memory;
mod moves;
mod multipath;
mod offer;
mod process;
mod proxy;
mod record;
mod report;
mod servers;
mod sessions;
mod site;
mod storm;
mod takeovers;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::failure::{Failure, doing};
use crate::report::Report;
use crate::site::Site;

/// Measures Watari against its peers, and writes a report.
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Arguments {
    /// Fewer rounds of less work: whether everything runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Write the report here as well; the notes of the file are kept. With --only: only the section of that part
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  make bench                              everything, written to docs/benchmarks.md
  scripts/bench --quick                   whether it runs
  scripts/bench --only record             one part
  scripts/bench --only storm --out docs/benchmarks.md    one part, and its section in the file";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The record layer, in memory
    Record,
    /// HTTPS of files, and the relays in front
    Https,
    /// HTTPS forwarded to an origin
    Proxy,
    /// Responses from the cache
    Cache,
    /// Downloads that go on at another origin
    Handovers,
    /// Moves right after the handshake
    Moves,
    /// Moves in the middle of a response
    InResponse,
    /// Servers with many idle connections that are replaced
    Drains,
    /// Service addresses whose owner is killed
    Takeovers,
    /// Load balancers with the same address that come and leave
    Multipath,
    /// Users who come back while a service address moves
    Storm,
    /// Connections that come and leave again
    Bursts,
    /// Connections that resume, and sessions that nodes keep
    Sessions,
    /// Load generators
    Generators,
    /// The state monitor
    Watch,
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().expect("no part is skipped").get_name().to_owned()
    }

    fn title(self) -> String {
        let value = self.to_possible_value().expect("no part is skipped");
        value.get_help().expect("each part says what it is").to_string()
    }

    fn measure(self, site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
        let measure = match self {
            Self::Record => record::measure,
            Self::Https => https::measure,
            Self::Proxy => proxy::measure,
            Self::Cache => cache::measure,
            Self::Handovers => handovers::measure,
            Self::Moves => moves::measure,
            Self::InResponse => in_response::measure,
            Self::Drains => drains::measure,
            Self::Takeovers => takeovers::measure,
            Self::Multipath => multipath::measure,
            Self::Storm => storm::measure,
            Self::Bursts => bursts::measure,
            Self::Sessions => sessions::measure,
            Self::Generators => generators::measure,
            Self::Watch => watch::measure,
        };
        measure(site, scale, report)
    }
}

/// The amount of work for one sample, and the number of samples.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// For each suite, length of records, and direction.
    record_bytes: u64,
    bulk_bytes: u64,
    connections: u64,
    requests: u64,
    /// Connections that are timed one after the other.
    pauses: u64,
    /// Connections that are idle at the replacement of a server, and connections of a burst.
    idle: usize,
    /// The most sessions of a store. Lookups are timed with 1,000 sessions, and with ten times as many each time up to
    /// this number.
    sessions: u64,
    /// Duration of a download in `handovers`, in seconds.
    download_s: u64,
    /// Approximate run time of each load generator for one sample, in seconds.
    generator_s: u64,
    /// Packets of a capture.
    packets: u64,
    /// Requests of users who come back, in a second, and the divisor of the times of the paper on standby servers.
    users_per_s: f64,
    users_shorter: f64,
    /// Requests for the contents of a catalogue.
    popular: u64,
    /// Clients that request one content at once.
    crowd: usize,
    /// Entries in the directory of a cache.
    cached: u64,
}

impl Scale {
    const FULL: Self = Self {
        rounds: 5,
        record_bytes: 512 << 20,
        bulk_bytes: 2 << 30,
        connections: 4_000,
        requests: 100_000,
        pauses: 200,
        idle: 8_000,
        sessions: 10_000_000,
        download_s: 4,
        generator_s: 4,
        packets: 1_000_000,
        users_per_s: 200.0,
        users_shorter: 5.0,
        popular: 400_000,
        crowd: 1_000,
        cached: 1_000_000,
    };
    const QUICK: Self = Self {
        rounds: 2,
        record_bytes: 32 << 20,
        bulk_bytes: 128 << 20,
        connections: 100,
        requests: 1_600,
        pauses: 25,
        idle: 200,
        sessions: 10_000,
        download_s: 3,
        generator_s: 1,
        packets: 50_000,
        users_per_s: 40.0,
        users_shorter: 30.0,
        popular: 20_000,
        crowd: 100,
        cached: 20_000,
    };
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("watari-benchmarks: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all parts were measured. A part that fails does not end the run, which takes an hour.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let site = Site::create()?;
    let mut report = Report::new(machine::peers(), scale);
    for &part in Part::value_variants().iter().filter(|&&part| wanted(part)) {
        report.begin(part.name(), part.title(), machine::moment());
        if let Err(failure) = part.measure(&site, &scale, &mut report) {
            eprintln!("watari-benchmarks: {}: {failure}", part.name());
            report.note_failure();
        }
    }
    println!("{report}");
    if let Some(out) = &arguments.out {
        let written = if arguments.only.is_some() { report.write_sections(out) } else { report.write(out) };
        written.map_err(doing(format!("writing {}", out.display())))?;
    }
    Ok(report.is_complete())
}
