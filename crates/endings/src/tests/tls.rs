//! The visible part of TLS, message by message (RFC 8446, appendix A; RFC 5246, section 7.3).

use proptest::prelude::*;

use super::script::{Sent, closed, events, hurried, mixed, script};
use crate::{Connection, Ending, Phase, Side, Tls, TlsVersion};

const CCS: &[u8] = &[20, 3, 3, 0, 1, 1];

fn u16_list(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &u16_list(body)].concat()
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &u16_list(body)].concat()
}

fn sealed(len: usize) -> Vec<u8> {
    record(23, &vec![0xaa; len])
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

fn client_hello(session: &[u8], psk: bool) -> Vec<u8> {
    let name = [&[0][..], &u16_list(b"WWW.example.com")].concat();
    let mut extensions =
        [extension(10, &[0, 2, 0, 29]), extension(0, &u16_list(&name)), extension(51, &[7; 1200])].concat();
    if psk {
        extensions.extend(extension(41, &[9; 80]));
    }
    let body = [
        &[3, 3][..],
        &[5; 32],
        &[session.len() as u8],
        session,
        &u16_list(&[0x13, 1, 0x13, 2]),
        &[1, 0],
        &u16_list(&extensions),
    ];
    record(22, &message(1, &body.concat()))
}

fn server_hello(random: &[u8], session: &[u8], extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], random, &[session.len() as u8], session, &[0x13, 1, 0], &u16_list(extensions)];
    record(22, &message(2, &body.concat()))
}

fn hello_1_3(psk: bool) -> Vec<u8> {
    let psk = if psk { extension(41, &[0, 0]) } else { Vec::new() };
    server_hello(&[6; 32], &[8; 32], &[extension(43, &[3, 4]), extension(51, &[7; 1120]), psk].concat())
}

fn retry() -> Vec<u8> {
    let mut random = [0; 32];
    random[..8].copy_from_slice(&[0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11]);
    server_hello(&random, &[8; 32], &extension(43, &[3, 4]))
}

/// The flights of both sides in records, each in segments of 1,000 octets.
fn said(flights: &[(char, Vec<Vec<u8>>)], end: &str) -> Vec<Sent> {
    let mut text = String::from("Cs Ssa Ca ");
    let mut contents = Vec::new();
    for (who, records) in flights {
        for part in records.concat().chunks(1000) {
            text.push(*who);
            text.push('+');
            text.push_str(&part.len().to_string());
            text.push_str(if *who == 'C' { " Sa " } else { " Ca " });
            contents.push(part.to_vec());
        }
    }
    let mut sent = script(&(text + end));
    let mut contents = contents.into_iter();
    for it in sent.iter_mut().filter(|it| it.len > 0) {
        it.data = contents.next().unwrap_or_default();
    }
    sent
}

fn only(sent: &[Sent]) -> Connection {
    let mut closed = closed(&events(sent));
    assert_eq!(closed.len(), 1);
    closed.remove(0)
}

fn tls(flights: &[(char, Vec<Vec<u8>>)]) -> Tls {
    only(&said(flights, "Cf Sf Ca")).tls.unwrap_or_default()
}

fn full_1_3() -> Vec<(char, Vec<Vec<u8>>)> {
    vec![
        ('C', vec![client_hello(&[8; 32], false)]),
        ('S', vec![hello_1_3(false), CCS.to_vec(), sealed(30), sealed(900), sealed(280), sealed(53)]),
        ('C', vec![CCS.to_vec(), sealed(53)]),
    ]
}

fn full_1_2() -> Vec<(char, Vec<Vec<u8>>)> {
    let (certificate, done) = (record(22, &message(11, &[1; 1500])), record(22, &message(14, &[])));
    let (exchange, finished) = (record(22, &message(16, &[2; 33])), record(22, &[0xee; 40]));
    vec![
        ('C', vec![client_hello(&[8; 32], false)]),
        ('S', vec![server_hello(&[6; 32], &[4; 32], &[]), certificate, done]),
        ('C', vec![exchange, CCS.to_vec(), finished.clone()]),
        ('S', vec![CCS.to_vec(), finished]),
    ]
}

fn short_1_2(offered: &[u8], taken: &[u8]) -> Vec<(char, Vec<Vec<u8>>)> {
    let finished = record(22, &[0xee; 40]);
    vec![
        ('C', vec![client_hello(offered, false)]),
        ('S', vec![server_hello(&[6; 32], taken, &[]), CCS.to_vec(), finished.clone()]),
        ('C', vec![CCS.to_vec(), finished]),
    ]
}

