//! Forwards a request to a pool. The response becomes a transfer if it can continue at another origin.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, response};
use http_body::Body as _;
use http_body_util::BodyExt;
use watari_body::{Body, BoxedRequest};
use watari_handover::Transfer;

use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::observe::access_log::RequestTrace;
use crate::pool::Answer;
use crate::pool::response_body::ResponseBody;
use crate::transfer::body::{RunningRequest, Source, TransferBody};
use crate::transfer::running::Resource;
use crate::transfer::transfers::Transfers;
use crate::transport::upload::Upload;

/// Marks a response that could continue at another origin. It is stored in the response's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Movable;

impl Transfers {
    /// Sends `request` to an origin, and to others if the retry rules allow it. The response has a [`TransferBody`] if
    /// it can continue elsewhere.
    pub(crate) async fn forward(
        self: &Arc<Self>,
        request: BoxedRequest,
        upload: Option<&Upload>,
        client: &Client,
        trace: &Arc<RequestTrace>,
    ) -> Result<Response<Body>, Failure> {
        let Answer { response, origin, again } = self.pool().forward(request, upload, client, trace).await?;
        let (mut head, body) = response.into_parts();
        let transfer = again.and_then(|again| self.transfer(&head, &body, again));
        let body = match transfer {
            Some((transfer, resource, again)) => {
                let request = RunningRequest { again, client: client.clone(), trace: Arc::clone(trace) };
                let source = Source { origin, body, seam: None };
                head.extensions.insert(Movable);
                TransferBody::new(self, transfer, resource, request, source).map_err(Into::into).boxed_unsync()
            }
            None => body.boxed(),
        };
        Ok(Response::from_parts(head, body))
    }

    /// The transfer that begins with this response, if it could continue elsewhere.
    fn transfer(
        &self,
        head: &response::Parts,
        body: &ResponseBody,
        request: Box<Parts>,
    ) -> Option<(Transfer, Resource, Box<Parts>)> {
        let handover = self.handover()?;
        if body.size_hint().upper().is_some_and(|length| length < handover.length_min) {
            return None;
        }
        let transfer =
            Transfer::of(&request.method, &request.headers, head.status, &head.headers, &handover.conditions);
        let resource = Resource::of(&request.uri, &request.headers);
        self.resources().note(&resource, transfer.as_ref().err().copied());
        let transfer = transfer.inspect_err(|stays| self.count_stay(*stays)).ok()?;
        Some((transfer, resource, request))
    }
}
