//! Requests to switch a connection to another protocol, such as `WebSocket` (RFC 9110, section 7.8).
//!
//! ```text
//!  client, HTTP/1.1                                     origin, HTTP/1.1
//!    Connection: upgrade, Upgrade: A, h2c     --->        Connection: upgrade, Upgrade: A
//!    101, Upgrade: A                          <---        101, Upgrade: A
//!
//!  client, HTTP/2 (RFC 8441)                            origin, HTTP/1.1 (RFC 6455)
//!    CONNECT, :protocol: websocket            --->        GET, Upgrade: websocket, a key of ours
//!    200                                      <---        101, and the key is accepted
//! ```
//! Any other response is an ordinary one. The proxy does not forward some upgrades:
//!
//! * Protocols that would replace HTTP itself and evade the rules of this proxy (`h2c`, `HTTP/2.0`, `TLS/1.2`).
//! * Upgrades of requests with content: an origin might see the end of the content elsewhere.
//!
//! Such requests are forwarded as if they requested no upgrade.

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, response};
use watari_http2::server::Protocol;

use crate::exchange::failure::{BadSwitch, Failure};
use crate::exchange::fields;

/// The upgrade that a client requests. The proxy requests it from an origin in HTTP/1.1, even if the pool uses HTTP/2.
#[derive(Debug, Clone)]
pub(crate) enum Upgrade {
    /// One of the protocols of this field.
    Listed(HeaderValue),
    /// `WebSocket`, on an HTTP/2 stream. The origin must accept this key.
    Stream(HeaderValue),
}

impl Upgrade {
    /// The upgrade that the client requests, if it can be forwarded.
    pub(crate) fn asked(head: &Parts, has_content: bool) -> Result<Option<Self>, Failure> {
        if let Some(protocol) = head.extensions.get::<Protocol>().filter(|_| head.method == Method::CONNECT) {
            let is_known = protocol.as_str().eq_ignore_ascii_case("websocket");
            return if is_known { Ok(Some(Self::Stream(new_key()))) } else { Err(Failure::Protocol) };
        }
        let is_asked = head.version == Version::HTTP_11 && fields::lists(&head.headers, &CONNECTION, "upgrade");
        if !is_asked || has_content || head.method == Method::CONNECT {
            return Ok(None);
        }
        Ok(passed_on(&head.headers).map(Self::Listed))
    }

    /// Adds the upgrade to the head of a request to an origin.
    pub(crate) fn ask(&self, head: &mut Parts) {
        head.headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
        match self {
            Self::Listed(protocols) => {
                head.headers.insert(UPGRADE, protocols.clone());
            }
            Self::Stream(key) => {
                head.method = Method::GET;
                head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                head.headers.insert(SEC_WEBSOCKET_KEY, key.clone());
            }
        }
    }

    /// Converts the head of an origin's 101 to that of the client's response.
    pub(crate) fn accept(&self, head: &mut response::Parts) -> Result<(), BadSwitch> {
        let protocol = head.headers.remove(UPGRADE).ok_or(BadSwitch::Protocol)?;
        if !self.includes(&protocol) {
            return Err(BadSwitch::Protocol);
        }
        if let Self::Stream(key) = self {
            let accepted = head.headers.remove(SEC_WEBSOCKET_ACCEPT);
            if accepted.is_none_or(|accepted| accepted != accepted_key(key)) {
                return Err(BadSwitch::Key);
            }
            head.status = StatusCode::OK;
        }
        fields::remove_hop_by_hop(&mut head.headers);
        // Neither a 101 nor a success of CONNECT has content (RFC 9110, section 8.6).
        head.headers.remove(CONTENT_LENGTH);
        if let Self::Listed(_) = self {
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, protocol);
        }
        Ok(())
    }

    /// Whether this status refuses the upgrade. Any success would open an HTTP/2 stream.
    pub(crate) fn is_refused_by(&self, status: StatusCode) -> bool {
        matches!(self, Self::Listed(_)) || !status.is_success()
    }

    /// Whether every protocol of a response was requested.
    fn includes(&self, answered: &HeaderValue) -> bool {
        let asked = match self {
            Self::Listed(protocols) => protocols.as_bytes(),
            Self::Stream(_) => b"websocket",
        };
        let is_asked = |protocol: &[u8]| elements(asked).any(|asked| asked.eq_ignore_ascii_case(protocol));
        elements(answered.as_bytes()).all(is_asked)
    }
}

/// The protocols of the client's list that may be forwarded.
fn passed_on(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(UPGRADE).iter().flat_map(|value| elements(value.as_bytes()));
    let protocols: Vec<&[u8]> = values.filter(|protocol| !replaces_http(protocol)).collect();
    if protocols.is_empty() { None } else { HeaderValue::from_bytes(&protocols.join(b", ".as_slice())).ok() }
}

/// Whether a protocol would carry further requests past this proxy.
fn replaces_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
    let begins = |start: &str| name.get(..start.len()).is_some_and(|name| name.eq_ignore_ascii_case(start.as_bytes()));
    begins("h2") || begins("h3") || begins("http") || begins("tls")
}

/// The elements of a list (RFC 9110, section 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// A unique key: 16 random bytes (RFC 6455, section 4.1).
fn new_key() -> HeaderValue {
    let mut nonce = [0; 16];
    aws_lc_rs::rand::fill(&mut nonce).expect("the system has random bytes");
    base64_value(&nonce)
}

/// The value with which a server accepts a key (RFC 6455, section 4.2.2).
fn accepted_key(key: &HeaderValue) -> HeaderValue {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64_value(context.finish().as_ref())
}

