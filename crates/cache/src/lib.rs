//! The rules of a shared HTTP cache (RFC 9111): which responses it stores, when it may use them again, and what a
//! client then gets.
//!
//! ```text
//!  request --> Key::of ----> the store ----> Entry
//!                                              |-- Varies: Key::variant, and once more
//!                                              |-- Response: reuse() --> Fresh, StaleWhileRevalidate: answer()
//!                                              |                         Validate: validation_request(), and then
//!                                              |                             304: updated() --> answer()
//!                                              |                             failed: may_answer_stale() --> answer()
//!                                              '-- none
//!                                                    |
//!  response of the origin <-- fill_request() <-------'
//!     |-- judge() --> NotStored: it passes by, with the reason
//!     '-- Entry::Response with stored_fields(), and the pieces of its content
//! ```
//!
//! The crate has no I/O and reads no clock: heads and times are arguments. A driver (crate `proxy`) has the store, the
//! origins and the clients.
//!
//! **Invariants**
//!
//! * A response that is private, or that sets a cookie, is never stored, whatever the settings are. An origin can
//!   except the field from that (`no-cache="set-cookie"`), which is then not stored, or address this cache with
//!   `CDN-Cache-Control: max-age=60`, which replaces `Cache-Control: private`.
//! * Pieces of content with different object ids are never joined. An object id stands for one response, or for parts
//!   with equal strong validators.

mod answer;
mod directives;
mod entry;
mod fields;
mod groups;
mod invalidation;
mod key;
mod lists;
mod purges;
mod reuse;
mod rules;
mod status;
mod storing;
mod structured;
#[cfg(test)]
mod testing;
mod validation;
mod vary;

pub use answer::{Answer, CACHE_NAME, CACHE_STATUS, Selected, answer};
pub use directives::{RequestDirectives, ResponseDirectives};
pub use entry::{Content, DecodeError, Entry, ObjectId, PIECE_LEN, Shared, StoredResponse};
pub use fields::{stored_fields, strong_validator};
pub use groups::{groups, invalidated_groups};
pub use invalidation::invalidated;
pub use key::{Key, KeyRules, QueryRule};
pub use purges::{Purge, PurgeId, Purges};
pub use reuse::{Reuse, Terms, may_answer_stale, reuse, unix_ms};
pub use rules::{Lifetimes, Rules};
pub use status::{CacheStatus, Forwarded};
pub use storing::{NotStored, Received, judge};
pub use validation::{HeadUpdate, fill_request, updated, updated_by_head, validation_request};
pub use vary::{Vary, VaryError};
