//! Digests of a representation (`Repr-Digest`, RFC 9530).

use http::{HeaderMap, HeaderName};

use crate::fields::elements;

static REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The digests of the whole representation in a response, which may be a part of it: base64, as sent.
///
/// Only SHA-256 and SHA-512, which resist forgery (RFC 9530, section 5). Parameters and malformed digests are ignored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    sha256: Option<String>,
    sha512: Option<String>,
}

impl Digests {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        Self { sha256: digest(headers, "sha-256", 32), sha512: digest(headers, "sha-512", 64) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sha256.is_none() && self.sha512.is_none()
    }

    /// Whether two representations are the same. `None` if no algorithm occurs in both.
    ///
    /// The texts are compared. Two texts of one digest can differ only in padding that must not be sent. The result is
    /// then `false`, which is safe.
    pub(crate) fn agree(&self, other: &Self) -> Option<bool> {
        let pairs = [(&self.sha256, &other.sha256), (&self.sha512, &other.sha512)];
        let compared = pairs.into_iter().filter_map(|pair| Some(pair.0.as_ref()? == pair.1.as_ref()?));
        compared.reduce(|one, other| one && other)
    }
}

/// The digest by `algorithm`, which has `len` bytes: a member of a dictionary, `algorithm=:base64:`. Of several, the
/// last counts (RFC 9651, section 4.2.2).
fn digest(headers: &HeaderMap, algorithm: &str, len: usize) -> Option<String> {
    let members = elements(headers, &REPR_DIGEST).filter_map(|member| member.split_once('='));
    let value = members.filter(|(key, _)| *key == algorithm).last()?.1;
    let value = value.split(';').next()?.trim_ascii();
    let base64 = value.strip_prefix(':')?.strip_suffix(':')?;
    (base64.len() == len.div_ceil(3) * 4 && base64.bytes().all(is_base64)).then(|| base64.to_owned())
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    fn digests(value: &str) -> Digests {
        Digests::read(&HeaderMap::from_iter([(REPR_DIGEST.clone(), HeaderValue::from_str(value).unwrap())]))
    }

    fn sha256(letter: &str) -> String {
        format!("sha-256=:{}=:", letter.repeat(43))
    }

    fn sha512(letter: &str) -> String {
        format!("sha-512=:{}==:", letter.repeat(86))
    }

    #[test]
    fn digests_agree_where_algorithms_are_the_same() {
        let both = |one: &str, other: &str| format!("{},{}", sha256(one), sha512(other));
        for (one, other, expected) in [
            (sha256("a"), sha256("a"), Some(true)),
            (sha256("a"), sha256("b"), Some(false)),
            (sha256("a"), sha512("a"), None),
            (both("a", "b"), sha512("b"), Some(true)),
            (both("a", "b"), both("a", "c"), Some(false)),
            (both("a", "b"), both("c", "b"), Some(false)),
            (both("a", "b"), format!("md5=:YQ==:, {} ;p=1", sha256("a")), Some(true)),
            (sha256("a"), format!("{}, {}", sha256("b"), sha256("a")), Some(true)),
        ] {
            assert_eq!(digests(&one).agree(&digests(&other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_digest_is_ignored() {
        let text = "sha-256=\"".to_owned() + &"a".repeat(44) + "\"";
        for value in
            ["", "sha-256", "sha-256=", "sha-256=:", "sha-256=::", "sha-256=:YQ==:", &text, &"a=:,".repeat(999)]
        {
            assert!(digests(value).is_empty(), "{value}");
        }
        assert!(digests(&sha256("?")).is_empty());
        assert!(!digests(&sha256("a")).is_empty());
    }
}
