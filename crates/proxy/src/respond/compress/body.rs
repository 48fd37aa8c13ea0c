//! A body that is compressed as it arrives.

use std::io::{self, Write};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::write::GzEncoder;
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use watari_body::{Body, BoxError};

use super::coding::Coding;

/// A body for a client. Before it waits for more input, it sends all input so far, even if that is little. So events
/// and slow pages arrive without delay.
pub(super) struct CompressedBody {
    inner: Body,
    /// `None`: the end has been written.
    encoder: Option<Encoder>,
    /// Whether the encoder has input that it has not output yet.
    keeps: bool,
    /// The trailers of the inner body.
    trailers: Option<Frame<Bytes>>,
    _place: OwnedSemaphorePermit,
}

/// Compresses into memory.
pub(super) enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl CompressedBody {
    /// * `place`: the permit to compress. It is held as long as this value exists.
    pub(super) fn new(inner: Body, encoder: Encoder, place: OwnedSemaphorePermit) -> Self {
        Self { inner, encoder: Some(encoder), keeps: false, trailers: None, _place: place }
    }

    /// The rest of the output after the end of the inner body.
    fn end(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        match self.encoder.take() {
            Some(encoder) => Some(encoder.finish().map(Frame::data).map_err(Into::into)),
            None => self.trailers.take().map(Ok),
        }
    }

    /// The output for a piece, which may be empty.
    fn write(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.keeps = true;
        self.encoder.as_mut().map_or(Ok(Bytes::new()), |encoder| encoder.write(piece))
    }

    fn flush(&mut self) -> io::Result<Bytes> {
        self.keeps = false;
        self.encoder.as_mut().map_or(Ok(Bytes::new()), Encoder::flush)
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            if this.encoder.is_none() {
                return Poll::Ready(this.end());
            }
            let coded = match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending if this.keeps => this.flush(),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(this.end()),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => this.write(&piece),
                    Err(trailers) => {
                        this.trailers = Some(trailers);
                        continue;
                    }
                },
            };
            match coded {
                Ok(coded) if coded.is_empty() => {}
                coded => return Poll::Ready(Some(coded.map(Frame::data).map_err(Into::into))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none() && self.inner.is_end_stream()
    }
}

/// Fast levels, because the response is compressed while it is sent.
const GZIP_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 2;
/// 128 KiB. It limits the memory of a response, here and at the client.
const ZSTD_WINDOW_LOG: u32 = 17;

impl Encoder {
    /// Fails if there is not enough memory.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(Box::new(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL)))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                Self::Zstd(Box::new(encoder))
            }
        })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(piece)?,
            Self::Zstd(encoder) => encoder.write_all(piece)?,
        }
        Ok(self.take())
    }

    fn flush(&mut self) -> io::Result<Bytes> {
        match self {
            Self::Gzip(encoder) => encoder.flush()?,
            Self::Zstd(encoder) => encoder.flush()?,
        }
        Ok(self.take())
    }

    fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
        .map(Bytes::from)
    }

    fn take(&mut self) -> Bytes {
        match self {
            Self::Gzip(encoder) => mem::take(encoder.get_mut()),
            Self::Zstd(encoder) => mem::take(encoder.get_mut()),
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::Waker;

    use http::HeaderMap;
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use proptest::prelude::*;
    use tokio::sync::Semaphore;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Piece(Vec<u8>),
        Wait,
        Trailers,
        Fail,
    }

    /// A body that arrives in steps.
    struct Script(VecDeque<Step>);

    impl http_body::Body for Script {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.0.pop_front() {
                Some(Step::Piece(piece)) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                Some(Step::Wait) => Poll::Pending,
                Some(Step::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
                Some(Step::Fail) => Poll::Ready(Some(Err("cut".into()))),
                None => Poll::Ready(None),
            }
        }
    }

    /// The output of a body, so far or up to the first wait.
    #[derive(Default)]
    struct Came {
        coded: Vec<u8>,
        trailers: usize,
        failed: bool,
    }

    fn run(coding: Coding, steps: impl IntoIterator<Item = Step>, stop_at_wait: bool) -> Came {
        let inner = Script(steps.into_iter().collect()).boxed_unsync();
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut body = CompressedBody::new(inner, Encoder::new(coding).unwrap(), place);
        let mut came = Came::default();
        loop {
            match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending if stop_at_wait => return came,
                Poll::Pending => {}
                Poll::Ready(None) => return came,
                Poll::Ready(Some(Err(_))) => return Came { failed: true, ..came },
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => came.coded.extend(piece),
                    Err(_) => came.trailers += 1,
                },
            }
        }
    }

    /// The decoded content so far.
    fn decoded(coding: Coding, coded: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut decoder = flate2::write::GzDecoder::new(Vec::new());
                decoder.write_all(coded).and_then(|()| decoder.flush()).unwrap();
                decoder.get_ref().clone()
            }
            Coding::Zstd => {
                let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
                decoder.write_all(coded).and_then(|()| decoder.flush()).unwrap();
                decoder.get_ref().clone()
            }
        }
    }

    const CODINGS: [Coding; 2] = [Coding::Gzip, Coding::Zstd];

    #[test]
    fn what_has_come_is_sent_before_more_is_waited_for() {
        for coding in CODINGS {
            let steps = [Step::Piece(b"event".into()), Step::Wait, Step::Wait];
            let came = run(coding, steps, true);
            assert_eq!(decoded(coding, &came.coded), b"event", "{coding:?}");
        }
    }

    #[test]
    fn trailers_follow_all_of_the_body() {
        for coding in CODINGS {
            let came = run(coding, [Step::Piece(b"text".into()), Step::Trailers, Step::Wait], false);
            assert_eq!((decoded(coding, &came.coded).as_slice(), came.trailers), (b"text".as_slice(), 1), "{coding:?}");
        }
    }

    #[test]
    fn a_cut_is_no_end() {
        for coding in CODINGS {
            let came = run(coding, [Step::Piece(b"text".into()), Step::Wait, Step::Fail], false);
            let whole = run(coding, [Step::Piece(b"text".into()), Step::Wait], false);
            assert!(came.failed && came.coded.len() < whole.coded.len(), "{coding:?}");
        }
    }

    proptest! {
        #[test]
        fn clients_get_every_byte(pieces in proptest::collection::vec((proptest::collection::vec(0..4_u8, 0..5000), any::<bool>()), 0..12)) {
            let all: Vec<u8> = pieces.iter().flat_map(|(piece, _)| piece.clone()).collect();
            let steps: Vec<_> = pieces.into_iter().flat_map(|(piece, wait)| {
                [Some(Step::Piece(piece)), wait.then_some(Step::Wait)].into_iter().flatten()
            }).collect();
            for coding in CODINGS {
                let came = run(coding, steps.clone(), false);
                prop_assert!(decoded(coding, &came.coded) == all);
            }
        }
    }
}
