//! `watari ctl cache`: the state of the response cache, and purges.

use std::str::FromStr;

use clap::{Args, Subcommand};
use url::Url;

use super::remote::{Done, Remote};
use crate::admin::{Purged, Topic};
use crate::failure::Failure;
use crate::table::Table;

#[derive(Subcommand)]
pub(super) enum Order {
    /// Show the state of an agent's response cache
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock --json cache status | jq .requests")]
    Status,
    /// Purge stored responses, at all agents
    ///
    /// A purge reaches all agents of the cluster. An agent that is away learns of it when it comes back, before it uses a
    /// stored response. Responses that are on their way from origins are purged, too.
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(Purge),
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct Purge {
    /// The URL, with all its variants
    url: Option<PurgeUrl>,
    /// All URLs that begin with this one
    #[arg(long, value_name = "URL")]
    prefix: Option<PurgeUrl>,
    /// All responses of a group (`Cache-Groups`, `Surrogate-Key`, `Cache-Tag`, `xkey`)
    #[arg(long)]
    group: Option<String>,
    /// All responses
    #[arg(long)]
    all: bool,
}

const PURGE_EXAMPLES: &str = "\
Examples:
  watari ctl --admin a1.sock cache purge https://www.example.com/logo.svg
  watari ctl --admin a1.sock cache purge --prefix https://www.example.com/blog/
  watari ctl --admin a1.sock cache purge --group products";

/// `host/path?query` of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PurgeUrl(String);

#[derive(Debug, thiserror::Error)]
enum InvalidPurgeUrl {
    #[error("a URL is https://HOST/PATH: {0}")]
    Malformed(#[from] url::ParseError),
    #[error("a URL begins with https:// or http://")]
    Scheme,
}

impl FromStr for PurgeUrl {
    type Err = InvalidPurgeUrl;

    /// Keeps the path as it is: entries have it as clients have sent it.
    fn from_str(text: &str) -> Result<Self, InvalidPurgeUrl> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or(InvalidPurgeUrl::Scheme)?;
        Url::parse(text)?;
        let (authority, target) = rest.find(['/', '?']).map_or((rest, ""), |end| rest.split_at(end));
        let authority = authority.to_ascii_lowercase();
        let authority = authority.strip_suffix(":443").unwrap_or(&authority);
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Self(format!("{authority}{slash}{target}")))
    }
}

impl Order {
    pub(super) async fn run(self, node: &Remote<'_>) -> Result<(), Failure> {
        match self {
            Self::Status => node.show(Topic::Cache).await,
            Self::Purge(purge) => {
                let (purge, what) = purge.purged();
                let done = Done::of("purge", [("what", what.clone())]).saying(format!("{what}: purged"));
                node.order(Topic::Purge { purge }, done).await
            }
        }
    }
}

impl Purge {
    /// The purge, and its text.
    fn purged(self) -> (Purged, String) {
        match self {
            Self { url: Some(PurgeUrl(url)), .. } => (Purged::Url(url.clone()), url),
            Self { prefix: Some(PurgeUrl(prefix)), .. } => (Purged::Prefix(prefix.clone()), format!("{prefix}*")),
            Self { group: Some(group), .. } => (Purged::Group(group.clone()), format!("group {group}")),
            Self { .. } => (Purged::Everything, "all responses".to_owned()),
        }
    }
}

/// The state of a cache as text.
pub(super) fn text(cache: &crate::admin::Cache) -> String {
    let mut table = Table::new(&["key", "value"]);
    let mut row = |key: &str, value: String| table.row([key.to_owned(), value]);
    row("open", super::cells::yes_or_no(cache.is_open).to_owned());
    row("entries in memory", cache.entries_in_memory.to_string());
    row("bytes in memory", cache.bytes_in_memory.to_string());
    row("bytes on disk", super::cells::or_dash(cache.bytes_on_disk));
    row("filling", cache.filling.to_string());
    row("asking", cache.asking.to_string());
    row("purges", cache.purges.to_string());
    for (result, count) in &cache.requests {
        row(&format!("requests: {result}"), count.to_string());
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn urls_of_purges_are_as_entries_have_them() {
        for (url, expected) in [
            ("https://Example.com/a%2Fb;x?q=1", "example.com/a%2Fb;x?q=1"),
            ("https://example.com", "example.com/"),
            ("http://example.com?a", "example.com/?a"),
            ("https://example.com:443/", "example.com/"),
            ("https://example.com:8443/A", "example.com:8443/A"),
            ("https://[2001:db8::1]/", "[2001:db8::1]/"),
        ] {
            assert_eq!(url.parse::<PurgeUrl>().unwrap().0, expected);
        }
        for url in ["example.com/a", "ftp://example.com/", "https://", "/a", ""] {
            assert!(url.parse::<PurgeUrl>().is_err(), "{url}");
        }
    }
}
