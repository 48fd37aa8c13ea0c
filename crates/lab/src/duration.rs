//! Durations in files of experiments: `30ms`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// For `deserialize_with`.
pub(crate) fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    watari_values::duration::parse(&text).map_err(de::Error::custom)
}
