//! Fields that the proxy does not forward.

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    MAX_FORWARDS, SET_COOKIE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

/// This field is for the origin, even if `Connection` names it: an intermediary must not remove it (RFC 8470, section
/// 5.1).
static EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Removes the fields for this connection only: those that `Connection` names, and those that old senders do not name
/// there (RFC 9110, section 7.6.1). `Trailer` stays, because trailers are forwarded.
///
/// A `Content-Length` in addition to `Transfer-Encoding` is removed, because it cannot be trusted (RFC 9112, section
/// 6.3).
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in named_by_connection(headers).into_iter().filter(|name| *name != EARLY_DATA) {
        headers.remove(name);
    }
    headers.remove(CONNECTION);
    remove_if(headers, is_hop_by_hop);
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(name, "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade")
        // Many origins read an underscore as a hyphen (RFC 3875, section 4.1.18), and would use a wrong length.
        || matches!(name, "content_length" | "transfer_encoding")
}

/// Why the `Content-Length` of a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadLength {
    /// Fields or list elements differ.
    Differ,
    /// Not a decimal number of at most 64 bits.
    Invalid,
}

/// Checks `Content-Length`. Reduces several fields or elements of the same value to one field (RFC 9110, section 8.6).
///
/// The HTTP/2 library checks it only if it frames the content: not in responses to HEAD, and not in 204 and 304.
pub(crate) fn settle_length(headers: &mut HeaderMap) -> Result<(), BadLength> {
    let fields = headers.get_all(CONTENT_LENGTH).iter();
    let mut lengths = fields.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(length) = lengths.next() else { return Ok(()) };
    if !is_length(length) {
        return Err(BadLength::Invalid);
    }
    let Some(other) = lengths.next() else { return Ok(()) };
    if length != other || lengths.any(|other| other != length) {
        return Err(BadLength::Differ);
    }
    let length = HeaderValue::from_bytes(length).map_err(|_| BadLength::Invalid)?;
    headers.insert(CONTENT_LENGTH, length);
    Ok(())
}

/// `1*DIGIT`. `parse` alone would accept a sign.
fn is_length(value: &[u8]) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    std::str::from_utf8(value).is_ok_and(|text| is_number(text) && text.parse::<u64>().is_ok())
}

/// Cleans the trailers, if this frame has them.
pub(crate) fn clean_frame(frame: &mut Frame<Bytes>) {
    if let Some(trailers) = frame.trailers_mut() {
        clean_trailers(trailers);
    }
}

/// Removes from trailers the fields about the message itself, or about the connection (RFC 9110, section 6.5.1).
fn clean_trailers(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    for name in NOT_IN_TRAILERS {
        trailers.remove(name);
    }
}

/// Fields for framing, routing, authentication, and the processing and caching of content.
const NOT_IN_TRAILERS: [HeaderName; 10] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    MAX_FORWARDS,
    SET_COOKIE,
    TRAILER,
];

/// Whether a field `name` has the list element `token`, in any case. Parameters of elements are ignored.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut elements = values.flat_map(|value| value.split(','));
    elements.any(|element| {
        element.split(';').next().is_some_and(|element| element.trim_ascii().eq_ignore_ascii_case(token))
    })
}

/// Removes the fields for whose names, in lower case, `is_meant` returns true.
pub(crate) fn remove_if(headers: &mut HeaderMap, is_meant: impl Fn(&str) -> bool) {
    let meant: Vec<HeaderName> = headers.keys().filter(|name| is_meant(name.as_str())).cloned().collect();
    for name in meant {
        headers.remove(name);
    }
}

/// Whether two names in lower case are equal if an underscore counts as a hyphen. Many origins read `Client_Cert` and
/// `Client-Cert` as the same name (RFC 3875, section 4.1.18).
pub(crate) fn are_alike(one: &str, other: &str) -> bool {
    let hyphen = |byte| if byte == b'_' { b'-' } else { byte };
    one.bytes().map(hyphen).eq(other.bytes().map(hyphen))
}

/// The names in `Connection` that are not removed anyway. Most messages have none.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim_ascii);
    let names = names.filter(|name| !is_hop_by_hop(name) && !name.eq_ignore_ascii_case("close"));
    names.filter_map(|name| HeaderName::try_from(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::header::TE;

    use super::*;

    #[test]
    fn fields_of_the_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-One ,, not a name, Early-Data"),
            ("connection", "keep-alive,x-two"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("trailer", "x-sum"),
            ("early-data", "1"),
            ("content_length", "7"),
            ("transfer_encoding", "chunked"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["early-data", "trailer", "x-three"]);
    }

    #[test]
    fn one_length_is_left() {
        for (said, settled) in [
            (&[][..], Ok(None)),
            (&["3"], Ok(Some("3"))),
            (&["003"], Ok(Some("003"))),
            (&["18446744073709551613"], Ok(Some("18446744073709551613"))),
            (&["3", "3"], Ok(Some("3"))),
            (&["3, 3", "3"], Ok(Some("3"))),
            (&["3", "4"], Err(BadLength::Differ)),
            (&["3, 3, 4"], Err(BadLength::Differ)),
            (&["3", "03"], Err(BadLength::Differ)),
            (&["3", "x"], Err(BadLength::Differ)),
            (&[""], Err(BadLength::Invalid)),
            (&["", "3"], Err(BadLength::Invalid)),
            (&["-5"], Err(BadLength::Invalid)),
            (&["+5"], Err(BadLength::Invalid)),
            (&["abc"], Err(BadLength::Invalid)),
            (&["0x5"], Err(BadLength::Invalid)),
            (&["5.0"], Err(BadLength::Invalid)),
            (&["18446744073709551616"], Err(BadLength::Invalid)),
            (&["12345678901234567890123"], Err(BadLength::Invalid)),
        ] {
            let mut headers = HeaderMap::new();
            for length in said {
                headers.append(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            let left = settle_length(&mut headers).map(|()| {
                assert!(headers.get_all(CONTENT_LENGTH).iter().count() <= 1);
                headers.get(CONTENT_LENGTH).map(|length| length.to_str().unwrap())
            });
            assert_eq!(left, settled, "{said:?}");
        }
    }

    #[test]
    fn trailers_say_nothing_of_the_message_itself() {
        let mut trailers = HeaderMap::new();
        for name in ["content-length", "transfer-encoding", "host", "set-cookie", "connection", "x-sum", "grpc-status"]
        {
            trailers.append(name, HeaderValue::from_static("1"));
        }
        clean_trailers(&mut trailers);
        let mut left: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["grpc-status", "x-sum"]);
    }

    #[test]
    fn list_elements_are_found() {
        let mut headers = HeaderMap::new();
        headers.append(TE, HeaderValue::from_static("gzip;q=0.5"));
        assert!(!lists(&headers, &TE, "trailers"));
        headers.append(TE, HeaderValue::from_static("deflate , Trailers;q=1"));
        assert!(lists(&headers, &TE, "trailers"));
        assert!(!lists(&headers, &TE, "trail"));
    }
}
