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
    for in_pieces in [common::receive(method, bytes, piece), common::receive_moving(method, bytes, 1)] {
        assert!(agree(&in_pieces, &whole), "{in_pieces:?} and {whole:?}");
    }
}

/// Whether both are the same. If a malformed head comes whole and has no end, the client refuses it at once. In pieces,
/// the head is cut by the end of the input.
fn agree(in_pieces: &str, whole: &str) -> bool {
    let (before, end) = in_pieces.rsplit_once("; ").unwrap_or(("", in_pieces));
    let (whole_before, whole_end) = whole.rsplit_once("; ").unwrap_or(("", whole));
    before == whole_before && (end == whole_end || (end == "Head" && whole_end != "end"))
}
