//! Forwards HTTP requests to origins.
//!
//! [`Proxy::respond`] sends one request to an origin, and returns the response. The host and path of the request select
//! the pool. Connections to origins use HTTP/1.1 or HTTP/2, with or without TLS, and are reused. Bodies stream in both
//! directions at the speed of the slower side, and are not stored.
//!
//! * A request goes to another origin if no origin has seen it: no connection could be made, or an idle one was closed
//!   before a byte was written. A request that may have reached an origin is repeated only if it has no body and is
//!   safe to repeat (RFC 9110, section 9.2.2). [`Balance`] limits the retries and selects the next origin.
//! * If an origin cuts a response short, or stops sending, the response to the client ends with an error. It never
//!   appears complete.
//! * Fields that only a proxy may set (`Forwarded`, `Client-Cert`, ..) are replaced by the true values. Trusted proxies
//!   may set fields about their clients.
//! * Responses are changed in this order: remove the origin's `Alt-Svc`, insert error pages, apply the route's rules,
//!   compress.
//! * The proxy requests an upgrade from the origin if the client does, over HTTP/1.1 or by the extended `CONNECT` of
//!   HTTP/2. If the origin accepts, a [`Tunnel`] comes with the response. The caller joins it to the client's
//!   connection.
//! * If a client sends `Expect: 100-continue`, it gets 100 (Continue) when its origin is ready to take the body. An
//!   origin can refuse before that.
//!
//! * Other informational responses (103) go to the request's [`watari_body::OnInformational`], if it has one.
//!
//! Not forwarded: `CONNECT` and `TRACE`.
//!
//! # Layout
//!
//! A folder imports only from folders below it in this list, and no two files import from each other:
//!
//! ```text
//!  proxy, config, operate   the steps of a request; settings; status and orders of operators
//!  respond                  responses to failed requests, error pages, compression
//!  cache                    responses from the store, and responses of origins into the store
//!  transfer                 a running response continues at another origin
//!  pool                     the origins of a pool, their health, the choice among them, the exchange with one
//!  route                    which pool gets a request, and how its head changes
//!  admit                    whether a request may proceed, and when; what it holds until it has ended
//!  transport                connections to origins, the form of requests and their bodies, upgrades, tunnels
//!  observe                  metrics, access log, the state of pools, progress of bodies
//!  exchange                 client, address of an origin, fields, limits, failures
//! ```

mod admit;
mod cache;
mod config;
mod exchange;
mod observe;
mod operate;
mod pool;
mod proxy;
mod respond;
mod route;
mod transfer;
mod transport;

pub use watari_admission::{InvalidPattern, Limits as QueueLimits, Pattern, QueueSettings, RateLimit, Rule};
pub use watari_cache::{KeyRules, Lifetimes, Purge, QueryRule, Rules as CacheRules};
pub use watari_handover::governor::{Damping, Metric, Settings as Governor, Slow, Unequal};
pub use watari_handover::{Equality, TransferConditions};

pub use crate::admit::access::Access;
pub use crate::admit::auth::{AuthConfig, AuthUrl, InvalidAuthUrl};
pub use crate::admit::clients::ClientLimits;
pub use crate::cache::handle::{CacheClosed, CacheHandle, KnownPurges, LoadedCache};
pub use crate::cache::owners::{AgentStream, NextOwners, Owners, refusal as refusal_of_owner};
pub use crate::cache::response_cache::{CacheState, ResponseCache};
pub use crate::config::Config;
pub use crate::exchange::address::{InvalidOrigin, OriginAddress};
pub use crate::exchange::client::Client;
pub use crate::exchange::failure::Refusal;
pub use crate::exchange::limits::Limits;
pub use crate::observe::access_log::{AccessLog, ReopenError};
pub use crate::observe::log_line::LogFormat;
pub use crate::observe::metrics::Metrics;
pub use crate::observe::status::{OriginStatus, PoolStatus, QueueStatus, ResourceStatus, TransferStatus};
pub use crate::operate::Impossible;
pub use crate::pool::check::{Check, HttpCheck};
pub use crate::pool::origin::OriginConfig;
pub use crate::pool::resolve::{Resolution, Resolver, Resolving};
pub use crate::pool::{Handover, PoolConfig};
pub use crate::proxy::Proxy;
pub use crate::respond::compress::Compression;
pub use crate::respond::error_pages::{ErrorPage, ErrorPages, InvalidStatuses, Statuses};
pub use crate::route::cache::RouteCache;
pub use crate::route::policy::{Balance, HashKey, InvalidHashKey, RetryOn};
pub use crate::route::redirect::{InvalidRedirect, Redirect};
pub use crate::route::routes::{Destination, HostPattern, InvalidHost, InvalidPath, PathPrefix, Route};
pub use crate::route::rules::{HeaderRules, InvalidRule, Rules};
pub use crate::route::sticky::{InvalidSticky, Sticky};
pub use crate::route::template::{InvalidTemplate, Template};
pub use crate::transport::connect::{HttpVersion, InvalidTransport, Transport};
pub use crate::transport::tls::OriginTls;
pub use crate::transport::tunnel::{Tunnel, TunnelBroken, TunnelRelay};
