//! Rules that change the fields of heads.

use http::header::{self, HeaderName};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use crate::exchange::fields;
use crate::route::template::{Facts, InvalidTemplate, Template};

/// The changes of the heads of a route's requests and responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// For requests, after all changes by the proxy itself.
    pub request: HeaderRules,
    /// The `Host` for origins. `None`: the one that the client requests.
    pub host: Option<Authority>,
    /// For responses, including the proxy's own.
    pub response: HeaderRules,
}

/// Fields to remove, to set and to append, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderRules {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, Template)>,
    append: Vec<(HeaderName, Template)>,
}

/// Why the arguments make no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// The name is not a valid field name.
    #[error("\"{0}\" is not a field name")]
    Name(String),
    /// The field frames a message, or is for one connection only (RFC 9110, section 7.6.1; RFC 8470, section 5.1).
    #[error("only the proxy may set {0}")]
    Protected(HeaderName),
    /// The field may occur only once.
    #[error("{0} may occur only once: use set, not append")]
    Singleton(HeaderName),
    /// The value is not a template.
    #[error("{0}: {1}")]
    Value(HeaderName, InvalidTemplate),
}

impl Rules {
    /// Changes the head of a request to an origin.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap, facts: Facts<'_>) {
        self.request.apply_to_alike(headers, facts);
        if let Some(host) = &self.host {
            let host = HeaderValue::from_str(host.as_str()).expect("authorities are printable ASCII");
            headers.insert(header::HOST, host);
        }
    }
}

impl HeaderRules {
    /// Removes all fields of this name.
    pub fn remove(&mut self, name: &str) -> Result<(), InvalidRule> {
        self.remove.push(free(name)?);
        Ok(())
    }

    /// Replaces all fields of this name by one with this value, a [`Template`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidRule> {
        self.set.push(rule(free(name)?, value)?);
        Ok(())
    }

    /// Adds a field of this name with this value, a [`Template`], to those that exist.
    pub fn append(&mut self, name: &str, value: &str) -> Result<(), InvalidRule> {
        let name = free(name)?;
        if SINGLETONS.contains(&name) {
            return Err(InvalidRule::Singleton(name));
        }
        self.append.push(rule(name, value)?);
        Ok(())
    }

    /// Like [`HeaderRules::apply`], but also removes fields whose names differ only in underscores and hyphens. Some
    /// origins read both as the same name, so no value of the client stays under a name that is removed or set.
    fn apply_to_alike(&self, headers: &mut HeaderMap, facts: Facts<'_>) {
        for name in self.remove.iter().chain(self.set.iter().map(|(name, _)| name)) {
            fields::remove_if(headers, |field| fields::are_alike(name.as_str(), field));
        }
        self.apply(headers, facts);
    }

    /// If a head has no room for more fields, it stays without them.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, facts: Facts<'_>) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            let _ = headers.try_insert(name, value.value(facts));
        }
        for (name, value) in &self.append {
            let _ = headers.try_append(name, value.value(facts));
        }
    }
}

fn rule(name: HeaderName, value: &str) -> Result<(HeaderName, Template), InvalidRule> {
    match value.parse() {
        Ok(template) => Ok((name, template)),
        Err(error) => Err(InvalidRule::Value(name, error)),
    }
}

fn free(name: &str) -> Result<HeaderName, InvalidRule> {
    let name = name.parse().map_err(|_| InvalidRule::Name(name.to_owned()))?;
    if PROTECTED.contains(&name) { Err(InvalidRule::Protected(name)) } else { Ok(name) }
}

const PROTECTED: [HeaderName; 13] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("early-data"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Fields that are not lists (RFC 9110, section 5.3), and `Cookie`, which HTTP/1.1 has only once (RFC 6265, section
/// 5.4).
const SINGLETONS: [HeaderName; 15] = [
    header::AGE,
    header::AUTHORIZATION,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::LOCATION,
    header::REFERER,
    header::RETRY_AFTER,
    header::SERVER,
    header::STRICT_TRANSPORT_SECURITY,
    header::USER_AGENT,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::exchange::client::Client;

    fn apply(rules: &HeaderRules, fields: &[(&str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let client = Client::new("192.0.2.7:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let (host, path) = ("a".parse().unwrap(), "/b".parse().unwrap());
        rules.apply(&mut headers, Facts { client: &client, host: &host, path: Some(&path) });
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn fields_are_removed_set_and_appended() {
        let mut rules = HeaderRules::default();
        rules.remove("X-Gone").unwrap();
        rules.set("X-Set", "%{client}").unwrap();
        rules.append("x-more", "%{host}%{path}").unwrap();
        let fields = [("x-gone", "1"), ("x-gone", "2"), ("x-set", "1"), ("x-set", "2"), ("x-more", "1"), ("x", "y")];
        assert_eq!(apply(&rules, &fields), ["x-more: 1", "x-more: a/b", "x-set: 192.0.2.7", "x: y"]);
    }

    #[test]
    fn what_frames_messages_cannot_be_touched() {
        for name in PROTECTED {
            let mut rules = HeaderRules::default();
            let refused = Err(InvalidRule::Protected(name.clone()));
            let name = name.as_str().to_ascii_uppercase();
            assert_eq!(rules.remove(&name), refused);
            assert_eq!(rules.set(&name, "1"), refused);
            assert_eq!(rules.append(&name, "1"), refused);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let mut rules = HeaderRules::default();
        for name in ["", "a b", "a:", ":path", "a\r\nb", "\u{e4}"] {
            assert_eq!(rules.set(name, "1"), Err(InvalidRule::Name(name.to_owned())));
        }
        let unprintable = Err(InvalidRule::Value(HeaderName::from_static("x"), InvalidTemplate::Unprintable));
        assert_eq!(rules.set("x", "a\r\nset-cookie: b"), unprintable);
        assert_eq!(rules.append("Content-Type", "text/plain"), Err(InvalidRule::Singleton(header::CONTENT_TYPE)));
        assert_eq!(rules, HeaderRules::default());
    }

    proptest! {
        /// For any rules of an operator, a head stays valid, and the framing of its message does not change.
        #[test]
        fn heads_stay_valid(rules in proptest::collection::vec((0..3, "[ -~\r\n]{0,20}|content-length|x-.", "\\PC{0,20}|%\\{path\\}"), 0..8)) {
            let mut kept = HeaderRules::default();
            for (kind, name, value) in rules {
                let _ = match kind {
                    0 => kept.remove(&name),
                    1 => kept.set(&name, &value),
                    _ => kept.append(&name, &value),
                };
            }
            let framing = [("content-length", "5"), ("connection", "te"), ("host", "a"), ("te", "trailers")];
            let lines = apply(&kept, &framing);
            for (name, value) in framing {
                let all: Vec<_> = lines.iter().filter(|line| line.starts_with(&format!("{name}: "))).collect();
                prop_assert_eq!(all, [&format!("{name}: {value}")]);
            }
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", lines.join("\r\n"));
            let mut fields = [httparse::EMPTY_HEADER; 32];
            let mut response = httparse::Response::new(&mut fields);
            prop_assert_eq!(response.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
            prop_assert_eq!(response.headers.len(), lines.len());
        }
    }
}
