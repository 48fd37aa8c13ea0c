//! The tasks of a load: requests and flows.

use std::sync::Arc;
use std::time::Duration;

use super::flows;
use crate::client::Client;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Exchange};
use crate::flow::Walk;
use crate::plan::Work;
use crate::run::Run;

/// Performs one task. Each flow gets a new client, so that the server sees a new user.
pub(super) async fn perform_anew(run: &Arc<Run>, client: &mut Client, number: u64, due: Duration, now: Duration) {
    if let Work::Flow { .. } = run.plan.work {
        *client = Client::new(run);
    }
    perform(run, client, number, due, now).await;
}

/// Performs one task: a request or a flow. `now` is the time.
pub(super) async fn perform(run: &Run, client: &mut Client, number: u64, due: Duration, now: Duration) {
    match &run.plan.work {
        Work::Requests(requests) => {
            let (request, source) = requests.nth(number);
            client.send(request, source, due, now).await;
        }
        Work::Flow { flow, site, seed } => {
            let walk = Walk::new(Arc::clone(flow), number, *seed);
            Box::pin(flows::perform(run, client, flow, site, walk, due)).await;
        }
    }
}

/// Counts a request that found no free connection within the connect timeout as given up by its user. Otherwise, with a
/// server that cannot keep up, the waiting requests would fill the memory, and the run would not end.
pub(super) fn give_up(run: &Run, number: u64, due: Duration) {
    match &run.plan.work {
        Work::Requests(requests) => {
            let (request, source) = requests.nth(number);
            Exchange::new(&[request], source, due).fail(run, &Broken::before_response(NO_CONNECTION_FREE));
        }
        Work::Flow { site, .. } => flows::not_begun(run, site, due, NO_CONNECTION_FREE),
    }
}

const NO_CONNECTION_FREE: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Connect, side: Side::Client };
