//! The field `Cache-Status` (RFC 9211).

use std::fmt::Write as _;

use http::HeaderValue;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const INTEGER_MAX: i64 = 999_999_999_999_999;

/// How the cache has handled a request (RFC 9211, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// `fwd`. `None`: a hit.
    pub forwarded: Option<Forwarded>,
    /// `fwd-status`
    pub forwarded_status: Option<u16>,
    /// `stored`
    pub is_stored: bool,
    /// `collapsed`
    pub is_collapsed: bool,
    /// `ttl`, in seconds. Negative: stale.
    pub ttl_s: Option<i64>,
    /// `detail`, a token.
    pub detail: Option<&'static str>,
}

/// Why a request went to the origin (RFC 9211, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    Bypass,
    Method,
    UriMiss,
    VaryMiss,
    Miss,
    Request,
    Stale,
    Partial,
}

impl Forwarded {
    fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

impl CacheStatus {
    /// The value of the field, with the name of the cache: `watari; hit; ttl=3`. A name that is no token is quoted,
    /// with `?` for what no string can have.
    pub fn to_value(&self, cache: &str) -> HeaderValue {
        let mut text = String::with_capacity(64);
        push_name(&mut text, cache);
        match self.forwarded {
            None => text.push_str("; hit"),
            Some(reason) => {
                text.push_str("; fwd=");
                text.push_str(reason.token());
            }
        }
        let mut parameter = |name: &str, value: i64| {
            write!(text, "; {name}={value}").expect("a string can be written");
        };
        if let Some(status) = self.forwarded_status {
            parameter("fwd-status", status.into());
        }
        if let Some(ttl_s) = self.ttl_s {
            parameter("ttl", ttl_s.clamp(-INTEGER_MAX, INTEGER_MAX));
        }
        for (is_set, name) in [(self.is_stored, "; stored"), (self.is_collapsed, "; collapsed")] {
            if is_set {
                text.push_str(name);
            }
        }
        if let Some(detail) = self.detail.filter(|detail| is_token(detail)) {
            text.push_str("; detail=");
            text.push_str(detail);
        }
        HeaderValue::try_from(text).expect("tokens, numbers and a string are valid")
    }
}

fn push_name(text: &mut String, name: &str) {
    if is_token(name) {
        text.push_str(name);
        return;
    }
    text.push('"');
    for char in name.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            ' '..='~' => text.push(char),
            _ => text.push('?'),
        }
    }
    text.push('"');
}

/// A token of a structured field (RFC 9651, section 3.3.4).
fn is_token(text: &str) -> bool {
    text.starts_with(|char: char| char == '*' || char.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::structured;

    fn value(status: &CacheStatus) -> String {
        status.to_value("watari").to_str().unwrap_or_default().to_owned()
    }

    /// RFC 9211, section 2.
    #[test]
    fn parameters() {
        let none = CacheStatus::default();
        let miss = CacheStatus { forwarded: Some(Forwarded::UriMiss), ..none.clone() };
        for (status, expected) in [
            (none.clone(), "watari; hit"),
            (CacheStatus { ttl_s: Some(3), ..none.clone() }, "watari; hit; ttl=3"),
            (CacheStatus { ttl_s: Some(-3), detail: Some("stale-if-error"), ..none }, {
                "watari; hit; ttl=-3; detail=stale-if-error"
            }),
            (CacheStatus { ttl_s: Some(i64::MIN), ..CacheStatus::default() }, "watari; hit; ttl=-999999999999999"),
            (miss.clone(), "watari; fwd=uri-miss"),
            (
                CacheStatus { forwarded_status: Some(200), is_stored: true, is_collapsed: true, ..miss.clone() },
                "watari; fwd=uri-miss; fwd-status=200; stored; collapsed",
            ),
            (CacheStatus { detail: Some("no token"), ..miss }, "watari; fwd=uri-miss"),
        ] {
            assert_eq!(value(&status), expected);
        }
    }

    /// RFC 9211, section 2.2.
    #[test]
    fn reasons() {
        use Forwarded::{Bypass, Method, Miss, Partial, Request, Stale, UriMiss, VaryMiss};
        let all = [Bypass, Method, UriMiss, VaryMiss, Miss, Request, Stale, Partial];
        let tokens = ["bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial"];
        assert_eq!(all.map(Forwarded::token), tokens);
    }

    proptest! {
        #[test]
        fn any_name_is_written(name in "\\PC{0,20}") {
            let value = CacheStatus::default().to_value(&name);
            let value = value.to_str().expect("a text");
            let name = value.strip_suffix("; hit").expect("a hit");
            prop_assert!(is_token(name) || structured::strings(name).is_some_and(|names| names.len() == 1));
        }
    }
}
