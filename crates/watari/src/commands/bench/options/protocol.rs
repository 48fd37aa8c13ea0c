//! How HTTP is spoken.

use clap::Args;
use watari_bench::plan;

/// How HTTP is spoken
#[derive(Args)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct Protocol {
    #[command(flatten)]
    version: Version,
    /// With --http2: requests at once on each connection; where the server allows fewer, the others wait, and their wait counts
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", value_parser = clap::value_parser!(u16).range(1..=1000))]
    streams: u16,
    /// Requests on one connection; after the last, what the server sends is read until it closes (with --http2, it is closed from here).
    /// As many as it allows, if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests_per_connection: Option<u64>,
    /// Requests that are sent before the first of them is answered (HTTP/1.1)
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "http2", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pipeline: u16,
}

impl Protocol {
    pub(crate) fn plan(&self) -> plan::Protocol {
        let requests_per_connection = self.requests_per_connection;
        if self.version.http2 {
            plan::Protocol::Http2 { streams: usize::from(self.streams), requests_per_connection }
        } else {
            plan::Protocol::Http1 { requests_per_connection, pipeline: usize::from(self.pipeline) }
        }
    }
}

/// Which HTTP is spoken
#[derive(Args)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct Version {
    /// Speak HTTP/2: to https servers that agree to it by ALPN, and to http servers without negotiation (prior
    /// knowledge)
    #[arg(long)]
    http2: bool,
}

impl Version {
    /// For connections that carry one request each.
    pub(crate) fn of_one_request(&self) -> plan::Protocol {
        let requests_per_connection = Some(1);
        if self.http2 {
            plan::Protocol::Http2 { streams: 1, requests_per_connection }
        } else {
            plan::Protocol::Http1 { requests_per_connection, pipeline: 1 }
        }
    }
}
