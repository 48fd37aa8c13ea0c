//! PROXY protocol, versions 1 and 2. A header is refused, or is the same after it is written and parsed again.

use watari_wire::proxy::{Header, parse};

const LIMIT: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let parsed = parse(bytes, LIMIT);
    // As it arrives, byte by byte: no decision changes with later bytes.
    let first = (0..bytes.len()).map(|len| parse(&bytes[..len], LIMIT)).find(|parsed| *parsed != Ok(None));
    match (&parsed, first) {
        (Ok(Some((_, len))), first) => {
            assert!(*len <= LIMIT && *len <= bytes.len());
            assert!(first.is_none_or(|first| first == parsed));
        }
        (Ok(None), first) => assert!(first.is_none() && bytes.len() < LIMIT),
        (Err(_), first) => assert!(first.is_none_or(|first| first.is_err())),
    }
    if let Ok(Some((header, _))) = parsed {
        let mut again = Vec::new();
        header.encode(&mut again).expect("a parsed header can be encoded");
        let (reread, len) = parse(&again, usize::MAX).expect("an encoded header can be parsed").expect("whole");
        assert_eq!(len, again.len());
        assert!(reread == header || is_mixed(&header));
    }
}

/// A header with two address families, which no relay writes and version 1 cannot express.
fn is_mixed(header: &Header) -> bool {
    matches!(header, Header::Tcp { client, server, .. } if client.is_ipv4() != server.is_ipv4())
}
