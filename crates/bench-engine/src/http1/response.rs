//! Reads one response from bytes as they arrive. `watari_http1` parses them; this stores what it cannot consume yet.

use std::mem::MaybeUninit;

use watari_http1::{Client, Limits, Next, ResponseHead};

use super::fault::ProtocolFault;
use crate::keep::Keep;

/// Maximum number of header fields of one response.
const FIELDS_MAX: usize = 128;

/// Limits on the responses of servers. The load generator has no use for stricter ones.
const LIMITS: Limits = Limits { head_bytes_max: 64 << 10, fields_max: FIELDS_MAX, target_bytes_max: 0 };

/// The last head of a final response, and the state after it. Many responses of a server have equal heads, and a
/// comparison costs a tenth of parsing.
#[derive(Debug, Default)]
pub struct LastHead {
    raw: Vec<u8>,
    to_head: bool,
    /// The state after the head, and the status.
    after: Option<(Client, u16)>,
}

/// Reads one response. Bytes go in with [`ResponseReader::feed`]; the connection's end, with [`ResponseReader::end`].
#[derive(Debug)]
pub struct ResponseReader {
    client: Client,
    to_head: bool,
    /// An incomplete head or trailer section.
    unconsumed: Vec<u8>,
    status: u16,
    body_bytes: u64,
    keep: Keep,
}

/// The result of [`ResponseReader::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// It consumed all bytes, and needs more.
    More,
    /// The response is complete. The number is that of the consumed bytes.
    Done(usize),
}

impl ResponseReader {
    /// A reader of one response. `to_head`: the request was HEAD, so the response has no body.
    pub fn new(to_head: bool, keep: Keep) -> Self {
        let mut client = Client::new(LIMITS);
        client.expect_response(to_head).expect("a new connection is idle");
        Self { client, to_head, unconsumed: Vec::new(), status: 0, body_bytes: 0, keep }
    }

    /// The status; 0 until the head was read.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request after this response, which is complete.
    pub fn is_persistent(&self) -> bool {
        self.client.clone().next_exchange() == Some(Next::Idle)
    }

    /// Bytes of the body read so far.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    pub fn into_keep(self) -> Keep {
        self.keep
    }

    /// Reads the next bytes of the connection. `last` may be of any connection.
    pub fn feed(&mut self, input: &[u8], last: &mut LastHead) -> Result<Fed, ProtocolFault> {
        // Most responses arrive in one piece, and are parsed in place.
        let before = self.unconsumed.len();
        if before == 0 {
            let consumed = self.consume(input, last)?;
            if self.client.is_response_complete() {
                return Ok(Fed::Done(consumed));
            }
            self.unconsumed.extend_from_slice(&input[consumed..]);
            return Ok(Fed::More);
        }
        let mut joined = std::mem::take(&mut self.unconsumed);
        joined.extend_from_slice(input);
        let consumed = self.consume(&joined, last)?;
        if self.client.is_response_complete() {
            return Ok(Fed::Done(consumed - before));
        }
        joined.drain(..consumed);
        self.unconsumed = joined;
        Ok(Fed::More)
    }

    /// Reads the end of the connection. This is valid for a body that lasts until then.
    pub fn end(&mut self) -> Result<(), ProtocolFault> {
        if self.status == 0 && !self.unconsumed.is_empty() {
            // What is no head was not cut.
            ResponseHead::parse(&self.unconsumed, &mut room())?;
        }
        Ok(self.client.end_of_input()?)
    }

    /// Reads heads and content, as far as they are complete. Returns the number of consumed bytes.
    fn consume(&mut self, input: &[u8], last: &mut LastHead) -> Result<usize, ProtocolFault> {
        let mut consumed = 0;
        while self.status == 0 {
            match self.consume_head(&input[consumed..], last)? {
                Some(len) => consumed += len,
                None => return Ok(consumed),
            }
        }
        while consumed < input.len() && !self.client.is_response_complete() {
            let rest = &input[consumed..];
            let decoded = self.client.decode(rest)?;
            consumed += decoded.consumed;
            if decoded.consumed == 0 {
                break;
            }
            self.body_bytes += decoded.data.len() as u64;
            self.keep.body(&rest[decoded.data]);
        }
        Ok(consumed)
    }

    /// Reads a head, which may be that of an informational response. Returns its length, if it is complete.
    fn consume_head(&mut self, input: &[u8], last: &mut LastHead) -> Result<Option<usize>, ProtocolFault> {
        let keeps_headers = self.keep.headers().is_some();
        if !keeps_headers && let Some((client, status)) = last.after(input, self.to_head) {
            (self.client, self.status) = (client.clone(), *status);
            return Ok(Some(last.raw.len()));
        }
        let mut room = room();
        let Some((head, _)) = self.client.parse_head(input, &mut room)? else { return Ok(None) };
        let len = head.raw.len();
        if head.status >= 200 {
            self.status = head.status;
            last.store(head.raw, self.to_head, &self.client, head.status);
            if let Some(headers) = self.keep.headers() {
                *headers = head.into_parts()?.headers;
            }
        }
        Ok(Some(len))
    }
}

