//! The fields of responses: which are stored, their dates, and the validators among them.

use std::time::{Duration, SystemTime};

use http::header::{
    AGE, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use watari_conditional::{EntityTag, Validators, date};

use crate::directives::{ResponseDirectives, SECONDS_MAX, delta_seconds};
use crate::lists;

/// Fields of one connection (RFC 9110, section 7.6.1), and of proxies (RFC 9111, section 3.1).
const NEVER_STORED: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The fields of a response that are stored (RFC 9111, section 3.1): without those of one connection, without `Age`,
/// `Content-Length`, `Content-Range` and `Set-Cookie`, and without those that its directives withhold. `responded` is
/// the `Date` of a response that has none (RFC 9110, section 6.6.1).
///
/// Clients that wait for the response get these fields, too. Only the client whose request went to the origin gets the
/// fields as they arrived.
pub fn stored_fields(response: &HeaderMap, responded: SystemTime) -> HeaderMap {
    let mut fields = end_to_end(response);
    for name in [AGE, CONTENT_LENGTH, CONTENT_RANGE, SET_COOKIE] {
        fields.remove(name);
    }
    for name in ResponseDirectives::of(response).withheld {
        fields.remove(name);
    }
    if date(&fields, &DATE).is_none() {
        fields.insert(DATE, date_value(responded));
    }
    fields
}

/// The validator with which parts of a stored response may be joined: a strong entity tag, or a strong modification
/// time (RFC 9110, section 8.8). It is the value of `If-Range` of a request for parts.
pub fn strong_validator(fields: &HeaderMap) -> Option<&HeaderValue> {
    let validators = validators(fields);
    match validators.tag {
        Some(tag) => fields.get(ETAG).filter(|_| !tag.is_weak),
        None => fields.get(LAST_MODIFIED).filter(|_| validators.is_modified_strong),
    }
}

/// The validators of a stored response.
///
/// `Last-Modified` is strong if `Date` is at least a second later (RFC 9110, section 8.8.2.2), and if there is no weak
/// or malformed entity tag.
pub(crate) fn validators(fields: &HeaderMap) -> Validators<'_> {
    let tag = entity_tag(fields);
    let modified = date(fields, &LAST_MODIFIED);
    let is_settled = match (modified, date(fields, &DATE)) {
        (Some(modified), Some(date)) => date.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(1)),
        _ => false,
    };
    let has_strong_tag = tag.is_some_and(|tag| !tag.is_weak);
    Validators { tag, modified, is_modified_strong: is_settled && (has_strong_tag || !fields.contains_key(ETAG)) }
}

/// The entity tag of a response, if it is single and valid.
pub(crate) fn entity_tag(fields: &HeaderMap) -> Option<EntityTag<'_>> {
    let mut values = fields.get_all(ETAG).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { EntityTag::of(value.as_bytes()) }
}

/// The fields without those of one connection and of proxies.
pub(crate) fn end_to_end(response: &HeaderMap) -> HeaderMap {
    let mut fields = response.clone();
    for name in lists::connection_options(response) {
        fields.remove(name);
    }
    for name in NEVER_STORED {
        fields.remove(name);
    }
    fields
}

/// The earliest valid date of a field. So a response with several `Date`s is as old as the oldest one says.
pub(crate) fn earliest_date(fields: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    fields.get_all(name).iter().filter_map(parse_date).min()
}

pub(crate) fn parse_date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// The seconds of `Age`: its first member. Another value than a number is ignored, and a large one capped (RFC 9111,
/// section 5.1).
pub(crate) fn age_s(fields: &HeaderMap) -> u64 {
    let first = fields.get(AGE).and_then(|value| value.as_bytes().split(|&byte| byte == b',').next());
    first.and_then(|value| delta_seconds(value.trim_ascii())).unwrap_or(0)
}

