#![allow(clippy::unwrap_used)]

use std::time::Duration;

use watari_endings::{Change, Evidence, Reason, ServerState, Tally, Verdict};

use super::*;
use crate::alerting::alerts::{Backoff, UNCONFIRMED};

const S: u64 = 1_000_000_000;
const NOW: Timestamp = Timestamp(1_000 * S);

fn policy(name: &str, hold_s: u64) -> Policy {
    Policy {
        name: name.to_owned(),
        hold: Duration::from_secs(hold_s),
        repeat: None,
        troubles: Trouble::ALL.to_vec(),
        backoff: Backoff::usual(),
    }
}

fn change(state: ServerState) -> Change {
    let span = Duration::from_secs(30);
    let reason = Reason::Unanswered;
    let evidence = Evidence { reason, value: 0.6, limit: 0.5, span, shares: None, tally: Tally::default() };
    let verdict = Verdict { state, since: NOW, at: NOW, evidence };
    Change { server: "192.0.2.1:443".parse().unwrap(), before: ServerState::Idle, verdict }
}

fn stopped(policies: &[Policy]) -> Alerts {
    let mut alerts = Alerts::new(policies.to_vec());
    alerts.change("west", &change(ServerState::Stopped), NOW);
    alerts
}

fn in_a_directory() -> (tempfile::TempDir, Journal) {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("alerts.json"));
    (directory, journal)
}

#[test]
fn what_is_written_is_read() {
    let (_directory, journal) = in_a_directory();
    let policies = [policy("pager", 0), policy("log", 60)];
    let alerts = stopped(&policies);
    journal.write(&encode(&alerts)).unwrap();
    let mut read = journal.read(&policies, NOW).unwrap().unwrap();
    assert_eq!(encode(&read), encode(&alerts));
    assert_eq!(read.next(0, NOW).unwrap().notice.summary(), "192.0.2.1:443 is stopped, as sensor west sees it");
}

#[test]
fn delivered_notices_are_not_sent_again() {
    let policies = [policy("pager", 0)];
    let mut alerts = stopped(&policies);
    let delivery = alerts.next(0, NOW).unwrap();
    alerts.delivered(&delivery, NOW);
    let mut again = decode(&encode(&alerts), &policies, NOW).unwrap();
    assert_eq!(again.next(0, NOW), None);
    again.change("west", &change(ServerState::Stopped), NOW);
    assert_eq!(again.next(0, NOW), None);
    again.change("west", &change(ServerState::Normal), NOW);
    assert!(again.next(0, NOW).unwrap().notice.over.is_some());
}

#[test]
fn an_unconfirmed_alert_ends() {
    let policies = [policy("pager", 0), policy("log", 60)];
    let mut alerts = decode(&encode(&stopped(&policies)), &policies, NOW).unwrap();
    let delivery = alerts.next(0, NOW).unwrap();
    alerts.delivered(&delivery, NOW);
    assert_eq!(alerts.timeout(), Some(NOW + UNCONFIRMED));
    alerts.advance(NOW + UNCONFIRMED);
    let delivery = alerts.next(0, NOW + UNCONFIRMED).unwrap();
    assert!(delivery.notice.description().ends_with("No report has named the server since the monitor restarted"));
    assert_eq!(alerts.next(1, NOW + UNCONFIRMED), None, "it was held, and no report shows whether it lasted");
}

#[test]
fn a_new_receiver_gets_an_alert_when_it_is_confirmed() {
    let content = encode(&stopped(&[policy("pager", 0)]));
    let policies = [policy("log", 0), policy("pager", 0)];
    let mut alerts = decode(&content, &policies, NOW).unwrap();
    assert_eq!(alerts.next(0, NOW), None);
    assert!(alerts.next(1, NOW).is_some());
    alerts.change("west", &change(ServerState::Stopped), NOW);
    assert!(alerts.next(0, NOW).is_some());
}

#[test]
fn a_file_that_is_not_there_holds_nothing() {
    let (_directory, journal) = in_a_directory();
    assert_eq!(journal.read(&[], NOW).unwrap().unwrap().firing(), 0);
}

#[test]
fn a_damaged_file_is_put_aside() {
    let (_directory, journal) = in_a_directory();
    let whole = encode(&stopped(&[policy("pager", 0)]));
    let version_2 = String::from_utf8(whole.clone()).unwrap().replace("\"version\":1", "\"version\":2");
    let row = String::from_utf8(whole.clone()).unwrap();
    let row = row.split_once('[').unwrap().1.rsplit_once(']').unwrap().0;
    let many = format!("{{\"version\":1,\"alerts\":[{row}{}]}}", format!(",{row}").repeat(ALERTS_MAX));
    let damaged: [(&[u8], &str); 5] = [
        (&whole[..whole.len() - 1], "it cannot be read: "),
        (b"", "it cannot be read: "),
        (b"{\"version\":1,\"alerts\":[],\"more\":1}", "it cannot be read: unknown field `more`"),
        (version_2.as_bytes(), "it has version 2, expected 1"),
        (many.as_bytes(), "it has more than 1024 alerts"),
    ];
    for (content, why) in damaged {
        fs::write(journal.path(), content).unwrap();
        let damage = journal.read(&[], NOW).unwrap().unwrap_err().to_string();
        assert!(damage.starts_with(why), "{damage}");
        assert_eq!(fs::read(journal.aside()).unwrap(), content);
        assert!(!journal.path().exists());
    }
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let (directory, journal) = in_a_directory();
    journal.write(b"one").unwrap();
    fs::write(journal.beside(".new"), "what a process left that was killed").unwrap();
    journal.write(b"two").unwrap();
    assert_eq!(fs::read(journal.path()).unwrap(), b"two");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
