//! One origin: where it is, whether it can be reached, and what it answers.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::body::{ResponseBody, Upload};
use crate::failure::Failure;
use crate::metrics::{Metrics, OriginMetrics};
use crate::pool::{Lease, Pool};
use crate::{Body, Limits, fields};

/// The largest head of a response, and the most that is read ahead of a response's body, in bytes.
const BUFFER_LEN_MAX: usize = 128 * 1024;

/// Where an origin is: `http://HOST` or `http://HOST:PORT`. A host is a name or an address; an IPv6 address stands
/// in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginAddress {
    host: String,
    port: u16,
}

/// A text is no [`OriginAddress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an origin is given as http://HOST or http://HOST:PORT")]
pub struct InvalidOrigin;

impl FromStr for OriginAddress {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let uri: Uri = text.parse().map_err(|_| InvalidOrigin)?;
        let authority = uri.authority().ok_or(InvalidOrigin)?;
        let bare = uri.path_and_query().is_none_or(|path| path == "/") && !authority.as_str().contains('@');
        if uri.scheme_str() != Some("http") || !bare || authority.host().is_empty() {
            return Err(InvalidOrigin);
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => 80,
            Some(port) => port.trim_start_matches(':').parse().map_err(|_| InvalidOrigin)?,
            None => return Err(InvalidOrigin),
        };
        Ok(Self { host: authority.host().to_owned(), port })
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            80 => write!(f, "http://{}", self.host),
            port => write!(f, "http://{}:{port}", self.host),
        }
    }
}

/// What became of a request given to an origin.
pub(crate) enum Outcome {
    /// The response has begun.
    Answered(Response<Body>),
    /// The origin has seen nothing of the request; another may have it.
    Untouched(Request<Body>, Failure),
    /// The origin may have acted on the request.
    Failed(Failure),
}

/// An origin and the connections to it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) address: OriginAddress,
    limits: Arc<Limits>,
    metrics: OriginMetrics,
    pool: Arc<Pool>,
    ejected_until: Mutex<Option<Instant>>,
}

