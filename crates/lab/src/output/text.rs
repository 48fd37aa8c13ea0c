//! Numbers and texts as people read them.

use std::cmp::Ordering;

use watari_values::size::Size;

use crate::statistics::range;

/// Stands for a value that is missing.
pub(super) const NONE: &str = "-";

/// A number as the paper prints it: with all of its digits.
pub(super) fn printed(value: Option<f64>) -> String {
    finite(value)
        .map_or(NONE.to_owned(), |value| if is_huge(value) { power(value) } else { grouped(&value.to_string()) })
}

/// A measured number, with four significant digits. Integers have all of theirs.
pub(super) fn measured(value: Option<f64>) -> String {
    let text = |value| if is_huge(value) { power(value) } else { grouped(&format!("{value:.*}", decimals(value))) };
    finite(value).map_or(NONE.to_owned(), text)
}

/// A median with the range of its values: `2.5 (2 to 3)`. One value has no range.
pub(super) fn with_range(median: Option<f64>, values: &[Option<f64>]) -> String {
    match range(values.iter().copied().flatten()) {
        Some((least, most)) if values.len() > 1 => {
            format!("{} ({} to {})", measured(median), measured(Some(least)), measured(Some(most)))
        }
        _ => measured(median),
    }
}

pub(super) fn percent(share: Option<f64>) -> String {
    finite(share).map_or(NONE.to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// The text, or `-` for an empty one.
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// Replaces characters that XML forbids, or that command a terminal. Line feeds remain.
pub(super) fn clean(text: &str) -> String {
    let is_bad = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if is_bad(c) { '\u{fffd}' } else { c }).collect()
}

/// Puts a comma between groups of three digits of the integer part.
pub(super) fn grouped(number: &str) -> String {
    let (integer, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = integer.split_at(usize::from(integer.starts_with('-')));
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// The order of a variable's values: numbers and sizes by their amounts, before texts.
pub(super) fn by_amount(a: &str, b: &str) -> Ordering {
    match (amount(a), amount(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.cmp(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The amount of a value such as `16`, `0.5` or `4 KiB`.
pub(super) fn amount(value: &str) -> Option<f64> {
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    number.or_else(|| value.parse().ok().map(|Size(bytes)| bytes as f64))
}

/// Breaks a text at blanks so that no line is over `width`, unless a single word is. `measure` tells the width of a
/// line.
pub(super) fn wrapped(text: &str, width: f64, measure: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if line.is_empty() || measure(&longer) <= width {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

fn is_huge(value: f64) -> bool {
    value.abs() >= 1e12
}

/// `1.235e15`
fn power(value: f64) -> String {
    format!("{value:.3e}")
}

fn decimals(value: f64) -> usize {
    if value.fract() == 0.0 {
        return 0;
    }
    (3 - value.abs().log10().floor() as i32).clamp(0, DECIMALS_MAX) as usize
}

const DECIMALS_MAX: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let printed = [1893.0, 0.0004, 441.2, -12345.678].map(|value| printed(Some(value)));
        assert_eq!(printed, ["1,893", "0.0004", "441.2", "-12,345.678"]);
        assert_eq!(measured(Some(1.234_56e300)), "1.235e300");
        let measured =
            [1000.0, 223.412, 1.2096, 16424.4, 0.000_123_456, -0.5, 999.96].map(|value| measured(Some(value)));
        assert_eq!(measured, ["1,000", "223.4", "1.210", "16,424", "0.0001235", "-0.5000", "1,000.0"]);
    }

    #[test]
    fn missing_values_are_dashes() {
        assert_eq!([printed(None), measured(None), percent(None), or_none("")], [NONE; 4]);
        assert_eq!([printed(Some(f64::NAN)), measured(Some(f64::INFINITY)), with_range(None, &[])], [NONE; 3]);
    }

    #[test]
    fn a_median_has_the_range_of_several_values() {
        assert_eq!(with_range(Some(2.0), &[Some(1.0), None, Some(3.0)]), "2 (1 to 3)");
        assert_eq!(with_range(Some(2.0), &[Some(2.0)]), "2");
    }

    #[test]
    fn values_of_variables_have_the_order_of_their_amounts() {
        let mut values = ["b", "100", "2 KiB", "9", "a", "1MB", "0.5"];
        values.sort_by(|a, b| by_amount(a, b));
        assert_eq!(values, ["0.5", "9", "100", "2 KiB", "1MB", "a", "b"]);
    }

    #[test]
    fn lines_break_at_blanks() {
        let count = |line: &str| line.chars().count() as f64;
        assert_eq!(wrapped("one two  three-and-more four", 8.0, count), ["one two", "three-and-more", "four"]);
        assert_eq!(wrapped("", 8.0, count), [""]);
    }

    #[test]
    fn forbidden_characters_are_replaced() {
        assert_eq!(clean("a\u{1b}[2J\0b\nc\u{ffff}"), "a\u{fffd}[2J\u{fffd}b\nc\u{fffd}");
    }
}
