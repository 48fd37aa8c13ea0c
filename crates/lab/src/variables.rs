//! Variables in commands and templates: `${name}`. Values can contain variables, which get their values at the same time.

use std::collections::BTreeMap;

use crate::experiment::Scalar;

/// Values by name. Later sets of values hide earlier ones.
pub type Values = BTreeMap<String, String>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown variable ${{{0}}}")]
    Unknown(String),
    #[error("the value of ${{{0}}} contains itself")]
    Endless(String),
    #[error("a variable has no end: \"{0}\" lacks }}")]
    Open(String),
}

/// How many values may contain each other.
const DEPTH_MAX: u32 = 8;

/// The text with the values of its variables.
pub fn fill(text: &str, values: &Values) -> Result<String, Error> {
    fill_to(text, values, DEPTH_MAX)
}

fn fill_to(text: &str, values: &Values, depth: u32) -> Result<String, Error> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| Error::Open(after.chars().take(40).collect()))?;
        let value = values.get(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let depth = depth.checked_sub(1).ok_or_else(|| Error::Endless(name.to_owned()))?;
        filled.push_str(before);
        filled.push_str(&fill_to(value, values, depth)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The words of a command. Each word stays one, whatever the values of its variables are.
pub fn words(command: &str, values: &Values) -> Result<Vec<String>, Error> {
    command.split_whitespace().map(|word| fill(word, values)).collect()
}

/// The words of a command for people: one with a blank has quotes.
pub fn shown(words: &[String]) -> String {
    let quoted = |word: &String| {
        let is_plain = !word.is_empty() && !word.contains(char::is_whitespace);
        if is_plain { word.clone() } else { format!("'{word}'") }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Adds the values of a table of a file.
pub fn add(values: &mut Values, more: &BTreeMap<String, Scalar>) {
    values.extend(more.iter().map(|(name, value)| (name.clone(), value.to_string())));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn variables_get_their_values() {
        let values = values(&[("host", "a b"), ("n", "10")]);
        assert_eq!(fill("${host}:${n} $host {} $", &values).as_deref(), Ok("a b:10 $host {} $"));
        assert_eq!(words("run  ${host} -n${n}", &values).unwrap(), ["run", "a b", "-n10"]);
    }

    #[test]
    fn unknown_open_and_endless_variables_are_errors() {
        assert_eq!(fill("${n}", &Values::new()), Err(Error::Unknown("n".to_owned())));
        assert_eq!(fill("${n", &Values::new()), Err(Error::Open("n".to_owned())));
        assert_eq!(fill("${n}", &values(&[("n", "1${n}")])), Err(Error::Endless("n".to_owned())));
    }

    #[test]
    fn a_value_can_contain_a_variable_that_is_set_later() {
        let mut values = values(&[("line", "r=${rate}"), ("rate", "5")]);
        add(&mut values, &[("rate".to_owned(), Scalar::Integer(6))].into());
        assert_eq!(fill("${line}", &values).as_deref(), Ok("r=6"));
    }

    #[test]
    fn a_word_with_a_blank_is_shown_with_quotes() {
        let words = ["sh", "-c", "a b", ""].map(str::to_owned);
        assert_eq!(shown(&words), "sh -c 'a b' ''");
    }
}
