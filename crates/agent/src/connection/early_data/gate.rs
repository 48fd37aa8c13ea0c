//! Holds back requests that must not be answered before the handshake is done.

use http::{HeaderName, HeaderValue, Method, Request};
use http_body::Body;
use tokio::sync::watch;

/// RFC 8470, section 5.1.
static EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The check that each request passes before it is answered. The default admits all requests.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    /// Whether the handshake is done. `None`: it was done before the first request.
    is_open: Option<watch::Receiver<bool>>,
}

impl Gate {
    pub(super) fn new(is_open: watch::Receiver<bool>) -> Self {
        Self { is_open: Some(is_open) }
    }

    /// Admits a request. A safe one is admitted at once, marked with `Early-Data: 1` for origins. Others wait until the
    /// handshake is done. `None`: the handshake failed.
    pub(crate) async fn admit<B: Body>(self, mut request: Request<B>) -> Option<Request<B>> {
        let Some(mut is_open) = self.is_open.filter(|is_open| !*is_open.borrow()) else { return Some(request) };
        if is_harmless(&request) {
            request.headers_mut().insert(&EARLY_DATA, HeaderValue::from_static("1"));
        } else {
            is_open.wait_for(|is_open| *is_open).await.ok()?;
        }
        Some(request)
    }
}

/// Whether the method is safe (RFC 9110, section 9.2.1) and the request has no content, so that it has arrived in full.
/// `TRACE` is missing, because the agent never answers it.
fn is_harmless<B: Body>(request: &Request<B>) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) && request.body().is_end_stream()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    use super::*;

    fn of<B>(method: Method, body: B) -> Request<B> {
        Request::builder().method(method).body(body).unwrap()
    }

    fn poll<B: Body>(admitted: impl Future<Output = Option<Request<B>>>) -> Poll<Option<Request<B>>> {
        pin!(admitted).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn mark<B>(admitted: Poll<Option<Request<B>>>) -> Option<HeaderValue> {
        let Poll::Ready(Some(request)) = admitted else { panic!("it waits, or is turned away") };
        request.headers().get("early-data").cloned()
    }

    #[test]
    fn harmless_requests_pass_marked_until_the_handshake_is_done() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            let request = of(method, Empty::<Bytes>::new());
            assert_eq!(mark(poll(gate.clone().admit(request))), Some(HeaderValue::from_static("1")));
        }
        is_open.send_replace(true);
        assert_eq!(mark(poll(gate.admit(of(Method::GET, Empty::<Bytes>::new())))), None);
        assert_eq!(mark(poll(Gate::default().admit(of(Method::GET, Empty::<Bytes>::new())))), None);
    }

    #[test]
    fn what_a_client_says_of_itself_stays() {
        let mut request = of(Method::POST, Empty::<Bytes>::new());
        request.headers_mut().insert("early-data", HeaderValue::from_static("1"));
        assert_eq!(mark(poll(Gate::default().admit(request))), Some(HeaderValue::from_static("1")));
    }

    #[test]
    fn others_wait_for_the_handshake() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        let with_content = gate.clone().admit(of(Method::GET, Full::new(Bytes::from_static(b"content"))));
        let mut unsafe_one = pin!(gate.clone().admit(of(Method::POST, Empty::<Bytes>::new())));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(poll(with_content).is_pending());
        assert!(unsafe_one.as_mut().poll(&mut cx).is_pending());
        is_open.send_replace(true);
        assert_eq!(mark(unsafe_one.as_mut().poll(&mut cx)), None);
    }

    #[test]
    fn nobody_waits_for_a_handshake_that_failed() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        drop(is_open);
        assert!(matches!(poll(gate.admit(of(Method::POST, Empty::<Bytes>::new()))), Poll::Ready(None)));
    }
}
