//! Requests in progress over one connection, and their samples.

use std::net::IpAddr;
use std::time::Duration;

use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::keep::Keep;
use crate::request::{Expected, Request};
use crate::run::Run;
use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample};

/// A batch of requests in progress. It makes their samples for every protocol.
pub(crate) struct Exchange<'a> {
    pub(crate) batch: &'a [&'a Request],
    pub(crate) source: Option<IpAddr>,
    /// Number of requests of the batch with a response.
    pub(crate) answered: usize,
    /// When the client had written the requests.
    pub(crate) written: Option<Duration>,
    /// Examines the response, if the caller needs that.
    inspection: Option<Inspection<'a>>,
    due: Duration,
    /// When the attempt began.
    pub(crate) started: Duration,
    family: Family,
    handshake: Option<HandshakeKind>,
}

/// Examines a complete response, and decides how its request ended.
pub(crate) struct Inspection<'a> {
    /// How many bytes of the body are kept for the inspection.
    pub(crate) body_bytes_max: usize,
    pub(crate) judge: Box<dyn FnMut(&Response) -> Ending + Send + Sync + 'a>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) first_byte: Duration,
    pub(crate) ended: Duration,
    pub(crate) keep: Keep,
}

/// An incomplete response.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) ending: Ending,
    pub(crate) status: Option<u16>,
    pub(crate) body_bytes: u64,
    pub(crate) first_byte: Option<Duration>,
}

/// The exchange failed before all requests had a response.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) broken: Broken,
    pub(crate) retry: Retry,
}

/// Whether requests without a response may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The server may have processed them.
    No,
    /// Once: the server has not processed them, or they are idempotent.
    Once,
    /// The server has not processed them, and accepts no more requests on this connection. They are sent over other
    /// connections until one accepts them.
    Elsewhere,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(batch: &'a [&'a Request], source: Option<IpAddr>, due: Duration) -> Self {
        let family = batch[0].site.address_for(source).map_or(Family::Ipv4, Family::of);
        let (inspection, started) = (None, due);
        Self { batch, source, answered: 0, written: None, inspection, due, started, family, handshake: None }
    }

    /// Sets the inspection of the response.
    pub(crate) fn inspected(self, inspection: Inspection<'a>) -> Self {
        Self { inspection: Some(inspection), ..self }
    }

    /// Starts an attempt, the first or a repeated one.
    pub(crate) fn start(&mut self, now: Duration) {
        self.started = now;
        self.written = None;
    }

    /// Takes address family and handshake kind from the connection that carries the requests.
    pub(crate) fn goes_over(&mut self, connection: &ConnectionSample) {
        self.family = connection.family;
        self.handshake = connection.tls.as_ref().map(|tls| tls.kind);
    }

    /// The request of the next response.
    pub(crate) fn next(&self) -> &'a Request {
        self.batch[self.answered]
    }

    /// The requests without a response.
    pub(crate) fn rest(&self) -> &'a [&'a Request] {
        &self.batch[self.answered..]
    }

    /// Whether every request has a response.
    pub(crate) fn is_answered(&self) -> bool {
        self.rest().is_empty()
    }

    /// What to keep of the next response.
    pub(crate) fn keep_next(&self) -> Keep {
        let keep =
            self.inspection.as_ref().map_or_else(Keep::default, |inspection| Keep::answer(inspection.body_bytes_max));
        if self.next().expected.sha256.is_some() { keep.and_digest() } else { keep }
    }

    /// Enters the next complete response, and returns how its request ended.
    pub(crate) fn answer(&mut self, run: &Run, response: &Response) -> Ending {
        let request = self.next();
        self.answered += 1;
        let ending = match &mut self.inspection {
            Some(inspection) => (inspection.judge)(response),
            None => judge(request.expected, response),
        };
        // An inspection has judged the status already.
        let error_status = self.inspection.is_none() && ending.is_normal() && request.is_error(response.status);
        run.request_ended(&RequestSample {
            first_byte: Some(response.first_byte),
            status: Some(response.status),
            error_status,
            body_bytes: response.body_bytes,
            ..self.sample(request, response.ended, ending)
        });
        ending
    }

    /// Records all requests without a response as failed. A partial response belongs to the first of them.
    pub(crate) fn fail(&self, run: &Run, broken: &Broken) -> Ending {
        let ended = run.now();
        for (index, request) in self.rest().iter().enumerate() {
            let sample = self.sample(request, ended, broken.ending);
            let Broken { first_byte, status, body_bytes, .. } = *broken;
            run.request_ended(&if index == 0 {
                RequestSample { first_byte, status, body_bytes, ..sample }
            } else {
                sample
            });
        }
        broken.ending
    }

    /// The sample of a request without a response.
    fn sample(&self, request: &Request, ended: Duration, ending: Ending) -> RequestSample {
        RequestSample {
            class: request.class,
            family: self.family,
            handshake: self.handshake,
            due: self.due,
            started: self.started,
            written: self.written,
            first_byte: None,
            ended,
            status: None,
            error_status: false,
            body_bytes: 0,
            ending,
        }
    }
}

impl Broken {
    /// A failure before the first byte of the response.
    pub(crate) fn before_response(ending: Ending) -> Self {
        Self { ending, status: None, body_bytes: 0, first_byte: None }
    }
}

impl Failed {
    /// A failure before the request is sent. It is not repeated.
    pub(crate) fn before_request(ending: Ending) -> Self {
        Self { broken: Broken::before_response(ending), retry: Retry::No }
    }
}

/// Checks the response against the expectation.
fn judge(expected: Expected, response: &Response) -> Ending {
    let status = expected.status.is_none_or(|status| status == response.status);
    let kind = if status && expected.sha256.is_none_or(|sha256| response.keep.sha256() == Some(sha256)) {
        EndingKind::Normal
    } else {
        EndingKind::Mismatch
    };
    Ending::new(kind, Phase::Response, Side::Server)
}
