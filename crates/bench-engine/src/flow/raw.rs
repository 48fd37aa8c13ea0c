//! A flow file as TOML: its tables, keys and types.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use crate::duration::Span;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFlow {
    #[serde(default = "yes")]
    pub(super) cookies: bool,
    #[serde(default)]
    pub(super) values: BTreeMap<Spanned<String>, Spanned<String>>,
    pub(super) step: Spanned<Vec<Spanned<RawStep>>>,
}

/// `[[step]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) name: Spanned<String>,
    pub(super) method: Option<Spanned<String>>,
    pub(super) uri: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<Spanned<String>, Spanned<String>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) body_file: Option<Spanned<PathBuf>>,
    pub(super) expect: Option<Spanned<RawExpect>>,
    #[serde(default)]
    pub(super) take: BTreeMap<Spanned<String>, Spanned<RawTake>>,
    pub(super) think: Option<Spanned<RawThink>>,
    pub(super) repeat: Option<Spanned<NonZeroU32>>,
    pub(super) probability: Option<Spanned<f64>>,
}

/// `{ header = ".." }` and the like: one of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTake {
    pub(super) header: Option<String>,
    pub(super) cookie: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) json: Option<String>,
}

/// `200`, or `[200, 302]`
pub(super) struct RawExpect(pub(super) Vec<u16>);

/// `"5s"`, or a table with one key.
pub(super) enum RawThink {
    Fixed(Span),
    Drawn(RawDraw),
}

/// `{ uniform = ["1s", "3s"] }` and the like: one of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDraw {
    pub(super) uniform: Option<[Span; 2]>,
    pub(super) shares: Option<Vec<Span>>,
    pub(super) exponential: Option<Span>,
}

/// Parses `text`. An error is a line number and a sentence.
pub(super) fn parse(text: &str) -> Result<RawFlow, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (line_of(text, at), error.message().lines().collect::<Vec<_>>().join(": "))
    })
}

/// The number of the line, from 1, that contains the byte at `offset`.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

// Written by hand, because serde's untagged enums report only that no variant matched, and not why.

impl<'de> Deserialize<'de> for RawExpect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExpectVisitor)
    }
}

struct ExpectVisitor;

impl<'de> Visitor<'de> for ExpectVisitor {
    type Value = RawExpect;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a status such as 200, or a list of them")
    }

    fn visit_i64<E: serde::de::Error>(self, status: i64) -> Result<RawExpect, E> {
        // A number that does not fit becomes 0, which is not a status. The check of statuses reports it.
        Ok(RawExpect(vec![u16::try_from(status).unwrap_or(0)]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<RawExpect, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(seq)).map(RawExpect)
    }
}

impl<'de> Deserialize<'de> for RawThink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ThinkVisitor)
    }
}

struct ThinkVisitor;

impl<'de> Visitor<'de> for ThinkVisitor {
    type Value = RawThink;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a time such as \"5s\", or a table with \"uniform\", \"shares\" or \"exponential\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawThink, E> {
        text.parse().map(RawThink::Fixed).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawThink, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(RawThink::Drawn)
    }
}

fn yes() -> bool {
    true
}
