//! Writes heads in one canonical form: names in lower case, one space after the colon, CR LF.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::fault::Misuse;
use crate::head::facts::{elements, number};

/// The status line (RFC 9112, section 4). The reason phrase is the registered one, or empty.
pub(crate) fn status_line(is_http10: bool, status: StatusCode, out: &mut Vec<u8>) {
    if status == StatusCode::OK && !is_http10 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(if is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The request line (RFC 9112, section 3). `target` has no whitespace.
pub(crate) fn request_line(method: &Method, target: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    if !target.starts_with(['/', '*']) {
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Fields of a head that are not written as they are.
#[derive(Debug, Default)]
pub(crate) struct Given {
    length: GivenLength,
    pub(crate) has_date: bool,
    /// `Connection: close`.
    pub(crate) closes: bool,
    /// `Connection` has other options than `close` and `keep-alive`, such as `upgrade`.
    pub(crate) has_options: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GivenLength {
    #[default]
    Absent,
    Known(u64),
    Invalid,
}

/// Writes the fields that do not depend on the connection or its framing. The callers decide those.
pub(crate) fn fields(fields: &HeaderMap, out: &mut Vec<u8>) -> Given {
    let mut given = Given::default();
    for (name, value) in fields {
        match name.as_str() {
            "connection" => given.add_connection(value),
            "content-length" => given.add_length(value),
            "transfer-encoding" | "trailer" | "keep-alive" => {}
            text => {
                given.has_date |= text == "date";
                field(name, value, out);
            }
        }
    }
    given
}

impl Given {
    /// The `Content-Length`. Several equal ones count as one.
    pub(crate) fn length(&self) -> Result<Option<u64>, Misuse> {
        match self.length {
            GivenLength::Absent => Ok(None),
            GivenLength::Known(length) => Ok(Some(length)),
            GivenLength::Invalid => Err(Misuse::InvalidLength),
        }
    }

    fn add_connection(&mut self, value: &HeaderValue) {
        for option in elements(value.as_bytes()) {
            let is_close = option.eq_ignore_ascii_case(b"close");
            self.closes |= is_close;
            self.has_options |= !is_close && !option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn add_length(&mut self, value: &HeaderValue) {
        self.length = match (self.length, number(value.as_bytes())) {
            (GivenLength::Absent, Some(length)) => GivenLength::Known(length),
            (GivenLength::Known(before), Some(length)) if before == length => GivenLength::Known(length),
            _ => GivenLength::Invalid,
        };
    }
}

/// Makes room for most heads with these fields.
pub(crate) fn reserve(fields: &HeaderMap, out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + fields.len() * FIELD_BYTES);
}

/// All fields of a name, as they are.
pub(crate) fn all(fields: &HeaderMap, name: &HeaderName, out: &mut Vec<u8>) {
    for value in fields.get_all(name) {
        field(name, value, out);
    }
}

/// A field line (RFC 9112, section 5). A `HeaderValue` has neither CR nor LF.
pub(crate) fn field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    line(name.as_str(), value.as_bytes(), out);
}

pub(crate) fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// `Content-Length`.
pub(crate) fn length(length: u64, out: &mut Vec<u8>) {
    let (mut digits, mut start, mut rest) = ([0; LENGTH_DIGITS_MAX], LENGTH_DIGITS_MAX, length);
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line("content-length", &digits[start..], out);
}

/// What a head takes apart from its fields, and what a field takes, in bytes: enough for most.
const HEAD_BYTES: usize = 192;
const FIELD_BYTES: usize = 64;

/// The digits of the largest 64-bit number.
const LENGTH_DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn start_lines() {
        let status =
            |is_http10, status| written(|out| status_line(is_http10, StatusCode::from_u16(status).unwrap(), out));
        assert_eq!(status(false, 200), "HTTP/1.1 200 OK\r\n");
        assert_eq!(status(true, 200), "HTTP/1.0 200 OK\r\n");
        assert_eq!(status(false, 404), "HTTP/1.1 404 Not Found\r\n");
        assert_eq!(status(false, 299), "HTTP/1.1 299 \r\n");
        let request = |target| written(|out| request_line(&Method::GET, target, out));
        assert_eq!(request("/a?b"), "GET /a?b HTTP/1.1\r\n");
        assert_eq!(request("?b"), "GET /?b HTTP/1.1\r\n");
        assert_eq!(request(""), "GET / HTTP/1.1\r\n");
        assert_eq!(request("*"), "GET * HTTP/1.1\r\n");
    }

    #[test]
    fn lengths() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(written(|out| length(number, out)), format!("content-length: {number}\r\n"));
        }
    }
}