impl LastHead {
    /// The state after the head at the start of `input`, if that is equal, and answers a request of the same kind.
    fn after(&self, input: &[u8], to_head: bool) -> Option<&(Client, u16)> {
        self.after.as_ref().filter(|_| self.to_head == to_head && input.starts_with(&self.raw))
    }

    fn store(&mut self, raw: &[u8], to_head: bool, client: &Client, status: u16) {
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        (self.to_head, self.after) = (to_head, Some((client.clone(), status)));
    }
}

/// Room for the fields of a head. It is not initialized, because that would cost as much as parsing.
fn room<'a>() -> [MaybeUninit<watari_http1::Field<'a>>; FIELDS_MAX] {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use watari_http1::{ContentFault, ResponseFault, Truncated};

    use super::*;

    fn read(input: &[u8]) -> Result<(ResponseReader, Fed), ProtocolFault> {
        let mut reader = ResponseReader::new(false, Keep::answer(1 << 20));
        let fed = reader.feed(input, &mut LastHead::default())?;
        Ok((reader, fed))
    }

    fn body(reader: ResponseReader) -> Vec<u8> {
        reader.into_keep().kept().unwrap().1.to_vec()
    }

    #[test]
    fn a_length_ends_the_body() {
        let (reader, fed) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP").unwrap();
        assert_eq!(fed, Fed::Done(41));
        assert_eq!((reader.status(), reader.is_persistent(), reader.body_bytes()), (200, true, 3));
        assert_eq!(body(reader), b"abc");
    }

    #[test]
    fn without_a_length_the_connection_ends_the_body() {
        let (mut reader, fed) = read(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert_eq!((fed, reader.is_persistent()), (Fed::More, false));
        reader.end().unwrap();
        let (mut cut, _) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc").unwrap();
        assert_eq!(cut.end(), Err(Truncated::Content.into()));
    }

    #[test]
    fn interim_responses_are_passed_over() {
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let (reader, fed) = read(&[&interim[..], b"HTTP/1.1 204 No Content\r\n\r\n"].concat()).unwrap();
        assert_eq!((reader.status(), fed), (204, Fed::Done(interim.len() + 27)));
        assert_eq!(read(&interim.repeat(17)).unwrap_err(), ResponseFault::Informational.into());
    }

    #[test]
    fn the_response_to_head_has_no_body() {
        let mut reader = ResponseReader::new(true, Keep::default());
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(reader.feed(response, &mut LastHead::default()).unwrap(), Fed::Done(response.len()));
    }

    #[test]
    fn connections_last_as_their_version_says() {
        for (head, persistent) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: foo, Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(read(head.as_bytes()).unwrap().0.is_persistent(), persistent, "{head}");
        }
    }

    #[test]
    fn a_malformed_head_is_refused_when_it_comes() {
        for (response, fault) in [
            (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], ResponseFault::Version),
            (b"HTTP/1.1 200 OK\r\n no-name\r\n", ResponseFault::FieldLine),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", ResponseFault::Lengths),
            (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", ResponseFault::Upgrade),
        ] {
            assert_eq!(read(response).unwrap_err(), fault.into(), "{}", response.escape_ascii());
        }
    }

    #[test]
    fn a_head_that_is_cut_may_be_malformed() {
        let end = |pieces: [&[u8]; 2]| {
            let mut reader = ResponseReader::new(false, Keep::default());
            for piece in pieces {
                assert_eq!(reader.feed(piece, &mut LastHead::default()), Ok(Fed::More));
            }
            reader.end()
        };
        assert_eq!(end([b"HTTP/1.1 200", b" OK\r\nX: x"]), Err(Truncated::Head.into()));
        assert_eq!(end([b"HTTP/1.1 200", b" OK\r\n no-name"]), Err(ResponseFault::FieldLine.into()));
    }

    #[test]
    fn heads_are_bounded() {
        let head = |fields: &str| read(format!("HTTP/1.1 204 No Content\r\n{fields}\r\n").as_bytes());
        assert!(head(&"x: y\r\n".repeat(FIELDS_MAX)).is_ok());
        assert_eq!(head(&"x: y\r\n".repeat(FIELDS_MAX + 1)).unwrap_err(), ResponseFault::Fields.into());
        let long = |len: usize| head(&format!("x: {}\r\n", "y".repeat(len)));
        assert!(long(LIMITS.head_bytes_max - 100).is_ok());
        assert_eq!(long(LIMITS.head_bytes_max).unwrap_err(), ResponseFault::HeadLen.into());
    }

    #[test]
    fn chunks_become_a_body() {
        let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            4;name=\"x\"\r\nwata\r\n002\r\nri\r\n0\r\nEtag: x\r\n\r\nnext";
        for cut in 0..response.len() - 4 {
            let mut reader = ResponseReader::new(false, Keep::answer(1 << 20));
            let (first, second) = response.split_at(cut);
            assert_eq!(reader.feed(first, &mut LastHead::default()), Ok(Fed::More), "cut at {cut}");
            assert_eq!(reader.feed(second, &mut LastHead::default()), Ok(Fed::Done(second.len() - 4)), "cut at {cut}");
            assert!(reader.is_persistent());
            assert_eq!((reader.body_bytes(), &body(reader)[..]), (6, &b"watari"[..]), "cut at {cut}");
        }
        let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n";
        assert_eq!(read(response).unwrap_err(), ContentFault::ChunkEnd.into());
    }

    #[test]
    fn an_equal_head_is_not_parsed_again() {
        let mut last = LastHead::default();
        let mut read = |response: &[u8], to_head| {
            let mut reader = ResponseReader::new(to_head, Keep::default());
            let fed = reader.feed(response, &mut last).unwrap();
            (fed, reader.status(), reader.body_bytes(), reader.is_persistent(), last.raw.len())
        };
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        let head = response.len() - 3;
        for _ in 0..2 {
            assert_eq!(read(response, false), (Fed::Done(head + 3), 200, 3, false, head));
        }
        // The response to HEAD has no body.
        assert_eq!(read(response, true), (Fed::Done(head), 200, 0, false, head));
        assert_eq!(read(b"HTTP/1.1 103 E\r\n\r\nHTTP/1.1 204 No\r\n\r\n", false), (Fed::Done(37), 204, 0, true, 19));
        assert_eq!(read(&response[..head], false), (Fed::More, 200, 0, false, head));
    }

    proptest! {
        #[test]
        fn any_split_reads_alike(body_bytes in prop::collection::vec(any::<u8>(), 0..400), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let mut response = format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {}\r\n\r\n", body_bytes.len()).into_bytes();
            response.extend_from_slice(&body_bytes);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(response.len())).collect();
            cuts.extend([0, response.len()]);
            cuts.sort_unstable();
            let mut reader = ResponseReader::new(false, Keep::answer(1 << 20));
            for pair in cuts.windows(2) {
                let fed = reader.feed(&response[pair[0]..pair[1]], &mut LastHead::default()).unwrap();
                prop_assert_eq!(fed, if pair[1] == response.len() { Fed::Done(pair[1] - pair[0]) } else { Fed::More });
                if pair[1] == response.len() {
                    break;
                }
            }
            prop_assert_eq!(body(reader), body_bytes);
        }

        #[test]
        fn nothing_makes_it_panic(input in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[&b"HTTP/1.1 200 OK\r\n"[..], &input].concat());
            let _ = read(&input);
        }
    }
}
