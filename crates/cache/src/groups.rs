//! Groups of responses, which are purged together (Cache Groups, RFC 9875; `Surrogate-Key`, `Cache-Tag`, `xkey`).

use http::{HeaderMap, HeaderName};

use crate::structured;

/// The most groups of a response. RFC 9875 asks for 32.
const GROUPS_MAX: usize = 128;

/// The longest group, in bytes. RFC 9875 asks for 32.
const GROUP_LEN_MAX: usize = 256;

const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// The fields of other caches, and what separates their groups.
const OTHERS: [(HeaderName, &[char]); 3] = [
    (HeaderName::from_static("surrogate-key"), &[' ', '\t']),
    (HeaderName::from_static("cache-tag"), &[',']),
    (HeaderName::from_static("xkey"), &[' ', '\t', ',']),
];

/// The groups of a response: those of `Cache-Groups` (RFC 9875, section 2), `Surrogate-Key`, `Cache-Tag` and `xkey`. At
/// most 128 with 256 bytes each; others are ignored.
pub fn groups(response: &HeaderMap) -> Vec<Box<str>> {
    let mut groups = Vec::new();
    add_all(&mut groups, list(response, &CACHE_GROUPS).iter().map(String::as_str));
    for (name, separators) in OTHERS {
        let lines = response.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
        add_all(&mut groups, lines.flat_map(|line| line.split(separators)).map(str::trim_ascii));
    }
    groups
}

/// The groups that the response to an unsafe request invalidates (RFC 9875, section 3). The caller ignores responses to
/// safe requests.
pub fn invalidated_groups(response: &HeaderMap) -> Vec<Box<str>> {
    let mut groups = Vec::new();
    add_all(&mut groups, list(response, &CACHE_GROUP_INVALIDATION).iter().map(String::as_str));
    groups
}

/// The members of a list of strings. A malformed field has none (RFC 9651, section 4.2).
fn list(response: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines: Result<Vec<&str>, _> = response.get_all(name).iter().map(http::HeaderValue::to_str).collect();
    lines.ok().and_then(|lines| structured::strings(&lines.join(", "))).unwrap_or_default()
}

fn add_all<'a>(groups: &mut Vec<Box<str>>, more: impl Iterator<Item = &'a str>) {
    for group in more.filter(|group| (1..=GROUP_LEN_MAX).contains(&group.len())) {
        if groups.len() == GROUPS_MAX {
            return;
        }
        if !groups.iter().any(|known| **known == *group) {
            groups.push(group.into());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn texts(groups: &[Box<str>]) -> Vec<&str> {
        groups.iter().map(AsRef::as_ref).collect()
    }

    /// RFC 9875, section 2.
    #[test]
    fn groups_of_a_response() {
        for (fields, expected) in [
            (&[("cache-groups", "\"a b\", \"C\";x=1")][..], &["a b", "C"][..]),
            (&[("cache-groups", "\"a\""), ("cache-groups", "\"b\", \"a\"")], &["a", "b"]),
            (&[("cache-groups", "\"a\", b")], &[]),
            (&[("cache-groups", "a")], &[]),
            (&[("cache-groups", "\"\"")], &[]),
            (&[("surrogate-key", "a b,c  d")], &["a", "b,c", "d"]),
            (&[("cache-tag", "a, b c,,d")], &["a", "b c", "d"]),
            (&[("xkey", "a b"), ("xkey", "c, d")], &["a", "b", "c", "d"]),
            (&[("xkey", "a"), ("cache-tag", "a"), ("cache-groups", "\"b\"")], &["b", "a"]),
            (&[("cache-group-invalidation", "\"a\"")], &[]),
        ] {
            assert_eq!(texts(&groups(&headers(fields))), expected, "{fields:?}");
        }
    }

    #[test]
    fn groups_are_bounded() {
        let many: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        assert_eq!(groups(&headers(&[("surrogate-key", &many.join(" "))])).len(), GROUPS_MAX);
        let long = |len| groups(&headers(&[("xkey", &"x".repeat(len))])).len();
        assert_eq!((long(GROUP_LEN_MAX), long(GROUP_LEN_MAX + 1)), (1, 0));
        let list: Vec<String> = (0..32).map(|number| format!("\"{number:032}\"")).collect();
        assert_eq!(groups(&headers(&[("cache-groups", &list.join(", "))])).len(), 32);
    }

    /// RFC 9875, section 3.
    #[test]
    fn groups_that_are_invalidated() {
        let response = headers(&[("cache-group-invalidation", "\"a\", \"b\";x"), ("cache-groups", "\"c\"")]);
        assert_eq!(texts(&invalidated_groups(&response)), ["a", "b"]);
        assert!(invalidated_groups(&headers(&[("cache-group-invalidation", "a")])).is_empty());
    }

    proptest! {
        #[test]
        fn any_field_is_read(value in prop::collection::vec(32..=126u8, 0..64)) {
            let value = http::HeaderValue::from_bytes(&value).unwrap();
            let names = OTHERS.map(|(name, _)| name).into_iter().chain([CACHE_GROUPS, CACHE_GROUP_INVALIDATION]);
            let headers: HeaderMap = names.map(|name| (name, value.clone())).collect();
            prop_assert!(groups(&headers).iter().all(|group| (1..=GROUP_LEN_MAX).contains(&group.len())));
            invalidated_groups(&headers);
        }
    }
}
