//! The plain form of paths, for routes and queues.
//!
//! One resource has many spellings: `/a`, `//a`, `/%61`, `/a;v=1`. A rule about a path must apply to all spellings that
//! an origin may treat as equal. Otherwise clients can evade it. So rules match the plain form of a path, while origins
//! get the path as it was sent. If an origin could read a path in several ways, the request is refused.

use std::borrow::Cow;

/// Origins may read the path in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous;

/// The plain form of a path. Percent-encoded octets are decoded (RFC 3986, section 6.2.2.2), including `/`, which some
/// origins treat as a separator. A backslash becomes a slash, adjacent slashes become one, and parameters of segments
/// (`;v=1`) are removed.
///
/// [`Ambiguous`] are dot segments (RFC 3986, section 5.2.4), which clients resolve before they send a request, and an
/// octet 0.
pub(crate) fn plain(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    if is_plain(path) { Ok(Cow::Borrowed(path)) } else { made_plain(path).map(Cow::Owned) }
}

/// Whether the path is in plain form already, as nearly all are.
fn is_plain(path: &str) -> bool {
    let mut before = 0;
    path.bytes().all(|byte| {
        let behind_slash = std::mem::replace(&mut before, byte) == b'/';
        let is_other = matches!(byte, b'%' | b'\\' | b';') || (behind_slash && matches!(byte, b'/' | b'.'));
        !is_other
    })
}

fn made_plain(path: &str) -> Result<String, Ambiguous> {
    let decoded = decoded(path.as_bytes());
    let text = String::from_utf8_lossy(&decoded);
    let mut plain = String::with_capacity(text.len());
    for segment in text.split(['/', '\\']) {
        let name = segment.split(';').next().unwrap_or_default();
        if matches!(name, "." | "..") || name.contains('\0') {
            return Err(Ambiguous);
        }
        if !name.is_empty() {
            plain.push('/');
            plain.push_str(name);
        }
    }
    let ends_open = text.ends_with(['/', '\\']);
    if ends_open || plain.is_empty() {
        plain.push('/');
    }
    Ok(plain)
}

/// A `%` without two hexadecimal digits after it stands for itself.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let octet = if *first == b'%' { octet(behind) } else { None };
        decoded.push(octet.unwrap_or(*first));
        rest = if octet.is_some() { &behind[2..] } else { behind };
    }
    decoded
}

fn octet(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_path_are_alike() {
        for path in ["/private/s.txt", "//private/s.txt", "/%70rivate/s.txt", "/private%2fs.txt", "/private%2F/s.txt"] {
            assert_eq!(plain(path).unwrap(), "/private/s.txt", "{path}");
        }
        for path in
            ["/private;x=/s.txt", "/private\\s.txt", "/private%5cs.txt", "/;a/private/s.txt", "/private/s%2etxt"]
        {
            assert_eq!(plain(path).unwrap(), "/private/s.txt", "{path}");
        }
        for (path, expected) in
            [("/", "/"), ("//", "/"), ("/a/", "/a/"), ("/a//", "/a/"), ("/%", "/%"), ("/%2", "/%2"), ("/%zz", "/%zz")]
        {
            assert_eq!(plain(path).unwrap(), expected, "{path}");
        }
        assert_eq!(plain("/.git/.config/a..b/...").unwrap(), "/.git/.config/a..b/...");
    }

    #[test]
    fn what_may_lead_elsewhere_is_refused() {
        for path in
            ["/./a", "/a/..", "/a/%2e%2e/b", "/a/.%2E/b", "/a%2f..%2fb", "/a/..;x/b", "/a\\..\\b", "/a%00", "/.."]
        {
            assert_eq!(plain(path), Err(Ambiguous), "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_plain_form_is_plain_but_for_what_was_encoded_twice(path in "/[a-c./%25;\\\\]{0,12}") {
            if let Ok(once) = plain(&path) {
                prop_assert!(once.starts_with('/') && !once.contains("//") && !once.contains('\\') && !once.contains(';'));
                prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
            }
        }
    }
}
