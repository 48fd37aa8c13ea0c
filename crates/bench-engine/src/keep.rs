//! The parts of a response that its request needs, besides status and length.

use std::fmt;

use aws_lc_rs::digest;
use http::HeaderMap;

/// The parts of a response to keep besides its status and length. Usually none, and then it costs nothing.
#[derive(Debug, Default)]
pub struct Keep(Option<Box<StoredResponse>>);

#[derive(Default)]
struct StoredResponse {
    headers: Option<HeaderMap>,
    body: Vec<u8>,
    body_bytes_max: usize,
    digest: Option<digest::Context>,
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StoredResponse").field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl Keep {
    /// Keeps the header fields, and the first `body_bytes_max` bytes of the body.
    pub fn answer(body_bytes_max: usize) -> Self {
        Self(Some(Box::new(StoredResponse {
            headers: Some(HeaderMap::new()),
            body_bytes_max,
            ..StoredResponse::default()
        })))
    }

    /// Also computes the digest of the body.
    #[must_use]
    pub fn and_digest(mut self) -> Self {
        self.0.get_or_insert_default().digest = Some(digest::Context::new(&digest::SHA256));
        self
    }

    /// Enters a piece of the body.
    pub fn body(&mut self, data: &[u8]) {
        let Some(kept) = &mut self.0 else { return };
        let room = kept.body_bytes_max - kept.body.len();
        kept.body.extend_from_slice(&data[..data.len().min(room)]);
        if let Some(digest) = &mut kept.digest {
            digest.update(data);
        }
    }

    /// The SHA-256 of the body; `None` if it was not requested.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.0.as_ref()?.digest.clone().and_then(|digest| digest.finish().as_ref().try_into().ok())
    }

    /// The header fields and the beginning of the body; `None` if they were not requested.
    pub fn kept(&self) -> Option<(&HeaderMap, &[u8])> {
        let kept = self.0.as_ref()?;
        Some((kept.headers.as_ref()?, &kept.body))
    }

    /// The map to store header fields in; `None` if they were not requested.
    pub(crate) fn headers(&mut self) -> Option<&mut HeaderMap> {
        self.0.as_mut()?.headers.as_mut()
    }
}
