//! The configuration file of a node.
//!
//! ```text
//! text --(raw)--> shapes and values --(tables)--> Config --(load)--> what its files hold
//! ```
//!
//! * `raw` is the file as TOML: tables, keys, and the types of values. It refuses unknown keys. `form` finds all
//!   mistakes of this kind, and `words` describes them without names of Rust types.
//! * `tables`, `members`, `tls`, `sessions`, `takeover`, `multipath` and `proxy` refuse values that are well-formed but not valid,
//!   and `check` collects their mistakes. They open no file.
//! * `model` is the result, except `proxy`. `file` reads the files that it names, and describes mistakes with their
//!   lines.
//! * `schema` describes what `raw` accepts as a JSON schema, with the documentation of keys.
//! * `load` reads the files that the configuration names, and refuses content that is not usable.
//!
//! Each refusal is one sentence with file and line. All mistakes of form, values and files are reported at once, except
//! those that may be consequences of others:
//!
//! * `form` mends the document, so that `check` can go on. `mended` has the parts in which values may look wrong only
//!   because of that.
//! * `check` notes all mistakes of values, and registers the checks of files that sound values name.
//! * If there is any mistake, `Config::read` makes these checks. Otherwise `load` reads the same files.

mod check;
mod file;
mod form;
mod load;
mod members;
mod mended;
mod model;
mod multipath;
mod outline;
mod proxy;
mod raw;
mod restart;
mod schema;
mod sessions;
mod spanned;
mod stamps;
mod tables;
mod takeover;
mod tls;
mod value;
mod words;

pub(crate) use file::ConfigError;
pub(crate) use load::{CertificateFile, CertificateUse, Loaded, LoadedAgent, SiteMetrics};
pub(crate) use model::{Config, Dispatcher, Log};
pub(crate) use outline::Change;
pub(crate) use proxy::CacheStore;
pub(crate) use raw::{DEFAULT_ADMIN, LogFormat};
pub(crate) use schema::schema;

#[cfg(test)]
mod example;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
