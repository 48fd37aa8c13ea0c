//! The origin's end of a tunnel.

use std::time::Duration;

use crate::network::{Network, Reset};
use crate::resource::{Resource, difference};
use crate::socket::Socket;

/// The longest piece, in bytes.
const PIECE_LEN_MAX: u64 = 8 * 1024;

/// Sends the bytes of a resource, and gets those that the client has for it.
pub(super) struct Tunnel {
    resource: Resource,
    output: Vec<u8>,
    /// The next byte to send, and the next to get.
    sent: u64,
    received: u64,
    has_ended: bool,
    has_client_ended: bool,
    /// Where the origin resets it.
    cut: Option<u64>,
    /// When the next piece is there.
    next: Duration,
}

/// How a tunnel goes on.
pub(super) enum Progress {
    /// The next piece is there after a pause.
    Pauses,
    Waits,
    /// Both directions are complete, or the connection is lost.
    Over,
}

impl Tunnel {
    /// `output` is written first.
    pub(super) fn new(resource: Resource, output: Vec<u8>, cut: Option<u64>) -> Self {
        let next = Duration::ZERO;
        Self { resource, output, sent: 0, received: 0, has_ended: false, has_client_ended: false, cut, next }
    }

    /// The longest pause between two pieces, in milliseconds. Without one, the client's pace decides.
    pub(super) fn pause_ms_max(&self) -> u64 {
        [0, 5, 60][self.resource.file as usize % 3]
    }

    /// Continues as far as possible. The next piece follows after `pause`.
    pub(super) fn step(
        &mut self,
        network: &Network,
        socket: &mut Socket,
        input: &mut Vec<u8>,
        pause: Duration,
    ) -> Progress {
        loop {
            if !self.receive(network, socket, input) {
                return Progress::Over;
            }
            let Ok(written) = socket.write(&self.output) else { return Progress::Over };
            self.output.drain(..written);
            if !self.output.is_empty() {
                return Progress::Waits;
            }
            if self.cut.is_some_and(|at| at <= self.sent) {
                network.count(|figures| figures.cut_by_origins += 1);
                return Progress::Over;
            }
            if self.sent == self.resource.len {
                if !self.has_ended {
                    socket.shut_down();
                    self.has_ended = true;
                }
                if self.has_client_ended {
                    socket.fin_on_close();
                    return Progress::Over;
                }
                return Progress::Waits;
            }
            if network.now() < self.next {
                return Progress::Waits;
            }
            let len = network.random(|random| random.within(1..PIECE_LEN_MAX)).min(self.resource.len - self.sent);
            self.output = self.resource.bytes(0, self.sent..self.sent + len);
            self.sent += len;
            self.next = network.now() + pause;
            if !pause.is_zero() {
                let Ok(written) = socket.write(&self.output) else { return Progress::Over };
                self.output.drain(..written);
                return Progress::Pauses;
            }
        }
    }

    /// Checks what the client has sent. Returns whether the connection goes on.
    fn receive(&mut self, network: &Network, socket: &Socket, input: &mut Vec<u8>) -> bool {
        let upload = self.resource.upload();
        while !self.has_client_ended {
            if input.is_empty() {
                match socket.read(16 * 1024) {
                    None => return true,
                    Some(Err(Reset)) => return false,
                    Some(Ok(bytes)) => *input = bytes,
                }
            }
            self.has_client_ended = input.is_empty();
            let end = self.received + input.len() as u64;
            if end > upload.len || difference(input, &upload.bytes(0, self.received..end)).is_some() {
                network.violation(format!("an origin got a wrong byte after {} in a tunnel", self.received));
            }
            self.received = end;
            input.clear();
        }
        if self.received != upload.len {
            network.violation(format!("an origin got a clean end after {} of {} bytes", self.received, upload.len));
        }
        !socket.is_reset()
    }
}
