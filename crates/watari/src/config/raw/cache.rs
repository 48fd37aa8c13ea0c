//! `[agent.proxy.cache]`, and `cache` of `[[agent.proxy.route]]`

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use watari_values::setting::Span;

use crate::config::spanned::{Spanned, Texts};
use crate::config::value::FilePath;

/// Room for small responses of many pages.
pub(crate) const MEMORY_MIB: usize = 256;
/// The default size of the cache's directory.
pub(crate) const DISK_MIB: usize = 10 * 1024;
/// The longest content that is stored by default.
pub(crate) const OBJECT_MIB_MAX: usize = 1024;

/// The store of cached responses, for all routes with `cache`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCache {
    /// The most memory for stored responses, in MiB.
    #[schemars(extend("default" = MEMORY_MIB))]
    pub(crate) memory_mib: Option<NonZeroUsize>,
    /// The directory that stores responses besides memory. It has to belong to this node alone. Without it, responses are
    /// only in memory.
    pub(crate) directory: Option<Spanned<FilePath>>,
    /// The most responses in `directory`, in MiB.
    #[schemars(extend("default" = DISK_MIB))]
    pub(crate) directory_mib: Option<NonZeroUsize>,
}

/// `cache` of a route.
pub(crate) struct RawRouteCacheSetting(pub(crate) Option<RawRouteCache>);

/// The table `cache` of a route.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRouteCache {
    /// The query fields that select an entry. Without it, the whole query does.
    pub(crate) query: Option<Texts>,
    /// The query fields that do not select an entry, such as those of campaigns. It excludes `query`.
    pub(crate) query_except: Option<Texts>,
    /// The header fields of requests that select an entry, besides those in `Vary` of responses.
    #[serde(default)]
    pub(crate) headers: Vec<Spanned<String>>,
    /// The cookies that select an entry.
    #[serde(default)]
    pub(crate) cookies: Vec<Spanned<String>>,
    /// Requests with one of these cookies go to the origin, and their responses are not stored.
    #[serde(default)]
    pub(crate) bypass_cookies: Vec<Spanned<String>>,
    /// Requests with one of these header fields go to the origin, and their responses are not stored.
    #[serde(default)]
    pub(crate) bypass_headers: Vec<Spanned<String>>,
    /// How long responses are fresh, whatever the origin says. Private responses, and those with `no-store`, are not stored
    /// all the same. Without it, the origin decides.
    pub(crate) lifetime: Option<Span>,
    /// How long responses are fresh for which the origin says nothing. Without it, a tenth of the time since
    /// `Last-Modified`.
    pub(crate) lifetime_default: Option<Span>,
    /// How long responses with these statuses are fresh, for which the origin says nothing.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Span>")]
    pub(crate) lifetime_by_status: BTreeMap<Spanned<String>, Span>,
    /// How long a stale response may be used while it is validated, if the origin says nothing (RFC 5861).
    pub(crate) stale_while_revalidate: Option<Span>,
    /// How long a stale response may be used if the origin fails, if the origin says nothing (RFC 5861).
    pub(crate) stale_if_error: Option<Span>,
    /// The longest content that is stored, in MiB.
    #[schemars(extend("default" = OBJECT_MIB_MAX))]
    pub(crate) object_mib_max: Option<NonZeroUsize>,
    /// Whether a request for a range fetches the whole content, if nothing of it is stored.
    #[schemars(extend("default" = false))]
    pub(crate) whole_on_range: Option<bool>,
    /// Whether the agents share their stored responses: a request for which an agent has none goes to the agent that owns
    /// its key, before the origin.
    #[schemars(extend("default" = false))]
    pub(crate) shared: Option<bool>,
}

impl<'de> Deserialize<'de> for RawRouteCacheSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = RawRouteCacheSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or a table")
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<RawRouteCacheSetting, E> {
        Ok(RawRouteCacheSetting(is_on.then(RawRouteCache::default)))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RawRouteCacheSetting, M::Error> {
        RawRouteCache::deserialize(MapAccessDeserializer::new(map)).map(Some).map(RawRouteCacheSetting)
    }
}

impl JsonSchema for RawRouteCacheSetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "cache".into()
    }

    /// A table, or a boolean.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RawRouteCache::json_schema(generator);
        schema.insert("type".to_owned(), serde_json::json!(["boolean", "object"]));
        schema
    }
}
