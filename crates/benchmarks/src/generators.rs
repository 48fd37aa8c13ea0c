//! Load generators: the CPU time of `watari bench` and of its peers for the same requests to the same server.

mod kind;
mod peers;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Scale;
use crate::clients::Clients;
use crate::cpu;
use crate::failure::{Failure, doing};
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Asked, nginx_for_generators};
use crate::site::{SMALL, Site};

use kind::{CONNECTIONS, Kind};
use peers::Generator;

/// One comparison.
struct Work {
    what: &'static str,
    kind: Kind,
    url: String,
    /// Each with its target: the largest ratio of our CPU time to theirs.
    peers: &'static [(Generator, Option<f64>)],
}

/// Measures every kind of work with every generator that supports it.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let asked = nginx_for_generators(site, &Clients::new(site)?)?;
    for work in works(&asked) {
        eprintln!("{} ..", work.what);
        let generators: Vec<_> = [Generator::Watari].into_iter().chain(work.peers.iter().map(|peer| peer.0)).collect();
        let cost = |generator: &Generator| Ok(vec![cpu_per_request(*generator, &work, scale.generator_s)?]);
        let costs = interleaved(scale.rounds, &generators, cost)?;
        let samples = |rounds: &[Vec<f64>]| Samples::of(rounds, |costs| costs[0]);
        for ((peer, target), theirs) in work.peers.iter().zip(&costs[1..]) {
            let (ours, theirs) = (samples(&costs[0]), samples(theirs));
            report.add(Row::against(work.what.to_owned(), Unit::Microseconds, ours, peer.name(), theirs, *target));
        }
    }
    schedule_error(&asked, scale, report)?;
    drop(asked.server);
    Ok(())
}

fn works(asked: &Asked) -> Vec<Work> {
    let plain = format!("http://{}{}", asked.plain, SMALL.path);
    let rsa = format!("https://{}{}", asked.rsa, SMALL.path);
    let p256 = format!("https://{}{}", asked.p256, SMALL.path);
    vec![
        Work {
            what: "generator: keep-alive request",
            kind: Kind::KeepAlive,
            url: plain.clone(),
            peers: &[
                (Generator::Wrk, Some(0.8)),
                (Generator::Ab, Some(1.0)),
                (Generator::H2load, Some(1.0)),
                (Generator::Oha, Some(1.0)),
            ],
        },
        Work {
            what: "generator: keep-alive request over TLS",
            kind: Kind::KeepAlive,
            url: rsa.clone(),
            peers: &[
                (Generator::Wrk, Some(0.75)),
                (Generator::Ab, Some(1.0)),
                (Generator::H2load, Some(1.0)),
                (Generator::Oha, Some(1.0)),
            ],
        },
        Work {
            what: "generator: connection per request",
            kind: Kind::PerConnection,
            url: plain,
            peers: &[(Generator::Wrk, Some(1.0)), (Generator::Ab, None), (Generator::Oha, None)],
        },
        Work {
            what: "generator: full handshake per request, RSA-2048",
            kind: Kind::Handshake,
            url: rsa.clone(),
            peers: &[(Generator::H2load, Some(0.6)), (Generator::Ab, None)],
        },
        Work {
            what: "generator: full handshake per request, P-256",
            kind: Kind::Handshake,
            url: p256,
            peers: &[(Generator::H2load, Some(0.6)), (Generator::Ab, None)],
        },
        Work {
            what: "generator: HTTP/2 request over TLS",
            kind: Kind::Streams,
            url: rsa,
            peers: &[(Generator::H2load, None)],
        },
    ]
}

/// Runs a generator for about `seconds`, and returns its CPU seconds per request.
fn cpu_per_request(generator: Generator, work: &Work, seconds: u64) -> Result<f64, Failure> {
    let arguments = generator.arguments(work.kind, &work.url, seconds);
    let before = cpu::of_ended_children().map_err(doing("reading the CPU time of children"))?;
    let output = run(generator, &arguments)?;
    let after = cpu::of_ended_children().map_err(doing("reading the CPU time of children"))?;
    let requests = generator.requests(&output).filter(|&requests| requests > 0);
    let requests = requests.ok_or_else(|| Failure::Generator { name: generator.name(), said: excerpt(&output) })?;
    Ok(after.saturating_sub(before).as_secs_f64() / requests as f64)
}

/// Runs a generator to its end, and returns its output.
fn run(generator: Generator, arguments: &[String]) -> Result<String, Failure> {
    let program = generator.program().map_err(doing("looking for the watari command"))?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(doing(format!("starting {}", generator.name())))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(Failure::Generator { name: generator.name(), said: excerpt(&said) })
    }
}

fn excerpt(said: &str) -> String {
    said.chars().take(500).collect()
}

/// Measures how late requests of the open loop begin, at half of the rate that the closed loop reaches.
fn schedule_error(asked: &Asked, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let url = format!("http://{}{}", asked.plain, SMALL.path);
    let mut errors = Vec::new();
    let mut medians = Vec::new();
    for _ in 0..scale.rounds {
        let bench = |more: &[&str]| -> Result<Value, Failure> {
            let seconds = format!("{}s", scale.generator_s);
            let mut arguments = vec!["bench", "http", &url, "-d", &seconds, "--json", "-c"];
            let connections = CONNECTIONS.to_string();
            arguments.push(&connections);
            arguments.extend(more);
            let said = run(Generator::Watari, &arguments.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
            let wrong = |_| Failure::Generator { name: "watari bench", said: excerpt(&said) };
            serde_json::from_str(&said).map_err(wrong)
        };
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let capacity = number(&bench(&[])?["requests_per_s"]);
        let half = bench(&["-r", &format!("{:.0}", capacity / 2.0)])?;
        errors.push(number(&half["schedule_error_ms"]["p99"]) / 1e3);
        medians.push(number(&half["schedule_error_ms"]["p50"]) / 1e3);
    }
    let (errors, medians) = (Samples::new(errors), Samples::new(medians));
    let what = "generator: schedule error of the open loop, 99th percentile".to_owned();
    report.add(Row::limited(what, Unit::Microseconds, errors, "median", medians, 1e-3));
    Ok(())
}
