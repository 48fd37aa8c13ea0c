//! Each ending from each side in each phase, as a table.

use std::time::Duration;

use super::script::{closed, events_with, script, summaries};
use crate::{Ending, Event, Settings};

/// The handshake, a request, an answer.
const CASES: &[(&str, &[&str])] = &[
    // An answer, closed by the server; by the client.
    ("Cs Ssa Ca C+100 S+1000 Ca Sf Ca Cf Sa", &["S_NORMAL after_answer SF ShADdfFa 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca ~2 Sf Cf Sa", &["S_NORMAL idle SF ShADdfFa 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca Cf Sf Ca", &["C_NORMAL after_answer SF ShADdFf 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca ~2 Cf Sf Ca", &["C_NORMAL idle SF ShADdFf 1000/100"]),
    // Reset by the client, by the server.
    ("Cs Ssa Ca Cr", &["C_RESET before_request RSTO ShAR 0/0"]),
    ("Cs Ssa Ca C+100 Cr", &["C_RESET before_answer RSTO ShADR 0/100"]),
    ("Cs Ssa Ca C+100 S+1000 Cr^501", &["C_RESET in_answer RSTO ShADdR 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Cr", &["C_RESET after_answer RSTO ShADdR 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca ~5 CR", &["C_RESET idle RSTO ShADdR 1000/100"]),
    ("Cs Ssa Ca Sr", &["S_RESET before_request RSTR ShAr 0/0"]),
    ("Cs Ssa Ca C+100 Sa Sr", &["S_RESET before_answer RSTR ShADar 0/100"]),
    ("Cs Ssa Ca C+100 S+1000 Sr", &["S_RESET in_answer RSTR ShADdr 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca Sr", &["S_RESET after_answer RSTR ShADdr 1000/100"]),
    ("Cs Ssa Ca C+100 S+1000 Ca ~5 Sr", &["S_RESET idle RSTR ShADdr 1000/100"]),
    // A FIN in the other phases.
    ("Cs Ssa Ca Cf Sf Ca", &["C_NORMAL before_request SF ShAFf 0/0"]),
    ("Cs Ssa Ca Sf Cf Sa", &["S_NORMAL before_request SF ShAfFa 0/0"]),
    ("Cs Ssa Ca C+100 Cf Sf Ca", &["C_NORMAL before_answer SF ShADFf 0/100"]),
    ("Cs Ssa Ca C+100 Sf Cf Sa", &["S_NORMAL before_answer SF ShADfFa 0/100"]),
    // The client leaves while the answer is on its way; its RSTs follow its FIN.
    ("Cs Ssa Ca C+100 S+1000 S+1000 Cf^1001 S+500 CR CR", &["C_NORMAL in_answer RSTO ShADdFR 2500/100"]),
    // The handshake.
    ("Cs Sr^1", &["REFUSED before_handshake REJ Sr 0/0"]),
    ("Cs ~1 Cs@0 ~2 Cs@0", &["NO_ANSWER before_handshake S0 S 0/0"]),
    // The server remembers the previous connection, and the client does not; then the port is closed.
    ("Cs Sa@900000^4000000000 CR@4000000000 ~1 Cs@0 Sr@0^1", &["REFUSED before_handshake REJ SaRr 0/0"]),
    ("Cs", &["OPEN before_handshake S0 S 0/0"]),
    ("Cs Ssa", &["OPEN before_handshake S1 Sh 0/0"]),
    ("Cs Ssa CR@1", &["C_RESET before_handshake RSTO ShR 0/0"]),
    ("Cs CR@1", &["C_RESET before_handshake RSTOS0 SR 0/0"]),
    ("Ssa^1", &["BACKSCATTER before_handshake OTH ^h 0/0"]),
    ("Ssa^1 CR@1", &["BACKSCATTER before_handshake RSTO ^hR 0/0"]),
    ("Sr", &["BACKSCATTER before_handshake RSTRH ^r 0/0"]),
    // Timeouts and open connections.
    ("Cs Ssa Ca C+100 ~700 Ca", &["TIMEOUT before_answer S1 ShAD 0/100"]),
    ("Cs Ssa Ca C+100 S+1000 ~700 Ca", &["TIMEOUT in_answer S1 ShADd 1000/100"]),
    ("Cs Ssa Ca", &["OPEN before_request S1 ShA 0/0"]),
    ("Cs Ssa Ca C+100 S+1000 Ca", &["OPEN in_answer S1 ShADd 1000/100"]),
];

#[test]
fn each_from_each_side_in_each_phase() {
    let wrong: Vec<_> = CASES.iter().map(|(script, expected)| (script, summaries(script), expected)).collect();
    let wrong: Vec<_> = wrong.iter().filter(|(_, told, expected)| told != *expected).collect();
    assert!(wrong.is_empty(), "script, said, expected: {wrong:#?}");
}

#[test]
fn a_timeout_may_be_shorter_than_the_default() {
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    let events = events_with(settings, &script("Cs Ssa Ca C+100 ~3 Ca ~1 Sf Cf Sa"));
    let connections = closed(&events);
    assert_eq!(connections[0].ending, Ending::Timeout);
    assert_eq!(connections[0].end.since(connections[0].start), Duration::from_millis(2_003));
    assert_eq!(connections[0].duration(), Duration::from_millis(3));
    assert!(!events.iter().any(|event| matches!(event, Event::Overdue(_))));
}

/// Octets that were acknowledged and not captured count in the octets of their direction.
#[test]
fn gaps_are_counted() {
    const CASES: &[(&str, u64, u64)] = &[
        ("Cs Ssa Ca C+100 S+500 S+500 Ca Cf Sf Ca", 0, 1_000),
        ("Cs Ssa Ca C+100 S+500 -S+1000 S+500 Ca Cf Sf Ca", 1_000, 2_000),
        ("Cs Ssa Ca -C+100 S+500 -S+1000 S+500 Ca -S+300 Ca Sf Cf Sa", 1_400, 2_300),
        // The end of the data is missing, and the FIN is captured, or nothing.
        ("Cs Ssa Ca C+100 S+500 -S+700 Sf Ca Cf Sa", 700, 1_200),
        ("Cs Ssa Ca C+100 S+500 -S+700 Ca Cr", 700, 1_200),
        // The data are sent again, or were not acknowledged.
        ("Cs Ssa Ca C+100 S+500 -S+700 S+500 S@501+700 Ca Cf Sf Ca", 0, 1_700),
        ("Cs Ssa Ca C+100 S+500 Ca -S+700 S+500 Sr", 0, 1_700),
    ];
    for (text, missed, to_client) in CASES {
        let connections = closed(&events_with(Settings::default(), &script(text)));
        let said: Vec<_> = connections.iter().map(|it| (it.missed_bytes, it.bytes_to_client)).collect();
        assert_eq!(said, [(*missed, *to_client)], "{text}");
    }
}

/// Zeek's `duration`: until both sides have closed.
#[test]
fn a_connection_lasts_until_both_sides_have_closed() {
    const CASES: &[(&str, u64)] = &[
        // The last ACK does not count.
        ("Cs Ssa Ca C+100 S+1000 Ca Cf Sf Ca", 7),
        // The client closes behind its request, and the answer takes five seconds.
        ("Cs Ssa Ca C+100 Cf Sa ~5 S+1000 Ca Sf Ca", 5_008),
        // No side closes, or one does.
        ("Cs Ssa Ca C+100 S+1000 ~3 Ca", 3_005),
        ("Cs Ssa Ca C+100 Sf ~3 Ca", 3_005),
        // A side that has closed resets what arrives later.
        ("Cs Ssa Ca C+100 Cf ~2 S+1000 CR@102", 2_006),
        ("Cs Ssa Ca C+100 Sf Cf ~0.1 S@2+0 ~0.1 Sf@1", 5),
    ];
    for (text, ms) in CASES {
        let connections = closed(&events_with(Settings::default(), &script(text)));
        let durations: Vec<_> = connections.iter().map(|it| it.duration().as_millis()).collect();
        assert_eq!(durations, [u128::from(*ms)], "{text}");
    }
}

/// Reordering as by several queues of a network card, or by two cards.
#[test]
fn what_was_captured_ahead_of_what_it_follows_changes_nothing() {
    const CASES: &[(&str, &str)] = &[
        // A FIN ahead of the request that it follows, and of an answer.
        ("Cs Ssa Ca Cf@101 C@1+100 Sa^102 Sf", "C_NORMAL before_answer SF ShADFaf 0/100"),
        ("Cs Ssa Ca C+100 Sf@1001 S@1+1000 Ca^1002 Cf", "S_NORMAL after_answer SF ShADdfF 1000/100"),
        // So far ahead that the monitor does not wait.
        ("Cs Ssa Ca Cf@101 ~0.01 C@1+100 Sa^102 Sf", "C_NORMAL before_answer SF ShAFDTaf 0/100"),
        ("Cs Ssa Ca C+100 Sf@1001 ~0.01 S@1+1000 Ca^1002 Cf", "S_NORMAL after_answer SF ShADfdtF 1000/100"),
        // The next request ahead of the answer that it follows; an answer ahead of its request.
        ("Cs Ssa Ca C+100 C@101+50^901 S@1+900^101 Ca^901 Cf Sf", "C_NORMAL before_answer SF ShADdFf 900/150"),
        ("Cs Ssa Ca C+100 C@101+50^901 ~0.01 S@1+900^101 Ca^901 Cf Sf", "C_NORMAL before_answer SF ShADdFf 900/150"),
        ("Cs Ssa Ca C+100 S+9 S@10+9^151 C@101+50^10 Ca^19 Sr", "S_RESET after_answer RSTR ShADdr 18/150"),
        // Data of the last answer that the server sent while the next request was on its way do not answer that
        // request.
        ("Cs Ssa Ca C+100 S+900 Ca C+50 S+900^101 S+900^101 Ca Cf Sf", "C_NORMAL before_answer SF ShADdFf 2700/150"),
        // A RST ahead of the SYN that it refuses.
        ("Sr^1 Cs@0", "REFUSED before_handshake REJ Sr 0/0"),
        // A duplicate of a SYN is not a second SYN.
        ("Cs Cs@0", "OPEN before_handshake S0 S 0/0"),
        ("Cs ~1 Cs@0", "NO_ANSWER before_handshake S0 S 0/0"),
    ];
    let said: Vec<_> = CASES.iter().map(|(script, _)| summaries(script).join(", ")).collect();
    let expected: Vec<_> = CASES.iter().map(|(_, expected)| (*expected).to_owned()).collect();
    assert_eq!(said, expected);
}
