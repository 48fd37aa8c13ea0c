//! Answers the requests of one HTTP/1 connection, and the parts of such a connection within a response.

use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderValue, Request, Response};
use watari_connection::{Content, Interim, Responding, Service};
use watari_http1::{Refused, Server};
use watari_proxy::{Client, OnInformational};
use watari_values::SecretBytes;
use watari_wire::ResponseRest;

use super::date;
use super::early_data::gate::Gate;
use super::leaving::InResponse;
use super::requests::{Requests, ResponseBody};
use super::stalls::Stalls;
use super::tunnel::Agreed;
use crate::handoff::source::ShippedResponse;

/// Answers requests of one connection from the site.
pub(super) struct SiteService {
    pub(super) requests: Arc<Requests>,
    pub(super) client: Arc<Client>,
    pub(super) stalls: Arc<Stalls>,
    pub(super) gate: Gate,
    pub(super) agreed: Agreed,
}

/// What is left of an HTTP/1 connection within a response, apart from its stream.
pub(crate) struct OpenResponse {
    pub(super) service: SiteService,
    pub(super) http: Server,
    /// Framed bytes that are not sealed.
    pub(super) unwritten: Vec<u8>,
    pub(super) responding: Option<Responding<ResponseBody>>,
}

impl SiteService {
    pub(super) fn new(requests: Arc<Requests>, client: Arc<Client>, gate: Gate) -> Self {
        Self { requests, client, stalls: Arc::default(), gate, agreed: Agreed::default() }
    }
}

impl OpenResponse {
    /// The rest of the response continues at another agent.
    pub(super) fn departs(&self) {
        self.responding.iter().for_each(|responding| responding.body.body().kept().departs());
    }

    /// The response as the target gets it.
    pub(super) fn shipped(&self, how: InResponse) -> ShippedResponse {
        let mut http = Vec::new();
        self.http.export(&mut http);
        let pending = || self.responding.as_ref().map(|responding| responding.pending.to_vec()).unwrap_or_default();
        let rest = how.skip.map(|skip| ResponseRest::Prepared { skip });
        let rest = rest.unwrap_or_else(|| ResponseRest::Bytes(SecretBytes::new(pending())));
        ShippedResponse { number: how.number, http, unwritten: SecretBytes::new(self.unwritten.clone()), rest }
    }
}

impl Service for SiteService {
    type Body = ResponseBody;
    type Answering = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

    fn answer(&mut self, mut request: Request<Content>, interim: &mut Interim) -> Self::Answering {
        if self.requests.has_origins() {
            let sender = interim.sender();
            let on_informational = OnInformational::new(move |status, fields| sender.send(status, fields));
            request.extensions_mut().insert(on_informational);
        }
        let (requests, client, stalls) = (self.requests.clone(), self.client.clone(), self.stalls.clone());
        let (gate, agreed) = (self.gate.clone(), self.agreed.clone());
        Box::pin(async move {
            let answer = requests.answer(request, &client, &stalls, gate).await;
            agreed.set(answer.tunnel);
            answer.response
        })
    }

    fn refuse(&mut self, refused: &Refused) -> Response<ResponseBody> {
        self.requests.refuse(refused, &self.client, &self.stalls)
    }

    fn date(&self) -> HeaderValue {
        date::now()
    }
}
