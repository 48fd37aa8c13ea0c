//! Clients that come again: by OpenSSL, rustls, Go's crypto/tls and the JDK's JSSE.
//!
//! Each session begins with a full handshake, and is resumed some times, with no pause between and with what the server gave last.
//! Clients say what their handshakes were as they themselves saw it. But for rustls', which is in this process, each is a
//! program of its own, built from its file beside this one when it is first needed.

mod programs;
pub(crate) mod rustls;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::harness::Cluster;

/// Whose TLS it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    OpenSsl,
    Rustls,
    Go,
    Jsse,
}

/// By what sessions are resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TLS 1.2, session ids: the client takes no tickets.
    Ids,
    /// TLS 1.2, tickets.
    Tickets,
    /// TLS 1.3.
    Psk,
}

/// How often to come, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visits {
    pub(crate) kind: Kind,
    pub(crate) sessions: u32,
    /// Of each session.
    pub(crate) resumptions: u32,
}

/// What handshakes were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) full: u32,
    pub(crate) resumed: u32,
}

impl Engine {
    pub(crate) const ALL: [Self; 4] = [Self::OpenSsl, Self::Rustls, Self::Go, Self::Jsse];

    /// What it can do. Go's resumes nothing without tickets.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Go => &[Kind::Tickets, Kind::Psk],
            Self::OpenSsl | Self::Rustls | Self::Jsse => &Kind::ALL,
        }
    }

    /// Goes through with `visits`, each to a service that has the file `1024.bin`.
    pub(crate) fn visit(self, service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
        match self {
            Self::Rustls => rustls::visit(service, visits),
            Self::OpenSsl => programs::openssl(service, ca, visits),
            Self::Go => programs::go(service, ca, visits),
            Self::Jsse => programs::jsse(service, ca, visits),
        }
    }

    /// So many clients at once share the sessions.
    pub(crate) fn visit_in_parallel(self, cluster: &Cluster, clients: u32, visits: Visits) -> Tally {
        let ca = cluster.site_ca();
        let visits = Visits { sessions: visits.sessions / clients, ..visits };
        std::thread::scope(|scope| {
            let visiting: Vec<_> =
                (0..clients).map(|_| scope.spawn(|| self.visit(cluster.service, &ca, visits))).collect();
            visiting.into_iter().map(|client| client.join().unwrap()).sum()
        })
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Ids, Self::Tickets, Self::Psk];

    /// As the programs are told.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::Tickets => "tickets",
            Self::Psk => "psk",
        }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |a, b| Self { full: a.full + b.full, resumed: a.resumed + b.resumed })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "full={} resumed={}", self.full, self.resumed)
    }
}
