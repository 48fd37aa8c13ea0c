//! Clear HTTP/1.

use proptest::prelude::*;

use super::script::{Sent, closed, events, hurried, mixed, script, summaries};
use crate::{Connection, Ending, Event, Phase, Request};

fn requests(events: &[Event]) -> Vec<Request> {
    let request = |event: &Event| if let Event::Request(request) = event { Some(*request) } else { None };
    events.iter().filter_map(request).collect()
}

/// `METHOD status content first-octet/whole-answer in ms, complete or not`.
fn facts(sent: &[Sent]) -> Vec<String> {
    let line = |request: &Request| {
        let http = request.http.unwrap_or_default();
        let ms =
            |time: Option<std::time::Duration>| time.map_or_else(|| "-".into(), |time| time.as_millis().to_string());
        format!(
            "{} {} {} {}/{}{}",
            http.method.map_or_else(|| "-".into(), |method| method.as_str().to_owned()),
            http.status.map_or_else(|| "-".into(), |status| status.to_string()),
            http.content.map_or_else(|| "-".into(), |content| content.to_string()),
            ms(request.exchange.first_octet()),
            ms(request.exchange.response()),
            if request.exchange.is_complete { "" } else { " cut" },
        )
    };
    requests(&events(sent)).iter().map(line).collect()
}

const GET: &str = "C{GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n}";
const OK_5: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello}";

fn said(text: &str) -> Vec<String> {
    facts(&script(&format!("Cs Ssa Ca {} Cf Sf Ca", text.replace("ASK", GET).replace("OK_5", OK_5))))
}

#[test]
fn requests_and_answers() {
    let cases: &[(&str, &[&str])] = &[
        ("ASK OK_5 Ca", &["GET 200 5 1/1"]),
        ("ASK ~0.2 OK_5 Ca ASK ~0.3 OK_5 Ca", &["GET 200 5 201/201", "GET 200 5 301/301"]),
        ("ASK S{HTTP/1.1 200 OK\\r\\nContent-Length: 3000\\r\\n\\r\\n} S+1000 S+1000 S+1000", &["GET 200 3000 1/4"]),
        ("ASK S{HTTP/1.1 200 OK\\r\\nContent-Length: 3000\\r\\n\\r\\n} S+1000", &["GET 200 1000 1/2 cut"]),
        // A single octet shows no protocol. Lines in pieces, and with odd cases and blanks.
        ("C{G} C{ET / HTTP/1.1\\r\\n} C{\\r\\n} S{HTTP/1.1 2} S{04 No\\r\\n\\r} S{\\n} Ca", &["- - - 1/3 cut"]),
        ("C{GET } C{/ HTTP/1.1\\r\\n} C{\\r\\n} S{HTTP/1.1 204 No\\r\\n\\r} S{\\n} Ca", &["GET 204 0 1/2"]),
        ("ASK S{HTTP/1.1 200\\r\\ncontent-length:  5 \\r\\n\\r\\nhello} Ca", &["GET 200 5 1/1"]),
        // Chunks.
        (
            "ASK S{HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n} S{3e8;x=y\\r\\n} S+1000 \
             S{\\r\\n0\\r\\nT: 1\\r\\n\\r\\n} Ca",
            &["GET 200 1005 1/4"],
        ),
        (
            "ASK S{HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n} Ca",
            &["GET 200 5 1/1 cut"],
        ),
        // Messages without a body.
        (
            "C{HEAD / HTTP/1.1\\r\\n\\r\\n} S{HTTP/1.1 200 OK\\r\\nContent-Length: 99\\r\\n\\r\\n} Ca",
            &["HEAD 200 0 1/1"],
        ),
        ("ASK S{HTTP/1.1 304 Same\\r\\nContent-Length: 99\\r\\n\\r\\n} Ca", &["GET 304 0 1/1"]),
        // A request with content, and an interim response.
        (
            "C{POST / HTTP/1.1\\r\\nContent-Length: 2000\\r\\nExpect: 100-continue\\r\\n\\r\\n} S{HTTP/1.1 100 Go\\r\\n\\r\\n} C+1000 \
             C+1000 OK_5 Ca",
            &["POST 200 5 1/1"],
        ),
        ("C{POST / HTTP/1.1\\r\\nContent-Length: 2000\\r\\n\\r\\n} C+1000 C+1000 OK_5 Ca", &["POST 200 5 1/1"]),
        // Pipelined requests.
        (
            "C{GET /1 HTTP/1.1\\r\\n\\r\\nGET /2 HTTP/1.1\\r\\n\\r\\nHEAD /3 HTTP/1.1\\r\\n\\r\\n} S{HTTP/1.1 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\n1HTTP/1.1 \
             404 No\\r\\nContent-Length: 1\\r\\n\\r\\n2} S{HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\n} Ca",
            &["GET 200 1 1/1", "GET 404 1 1/1", "HEAD 200 0 2/2"],
        ),
        // No answer.
        ("ASK", &["GET - - -/- cut"]),
        ("ASK ASK ASK OK_5 OK_5 Ca", &["GET 200 5 3/3", "GET 200 5 3/3", "GET - - -/- cut"]),
        (
            "ASK ASK ASK OK_5 S{HTTP/1.1 404 No\\r\\nContent-Length: 9\\r\\n\\r\\nhello} Ca",
            &["GET 200 5 3/3", "GET 404 5 3/3 cut", "GET - - -/- cut"],
        ),
        ("ASK ASK ASK", &["GET - - -/- cut", "GET - - -/- cut", "GET - - -/- cut"]),
        // Not HTTP any more.
        ("ASK S{HTTP/1.1 101 Ok\\r\\nUpgrade: x\\r\\n\\r\\n} S+50 Ca C+50 S+50 Ca", &["GET 101 0 1/1"]),
        ("ASK S{HTTP/1.1 101 Ok\\r\\n} S{Upgrade: x\\r\\n\\r\\nHTTP/1.1} Ca C+50 S+50 Ca", &["GET 101 0 1/2"]),
        ("C{CONNECT a:1 HTTP/1.1\\r\\n\\r\\n} S{HTTP/1.1 200 Ok\\r\\n\\r\\n} C+50 S+50 Ca", &["CONNECT 200 0 1/1"]),
    ];
    for (text, expected) in cases {
        assert_eq!(&said(text), expected, "{text}");
    }
}

