//! Reads the responses of one connection, and checks every byte.

use watari_http1::{Content, Decoder, Limits};

use super::Ask;
use crate::network::Network;
use crate::origin::VERSION;
use crate::resource::{Kind, difference};

/// The responses to requests that were sent in this order.
pub(super) struct Responses {
    network: Network,
    /// The number of the client.
    number: u64,
    input: Vec<u8>,
    /// The response in progress, once its head has come.
    body: Option<Body>,
    /// No origin has answered the last request.
    pub(super) is_unavailable: bool,
}

struct Body {
    decoder: Decoder,
    position: u64,
    /// The version of the resource that the head announces.
    version: u64,
    /// No origin has answered.
    is_unavailable: bool,
}

impl Responses {
    pub(super) fn new(network: Network, number: u64) -> Self {
        Self { network, number, input: Vec::new(), body: None, is_unavailable: false }
    }

    pub(super) fn push(&mut self, plaintext: &[u8]) {
        self.input.extend_from_slice(plaintext);
    }

    /// The bytes that follow the last response.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Whether all that has come was checked.
    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Checks what has come of the response to `ask`. Returns the number of bytes of its content, and whether it is
    /// complete.
    pub(super) fn take(&mut self, ask: &Ask) -> (u64, bool) {
        self.is_unavailable = false;
        if self.body.is_none() && !self.take_head(ask) {
            return (0, false);
        }
        let Some(mut body) = self.body.take() else { return (0, false) };
        let before = body.position;
        loop {
            let decoded = match body.decoder.decode(&self.input, &Limits::default()) {
                Ok(decoded) => decoded,
                Err(fault) => {
                    self.violation(&format!("got malformed content: {fault}"));
                    return (0, false);
                }
            };
            let data = &self.input[decoded.data];
            let right = ask.resource.bytes(body.version, body.position..body.position + data.len() as u64);
            if let Some(at) = difference(data, &right) {
                self.violation(&format!(
                    "got a wrong byte at {} of {}",
                    body.position + at as u64,
                    ask.resource.path()
                ));
                return (0, false);
            }
            let has_data = !data.is_empty();
            body.position += data.len() as u64;
            self.input.drain(..decoded.consumed);
            if decoded.is_end {
                self.on_end(ask, &body);
                return (body.position - before, true);
            }
            if !has_data {
                let taken = body.position - before;
                self.body = Some(body);
                return (taken, false);
            }
        }
    }

    fn take_head(&mut self, ask: &Ask) -> bool {
        let Some(at) = self.input.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
        let head: Vec<_> = self.input.drain(..at + 4).collect();
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let field = |name: &str| head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let len = field("content-length").and_then(|len| len.parse().ok());
        let version = field(VERSION).map_or(0, |version| version.parse().unwrap_or(0));
        let is_unavailable = head.starts_with("http/1.1 502 ") && ask.resource.kind != Kind::File && !ask.is_upload;
        let content = match (ask.is_upload, ask.resource.kind) {
            _ if is_unavailable => len.map(Content::Length),
            (true, _) => head.starts_with("http/1.1 204 ").then_some(Content::None),
            (false, Kind::Tunnel) => field("upgrade").map(|_| Content::None),
            (false, kind) if kind.has_no_len() => field("transfer-encoding").map(|_| Content::Chunked),
            (false, _) => len.filter(|len| *len == ask.resource.len).map(Content::Length),
        };
        let status = if ask.resource.kind == Kind::Tunnel { "http/1.1 101 " } else { "http/1.1 200 " };
        let is_right = is_unavailable || ask.is_upload || head.starts_with(status);
        let Some(content) = content.filter(|_| is_right) else {
            self.violation(&format!("got another head: {head}"));
            return false;
        };
        self.body = Some(Body { decoder: Decoder::new(content), position: 0, version, is_unavailable });
        true
    }

    fn on_end(&mut self, ask: &Ask, body: &Body) {
        if body.is_unavailable {
            self.is_unavailable = true;
            return self.network.count(|figures| figures.unavailable += 1);
        }
        let has_content = !ask.is_upload && ask.resource.kind != Kind::Tunnel;
        let len = if has_content { ask.resource.len } else { 0 };
        if body.position != len {
            self.violation(&format!("got {} of {len} bytes of {}", body.position, ask.resource.path()));
        }
        self.network.count(|figures| figures.chunked += u64::from(ask.resource.kind.has_no_len()));
    }

    fn violation(&self, what: &str) {
        self.network.violation(format!("client {} {what}", self.number));
    }
}
