//! An exact amount of work, and the check that all of it was done.

use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::ServerName;
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::list::AccessList;
use watari_bench_engine::plan::Pace;
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::sample::{Family, HandshakeKind};
use watari_bench_engine::site;
use watari_bench_engine::tally::{Connections, Endings, Part};
use watari_bench_engine::tls::Resume;

use crate::failure::{Failure, planning, tls};
use crate::site::{Item, Key, SMALL};

/// Requests for one file.
pub(crate) struct Work {
    key: Key,
    item: Item,
    pub(super) requests: u64,
    /// Requests on one connection, after which the server closes it. `None`: no limit.
    pub(super) requests_per_connection: Option<u64>,
    pub(super) pace: Pace,
}

impl Work {
    /// `requests` requests for `item`, over `connections` keep-alive connections.
    pub(crate) fn of_regulars(item: Item, connections: usize, requests: u64) -> Self {
        let pace = Pace::Closed { connections };
        Self { key: Key::P256, item, requests, requests_per_connection: None, pace }
    }

    /// `visits` requests for the small file, each on its own connection.
    pub(crate) fn of_visitors(key: Key, pace: Pace, visits: u64) -> Self {
        Self { key, item: SMALL, requests: visits, requests_per_connection: Some(1), pace }
    }

    /// The server name of the requests selects the server's key.
    pub(super) fn requests_to(&self, service: SocketAddr) -> Result<Requests, Failure> {
        let host = self.key.host();
        let target = site::Site {
            tls: true,
            authority: host.to_owned(),
            server_name: ServerName::try_from(host).map_err(tls("naming a server"))?,
            ipv4: Some(service),
            ipv6: None,
            preferred: Family::Ipv4,
        };
        let list = AccessList::parse("work", &self.line(), |_| unreachable!("the line names no file"));
        Requests::prepare(&list.map_err(planning)?, &Sites { plain: None, tls: Some(Arc::new(target)) })
            .map_err(planning)
    }

    fn line(&self) -> String {
        let Item { path, len } = self.item;
        // Digests of large files would take CPU time from the servers.
        let content = if len > DIGESTED_LEN_MAX { String::new() } else { format!(" sha256={}", sha256(self.item)) };
        format!("- {path} 1 status=200{content}")
    }

    /// Checks that all responses are as expected, that there are no more connections than expected, and that all
    /// handshakes are full. If clients resume, only the first handshake of each client may be full.
    pub(super) fn check(&self, done: &Part, resume: Resume) -> Result<(), String> {
        let connections = &done.connections;
        let came = done.endings.of(EndingKind::Normal) == self.requests
            && done.body_bytes == self.requests * self.item.len
            && connections.endings.failed() == 0
            && self.is_resumed_enough(connections, resume)
            && connections.opened <= self.connections_max();
        if came { Ok(()) } else { Err(self.describe(done)) }
    }

    fn is_resumed_enough(&self, connections: &Connections, resume: Resume) -> bool {
        let full = connections.handshakes(HandshakeKind::Full);
        match (resume, &self.pace) {
            (Resume::Full, _) => full == connections.opened,
            (_, Pace::Closed { connections: clients }) => full <= *clients as u64,
            _ => unreachable!("nobody else comes back"),
        }
    }

    fn connections_max(&self) -> u64 {
        match self.pace {
            Pace::Closed { connections } if self.requests_per_connection.is_none() => connections as u64,
            _ => self.requests,
        }
    }

    fn describe(&self, done: &Part) -> String {
        let connections = &done.connections;
        format!(
            "{} of {} bytes; {} requests: {}; at most {} connections: {}; full handshakes: {}",
            done.body_bytes,
            self.requests * self.item.len,
            self.requests,
            listed(&done.endings),
            self.connections_max(),
            listed(&connections.endings),
            connections.handshakes(HandshakeKind::Full)
        )
    }
}

fn listed(endings: &Endings) -> String {
    endings.iter().map(|(ending, count)| format!("{count} {ending}")).collect::<Vec<_>>().join(", ")
}

