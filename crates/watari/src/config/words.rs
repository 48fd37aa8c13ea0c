//! Messages about the form of a file, for readers who have not seen the types behind it.
//!
//! serde's messages name Rust types (`invalid type: string "10/s", expected struct RawRate`). This module parses them
//! and writes new ones.

/// A mistake of form, parsed from an error of serde.
pub(super) enum Problem {
    /// A key that a table does not have, and the keys that it has.
    UnknownKey { key: String, known: Vec<String> },
    /// A required key that a table lacks.
    MissingKey(String),
    /// A value that is not valid in its place.
    Value(String),
}

impl Problem {
    pub(super) fn of(message: &str) -> Self {
        let quoted = quoted(message);
        if let (true, [key, known @ ..]) = (message.starts_with("unknown field `"), quoted.as_slice())
            && !key.starts_with("$__")
        {
            return Self::UnknownKey { key: key.clone(), known: known.to_vec() };
        }
        match (message.starts_with("missing field `"), quoted.as_slice()) {
            (true, [key, ..]) => Self::MissingKey(key.clone()),
            _ => Self::Value(message.to_owned()),
        }
    }
}

/// The words that `message` lists as possible: the keys of a table, or those of a choice.
pub(super) fn known(message: &str) -> Option<Vec<String>> {
    let is_list = ["unknown field `", "unknown variant `"].iter().any(|start| message.starts_with(start));
    is_list.then(|| quoted(message).into_iter().skip(1).collect())
}

/// `table` is empty for the file itself.
pub(super) fn unknown_key(table: &str, key: &str, known: &[String]) -> String {
    let what =
        if table.is_empty() { format!("unknown table [{key}]") } else { format!("[{table}] has no key \"{key}\"") };
    match nearest(key, known) {
        Some(near) => format!("{what}: did you mean \"{near}\"?"),
        None => format!("{what}: {}", choice(known)),
    }
}

pub(super) fn missing_key(table: &str, key: &str) -> String {
    if table.is_empty() {
        format!("the table [{key}] is missing")
    } else {
        format!("[{table}] lacks the key \"{key}\"")
    }
}

/// `known`: the keys of the table, or the words of the choice, that belongs there.
pub(super) fn value(message: &str, known: &[String]) -> String {
    if message.starts_with("unknown variant `") {
        let quoted = quoted(message);
        let (word, known) = quoted.split_first().map_or(("", &[][..]), |(word, known)| (word.as_str(), known));
        return match nearest(word, known) {
            Some(near) => format!("\"{word}\" is not allowed here: did you mean \"{near}\"?"),
            None => format!("\"{word}\" is not allowed here: {}", choice(known)),
        };
    }
    // toml passes a date to a table as a field.
    if message.starts_with("unknown field `$__") {
        let keys = quoted(message).split_off(1);
        return format!("expected a table with the keys {}, found a date", list(&keys));
    }
    let Some((found, expected)) = parts(message) else { return one_line(message) };
    if found.contains("$__") || expected.contains("$__") || message.contains("$__") {
        return format!("expected {}, found a date", wanted(expected, known));
    }
    format!("expected {}, found {}", wanted(expected, known), shown(found))
}

/// The message for text that is not TOML.
pub(super) fn syntax(message: &str) -> String {
    format!("invalid TOML: {}", one_line(message))
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(": ")
}

/// The value that was found, and the one that was expected.
fn parts(message: &str) -> Option<(&str, &str)> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|start| message.strip_prefix(start))?;
    rest.split_once(", expected ")
}

fn shown(found: &str) -> String {
    let number = ["integer `", "floating point `"].iter().find_map(|kind| found.strip_prefix(kind));
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => match (number, found.strip_prefix("boolean `"), found.strip_prefix("string ")) {
            (Some(number), ..) | (_, Some(number), _) => number.trim_end_matches('`').to_owned(),
            (.., Some(text)) => format!("the string {text}"),
            _ => found.to_owned(),
        },
    }
}

