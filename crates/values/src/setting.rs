//! The types of settings in configuration files. Each type has its range, its text form and its JSON schema.
//!
//! A struct of limits is the one place of its limits: the name of a field is the key, its documentation is that of the
//! key, and `Default` has the default. Its fields have plain types. [`As`] names the type that a field has in the file:
//!
//! ```text
//! #[serde(with = "As::<Span>")]
//! idle_timeout: Duration,
//! ```

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Error, Serialize, Serializer};

use crate::duration;

/// A field that is a `T` in the file. serde takes the functions of this type, schemars its schema.
pub struct As<T>(PhantomData<T>);

impl<T> As<T> {
    pub fn deserialize<'de, V, D>(deserializer: D) -> Result<V, D::Error>
    where
        T: Deserialize<'de> + Into<V>,
        D: Deserializer<'de>,
    {
        T::deserialize(deserializer).map(Into::into)
    }

    /// Writes the value for the schema, which contains defaults.
    pub fn serialize<V, S>(value: &V, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: TryFrom<V, Error: Display> + Serialize,
        V: Clone,
        S: Serializer,
    {
        T::try_from(value.clone()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for As<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A time above zero: a number, possibly with a fraction, and a unit, as in `500ms`, `1.5s`, `5m`, `2h`, `7d`. The
/// shortest unit is `us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(rename = "duration", extend("pattern" = r"^([0-9]+\.?[0-9]*|\.[0-9]+)(us|ms|s|m|h|d)$"))]
pub struct Span(Duration);

impl Span {
    pub fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match duration::parse(text) {
            Ok(Duration::ZERO) => Err(format!("\"{text}\" must be more than 0")),
            Ok(duration) => Ok(Self(duration)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<Duration> for Span {
    type Error = String;

    fn try_from(duration: Duration) -> Result<Self, String> {
        if duration.is_zero() { Err("a duration must be more than 0".to_owned()) } else { Ok(Self(duration)) }
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        duration::text(span.0)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct Within<const MIN: usize, const MAX: usize>(usize);

impl<const MIN: usize, const MAX: usize> TryFrom<usize> for Within<MIN, MAX> {
    type Error = String;

    fn try_from(number: usize) -> Result<Self, String> {
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} is not from {MIN} to {MAX}"))
        }
    }
}

impl<const MIN: usize, const MAX: usize> From<Within<MIN, MAX>> for usize {
    fn from(number: Within<MIN, MAX>) -> Self {
        number.0
    }
}

impl<const MIN: usize, const MAX: usize> JsonSchema for Within<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("from {MIN} to {MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use schemars::schema_for;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Limits {
        /// How long.
        #[serde(with = "As::<Span>")]
        timeout: Duration,
        #[serde(with = "As::<Within<1, 9>>")]
        count: usize,
        #[serde(skip)]
        internal: usize,
    }

    impl Default for Limits {
        fn default() -> Self {
            Self { timeout: Duration::from_secs(90), count: 5, internal: 7 }
        }
    }

    #[test]
    fn durations_are_above_zero() {
        let cases = [("1ms", 1), ("10s", 10_000), ("1.5s", 1500), ("2h", 7_200_000), ("7d", 604_800_000)];
        for (text, ms) in cases {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))));
        }
        for text in ["", "10", "-1s", "0s", "0.0ms", "1w"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_that_is_not_set_keeps_its_default() {
        let limits: Limits = serde_json::from_value(json!({ "count": 9 })).unwrap();
        assert_eq!(limits, Limits { count: 9, ..Limits::default() });
        for (wrong, expected) in [
            (json!({ "count": 10 }), "10 is not from 1 to 9"),
            (json!({ "timeout": "0s" }), "\"0s\" must be more than 0"),
            (json!({ "internal": 1 }), "unknown field `internal`, expected `timeout` or `count`"),
        ] {
            assert_eq!(serde_json::from_value::<Limits>(wrong).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_schema_has_documentation_defaults_and_ranges() {
        let schema = schema_for!(Limits).to_value();
        let count = json!({ "type": "integer", "minimum": 1, "maximum": 9, "default": 5 });
        let timeout = json!({ "description": "How long.", "$ref": "#/$defs/duration", "default": "90s" });
        assert_eq!(schema["properties"], json!({ "timeout": timeout, "count": count }));
        assert_eq!(schema["$defs"]["duration"]["type"], "string");
    }
}
