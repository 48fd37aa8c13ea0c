//! Writes heads in one canonical form: names in lower case, one space after the colon, CR LF.

use http::{HeaderName, HeaderValue, StatusCode};

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
    }

    #[test]
    fn lengths() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(written(|out| length(number, out)), format!("content-length: {number}\r\n"));
        }
    }
}