impl Origin {
    pub(crate) fn new(address: OriginAddress, limits: &Arc<Limits>, metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.of_origin(&address),
            address,
            limits: Arc::clone(limits),
            pool: Arc::new(Pool::new(limits)),
            ejected_until: Mutex::new(None),
        }
    }

    /// Whether the origin was out of reach a short while ago.
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        let until = *self.ejected_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until)
    }

    /// Passes the origin over for a while.
    pub(crate) fn eject(&self, now: Instant) {
        *self.ejected_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + self.limits.ejection);
    }

    /// Sends `request` and waits for the head of its response. `upload` tells how its body fares, if it has one.
    pub(crate) async fn exchange(self: &Arc<Self>, mut request: Request<Body>, upload: Option<&Upload>) -> Outcome {
        let Some(permit) = self.pool.permit() else {
            return Outcome::Untouched(request, Failure::Saturated(self.address.clone()));
        };
        if let Some(mut sender) = self.pool.take(Instant::now()) {
            let copy = repeatable(&request, upload);
            match self.send(&mut sender, request, upload).await {
                Sent::Answered(response) => {
                    return self.answered(response, Lease::new(&self.pool, sender, permit));
                }
                Sent::Unsent(unsent, _) => request = unsent,
                Sent::Lost(error) => match copy {
                    // The origin closed the connection it had kept for us just as we wrote.
                    Some(copy) if !error.is_parse() => request = copy,
                    _ => return Outcome::Failed(self.lost(error)),
                },
                Sent::Failed(failure) => return Outcome::Failed(failure),
            }
        }
        let mut sender = match self.connect().await {
            Ok(sender) => sender,
            Err(failure) => return Outcome::Untouched(request, failure),
        };
        match self.send(&mut sender, request, upload).await {
            Sent::Answered(response) => self.answered(response, Lease::new(&self.pool, sender, permit)),
            Sent::Unsent(request, error) => Outcome::Untouched(request, Failure::Closed(self.address.clone(), error)),
            Sent::Lost(error) => Outcome::Failed(self.lost(error)),
            Sent::Failed(failure) => Outcome::Failed(failure),
        }
    }

    /// A new connection. An origin that gives none is ejected.
    async fn connect(&self) -> Result<SendRequest<Body>, Failure> {
        let connected = match timeout(self.limits.connect_timeout, self.open()).await {
            Ok(Ok(sender)) => return Ok(sender),
            Ok(Err(error)) => Failure::Connect(self.address.clone(), error),
            Err(_) => Failure::ConnectTimeout(self.address.clone()),
        };
        self.metrics.connect_errors.inc();
        self.eject(Instant::now());
        Err(connected)
    }

    async fn open(&self) -> io::Result<SendRequest<Body>> {
        let host = self.address.host.trim_matches(['[', ']']);
        let socket = TcpStream::connect((host, self.address.port)).await?;
        socket.set_nodelay(true)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_LEN_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
        let origin = self.address.clone();
        tokio::spawn(async move {
            // Whoever waits for a response or its body learns of the error there.
            if let Err(error) = connection.await {
                tracing::debug!(%origin, %error, "connection ended");
            }
        });
        Ok(sender)
    }

    async fn send(&self, sender: &mut SendRequest<Body>, request: Request<Body>, upload: Option<&Upload>) -> Sent {
        let answer = sender.try_send_request(request);
        tokio::pin!(answer);
        let result = loop {
            match timeout(self.limits.response_timeout, &mut answer).await {
                Ok(result) => break result,
                Err(_) if upload.is_some_and(Upload::has_advanced) => {}
                Err(_) if upload.is_some_and(Upload::is_waiting) => {
                    return Sent::Failed(Failure::UploadStalled);
                }
                Err(_) => return Sent::Failed(Failure::ResponseTimeout(self.address.clone())),
            }
        };
        match result {
            Ok(response) => Sent::Answered(response),
            Err(mut error) => match error.take_message() {
                Some(request) => Sent::Unsent(request, error.into_error()),
                None => Sent::Lost(error.into_error()),
            },
        }
    }

    fn lost(&self, error: hyper::Error) -> Failure {
        if error.is_user() { Failure::UploadCut(error) } else { Failure::BadResponse(self.address.clone(), error) }
    }

    fn answered(&self, response: Response<Incoming>, lease: Lease) -> Outcome {
        if response.status().is_informational() {
            return Outcome::Failed(Failure::UnaskedUpgrade(self.address.clone()));
        }
        self.metrics.count_answer(response.status());
        let (mut head, body) = response.into_parts();
        fields::remove_hop_by_hop(&mut head.headers);
        head.version = Version::HTTP_11;
        let body = ResponseBody::new(body, lease, self.limits.body_timeout, self.metrics.bodies_cut.clone());
        Outcome::Answered(Response::from_parts(head, body.map_err(Into::into).boxed_unsync()))
    }
}

/// What became of a request put on a connection.
enum Sent {
    Answered(Response<Incoming>),
    /// The connection was closed before anything was written.
    Unsent(Request<Body>, hyper::Error),
    /// The connection failed somewhere between the request and the head of its response.
    Lost(hyper::Error),
    Failed(Failure),
}

/// A copy to send again, of a request that has no body and does no harm when it is carried out twice.
fn repeatable(request: &Request<Body>, upload: Option<&Upload>) -> Option<Request<Body>> {
    if upload.is_some() || !request.method().is_idempotent() {
        return None;
    }
    let mut copy = Request::new(crate::body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("http://origin", "http://origin"),
            ("http://origin:80/", "http://origin"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(text.parse::<OriginAddress>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in [
            "",
            "origin",
            "origin:80",
            "https://origin",
            "http://",
            "http://:80",
            "http://origin/path",
            "http://origin?query",
            "http://user@origin",
            "http://origin:65536",
            "http://origin:",
        ] {
            assert_eq!(text.parse::<OriginAddress>(), Err(InvalidOrigin), "{text}");
        }
    }
}