/// A time as an HTTP date. Times after the year 9999 have none.
pub(crate) fn date_value(time: SystemTime) -> HeaderValue {
    let time = time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + 100 * Duration::from_secs(SECONDS_MAX));
    HeaderValue::from_str(&httpdate::fmt_http_date(time)).expect("dates are ASCII")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const EARLIER: &str = "Sun, 13 Sep 2020 12:26:39 GMT";
    const DAY: &str = "Sun, 13 Sep 2020 12:26:40 GMT";

    fn fields(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |&(name, value): &(&str, &str)| -> (HeaderName, HeaderValue) {
            (name.parse().unwrap(), value.parse().unwrap())
        };
        fields.iter().map(field).collect()
    }

    fn names(fields: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    /// RFC 9111, section 3.1.
    #[test]
    fn fields_that_are_stored() {
        let response = fields(&[
            ("connection", "a, b"),
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("keep-alive", "x"),
            ("proxy-authenticate", "x"),
            ("proxy-authentication-info", "x"),
            ("proxy-authorization", "x"),
            ("proxy-connection", "x"),
            ("te", "x"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("age", "1"),
            ("content-length", "1"),
            ("content-range", "bytes 0-0/1"),
            ("set-cookie", "a=b"),
            ("unknown", "x"),
            ("date", DAY),
        ]);
        assert_eq!(names(&stored_fields(&response, SystemTime::UNIX_EPOCH)), ["c", "date", "unknown"]);
    }

    /// RFC 9111, sections 5.2.2.4 and 5.2.2.7.
    #[test]
    fn withheld_fields_are_not_stored() {
        let response = fields(&[
            ("cache-control", "no-cache=\"A, set-cookie\", max-age=60"),
            ("cache-control", "private=\"b\""),
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("set-cookie", "a=b"),
            ("date", DAY),
        ]);
        assert_eq!(names(&stored_fields(&response, SystemTime::UNIX_EPOCH)), ["c", "cache-control", "date"]);
    }

    /// RFC 9110, section 6.6.1.
    #[test]
    fn a_stored_response_has_a_date() {
        let responded = date(&fields(&[("date", DAY)]), &DATE).unwrap();
        for response in [&[][..], &[("date", "x")], &[("date", EARLIER), ("date", DAY)]] {
            assert_eq!(stored_fields(&fields(response), responded).get(DATE).unwrap(), DAY, "{response:?}");
        }
        assert_eq!(stored_fields(&fields(&[("date", EARLIER)]), responded).get(DATE).unwrap(), EARLIER);
    }

    /// RFC 9110, sections 8.8.1 and 8.8.2.2.
    #[test]
    fn validators_that_are_strong() {
        for (response, expected) in [
            (&[("etag", "\"a\"")][..], Some("\"a\"")),
            (&[("etag", "\"a\""), ("last-modified", DAY), ("date", DAY)], Some("\"a\"")),
            (&[("etag", "W/\"a\"")], None),
            (&[("etag", "W/\"a\""), ("last-modified", EARLIER), ("date", DAY)], None),
            (&[("etag", "a"), ("last-modified", EARLIER), ("date", DAY)], None),
            (&[("etag", "\"a\""), ("etag", "\"b\"")], None),
            (&[("last-modified", EARLIER), ("date", DAY)], Some(EARLIER)),
            (&[("last-modified", DAY), ("date", DAY)], None),
            (&[("last-modified", DAY), ("date", EARLIER)], None),
            (&[("last-modified", EARLIER)], None),
            (&[("last-modified", "x"), ("date", DAY)], None),
            (&[], None),
        ] {
            let response = fields(response);
            assert_eq!(strong_validator(&response).map(|value| value.to_str().unwrap()), expected, "{response:?}");
        }
    }

    /// RFC 9111, section 5.1.
    #[test]
    fn ages() {
        for (lines, expected) in [
            (&[][..], 0),
            (&["7200"], 7200),
            (&["7200, 0"], 7200),
            (&["7200", "0"], 7200),
            (&["0, 7200"], 0),
            (&["0", "7200"], 0),
            (&["abc"], 0),
            (&["-7200"], 0),
            (&["7200.0"], 0),
            (&["7200;foo=bar"], 0),
            (&[""], 0),
            (&["2147483648"], SECONDS_MAX),
            (&["99999999999999999999999999"], SECONDS_MAX),
        ] {
            let lines: Vec<_> = lines.iter().map(|value| ("age", *value)).collect();
            assert_eq!(age_s(&fields(&lines)), expected, "{lines:?}");
        }
    }
}
