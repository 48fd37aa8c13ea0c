//! How HTTP is spoken.

use clap::Args;
use watari_bench_engine::plan;

/// HTTP connections
#[derive(Args)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct Protocol {
    #[command(flatten)]
    version: Version,
    /// With --http2: concurrent requests on each connection; if the server allows fewer, the others wait, and their
    /// times include it
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", value_parser = clap::value_parser!(u16).range(1..=1000))]
    streams: u16,
    /// Requests on one connection. After the last, the client reads until the server closes the connection (with
    /// --http2, the client closes it) [default: as many as the server allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests_per_connection: Option<u64>,
    /// Requests to send before the response to the first of them (HTTP/1.1)
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

/// The version of HTTP
#[derive(Args)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct Version {
    /// Use HTTP/2: by ALPN with https servers, and without negotiation (prior knowledge) with http servers
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
