//! A stream to another process of this machine that carries frames, and file descriptors with them (`SCM_RIGHTS`,
//! unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most descriptors of a frame. The system allows 253 in one message.
pub const DESCRIPTORS_MAX: usize = 252;

/// The longest frame, in bytes.
const FRAME_LEN_MAX: usize = 64 << 20;

/// The length of a frame and the number of its descriptors, as 32-bit numbers.
const HEAD_LEN: usize = 8;

/// One end of the stream. No method may be cancelled in the middle of a frame.
pub struct DescriptorStream {
    stream: UnixStream,
    /// Descriptors that have come. The system delivers those of a frame with its first byte.
    descriptors: Vec<OwnedFd>,
}

impl DescriptorStream {
    /// Both ends: one for this process, and the descriptor of the other. Must be called in a tokio runtime.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        Ok((Self::open(near.into())?, far.into()))
    }

    /// The end of which another process has passed on the descriptor. Must be called in a tokio runtime.
    pub fn open(end: OwnedFd) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::from(end);
        stream.set_nonblocking(true)?;
        Ok(Self { stream: UnixStream::from_std(stream)?, descriptors: Vec::new() })
    }

    /// Sends a frame, and copies of `descriptors` with it.
    ///
    /// # Errors
    /// `InvalidInput`: more bytes or descriptors than a frame may have. Others: the other process has gone, or the
    /// system refuses.
    pub async fn send(&mut self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (len, count) = (u32::try_from(frame.len()), u32::try_from(descriptors.len()));
        let (Ok(len), Ok(count), true, true) =
            (len, count, frame.len() <= FRAME_LEN_MAX, descriptors.len() <= DESCRIPTORS_MAX)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut head = [0; HEAD_LEN];
        head[..4].copy_from_slice(&len.to_be_bytes());
        head[4..].copy_from_slice(&count.to_be_bytes());
        let mut sent = self.write(&[&head, frame], descriptors).await?;
        while sent < HEAD_LEN {
            sent += self.write(&[&head[sent..], frame], &[]).await?;
        }
        sent -= HEAD_LEN;
        while sent < frame.len() {
            sent += self.write(&[&frame[sent..], &[]], &[]).await?;
        }
        Ok(())
    }

    /// Receives a frame. `None`: the other process has closed its end.
    ///
    /// # Errors
    /// `InvalidData`: no frame, or its descriptors are missing. Others: the stream has failed.
    pub async fn receive(&mut self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut head = [0; HEAD_LEN];
        if !self.read_all(&mut head).await? {
            return Ok(None);
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let (len, count) = (number(&head[..4]), number(&head[4..]));
        if len > FRAME_LEN_MAX || count > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut frame = vec![0; len];
        if !self.read_all(&mut frame).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.descriptors.len() != count {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some((frame, std::mem::take(&mut self.descriptors))))
    }

    /// Ends both directions at once. The other process can send nothing more. What it has sent can still be received.
    pub fn shut_down(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both)?)
    }

    async fn write(&self, parts: &[&[u8]; 2], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let send = || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let parts = parts.map(IoSlice::new);
            Ok(retry_on_intr(|| sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL))?)
        };
        self.stream.async_io(Interest::WRITABLE, send).await
    }

    /// Fills `buffer`. Returns `false` if the stream has ended before its first byte.
    async fn read_all(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(true)
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { stream, descriptors } = self;
        let receive = || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let read = retry_on_intr(|| {
                recvmsg(&*stream, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            })?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    descriptors.extend(came);
                }
            }
            Ok(read.bytes)
        };
        stream.async_io(Interest::READABLE, receive).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;

    fn file(content: &str) -> File {
        let mut file = tempfile();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    /// An open file without a name.
    fn tempfile() -> File {
        rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
    }

    #[tokio::test]
    async fn frames_come_with_their_descriptors() {
        let (mut near, far) = DescriptorStream::pair().unwrap();
        let mut far = DescriptorStream::open(far).unwrap();
        let large = vec![7; 3 << 20];
        let send = tokio::spawn(async move {
            let files = ["one", "two"].map(file);
            near.send(b"first", &files.each_ref().map(AsFd::as_fd)).await.unwrap();
            near.send(b"", &[]).await.unwrap();
            near.send(&large, &[file("three").as_fd()]).await.unwrap();
        });
        let mut received = Vec::new();
        while let Some((frame, descriptors)) = far.receive().await.unwrap() {
            let contents = descriptors.into_iter().map(|descriptor| {
                let (mut file, mut content) = (File::from(descriptor), String::new());
                file.rewind().unwrap();
                file.read_to_string(&mut content).unwrap();
                content
            });
            received.push((frame.len(), contents.collect::<Vec<_>>().join(" ")));
        }
        send.await.unwrap();
        assert_eq!(received, [(5, "one two".to_owned()), (0, String::new()), (3 << 20, "three".to_owned())]);
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_frame_is_an_error() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut far = DescriptorStream::open(far.into()).unwrap();
        (&near).write_all(&[0, 0, 0, 9, 0, 0, 0, 0, 1]).unwrap();
        drop(near);
        assert_eq!(far.receive().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn too_much_is_refused() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut far = DescriptorStream::open(far.into()).unwrap();
        (&near).write_all(&[255, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(far.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let descriptors = [near.as_fd(); DESCRIPTORS_MAX + 1];
        let mut near = DescriptorStream::open(near.try_clone().unwrap().into()).unwrap();
        assert_eq!(near.send(b"", &descriptors).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
