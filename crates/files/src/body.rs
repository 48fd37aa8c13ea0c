//! Response bodies from files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use rustix::io::ReadWriteFlags;
use tokio::task::JoinHandle;
use watari_body::{Body, BoxError};

use crate::buffer::Buffer;

/// The most bytes of one read from a file. A file of up to this length is sent as one chunk.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// A piece of a response body.
#[derive(Debug)]
pub(crate) enum Segment {
    /// Boundaries and fields between the parts of a multipart response.
    Text(Bytes),
    /// A range of bytes of the file.
    File(Range<u64>),
}

impl Segment {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

/// A body that is read from a file while it is sent, at most one chunk ahead.
///
/// Data in the kernel's page cache is read at once, within the poll. Only data from the disk is read in tokio's
/// blocking pool.
pub(crate) struct FileBody {
    file: Arc<File>,
    segments: VecDeque<Segment>,
    reading: Option<JoinHandle<io::Result<Buffer>>>,
    cut: Counter,
}

/// The reason that a file could not be sent to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("the file became shorter while it was sent")]
    Shrunk,
    #[error("the file could not be read")]
    Read(#[source] io::Error),
}

impl FileBody {
    /// The bytes of `segments`, in order. `cut` counts bodies that could not be completed.
    pub(crate) fn new(file: File, segments: impl IntoIterator<Item = Segment>, cut: Counter) -> Self {
        let segments = segments.into_iter().filter(|segment| segment.len() > 0).collect();
        Self { file: Arc::new(file), segments, reading: None, cut }
    }

    pub(crate) fn boxed(self) -> Body {
        BodyExt::map_err(self, BoxError::from).boxed_unsync()
    }

    /// Returns the next bytes. The caller removes them from the first segment.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FileError>>> {
        if let Some(reading) = &mut self.reading {
            let read = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            return Poll::Ready(Some(whole_chunk(read.unwrap_or_else(|join| Err(io::Error::other(join))))));
        }
        let range = match self.segments.front() {
            None => return Poll::Ready(None),
            Some(Segment::Text(text)) => return Poll::Ready(Some(Ok(text.clone()))),
            Some(Segment::File(range)) => range.clone(),
        };
        let len = usize::try_from(range.end - range.start).map_or(CHUNK_LEN, |len| len.min(CHUNK_LEN));
        let mut buffer = Buffer::new(len);
        if buffer.fill(|bytes| read_now(&self.file, bytes, range.start)).is_ok() {
            return Poll::Ready(Some(whole_chunk(Ok(buffer))));
        }
        // The data is not in the cache, or the file system does not support the flag.
        let file = Arc::clone(&self.file);
        self.reading = Some(tokio::task::spawn_blocking(move || read_at(&file, buffer, range.start)));
        self.poll_chunk(cx)
    }

    fn advance(&mut self, len: u64) {
        if let Some(Segment::File(range)) = self.segments.front_mut()
            && len < range.end - range.start
        {
            range.start += len;
        } else {
            self.segments.pop_front();
        }
    }
}

/// All `len` bytes of a file, if they are in the kernel's cache.
pub(crate) fn read_cached(file: &File, len: usize) -> Option<Bytes> {
    let mut buffer = Buffer::new(len);
    buffer.fill(|bytes| read_now(file, bytes, 0)).ok()?;
    let bytes = buffer.into_bytes();
    (bytes.len() == len).then_some(bytes)
}

/// Reads what is in the kernel's cache. Fails if nothing is, or if the file system cannot say.
fn read_now(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT)?)
}

fn read_at(file: &File, mut buffer: Buffer, offset: u64) -> io::Result<Buffer> {
    loop {
        match buffer.fill(|bytes| file.read_at(bytes, offset)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|()| buffer),
        }
    }
}

/// An empty read means that the file became shorter after the response began.
fn whole_chunk(read: io::Result<Buffer>) -> Result<Bytes, FileError> {
    match read {
        Ok(buffer) if buffer.is_empty() => Err(FileError::Shrunk),
        Ok(buffer) => Ok(buffer.into_bytes()),
        Err(error) => Err(FileError::Read(error)),
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = FileError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, FileError>>> {
        let Some(chunk) = ready!(self.poll_chunk(cx)) else {
            return Poll::Ready(None);
        };
        match &chunk {
            Ok(bytes) => self.advance(bytes.len() as u64),
            Err(_) => _ = self.cut.inc(),
        }
        Poll::Ready(Some(chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.segments.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.segments.iter().map(Segment::len).sum())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use http_body::Body as _;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index % 251) as u8).collect()
    }

    #[tokio::test]
    async fn segments_are_sent_in_order() {
        let content = pattern(3 * CHUNK_LEN);
        let segments = [
            Segment::Text(Bytes::from_static(b"first ")),
            Segment::File(10..10 + 2 * CHUNK_LEN as u64),
            Segment::Text(Bytes::new()),
            Segment::File(5..5),
            Segment::File(0..1),
        ];
        let body = FileBody::new(file(&content), segments, Counter::default());
        assert_eq!(body.size_hint().exact(), Some(7 + 2 * CHUNK_LEN as u64));
        let sent = body.collect().await.unwrap().to_bytes();
        assert_eq!(sent, [b"first ", &content[10..10 + 2 * CHUNK_LEN], &content[..1]].concat());
    }

    #[tokio::test]
    async fn a_short_file_is_one_chunk() {
        let content = pattern(CHUNK_LEN);
        let mut body = FileBody::new(file(&content), [Segment::File(0..CHUNK_LEN as u64)], Counter::default());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), content);
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_file_that_shrinks_is_an_error() {
        let cut = Counter::default();
        let handle = file(&pattern(3 * CHUNK_LEN));
        let segment = Segment::File(0..3 * CHUNK_LEN as u64);
        let mut body = FileBody::new(handle.try_clone().unwrap(), [segment], cut.clone());
        body.frame().await.unwrap().unwrap();
        handle.set_len(CHUNK_LEN as u64 + 10).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 10);
        assert!(matches!(body.frame().await, Some(Err(FileError::Shrunk))));
        assert!(!body.is_end_stream());
        assert_eq!(cut.get(), 1);
    }

    #[tokio::test]
    async fn the_blocking_way_reads_the_same() {
        let content = pattern(1000);
        let handle = Arc::new(file(&content));
        assert_eq!(read_at(&handle, Buffer::new(100), 950).unwrap().into_bytes(), content[950..]);
        let mut body = FileBody::new(file(&content), [Segment::File(7..9)], Counter::default());
        body.reading = Some(tokio::task::spawn_blocking(move || read_at(&handle, Buffer::new(2), 7)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), content[7..9]);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let unreadable = File::open(directory.path()).unwrap();
        let mut body = FileBody::new(unreadable, [Segment::File(0..1)], Counter::default());
        assert!(matches!(body.frame().await, Some(Err(FileError::Read(_)))));
    }
}
