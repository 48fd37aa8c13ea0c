//! `[agent.proxy]`, `[[agent.proxy.route]]` and `[agent.proxy.limits]`

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_proxy::{ClientLimits, Compression, Redirect, Refusal};
use watari_values::duration;
use watari_values::setting::Span;

use super::cache::{RawCache, RawRouteCacheSetting};
use super::pool::RawPool;
use crate::config::spanned::{Spanned, Texts};
use crate::config::value::{FilePath, Network, Origin, Prefix};

/// The statuses of refusals.
pub(crate) const REFUSALS: [(u16, Refusal); 2] = [(403, Refusal::Forbidden), (404, Refusal::NotFound)];
/// The timeout for the authorization server, as long as for a connection to an origin.
pub(crate) const AUTH_TIMEOUT: Duration = Duration::from_secs(3);

/// Origins that the agent forwards requests to (`docs/proxy.md`).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawProxy {
    /// The origins of a single pool for all requests, instead of `[[agent.proxy.pool]]`.
    #[schemars(with = "Option<Vec<Origin>>")]
    pub(crate) origins: Option<Texts>,
    #[serde(default)]
    pub(crate) pool: Vec<Spanned<RawPool>>,
    #[serde(default)]
    pub(crate) route: Vec<Spanned<RawRoute>>,
    /// The access log, which gets a line when a response has ended. Without it, there is none.
    pub(crate) access_log: Option<RawAccessLog>,
    #[serde(default)]
    pub(crate) limits: RawClientLimits,
    /// The networks of proxies that may send the addresses of their clients in `Forwarded` and `X-Forwarded-For`.
    #[serde(default)]
    #[schemars(with = "Vec<Network>")]
    pub(crate) trusted_proxies: Vec<Spanned<String>>,
    /// The files with the pages that clients get after failures, by status (`503`) or class (`5xx`). Without a page, the
    /// client gets a line of text.
    #[serde(default)]
    pub(crate) error_pages: RawErrorPages,
    /// Whether the pages also replace the bodies of origins' error responses. It needs `error_pages`.
    #[schemars(extend("default" = false))]
    pub(crate) intercept_errors: Option<Spanned<bool>>,
    /// Compresses responses for clients that accept it, except responses that could continue from another origin. `{}`
    /// has the defaults. Without it, nothing is compressed. Do not use it for pages with a secret.
    pub(crate) compress: Option<RawCompression>,
    #[serde(default)]
    pub(crate) cache: RawCache,
}

/// A route. The most specific route that matches a request applies. It has exactly one of `pool`, `refuse` and
/// `redirect`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRoute {
    /// A host name, all names below one (`*.example.com`), or an address. Without it, the route is for all hosts.
    pub(crate) host: Option<Spanned<String>>,
    /// A path. The route is also for everything below it. Without it, the route is for all paths.
    pub(crate) path: Option<Spanned<String>>,
    /// The name of the pool that gets the requests.
    pub(crate) pool: Option<Spanned<String>>,
    /// The status with which the agent refuses the requests.
    #[schemars(extend("enum" = REFUSALS.map(|(status, _)| status)))]
    pub(crate) refuse: Option<Spanned<u16>>,
    /// The networks whose clients may make the requests. Others get 403. An empty list allows all.
    #[serde(default)]
    #[schemars(with = "Vec<Network>")]
    pub(crate) allow: Vec<Spanned<String>>,
    /// The networks whose clients get 403 although `allow` contains them.
    #[serde(default)]
    #[schemars(with = "Vec<Network>")]
    pub(crate) deny: Vec<Spanned<String>>,
    /// The server that decides whether a request may proceed. After 2xx, the request proceeds. 401, 403 and redirections
    /// go to the client. After other responses, the client gets 503.
    pub(crate) auth: Option<Spanned<RawAuth>>,
    /// Stores responses, and answers requests from them (`docs/cache.md`). `true` has the defaults of the table. It needs
    /// `pool`. Without it, nothing is stored.
    pub(crate) cache: Option<Spanned<RawRouteCacheSetting>>,
    /// Redirects the requests.
    pub(crate) redirect: Option<RawRedirect>,
    /// Changes the header fields of requests. In values, `%{client}`, `%{host}` and `%{path}` (with the query) stand for
    /// those of the request.
    #[serde(default)]
    pub(crate) request_headers: RawRequestRules,
    /// Changes the header fields of responses, with the same placeholders.
    #[serde(default)]
    pub(crate) response_headers: RawResponseRules,
}

