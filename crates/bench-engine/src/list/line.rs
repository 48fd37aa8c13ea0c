//! The format of one line of an access list.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::error::{LINE_BYTES_MAX, LineError};
use super::fields;
use crate::excerpt::excerpt;

/// `SOURCE URI TLS [key=value ...]`
///
/// SOURCE is an address, or `-` for any. The rest is an [`Ask`]. Fields are separated by spaces and tabs. A `#` at the
/// beginning of a field starts a comment. A value with spaces is in quotes, `header="Accept: text/html"`, with `\"` for
/// a quote and `\\` for a backslash inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The local address of the connection; `None`: any.
    pub source: Option<IpAddr>,
    pub ask: Ask,
}

/// `URI TLS [key=value ...]`: the request of a line.
///
/// URI is a path relative to the URL of the command, or begins with `http://` or `https://`. TLS is 0 or 1. The keys
/// are `method`, `header` (any number of them), `body`, `weight`, `status`, `sha256` and `class`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub uri: Uri,
    /// Whether to use TLS.
    pub tls: bool,
    /// `method=POST`; GET by default.
    pub method: Method,
    /// `header="Name: value"`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `body=FILE`.
    pub body: Option<String>,
    /// `weight=3`: relative frequency. 1 by default.
    pub weight: u32,
    /// `status=200`: the required status of the response.
    pub status: Option<StatusCode>,
    /// `sha256=HEX`: the required SHA-256 of the response's body.
    pub sha256: Option<[u8; 32]>,
    /// `class=NAME`: the class that counts the request.
    pub class: Option<String>,
}

impl Line {
    /// Parses a line; `None`: it is empty, or a comment.
    pub fn parse(text: &str) -> Result<Option<Self>, LineError> {
        let Some((source, ask)) = split(text)? else { return Ok(None) };
        Ok(Some(Self { source, ask: ask.parse()? }))
    }
}

/// Splits a line into the source address and the text of the request.
pub(super) fn split(line: &str) -> Result<Option<(Option<IpAddr>, &str)>, LineError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    let Some((source, ask)) = fields::next(line) else { return Ok(None) };
    let any = source == "-";
    let source = (!any).then(|| source.parse()).transpose().map_err(|_| LineError::Source { text: excerpt(source) })?;
    Ok(Some((source, ask.trim_ascii())))
}

impl Ask {
    /// A GET request of `uri`, with the defaults for everything else.
    pub fn get(uri: Uri, tls: bool) -> Self {
        Self {
            uri,
            tls,
            method: Method::GET,
            headers: Vec::new(),
            body: None,
            weight: 1,
            status: None,
            sha256: None,
            class: None,
        }
    }

    /// Parses `URI [key=value ...]`: a line without SOURCE and TLS.
    pub fn parse_without_tls(text: &str, tls: bool) -> Result<Self, LineError> {
        let (uri, options) = fields::next(text).ok_or(LineError::Missing { what: "URI" })?;
        Self::get(parse_uri(uri)?, tls).with_options(options)
    }

