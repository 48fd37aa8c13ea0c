//! Flows: users whose requests depend on earlier responses.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::sleep_until;

use crate::client::Client;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Inspection, Response};
use crate::flow::{Answer, Failed, Flow, Outgoing, Turn, Walk};
use crate::request::{Parts, Request};
use crate::run::Run;
use crate::sample::{Family, RequestSample};
use crate::site::Site;

/// Runs a flow whose first request was due at `due`, until its end, the first failed request, or the end of the run.
pub(super) async fn perform(
    run: &Run,
    client: &mut Client,
    flow: &Flow,
    site: &Arc<Site>,
    mut walk: Walk,
    mut due: Duration,
) {
    let begun = due;
    while let Some(turn) = walk.turn() {
        if run.shared.tickets.are_over(run.now() + turn.think) {
            return;
        }
        if !turn.think.is_zero() {
            sleep_until(run.shared.instant(run.now() + turn.think)).await;
            // The timer has a resolution of a millisecond. Its delay must not count as the server's.
            due = run.now();
        }
        run.shared.flow_asks();
        let ending = FlowRequest { run, flow, turn, due }.ask(client, site, &mut walk).await;
        if !ending.is_normal() {
            run.tally().flow(None);
            return;
        }
        due = run.now();
    }
    run.tally().flow(Some(due.saturating_sub(begun)));
}

/// One request of a flow.
struct FlowRequest<'a> {
    run: &'a Run,
    flow: &'a Flow,
    turn: Turn,
    due: Duration,
}

impl FlowRequest<'_> {
    async fn ask(&self, client: &mut Client, site: &Arc<Site>, walk: &mut Walk) -> Ending {
        let outgoing = match walk.request(&self.turn) {
            Ok(outgoing) => outgoing,
            Err(unfit) => return self.cannot_ask(site, &unfit),
        };
        let url = outgoing.url.clone();
        let request = match request(site, outgoing) {
            Ok(request) => Request { class: self.turn.step, ..request },
            Err(error) => return self.cannot_ask(site, &error),
        };
        let judge = Box::new(|response: &Response| {
            let verdict = verdict(walk, &self.turn, &url, response);
            if let Err(failed) = &verdict {
                self.note(failed);
            }
            ending(&verdict)
        });
        let body_bytes_max = self.flow.body_looked_at(self.turn.step);
        client.ask(&request, self.due, Inspection { body_bytes_max, judge }).await
    }

    /// Counts a request that cannot be made with the values of earlier responses.
    fn cannot_ask(&self, site: &Site, why: &dyn std::error::Error) -> Ending {
        self.note(why);
        let ending = Ending::new(EndingKind::Local, Phase::Request, Side::Client);
        not_asked(self.run, site, self.turn.step, self.due, ending);
        ending
    }

    fn note(&self, why: &dyn std::error::Error) {
        self.run.shared.causes.add(format!("step {}: {why}", self.flow.name(self.turn.step)), 1);
    }
}

/// Counts a flow that did not begin, and its first request.
pub(super) fn not_begun(run: &Run, site: &Site, due: Duration, ending: Ending) {
    run.shared.flow_asks();
    not_asked(run, site, 0, due, ending);
    run.tally().flow(None);
}

/// Counts a request of a step that was never sent.
fn not_asked(run: &Run, site: &Site, step: usize, due: Duration, ending: Ending) {
    let now = run.now();
    run.request_ended(&RequestSample {
        class: step,
        family: site.address_for(None).map_or(site.preferred, Family::of),
        handshake: None,
        due,
        started: now,
        written: None,
        first_byte: None,
        ended: now,
        status: None,
        error_status: false,
        body_bytes: 0,
        ending,
    });
}

fn request(site: &Arc<Site>, outgoing: Outgoing) -> Result<Request, crate::request::RequestError> {
    let Outgoing { method, url, headers, body } = outgoing;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    Request::new(Arc::clone(site), Parts { method, path, headers, body })
}

fn verdict(walk: &mut Walk, turn: &Turn, url: &url::Url, response: &Response) -> Result<(), Failed> {
    let nothing = HeaderMap::new();
    let (headers, body) = response.keep.kept().unwrap_or((&nothing, &[]));
    walk.answered(turn, url, Answer { status: response.status, headers, body })
}

/// A response without a value that the flow needs is valid HTTP. So the failure is LOCAL: the flow cannot continue.
fn ending(verdict: &Result<(), Failed>) -> Ending {
    match verdict {
        Ok(()) => Ending::new(EndingKind::Normal, Phase::Response, Side::Server),
        Err(Failed::Status(_)) => Ending::new(EndingKind::Mismatch, Phase::Response, Side::Server),
        Err(Failed::Missing { .. }) => Ending::new(EndingKind::Local, Phase::Response, Side::Client),
    }
}