/// In hexadecimal.
fn sha256(item: Item) -> String {
    digest(&SHA256, &item.content()).as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Clients do not check the content of larger files. In bytes.
const DIGESTED_LEN_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use watari_bench_engine::ending::{Ending, Phase, Side};
    use watari_bench_engine::sample::TlsSeen;

    use super::*;
    use crate::site::LARGE;

    #[test]
    fn only_all_of_the_work_will_do() {
        let regulars = Work::of_regulars(SMALL, 2, 3);
        assert_eq!(regulars.check(&done(&[(EndingKind::Normal, 3)], 3 * SMALL.len, 2), Resume::Full), Ok(()));
        assert_eq!(regulars.check(&done(&[(EndingKind::Normal, 3)], 3 * SMALL.len, 1), Resume::Full), Ok(()));
        assert!(regulars.check(&done(&[(EndingKind::Normal, 3)], 3 * SMALL.len, 3), Resume::Full).is_err());
        assert!(regulars.check(&done(&[(EndingKind::Normal, 3)], 3 * SMALL.len - 1, 2), Resume::Full).is_err());
        assert!(regulars.check(&done(&[(EndingKind::Normal, 2)], 2 * SMALL.len, 2), Resume::Full).is_err());
        let mismatch = [(EndingKind::Normal, 2), (EndingKind::Mismatch, 1)];
        let wrong = regulars.check(&done(&mismatch, 3 * SMALL.len, 2), Resume::Full);
        assert!(wrong.is_err_and(|what| what.contains("1 MISMATCH (response, server)")));
    }

    #[test]
    fn visitors_have_a_connection_each() {
        let visitors = Work::of_visitors(Key::P256, Pace::Closed { connections: 2 }, 3);
        let mut done = done(&[(EndingKind::Normal, 3)], 3 * SMALL.len, 3);
        assert_eq!(visitors.check(&done, Resume::Full), Ok(()));
        done.connections.endings.add(Ending::new(EndingKind::Reset, Phase::Close, Side::Server));
        assert!(visitors.check(&done, Resume::Full).is_err());
    }

    #[test]
    fn handshakes_are_full() {
        let mut done = done(&[(EndingKind::Normal, 3)], 3 * SMALL.len, 2);
        done.connections.tls =
            [(Arc::new(seen(HandshakeKind::Full)), 1), (Arc::new(seen(HandshakeKind::Resumed)), 1)].into();
        assert!(Work::of_regulars(SMALL, 2, 3).check(&done, Resume::Full).is_err());
        let returning = |clients| Work::of_visitors(Key::P256, Pace::Closed { connections: clients }, 3);
        assert_eq!(returning(1).check(&done, Resume::Reuse), Ok(()));
        done.connections.tls = [(Arc::new(seen(HandshakeKind::Full)), 2)].into();
        assert!(returning(1).check(&done, Resume::Reuse).is_err());
    }

    #[test]
    fn what_is_small_is_checked_whole() {
        let line = |item| Work::of_regulars(item, 1, 1).line();
        assert_eq!(line(LARGE), "- /large.bin 1 status=200");
        assert!(line(SMALL).starts_with("- /small.bin 1 status=200 sha256="));
    }

    /// A result in which all handshakes are full.
    fn done(requests: &[(EndingKind, u64)], body_bytes: u64, connections: u64) -> Part {
        let mut endings = Endings::default();
        for (kind, count) in requests {
            endings.add_many(Ending::new(*kind, Phase::Response, Side::Server), *count);
        }
        let mut of_connections = Endings::default();
        of_connections.add_many(Ending::new(EndingKind::Normal, Phase::Close, Side::Client), connections);
        let connections = Connections {
            opened: connections,
            endings: of_connections,
            tls: [(Arc::new(seen(HandshakeKind::Full)), connections)].into(),
            ..Connections::default()
        };
        Part { requests: endings.total(), endings, body_bytes, connections, ..Part::default() }
    }

    fn seen(kind: HandshakeKind) -> TlsSeen {
        TlsSeen { kind, version: "TLSv1.3", suite: String::new(), group: None, key: None, alpn: None }
    }
}
