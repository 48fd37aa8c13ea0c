//! The contents and the formats of a line of the access log.
//!
//! A line contains no credentials of the client in any format: neither `Authorization` nor cookies.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode, Version};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::exchange::address::OriginAddress;

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format of Apache, which most tools can read.
    Combined,
    /// A JSON object. It also has the duration, the origin, and the ending of the response.
    Json,
}

/// How the body of a response, or a tunnel, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The client left before it had all bytes.
    ClientLeft,
    /// The rest continues at another agent.
    Moved,
    /// The origin did not send all bytes, or ended the tunnel.
    Cut,
    /// The tunnel reached its idle timeout.
    Silent,
}

/// A request and its result.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) client: IpAddr,
    /// When the request arrived.
    pub(super) time: SystemTime,
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: Box<[u8]>,
    pub(super) host: Box<[u8]>,
    pub(super) version: Version,
    pub(super) referer: Option<Box<[u8]>>,
    pub(super) user_agent: Option<Box<[u8]>>,
    /// `None`: the client left before the response.
    pub(super) status: Option<StatusCode>,
    /// The length of the body, or the bytes sent to the client through the tunnel.
    pub(super) bytes: u64,
    /// The time until the body or tunnel ended.
    pub(super) duration: Duration,
    /// The origin that delivered the end of the response, or was tried last.
    pub(super) origin: Option<OriginAddress>,
    /// The number of origins that were tried until there was a response.
    pub(super) tries: u32,
    /// How often the response continued at another origin.
    pub(super) moves: u32,
    /// How the cache handled it. `None`: its route has no cache.
    pub(super) cache: Option<&'static str>,
    pub(super) ending: Ending,
}

/// The status of a request without a response, as in nginx.
const CLIENT_LEFT: u16 = 499;

#[derive(Serialize)]
struct Json<'a> {
    time: String,
    client: IpAddr,
    method: &'a str,
    host: &'a str,
    target: &'a str,
    version: &'static str,
    status: u16,
    bytes: u64,
    referer: Option<&'a str>,
    user_agent: Option<&'a str>,
    duration_ms: f64,
    origin: Option<String>,
    tries: u32,
    moves: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<&'static str>,
    ending: &'static str,
}

impl Line {
    /// Appends the line, with its line end.
    pub(super) fn write(&self, format: LogFormat, to: &mut Vec<u8>) {
        match format {
            LogFormat::Combined => self.write_combined(to),
            LogFormat::Json => self.write_json(to),
        }
        to.push(b'\n');
    }

    fn write_combined(&self, to: &mut Vec<u8>) {
        let (time, method, target) = (log_time(self.utc()), &self.method, escaped(&self.target));
        let version = version(self.version);
        let (status, bytes) = (self.status(), self.bytes);
        let [referer, user_agent] =
            [&self.referer, &self.user_agent].map(|field| field.as_deref().map_or_else(|| "-".to_owned(), escaped));
        // Writing to a vector cannot fail.
        let _ = write!(
            to,
            "{} - - [{time}] \"{method} {target} {version}\" {status} {bytes} \"{referer}\" \"{user_agent}\"",
            self.client
        );
    }

    fn write_json(&self, to: &mut Vec<u8>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, target) = (text(&self.host), text(&self.target));
        let (referer, user_agent) = (self.referer.as_deref().map(text), self.user_agent.as_deref().map(text));
        let line = Json {
            time: self.utc().format(&Rfc3339).unwrap_or_default(),
            client: self.client,
            method: self.method.as_str(),
            host: &host,
            target: &target,
            version: version(self.version),
            status: self.status(),
            bytes: self.bytes,
            referer: referer.as_deref(),
            user_agent: user_agent.as_deref(),
            duration_ms: (self.duration.as_secs_f64() * 1_000_000.0).round() / 1000.0,
            origin: self.origin.as_ref().map(ToString::to_string),
            tries: self.tries,
            moves: self.moves,
            cache: self.cache,
            ending: self.ending.as_str(),
        };
        // Neither writing to a vector nor serializing a line can fail.
        let _ = serde_json::to_writer(to, &line);
    }

    fn status(&self) -> u16 {
        self.status.map_or(CLIENT_LEFT, |status| status.as_u16())
    }

    /// The time of arrival, in milliseconds.
    fn utc(&self) -> OffsetDateTime {
        let time = OffsetDateTime::from(self.time);
        time.replace_millisecond(time.millisecond()).unwrap_or(time)
    }
}

