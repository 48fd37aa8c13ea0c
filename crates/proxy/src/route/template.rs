//! Texts with placeholders that each request fills.

use std::fmt::Write;
use std::str::FromStr;

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery};

use crate::exchange::client::Client;

/// A text of printable ASCII with placeholders:
///
/// * `%{client}`: the client's address, without a port. An IPv6 address has no brackets.
/// * `%{host}`: the requested host, and the port if the client sent one.
/// * `%{path}`: the path and, if there is one, `?` and the query. It begins with `/`.
///
/// A `%` without `{` after it stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// The text is not a [`Template`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// There is no placeholder of this name.
    #[error("unknown placeholder, expected %{{client}}, %{{host}} or %{{path}}")]
    Unknown,
    /// The text has characters other than printable ASCII.
    #[error("a value may have only printable ASCII characters")]
    Unprintable,
}

/// The values of a request for placeholders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) client: &'a Client,
    pub(crate) host: &'a Authority,
    /// `None`: the request is for a host as a whole.
    pub(crate) path: Option<&'a PathAndQuery>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Client,
    Host,
    Path,
}

impl Template {
    /// Fills the placeholders. The result is printable ASCII for any request: other bytes are percent-encoded.
    pub(crate) fn fill(&self, facts: Facts<'_>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Client => text.push_str(&facts.client.address().ip().to_canonical().to_string()),
                Part::Host => push_encoded(&mut text, facts.host.as_str()),
                Part::Path => push_encoded(&mut text, path(facts.path)),
            }
        }
        text
    }

    /// Like [`Template::fill`].
    pub(crate) fn value(&self, facts: Facts<'_>) -> HeaderValue {
        HeaderValue::try_from(self.fill(facts)).expect("printable ASCII is a valid field value")
    }
}

impl FromStr for Template {
    type Err = InvalidTemplate;

    fn from_str(text: &str) -> Result<Self, InvalidTemplate> {
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(InvalidTemplate::Unprintable);
        }
        let mut pieces = text.split("%{");
        let mut parts: Vec<_> = pieces.next().map(literal).into_iter().collect();
        for piece in pieces {
            let (name, rest) = piece.split_once('}').ok_or(InvalidTemplate::Unknown)?;
            parts.extend([fact(name)?, literal(rest)]);
        }
        Ok(Self(parts))
    }
}

fn literal(text: &str) -> Part {
    Part::Literal(text.to_owned())
}

fn fact(name: &str) -> Result<Part, InvalidTemplate> {
    match name {
        "client" => Ok(Part::Client),
        "host" => Ok(Part::Host),
        "path" => Ok(Part::Path),
        _ => Err(InvalidTemplate::Unknown),
    }
}

/// `OPTIONS *` has no path (RFC 9112, section 3.2.4). A `*` after a host would change the host's name.
fn path(path: Option<&PathAndQuery>) -> &str {
    path.map(PathAndQuery::as_str).filter(|path| path.starts_with('/')).unwrap_or("/")
}

fn push_encoded(text: &mut String, from: &str) {
    for byte in from.bytes() {
        match byte {
            b'!'..=b'~' => text.push(byte.into()),
            _ => write!(text, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn fill(template: &str, client: &str, host: &str, path: &[u8]) -> String {
        let client = Client::new(client.parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let (host, path) = (host.parse().unwrap(), PathAndQuery::try_from(path).ok());
        template.parse::<Template>().unwrap().fill(Facts { client: &client, host: &host, path: path.as_ref() })
    }

    #[test]
    fn requests_fill_templates() {
        for (template, filled) in [
            ("", ""),
            ("100% text", "100% text"),
            ("%{client}", "192.0.2.7"),
            ("<%{host}>", "<a:8443>"),
            ("%{path}%{path}", "/b?c/b?c"),
            ("https://%{host}%{path}", "https://a:8443/b?c"),
        ] {
            assert_eq!(fill(template, "192.0.2.7:5", "a:8443", b"/b?c"), filled, "{template}");
        }
        assert_eq!(fill("%{client}", "[::ffff:192.0.2.7]:5", "a", b"/"), "192.0.2.7");
        assert_eq!(fill("%{client}", "[2001:db8::1]:5", "a", b"/"), "2001:db8::1");
        assert_eq!(fill("%{path}", "192.0.2.7:5", "a", b"*"), "/");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["%{", "%{}", "%{client", "%{cookie}", "%{%{client}}"] {
            assert_eq!(text.parse::<Template>(), Err(InvalidTemplate::Unknown), "{text}");
        }
        for text in ["a\r\nb", "a\tb", "\0", "\u{e4}", "\u{7f}"] {
            assert_eq!(text.parse::<Template>(), Err(InvalidTemplate::Unprintable), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn all_that_is_filled_is_printable(template in "([ -~]|%\\{(client|host|path)\\}){0,8}", path in "/[^?#]{0,16}") {
            prop_assume!(template.parse::<Template>().is_ok());
            let filled = fill(&template, "192.0.2.7:5", "a", path.as_bytes());
            prop_assert!(filled.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{filled:?}");
        }
    }
}
