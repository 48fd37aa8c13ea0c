#![allow(clippy::unwrap_used)]

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const TAG: (&str, &str) = ("etag", "\"a\"");
const TEN: (&str, &str) = ("content-length", "10");

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field =
        |(name, value): &(&str, &str)| (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        headers.append(name, value);
    }
    headers
}

fn offered(request: &[(&str, &str)], status: u16, response: &[(&str, &str)]) -> Result<Transfer, Stays> {
    let status = StatusCode::from_u16(status).unwrap();
    Transfer::of(&Method::GET, &headers(request), status, &headers(response), &TransferConditions::default())
}

/// Ten bytes under these conditions, of which `delivered` are delivered.
fn ten(conditions: TransferConditions, response: &[(&str, &str)], delivered: usize) -> Transfer {
    let response = headers(&[&[TEN], response].concat());
    let mut transfer = Transfer::of(&Method::GET, &HeaderMap::new(), StatusCode::OK, &response, &conditions).unwrap();
    transfer.delivered(&b"0123456789"[..delivered]).unwrap();
    transfer
}

#[test]
fn the_whole_can_move() {
    for more in [
        &[][..],
        &[("accept-ranges", "bytes")],
        &[("accept-ranges", "other, Bytes")],
        &[("content-encoding", "identity")],
        &[("vary", "accept-encoding")],
    ] {
        let transfer = offered(&[], 200, &[&[TAG, TEN], more].concat()).unwrap();
        assert_eq!((transfer.range(), transfer.total(), transfer.position()), (0..10, 10, 0), "{more:?}");
    }
    offered(&[("range", "bytes=0-1,4-5")], 200, &[TAG, TEN]).expect("the origin has ignored the ranges");
    offered(&[("content-length", "0")], 200, &[TAG, TEN]).expect("the request has no body");
}

#[test]
fn a_part_can_move() {
    let part = [TAG, TEN, ("content-range", "bytes 90-99/1000")];
    let transfer = offered(&[("range", "bytes=90-99")], 206, &part).unwrap();
    assert_eq!((transfer.range(), transfer.total(), transfer.position()), (90..100, 1000, 90));
    assert_eq!(transfer.remaining(), 10);
}

#[test]
fn whole_responses_that_stay() {
    for (response, expected) in [
        (&[TAG][..], Stays::NoLength),
        (&[TAG, ("transfer-encoding", "chunked")], Stays::NoLength),
        (&[TAG, TEN, ("transfer-encoding", "chunked")], Stays::Malformed),
        (&[TAG, TEN, TEN], Stays::Malformed),
        (&[TAG, ("content-length", "10, 10")], Stays::Malformed),
        (&[TAG, TEN, ("content-range", "bytes 0-9/10")], Stays::Malformed),
        (&[TAG, TEN, ("content-encoding", "gzip")], Stays::Coded),
        (&[TAG, TEN, ("accept-ranges", "none")], Stays::NoRanges),
        (&[TAG, TEN, ("accept-ranges", "pages")], Stays::NoRanges),
        (&[TAG, TEN, ("vary", "accept, *")], Stays::Varies),
        (&[TAG, TEN, ("trailer", "digest")], Stays::Trailers),
        (&[TEN], Stays::NoValidator),
        (&[TEN, ("etag", "W/\"a\"")], Stays::WeakValidator),
    ] {
        assert_eq!(offered(&[], 200, response).unwrap_err(), expected, "{response:?}");
    }
    assert_eq!(offered(&[], 204, &[TAG]).unwrap_err(), Stays::Status);
    assert_eq!(offered(&[("content-length", "1")], 200, &[TAG, TEN]).unwrap_err(), Stays::RequestBody);
    assert_eq!(offered(&[("transfer-encoding", "chunked")], 200, &[TAG, TEN]).unwrap_err(), Stays::RequestBody);
    let head = Transfer::of(
        &Method::HEAD,
        &headers(&[]),
        StatusCode::OK,
        &headers(&[TAG, TEN]),
        &TransferConditions::default(),
    );
    assert_eq!(head.unwrap_err(), Stays::Method);
}

