//! Informational responses of origins (RFC 9110, section 15.2), for callers that pass them on.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, StatusCode, response};

use crate::exchange::fields;

/// A callback for the informational responses of an origin, in the extensions of a request. Without it, they are
/// dropped.
///
/// It is called with status and fields while [`crate::Proxy::respond`] waits, for each response such as 103 (Early
/// Hints). Not for 100 (Continue), which starts the body of the request, nor for 101, which is a response of its own.
/// Responses to repeated requests and those over HTTP/2 are dropped.
#[derive(Clone)]
pub struct OnInformational(Arc<dyn Fn(StatusCode, HeaderMap) + Send + Sync>);

impl OnInformational {
    pub fn new(callback: impl Fn(StatusCode, HeaderMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn received(&self, mut head: response::Parts) {
        fields::remove_hop_by_hop(&mut head.headers);
        (self.0)(head.status, head.headers);
    }
}

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnInformational").finish_non_exhaustive()
    }
}
