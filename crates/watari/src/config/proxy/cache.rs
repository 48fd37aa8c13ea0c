//! The response cache: its store, and the rules of routes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use watari_proxy::{CacheRules, KeyRules, Lifetimes, QueryRule, RouteCache};
use watari_values::setting::Span;

use crate::config::check::{Check, each};
use crate::config::raw::{DISK_MIB, MEMORY_MIB, OBJECT_MIB_MAX, RawCache, RawRouteCache};
use crate::config::spanned::{Spanned, Texts};

/// `[agent.proxy.cache]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheStore {
    pub(crate) memory_bytes_max: usize,
    /// `None`: responses are only in memory.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) directory_bytes_max: u64,
}

impl Check<'_> {
    pub(super) fn cache_store(&self, raw: &RawCache) -> CacheStore {
        CacheStore {
            memory_bytes_max: raw.memory_mib.map_or(MEMORY_MIB, usize::from) << 20,
            directory: raw.directory.as_ref().map(|directory| self.path(directory).value),
            directory_bytes_max: (raw.directory_mib.map_or(DISK_MIB, usize::from) as u64) << 20,
        }
    }

    /// The cache of a route. `policy` separates its entries from those of other routes. `by_server`: its origins get
    /// the service address.
    pub(super) fn route_cache(&self, raw: &RawRouteCache, policy: String, by_server: bool) -> Option<Arc<RouteCache>> {
        let query = match (&raw.query, &raw.query_except) {
            (None, None) => Some(QueryRule::Whole),
            (Some(only), None) => Some(QueryRule::Only(texts(only))),
            (None, Some(except)) => Some(QueryRule::Except(texts(except))),
            (Some(_), Some(except)) => self.wrong(except, "set query or query_except, not both"),
        };
        let headers = each(raw.headers.iter().map(|name| self.parsed::<HeaderName>(name)));
        let bypass_headers = each(raw.bypass_headers.iter().map(|name| self.parsed::<HeaderName>(name)));
        let by_status = each(raw.lifetime_by_status.iter().map(|(status, lifetime)| {
            let parsed = self.parsed::<u16>(status)?;
            match parsed {
                200..=599 => Some((parsed, lifetime.get())),
                _ => self.wrong(status, "a status is a number from 200 to 599"),
            }
        }));
        let lifetimes = Lifetimes {
            default: span(raw.lifetime_default),
            fixed: span(raw.lifetime),
            by_status: BTreeMap::from_iter(by_status?),
            stale_while_revalidate: span(raw.stale_while_revalidate),
            stale_if_error: span(raw.stale_if_error),
        };
        let names = |texts: &[Spanned<String>]| texts.iter().map(|text| text.get_ref().clone()).collect::<Vec<_>>();
        let key = KeyRules { query: query?, headers: headers?, cookies: names(&raw.cookies) };
        let object_bytes_max = (raw.object_mib_max.map_or(OBJECT_MIB_MAX, usize::from) as u64) << 20;
        let whole_on_range = raw.whole_on_range.unwrap_or(false);
        Some(Arc::new(RouteCache {
            rules: CacheRules { key, lifetimes, object_bytes_max, whole_on_range },
            policy: policy.into_bytes(),
            by_server,
            bypass_cookies: names(&raw.bypass_cookies),
            bypass_headers: bypass_headers?,
            is_shared: raw.shared.unwrap_or(false),
        }))
    }
}

fn span(raw: Option<Span>) -> Option<Duration> {
    raw.map(Span::get)
}

fn texts(raw: &Texts) -> Vec<String> {
    raw.get_ref().iter().map(|text| text.get_ref().clone()).collect()
}
