//! Requests on their way over one connection, and the samples that they leave.

use std::net::IpAddr;
use std::time::Duration;

use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::http1::Keep;
use crate::request::{Expected, Request};
use crate::run::Run;
use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample};

/// Requests on their way, and how far they have come. Whichever protocol carries them, their samples are made here.
pub(crate) struct Exchange<'a> {
    pub(crate) batch: &'a [&'a Request],
    pub(crate) source: Option<IpAddr>,
    /// How many of the batch were answered.
    pub(crate) answered: usize,
    /// When the requests were written out.
    pub(crate) written: Option<Duration>,
    /// Who looks at the response, if anybody does.
    inspection: Option<Inspection<'a>>,
    due: Duration,
    started: Duration,
    family: Family,
    handshake: Option<HandshakeKind>,
}

/// Looks at a response that came whole, and says how its request ended.
pub(crate) struct Inspection<'a> {
    /// How much of the body is kept for it.
    pub(crate) body_bytes_max: usize,
    pub(crate) judge: Box<dyn FnMut(&Response) -> Ending + Send + Sync + 'a>,
}

/// A response that came whole.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) first_byte: Duration,
    pub(crate) ended: Duration,
    pub(crate) keep: Keep,
}

/// A response that did not.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) ending: Ending,
    pub(crate) status: Option<u16>,
    pub(crate) body_bytes: u64,
    pub(crate) first_byte: Option<Duration>,
}

/// Requests that were not all answered.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) broken: Broken,
    pub(crate) retry: Retry,
}

/// Whether requests that were not answered may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The server may have done something with them.
    No,
    /// It has not, or to do them twice does no harm.
    Once,
    /// It has not, and said that this connection takes no more: over others, until one takes them.
    Elsewhere,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(batch: &'a [&'a Request], source: Option<IpAddr>, due: Duration) -> Self {
        let family = batch[0].site.address_for(source).map_or(Family::Ipv4, Family::of);
        let (inspection, started) = (None, due);
        Self { batch, source, answered: 0, written: None, inspection, due, started, family, handshake: None }
    }

    /// The same, with somebody who looks at the response.
    pub(crate) fn inspected(self, inspection: Inspection<'a>) -> Self {
        Self { inspection: Some(inspection), ..self }
    }

    /// Its first step begins, perhaps once more.
    pub(crate) fn start(&mut self, now: Duration) {
        self.started = now;
        self.written = None;
    }

    /// It goes over this connection.
    pub(crate) fn goes_over(&mut self, connection: &ConnectionSample) {
        self.family = connection.family;
        self.handshake = connection.tls.as_ref().map(|tls| tls.kind);
    }

    /// The request whose response is the next.
    pub(crate) fn next(&self) -> &'a Request {
        self.batch[self.answered]
    }

    /// The requests that were not answered.
    pub(crate) fn rest(&self) -> &'a [&'a Request] {
        &self.batch[self.answered..]
    }

    /// Whether every request was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.rest().is_empty()
    }

    /// What to keep of the next response.
    pub(crate) fn keep_next(&self) -> Keep {
        let keep =
            self.inspection.as_ref().map_or_else(Keep::default, |inspection| Keep::answer(inspection.body_bytes_max));
        if self.next().expected.sha256.is_some() { keep.and_digest() } else { keep }
    }

    /// The next response came whole; says how its request ended.
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

    /// Says of all requests that were not answered that they failed; what came of a response belongs to the first of them.
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

    /// Of a request without response.
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
    /// Nothing of the response came.
    pub(crate) fn before_response(ending: Ending) -> Self {
        Self { ending, status: None, body_bytes: 0, first_byte: None }
    }
}

impl Failed {
    /// Nothing was sent, nor will be.
    pub(crate) fn before_request(ending: Ending) -> Self {
        Self { broken: Broken::before_response(ending), retry: Retry::No }
    }
}

/// Whether the response is what was expected.
fn judge(expected: Expected, response: &Response) -> Ending {
    let status = expected.status.is_none_or(|status| status == response.status);
    let kind = if status && expected.sha256.is_none_or(|sha256| response.keep.sha256() == Some(sha256)) {
        EndingKind::Normal
    } else {
        EndingKind::Mismatch
    };
    Ending::new(kind, Phase::Response, Side::Server)
}
