//! Arbitrary bytes of an HTTP/1.1 server. Any segmentation, and a move at any byte, yields the same response. hyper
//! reads the same, with the differences that `watari_http1` documents.

use crate::http1::{common, compare};

/// OPTIONS asks for an upgrade.
const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

pub(crate) fn run(input: &[u8]) {
    let Some(([piece, method], bytes)) = input.split_first_chunk() else { return };
    let (piece, method) = (usize::from(*piece) + 1, METHODS[usize::from(*method) % METHODS.len()]);
    compare::responses(method == "HEAD", bytes, piece);
    let whole = common::receive(method, bytes, usize::MAX);
    assert_eq!(common::receive(method, bytes, piece), whole);
    assert_eq!(common::receive_moving(method, bytes, 1), whole);
}