#[test]
fn parts_that_stay() {
    let asked = [("range", "bytes=0-9")];
    let range = ("content-range", "bytes 0-9/1000");
    for (request, response, expected) in [
        (&asked[..], &[TAG, TEN][..], Stays::Malformed),
        (&[], &[TAG, TEN, range], Stays::Malformed),
        (&asked, &[TAG, TEN, range, range], Stays::Malformed),
        (&asked, &[TAG, TEN, ("content-range", "bytes 0-10/1000")], Stays::Malformed),
        (&asked, &[TAG, range], Stays::NoLength),
        (&asked, &[TAG, TEN, ("content-range", "bytes 0-9/*")], Stays::NoLength),
        (&asked, &[TAG, TEN, range, ("content-type", "multipart/byteranges; boundary=a")], Stays::Multipart),
        (&[("range", "bytes=0-3,5-9")], &[TAG, TEN, range], Stays::Multipart),
        (&asked, &[TEN, range], Stays::NoValidator),
    ] {
        assert_eq!(offered(request, 206, response).unwrap_err(), expected, "{request:?} {response:?}");
    }
}

#[test]
fn more_than_was_promised_is_not_taken() {
    let mut transfer = ten(TransferConditions::default(), &[TAG], 8);
    assert_eq!(transfer.delivered(b"890"), Err(TooLong));
    assert_eq!((transfer.position(), transfer.is_complete()), (8, false));
    transfer.delivered(b"89").unwrap();
    assert!(transfer.is_complete());
    assert_eq!(transfer.delivered(b"0"), Err(TooLong));
}

#[test]
fn continuations_repeat_the_overlap() {
    let transfer = ten(TransferConditions { overlap: 3, ..TransferConditions::default() }, &[TAG], 5);
    for (at, expected) in [(0, 2..10), (5, 2..10), (7, 4..10), (9, 6..10)] {
        assert_eq!(transfer.continuation(at).unwrap().range(), expected, "{at}");
    }
    assert_eq!(transfer.continuation(10).unwrap_err(), Stays::Complete);
    assert_eq!(transfer.probe().unwrap().range(), 0..1);
    let transfer = ten(TransferConditions { overlap: 3, ..TransferConditions::default() }, &[TAG], 2);
    assert_eq!(transfer.continuation(2).unwrap().range(), 0..10);
    let transfer = ten(TransferConditions { overlap: 0, ..TransferConditions::default() }, &[TAG], 5);
    assert_eq!(transfer.continuation(5).unwrap().range(), 5..10);
}

#[test]
fn declared_equality_needs_bytes_to_compare() {
    let conditions = TransferConditions { overlap: 0, equality: Equality::Declared { compared_min: 4 } };
    assert_eq!(ten(conditions, &[], 3).continuation(3).unwrap_err(), Stays::NothingToCompare);
    assert_eq!(ten(conditions, &[], 3).continuation(4).unwrap().range(), 0..10);
    assert_eq!(ten(conditions, &[], 5).continuation(5).unwrap().range(), 1..10);
    ten(conditions, &[TAG], 3).continuation(3).expect("the tag proves it");
    let least = TransferConditions { overlap: 0, equality: Equality::Declared { compared_min: 0 } };
    assert_eq!(ten(least, &[], 0).continuation(0).unwrap_err(), Stays::NothingToCompare);
    ten(least, &[], 0).probe().expect("a head can be looked at");
}

#[test]
fn an_empty_transfer_is_complete() {
    let transfer = offered(&[], 200, &[TAG, ("content-length", "0")]).unwrap();
    assert!(transfer.is_complete());
    assert_eq!(transfer.continuation(0).unwrap_err(), Stays::Complete);
    assert_eq!(transfer.probe().unwrap_err(), Stays::Complete);
}

proptest! {
    #[test]
    fn a_continuation_ends_where_the_transfer_does(
        first in 0..1000u64, len in 1..1000u64, delivered in 0..1000u64, at in 0..2100u64, overlap in 0..50usize,
    ) {
        let range = format!("bytes {first}-{}/3000", first + len - 1);
        let response = headers(&[TAG, ("content-length", &len.to_string()), ("content-range", &range)]);
        let request = headers(&[("range", "bytes=0-")]);
        let conditions = TransferConditions { overlap, ..TransferConditions::default() };
        let status = StatusCode::PARTIAL_CONTENT;
        let mut transfer = Transfer::of(&Method::GET, &request, status, &response, &conditions).unwrap();
        transfer.delivered(&vec![0; delivered.min(len) as usize]).unwrap();
        match transfer.continuation(at) {
            Err(stays) => prop_assert!(stays == Stays::Complete && at.max(transfer.position()) >= first + len),
            Ok(continuation) => {
                let range = continuation.range();
                prop_assert!(range.start >= first && range.start < range.end && range.end == first + len);
                prop_assert!(at.max(transfer.position()) - range.start <= overlap as u64);
            }
        }
    }
}
