//! Parses a `ClientHello` without taking part in the handshake.
//!
//! * [`look`]: the server name in the first bytes of a client, for a relay of TLS.
//! * [`Offers`]: the sessions that the client offers to resume, for a server that has to fetch them first.
//! * [`Outline`]: the properties for which a server refuses the client with an alert of its own choice, before the TLS
//!   library chooses another.
//!
//! Only the necessary parts are parsed: records (RFC 8446, section 5.1) with the fragments of a handshake message
//! (section 4), a `ClientHello` (section 4.1.2) and some of its extensions. Other bytes yield no result. The server has
//! to refuse them.

mod fields;
mod offers;
mod outline;

pub use offers::Offers;
pub use outline::Outline;

use fields::{Body, Bytes, CLIENT_HELLO};

/// Record content type.
const HANDSHAKE: u8 = 22;
/// Extension type.
const SERVER_NAME: u16 = 0;
/// Name type.
const HOST_NAME: u8 = 0;
/// The longest fragment of a plaintext record, in bytes.
const FRAGMENT_LEN_MAX: usize = 1 << 14;
/// The longest host name, in bytes (RFC 1035, section 2.3.4).
const NAME_LEN_MAX: usize = 253;

/// The result for the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// They may be a `ClientHello`, but it is not complete.
    Incomplete,
    /// They are no `ClientHello`, or one without a server name.
    Nameless,
    /// A `ClientHello` for this host, in lower case and without a trailing dot.
    For(String),
}

/// Parses the first bytes of a client's stream. The caller may repeat this with more bytes, up to a limit of its own.
pub fn look(bytes: &[u8]) -> Hello {
    match message(bytes) {
        None => Hello::Nameless,
        Some(Message::Incomplete) => Hello::Incomplete,
        Some(Message::Whole(body)) => server_name(&body).map_or(Hello::Nameless, Hello::For),
    }
}

enum Message {
    Incomplete,
    /// The body of a `ClientHello`.
    Whole(Vec<u8>),
}

/// Joins the fragments of the first message. `None`: it is no `ClientHello`.
fn message(bytes: &[u8]) -> Option<Message> {
    let mut records = Bytes(bytes);
    let mut message = Vec::new();
    while !records.0.is_empty() {
        // An incomplete header is checked as well: bytes that are not TLS must not be waited for.
        match *records.0 {
            [HANDSHAKE] | [HANDSHAKE, 3, ..] => {}
            _ => return None,
        }
        let Some(len) = records.0.get(3..5).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]]))) else {
            return Some(Message::Incomplete);
        };
        // Fragments of handshake messages are never empty.
        if len == 0 || len > FRAGMENT_LEN_MAX {
            return None;
        }
        let rest = &records.0[5..];
        let is_whole = rest.len() >= len;
        let (fragment, rest) = rest.split_at(len.min(rest.len()));
        message.extend_from_slice(fragment);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return None;
        }
        if let [_, a, b, c, body @ ..] = &message[..]
            && let Some(body) = body.get(..u32::from_be_bytes([0, *a, *b, *c]) as usize)
        {
            return Some(Message::Whole(body.to_vec()));
        }
        if !is_whole {
            return Some(Message::Incomplete);
        }
        records = Bytes(rest);
    }
    Some(Message::Incomplete)
}

fn server_name(hello: &[u8]) -> Option<String> {
    let mut extensions = Body::read(hello)?.extensions;
    while let Some((kind, mut extension)) = extensions.extension() {
        if kind == SERVER_NAME {
            return host_name(extension.vector_u16()?);
        }
    }
    None
}

