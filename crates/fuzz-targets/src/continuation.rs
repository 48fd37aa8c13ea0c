//! Arbitrary heads and bodies of origins. The client gets the promised bytes or fewer, without a gap, and in agreement
//! with the repeated bytes.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use watari_handover::{Continuation, Equality, Transfer, TransferConditions};

// Choices; then, separated by zero bytes, the heads of the request, of the response and of the next origin's answer,
// and its body.
pub(crate) fn run(input: &[u8]) {
    let Some(([flags, overlap, compared_min, delivered, ahead, piece_len], text)) = input.split_first_chunk() else {
        return;
    };
    let mut sections = text.splitn(4, |byte| *byte == 0);
    let mut head = || headers(sections.next().unwrap_or_default());
    let (mut request, response, answer) = (head(), head(), head());
    let body = sections.next().unwrap_or_default();
    let status = if flags & 1 == 0 { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let compared_min = usize::from(*compared_min);
    let equality = if flags & 2 == 0 { Equality::Proven } else { Equality::Declared { compared_min } };
    let conditions = TransferConditions { overlap: usize::from(*overlap), equality };
    let Ok(mut transfer) = Transfer::of(&Method::GET, &request, status, &response, &conditions) else { return };
    let mut received = deliver(&mut transfer, usize::from(*delivered));
    let _ = transfer.probe().map(|probe| probe.accept(StatusCode::PARTIAL_CONTENT, &answer));
    let Ok(continuation) = transfer.continuation(transfer.position().saturating_add(u64::from(*ahead))) else { return };
    check_request(&continuation, &transfer, &mut request);
    if flags & 4 == 0 {
        go_on(&mut transfer, &mut received, &continuation, (&answer, body), usize::from(*piece_len));
    } else {
        let (answer, body) = honest(&continuation, &transfer, &response, &received, body);
        go_on(&mut transfer, &mut received, &continuation, (&answer, &body), usize::from(*piece_len));
    }
}

fn headers(text: &[u8]) -> HeaderMap {
    let lines = text.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for line in lines.take(50) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Delivers up to `len` bytes of the first origin.
fn deliver(transfer: &mut Transfer, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
    let fits = len as u64 <= transfer.remaining();
    assert_eq!(transfer.delivered(&bytes).is_ok(), fits);
    if fits { bytes } else { Vec::new() }
}

fn check_request(continuation: &Continuation, transfer: &Transfer, request: &mut HeaderMap) {
    let (range, promised) = (continuation.range(), transfer.range());
    assert!(promised.start <= range.start && range.start < range.end && range.end == promised.end);
    continuation.request(request);
    assert_eq!(request.get_all(RANGE).iter().count(), 1);
    assert_eq!(request[RANGE], format!("bytes={}-{}", range.start, range.end - 1));
    assert!(request[ACCEPT_ENCODING] == "identity" && !request.contains_key(IF_NONE_MATCH));
}

/// The answer of a correct origin with the same bytes as far as they are known, and `rest` after them.
fn honest(
    continuation: &Continuation,
    transfer: &Transfer,
    response: &HeaderMap,
    received: &[u8],
    rest: &[u8],
) -> (HeaderMap, Vec<u8>) {
    let range = continuation.range();
    let mut answer = response.clone();
    let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, transfer.total());
    answer.insert(CONTENT_RANGE, HeaderValue::try_from(content_range).expect("digits"));
    answer.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    continuation.accept(StatusCode::PARTIAL_CONTENT, &answer).expect("the same validators");
    let repeated = received.get((range.start - transfer.range().start) as usize..).unwrap_or_default();
    (answer, [repeated, rest].concat())
}

fn go_on(
    transfer: &mut Transfer,
    received: &mut Vec<u8>,
    continuation: &Continuation,
    (answer, body): (&HeaderMap, &[u8]),
    piece_len: usize,
) {
    let Ok(mut seam) = continuation.accept(StatusCode::PARTIAL_CONTENT, answer) else { return };
    let before = received.len();
    for piece in body.chunks(piece_len.max(1)) {
        let Ok(given) = seam.take(transfer, Bytes::copy_from_slice(piece)) else { break };
        received.extend_from_slice(&given);
    }
    let promised = transfer.range();
    assert_eq!(transfer.position() - promised.start, received.len() as u64);
    assert_eq!(transfer.is_complete(), received.len() as u64 == promised.end - promised.start);
    if received.len() > before {
        let first = (continuation.range().start - promised.start) as usize;
        assert_eq!(&received[first..], &body[..received.len() - first], "no gap, and what is repeated is the same");
    }
}
