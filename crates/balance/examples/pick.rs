//! Measures the time of a pick among 16 origins: `cargo run --release --package watari-balance --example pick`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use watari_balance::{Balancer, Candidate, LoadFactor, OriginPolicy};

/// The fastest of this many rounds counts, because other processes may disturb a round.
const ROUNDS: u64 = 1000;
/// Picks in each round.
const PICKS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let origins: Vec<_> = (0..16).map(origin).collect();
    let factor = LoadFactor::from_percent(125)?;
    let policies = [
        ("round robin", OriginPolicy::RoundRobin, None),
        ("weighted", OriginPolicy::Weighted, None),
        ("least connections", OriginPolicy::LeastConnections, None),
        ("two choices", OriginPolicy::TwoChoices, None),
        ("hash", OriginPolicy::Hash, None),
        ("hash, bounded load", OriginPolicy::Hash, Some(factor)),
    ];
    for (name, policy, factor) in policies {
        println!("{name:20} {:4} ns", nanoseconds(&mut Balancer::new(policy, factor), &origins));
    }
    Ok(())
}

fn origin(n: u32) -> Candidate<Arc<str>> {
    Candidate {
        weight: n % 4 + 1,
        connections: n as usize % 4 + 1,
        response: Duration::from_millis(u64::from(n) % 7 + 1),
        ..Candidate::new(format!("http://10.0.0.{n}:8080").into())
    }
}

fn nanoseconds(balancer: &mut Balancer<Arc<str>>, origins: &[Candidate<Arc<str>>]) -> u128 {
    let fastest = (0..ROUNDS).map(|round| took(balancer, origins, round * PICKS)).min();
    fastest.unwrap_or_default().as_nanos() / u128::from(PICKS)
}

fn took(balancer: &mut Balancer<Arc<str>>, origins: &[Candidate<Arc<str>>], first: u64) -> Duration {
    let begun = Instant::now();
    for n in first..first + PICKS {
        let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        black_box(balancer.pick(b"/downloads/of/some/length.iso", random, black_box(origins)));
    }
    begun.elapsed()
}