#[test]
fn what_was_not_captured_makes_it_blind_for_a_while() {
    // Heads cut by a short snap length: the requests show the client, and the direction of data separates answers. The
    // result is the same if requests are short enough to be whole.
    for snap_len in [22, 30] {
        let mut sent = script(&format!("Cs Ssa Ca {GET} {OK_5} Ca {GET} {OK_5} Ca Cf Sf Ca"));
        for it in &mut sent {
            it.data.truncate(snap_len);
        }
        assert_eq!(facts(&sent), ["GET 200 - 1/1", "GET 200 - 1/1 cut"], "{snap_len}");
    }
    // A head is lost; the parser resumes at the next one.
    let lost = format!("Cs Ssa Ca {GET} -{OK_5} Ca {GET} {OK_5} Ca Cf Sf Ca");
    assert_eq!(facts(&script(&lost)), ["GET - - 2/2", "GET 200 5 1/1"]);
}

#[test]
fn an_answer_that_is_known_to_be_whole_or_not_tells_the_phase() {
    let ending = |text: &str| summaries(&text.replace("ASK", GET).replace("OK_5", OK_5)).remove(0);
    let cases = [
        // All captured data are acknowledged, and the answer is incomplete.
        ("S{HTTP/1.1 200 OK\\r\\nContent-Length: 90\\r\\n\\r\\nhello} Ca ~3 Cf Sf Ca", "C_NORMAL in_answer"),
        ("S{HTTP/1.1 200 OK\\r\\nContent-Length: 90\\r\\n\\r\\nhello} Ca Sf Cf Sa", "S_NORMAL in_answer"),
        ("OK_5 Ca ~3 Cf Sf Ca", "C_NORMAL idle"),
        // The answer lasts until the server closes.
        ("S{HTTP/1.1 200 OK\\r\\n\\r\\nhello} Ca ~3 Cf S+90 CR", "C_NORMAL in_answer"),
        ("S{HTTP/1.1 200 OK\\r\\n\\r\\nhello} Ca Sf Cf Sa", "S_NORMAL after_answer"),
        // Interim responses are not answers.
        ("S{HTTP/1.1 100 Continue\\r\\n\\r\\n} Ca Cf Sf Ca", "C_NORMAL before_answer"),
        ("S{HTTP/1.1 103 Early Hints\\r\\nLink: x\\r\\n\\r\\n} Ca Sr", "S_RESET before_answer"),
        ("S{HTTP/1.1 100 Continue\\r\\n\\r\\n} Ca OK_5 Cf^26 CR", "C_NORMAL before_answer"),
        ("S{HTTP/1.1 100 Continue\\r\\n\\r\\n} Ca ~900 Ca", "TIMEOUT before_answer"),
        ("S{HTTP/1.1 100 Continue\\r\\n\\r\\n} OK_5 Ca Sf Cf Sa", "S_NORMAL after_answer"),
        // Trailers belong to the answer.
        (
            "S{HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5;x=y\\r\\nhello\\r\\n0\\r\\nA: 1\\r\\n} Ca Sf Cf Sa",
            "S_NORMAL in_answer",
        ),
        // After a complete answer, neither side is to blame for silence.
        ("OK_5 Ca ~900 Ca", "OPEN idle"),
        ("S{HTTP/1.1 200 OK\\r\\nContent-Length: 90\\r\\n\\r\\nhello} Ca ~900 Ca", "TIMEOUT in_answer"),
        ("~900 Ca", "TIMEOUT before_answer"),
    ];
    for (answer, expected) in cases {
        let told = ending(&format!("Cs Ssa Ca ASK {answer}"));
        assert!(told.starts_with(expected), "{answer}: {told}");
    }
}

