//! Structured fields (RFC 9651), as far as caches need them: dictionaries of items, and lists of strings.

/// The most members of a dictionary. One with more is taken for malformed.
const MEMBERS_MAX: usize = 128;

/// A value of a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Integer(i64),
    String(String),
    Boolean(bool),
    /// A token, decimal, byte sequence, date, display string or inner list.
    Other,
}

/// The members of a dictionary, without parameters. A repeated name occurs once, with its last value (RFC 9651, section
/// 4.2.2). `None`: it is malformed.
pub(crate) fn dictionary(text: &str) -> Option<Vec<(&str, Value)>> {
    let mut members: Vec<(&str, Value)> = Vec::new();
    Parser { rest: text }.list(|parser| {
        let name = parser.key()?;
        let value = if parser.take("=") { parser.member()? } else { Value::Boolean(true) };
        parser.parameters()?;
        members.retain(|(known, _)| *known != name);
        members.push((name, value));
        (members.len() <= MEMBERS_MAX).then_some(())
    })?;
    Some(members)
}

/// The members of a list of strings. `None`: it is malformed, or a member is no string.
pub(crate) fn strings(text: &str) -> Option<Vec<String>> {
    let mut members = Vec::new();
    Parser { rest: text }.list(|parser| {
        let Value::String(member) = parser.member()? else {
            return None;
        };
        parser.parameters()?;
        members.push(member);
        Some(())
    })?;
    Some(members)
}

/// RFC 9651, section 4.2.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Members that are separated by commas, up to the end.
    fn list(&mut self, mut member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.rest = self.rest.trim_matches(' ');
        while !self.rest.is_empty() {
            member(self)?;
            self.rest = self.rest.trim_start_matches([' ', '\t']);
            if self.rest.is_empty() {
                return Some(());
            }
            self.expect(",")?;
            self.rest = self.rest.trim_start_matches([' ', '\t']);
            if self.rest.is_empty() {
                return None;
            }
        }
        Some(())
    }

    fn member(&mut self) -> Option<Value> {
        if !self.take("(") {
            return self.item();
        }
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            if self.take(")") {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !self.rest.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match self.rest.bytes().next()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(Value::String),
            b'?' => {
                let (value, rest) = self.rest.split_at_checked(2)?;
                self.rest = rest;
                match value {
                    "?0" => Some(Value::Boolean(false)),
                    "?1" => Some(Value::Boolean(true)),
                    _ => None,
                }
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(Value::Other)
            }
            b':' => {
                self.expect(":")?;
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.expect(":")?;
                Some(Value::Other)
            }
            b'@' => {
                self.expect("@")?;
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => {
                self.expect("%")?;
                self.string().map(|_| Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.take("-");
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(".") {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_valid = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return is_valid.then_some(Value::Other);
        }
        let value: i64 = digits.parse().ok().filter(|_| digits.len() <= 15)?;
        Some(Value::Integer(if is_negative { -value } else { value }))
    }

    fn string(&mut self) -> Option<String> {
        self.expect("\"")?;
        let mut value = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(chars.next().map(|(_, char)| char).filter(|char| "\"\\".contains(*char))?),
                ' '..='~' => value.push(char),
                _ => return None,
            }
        }
        None
    }

    fn key(&mut self) -> Option<&'a str> {
        self.rest.starts_with(|char: char| char == '*' || char.is_ascii_lowercase()).then_some(())?;
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
        Some(self.take_while(is_part))
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(";") {
            self.rest = self.rest.trim_start_matches(' ');
            self.key()?;
            if self.take("=") {
                self.item()?;
            }
        }
        Some(())
    }

    fn take_while(&mut self, accepted: impl Fn(u8) -> bool) -> &'a str {
        let end = self.rest.bytes().position(|byte| !accepted(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn take(&mut self, text: &str) -> bool {
        self.expect(text).is_some()
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9651, section 4.2.2.
    #[test]
    fn dictionaries() {
        let string = |text: &str| Value::String(text.to_owned());
        for (text, expected) in [
            ("", Some(vec![])),
            ("a", Some(vec![("a", Value::Boolean(true))])),
            ("a=1, b=-2", Some(vec![("a", Value::Integer(1)), ("b", Value::Integer(-2))])),
            ("a=1,b;x=1;y", Some(vec![("a", Value::Integer(1)), ("b", Value::Boolean(true))])),
            ("a=?0 , b=?1", Some(vec![("a", Value::Boolean(false)), ("b", Value::Boolean(true))])),
            ("a=\"x, \\\"y\"", Some(vec![("a", string("x, \"y"))])),
            ("a=1, a=2", Some(vec![("a", Value::Integer(2))])),
            ("a=1.5, b=x, c=:YQ==:, d=(1 \"b\");e, f=@1, *=%\"x\"", {
                Some(["a", "b", "c", "d", "f", "*"].map(|name| (name, Value::Other)).to_vec())
            }),
            ("a=999999999999999", Some(vec![("a", Value::Integer(999_999_999_999_999))])),
            ("a=1000000000000000", None),
            ("A=1", None),
            ("a=1,", None),
            ("a=1 b", None),
            ("a =1", None),
            ("a= 1", None),
            ("a=1, &&&&&", None),
            ("a=\"x", None),
            ("a=\"é\"", None),
            ("a=1.", None),
            ("a=", None),
            ("a=(1", None),
            ("a=?2", None),
        ] {
            assert_eq!(dictionary(text), expected, "{text}");
        }
    }

    #[test]
    fn dictionaries_are_bounded() {
        let members = |count: usize| (0..count).map(|number| format!("a{number}")).collect::<Vec<_>>().join(",");
        assert_eq!(dictionary(&members(MEMBERS_MAX)).map(|members| members.len()), Some(MEMBERS_MAX));
        assert_eq!(dictionary(&members(MEMBERS_MAX + 1)), None);
    }

    /// RFC 9651, section 4.2.1.
    #[test]
    fn lists_of_strings() {
        assert_eq!(strings("\"a\", \"b c\";x=1").unwrap_or_default(), ["a", "b c"]);
        assert_eq!(strings(""), Some(vec![]));
        for malformed in ["a", "\"a\" \"b\"", "\"a\",", "(\"a\")", "1"] {
            assert_eq!(strings(malformed), None, "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,40}", likely in "[a-z=\"?;,( )1.@:%\\\\-]{0,40}") {
            for text in [text, likely] {
                dictionary(&text);
                strings(&text);
            }
        }
    }
}
