//! Rests of responses that this agent has prepared for other agents. Mirrors `connection/preparations.rs` of
//! `crates/agent`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{IF_RANGE, RANGE};
use http::{Response, StatusCode};
use http_body::Body as _;
use watari_connection::leaving::PreparedRest;
use watari_connection::{CannotResume, Resume};
use watari_values::ConnectionId;

use super::Site;
use super::site::SiteBody;
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
    rest: Preparing,
    expires: Duration,
}

enum Preparing {
    /// The site has not answered.
    Asked(Resume, Pin<Box<dyn Future<Output = Response<SiteBody>>>>),
    Ready(Rest),
    Refused,
}

/// The rest of a response that this agent can continue.
pub(super) enum Rest {
    /// Its bytes come with the connection.
    Shipped,
    Part(Resume, SiteBody),
    /// Its bytes come from this anchor.
    Anchored(NodeId),
}

impl Preparations {
    pub(super) fn new(site: Site) -> Self {
        Self { site, entries: Vec::new() }
    }

    /// Prepares for another agent. The preparation replaces an earlier one of the connection.
    pub(super) fn on_prepare(
        &mut self,
        from: NodeId,
        connection: ConnectionId,
        number: u32,
        (rest, anchor): (&PreparedRest, NodeId),
    ) {
        if !self.takes_old() {
            self.entries.retain(|entry| entry.connection != connection);
        }
        let rest = match rest {
            PreparedRest::Bytes => Preparing::Ready(Rest::Shipped),
            PreparedRest::Part(resume) => self.ask(resume),
            // The real agent checks its link.
            PreparedRest::Anchored if self.site.network.is_down(anchor) => Preparing::Refused,
            PreparedRest::Anchored => Preparing::Ready(Rest::Anchored(anchor)),
        };
        let is_asked = matches!(rest, Preparing::Asked(..));
        let is_refused = matches!(rest, Preparing::Refused);
        let expires = self.site.network.now() + LIFETIME;
        self.entries.push(Entry { from, connection, number, rest, expires });
        if !is_asked {
            self.site.send(from, &Message::Prepared { connection, number, is_refused });
        }
    }

    /// Takes the preparation for a shipped connection.
    pub(super) fn take(&mut self, from: NodeId, connection: ConnectionId, number: u32) -> Option<Rest> {
        let at = self.entries.iter().position(|entry| {
            let is_ready = matches!(entry.rest, Preparing::Ready(_));
            let is_asked_for = self.takes_old() || entry.from == from && entry.number == number;
            entry.connection == connection && is_ready && is_asked_for
        })?;
        match self.entries.swap_remove(at).rest {
            Preparing::Ready(rest) => Some(rest),
            Preparing::Asked(..) | Preparing::Refused => None,
        }
    }

    fn takes_old(&self) -> bool {
        self.site.sabotage == Some(Sabotage::OldPreparationTaken)
    }

    /// Answers the agents for which the site has answered.
    pub(super) fn step(&mut self, cx: &mut Context<'_>) {
        let now = self.site.network.now();
        self.entries.retain(|entry| entry.expires > now);
        for entry in &mut self.entries {
            let Preparing::Asked(resume, answering) = &mut entry.rest else { continue };
            let Poll::Ready(response) = answering.as_mut().poll(cx) else { continue };
            let accepted = accept(&self.site, resume, response);
            let is_refused = accepted.is_err();
            entry.rest = match accepted {
                Ok(body) => Preparing::Ready(Rest::Part(resume.clone(), body)),
                Err(_) => Preparing::Refused,
            };
            let (connection, number) = (entry.connection, entry.number);
            self.site.network.count(|figures| figures.prepared += 1);
            self.site.send(entry.from, &Message::Prepared { connection, number, is_refused });
        }
        self.entries.retain(|entry| !matches!(entry.rest, Preparing::Refused));
    }

    /// Asks the site for the part.
    fn ask(&self, resume: &Resume) -> Preparing {
        let Ok(request) = resume.request() else { return Preparing::Refused };
        let mut head = request.into_parts().0;
        if self.site.sabotage == Some(Sabotage::PreparationNotCompared) {
            head.headers.remove(IF_RANGE);
        }
        debug_assert!(head.headers.contains_key(RANGE));
        Preparing::Asked(resume.clone(), Box::pin(self.site.service().respond(head)))
    }
}

/// The body of the site's response, if it is the part.
fn accept(site: &Site, resume: &Resume, response: Response<SiteBody>) -> Result<SiteBody, CannotResume> {
    let is_compared = site.sabotage != Some(Sabotage::PreparationNotCompared);
    let has_len = response.body().size_hint().exact() == Some(resume.part.content_len());
    if !is_compared && response.status() == StatusCode::PARTIAL_CONTENT && has_len {
        return Ok(response.into_body());
    }
    resume.accept(response)
}
