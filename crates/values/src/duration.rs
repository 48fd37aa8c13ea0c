//! Durations as text in configuration and arguments: a number, possibly with a fraction, and a unit.
//!
//! `250us`, `500ms`, `1.5s`, `5m`, `2h`, `7d`

use std::time::Duration;

const UNITS_NS: [(&str, u128); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
/// The digits of a fraction that count. The longest unit has 14 digits of nanoseconds.
const FRACTION_LEN_MAX: usize = 18;
/// How much of a wrong text the error quotes, in characters.
const SHOWN_MAX: usize = 40;

/// The text is not a duration, or one of more than [`u64::MAX`] milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration, such as 500ms, 1.5s, 5m, 2h or 7d")]
pub struct InvalidDuration(String);

/// Parses a duration. Rounds it to nanoseconds.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    duration(text).ok_or_else(|| InvalidDuration(text.chars().take(SHOWN_MAX).collect()))
}

fn duration(text: &str) -> Option<Duration> {
    let number_len = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(number_len);
    let (_, unit_ns) = UNITS_NS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(FRACTION_LEN_MAX)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = (integer(fraction)? * unit_ns + scale / 2) / scale;
    let ns = integer(whole)? * unit_ns + part;
    // The sum of some of these durations and the Unix time is still a `Duration`.
    u64::try_from(ns / 1_000_000).ok()?;
    Some(Duration::new(u64::try_from(ns / 1_000_000_000).ok()?, u32::try_from(ns % 1_000_000_000).ok()?))
}

/// The text of a duration, in the longest unit that needs no fraction.
pub fn text(duration: Duration) -> String {
    let ns = duration.as_nanos();
    match UNITS_NS.iter().rev().find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns)) {
        Some((unit, unit_ns)) => format!("{}{unit}", ns / unit_ns),
        None => format!("{}.{:03}us", ns / 1000, ns % 1000),
    }
}

/// The number of these digits, 0 for none. Fits 64 bits, so that its product with a unit fits 128.
fn integer(digits: &str) -> Option<u128> {
    if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok().map(u128::from) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_parsed() {
        let cases = [
            ("250us", 250),
            ("0ms", 0),
            ("500ms", 500_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("5.s", 5_000_000),
            ("5m", 300_000_000),
            ("7d", 604_800_000_000),
            ("1000h", 3_600_000_000_000),
            ("0.00000050000000000000000000000000000000000001s", 1),
        ];
        for (text, us) in cases {
            let expected = Duration::from_micros(us);
            let difference = parse(text).map(|parsed| parsed.abs_diff(expected));
            assert!(difference.is_ok_and(|difference| difference < Duration::from_micros(1)), "{text}");
        }
        assert_eq!(parse("18446744073709551615ms"), Ok(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn other_texts_are_refused() {
        let cases = [
            "",
            "s",
            "5",
            "5 s",
            "-1s",
            "+1s",
            "1e3s",
            "infs",
            "nans",
            "1.2.3s",
            ".s",
            "1w",
            "５s",
            "99999999999999999999s",
            "18446744073709551616ms",
            "213503982334602d",
        ];
        for text in cases {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_error_quotes_a_bounded_part() {
        let expected = format!("\"{}\" is not a duration, such as 500ms, 1.5s, 5m, 2h or 7d", "x".repeat(SHOWN_MAX));
        assert_eq!(parse(&"x".repeat(1000)).map_err(|error| error.to_string()), Err(expected));
    }

    #[test]
    fn durations_are_written_in_the_longest_unit() {
        let cases = [(250, "250us"), (1_500_000, "1500ms"), (120_000_000, "2m"), (86_400_000_000, "1d")];
        for (us, expected) in cases {
            assert_eq!(text(Duration::from_micros(us)), expected);
        }
        assert_eq!(text(Duration::from_nanos(2_050)), "2.050us");
    }

    proptest! {
        #[test]
        fn a_written_duration_is_read_back(ns: u64) {
            let duration = Duration::from_nanos(ns);
            prop_assert_eq!(parse(&text(duration)), Ok(duration));
        }

        #[test]
        fn whole_numbers_are_exact(ms: u64) {
            prop_assert_eq!(parse(&format!("{ms}ms")), Ok(Duration::from_millis(ms)));
        }

        #[test]
        fn nothing_panics(text in "[0-9.]{0,40}(us|ms|s|m|h|d)?") {
            let _ = parse(&text);
        }
    }
}
