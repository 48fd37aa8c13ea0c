//! Patterns of rules: which requests, by host and path, a rule applies to.

use std::fmt;
use std::str::FromStr;

/// Selects requests by host and path: `HOST/PATH`, where `*` stands for any characters, or none, slashes included.
///
/// ```text
/// /cgi-bin/*               everything below this path, on all hosts
/// example.org/search       exactly this path on this host
/// *.example.org/*.iso      files with this ending, on hosts of this domain (but not on example.org itself)
/// */admin/*                as /admin/*: any host, and that path from its beginning
/// ```
///
/// Everything before the first slash is the host. It is compared without regard to case, and without the port. The path
/// is compared as received, without its query and without decoding: `%63gi-bin` does not match `cgi-bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    host: Glob,
    path: Glob,
}

/// The text is not a [`Pattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// It contains no slash, and so no path.
    #[error("no slash: a pattern is HOST/PATH or /PATH")]
    NoPath,
    #[error("a pattern has at most {} bytes", Pattern::LEN_MAX)]
    TooLong,
    /// It contains `?` or `#`. It would match no request, because paths are compared without their query.
    #[error("'?' and '#' are not allowed: a pattern does not cover queries")]
    Query,
}

impl Pattern {
    /// The longest pattern, in bytes.
    pub const LEN_MAX: usize = 1024;

    /// Whether the pattern selects requests to `host` for `path`. The time is proportional to their lengths.
    pub fn matches(&self, host: &str, path: &str) -> bool {
        self.path.matches(path) && (self.host.is_anything() || self.host.matches(&host.to_ascii_lowercase()))
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > Self::LEN_MAX {
            return Err(InvalidPattern::TooLong);
        }
        if text.contains(['?', '#']) {
            return Err(InvalidPattern::Query);
        }
        let slash = text.find('/').ok_or(InvalidPattern::NoPath)?;
        let (host, path) = text.split_at(slash);
        let host = if host.is_empty() { "*" } else { host };
        Ok(Self { host: Glob(host.to_ascii_lowercase()), path: Glob(path.to_owned()) })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.is_anything() { "" } else { &self.host.0 };
        write!(f, "{host}{}", self.path.0)
    }
}

/// A text in which `*` stands for any characters, slashes included, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob(String);

impl Glob {
    fn is_anything(&self) -> bool {
        self.0 == "*"
    }

    /// Matches each part between two stars at its first occurrence: that leaves the longest rest for the parts after
    /// it.
    fn matches(&self, text: &str) -> bool {
        let Some((first, others)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let (between, last) = others.rsplit_once('*').unwrap_or(("", others));
        for part in between.split('*') {
            let Some(found) = rest.find(part) else { return false };
            rest = &rest[found + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, host: &str, path: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(host, path)
    }

    #[test]
    fn the_examples_hold() {
        for (pattern, host, path, expected) in [
            ("/cgi-bin/*", "example.org", "/cgi-bin/search", true),
            ("/cgi-bin/*", "example.org", "/cgi-bin/", true),
            ("/cgi-bin/*", "example.org", "/cgi-bin", false),
            ("/cgi-bin/*", "example.org", "/a/cgi-bin/search", false),
            ("example.org/search", "Example.ORG", "/search", true),
            ("EXAMPLE.org/search", "example.org", "/search", true),
            ("example.org/search", "example.org", "/Search", false),
            ("example.org/search", "example.org", "/search/", false),
            ("example.org/search", "www.example.org", "/search", false),
            ("*.example.org/*.iso", "a.b.example.org", "/pub/x.iso", true),
            ("*.example.org/*.iso", "example.org", "/x.iso", false),
            ("*.example.org/*.iso", "a.example.org", "/x.iso.sig", false),
            ("*/admin/*", "example.org", "/admin/users", true),
            ("*/admin/*", "example.org", "/a/admin/users", false),
            ("[::1]/*", "[::1]", "/", true),
            ("/ab*ba", "h", "/aba", false),
            ("/a*b*b", "h", "/ab", false),
            ("/a**b", "h", "/ab", true),
            ("/*", "", "*", false),
        ] {
            assert_eq!(matches(pattern, host, path), expected, "{pattern} {host} {path}");
        }
    }

    #[test]
    fn invalid_patterns_have_a_reason() {
        let invalid = |text: &str| text.parse::<Pattern>().unwrap_err();
        assert_eq!(invalid("example.org"), InvalidPattern::NoPath);
        assert_eq!(invalid(""), InvalidPattern::NoPath);
        assert_eq!(invalid("/search?q=*"), InvalidPattern::Query);
        assert_eq!(invalid(&format!("/{}", "a".repeat(Pattern::LEN_MAX))), InvalidPattern::TooLong);
    }

    fn naive(glob: &[u8], text: &[u8]) -> bool {
        match (glob, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) if naive(rest, text) => true,
            ([b'*', ..], [_, after @ ..]) => naive(glob, after),
            ([one, rest @ ..], [other, after @ ..]) => one == other && naive(rest, after),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_as_trying_everything_does(glob in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(Glob(glob.clone()).matches(&text), naive(glob.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn a_pattern_is_shown_as_it_is_read(text in "[a-z.*é]{0,8}/[a-z/*é]{0,8}", host: String, path: String) {
            let pattern: Pattern = text.parse().unwrap();
            pattern.matches(&host, &path);
            prop_assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern);
        }
    }
}
