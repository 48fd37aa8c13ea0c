//! Clients that come again: by OpenSSL, rustls, Go's crypto/tls and the JDK's JSSE.
//!
//! Each session begins with a full handshake. The client resumes it some times without a pause, each time with the
//! latest ticket. Clients report the handshakes as they saw them. The client with rustls runs in this process. Each of
//! the others is a program, built from the file beside this one at its first use.

mod programs;
pub(crate) mod rustls;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::harness::Cluster;

/// A client's TLS library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    OpenSsl,
    Rustls,
    Go,
    Jsse,
}

/// The means of resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TLS 1.2, session ids: the client takes no tickets.
    Ids,
    /// TLS 1.2, tickets.
    Tickets,
    /// TLS 1.3.
    Psk,
}

/// The number and kind of visits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visits {
    pub(crate) kind: Kind,
    pub(crate) sessions: u32,
    /// Of each session.
    pub(crate) resumptions: u32,
}

/// The counts of handshakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) full: u32,
    pub(crate) resumed: u32,
}

impl Engine {
    pub(crate) const ALL: [Self; 4] = [Self::OpenSsl, Self::Rustls, Self::Go, Self::Jsse];

    /// The kinds that it supports. Go's library resumes nothing without tickets.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Go => &[Kind::Tickets, Kind::Psk],
            Self::OpenSsl | Self::Rustls | Self::Jsse => &Kind::ALL,
        }
    }

    /// Makes `visits`, each to a service that has the file `1024.bin`.
    pub(crate) fn visit(self, service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
        match self {
            Self::Rustls => rustls::visit(service, visits),
            Self::OpenSsl => programs::openssl(service, ca, visits),
            Self::Go => programs::go(service, ca, visits),
            Self::Jsse => programs::jsse(service, ca, visits),
        }
    }

    /// `clients` clients at the same time share the sessions.
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

    /// The word for the programs' command lines.
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
