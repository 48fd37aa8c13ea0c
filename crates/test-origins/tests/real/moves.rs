//! Whether a transfer can move between two real servers, by the rules of `watari-handover`.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use watari_handover::{Refusal, Stays, Transfer, TransferConditions};
use watari_test_origins::Content;
use watari_test_origins::raw::{self, Answer};

/// The offset up to which the first server delivers.
const CUT_AT: usize = 100_001;

/// Begins at the first server, continues at the second, and compares the result with the file. The error is why the
/// transfer cannot move.
pub(crate) fn moves(
    first: SocketAddr,
    second: SocketAddr,
    target: &str,
    content: &Content,
) -> Result<(), &'static str> {
    let mut begun = raw::ask(first, "GET", target, &[]).unwrap();
    begun.body.truncate(CUT_AT);
    goes_on(begun, second, target, content)
}

/// Continues at the second server.
pub(crate) fn goes_on(begun: Answer, second: SocketAddr, target: &str, content: &Content) -> Result<(), &'static str> {
    let (status, head) = head(&begun);
    let mut transfer = Transfer::of(&Method::GET, &HeaderMap::new(), status, &head, &TransferConditions::default())
        .map_err(Stays::as_str)?;
    transfer.delivered(&begun.body).unwrap();
    assert!(!transfer.is_complete());
    let got = [begun.body, rest(&mut transfer, second, target)?.into()].concat();
    assert!(transfer.is_complete());
    assert_eq!((content.difference(0, &got), got.len() as u64), (None, content.len()));
    Ok(())
}

fn rest(transfer: &mut Transfer, second: SocketAddr, target: &str) -> Result<Bytes, &'static str> {
    let continuation = transfer.continuation(transfer.position()).unwrap();
    let mut asked = HeaderMap::new();
    continuation.request(&mut asked);
    let fields: Vec<_> = asked.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let answer = raw::ask(second, "GET", target, &fields).unwrap();
    let (status, head) = head(&answer);
    let mut seam = continuation.accept(status, &head).map_err(Refusal::as_str)?;
    Ok(seam.take(transfer, answer.body.into()).unwrap())
}

fn head(answer: &Answer) -> (StatusCode, HeaderMap) {
    let fields = answer
        .fields
        .iter()
        .map(|(name, value)| (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap()));
    (StatusCode::from_u16(answer.status).unwrap(), fields.collect())
}
