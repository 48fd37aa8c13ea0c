//! Connections with a known end, and the distortions of a capture.

use proptest::collection::vec;
use proptest::prelude::*;
use watari_packets::{Flags, Timestamp};

use super::ledger::Ledger;
use super::script::{START, Sent, closed, events, hurried, mixed, script, stamped};
use crate::{Connection, Ending, Event, Phase, Side};

/// How a connection ends.
#[derive(Debug, Clone, Copy)]
struct End {
    by: Side,
    is_reset: bool,
    phase: Phase,
    /// Index of the segments that follow the first close, among those that fit it.
    tail: usize,
}

const TAILS: usize = 4;

fn end() -> impl Strategy<Value = End> {
    let phases = prop::sample::select(&[
        Phase::BeforeRequest,
        Phase::BeforeAnswer,
        Phase::InAnswer,
        Phase::AfterAnswer,
        Phase::Idle,
    ]);
    let sides = prop::sample::select(&[Side::Client, Side::Server]);
    (sides, any::<bool>(), phases, 0..TAILS).prop_map(|(by, is_reset, phase, tail)| {
        // A server that closes within its answer without a RST seems to have completed the answer.
        let is_reset = is_reset || by == Side::Server && phase == Phase::InAnswer;
        End { by, is_reset, phase, tail }
    })
}

/// The connection as a script: whole exchanges, then the last one.
fn conversation(exchanges: &[(u32, u32)], end: End) -> String {
    let mut text = String::from("Cs Ssa Ca ");
    let exchanges = if end.phase == Phase::BeforeRequest { &[] } else { exchanges };
    for (index, (request, segments)) in exchanges.iter().enumerate() {
        let is_last = index + 1 == exchanges.len();
        text.push_str("C+");
        text.push_str(&request.to_string());
        text.push_str(" Sa ");
        if is_last && end.phase == Phase::BeforeAnswer {
            break;
        }
        for _ in 0..*segments {
            text += "S+1000 Ca ";
        }
        if is_last && end.phase == Phase::InAnswer {
            text += "S+1000 S+1000 ";
        }
    }
    if end.phase == Phase::Idle {
        text += "~3 ";
    }
    text + close(end)
}

fn close(end: End) -> &'static str {
    match (end.by, end.is_reset, end.phase) {
        // The client's FIN acknowledges less than the server has sent.
        (Side::Client, false, Phase::InAnswer) => {
            ["-Ca Cf^1 SR^1", "Cf^1 S+700 CR", "Cf^1 S+700 Sf CR CR", "Cf^1 CR"][end.tail]
        }
        (Side::Client, true, Phase::InAnswer) => ["Cr^1", "Cr^1 CR", "Cr^1 S+700 CR CR", "Cr^1 Sa CR"][end.tail],
        (Side::Client, false, _) => ["Cf Sf Ca", "Cf Sa Sf Ca", "Cf Sr", "Cf Sa Sf Ca Ca"][end.tail],
        (Side::Server, false, _) => ["Sf Cf Sa", "Sf Ca Cf Sa", "Sf Cr", "Sf C+20 SR"][end.tail],
        (Side::Client, true, _) => ["Cr", "CR", "Cr CR", "Cr Sa CR"][end.tail],
        (Side::Server, true, _) => ["Sr", "SR", "Sr SR", "Sr Ca SR"][end.tail],
    }
}

/// Lowers the acknowledgments of a client that leaves within the answer, by one whole exchange.
fn lower(mut sent: Vec<Sent>, end: End) -> Vec<Sent> {
    if (end.by, end.phase) == (Side::Client, Phase::InAnswer) {
        let has = sent.iter().rfind(|it| it.is_client && it.len == 0 && it.flags.0 == 0x10);
        let has = has.map_or(0, |it| it.acknowledgment);
        for it in sent.iter_mut().rev().filter(|it| it.is_client && it.flags.0 & 0x11 == 0x11 || it.flags.0 == 0x14) {
            if it.is_client {
                it.acknowledgment = has;
            }
        }
    }
    sent
}

fn only(sent: &[Sent]) -> Connection {
    let mut closed = closed(&events(sent));
    assert_eq!(closed.len(), 1);
    closed.remove(0)
}

fn expected(end: End) -> Ending {
    match (end.by, end.is_reset) {
        (Side::Client, false) => Ending::CNormal,
        (Side::Client, true) => Ending::CReset,
        (Side::Server, false) => Ending::SNormal,
        (Side::Server, true) => Ending::SReset,
    }
}

fn retime(sent: Vec<&Sent>, times: &[u64]) -> Vec<Sent> {
    sent.into_iter().zip(times).map(|(it, time)| Sent { time: *time, ..it.clone() }).collect()
}