/// RFC 6066, section 3.
fn host_name(mut names: Bytes<'_>) -> Option<String> {
    while let Some(kind) = names.take(1) {
        let name = names.vector_u16()?.0;
        if kind == [HOST_NAME] {
            let name = str::from_utf8(name).ok()?;
            let name = name.strip_suffix('.').unwrap_or(name);
            let is_name = name.len() <= NAME_LEN_MAX
                && name.bytes().all(|byte| byte.is_ascii_graphic())
                && name.split('.').all(|label| !label.is_empty());
            return is_name.then(|| name.to_ascii_lowercase());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    pub(super) fn vector_u16(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes(), bytes].concat()
    }

    pub(super) fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector_u16(body)].concat()
    }

    fn name_extension(name: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &vector_u16(&[&[HOST_NAME], &vector_u16(name)[..]].concat()))
    }

    /// A handshake message with these extensions.
    pub(super) fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([4, 1, 2, 3, 4]);
        body.extend(vector_u16(&[0x13, 0x01, 0x13, 0x02]));
        body.extend([1, 0]);
        body.extend(vector_u16(extensions));
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&[CLIENT_HELLO], &len[1..], &body].concat()
    }

    fn records(message: &[u8], fragment_len: usize) -> Vec<u8> {
        message.chunks(fragment_len).flat_map(|part| [&[HANDSHAKE, 3, 1], &vector_u16(part)[..]].concat()).collect()
    }

    fn of(name: &str) -> Hello {
        Hello::For(name.to_owned())
    }

    #[test]
    fn names_are_found_in_any_case_and_behind_other_extensions() {
        let other = extension(43, &[2, 3, 4]);
        let cases = [
            (name_extension(b"db.example.com"), of("db.example.com")),
            (name_extension(b"DB.Example.com."), of("db.example.com")),
            ([other.clone(), name_extension(b"a")].concat(), of("a")),
            (other, Hello::Nameless),
            (Vec::new(), Hello::Nameless),
            (name_extension(b""), Hello::Nameless),
            (name_extension(b"a b"), Hello::Nameless),
            (name_extension(b"."), Hello::Nameless),
            (name_extension(b".a"), Hello::Nameless),
            (name_extension(b"a..b"), Hello::Nameless),
            (name_extension(b"a.."), Hello::Nameless),
            (name_extension(&[0xff]), Hello::Nameless),
            (name_extension(&[b'a'; 254]), Hello::Nameless),
            (extension(SERVER_NAME, &vector_u16(&[&[9], &vector_u16(b"x")[..]].concat())), Hello::Nameless),
            (extension(SERVER_NAME, &[0, 9, 0]), Hello::Nameless),
        ];
        for (extensions, expected) in cases {
            assert_eq!(look(&records(&hello(&extensions), 4096)), expected, "{extensions:02x?}");
        }
    }

    #[test]
    fn what_is_no_hello_is_not_waited_for() {
        let long = [&[HANDSHAKE, 3, 1, 0x40, 0x01][..], &[CLIENT_HELLO]].concat();
        let cases: [&[u8]; 7] = [
            b"G",
            b"SSH-2.0-x\r\n",
            &[HANDSHAKE, 2],
            &[21, 3, 3, 0, 2, 1, 0],
            &[HANDSHAKE, 3, 3, 0, 0],
            &[HANDSHAKE, 3, 3, 0, 9, 2],
            &long,
        ];
        for bytes in cases {
            assert_eq!(look(bytes), Hello::Nameless, "{bytes:02x?}");
        }
        assert_eq!(look(&[]), Hello::Incomplete);
        assert_eq!(look(&[HANDSHAKE]), Hello::Incomplete);
    }

    proptest! {
        #[test]
        fn fragments_of_any_length_are_joined(name in "[a-z]{1,60}", fragment_len in 1..80_usize, behind: Vec<u8>) {
            let bytes = records(&hello(&name_extension(name.as_bytes())), fragment_len);
            for len in 0..bytes.len() {
                prop_assert_eq!(look(&bytes[..len]), Hello::Incomplete, "{} of {} bytes", len, bytes.len());
            }
            prop_assert_eq!(look(&[bytes, behind].concat()), of(&name));
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, extensions in vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(), to: u8) {
            look(&bytes);
            let mut changed = records(&hello(&[extensions, name_extension(b"a.b")].concat()), 50);
            let at = at.index(changed.len());
            changed[at] = to;
            look(&changed);
        }
    }
}