#[test]
fn versions_names_and_resumptions() {
    let (one_two, one_three) = (TlsVersion::TLS_1_2, TlsVersion::TLS_1_3);
    let mut resumed_1_3 = full_1_3();
    resumed_1_3[0].1 = vec![client_hello(&[8; 32], true)];
    resumed_1_3[1].1[0] = hello_1_3(true);
    let mut refused_1_3 = full_1_3();
    refused_1_3[0].1 = vec![client_hello(&[8; 32], true)];
    let mut retried = full_1_3();
    retried.insert(1, ('S', vec![retry(), CCS.to_vec()]));
    retried.insert(2, ('C', vec![CCS.to_vec(), client_hello(&[8; 32], false)]));
    let cases = [
        (full_1_3(), one_three, false),
        (resumed_1_3, one_three, true),
        (refused_1_3, one_three, false),
        (retried, one_three, false),
        (full_1_2(), one_two, false),
        (short_1_2(&[8; 32], &[8; 32]), one_two, true),
        // By a ticket, without a session id.
        (short_1_2(&[], &[]), one_two, true),
    ];
    for (index, (flights, version, is_resumed)) in cases.into_iter().enumerate() {
        let tls = tls(&flights);
        assert_eq!(tls.version, Some(version), "{index}");
        assert_eq!(tls.is_resumed, Some(is_resumed), "{index}");
        assert_eq!(tls.sni.as_deref(), Some("www.example.com"), "{index}");
        assert!(tls.handshake.is_some(), "{index}");
        assert_eq!((tls.alert, tls.has_early_data), (None, false), "{index}");
    }
}

#[test]
fn a_handshake_is_no_request_and_what_follows_is() {
    let phases = |mut flights: Vec<(char, Vec<Vec<u8>>)>, more: Vec<(char, Vec<Vec<u8>>)>, end: &str| {
        flights.extend(more);
        let it = only(&said(&flights, end));
        (it.ending, it.phase, it.requests)
    };
    for flights in [full_1_3(), full_1_2()] {
        let request = || ('C', vec![sealed(120)]);
        let answer = || ('S', vec![sealed(1500)]);
        let goodbye = || ('C', vec![sealed(19)]);
        let cases = [
            (vec![], "Cf Sf", (Ending::CNormal, Phase::BeforeRequest, 0)),
            (vec![goodbye()], "Cf Sf", (Ending::CNormal, Phase::BeforeRequest, 0)),
            (vec![request()], "Cr", (Ending::CReset, Phase::BeforeAnswer, 1)),
            (vec![request(), answer()], "Sf Cf", (Ending::SNormal, Phase::AfterAnswer, 1)),
            (vec![request(), answer(), goodbye()], "Cf Sf", (Ending::CNormal, Phase::AfterAnswer, 1)),
            (vec![request(), answer(), request(), answer()], "~2 Cf Sf", (Ending::CNormal, Phase::Idle, 2)),
        ];
        for (more, end, expected) in cases {
            assert_eq!(phases(flights.clone(), more, end), expected, "{end}");
        }
    }
    // In the middle of a handshake.
    let hello = vec![('C', vec![client_hello(&[], false)])];
    assert_eq!(phases(hello.clone(), vec![], "~700 Ca"), (Ending::Timeout, Phase::BeforeRequest, 0));
    let alert = vec![('S', vec![record(21, &[2, 40])])];
    assert_eq!(phases(hello, alert, "Sf Cf"), (Ending::SNormal, Phase::BeforeRequest, 0));
}

/// As `close_notify`, with which a server answers that of a client that has closed already (RFC 8446, section 6.1).
#[test]
fn an_alert_is_no_part_of_an_answer() {
    for (mut flights, alert) in [(full_1_3(), sealed(19)), (full_1_2(), record(21, &[9; 26]))] {
        flights.extend([('C', vec![sealed(120)]), ('S', vec![sealed(1500)]), ('C', vec![sealed(19)])]);
        let mut sent = said(&flights, &format!("Cf S+{} CR", alert.len()));
        let at = sent.len() - 2;
        sent[at].data = alert;
        let it = only(&sent);
        assert_eq!((it.ending, it.phase, it.is_delivered), (Ending::CNormal, Phase::AfterAnswer, true));
    }
}

#[test]
fn alerts_are_read_while_they_are_clear() {
    let flights = [('C', vec![client_hello(&[], false)]), ('S', vec![record(21, &[2, 40])])];
    let alert = tls(&flights).alert.map(|alert| (alert.by, alert.description));
    assert_eq!(alert, Some((Side::Server, 40)));
    let mut later = full_1_2();
    later.push(('S', vec![record(21, &[0xee; 26])]));
    assert_eq!(tls(&later).alert, None);
}

