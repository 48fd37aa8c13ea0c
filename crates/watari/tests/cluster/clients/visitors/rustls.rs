//! The client with rustls.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::client::Tls12Resumption;
use rustls::{ClientConfig, HandshakeKind};

use super::{Kind, Tally, Visits};
use crate::clients::http::{Fault, Http, fault};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, dial};
use crate::harness::site::SITE;

/// The length of the site's file. The seed of its pattern is its length.
pub(crate) const FILE_LEN: u64 = 1024;

/// A client of one site, which resumes its sessions. Its store returns the latest ticket first.
pub(crate) struct Visitor(Arc<ClientConfig>);

impl Visitor {
    /// A client without sessions.
    pub(crate) fn new(kind: Kind) -> Self {
        let version = if kind == Kind::Psk { &TLS13 } else { &TLS12 };
        let mut config = Arc::unwrap_or_clone(Taste { version, ..Taste::default() }.resuming_config());
        if kind == Kind::Ids {
            config.resumption = config.resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
        }
        Self(Arc::new(config))
    }

    /// Connects from `source`, and gets the file. Returns whether the handshake resumed a session.
    pub(crate) fn visit(&self, source: IpAddr, service: SocketAddr) -> Result<bool, Fault> {
        let tcp = dial(source, service).map_err(fault)?;
        let tls = Tls::connect(tcp, self.0.clone(), SITE, |_| {}).map_err(fault)?;
        let mut http = Http::new(tls);
        http.send(format!("GET /{FILE_LEN}.bin HTTP/1.1\r\nhost: {SITE}\r\nconnection: close\r\n\r\n").as_bytes())?;
        http.take_download(FILE_LEN, FILE_LEN)?;
        Ok(http.stream.session().handshake_kind() == Some(HandshakeKind::Resumed))
    }
}

pub(super) fn visit(service: SocketAddr, visits: Visits) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..visits.sessions {
        let visitor = Visitor::new(visits.kind);
        for _ in 0..=visits.resumptions {
            if visitor.visit([127, 0, 0, 1].into(), service).unwrap() {
                tally.resumed += 1;
            } else {
                tally.full += 1;
            }
        }
    }
    tally
}
