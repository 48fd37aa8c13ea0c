//! Faults of captures and networks, and forged segments.

use super::script::{closed, events, script, summaries};

const CASES: &[(&str, &str, &[&str])] = &[
    // Which side closed first.
    (
        "both closed at once: the first captured",
        "Cs Ssa Ca C+100 S+1000 Ca Sf Cf^1001 Ca Sa",
        &["S_NORMAL after_answer SF ShADdfFa 1000/100"],
    ),
    (
        "the answering FIN was captured first",
        "Cs Ssa Ca C+100 S+1000 Ca Sf@1001^102 Cf@101^1001 Ca@102^1002",
        &["C_NORMAL after_answer SF ShADdFf 1000/100"],
    ),
    (
        "so far ahead that it does not wait",
        "Cs Ssa Ca C+100 S+1000 Ca Sf@1001^102 ~0.01 Cf@101^1001 Ca@102^1002",
        &["C_NORMAL after_answer SF ShADdfF 1000/100"],
    ),
    (
        "the first copy of the first FIN was not captured, nor was it answered at once",
        "Cs Ssa Ca C+100 S+1000 Ca Cf@101^1001 Sf@1001^102 Cf@101^1002 Sf@1001^101",
        &["C_NORMAL after_answer SF ShADdFf 1000/100"],
    ),
    (
        "the server's FIN was not captured",
        "Cs Ssa Ca C+100 S+1000 Ca -Sf Cf Sa",
        &["S_NORMAL after_answer S2 ShADdFa 1000/100"],
    ),
    (
        "a reset that knows of the FIN",
        "Cs Ssa Ca C+100 S+1000 Ca Sf Cr",
        &["S_NORMAL after_answer RSTO ShADdfR 1000/100"],
    ),
    // A RST behind a FIN of the same side is part of a regular close if the other side closes by a FIN (Zeek: SF).
    (
        "a FIN and a RST of the client, and then the server's FIN",
        "Cs Ssa Ca C+100 S+1000 Ca Cf CR@102 Sf",
        &["C_NORMAL after_answer SF ShADdFRf 1000/100"],
    ),
    (
        "the same of the server",
        "Cs Ssa Ca C+100 S+1000 Ca Sf Sr@1002 Cf",
        &["S_NORMAL after_answer SF ShADdfrF 1000/100"],
    ),
    (
        "a FIN and a RST of the client, and no FIN of the server",
        "Cs Ssa Ca C+100 S+1000 Ca Cf CR@102 Sa",
        &["C_NORMAL after_answer RSTO ShADdFRa 1000/100"],
    ),
    (
        "a RST of the client, and then the server's FIN",
        "Cs Ssa Ca C+100 S+1000 Ca CR@101 Sf",
        &["C_RESET after_answer RSTO ShADdRf 1000/100"],
    ),
    (
        "a RST behind both FINs",
        "Cs Ssa Ca C+100 S+1000 Ca Cf Sf CR@102",
        &["C_NORMAL after_answer SF ShADdFfR 1000/100"],
    ),
    // Zeek reports RSTOS0 only for a SYN that is followed by nothing but the RST.
    ("the client alone, without its SYN", "-Cs -Ssa Ca C+100 -S+9 CR@101", &["C_RESET before_answer OTH DR 0/100"]),
    ("the client alone, with data", "Cs -Ssa Ca C+100 -S+9 CR@101", &["C_RESET before_answer OTH SADR 0/100"]),
    (
        "the server resets what comes after its close",
        "Cs Ssa Ca C+100 S+1000 Ca Sf Ca C+50 SR@1002",
        &["S_NORMAL after_answer RSTR ShADdfr 1000/150"],
    ),
    (
        "a request crosses the close of an idle connection",
        "Cs Ssa Ca C+100 S+1000 Ca ~5 Sf^101 C+70^1001 SR@1002",
        &["S_NORMAL idle RSTR ShADdfr 1000/170"],
    ),
    // Half-closed.
    (
        "the client has no more requests, and gets its answer",
        "Cs Ssa Ca C+100 Cf Sa S+1000 Ca S+1000 Ca Sf Ca",
        &["C_NORMAL before_answer SF ShADFadf 2000/100"],
    ),
    ("a server that never closes", "Cs Ssa Ca C+100 Cf Sa ~200 C+0", &["C_NORMAL before_answer S2 ShADFa 0/100"]),
    // Wrong sequence numbers.
    (
        "a forged RST far away ends nothing",
        "Cs Ssa Ca C+100 SR@900000 S+1000 Ca Cf Sf Ca",
        &["C_NORMAL after_answer SF ShADdrFf 1000/100"],
    ),
    (
        "nor does one behind",
        "Cs Ssa Ca C+100 S+1000 Ca S+1000 Ca SR@500 S+1000 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShADdrfFa 3000/100"],
    ),
    (
        "one in the window, and data go on",
        "Cs Ssa Ca C+100 S+1000 Ca SR@1005 S+1000 Ca S+1000 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShADdrfFa 3000/100"],
    ),
    (
        "one with the right number, and data go on",
        "Cs Ssa Ca C+100 S+1000 CR@101 Ca S+1000 Ca S+1000 Ca Sf Cf Sa",
        &["S_NORMAL after_answer SF ShADdRfFa 3000/100"],
    ),
    (
        "a RST that answers no SYN of this client",
        "Cs Sr^777 Ssa Ca C+100 S+1000 Ca Cf Sf Ca",
        &["C_NORMAL after_answer SF ShrADdFf 1000/100"],
    ),
    (
        "data from nowhere",
        "Cs Ssa Ca C+100 S+1000 Ca S@900000000+10^101 S@1001+10 Ca^1011 Cf^1011 Sf@1011 Ca",
        &["C_NORMAL after_answer SF ShADdFf 1010/100"],
    ),
    // SYNs.
    ("a SYN again", "Cs Cs@0 Ssa Ssa@0 Ca Cs@0 Cf Sf Ca", &["C_NORMAL before_request SF ShAFf 0/0"]),
    ("the SYN-ACK was not captured", "Cs -Ssa Ca C+9 S+9 Ca Cf Sf Ca", &["C_NORMAL after_answer SF SADdFf 9/9"]),
    ("the SYN was not captured", "-Cs Ssa Ca C+9 S+9 Ca Cf Sf Ca", &["C_NORMAL after_answer SF ^hADdFf 9/9"]),
    ("both open", "Cs Ss@0 Cs@0 Ssa@0^1 Ca^1 C@1+9^1 S@1+9^10 Cf Sf Ca", &["C_NORMAL after_answer SF SsADdFf 9/9"]),
    (
        "a port is used again",
        "Cs Ssa Ca C+9 S+9 Ca Cf Sf Ca ~0.01 Cs@500 Ssa@9000 Ca C+7 S+8 Ca Sf Cf Sa",
        &["C_NORMAL after_answer SF ShADdFf 9/9", "S_NORMAL after_answer SF ShADdfFa 8/7"],
    ),
    (
        "and used again while it was open, as far as was seen",
        "Cs Ssa Ca C+9 S+9 Ca Cs@500 Ssa@9000 Ca",
        &["OPEN in_answer S1 ShADd 9/9", "OPEN before_request S1 ShA 0/0"],
    ),
    (
        "what comes behind an end begins nothing",
        "Cs Ssa Ca C+9 S+9 Ca Cf Sf Ca ~5 Sf@10 Ca ~40 S@1+9 CR",
        &["C_NORMAL after_answer SF ShADdFf 9/9"],
    ),
    ("alone it begins nothing either", "Ca@10^10 Sa@10^10", &[]),
    // Incomplete captures.
    ("from the middle", "C@50+100^900 S@900+1000^150 Ca Sf Cf Sa", &["S_NORMAL after_answer SF DdAfFa 1000/100"]),
    ("the end alone", "Sf@500^90 Cf@90^501 Sa", &["S_NORMAL before_request SF ^fFa 0/0"]),
    ("the client alone", "Cs -Ssa Ca C+100 -S+1000 Ca -S+1000 Ca Cf", &["C_NORMAL after_answer SH SADF 2000/100"]),
    ("the server alone", "-Cs Ssa -Ca -C+100 S+1000 -Ca S+1000 -Ca Sf", &["S_NORMAL after_answer SHR ^hdf 2000/100"]),
    // Lost, late and duplicate segments.
    (
        "a hole in the answer that is filled",
        "Cs Ssa Ca C+100 S@1+1000 S@2001+1000 Ca^1001 S@1001+1000 Ca^3001 Cf Sf Ca",
        &["C_NORMAL after_answer SF ShADdtFf 3000/100"],
    ),
    (
        "a hole in the capture",
        "Cs Ssa Ca C+100 S@1+1000 S@2001+1000 Ca^3001 Cf Sf Ca",
        &["C_NORMAL after_answer SF ShADdgFf 3000/100"],
    ),
    (
        "the answer before the request",
        "Cs Ssa Ca S@1+9^10 C@1+9^1 Ca^10 Cf Sf Ca",
        &["C_NORMAL after_answer SF ShADdFf 9/9"],
    ),
    (
        "long before the request",
        "Cs Ssa Ca S@1+9^10 ~0.01 C@1+9^1 Ca^10 Cf Sf Ca",
        &["C_NORMAL after_answer SF ShAdDFf 9/9"],
    ),
    (
        "data before the SYN",
        "C@1+9^1 Cs@0 Ssa@0^1 Ca@10^1 S@1+9^10 Ca Cf Sf Ca",
        &["C_NORMAL after_answer SF SDhAdFf 9/9"],
    ),
];