/// An answer that lasts until the server closes is complete then (RFC 9112, section 6.3).
#[test]
fn an_answer_may_end_with_the_connection() {
    let facts = |end: &str| facts(&script(&format!("Cs Ssa Ca {GET} S{{HTTP/1.1 200 OK\\r\\n\\r\\nhello}} Ca {end}")));
    assert_eq!(facts("Sf Cf Sa"), ["GET 200 5 1/1"]);
    assert_eq!(facts("S+9 Cf Sa Sf Ca"), ["GET 200 14 1/3"]);
    assert_eq!(facts("Sr"), ["GET 200 5 1/1 cut"]);
    assert_eq!(facts("Cr"), ["GET 200 5 1/1 cut"]);
    assert_eq!(facts("~900 Ca"), ["GET 200 5 1/1 cut"]);
}

/// Data that the client acknowledges have arrived, even if they were IP fragments or lost by the capture.
#[test]
fn what_was_acknowledged_came() {
    let head = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 3000\\r\\n\\r\\n}";
    for body in ["-S+3000 Ca", "S+1000 -S+2000 Ca", "S+1000 -S+1000 S+1000 Ca", "-S+1000 S+1000 -S+1000 Ca"] {
        for end in ["Sf Cf Sa", "Cf Sf Ca", "Cr"] {
            let sent = script(&format!("Cs Ssa Ca {GET} {head} {body} {end}"));
            let said = closed(&events(&sent)).remove(0);
            assert_eq!((said.phase, said.is_delivered), (Phase::AfterAnswer, true), "{body} {end}");
            assert_eq!((said.requests, said.bytes_to_client), (1, 3041), "{body} {end}");
            assert!(
                facts(&sent)[0].starts_with("GET 200 3000 1/") && !facts(&sent)[0].ends_with("cut"),
                "{body} {end}"
            );
        }
        let next = facts(&script(&format!("Cs Ssa Ca {GET} {head} {body} {GET} {OK_5} Ca Sf Cf Sa")));
        assert!(next[0].starts_with("GET 200 3000") && next[1] == "GET 200 5 1/1", "{body}: {next:?}");
    }
    let less = script(&format!("Cs Ssa Ca {GET} {head} S+1000 -S+1000 Ca Cf Sf Ca"));
    assert!(!closed(&events(&less))[0].is_delivered);
}

/// The capture begins in the middle of a connection: the rest of the answer shows the phase and the sides.
#[test]
fn the_middle_of_an_exchange() {
    let cases = [
        ("{OK} Ca Cf Sf Ca", Phase::AfterAnswer, true),
        ("{OK} Ca ~3 Sf Cf Sa", Phase::Idle, true),
        ("S{HTTP/1.1 200 OK\\r\\nContent-Length: 90\\r\\n\\r\\nhello} Ca Cf Sf Ca", Phase::InAnswer, false),
        ("Sa {OK} Ca Cf Sf Ca", Phase::AfterAnswer, true),
        ("S+1000 Ca Cf Sf Ca", Phase::AfterAnswer, true),
        ("S+1000 S+1000 Cf^1001 CR CR", Phase::InAnswer, false),
        ("{GET} {OK} Ca Cf Sf Ca", Phase::AfterAnswer, true),
    ];
    for (text, phase, is_delivered) in cases {
        let text = text.replace("{OK}", OK_5).replace("{GET}", GET);
        // The client's port is the lower one, and plain octets do not show the sides.
        for port in [40_000, 300] {
            let mut sent = script(&format!("-Cs -Ssa -Ca -C+90 {text}"));
            for it in &mut sent {
                it.port = if text.contains("HTTP") { port } else { 40_000 };
            }
            let said = closed(&events(&sent));
            let fact = |it: &Connection| (it.phase, it.is_delivered, it.server.port());
            assert_eq!(said.iter().map(fact).collect::<Vec<_>>(), [(phase, is_delivered, 443)], "{text}");
        }
    }
}

