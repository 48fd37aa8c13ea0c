//! Splits a line into fields.

use super::error::LineError;

/// Splits off the next field: a word, up to the next space or tab, or `key=value`, whose value may be in quotes.
/// `None`: the line ends, or a comment begins.
///
/// Inside quotes, `\"` means a quote and `\\` a backslash. Outside, a backslash means itself.
pub(super) fn next(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(SPACES);
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let mut quoted = Quoted::default();
    let end = text.find(|c| !quoted.covers(c) && SPACES.contains(&c)).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Splits a field into key and value, and removes the value's quotes.
pub(super) fn key_and_value(field: &str) -> Result<(&str, String), LineError> {
    let (key, value) = field.split_once('=').ok_or_else(|| LineError::option(field))?;
    let Some(quoted) = value.strip_prefix('"') else {
        return if value.contains('"') { Err(LineError::quotes(field)) } else { Ok((key, value.to_owned())) };
    };
    let inner = unquote(quoted).ok_or_else(|| LineError::quotes(field))?;
    Ok((key, inner))
}

/// A value, in quotes if necessary.
pub(super) fn quote(value: &str) -> String {
    if !value.is_empty() && !value.contains(['"', ' ', '\t']) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The text up to the closing quote, unescaped. The opening quote is cut off already. `None` if text follows the
/// closing quote.
fn unquote(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut rest = text.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(value),
            '\\' => value.push(rest.next().filter(|c| ['"', '\\'].contains(c))?),
            c => value.push(c),
        }
    }
}

/// Whether the current character is inside quotes.
#[derive(Default)]
struct Quoted {
    before: Option<char>,
    open: bool,
    escaped: bool,
}

impl Quoted {
    /// Enters the next character; true if it is inside quotes, or is the closing quote.
    fn covers(&mut self, c: char) -> bool {
        let was_open = self.open;
        match c {
            // A quote opens a value only after `=`, so that a URI may contain one.
            '"' if !self.open => self.open = self.before == Some('='),
            '"' if !self.escaped => self.open = false,
            _ => {}
        }
        self.escaped = was_open && c == '\\' && !self.escaped;
        self.before = Some(c);
        was_open
    }
}

/// The separators of fields.
const SPACES: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn fields(mut text: &str) -> Vec<&str> {
        let mut fields = Vec::new();
        while let Some((field, rest)) = next(text) {
            fields.push(field);
            text = rest;
        }
        fields
    }

    #[test]
    fn spaces_and_tabs_separate_fields() {
        assert_eq!(fields("  a \t b\tc "), ["a", "b", "c"]);
        assert_eq!(fields(" \t"), [""; 0]);
    }

    #[test]
    fn a_comment_begins_where_a_field_would() {
        assert_eq!(fields("a b#c # d e"), ["a", "b#c"]);
        assert_eq!(fields("#a"), [""; 0]);
        assert_eq!(fields(r#"a="b #c" d"#), [r#"a="b #c""#, "d"]);
    }

    #[test]
    fn values_may_be_quoted() {
        assert_eq!(fields(r#"a="b \" c\\" d"#), [r#"a="b \" c\\""#, "d"]);
        assert_eq!(key_and_value(r#"a="b \" c\\""#), Ok(("a", r#"b " c\"#.to_owned())));
        assert_eq!(key_and_value(r"a=b\c=d"), Ok(("a", r"b\c=d".to_owned())));
        assert_eq!(key_and_value(r#"a="""#), Ok(("a", String::new())));
    }

    #[test]
    fn quotes_have_to_fit() {
        for field in [r#"a=""#, r#"a="b"#, r#"a="b"c"#, r#"a="b\c""#, r#"a="b\""#, r#"a=b"c""#] {
            assert_eq!(key_and_value(field), Err(LineError::quotes(field)), "{field}");
        }
        assert_eq!(key_and_value("a"), Err(LineError::option("a")));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(value in r#"[ \\"=#a\t]{0,9}"#) {
            let text = format!("key={}", quote(&value));
            prop_assert_eq!(fields(&text), [&*text]);
            prop_assert_eq!(key_and_value(&text), Ok(("key", value)));
        }
    }
}