    fn with_options(mut self, mut text: &str) -> Result<Self, LineError> {
        let mut given = Vec::new();
        while let Some((field, rest)) = fields::next(text) {
            let (key, value) = fields::key_and_value(field)?;
            self.set(key, value)?;
            if key != "header" && given.contains(&key) {
                return Err(LineError::Twice { key: key.to_owned() });
            }
            given.push(key);
            text = rest;
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), LineError> {
        let bad = |wanted| LineError::Value { key: key.to_owned(), value: excerpt(&value), wanted };
        match key {
            "method" => self.method = method(&value).ok_or_else(|| bad("a method, and not CONNECT"))?,
            "header" if self.headers.len() == HEADERS_MAX => return Err(bad("one of at most 64")),
            "header" => self.headers.push(header(&value).ok_or_else(|| bad(HEADER_WANTED))?),
            "weight" => self.weight = weight(&value).ok_or_else(|| bad("a number from 1 to 1000000"))?,
            "status" => self.status = Some(status(&value).ok_or_else(|| bad("a status from 200 to 599"))?),
            "sha256" => self.sha256 = Some(sha256(&value).ok_or_else(|| bad("64 hexadecimal digits"))?),
            "body" if is_name(&value, usize::MAX) => self.body = Some(value),
            "body" => return Err(bad("the name of a file")),
            "class" if is_name(&value, CLASS_CHARS_MAX) => self.class = Some(value),
            "class" => return Err(bad("a name of at most 32 characters")),
            _ => return Err(LineError::option(key)),
        }
        Ok(())
    }
}

impl FromStr for Ask {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let (uri, rest) = fields::next(text).ok_or(LineError::Missing { what: "URI" })?;
        let (tls, options) = fields::next(rest).ok_or(LineError::Missing { what: "TLS column" })?;
        let (uri, tls) = (parse_uri(uri)?, parse_tls(tls)?);
        match uri.scheme_str() {
            Some(scheme) if (scheme == "https") != tls => Err(LineError::Contradiction),
            _ => Self::get(uri, tls).with_options(options),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(formatter, "{source} {}", self.ask),
            None => write!(formatter, "- {}", self.ask),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.uri, u8::from(self.tls))?;
        let mut option = |key: &str, value: &str| write!(formatter, " {key}={}", fields::quote(value));
        if self.method != Method::GET {
            option("method", self.method.as_str())?;
        }
        for (name, value) in &self.headers {
            option("header", &format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))?;
        }
        self.body.iter().try_for_each(|body| option("body", body))?;
        if self.weight != 1 {
            option("weight", &self.weight.to_string())?;
        }
        self.status.iter().try_for_each(|status| option("status", status.as_str()))?;
        self.sha256.iter().try_for_each(|digest| option("sha256", &hex(digest)))?;
        self.class.iter().try_for_each(|class| option("class", class))
    }
}

/// Rejects fragments, which clients do not send and the parser would drop, and quotes, which would have to be escaped.
fn parse_uri(text: &str) -> Result<Uri, LineError> {
    let usable = |uri: &Uri| if uri.scheme().is_none() { text.starts_with('/') } else { is_http(uri) };
    let uri = if text.contains(['#', '"']) { None } else { text.parse().ok() };
    uri.filter(usable).ok_or_else(|| LineError::Uri { text: excerpt(text) })
}

/// Whether a URI has a host, an optional port, and no user. The parser accepts users and invalid ports.
fn is_http(uri: &Uri) -> bool {
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let host = authority.host();
    let whole = authority.port_u16().map_or(host.to_owned(), |port| format!("{host}:{port}"));
    !host.is_empty() && authority.as_str() == whole
}

fn parse_tls(text: &str) -> Result<bool, LineError> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(LineError::Tls { text: excerpt(text) }),
    }
}

fn method(text: &str) -> Option<Method> {
    text.parse().ok().filter(|method| *method != Method::CONNECT)
}

/// Rejects fields that frame messages or control connections, because this program sets them. A list with contradictory
/// ones would measure its own errors.
fn header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    let (name, value): (HeaderName, HeaderValue) = (name.parse().ok()?, value.trim_matches([' ', '\t']).parse().ok()?);
    (!OURS.contains(&name.as_str())).then_some((name, value))
}

fn weight(text: &str) -> Option<u32> {
    text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight))
}

fn status(text: &str) -> Option<StatusCode> {
    text.parse().ok().filter(|status: &StatusCode| (200..600).contains(&status.as_u16()))
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

fn hex(digest: &[u8]) -> String {
    digest
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn is_name(text: &str, chars_max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control)
}

const HEADERS_MAX: usize = 64;
const WEIGHT_MAX: u32 = 1_000_000;
const CLASS_CHARS_MAX: usize = 32;
const OURS: [&str; 5] = ["connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"];
const HEADER_WANTED: &str =
    "Name: value, where Name is none of Connection, Content-Length, Keep-Alive, Transfer-Encoding and Upgrade";

#[cfg(test)]
mod tests;