/// Data of either side keep it open, and it has no requests that could time out.
#[test]
fn what_was_upgraded_has_no_requests() {
    let get = GET.replace("Host: a", "Upgrade: websocket");
    let upgrade = "S{HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n\\r\\n}";
    for minute in ["~60 S+7 Ca ", "~60 C+11 Sa ", "~60 C+11 S+7 Ca "] {
        let text = format!("Cs Ssa Ca {get} {upgrade} {} ~2 Cf Sf Ca", minute.repeat(30));
        for snap_len in [500, 40] {
            let mut sent = script(&text);
            for it in &mut sent {
                it.data.truncate(snap_len);
            }
            let said: Vec<_> =
                closed(&events(&sent)).iter().map(|it| (it.ending, it.phase, it.requests, it.is_delivered)).collect();
            assert_eq!(said, [(Ending::CNormal, Phase::Idle, 1, true)], "{minute} {snap_len}");
        }
    }
}

/// The server has refused while the client still sends the request.
#[test]
fn the_rest_of_a_request_that_is_answered_asks_for_nothing() {
    let post = "C{POST / HTTP/1.1\\r\\nContent-Length: 2000\\r\\n\\r\\n}";
    for end in ["C+1000 Ca Sf Cf Sa", "Sf C+1000 SR"] {
        let text = format!("Cs Ssa Ca {post} C+1000 {OK_5} {end}");
        assert_eq!(facts(&script(&text)), ["POST 200 5 1/1"], "{text}");
        assert!(summaries(&text)[0].starts_with("S_NORMAL after_answer"), "{text}");
    }
    let text = format!("Cs Ssa Ca {post} C+1000 {OK_5} C+1000 Ca {GET} {OK_5} Ca Cf Sf Ca");
    assert_eq!(facts(&script(&text)), ["POST 200 5 1/1", "GET 200 5 1/1"]);
}

#[test]
fn a_truncated_answer_is_not_delivered() {
    let delivered = |answer: &str| {
        let text = format!("Cs Ssa Ca {GET} {answer} Ca Sf Cf Sa");
        closed(&events(&script(&text)))[0].is_delivered
    };
    assert!(delivered(OK_5));
    assert!(delivered("S{HTTP/1.1 200 OK\\r\\n\\r\\nhello}"));
    assert!(!delivered("S{HTTP/1.1 200 OK\\r\\nContent-Length: 90\\r\\n\\r\\nhello}"));
}

proptest! {
    /// Reordered and duplicate segments give the same result.
    #[test]
    fn orders_change_nothing(
        delays in proptest::collection::vec(0..500_u64, 40),
        copies in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let text = format!(
            "Cs Ssa Ca C{{HEAD / HTTP/1.1\\r\\n\\r\\n}} S{{HTTP/1.1 200 OK\\r\\nContent-Length: 900\\r\\n\\r\\n}} Ca {GET} {OK_5} Ca \
             C{{POST / HTTP/1.1\\r\\nContent-Length: 2000\\r\\n\\r\\n}} S{{HTTP/1.1 100 Go\\r\\n\\r\\n}} C+1000 C+1000 \
             S{{HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n}} S{{5\\r\\nhello\\r\\n0\\r\\n}} S{{\\r\\n}} Ca {GET} {GET} \
             S{{HTTP/1.1 200 OK\\r\\nContent-Length: 2000\\r\\n\\r\\n}} S+1000 S+1000 Ca {OK_5} Sf Ca Cf Sa",
        );
        let sent = hurried(script(&text));
        let mixed = mixed(&sent, &delays, &copies);
        let said = |sent: &[Sent]| -> Vec<_> {
            let of_request = |it: &Request| (it.http, it.exchange.is_complete, it.exchange.first_at.is_some());
            requests(&events(sent)).iter().map(of_request).collect()
        };
        prop_assert_eq!(said(&sent), said(&mixed));
        let ended = |sent: &[Sent]| closed(&events(sent)).iter().map(|it| (it.ending, it.phase, it.requests)).collect::<Vec<_>>();
        prop_assert_eq!(ended(&mixed), [(Ending::SNormal, Phase::AfterAnswer, 5)]);
    }


    /// Any segmentation gives the same result.
    #[test]
    fn cuts_change_nothing(cuts in proptest::collection::vec(5..60_usize, 0..12)) {
        let whole = script(&format!(
            "Cs Ssa Ca {GET} S{{HTTP/1.1 200 OK\\r\\nServer: {}\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n0\\r\\n\\r\\nHTTP/1.1 500 No\\r\\n}} Ca Cf Sf Ca",
            "x".repeat(90),
        ));
        let mut cut = Vec::new();
        for sent in whole {
            let (mut rest, mut sequence) = (&sent.data[..], sent.sequence);
            for len in &cuts {
                if rest.len() > *len {
                    cut.push(Sent { sequence, len: *len as u32, data: rest[..*len].to_vec(), ..sent.clone() });
                    (sequence, rest) = (sequence.wrapping_add(*len as u32), &rest[*len..]);
                }
            }
            cut.push(Sent { sequence, len: rest.len() as u32, data: rest.to_vec(), ..sent.clone() });
        }
        // Five octets show a request.
        prop_assert_eq!(facts(&cut), ["GET 200 5 1/1"]);
    }
}
