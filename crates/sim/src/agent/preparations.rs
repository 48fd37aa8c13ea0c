//! Rests of responses that this agent has prepared for other agents. Mirrors `connection/preparations.rs` of
//! `crates/agent`.

use std::time::Duration;

use http::header::RANGE;
use watari_connection::leaving::PreparedRest;
use watari_connection::{CannotResume, Resume};
use watari_values::ConnectionId;

use super::Site;
use crate::file::{FileBody, Files};
use crate::message::Message;
use crate::network::NodeId;
use crate::sabotage::Sabotage;

/// How long a preparation waits for its connection.
const LIFETIME: Duration = Duration::from_secs(10);

pub(super) struct Preparations {
    site: Site,
    entries: Vec<Entry>,
}

struct Entry {
    from: NodeId,
    connection: ConnectionId,
    number: u32,
    rest: Rest,
    expires: Duration,
}

/// The rest of a response that this agent can continue.
pub(super) enum Rest {
    /// Its bytes come with the connection.
    Shipped,
    Part(Resume, FileBody),
}

impl Preparations {
    pub(super) fn new(site: Site) -> Self {
        Self { site, entries: Vec::new() }
    }

    /// Answers another agent. The preparation replaces an earlier one of the connection.
    pub(super) fn on_prepare(&mut self, from: NodeId, connection: ConnectionId, number: u32, rest: &PreparedRest) {
        if !self.takes_old() {
            self.entries.retain(|entry| entry.connection != connection);
        }
        let rest = match rest {
            PreparedRest::Bytes => Ok(Rest::Shipped),
            PreparedRest::Part(resume) => self.provide(resume),
            // The files of the simulation are no streams of events.
            PreparedRest::Anchored => Err(CannotResume::Part),
        };
        let is_refused = rest.is_err();
        let expires = self.site.network.now() + LIFETIME;
        self.entries.extend(rest.map(|rest| Entry { from, connection, number, rest, expires }));
        self.site.send(from, &Message::Prepared { connection, number, is_refused });
    }

    /// Takes the preparation for a shipped connection.
    pub(super) fn take(&mut self, from: NodeId, connection: ConnectionId, number: u32) -> Option<Rest> {
        let at = self.entries.iter().position(|entry| {
            entry.connection == connection && (self.takes_old() || entry.from == from && entry.number == number)
        })?;
        Some(self.entries.swap_remove(at).rest)
    }

    fn takes_old(&self) -> bool {
        self.site.sabotage == Some(Sabotage::OldPreparationTaken)
    }

    pub(super) fn expire(&mut self) {
        let now = self.site.network.now();
        self.entries.retain(|entry| entry.expires > now);
    }

    /// The part, from this agent's copy of the file.
    fn provide(&self, resume: &Resume) -> Result<Rest, CannotResume> {
        let request = resume.request()?;
        let files = Files { network: self.site.network.clone(), node: self.site.node };
        let response = files.respond(request.uri().path(), request.headers().get(RANGE));
        Ok(Rest::Part(resume.clone(), resume.accept(response)?))
    }
}