#[test]
fn they_end_as_they_did() {
    let wrong: Vec<_> =
        CASES.iter().map(|(name, script, expected)| (name, script, summaries(script), expected)).collect();
    let wrong: Vec<_> = wrong.iter().filter(|(_, _, told, expected)| told != *expected).collect();
    assert!(wrong.is_empty(), "script, said, expected: {wrong:#?}");
}

#[test]
fn a_client_that_asks_and_closes_has_its_answer() {
    let delivered = |text| closed(&events(&script(text))).iter().map(|it| it.is_delivered).collect::<Vec<_>>();
    assert_eq!(delivered("Cs Ssa Ca C+100 Cf Sa S+1000 Ca Sf Ca"), [true]);
    assert_eq!(delivered("Cs Ssa Ca C+100 Cf Sa S+1000 CR CR"), [false]);
    assert_eq!(delivered("Cs Ssa Ca C+100 S+1000 S+1000 Cf^1001 CR"), [false]);
    assert_eq!(delivered("Cs Ssa Ca C+100 S+1000 Ca ~3 Cf"), [true]);
    assert_eq!(delivered("Cs Ssa Ca C+100 S+1000 Ca ~3 C+100 Cf"), [false]);
    assert_eq!(delivered("Cs Ssa Ca C+100 S+1000 Ca Sf Cf"), [true]);
    assert_eq!(delivered("Cs Ssa Ca C+100 Sf Cf"), [false]);
}
