//! `Vary`: the fields of requests that select a variant (RFC 9111, section 4.1).

use std::borrow::Cow;

use http::header::{
    ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, REFERER, USER_AGENT, VARY,
};
use http::{HeaderMap, HeaderName};

use crate::lists;

/// The most fields that a response may vary by.
const NAMES_MAX: usize = 16;

/// The names of the fields, in alphabetical order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vary(Vec<HeaderName>);

/// Why a response cannot be selected by its `Vary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VaryError {
    #[error("the response varies by everything")]
    Everything,
    #[error("the field Vary is malformed")]
    Malformed,
    #[error("the response varies by too many fields")]
    TooMany,
}

impl Vary {
    /// The fields that a response varies by. Empty: by none.
    pub fn of(response: &HeaderMap) -> Result<Self, VaryError> {
        let mut names = Vec::new();
        let lines = response.get_all(VARY);
        for element in lines.iter().flat_map(|line| lists::elements(line.as_bytes())) {
            if element == b"*" {
                return Err(VaryError::Everything);
            }
            names.push(HeaderName::from_bytes(element).map_err(|_| VaryError::Malformed)?);
            if names.len() > 4 * NAMES_MAX {
                return Err(VaryError::TooMany);
            }
        }
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        if names.len() > NAMES_MAX { Err(VaryError::TooMany) } else { Ok(Self(names)) }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> &[HeaderName] {
        &self.0
    }
}

/// The value of a field of a request, which selects a variant: its lines combined (RFC 9110, section 5.3), without
/// spaces around commas, where these separate elements. `None`: the field is missing, which differs from an empty one.
pub(crate) fn selecting_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.as_bytes();
    if is_singleton(name) {
        return Some(combined(first, lines.map(http::HeaderValue::as_bytes), b"\0"));
    }
    let combined = combined(first, lines.map(http::HeaderValue::as_bytes), b",");
    let is_plain = !combined.iter().any(|byte| b" \t\"".contains(byte) || byte.is_ascii_uppercase());
    if is_plain {
        return Some(combined);
    }
    let mut value = lists::trimmed_elements(&combined).collect::<Vec<_>>().join(&b","[..]);
    if [ACCEPT_ENCODING, ACCEPT_LANGUAGE, ACCEPT_CHARSET].contains(name) {
        value.make_ascii_lowercase();
    }
    Some(Cow::Owned(value))
}

fn combined<'a>(first: &'a [u8], rest: impl Iterator<Item = &'a [u8]>, separator: &[u8]) -> Cow<'a, [u8]> {
    rest.fold(Cow::Borrowed(first), |combined, line| Cow::Owned([&combined, separator, line].concat()))
}

/// Whether a comma in the field belongs to its value.
fn is_singleton(name: &HeaderName) -> bool {
    [COOKIE, USER_AGENT, AUTHORIZATION, REFERER].contains(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (HeaderName::from_static(name), line.parse().unwrap())).collect()
    }

    /// RFC 9110, section 12.5.5.
    #[test]
    fn fields_that_responses_vary_by() {
        for (lines, expected) in [
            (&[][..], Ok(&[][..])),
            (&[""], Ok(&[])),
            (&["Foo"], Ok(&["foo"])),
            (&["b, A", "c"], Ok(&["a", "b", "c"])),
            (&["a, A ,, a"], Ok(&["a"])),
            (&["*"], Err(VaryError::Everything)),
            (&["*, *"], Err(VaryError::Everything)),
            (&["*", "*"], Err(VaryError::Everything)),
            (&[", *"], Err(VaryError::Everything)),
            (&["", "*"], Err(VaryError::Everything)),
            (&["*, Foo"], Err(VaryError::Everything)),
            (&["Foo, *"], Err(VaryError::Everything)),
            (&["Foo Bar"], Err(VaryError::Malformed)),
            (&["\"Foo\""], Err(VaryError::Malformed)),
            (&["a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"], Err(VaryError::TooMany)),
        ] {
            let vary = Vary::of(&headers("vary", lines));
            let names = vary.map(|vary| vary.names().iter().map(HeaderName::to_string).collect::<Vec<_>>());
            assert_eq!(
                names,
                expected.map(|names: &[&str]| names.iter().map(ToString::to_string).collect()),
                "{lines:?}"
            );
        }
    }

    /// RFC 9111, section 4.1: only what cannot change the meaning is normalised.
    #[test]
    fn values_that_select() {
        for (name, lines, expected) in [
            ("foo", &["1,2"][..], "1,2"),
            ("foo", &[" 1, 2 "], "1,2"),
            ("foo", &["1", "2"], "1,2"),
            ("foo", &["1 2"], "1 2"),
            ("foo", &["\"a , b\" , c"], "\"a , b\",c"),
            ("foo", &["1,,2"], "1,,2"),
            ("foo", &["A"], "A"),
            ("foo", &[""], ""),
            ("accept-encoding", &["GZip, BR"], "gzip,br"),
            ("accept-language", &["de-DE , en"], "de-de,en"),
            ("accept-language", &["en, de-DE"], "en,de-de"),
            ("user-agent", &["A, b"], "A, b"),
            ("cookie", &["a=1, 2"], "a=1, 2"),
            ("cookie", &["a=1", "b=2"], "a=1\0b=2"),
        ] {
            let value = selecting_value(&headers(name, lines), &HeaderName::from_static(name)).unwrap().into_owned();
            assert_eq!(String::from_utf8(value).unwrap(), expected, "{name}: {lines:?}");
        }
        assert_eq!(selecting_value(&HeaderMap::new(), &ACCEPT_ENCODING), None);
    }

    proptest! {
        #[test]
        fn any_list_is_read(lines in prop::collection::vec("[ -~]{0,40}", 0..3)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            if let Ok(vary) = Vary::of(&headers("vary", &lines)) {
                prop_assert!(vary.names().len() <= NAMES_MAX);
                prop_assert!(vary.names().is_sorted_by(|one, other| one.as_str() < other.as_str()));
            }
            selecting_value(&headers("foo", &lines), &HeaderName::from_static("foo"));
        }
    }
}
