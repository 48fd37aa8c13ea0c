//! Rare but valid behavior.

use std::time::Duration;

use watari_packets::Flags;

use super::script::{START, Sent, closed, events, events_with, hurried, script, summaries};
use crate::{ConnState, Connection, Ending, Event, Phase, Settings, Side};

const CASES: &[(&str, &str, &[&str])] = &[
    // Data with the SYN (RFC 7413).
    (
        "the server takes the data that come with the SYN",
        "Cs+100 Ssa^101 S+1000 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShdAfFa 1000/100"],
    ),
    (
        "it does not, and the client sends them again",
        "Cs+100 Ssa^1 Ca^1 C@1+100 S+1000 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShADTdfFa 1000/100"],
    ),
    (
        "the client leaves in the answer",
        "Cs+100 Ssa^101 S+1000 Cf^1 CR",
        &["C_NORMAL before_answer RSTO ShdFR 1000/100"],
    ),
    ("data with the SYN-ACK", "Cs Ssa+5^1 Ca C+100 S+9 Ca Cf Sf Ca", &["C_NORMAL after_answer SF ShADdFf 14/100"]),
    ("a FIN with the SYN is none", "CsF ~1 CsF@0", &["NO_ANSWER before_handshake SH Q 0/0"]),
    // Ends that an earlier connection used.
    (
        "a server that waits answers a SYN with what it expects",
        "Cs Ssa Ca C+9 S+9 Ca Sf Ca Cf Sa ~5 Cs@5000 Sa@11^11 CR@11 ~1 Cs@5000 Ssa@90000 Ca C+7 S+8 Ca Cf Sf Ca",
        &["S_NORMAL after_answer SF ShADdfFa 9/9", "C_NORMAL after_answer SF SaRhADdFf 8/7"],
    ),
    (
        "a FIN of an earlier connection comes late",
        "Cs@1000 Ssa@0^1001 Ca@1001 C@1001+9 Cf@500 S@1+9^1010 Ca@1010^10 Sf@10^1010 Cf@1010^11 Sa@11^1011",
        &["S_NORMAL after_answer SF ShADFdfFa 9/9"],
    ),
    (
        "the client's reboot is all that is seen of the end",
        "Cs Ssa Ca C+9 S+9 Ca ~5 Cs@5000 Sa@10^10 CR@10 ~1 Cs@5000 Ssa@90000 Ca C+7 S+8 Ca Sf Cf Sa",
        &["OPEN idle S1 ShADd 9/9", "S_NORMAL after_answer SF SaRhADdfF 8/7"],
    ),
    // Probes.
    (
        "keepalive probes, with an octet and without",
        "Cs Ssa Ca C+9 S+9 Ca ~40 Sa@9 Ca ~40 S@9+1 Ca ~40 Ca@9 Sa ~3 Cf Sf Ca",
        &["C_NORMAL idle SF ShADdatFf 9/9"],
    ),
    (
        "before anything was said",
        "Cs Ssa Ca ~40 C@0+1 Sa ~40 Ca@0 Sa ~3 Sf Cf Sa",
        &["S_NORMAL before_request SF ShADTafF 0/0"],
    ),
    // Closes.
    (
        "a FIN again and again, and then a RST",
        "Cs Ssa Ca C+100 S+1000 Ca Cf ~1 Cf@101 ~2 Cf@101 ~3 CR@102",
        &["C_NORMAL after_answer RSTO ShADdFR 1000/100"],
    ),
    (
        "a SYN-ACK again and again, and then a RST",
        "Cs Ssa ~1 Ssa@0 ~2 Ssa@0 ~4 Sr",
        &["S_RESET before_handshake RSTR Shr 0/0"],
    ),
    (
        "requests that do not wait for answers",
        "Cs Ssa Ca C+100 C+100 S+500^101 S+500^201 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShADdfFa 1000/200"],
    ),
    // One direction alone: a step of one is a FIN.
    (
        "the server's, and the client closed",
        "-Cs Ssa -Ca -C+100 S+1000 -Ca -Cf Sa Sf -Ca",
        &["C_NORMAL after_answer SHR ^hdaf 1000/100"],
    ),
    (
        "the server's, and the server closed",
        "-Cs Ssa -Ca -C+100 S+1000 -Ca Sf -Ca -Cf Sa",
        &["S_NORMAL after_answer SHR ^hdfa 1000/100"],
    ),
    (
        "the client's, and the server closed",
        "Cs -Ssa Ca C+100 -S+1000 Ca -Sf Ca Cf -Sa",
        &["S_NORMAL after_answer SH SADF 1000/100"],
    ),
    (
        "the client's, and the client closed",
        "Cs -Ssa Ca C+100 -S+1000 Ca Cf -Sa -Sf Ca",
        &["C_NORMAL after_answer SH SADF 1000/100"],
    ),
    // Gaps of a capture.
    (
        "it begins in an answer",
        "S@900+1000^600 Ca@600^1900 S@1900+1000^600 Cr@600^1900",
        &["C_RESET in_answer OTH ^dAR 2000/0"],
    ),
    (
        "it begins behind a request",
        "Sa@900^600 S@900+1000^600 Ca@600^1900 Sf Cf Sa",
        &["S_NORMAL after_answer SF ^dAfFa 1000/0"],
    ),
    (
        "it lost the request and the answer",
        "Cs Ssa Ca -C+9 -S+99 Ca Cf Sf Ca",
        &["C_NORMAL after_answer SF ShAFfGg 99/9"],
    ),
    (
        "it lost the handshake of TLS, as it seems",
        "Cs Ssa Ca C{\u{16}\u{3}\u{1}\u{2}\u{1}} -S+99 Ca Cf Sf Ca",
        &["C_NORMAL before_request SF ShADFfg 99/5"],
    ),
    // The limit: a script's packets are a millisecond apart.
    ("the answer comes in time", "Cs Ssa Ca C+9 ~599.99 S+9 Ca Cf Sf", &["C_NORMAL after_answer SF ShADdFf 9/9"]),
    ("it comes a millisecond late", "Cs Ssa Ca C+9 ~600 S+9 Ca Cf Sf Ca", &["TIMEOUT before_answer S1 ShAD 0/9"]),
    ("the capture ends when the time is over", "Cs Ssa Ca C+9 ~600 Ca", &["TIMEOUT before_answer S1 ShAD 0/9"]),
    ("it ends before", "Cs Ssa Ca C+9 ~599.999 Ca", &["OPEN before_answer S1 ShAD 0/9"]),
];

