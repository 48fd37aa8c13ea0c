//! Comparisons: when a transfer begins, the other origins are asked for one byte of its resource.

use std::sync::Arc;

use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use watari_body::BoxedRequest;
use watari_handover::governor::{Availability, OriginId};
use watari_handover::{Continuation, Refusal, Transfer};

use crate::exchange::client::Client;
use crate::pool::Pool;
use crate::pool::origin::Outcome;
use crate::transfer::running::Resource;
use crate::transfer::transfers::Transfers;

/// The maximum number of bytes to read of a response to a comparison.
const PROBED_MAX: usize = 1024;

/// Requests one byte of the transferred resource from the other origins, unless that was done a short time ago. The
/// results show in advance where the transfer could continue.
pub(super) fn compare(
    transfers: &Arc<Transfers>,
    transfer: &Transfer,
    resource: &Resource,
    at: OriginId,
    request: &Parts,
    client: &Client,
) {
    if transfers.pool().origins().len() < 2 {
        return;
    }
    let Some(permit) = transfers.resources().permit() else { return };
    let Ok(probe) = transfer.probe() else { return };
    if !transfers.resources().is_due(resource.id()) {
        return;
    }
    let others: Vec<_> = transfers.pool().views().into_iter().filter(|origin| origin.id != at).collect();
    let (transfers, resource) = (Arc::clone(transfers), resource.id());
    let (mut request, client) = (BoxedRequest::without_content(request.clone()), client.clone());
    probe.request(&mut request.head.headers);
    tokio::spawn(async move {
        for origin in others.iter().filter(|origin| origin.availability != Availability::Down) {
            let answer = ask(transfers.pool(), origin.id, &probe, &mut request, &client).await;
            // An origin that does not respond now may respond later.
            if matches!(answer, Ok(Err(_))) {
                transfers.refused(resource, origin.id);
            }
            let difference = match answer {
                Ok(same) => same.err().map(Refusal::as_str),
                Err(reason) => Some(reason),
            };
            transfers.resources().learn(resource, origin.id, difference);
        }
        drop(permit);
    });
}

/// Whether the origin has the same content, or the reason why it does not respond.
async fn ask(
    pool: &Pool,
    origin: OriginId,
    probe: &Continuation,
    request: &mut BoxedRequest,
    client: &Client,
) -> Result<Result<(), Refusal>, &'static str> {
    match pool.origin(origin).exchange(request, None, client).await {
        Outcome::Answered(response) => {
            let same = probe.accept(response.status(), response.headers());
            if same.is_ok() {
                // The body is short, and the connection can be used again.
                let _ = Limited::new(response.into_body(), PROBED_MAX).collect().await;
            }
            Ok(same.map(drop))
        }
        Outcome::Untouched(failure) | Outcome::Failed(failure) => Err(failure.reason()),
    }
}