#[test]
fn early_data_are_a_request() {
    let mut flights = full_1_3();
    flights[0].1 = vec![client_hello(&[8; 32], true), CCS.to_vec(), sealed(120)];
    flights[1].1[0] = hello_1_3(true);
    flights[2].1.insert(1, sealed(21));
    let mut sent = said(&flights, "Cf Sf Ca");
    // The server's acknowledgments do not come in between.
    sent.retain(|it| it.is_client || it.len > 0 || it.flags.0 != 0x10);
    let it = only(&sent);
    let tls = it.tls.unwrap_or_default();
    assert_eq!((tls.has_early_data, tls.is_resumed, it.requests), (true, Some(true), 1));
}

#[test]
fn what_is_cut_off_is_not_guessed() {
    for flights in [full_1_3(), full_1_2(), short_1_2(&[8; 32], &[8; 32])] {
        for kept in [0, 5, 30] {
            let mut sent = said(&flights, "Cf Sf Ca");
            for it in &mut sent {
                it.data.truncate(kept);
            }
            let it = only(&sent);
            let tls = it.tls.unwrap_or_default();
            assert_eq!((tls.version, tls.is_resumed, tls.sni), (None, None, None), "{kept}");
        }
    }
    // The course of a truncated handshake is still visible.
    let mut flights = full_1_3();
    flights.extend([('C', vec![sealed(120)]), ('S', vec![sealed(900)])]);
    let mut sent = said(&flights, "Cf Sf Ca");
    for it in &mut sent {
        it.data.truncate(30);
    }
    let it = only(&sent);
    assert_eq!((it.phase, it.requests), (Phase::AfterAnswer, 1));
}

proptest! {
    /// Any segmentation gives the same result.
    #[test]
    fn cuts_change_nothing(cuts in proptest::collection::vec(6..700_usize, 0..20), choice in 0..3_usize) {
        let flights = [full_1_3(), full_1_2(), short_1_2(&[8; 32], &[8; 32])][choice].clone();
        let whole = said(&flights, "Cf Sf Ca");
        let mut cut = Vec::new();
        for sent in &whole {
            let (mut rest, mut sequence) = (&sent.data[..], sent.sequence);
            for len in &cuts {
                if rest.len() > *len {
                    cut.push(Sent { sequence, len: *len as u32, data: rest[..*len].to_vec(), ..sent.clone() });
                    (sequence, rest) = (sequence.wrapping_add(*len as u32), &rest[*len..]);
                }
            }
            cut.push(Sent { sequence, len: rest.len() as u32, data: rest.to_vec(), ..sent.clone() });
        }
        prop_assert_eq!(only(&cut).tls, only(&whole).tls);
    }

    /// Any order of the capture gives the same result, also with duplicates.
    #[test]
    fn orders_change_nothing(
        delays in proptest::collection::vec(0..500_u64, 40),
        copies in proptest::collection::vec(any::<bool>(), 40),
        choice in 0..3_usize,
    ) {
        let mut flights = [full_1_3(), full_1_2(), short_1_2(&[8; 32], &[8; 32])][choice].clone();
        flights.extend([('C', vec![sealed(120)]), ('S', vec![sealed(3000)]), ('C', vec![sealed(100)]), ('S', vec![sealed(900)])]);
        let sent = hurried(said(&flights, "Cf Sf Ca"));
        let (one, other) = (only(&sent), only(&mixed(&sent, &delays, &copies)));
        let summary = |it: &Connection| {
            let tls = it.tls.clone().unwrap_or_default();
            (it.ending, it.phase, it.requests, tls.version, tls.sni, tls.is_resumed)
        };
        prop_assert_eq!(summary(&one), summary(&other));
        prop_assert_eq!((one.requests, one.phase), (2, Phase::AfterAnswer));
    }

    /// Duplicates and arbitrary octets.
    #[test]
    fn nothing_panics(octets in proptest::collection::vec(any::<(bool, Vec<u8>)>(), 0..20), first in 0..3_usize) {
        let hello = [client_hello(&[], true), hello_1_3(true), b"GET / HTTP/1.1\r\n".to_vec()][first].clone();
        let mut flights = vec![('C', vec![hello])];
        flights.extend(octets.into_iter().map(|(is_client, octets)| (if is_client { 'C' } else { 'S' }, vec![octets])));
        events(&said(&flights, "Cf Sf Ca"));
    }
}