#[test]
fn they_end_as_they_did() {
    let wrong: Vec<_> =
        CASES.iter().map(|(name, script, expected)| (name, script, summaries(script), expected)).collect();
    let wrong: Vec<_> = wrong.iter().filter(|(_, _, told, expected)| told != *expected).collect();
    assert!(wrong.is_empty(), "script, said, expected: {wrong:#?}");
}

const GET: &str = "C{GET / HTTP/1.1\\r\\n\\r\\n}";
const OK: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello}";

/// A connection that was reported as timed out is not reported again while it continues.
#[test]
fn a_timeout_is_one_connection() {
    // A packet in 100 s for 20 minutes.
    let head = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 1200\\r\\n\\r\\n}";
    let download = format!("Cs Ssa Ca {GET} {head} {} Sf Cf Sa", "~100 S+100 Ca ".repeat(12));
    assert_eq!(summaries(&download), ["TIMEOUT in_answer S1 ShADd 541/18"]);
    assert_eq!(summaries(&format!("{download} ~40 S@1300+9")), ["TIMEOUT in_answer S1 ShADd 541/18"]);
    // Another connection may use the same ends meanwhile.
    let again = summaries(&format!("{download} Cs@5000 Ssa@9000 Ca Cf Sf Ca"));
    assert_eq!(again[1..], ["C_NORMAL before_request SF ShAFf 0/0"]);
    // One side closed, and the other sends for a long time after that.
    let half = "Cs Ssa Ca C+100 Cf Sa ~200 S+900 ~100 S+900 ~100 Sf";
    assert_eq!(summaries(half), ["C_NORMAL before_answer S2 ShADFa 0/100"]);
}

