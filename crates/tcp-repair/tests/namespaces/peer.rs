//! Both ends of a connection: what they send depends on the position alone, and each checks what it receives.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::lab::WAIT_MAX;

/// Byte `at` of a direction.
fn byte(direction: u64, at: u64) -> u8 {
    let mixed = (at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ direction).rotate_left(23);
    mixed.wrapping_mul(0xff51_afd7_ed55_8ccd).to_be_bytes()[(at % 8) as usize]
}

const UP: u64 = 1;
const DOWN: u64 = 2;

fn pattern(direction: u64, from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| byte(direction, at)).collect()
}

fn check(direction: u64, from: u64, received: &[u8]) {
    for (at, &received) in (from..).zip(received) {
        assert_eq!(received, byte(direction, at), "byte {at} of direction {direction}");
    }
}

/// The lengths of writes and reads: small and large ones in turn.
fn len(at: u64) -> usize {
    const LENS: [usize; 8] = [1, 70_000, 1448, 300, 16_384, 9, 200_000, 4096];
    LENS[(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize]
}

/// The client: threads that write `up` bytes and read `down` bytes.
pub(crate) struct Client(Vec<JoinHandle<()>>);

impl Client {
    pub(crate) fn start(stream: &TcpStream, up: u64, down: u64) -> Self {
        Self(vec![writer(stream, up), reader(stream, down)])
    }

    pub(crate) fn join(self) {
        for thread in self.0 {
            thread.join().unwrap();
        }
    }
}

pub(crate) fn writer(stream: &TcpStream, up: u64) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let mut at = 0;
        while at < up {
            let piece = pattern(UP, at, len(at).min((up - at) as usize));
            stream.write_all(&piece).unwrap();
            at += piece.len() as u64;
        }
    })
}

pub(crate) fn reader(stream: &TcpStream, down: u64) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let (mut at, mut buffer) = (0, vec![0; 200_000]);
        while at < down {
            let wanted = len(at).min((down - at) as usize);
            let read = match stream.read(&mut buffer[..wanted]) {
                // A read with a timeout does not go on after the process was stopped and continued (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert_ne!(read, 0, "the stream ended at {at}");
            check(DOWN, at, &buffer[..read]);
            at += read as u64;
        }
    })
}

/// The server's end, which does not block.
pub(crate) struct Server {
    pub(crate) stream: TcpStream,
    /// Written bytes that the stream has not taken yet.
    pub(crate) waiting: Vec<u8>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Server {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, waiting: Vec::new(), sent: 0, received: 0 }
    }

    /// Sends until `down` bytes have been sent, and receives until `up` bytes have been received.
    pub(crate) fn pump(&mut self, up: u64, down: u64) {
        let deadline = Instant::now() + WAIT_MAX;
        while self.sent < down || self.received < up || !self.waiting.is_empty() {
            let is_moved = self.write(down) | (self.received < up && self.read());
            assert!(Instant::now() < deadline, "sent {} of {down}, received {} of {up}", self.sent, self.received);
            if !is_moved {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, self.received < up);
                flags.set(PollFlags::OUT, self.sent < down || !self.waiting.is_empty());
                let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                match poll(&mut [PollFd::from_borrowed_fd(self.stream.as_fd(), flags)], Some(&timeout)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Writes once. Returns whether the stream took something.
    pub(crate) fn write(&mut self, down: u64) -> bool {
        if self.waiting.is_empty() {
            self.waiting = pattern(DOWN, self.sent, len(self.sent).min((down - self.sent) as usize));
            self.sent += self.waiting.len() as u64;
        }
        if self.waiting.is_empty() {
            return false;
        }
        match self.stream.write(&self.waiting) {
            Ok(taken) => {
                self.waiting.drain(..taken);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self) -> bool {
        let mut buffer = vec![0; len(self.received)];
        match self.stream.read(&mut buffer) {
            Ok(0) => panic!("the stream ended at {}", self.received),
            Ok(read) => {
                check(UP, self.received, &buffer[..read]);
                self.received += read as u64;
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}