/// A description of the expected value. serde names types, or repeats the text of the type's author.
fn wanted(expected: &str, known: &[String]) -> String {
    if !known.is_empty() && (expected.starts_with("struct ") || expected.starts_with("a map")) {
        return format!("a table with the keys {}", list(known));
    }
    if !known.is_empty() && is_choice(expected) {
        return format!("one of {}", known.join(", "));
    }
    let above_zero = expected.contains("nonzero");
    let words: Vec<_> = expected.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let integer = INTEGERS.iter().find(|(name, _)| words.contains(name));
    match (integer, expected) {
        (Some((_, max)), _) => format!("a whole number {} to {max}", if above_zero { "from 1" } else { "from 0" }),
        (_, "a string" | "a borrowed string" | "path string" | "a character") => "a string in quotes".to_owned(),
        (_, "a boolean") => "true or false".to_owned(),
        (_, "a sequence") => "a list in brackets".to_owned(),
        (_, "f32" | "f64") => "a number".to_owned(),
        (_, text) if text.starts_with("struct ") || text.starts_with("a map") => "a table".to_owned(),
        (_, text) if is_choice(text) => "a string in quotes".to_owned(),
        (_, text) => text.to_owned(),
    }
}

/// The integer types of configurations, and their largest values as people write them. TOML has none above 2^63.
const INTEGERS: [(&str, &str); 6] =
    [("u8", "255"), ("u16", "65535"), ("u32", "4294967295"), ("u64", "2^63"), ("usize", "2^63"), ("i64", "2^63")];

fn is_choice(expected: &str) -> bool {
    ["enum ", "string or table", "variant"].iter().any(|word| expected.contains(word))
}

/// The parts of a message in back quotes.
fn quoted(message: &str) -> Vec<String> {
    message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn list(words: &[String]) -> String {
    match words {
        [] => "none".to_owned(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} and {last}", words.join(", ")),
    }
}

fn choice(words: &[String]) -> String {
    match words {
        [word] => format!("expected {word}"),
        words => format!("expected one of {}", words.join(", ")),
    }
}

/// The most similar word, if two thirds of its letters are right. Short words are near only by one letter: `rate` is not
/// `name`.
pub(super) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let distances = known.iter().map(|other| (distance(word, other), other));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    let len = word.chars().count().max(near.chars().count());
    (distance <= (len / 3).max(1) && distance < len).then_some(near)
}

/// The edit distance: letters that are added, left out, changed, or swapped with the next (restricted
/// Damerau-Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_found() {
        let known: Vec<_> = ["node", "peer", "dispatcher", "agent", "log"].map(String::from).into();
        for (word, near) in [("agnet", "agent"), ("dispacher", "dispatcher"), ("nodes", "node"), ("lgo", "log")] {
            assert_eq!(nearest(word, &known), Some(near), "{word}");
        }
        for word in ["x", "weather", "origins", "ab", "rate", "note2", "pears"] {
            assert_eq!(nearest(word, &known), None, "{word}");
        }
        assert_eq!(
            [("ab", "ba"), ("", "abc"), ("abc", "abc"), ("kitten", "sitting")].map(|(a, b)| distance(a, b)),
            [1, 3, 0, 3]
        );
    }

    #[test]
    fn no_type_is_named() {
        let cases = [
            ("invalid type: string \"10/s\", expected struct RawRate", "expected a table, found the string \"10/s\""),
            ("invalid type: integer `5`, expected a string", "expected a string in quotes, found 5"),
            ("invalid value: integer `-1`, expected usize", "expected a whole number from 0 to 2^63, found -1"),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "expected a whole number from 1 to 4294967295, found 0",
            ),
            ("invalid type: map, expected a sequence", "expected a list in brackets, found a table"),
            (
                "unknown field `$__toml_private_datetime`, expected `ipv4` or `ipv6`",
                "expected a table with the keys ipv4 and ipv6, found a date",
            ),
            ("\"5\" is not a duration", "\"5\" is not a duration"),
        ];
        for (message, expected) in cases {
            assert_eq!(value(message, &[]), expected);
        }
    }
}