/// A connection that was silent for [`Settings::silence_max`] and then continues is reported as another one.
#[test]
fn what_goes_on_after_a_long_silence_begins_anew() {
    let exchange = format!("{GET} {OK} Ca");
    let text = format!("Cs Ssa Ca {exchange} ~9000 {exchange} Sf Cf Sa");
    let said: Vec<_> = closed(&events(&script(&text))).iter().map(|it| (it.ending, it.requests)).collect();
    assert_eq!(said, [(Ending::Open, 1), (Ending::SNormal, 1)]);
}

/// Sequence numbers wrap around more than once.
#[test]
fn transfers_of_many_gibibytes() {
    const GIB: u64 = 1 << 30;
    for gibibytes in 1..10 {
        let download = transfer("Cs Ssa Ca C+100", Side::Server, gibibytes * GIB, "Sf Cf Sa");
        let said = (download.ending.as_str(), download.phase.as_str(), download.requests, download.bytes_to_client);
        assert_eq!(said, ("S_NORMAL", "after_answer", 1, gibibytes * GIB));
        let reset = transfer("Cs Ssa Ca C+100 S+9 Ca", Side::Server, gibibytes * GIB, "-S+9 Cr");
        let said = (reset.ending.as_str(), reset.phase.as_str(), reset.bytes_to_client);
        assert_eq!(said, ("C_RESET", "after_answer", gibibytes * GIB + 9));
        let upload = transfer("Cs Ssa Ca C+100", Side::Client, gibibytes * GIB, "S+50 Ca Cf Sf");
        let said = (upload.ending.as_str(), upload.phase.as_str(), upload.requests, upload.bytes_to_server);
        assert_eq!(said, ("C_NORMAL", "after_answer", 1, gibibytes * GIB + 100));
    }
    // The client's acknowledgments were not captured.
    let alone = transfer("-Cs Ssa -Ca -C+100 S+9", Side::Server, 3 * GIB, "SR");
    assert_eq!((alone.ending.as_str(), alone.bytes_to_client), ("S_RESET", 3 * GIB + 9));
}

/// A connection with `octets` of one side between its begin and its end.
fn transfer(begin: &str, side: Side, octets: u64, end: &str) -> Connection {
    const LEN: u32 = 1 << 26;
    let is_client = side == Side::Client;
    // Builds the begin and the end, and inserts the data between them.
    let whole = script(&format!("{begin} {}+0 {end}", if is_client { "C" } else { "S" }));
    let at = script(begin).len();
    let step = u64::from(LEN);
    let (before, last) = (&whole[..at], whole[at].clone());
    let is_acknowledged = before.iter().any(|it| it.is_client != is_client && it.len + u32::from(it.flags.0 & 2) > 0)
        && before.iter().any(|it| it.is_client);
    let mut all = before.to_vec();
    for part in 0..octets / step {
        let sequence = last.sequence.wrapping_add((part * step) as u32);
        all.push(Sent { sequence, len: LEN, ..last.clone() });
        if is_acknowledged {
            let (sequence, acknowledgment) = (last.acknowledgment, sequence.wrapping_add(LEN));
            all.push(Sent { is_client: !is_client, sequence, acknowledgment, ..last.clone() });
        }
    }
    for it in &whole[at + 1..] {
        let further = octets as u32;
        let mut it = it.clone();
        let number = if it.is_client == is_client { &mut it.sequence } else { &mut it.acknowledgment };
        *number = number.wrapping_add(further);
        all.push(it);
    }
    let mut closed = closed(&events(&all));
    assert_eq!(closed.len(), 1, "{closed:#?}");
    closed.remove(0)
}

