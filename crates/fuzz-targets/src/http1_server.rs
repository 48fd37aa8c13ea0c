//! Arbitrary bytes of an HTTP/1.1 client. Any segmentation, and a move at any byte, yields the same requests. hyper
//! reads the same, with the differences that `watari_http1` documents.

use crate::http1::{common, compare};

pub(crate) fn run(input: &[u8]) {
    let Some((piece, bytes)) = input.split_first() else { return };
    let piece = usize::from(*piece) + 1;
    compare::requests(bytes, piece);
    let whole = common::serve(bytes, usize::MAX);
    assert_eq!(common::serve(bytes, piece), whole);
    assert_eq!(common::serve_moving(bytes, 1), whole);
}
