//! The server name that a passthrough uses. No decision changes with later bytes, no bytes behind the
//! `ClientHello` matter, and rustls reads the same name if it reads any.

use rustls::server::Acceptor;
use watari_client_hello::{Hello, look};

/// The most bytes of a client that a dispatcher stores before it decides.
const LIMIT: usize = 16 * 1024;

pub(crate) fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LIMIT)];
    let seen = look(bytes);
    // As it arrives, byte by byte.
    let first = (0..bytes.len()).map(|len| look(&bytes[..len])).find(|hello| *hello != Hello::Incomplete);
    assert!(first.is_none_or(|first| first == seen));
    if seen != Hello::Incomplete {
        assert_eq!(look(&[bytes, b"behind"].concat()), seen);
    }
    if let Hello::For(name) = &seen {
        assert!(!name.is_empty() && !name.ends_with('.') && name.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(*name, name.to_ascii_lowercase());
    }
    if let Some(name) = name_for_rustls(bytes) {
        assert_eq!(seen, Hello::For(name.trim_end_matches('.').to_owned()));
    }
}

/// The server name that rustls finds, if it accepts the `ClientHello`.
fn name_for_rustls(mut bytes: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
    None
}
