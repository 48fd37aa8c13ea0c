//! Lists in fields: elements separated by commas, arguments in quotes (RFC 9110, sections 5.6.1 and 5.6.6).

use http::{HeaderMap, HeaderName};

/// An element of `Cache-Control` or `Pragma`: `name`, or `name=argument`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directive<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) argument: Option<Argument<'a>>,
    /// The list is not written as RFC 9110 requires around this element: only restrictive meanings count.
    pub(crate) is_malformed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument<'a> {
    /// Without its quotes, but with its backslashes.
    pub(crate) value: &'a [u8],
    pub(crate) is_quoted: bool,
}

/// The directives of all lines of a field.
///
/// Origins separate directives by semicolons and spaces, too, and leave quotes open. Such elements are found as well,
/// so that no `private` is overlooked.
pub(crate) fn directives<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = Directive<'a>> {
    headers.get_all(name).into_iter().flat_map(|line| elements(line.as_bytes())).flat_map(|element| {
        let mut parts = split(element, b"; \t").filter(|part| !part.is_empty()).peekable();
        let mut is_malformed = false;
        std::iter::from_fn(move || {
            let part = parts.next()?;
            is_malformed |= parts.peek().is_some();
            Some(Directive::parse(part, is_malformed))
        })
    })
}

/// The elements of a list, without empty ones. A comma in quotes separates nothing. An open quote is no quote.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    trimmed_elements(list).filter(|element| !element.is_empty())
}

/// As [`elements`], with empty ones.
pub(crate) fn trimmed_elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(list, b",").map(<[u8]>::trim_ascii)
}

/// The names of fields in a list. `None`: one is malformed.
pub(crate) fn names(list: &[u8]) -> Option<Vec<HeaderName>> {
    elements(list).map(|name| HeaderName::from_bytes(name).ok()).collect()
}

/// The names that `Connection` lists (RFC 9110, section 7.6.1).
pub(crate) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let lines = headers.get_all(http::header::CONNECTION);
    lines.iter().flat_map(|line| elements(line.as_bytes())).filter_map(|name| HeaderName::from_bytes(name).ok())
}

impl<'a> Directive<'a> {
    fn parse(text: &'a [u8], is_malformed: bool) -> Self {
        let (name, value) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let stripped = trim(name, b"\"'");
        let argument = value.map(Argument::parse);
        Self { name: stripped, argument, is_malformed: is_malformed || stripped.len() < name.len() }
    }
}

impl<'a> Argument<'a> {
    fn parse(text: &'a [u8]) -> Self {
        match text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
            Some(value) => Self { value, is_quoted: true },
            None => Self { value: text, is_quoted: false },
        }
    }
}

/// The parts between any of `separators`, outside of quotes.
fn split<'a>(text: &'a [u8], separators: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(text);
    let mut are_quotes_closed = true;
    std::iter::from_fn(move || {
        let text = rest?;
        let end = part_len(text, separators, &mut are_quotes_closed);
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

/// The length of the part before the first separator. After an open quote, quotes mean nothing: so each byte is read at
/// most twice.
fn part_len(text: &[u8], separators: &[u8], are_quotes_closed: &mut bool) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if separators.contains(byte) {
            return at;
        }
        let quoted = if *byte == b'"' && *are_quotes_closed { quoted_len(&text[at..]) } else { Some(1) };
        *are_quotes_closed &= quoted.is_some();
        at += quoted.unwrap_or(1);
    }
    text.len()
}

/// The length of the quoted string at the start of the text (RFC 9110, section 5.6.4). `None`: it has no end.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn trim<'a>(mut text: &'a [u8], bytes: &[u8]) -> &'a [u8] {
    while let [first, rest @ ..] = text
        && bytes.contains(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && bytes.contains(last)
    {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::header::CACHE_CONTROL;
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &[&str]) -> Vec<String> {
        let headers: HeaderMap = lines.iter().map(|line| (CACHE_CONTROL, line.parse().unwrap())).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let describe = |directive: Directive<'_>| {
            let argument = directive.argument.map(|argument| {
                let quote = if argument.is_quoted { "'" } else { "" };
                format!("={quote}{}{quote}", text(argument.value))
            });
            let mark = if directive.is_malformed { "!" } else { "" };
            format!("{}{}{mark}", text(directive.name), argument.unwrap_or_default())
        };
        directives(&headers, &CACHE_CONTROL).map(describe).collect()
    }

    /// RFC 9110, sections 5.6.1.2 and 5.6.4; RFC 9111, section 5.2.
    #[test]
    fn lists_of_directives() {
        for (lines, expected) in [
            (&["max-age=1, public"][..], &["max-age=1", "public"][..]),
            (&[", a,,b ,"], &["a", "b"]),
            (&["a", "b=c"], &["a", "b=c"]),
            (&["a=\"b, c\", d"], &["a='b, c'", "d"]),
            (&["a=\"b\\\", c\", d"], &["a='b\\\", c'", "d"]),
            (&["a=\"\""], &["a=''"]),
            (&["a="], &["a="]),
            (&["a=b=c"], &["a=b=c"]),
            (&["a=\"b, private"], &["a=\"b", "private"]),
            (&["a=\"b\\"], &["a=\"b\\"]),
            (&["a; private"], &["a!", "private!"]),
            (&["a private,b"], &["a!", "private!", "b"]),
            (&["a =1"], &["a!", "=1!"]),
            (&["\"private\""], &["private!"]),
            (&["\""], &["!"]),
        ] {
            assert_eq!(all(lines), expected, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in prop::collection::vec(any::<u8>(), 0..64)) {
            let parts: usize = split(&line, b",").map(|part| part.len() + 1).sum();
            prop_assert_eq!(parts, line.len() + 1);
            names(&line);
        }
    }
}
