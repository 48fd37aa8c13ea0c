//! Makes requests and trailers of decoded fields.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, uri};

use crate::hpack::{ENTRY_LEN, Name};

/// The `:protocol` of an extended CONNECT (RFC 8441, section 4), as an extension of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol(Box<str>);

impl Protocol {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A message is malformed (RFC 9113, section 8.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedMessage;

/// Fields, as they are decoded.
#[derive(Debug, Default)]
pub(crate) struct Head {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
    fields: HeaderMap,
    /// The size of the list, in bytes (RFC 9113, section 6.5.2).
    len: usize,
    len_max: usize,
    is_malformed: bool,
}

/// A request whose head is complete.
pub(crate) struct RequestHead {
    pub(crate) parts: Parts,
    pub(crate) content_len: Option<u64>,
}

impl Head {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, ..Self::default() }
    }

    pub(crate) fn add(&mut self, name: Name, value: Bytes) {
        self.len += name.len() + value.len() + ENTRY_LEN;
        // The rest only matters to the decoder.
        if self.is_malformed || self.is_too_long() {
            return;
        }
        self.is_malformed = self.accept(name, value).is_none();
    }

    /// Whether the list is longer than the limit.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > self.len_max
    }

    fn accept(&mut self, name: Name, value: Bytes) -> Option<()> {
        let pseudo = match name {
            Name::Field(name) => return self.accept_field(name, value),
            Name::Method => &mut self.method,
            Name::Scheme => &mut self.scheme,
            Name::Authority => &mut self.authority,
            Name::Path => &mut self.path,
            Name::Protocol => &mut self.protocol,
            Name::Status | Name::Invalid(_) => return None,
        };
        // RFC 9113, section 8.3.
        (self.fields.is_empty() && pseudo.is_none()).then(|| *pseudo = Some(value))
    }

    fn accept_field(&mut self, name: HeaderName, value: Bytes) -> Option<()> {
        // RFC 9113, section 8.2.1.
        let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if is_space(value.first()) || is_space(value.last()) {
            return None;
        }
        // RFC 9113, section 8.2.2.
        let is_of_connection = [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(&name)
            || ["keep-alive", "proxy-connection"].contains(&name.as_str())
            || (name == TE && !value.eq_ignore_ascii_case(b"trailers"));
        if is_of_connection {
            return None;
        }
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        self.fields.try_append(name, value).ok().map(drop)
    }

    /// The request. `ends`: it has no content. `allows_protocol`: an extended CONNECT was permitted.
    pub(crate) fn into_request(self, ends: bool, allows_protocol: bool) -> Result<RequestHead, MalformedMessage> {
        if self.is_malformed || (self.protocol.is_some() && !allows_protocol) {
            return Err(MalformedMessage);
        }
        let content_len = content_len(&self.fields)?;
        if ends && content_len.is_some_and(|len| len > 0) {
            return Err(MalformedMessage);
        }
        let method = self.method.ok_or(MalformedMessage)?;
        let method = Method::from_bytes(&method).map_err(|_| MalformedMessage)?;
        let target = target(&method, self.scheme, self.authority, self.path, self.protocol.is_some());
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri, parts.version) = (method, target.ok_or(MalformedMessage)?, Version::HTTP_2);
        parts.headers = self.fields;
        if let Some(protocol) = self.protocol {
            let protocol = std::str::from_utf8(&protocol).map_err(|_| MalformedMessage)?;
            parts.extensions.insert(Protocol::new(protocol));
        }
        Ok(RequestHead { parts, content_len })
    }

    /// The trailers of a request (RFC 9113, section 8.1).
    pub(crate) fn into_trailers(self) -> Result<HeaderMap, MalformedMessage> {
        let Self { method, scheme, authority, path, protocol, .. } = &self;
        let has_pseudo = [method, scheme, authority, path, protocol].into_iter().any(Option::is_some);
        if self.is_malformed || has_pseudo { Err(MalformedMessage) } else { Ok(self.fields) }
    }
}

/// RFC 9113, sections 8.3.1 and 8.5; RFC 8441, section 4.
fn target(
    method: &Method,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    is_extended: bool,
) -> Option<Uri> {
    let is_connect = *method == Method::CONNECT;
    let is_plain_connect = is_connect && !is_extended;
    if (is_extended && !is_connect)
        || is_plain_connect != scheme.is_none()
        || is_plain_connect != path.is_none()
        || (is_connect && authority.is_none())
        || path.as_ref().is_some_and(Bytes::is_empty)
    {
        return None;
    }
    let scheme = scheme.map(|scheme| Scheme::try_from(&scheme[..])).transpose().ok()?;
    let mut parts = uri::Parts::default();
    parts.path_and_query = path.map(PathAndQuery::from_maybe_shared).transpose().ok()?;
    if let Some(authority) = authority {
        parts.authority = Some(Authority::from_maybe_shared(authority).ok()?);
        parts.scheme = scheme;
    }
    Uri::from_parts(parts).ok()
}

/// The length that the fields declare. Equal ones count as one (RFC 9110, section 8.6).
fn content_len(fields: &HeaderMap) -> Result<Option<u64>, MalformedMessage> {
    let mut declared = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| MalformedMessage)?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(MalformedMessage);
        }
        let len = text.parse().map_err(|_| MalformedMessage)?;
        if declared.is_some_and(|declared| declared != len) {
            return Err(MalformedMessage);
        }
        declared = Some(len);
    }
    Ok(declared)
}