fn base64_value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::try_from(STANDARD.encode(bytes)).expect("base64 is plain ASCII")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Request, Response};

    use super::*;

    fn head(fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/chat");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn listed(fields: &[(&str, &str)]) -> Option<String> {
        match Upgrade::asked(&head(fields), false).unwrap() {
            Some(Upgrade::Listed(protocols)) => Some(protocols.to_str().unwrap().to_owned()),
            Some(Upgrade::Stream(_)) => panic!("no stream was asked for"),
            None => None,
        }
    }

    fn stream(protocol: &'static str) -> Result<Option<Upgrade>, Failure> {
        let mut head = head(&[]);
        (head.method, head.version) = (Method::CONNECT, Version::HTTP_2);
        head.extensions.insert(Protocol::new(protocol));
        Upgrade::asked(&head, false)
    }

    fn switched(upgrade: &Upgrade, fields: &[(&str, &str)]) -> Result<response::Parts, BadSwitch> {
        let mut response = Response::builder().status(101);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let mut head = response.body(()).unwrap().into_parts().0;
        upgrade.accept(&mut head).map(|()| head)
    }

    #[test]
    fn what_is_asked_for_and_may_be_is_passed_on() {
        let asked = ("connection", "keep-alive, Upgrade");
        for (fields, expected) in [
            (&[asked, ("upgrade", "websocket")][..], Some("websocket")),
            (&[asked, ("upgrade", "WebSocket"), ("upgrade", "foo/2 ,, bar")], Some("WebSocket, foo/2, bar")),
            (&[asked, ("upgrade", "h2c, websocket, HTTP/2.0, TLS/1.2")], Some("websocket")),
            (&[asked, ("upgrade", "h2c")], None),
            (&[asked, ("upgrade", "H2C")], None),
            (&[asked], None),
            (&[("upgrade", "websocket")], None),
            (&[("connection", "keep-alive"), ("upgrade", "websocket")], None),
        ] {
            assert_eq!(listed(fields).as_deref(), expected, "{fields:?}");
        }
    }

    #[test]
    fn requests_that_cannot_switch_are_plain_ones() {
        let fields = [("connection", "upgrade"), ("upgrade", "websocket")];
        assert!(Upgrade::asked(&head(&fields), true).unwrap().is_none(), "it has content");
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let mut head = head(&fields);
            head.version = version;
            assert!(Upgrade::asked(&head, false).unwrap().is_none(), "{version:?}");
        }
    }

    #[test]
    fn an_origin_is_asked_in_its_own_terms() {
        let mut plain = head(&[("connection", "te")]);
        Upgrade::Listed(HeaderValue::from_static("foo")).ask(&mut plain);
        assert_eq!(plain.headers[UPGRADE], "foo");
        assert_eq!(plain.headers.get_all(CONNECTION).iter().collect::<Vec<_>>(), ["te", "upgrade"]);

        let mut chat = head(&[("sec-websocket-key", "of the client"), ("sec-websocket-version", "13")]);
        chat.method = Method::CONNECT;
        stream("websocket").unwrap().unwrap().ask(&mut chat);
        assert_eq!((chat.method.as_str(), &chat.headers[UPGRADE]), ("GET", &HeaderValue::from_static("websocket")));
        assert_eq!(STANDARD.decode(&chat.headers[SEC_WEBSOCKET_KEY]).unwrap().len(), 16);
        assert!(matches!(stream("connect-udp"), Err(Failure::Protocol)));
    }

    #[test]
    fn a_switch_is_passed_back() {
        let upgrade = Upgrade::Listed(HeaderValue::from_static("foo, websocket"));
        let fields = [("connection", "Upgrade, x-hop"), ("upgrade", "websocket"), ("x-hop", "1"), ("x-own", "2")];
        let head = switched(&upgrade, &fields).unwrap();
        assert_eq!((head.status.as_u16(), head.headers.len()), (101, 3));
        assert_eq!(
            (&head.headers[CONNECTION], &head.headers[UPGRADE]),
            (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
        assert_eq!(head.headers["x-own"], "2");
    }

    /// The key and its accept value are the example of RFC 6455, section 1.3.
    #[test]
    fn a_stream_is_open_when_the_key_is_accepted() {
        let upgrade = Upgrade::Stream(HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        let accepted = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let (protocol, chat) = (("upgrade", "WebSocket"), ("sec-websocket-protocol", "chat"));
        let head = switched(&upgrade, &[protocol, accepted, chat, ("connection", "upgrade")]).unwrap();
        assert_eq!((head.status.as_u16(), head.headers.len()), (200, 1));
        assert_eq!(head.headers["sec-websocket-protocol"], "chat");

        let other = ("sec-websocket-accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        for fields in [&[protocol][..], &[protocol, other]] {
            assert_eq!(switched(&upgrade, fields).unwrap_err(), BadSwitch::Key);
        }
    }

    #[test]
    fn an_origin_switches_to_what_it_was_asked_for() {
        let upgrade = Upgrade::Listed(HeaderValue::from_static("websocket"));
        for fields in [&[][..], &[("upgrade", "foo")], &[("upgrade", "websocket, h2c")]] {
            assert_eq!(switched(&upgrade, fields).unwrap_err(), BadSwitch::Protocol);
        }
    }

    #[test]
    fn a_stream_must_not_look_open_when_it_is_refused() {
        let (listed, stream) =
            (Upgrade::Listed(HeaderValue::from_static("foo")), stream("websocket").unwrap().unwrap());
        for (status, by_stream) in [(200, false), (204, false), (302, true), (403, true), (500, true)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!((listed.is_refused_by(status), stream.is_refused_by(status)), (true, by_stream));
        }
    }
}