/// An event without its times, except how long requests took.
fn untimed(event: &Event) -> String {
    match event {
        Event::Request(it) => {
            format!("{:?}", (it.exchange.first_octet(), it.exchange.response(), it.exchange.is_complete))
        }
        Event::Closed(it) => {
            let (start, end, last) = (Timestamp(0), Timestamp(it.duration().as_nanos() as u64), Timestamp(0));
            format!("{:?}", Connection { start, end, last, ..(**it).clone() })
        }
        Event::Opened(it) => format!("{:?}", (it.client, it.server)),
        Event::Overdue(it) => format!("{:?}", (it.at.since(it.since), it.is_connect)),
        Event::Evicted(it) => format!("{:?}", it.is_answered),
    }
}

proptest! {
    #[test]
    fn each_ends_as_it_did(exchanges in vec((40..600_u32, 1..6_u32), 1..4), end in end()) {
        let text = conversation(&exchanges, end);
        let it = only(&lower(script(&text), end));
        prop_assert_eq!((it.ending, it.phase, it.closed_by), (expected(end), end.phase, Some(end.by)), "{}", text);
    }

    #[test]
    fn copies_change_nothing(exchanges in vec((40..600_u32, 1..6_u32), 1..4), end in end(), copies in vec((0..60_usize, 0..4_usize), 0..8)) {
        let sent = lower(script(&conversation(&exchanges, end)), end);
        let mut again = sent.clone();
        for (from, later) in copies {
            let from = from % again.len();
            let copy = again[from].clone();
            again.insert((from + later + 1).min(again.len()), copy);
        }
        let times: Vec<_> = (0..again.len() as u64).map(|at| START + at * 1_000_000).collect();
        let again = retime(again.iter().collect(), &times);
        let (one, other) = (only(&retime(sent.iter().collect(), &times)), only(&again));
        prop_assert_eq!((one.ending, one.closed_by, one.bytes_to_client, one.bytes_to_server), (other.ending, other.closed_by, other.bytes_to_client, other.bytes_to_server));
    }

    /// Distorts like a capture with several queues: packets are reordered within half a millisecond, and some are
    /// duplicated.
    #[test]
    fn orders_change_nothing(
        exchanges in vec((40..600_u32, 1..6_u32), 1..4),
        end in end(),
        delays in vec(0..500_u64, 80),
        copies in vec(any::<bool>(), 80),
    ) {
        let text = conversation(&exchanges, end);
        // A RST without an acknowledgment does not show which segment it answers.
        prop_assume!(!text.ends_with("Cf^1 SR^1"));
        let sent = hurried(lower(script(&text), end));
        let (one, other) = (only(&sent), only(&mixed(&sent, &delays, &copies)));
        let stamped = only(&stamped(&sent, &delays, &copies));
        let summary = |it: &Connection| (it.ending, it.closed_by, it.phase, it.requests, it.bytes_to_client, it.bytes_to_server);
        prop_assert_eq!(summary(&one), summary(&other), "{}", text);
        prop_assert_eq!(summary(&one), summary(&stamped), "{}", text);
    }

    /// Clocks may begin at 0, and stand still.
    #[test]
    fn no_time_is_special(exchanges in vec((40..600_u32, 1..6_u32), 1..4), end in end(), lost: u64) {
        let sent = lower(script(&conversation(&exchanges, end)), end);
        let kept: Vec<_> = sent.iter().zip(0_u32..).filter(|(_, at)| lost >> (at % 64) & 1 == 0).map(|(it, _)| it).collect();
        let observed = |times: Vec<u64>| events(&retime(kept.clone(), &times)).iter().map(untimed).collect::<Vec<_>>();
        let standing = |at: u64| vec![at; kept.len()];
        let running = |at: u64| kept.iter().map(|it| it.time - START - 1_000_000 + at).collect();
        prop_assert_eq!(observed(standing(0)), observed(standing(START)));
        prop_assert_eq!(observed(running(0)), observed(running(START)));
    }

    /// A SYN or SYN-ACK shows the client, even if the rest is lost. Here the ports suggest the opposite.
    #[test]
    fn losses_break_nothing(exchanges in vec((40..600_u32, 1..6_u32), 1..4), end in end(), lost: u64) {
        let sent = lower(script(&conversation(&exchanges, end)), end);
        let kept = sent.into_iter().zip(0_u32..).filter(|(_, at)| lost >> (at % 64) & 1 == 0);
        let kept: Vec<_> = kept.map(|(it, _)| Sent { port: 400, ..it }).collect();
        let events = events(&kept);
        let mut ledger = Ledger::default();
        ledger.take(&events);
        ledger.assert_balanced();
        let closed = closed(&events);
        prop_assert_eq!(ledger.opened as usize, closed.len());
        prop_assert!(closed.len() <= 1, "{:?}", closed);
        let is_syn = |it: &Sent| it.flags.contains(Flags::SYN);
        let client = if kept.iter().any(is_syn) { 400 } else { 443 };
        prop_assert!(closed.iter().all(|it| it.client.port() == client), "{:?}", closed);
        // Data, a FIN or a RST without a SYN begin a connection, too.
        let begins = |it: &Sent| it.len > 0 || it.flags.0 & 7 != 0;
        prop_assert_eq!(closed.len(), usize::from(kept.iter().any(begins)));
    }
}
