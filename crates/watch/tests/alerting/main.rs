//! Receivers get all notices, even if they or the monitor restart.

#![allow(clippy::unwrap_used)]

mod commands;
mod documents;
mod receiver;
mod restarts;
mod syslogs;
mod webhooks;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use watari_endings::{Change, Evidence, Reason, ServerState, Tally, Verdict};
use watari_packets::Timestamp;
use watari_watch::alerting::{
    Backoff, Counts, Facility, HttpTarget, Notifier, Policy, Receiver, SyslogAddress, Target, Trouble,
};

/// Long enough for the slowest machine.
const DEADLINE: Duration = Duration::from_mins(1);

const SERVER: &str = "192.0.2.1:443";

/// A server changed its state at `since_s` after the Unix epoch.
fn change(state: ServerState, since_s: u64) -> Change {
    let since = Timestamp(since_s * 1_000_000_000);
    let span = Duration::from_secs(30);
    let evidence =
        Evidence { reason: Reason::Unanswered, value: 0.6, limit: 0.5, span, shares: None, tally: Tally::default() };
    let verdict = Verdict { state, since, at: since, evidence };
    Change { server: SERVER.parse().unwrap(), before: ServerState::Idle, verdict }
}

/// A receiver with short waits between attempts.
fn receiver(name: &str, target: Target) -> Receiver {
    let ms = Duration::from_millis;
    let policy = Policy {
        name: name.to_owned(),
        hold: Duration::ZERO,
        repeat: None,
        troubles: Trouble::ALL.to_vec(),
        backoff: Backoff { first: ms(10), most: ms(100), refused: ms(50) },
    };
    Receiver { policy, timeout: DEADLINE, target }
}

fn webhook(url: &str) -> Receiver {
    receiver("hook", Target::Webhook(http(url)))
}

fn http(url: &str) -> HttpTarget {
    HttpTarget { url: url.parse().unwrap(), ca_file: None, token_file: None, external_url: String::new() }
}

fn shell(script: &str, args: &[&str]) -> Receiver {
    let args = ["-c", script, "sh"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    receiver("command", Target::Command { program: PathBuf::from("/bin/sh"), args })
}

fn syslog(address: SyslogAddress) -> Receiver {
    receiver("syslog", Target::Syslog { address, facility: Facility::Daemon })
}

fn started(receivers: &[Receiver]) -> Notifier {
    Notifier::start(receivers, None).unwrap()
}

/// The counts of the first receiver.
fn counts(notifier: &Notifier) -> Counts {
    notifier.counts().receivers[0].1
}

/// Waits until a condition is true.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < DEADLINE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for a future, with a timeout.
async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.unwrap()
}
