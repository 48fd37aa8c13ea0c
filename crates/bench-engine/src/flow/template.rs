//! Texts with placeholders for values.

use std::fmt::Write;

use super::names::{Names, UnsetError};

/// A text with placeholders such as `${name}`, which are replaced by values.
///
/// `${name|url}` percent-encodes the value so that it stays within one part of a URI or form. `${name|json}` escapes it
/// as the inside of a JSON string. `$${` is a literal `${`. Names are resolved when the text is parsed, so none can be
/// missing later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A value, by its index.
    Value(usize, Escape),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Nothing,
    Url,
    Json,
}

/// The text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder without its end.
    #[error("\"${{\" without \"}}\" after it (\"$${{\" stands for itself)")]
    Unclosed,
    /// A name without a value.
    #[error(transparent)]
    Unset(#[from] UnsetError),
    /// An unknown escape.
    #[error("\"{0}\" is not an escape: use \"url\" or \"json\"")]
    UnknownEscape(String),
}

impl Template {
    /// Parses `text`. `names` are the values that exist here.
    pub(super) fn parse(text: &str, names: &Names) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                push_text(&mut parts, &format!("{before}${{"));
                rest = behind;
                continue;
            }
            let (place, behind) = behind.split_once('}').ok_or(TemplateError::Unclosed)?;
            push_text(&mut parts, before);
            parts.push(value(place, names)?);
            rest = behind;
        }
        push_text(&mut parts, rest);
        Ok(Self { parts })
    }

    /// The text, if it has no placeholders.
    pub(super) fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with `values` filled in.
    pub(super) fn fill(&self, values: &[String]) -> String {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Value(place, escape) => escape.push(&mut filled, &values[*place]),
            }
        }
        filled
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if let Some(Part::Text(last)) = parts.last_mut() {
        last.push_str(text);
    } else if !text.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
}

/// Parses the text between `${` and `}`.
fn value(place: &str, names: &Names) -> Result<Part, TemplateError> {
    let (name, escape) = match place.split_once('|') {
        None => (place, Escape::Nothing),
        Some((name, "url")) => (name, Escape::Url),
        Some((name, "json")) => (name, Escape::Json),
        Some((_, unknown)) => return Err(TemplateError::UnknownEscape(unknown.to_owned())),
    };
    Ok(Part::Value(names.known(name)?, escape))
}

impl Escape {
    fn push(self, filled: &mut String, value: &str) {
        match self {
            Self::Nothing => filled.push_str(value),
            Self::Url => value.bytes().for_each(|byte| push_percent(filled, byte)),
            Self::Json => push_json(filled, value),
        }
    }
}

/// Percent-encodes all bytes except the unreserved ones of RFC 3986, section 2.3.
fn push_percent(filled: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        filled.push(char::from(byte));
    } else {
        write!(filled, "%{byte:02X}").unwrap_or_default();
    }
}

/// Escapes by RFC 8259, section 7, without the quotation marks.
fn push_json(filled: &mut String, value: &str) {
    let quoted = serde_json::Value::from(value).to_string();
    filled.push_str(&quoted[1..quoted.len() - 1]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.certain("a").unwrap();
        names.certain("b").unwrap();
        names.perhaps("c").unwrap();
        names
    }

    fn filled(text: &str, a: &str, b: &str) -> String {
        // The first value is the number of the run.
        let values = ["7", a, b, ""].map(str::to_owned);
        Template::parse(text, &names()).unwrap().fill(&values)
    }

    #[test]
    fn values_are_put_in() {
        assert_eq!(filled("/x?a=${a}&b=${b}&a=${a}", "1", "2"), "/x?a=1&b=2&a=1");
        assert_eq!(filled("${user}", "", ""), "7");
        assert_eq!(filled("$1 and $$ and $", "1", "2"), "$1 and $$ and $");
        assert_eq!(filled("$${a} ${a} $$${a}", "1", "2"), "${a} 1 $${a}");
        assert_eq!(filled("", "1", "2"), "");
    }

    #[test]
    fn text_without_places_is_constant() {
        let constant = |text| Template::parse(text, &names()).unwrap().constant().map(str::to_owned);
        assert_eq!(constant(""), Some(String::new()));
        assert_eq!(constant("/a$${b}"), Some("/a${b}".to_owned()));
        assert_eq!(constant("/${a}"), None);
    }

    #[test]
    fn a_value_is_no_template() {
        assert_eq!(filled("${a}", "${b}", "2"), "${b}");
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(filled("?q=${a|url}", "a b&c=d/é", ""), "?q=a%20b%26c%3Dd%2F%C3%A9");
        assert_eq!(filled("{\"q\":\"${a|json}\"}", "a\"b\\\n", ""), "{\"q\":\"a\\\"b\\\\\\n\"}");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        let refused = |text| Template::parse(text, &names()).unwrap_err();
        assert_eq!(refused("x${a"), TemplateError::Unclosed);
        assert_eq!(refused("${}"), UnsetError::Unknown(String::new()).into());
        assert_eq!(refused("${ a }"), UnsetError::Unknown(" a ".to_owned()).into());
        assert_eq!(refused("${d}"), UnsetError::Unknown("d".to_owned()).into());
        assert_eq!(refused("${c}"), UnsetError::Unsure("c".to_owned()).into());
        assert_eq!(refused("${a|html}"), TemplateError::UnknownEscape("html".to_owned()));
    }

    proptest! {
        #[test]
        fn text_without_places_stays_as_it_is(text in "[^{]*") {
            prop_assert_eq!(filled(&text, "1", "2"), text);
        }

        #[test]
        fn nothing_panics(text in r"[$\{\}abc|url ]{0,20}") {
            let _ = Template::parse(&text, &names());
        }

        #[test]
        fn an_escaped_value_stays_within_its_part(value in any::<String>()) {
            let url = filled("${a|url}", &value, "");
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
            let json: serde_json::Value = serde_json::from_str(&filled("\"${a|json}\"", &value, "")).unwrap();
            prop_assert_eq!(json.as_str(), Some(value.as_str()));
        }
    }
}
