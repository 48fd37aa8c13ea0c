//! The static table (RFC 7541, appendix A).

use http::HeaderName;
use http::header;

use super::Name;

/// The number of entries. Their indexes begin at 1.
pub(super) const LEN: usize = 61;

/// The entry at `index`, from 1 to [`LEN`].
pub(super) fn entry(index: usize) -> (Name, &'static str) {
    match index {
        1 => (Name::Authority, ""),
        2 => (Name::Method, "GET"),
        3 => (Name::Method, "POST"),
        4 => (Name::Path, "/"),
        5 => (Name::Path, "/index.html"),
        6 => (Name::Scheme, "http"),
        7 => (Name::Scheme, "https"),
        8..=14 => (Name::Status, STATUSES[index - 8].1),
        16 => (Name::Field(header::ACCEPT_ENCODING), "gzip, deflate"),
        _ => (Name::Field(FIELDS[index - FIRST_FIELD].clone()), ""),
    }
}

/// The index of an entry with this name.
pub(super) fn index_of(name: &HeaderName) -> Option<usize> {
    FIELDS.iter().position(|field| field == name).map(|place| place + FIRST_FIELD)
}

/// The index of an entry with this status.
pub(super) fn index_of_status(status: u16) -> Option<usize> {
    STATUSES.iter().position(|(known, _)| *known == status).map(|place| place + FIRST_STATUS)
}

pub(super) const FIRST_STATUS: usize = 8;

const STATUSES: [(u16, &str); 7] =
    [(200, "200"), (204, "204"), (206, "206"), (304, "304"), (400, "400"), (404, "404"), (500, "500")];

/// The index of the first field.
const FIRST_FIELD: usize = 15;

static FIELDS: [HeaderName; LEN - FIRST_FIELD + 1] = [
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::ACCEPT_RANGES,
    header::ACCEPT,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::AGE,
    header::ALLOW,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::ETAG,
    header::EXPECT,
    header::EXPIRES,
    header::FROM,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::REFERER,
    header::REFRESH,
    header::RETRY_AFTER,
    header::SERVER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
];
