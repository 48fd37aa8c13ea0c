//! Selects the coding that a client prefers.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

use super::coding::Coding;

/// The supported coding with the highest weight. `None` if the client prefers uncoded content, or sends no preference
/// (RFC 9110, section 12.5.3).
pub(super) fn preferred(headers: &HeaderMap) -> Option<Coding> {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let weights: Vec<_> = values.flat_map(|value| value.split(',')).filter_map(element).collect();
    let named = |names: &[&str]| {
        let is_named = |name: &str| names.iter().any(|ours| name.eq_ignore_ascii_case(ours));
        weights.iter().find(|(name, _)| is_named(name)).map(|(_, weight)| *weight)
    };
    let any = named(&["*"]);
    let identity = named(&["identity"]).unwrap_or(0);
    let weight = |names| named(names).or(any).unwrap_or(0);
    // Of equal weights, the last wins: zstd is smaller and faster.
    let codings = [(weight(&["gzip", "x-gzip"]), Coding::Gzip), (weight(&["zstd"]), Coding::Zstd)];
    let best = codings.into_iter().max_by_key(|(weight, _)| *weight)?;
    (best.0 > 0 && best.0 >= identity).then_some(best.1)
}

/// The name of a list element, and its weight in thousandths. `None` if it is malformed.
fn element(text: &str) -> Option<(&str, u16)> {
    match text.split_once(';') {
        None => Some((text.trim_ascii(), 1000)),
        Some((name, parameter)) => Some((name.trim_ascii(), weight(parameter.trim_ascii())?)),
    }
}

/// `q=0.5`, with at most three digits (RFC 9110, section 12.4.2).
fn weight(parameter: &str) -> Option<u16> {
    let value = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?;
    let (whole, digits) = value.split_once('.').unwrap_or((value, ""));
    if digits.len() > 3 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{digits:0<3}").parse().ok()?;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[&str]) -> Option<Coding> {
        let fields = values.iter().map(|value| (ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        preferred(&headers)
    }

    #[test]
    fn weights_are_respected() {
        use Coding::{Gzip, Zstd};
        for (value, expected) in [
            ("gzip", Some(Gzip)),
            ("GZIP, deflate, br", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip;q=1.0, zstd;q=0.999", Some(Gzip)),
            ("gzip ; q=0.1", Some(Gzip)),
            ("gzip;Q=1", Some(Gzip)),
            ("zstd;q=0, gzip", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*;q=0.5, zstd;q=0", Some(Gzip)),
            ("gzip, *;q=0", Some(Gzip)),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.4", Some(Gzip)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("gzip;q=", None),
            ("gzip;q=2", None),
            ("gzip;q=1.001", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=-1", None),
            ("gzip;level=9", None),
            ("br", None),
            ("identity", None),
            ("", None),
        ] {
            assert_eq!(of(&[value]), expected, "{value}");
        }
        assert_eq!(of(&["br", "gzip"]), Some(Gzip));
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn what_is_refused_is_never_taken(value in "[ -~]{0,40}") {
            prop_assert_eq!(of(&[&format!("gzip;q=0,zstd;q=0,{value}")]), None);
        }
    }
}