/// Limits on the requests of each client. Without this table, there are none.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientLimits {
    /// The bits of an address that distinguish clients, here and in queues.
    #[schemars(extend("default" = ClientLimits::default().prefix))]
    pub(crate) client_prefix: Option<Prefix>,
    /// The request rate of a client. Beyond it, the client gets 429. Without it, there is no limit.
    pub(crate) rate: Option<RawRate>,
    /// The most requests of a client in progress. Beyond it, the client gets 429. Without it, there is no limit.
    pub(crate) requests_per_client_max: Option<NonZeroUsize>,
    /// The longest body of a request, in bytes. Beyond it, the client gets 413. Without it, there is no limit.
    pub(crate) body_bytes_max: Option<NonZeroU64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRate {
    /// Requests in `per`.
    pub(crate) requests: NonZeroU32,
    /// The time of the rate.
    pub(crate) per: Span,
    /// Requests that may come at once after a pause. The default is `requests`.
    pub(crate) burst: Option<NonZeroU32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAccessLog {
    /// The file. The agent opens it again at a reload and on SIGUSR1.
    pub(crate) file: Spanned<FilePath>,
    /// The format of lines.
    pub(crate) format: RawFormat,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    /// One JSON object per line.
    Json,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuth {
    /// `http://HOST[:PORT]/PATH` or `https://HOST[:PORT]/PATH`
    pub(crate) url: Spanned<String>,
    /// The fields of the server's response that the request gets.
    #[serde(default)]
    pub(crate) copy: Vec<Spanned<String>>,
    /// The timeout for the server's response.
    #[schemars(extend("default" = duration::text(AUTH_TIMEOUT)))]
    pub(crate) timeout: Option<Span>,
}

/// Statuses, and the file with their page.
pub(crate) type RawErrorPages = BTreeMap<Spanned<String>, Spanned<FilePath>>;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCompression {
    /// The media types, in lower case.
    #[schemars(extend("default" = Compression::default().types))]
    pub(crate) types: Option<Vec<String>>,
    /// The least length of a response, in bytes. A response without an announced length counts as long enough.
    #[schemars(extend("default" = Compression::default().length_min))]
    pub(crate) length_min_bytes: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRedirect {
    /// The URL, with the placeholders `%{host}` and `%{path}`.
    pub(crate) to: Spanned<String>,
    /// The status of the redirect.
    #[serde(default = "permanent")]
    #[schemars(extend("enum" = Redirect::STATUSES))]
    pub(crate) status: u16,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRequestRules {
    /// The host that origins get, with or without a port. Without it, that of the client's request.
    pub(crate) host: Option<Spanned<String>>,
    /// Fields to remove.
    #[serde(default)]
    pub(crate) remove: Vec<Spanned<String>>,
    /// Fields to set, with their values.
    #[serde(default)]
    pub(crate) set: RawFields,
    /// Fields to append, with their values.
    #[serde(default)]
    pub(crate) append: RawFields,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawResponseRules {
    /// Fields to remove.
    #[serde(default)]
    pub(crate) remove: Vec<Spanned<String>>,
    /// Fields to set, with their values.
    #[serde(default)]
    pub(crate) set: RawFields,
    /// Fields to append, with their values.
    #[serde(default)]
    pub(crate) append: RawFields,
}

/// Names of fields and their values.
pub(crate) type RawFields = BTreeMap<Spanned<String>, Spanned<String>>;

/// 308 keeps the method, and clients may remember it.
fn permanent() -> u16 {
    308
}
