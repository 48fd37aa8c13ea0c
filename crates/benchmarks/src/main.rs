//! Watari side by side with its peers: how much CPU each needs for the same work.
//!
//! ```text
//! record  ----------------------------------------- our record layer | rustls, both in this process
//! https   load --> server(s), interleaved --> CPU -- agent, dispatcher | nginx, HAProxy, nginx stream
//! proxy   load --> server(s) --> one nginx, interleaved --> CPU -- an agent | nginx, HAProxy
//! handovers  one download --> an agent --> origins, near and far -- ordered to move, cut | left alone
//! moves   load --> one cluster, other client addresses -- moved | stayed
//! drains  idle connections, and a server that is replaced -- an agent | HAProxy, nginx
//! bursts  thousands of connections that come and leave again --> memory that is kept -- of what they took
//! sessions  connections that resume -- an agent | nginx; modes of sharing; lookups among more and more sessions
//! watch  captures --> CPU, memory -- `watari watch` | tcptrace, tshark; a server under load -- watched | not
//! generators  requests to one nginx -- CPU of `watari bench` | wrk, ab, h2load, oha
//! ```
//!
//! * `servers` are the processes that are measured, on loopback, with configurations of their own;
//! * `load` is what they get to do, by `clients`: loads of `watari_bench`, the load generator, in which every answer is checked;
//! * `measure` interleaves the candidates and takes medians;
//! * `report` makes the table, with what falls short of its target.

// Amounts of work and their times, far below 2^52, become the ratios that are shown.
#![allow(clippy::cast_precision_loss)]

mod bursts;
mod clients;
mod connection;
mod cpu;
mod drains;
mod failure;
mod generators;
mod handovers;
mod https;
mod load;
mod machine;
mod measure;
mod memory;
mod moves;
mod offer;
mod process;
mod proxy;
mod record;
mod report;
mod servers;
mod sessions;
mod site;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::failure::{Failure, doing};
use crate::report::Report;
use crate::site::Site;

/// Measures Watari against its peers, and writes what comes of it.
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Arguments {
    /// Fewer rounds of less work: whether everything runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Write the report here as well; what it holds from the notes on is kept
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  make bench                              everything, written to docs/benchmarks.md
  scripts/bench --quick                   whether it runs
  scripts/bench --only record             one part";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The record layer, in memory
    Record,
    /// HTTPS of files, and the relays in front
    Https,
    /// HTTPS forwarded to an origin
    Proxy,
    /// Downloads that go on at another origin
    Handovers,
    /// Moves right after the handshake
    Moves,
    /// Servers with many idle connections that are replaced
    Drains,
    /// Connections that come and leave again
    Bursts,
    /// Connections that resume, and sessions that nodes keep
    Sessions,
    /// Load generators
    Generators,
    /// The state monitor
    Watch,
}

/// How much is done for one sample, and how many samples are taken.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// Per suite, length of records and direction.
    record_bytes: u64,
    bulk_bytes: u64,
    connections: u64,
    requests: u64,
    /// Connections that are timed one after the other.
    pauses: u64,
    /// Connections that are idle when their server is replaced, or leave again.
    idle: usize,
    /// The most sessions that a store holds: lookups are timed with 1,000, and with ten times as many each time up to these.
    sessions: u64,
    /// How long a download takes in which there may be a handover, in seconds.
    download_s: u64,
    /// How long each load generator works for a sample, about, in seconds.
    generator_s: u64,
    /// Packets of a capture.
    packets: u64,
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
    };
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("watari-benchmarks: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let site = Site::create()?;
    let mut report = Report::new(machine::describe(), scale);
    if wanted(Part::Record) {
        record::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Https) {
        https::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Proxy) {
        proxy::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Handovers) {
        handovers::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Moves) {
        moves::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Drains) {
        drains::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Bursts) {
        bursts::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Sessions) {
        sessions::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Generators) {
        generators::measure(&site, &scale, &mut report)?;
    }
    if wanted(Part::Watch) {
        watch::measure(&site, &scale, &mut report)?;
    }
    println!("{report}");
    if let Some(out) = &arguments.out {
        report.write(out).map_err(doing(format!("writing {}", out.display())))?;
    }
    Ok(())
}