/// Each connection is reported once, with its ending, even if the clock of the capture goes back.
#[test]
fn clocks_go_back() {
    let mut sent = script("Cs Ssa Ca C+100 S+1000 Ca Sf Cf Sa");
    for it in &mut sent[4..] {
        it.time -= Duration::from_hours(1).as_nanos() as u64 / 10;
    }
    let back = closed(&events(&sent));
    assert_eq!(back.len(), 1);
    assert_eq!((back[0].ending.as_str(), back[0].phase.as_str()), ("S_NORMAL", "after_answer"));
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    assert_eq!(closed(&events_with(settings, &sent))[0].ending.as_str(), "S_NORMAL");
}

/// Any segment may be captured first, up to a millisecond ahead of the SYN. It belongs to the same connection.
#[test]
fn what_was_captured_ahead_of_its_syn_is_of_its_connection() {
    for end in ["Sf Ca Cf Sa", "Cf Sf Ca", "Cr", "Sr"] {
        let sent = hurried(script(&format!("Cs Ssa Ca {GET} Sa {OK} Ca {end}")));
        let expected = facts(&sent);
        let (client, server): (Vec<_>, Vec<_>) = sent.iter().cloned().partition(|it| it.is_client);
        let mut orders = vec![[client.clone(), server.clone()].concat(), [server, client].concat()];
        for at in 0..sent.len() {
            let (mut first, mut last) = (sent.clone(), sent.clone());
            first[..=at].rotate_right(1);
            last[at..].rotate_left(1);
            orders.extend([first, last]);
        }
        for mut order in orders {
            // Acknowledgments alone begin no connection.
            if order[0].flags == Flags::ACK && order[0].len == 0 {
                continue;
            }
            let flags: Vec<_> = order.iter().map(|it| (it.is_client, it.flags.0, it.len)).collect();
            for (it, time) in order.iter_mut().zip(START..) {
                it.time = START + (time - START) * 50_000;
                // The lower port is not the server's.
                it.port = 300;
            }
            assert_eq!(facts(&order), expected, "{end}: {flags:?}");
        }
    }
}

/// Facts of the connections, which all have the same ends.
fn facts(sent: &[Sent]) -> Vec<(Ending, Phase, bool, u32, ConnState)> {
    let events = events(sent);
    let (client, server) = (sent[0].segment(), sent[0].is_client);
    let (client, server) =
        if server { (client.source, client.destination) } else { (client.destination, client.source) };
    for event in &events {
        let mut event = event.clone();
        let (of, by) = event.ends_mut();
        assert_eq!((of.copied(), *by), (Some(client), server), "{event:?}");
    }
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Opened(_))).count(), 1);
    let fact = |it: &Connection| (it.ending, it.phase, it.is_delivered, it.requests, it.conn_state);
    closed(&events).iter().map(fact).collect()
}

/// A later SYN does not change the reported client.
#[test]
fn begin_and_end_name_the_same_peers() {
    for wait in ["", "~0.0005", "~0.01", "~0.5", "~3"] {
        let mut sent = script(&format!("C@1+9^1 {wait} Cs@0 Ssa@0^1 Ca@10^1 S@1+9^10 Ca Cf Sf Ca"));
        for it in &mut sent {
            it.port = 300;
        }
        let (mut open, mut closed) = (Vec::new(), Vec::new());
        for event in &mut events(&sent) {
            let is_begin = matches!(event, Event::Opened(_));
            let (client, server) = event.ends_mut();
            if is_begin { &mut open } else { &mut closed }.push((client.copied(), *server));
        }
        closed.dedup();
        assert_eq!(open, closed, "{wait}");
    }
}