impl Ending {
    fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientLeft => "client_left",
            Self::Moved => "moved",
            Self::Cut => "cut",
            Self::Silent => "silent",
        }
    }
}

/// For example `22/Nov/2026:14:05:59 +0000`.
fn log_time(time: OffsetDateTime) -> String {
    let month = time.month().to_string();
    let (day, year) = (time.day(), time.year());
    let (hour, minute, second) = time.to_hms();
    format!("{day:02}/{}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000", &month[..3])
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_11 => "HTTP/1.1",
        _ => "HTTP/1.0",
    }
}

/// Writes bytes that could end a quoted text or a line, or are not ASCII, as `\xHH`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                let _ = write!(text, "\\x{byte:02X}");
            }
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn line() -> Line {
        Line {
            client: "192.0.2.7".parse().unwrap(),
            time: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_323_959_123_456),
            method: Method::GET,
            target: b"/a?b=c".as_slice().into(),
            host: b"example.org".as_slice().into(),
            version: Version::HTTP_11,
            referer: None,
            user_agent: Some(b"a \"b\\\" \xff\n".as_slice().into()),
            status: Some(StatusCode::OK),
            bytes: 4096,
            duration: Duration::from_micros(1500),
            origin: Some("http://127.0.0.1:8080".parse().unwrap()),
            tries: 2,
            cache: None,
            moves: 1,
            ending: Ending::Complete,
        }
    }

    fn written(line: &Line, format: LogFormat) -> String {
        let mut text = Vec::new();
        line.write(format, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_as_tools_expect_them() {
        assert_eq!(
            written(&line(), LogFormat::Combined),
            "192.0.2.7 - - [22/Nov/2026:05:05:59 +0000] \"GET /a?b=c HTTP/1.1\" 200 4096 \"-\" \
             \"a \\x22b\\x5C\\x22 \\xFF\\x0A\"\n"
        );
        assert_eq!(
            written(&line(), LogFormat::Json),
            "{\"time\":\"2026-11-22T05:05:59.123Z\",\"client\":\"192.0.2.7\",\"method\":\"GET\",\
             \"host\":\"example.org\",\"target\":\"/a?b=c\",\"version\":\"HTTP/1.1\",\"status\":200,\"bytes\":4096,\
             \"referer\":null,\"user_agent\":\"a \\\"b\\\\\\\" \u{fffd}\\n\",\"duration_ms\":1.5,\
             \"origin\":\"http://127.0.0.1:8080\",\"tries\":2,\"moves\":1,\"ending\":\"complete\"}\n"
        );
        let left = Line { status: None, ending: Ending::ClientLeft, ..line() };
        assert!(written(&left, LogFormat::Combined).contains("\" 499 4096 "));
    }

    proptest! {
        #[test]
        fn a_request_is_one_line_whatever_is_in_it(target: Vec<u8>, user_agent: Vec<u8>) {
            let line = Line { target: target.into(), user_agent: Some(user_agent.into()), ..line() };
            let combined = written(&line, LogFormat::Combined);
            prop_assert!(combined.is_ascii() && combined.matches('\n').count() == 1);
            prop_assert_eq!(combined.matches('"').count(), 6);
            let json = written(&line, LogFormat::Json);
            prop_assert!(json.matches('\n').count() == 1);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap().is_object());
        }
    }
}
