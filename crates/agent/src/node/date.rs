//! The `Date` field (RFC 9110, section 6.6.1).

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The last value of this thread, and the Unix time in seconds that it stands for.
    static LAST: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The present time as the value of a `Date` field. Each thread formats it once a second.
pub(crate) fn now() -> HeaderValue {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(last, value)| {
        if *last != second {
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            (*last, *value) = (second, HeaderValue::try_from(text).expect("a date is plain ASCII"));
        }
        value.clone()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_date_is_that_of_the_present_second() {
        let before = SystemTime::now();
        let date = httpdate::parse_http_date(now().to_str().unwrap()).unwrap();
        let after = SystemTime::now();
        assert!(date <= after && date + Duration::from_secs(1) > before);
        assert!(httpdate::parse_http_date(now().to_str().unwrap()).unwrap() >= date);
    }
}
