//! Holds back requests that must not be answered before the handshake is done.

use http::{HeaderName, HeaderValue, Method};
use http_body::Body as _;
use tokio::sync::watch;
use watari_body::BoxedRequest;

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
    /// handshake is done. `false`: the handshake failed.
    pub(crate) async fn admits(self, request: &mut BoxedRequest) -> bool {
        let Some(mut is_open) = self.is_open.filter(|is_open| !*is_open.borrow()) else { return true };
        if is_harmless(request) {
            request.head.headers.insert(&EARLY_DATA, HeaderValue::from_static("1"));
            return true;
        }
        // Boxed: this large future is seldom needed, and would enlarge the future of every request.
        Box::pin(is_open.wait_for(|is_open| *is_open)).await.is_ok()
    }
}

/// Whether the method is safe (RFC 9110, section 9.2.1) and the request has no content, so that it has arrived in full.
/// `TRACE` is missing, because the agent never answers it.
fn is_harmless(request: &BoxedRequest) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(&request.head.method) && request.body.is_end_stream()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http::Request;
    use http_body_util::{Empty, Full};

    use super::*;

    fn of<B>(method: Method, body: B) -> BoxedRequest
    where
        B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + 'static,
    {
        Request::builder().method(method).body(body).unwrap().into()
    }

    fn without_content(method: Method) -> BoxedRequest {
        of(method, Empty::new())
    }

    fn poll(admitted: impl Future<Output = bool>) -> Poll<bool> {
        pin!(admitted).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The mark of a request that is admitted at once.
    fn mark(gate: Gate, mut request: BoxedRequest) -> Option<HeaderValue> {
        assert_eq!(poll(gate.admits(&mut request)), Poll::Ready(true));
        request.head.headers.get("early-data").cloned()
    }

    #[test]
    fn harmless_requests_pass_marked_until_the_handshake_is_done() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(mark(gate.clone(), without_content(method)), Some(HeaderValue::from_static("1")));
        }
        is_open.send_replace(true);
        assert_eq!(mark(gate, without_content(Method::GET)), None);
        assert_eq!(mark(Gate::default(), without_content(Method::GET)), None);
    }

    #[test]
    fn what_a_client_says_of_itself_stays() {
        let mut request = without_content(Method::POST);
        request.head.headers.insert("early-data", HeaderValue::from_static("1"));
        assert_eq!(mark(Gate::default(), request), Some(HeaderValue::from_static("1")));
    }

    #[test]
    fn others_wait_for_the_handshake() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        let mut with_content = of(Method::GET, Full::new(Bytes::from_static(b"content")));
        let mut unsafe_one = without_content(Method::POST);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(poll(gate.clone().admits(&mut with_content)).is_pending());
        {
            let mut admitted = pin!(gate.admits(&mut unsafe_one));
            assert!(admitted.as_mut().poll(&mut cx).is_pending());
            is_open.send_replace(true);
            assert_eq!(admitted.as_mut().poll(&mut cx), Poll::Ready(true));
        }
        assert!(!unsafe_one.head.headers.contains_key("early-data"));
    }

    #[test]
    fn nobody_waits_for_a_handshake_that_failed() {
        let is_open = watch::Sender::new(false);
        let gate = Gate::new(is_open.subscribe());
        drop(is_open);
        assert_eq!(poll(gate.admits(&mut without_content(Method::POST))), Poll::Ready(false));
    }
}
