#![allow(clippy::unwrap_used)]

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::*;
use crate::{Equality, TransferConditions};

const TEXT: &[u8; 10] = b"0123456789";

/// Ten bytes, of which `delivered` are delivered; 4 are repeated.
fn transfer(equality: Equality, delivered: usize) -> Transfer {
    let response = HeaderMap::from_iter([
        (CONTENT_LENGTH, HeaderValue::from_static("10")),
        (ETAG, HeaderValue::from_static("\"a\"")),
    ]);
    let conditions = TransferConditions { overlap: 4, equality };
    let mut transfer = Transfer::of(&Method::GET, &HeaderMap::new(), StatusCode::OK, &response, &conditions).unwrap();
    transfer.delivered(&TEXT[..delivered]).unwrap();
    transfer
}

fn seam(transfer: &Transfer, at: u64) -> Seam {
    let continuation = transfer.continuation(at).unwrap();
    let range = format!("bytes {}-9/10", continuation.range().start);
    let answer = HeaderMap::from_iter([
        (CONTENT_RANGE, HeaderValue::try_from(range).unwrap()),
        (ETAG, HeaderValue::from_static("\"a\"")),
    ]);
    continuation.accept(StatusCode::PARTIAL_CONTENT, &answer).unwrap()
}

/// The bytes that the client gets from these pieces.
fn took(seam: &mut Seam, transfer: &mut Transfer, pieces: &[&'static [u8]]) -> Result<Vec<u8>, SeamError> {
    let mut taken = Vec::new();
    for piece in pieces {
        taken.extend_from_slice(&seam.take(transfer, Bytes::from_static(piece))?);
    }
    Ok(taken)
}

#[test]
fn what_the_client_has_is_not_given_again() {
    for pieces in
        [&[&b"23456789"[..]][..], &[b"23", b"45", b"67", b"89"], &[b"2345", b"", b"6789"], &[b"234567", b"89"]]
    {
        let mut transfer = transfer(Equality::Proven, 6);
        let mut seam = seam(&transfer, 6);
        assert_eq!(took(&mut seam, &mut transfer, pieces).unwrap(), b"6789");
        assert!(transfer.is_complete());
    }
}

#[test]
fn the_old_origin_may_deliver_on() {
    let mut transfer = transfer(Equality::Proven, 4);
    let mut seam = seam(&transfer, 6);
    assert_eq!(seam.owed(&transfer), 2);
    transfer.delivered(b"45678").unwrap();
    assert_eq!(seam.owed(&transfer), 0);
    assert_eq!(took(&mut seam, &mut transfer, &[b"23456789"]).unwrap(), b"9");
}

#[test]
fn an_old_origin_that_ends_early_leaves_a_gap_or_none() {
    let mut begun = transfer(Equality::Proven, 1);
    let mut behind = seam(&begun, 6);
    assert_eq!(took(&mut behind, &mut begun, &[b"2"]), Err(SeamError::Gap));
    begun.delivered(b"12").unwrap();
    assert_eq!(behind.owed(&begun), 3);
    assert_eq!(took(&mut behind, &mut begun, &[b"23456789"]).unwrap(), b"3456789");
}

#[test]
fn the_first_byte_of_all_needs_nothing_to_compare() {
    let mut transfer = transfer(Equality::Proven, 0);
    let mut seam = seam(&transfer, 0);
    assert_eq!(took(&mut seam, &mut transfer, &[b"0123", b"456789"]).unwrap(), b"0123456789");
}

#[test]
fn an_old_origin_that_ends_where_the_next_begins_leaves_a_byte_to_compare() {
    let mut ended = transfer(Equality::Proven, 2);
    let mut adjoining = seam(&ended, 6);
    assert_eq!(took(&mut adjoining, &mut ended, &[b"23456789"]), Err(SeamError::Gap), "no byte was compared");
    ended.delivered(b"2").unwrap();
    assert_eq!(took(&mut adjoining, &mut ended, &[b"23456789"]).unwrap(), b"3456789");
}

#[test]
fn different_bytes_are_never_passed() {
    let mut transfer = transfer(Equality::Proven, 6);
    let mut seam = seam(&transfer, 6);
    assert_eq!(took(&mut seam, &mut transfer, &[b"23", b"4x6789"]), Err(SeamError::Differs { at: 5 }));
    assert_eq!(took(&mut seam, &mut transfer, &[b"456789"]), Err(SeamError::Gap), "an error is final");
    assert_eq!(transfer.position(), 6);
}

#[test]
fn what_is_known_no_more_is_not_compared() {
    let mut transfer = transfer(Equality::Proven, 4);
    let mut seam = seam(&transfer, 4);
    transfer.delivered(b"456").unwrap();
    assert_eq!(took(&mut seam, &mut transfer, &[b"xxx3456789"]).unwrap(), b"789");
}

#[test]
fn too_long_a_body_is_refused() {
    let mut transfer = transfer(Equality::Proven, 6);
    let mut seam = seam(&transfer, 6);
    assert_eq!(took(&mut seam, &mut transfer, &[b"234567", b"890"]), Err(SeamError::TooLong(TooLong)));
    assert_eq!((transfer.position(), transfer.is_complete()), (8, false));
}

#[test]
fn declared_equality_is_compared() {
    let declared = Equality::Declared { compared_min: 4 };
    let mut compared = transfer(declared, 6);
    let mut full = seam(&compared, 6);
    assert_eq!(took(&mut full, &mut compared, &[b"2345", b"6789"]).unwrap(), b"6789");
    let mut short = transfer(declared, 4);
    let mut early = seam(&short, 6);
    assert_eq!(took(&mut early, &mut short, &[b"23", b"45"]), Err(SeamError::Unproven));
    assert_eq!(short.position(), 4);
}
