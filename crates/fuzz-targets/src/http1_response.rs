//! Arbitrary bytes of a server. Any segmentation yields the same response, or the same fault.

use watari_bench_engine::http1::{Fed, LastHead, ProtocolFault, ResponseReader};
use watari_bench_engine::keep::Keep;

/// Status, bytes of the body, SHA-256 of the body, whether the connection persists, and the number of bytes consumed.
type Read = (u16, u64, Option<[u8; 32]>, bool, usize);

pub(crate) fn run(input: &[u8]) {
    let Some(([choices, cut], bytes)) = input.split_first_chunk() else { return };
    let to_head = choices & 1 == 1;
    // The second read compares the head, the third parses it.
    let last = &mut LastHead::default();
    let whole = read(to_head, &[bytes], last);
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    assert_eq!(read(to_head, &[first, second], last), whole);
    assert_eq!(read(to_head, &bytes.chunks(1).collect::<Vec<_>>(), &mut LastHead::default()), whole);
    if let Ok((_, body_bytes, _, _, taken)) = whole {
        assert!(taken <= bytes.len() && body_bytes <= taken as u64);
    }
}

fn read(to_head: bool, pieces: &[&[u8]], last: &mut LastHead) -> Result<Read, ProtocolFault> {
    let mut reader = ResponseReader::new(to_head, Keep::default().and_digest());
    let mut taken = 0;
    for piece in pieces {
        match reader.feed(piece, last)? {
            Fed::More => taken += piece.len(),
            Fed::Done(more) => return Ok(done(reader, taken + more)),
        }
    }
    reader.end()?;
    Ok(done(reader, taken))
}

fn done(reader: ResponseReader, taken: usize) -> Read {
    let (status, body_bytes, persistent) = (reader.status(), reader.body_bytes(), reader.is_persistent());
    (status, body_bytes, reader.into_keep().sha256(), persistent, taken)
}
