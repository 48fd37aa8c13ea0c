#![allow(clippy::unwrap_used)]

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

/// More than the buffers of some connections and a pipe together, and not a multiple of a buffer size.
const LONG: usize = 20_000_003;

/// Longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Returns the flow's end of a connection, and the other end.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(connect, listener.accept());
    let (near, far) = (near.unwrap(), far.unwrap().0);
    tcp::prepare(&near).unwrap();
    tcp::prepare(&far).unwrap();
    (near, far)
}

/// A connection that delivers all of `bytes`, and then the end.
async fn source(bytes: Vec<u8>) -> TcpStream {
    let (near, mut far) = connection().await;
    tokio::spawn(async move { far.write_all(&bytes).await });
    near
}

/// Reads from `far` until its stream ends.
fn read_all(mut far: TcpStream) -> JoinHandle<Vec<u8>> {
    tokio::spawn(async move {
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        read
    })
}

/// Nearby positions have different bytes.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A flow, and the byte counts that a relay keeps of it.
#[derive(Default)]
struct Counted {
    direction: Direction,
    read: usize,
    written: Written,
}

impl Counted {
    /// Reads if nothing waits. Returns `false` at the end of the stream.
    async fn pass(&mut self, from: &TcpStream, to: &TcpStream) -> bool {
        timeout(WAIT_MAX, from.readable()).await.expect("there is more to read").unwrap();
        match self.direction.pass(from, to) {
            Ok((0, _)) => return false,
            Ok((read, written)) => self.count(read, written),
            Err(Broken::Reading(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error:?}"),
        }
        true
    }

    /// Writes what `to` takes. Returns whether it took anything.
    fn write(&mut self, to: &TcpStream) -> bool {
        let written = self.direction.write_to(to).unwrap();
        self.count(0, written);
        written != Written::default()
    }

    fn count(&mut self, read: usize, written: Written) {
        self.read += read;
        self.written.bytes += written.bytes;
        self.written.spliced += written.spliced;
        assert_eq!(self.read, self.written.bytes + self.direction.waiting());
        assert!(!self.direction.is_empty() || self.direction.behind.is_empty(), "bytes behind nothing");
    }

    /// Passes the whole stream; the peer reads `to`.
    async fn pass_all(&mut self, from: &TcpStream, to: &TcpStream) {
        loop {
            if !self.direction.is_empty() {
                timeout(WAIT_MAX, to.writable()).await.expect("the peer reads").unwrap();
                self.write(to);
            } else if !self.pass(from, to).await {
                return;
            }
        }
    }

    /// Passes while the peer does not read `to`, until bytes wait that it does not take; in a pipe if there is one.
    async fn pass_until_stuck(&mut self, from: &TcpStream, to: &TcpStream) {
        while self.direction.is_empty() || self.write(to) {
            if self.direction.is_empty() {
                // Whether or not the last read was large.
                self.direction.is_bulk = true;
                assert!(self.pass(from, to).await, "the stream ended before anything had to wait");
            }
        }
    }
}

#[tokio::test]
async fn a_long_stream_is_spliced_and_every_byte_is_counted() {
    let from = source(pattern(LONG)).await;
    let (to, far) = connection().await;
    let read = read_all(far);
    let mut counted = Counted::default();
    counted.pass_all(&from, &to).await;
    drop(to);
    assert!(read.await.unwrap() == pattern(LONG));
    assert_eq!((counted.read, counted.written.bytes), (LONG, LONG));
    assert!(counted.written.spliced > LONG / 2, "{:?}", counted.written);
}

#[tokio::test]
async fn the_end_of_a_stream_is_read_where_nothing_can_be_written_any_more() {
    let (from, near) = connection().await;
    let (to, _far) = connection().await;
    tcp::finish(&to);
    drop(near);
    assert!(!Counted::default().pass(&from, &to).await);
}

#[tokio::test]
async fn small_reads_never_touch_a_pipe() {
    let (from, mut near) = connection().await;
    let (to, mut far) = connection().await;
    let mut counted = Counted::default();
    for request in 1..=5 {
        near.write_all(&[7; 1000]).await.unwrap();
        while counted.written.bytes < request * 1000 {
            counted.pass(&from, &to).await;
        }
        far.read_exact(&mut [0; 1000]).await.unwrap();
    }
    assert_eq!(counted.written.spliced, 0);
    assert!(counted.direction.is_empty() && counted.direction.bytes.capacity() == 0);
}

#[tokio::test]
async fn small_reads_after_a_long_stream_are_copied_again() {
    let (from, mut near) = connection().await;
    let (to, mut far) = connection().await;
    let mut counted = Counted { direction: Direction { is_bulk: true, ..Direction::default() }, ..Counted::default() };
    for (request, spliced) in [(1, 1000), (2, 1000)] {
        near.write_all(&[7; 1000]).await.unwrap();
        while counted.written.bytes < request * 1000 {
            counted.pass(&from, &to).await;
        }
        far.read_exact(&mut [0; 1000]).await.unwrap();
        assert_eq!(counted.written.spliced, spliced);
    }
}

/// As in a move: the target gets a head, and then the bytes that the source did not get. Repeated, also with heads that
/// were written in part or not at all.
#[tokio::test]
async fn what_waits_in_a_pipe_goes_to_another_connection_behind_a_head() {
    let from = source(pattern(LONG)).await;
    let mut counted = Counted::default();
    let mut arrived = Vec::new();
    let (mut to, mut far) = connection().await;
    counted.pass_until_stuck(&from, &to).await;
    for number in 0..5 {
        assert!(counted.direction.pipe.is_some(), "nothing waits in a pipe");
        // This head is never written, because its connection is gone.
        counted.direction.put_in_front(b"of no peer".to_vec());
        drop(to);
        arrived.extend(read_all(far).await.unwrap());
        (to, far) = connection().await;
        let head = format!("head {number};").into_bytes();
        counted.direction.put_in_front(head.clone());
        counted.pass_until_stuck(&from, &to).await;
        let mut read = vec![0; head.len()];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(read, head);
    }
    let read = read_all(far);
    counted.pass_all(&from, &to).await;
    drop(to);
    arrived.extend(read.await.unwrap());
    assert!(arrived == pattern(LONG));
}

/// As in a move: the rest of the source's stream is read while the client takes nothing, and then written in order
/// before the target's bytes.
#[tokio::test]
async fn what_is_read_behind_waiting_bytes_is_written_after_them() {
    for (in_pipe, len_max) in [(true, 1000), (true, 1 << 20), (false, 1000), (false, 1 << 20)] {
        let pipes: Vec<_> = if in_pipe { Vec::new() } else { std::iter::from_fn(Pipe::take).collect() };
        let (stream, others) = (pattern(LONG), b"bytes of the target".repeat(1000));
        let (from, mut near) = connection().await;
        let (to, far) = connection().await;
        let mut counted = Counted::default();
        let (held, mut behind) = (Gauge::default(), 0);
        let sent = stream.clone();
        let sender = tokio::spawn(async move { near.write_all(&sent).await });
        counted.pass_until_stuck(&from, &to).await;
        assert_eq!(counted.direction.pipe.is_some(), in_pipe);
        while timeout(WAIT_MAX, from.readable()).await.is_ok() {
            match counted.direction.read_behind(&from, len_max, &held) {
                Ok(0) => break,
                Ok(read) => {
                    counted.count(read, Written::default());
                    behind += read;
                    assert_eq!(held.get().cast_unsigned() as usize, behind);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        sender.await.unwrap().unwrap();
        assert_eq!(counted.read, LONG);
        assert_eq!(counted.direction.behind.iter().any(|part| part.pipe.is_some()), in_pipe);
        let read = read_all(far);
        counted.pass_all(&source(others.clone()).await, &to).await;
        drop(to);
        assert!(read.await.unwrap() == [stream, others].concat());
        assert!(counted.direction.is_empty() && counted.direction.bytes.capacity() == 0);
        assert_eq!((held.get(), counted.direction.behind.capacity()), (0, 0));
        drop(pipes);
    }
}

/// Bytes in memory, in a pipe and behind them pass to another process, in this order and once.
#[tokio::test]
async fn another_process_gets_all_bytes_that_wait() {
    let from = source(pattern(LONG)).await;
    let (to, far) = connection().await;
    let mut counted = Counted::default();
    counted.pass_until_stuck(&from, &to).await;
    assert!(counted.direction.pipe.is_some());
    while counted.direction.behind.len() < 3 {
        timeout(WAIT_MAX, from.readable()).await.expect("there is more to read").unwrap();
        if let Ok(read) = counted.direction.read_behind(&from, READ_LEN, &Gauge::default()) {
            counted.count(read, Written::default());
        }
    }
    counted.direction.put_in_front(b"head".to_vec());
    let waiting = counted.direction.snapshot().unwrap();
    assert_eq!((&waiting.bytes[..4], waiting.head_len), (&b"head"[..], 4));
    // This process can go on as well.
    assert_eq!(counted.direction.snapshot().unwrap(), waiting);
    counted.count(0, Written::default());

    counted.direction = Direction::restore(waiting);
    counted.count(0, Written::default());
    let read = read_all(far);
    counted.pass_all(&from, &to).await;
    drop(to);
    let read = read.await.unwrap();
    let head = read.windows(4).position(|bytes| bytes == b"head").expect("the head was written");
    assert!([&read[..head], &read[head + 4..]].concat() == pattern(LONG));
}

#[tokio::test]
async fn bytes_are_copied_where_no_pipe_is_to_be_had() {
    let pipes: Vec<_> = std::iter::from_fn(Pipe::take).collect();
    let from = source(pattern(LONG)).await;
    let (to, far) = connection().await;
    let mut counted = Counted::default();
    counted.pass_until_stuck(&from, &to).await;
    let read = read_all(far);
    counted.pass_all(&from, &to).await;
    drop(to);
    assert!(read.await.unwrap() == pattern(LONG));
    assert_eq!(counted.written, Written { bytes: LONG, spliced: 0 });
    drop(pipes);
}

#[test]
fn a_head_is_not_counted_as_of_the_stream() {
    let mut direction = Direction { bytes: b"stream".to_vec(), ..Direction::default() };
    direction.put_in_front(b"head".to_vec());
    assert_eq!(direction.take(3), 0);
    assert_eq!(direction.take(3), 2);
    assert_eq!(direction.take(4), 4);
    assert!(direction.is_empty());
}

#[test]
fn another_head_replaces_what_is_left_of_the_first() {
    let mut direction = Direction::default();
    direction.put_in_front(b"first".to_vec());
    direction.bytes.extend_from_slice(b"stream");
    assert_eq!(direction.take(2), 0);
    direction.put_in_front(b"second".to_vec());
    assert_eq!(direction.bytes, b"secondstream");
    assert_eq!(direction.head_left, 6);
}
