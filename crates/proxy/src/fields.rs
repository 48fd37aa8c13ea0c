//! Fields that end at a proxy.

use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

/// Removes what is meant for this connection only: the fields that `Connection` names and those that old senders
/// forget to name there (RFC 9110, section 7.6.1). `Trailer` stays, for the trailers are forwarded.
///
/// A `Content-Length` beside `Transfer-Encoding` is not to be believed (RFC 9112, section 6.3).
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// Whether any field `name` has the list element `token`, in any case; parameters of an element are not looked at.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut elements = values.flat_map(|value| value.split(','));
    elements.any(|element| {
        element.split(';').next().is_some_and(|element| element.trim_ascii().eq_ignore_ascii_case(token))
    })
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    names.filter_map(|name| HeaderName::try_from(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_of_the_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-One ,, not a name"),
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
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["trailer", "x-three"]);
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
