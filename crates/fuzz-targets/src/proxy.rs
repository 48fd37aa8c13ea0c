//! PROXY protocol, versions 1 and 2: refused early, or read as what it is when it is written again.

use watari_wire::proxy::{Header, parse};

const LIMIT: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let parsed = parse(bytes, LIMIT);
    // As it arrives, byte by byte: nothing is decided early that later bytes change.
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
        header.encode(&mut again).expect("what was read fits");
        let (reread, len) = parse(&again, usize::MAX).expect("what we write").expect("whole");
        assert_eq!(len, again.len());
        assert!(reread == header || is_mixed(&header));
    }
}

/// Of two address families, which no relay writes and version 1 cannot say.
fn is_mixed(header: &Header) -> bool {
    matches!(header, Header::Tcp { client, server, .. } if client.is_ipv4() != server.is_ipv4())
}
