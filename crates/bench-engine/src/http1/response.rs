//! Reads one response from bytes as they arrive (RFC 9112, sections 4 to 7).

use std::mem::MaybeUninit;

use http::{HeaderName, HeaderValue};

use super::chunked::Chunked;
use super::fault::ProtocolFault;
use crate::keep::Keep;

/// Maximum number of header fields of one response.
const FIELDS_MAX: usize = 128;
/// Maximum length of status line and header fields together, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 16;

/// Reads one response. Bytes go in with [`ResponseReader::feed`]; the connection's end, with [`ResponseReader::end`].
///
/// ```text
/// Head --> Body --> Done
///   ^-(1xx)-'
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    state: ResponseState,
    to_head: bool,
    status: u16,
    persistent: bool,
    body_bytes: u64,
    interim: usize,
    keep: Keep,
}

#[derive(Debug)]
enum ResponseState {
    /// In the status line and the header fields. Contains the bytes of earlier reads.
    Head(Vec<u8>),
    Body(Framing),
    Done,
}

/// How the body ends (RFC 9112, section 6.3).
#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
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
        Self {
            state: ResponseState::Head(Vec::new()),
            to_head,
            status: 0,
            persistent: true,
            body_bytes: 0,
            interim: 0,
            keep,
        }
    }

    /// The status; 0 until the head was read.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request after this response.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Bytes of the body read so far.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    pub fn into_keep(self) -> Keep {
        self.keep
    }

    /// Reads the next bytes of the connection.
    pub fn feed(&mut self, input: &[u8]) -> Result<Fed, ProtocolFault> {
        let mut at = 0;
        loop {
            match &mut self.state {
                ResponseState::Head(_) => match self.head(&input[at..])? {
                    Some(taken) => at += taken,
                    None => return Ok(Fed::More),
                },
                ResponseState::Body(framing) => {
                    let (keep, body_bytes) = (&mut self.keep, &mut self.body_bytes);
                    let (taken, done) = framing.feed(&input[at..], &mut |data| {
                        *body_bytes += data.len() as u64;
                        keep.body(data);
                    })?;
                    at += taken;
                    if !done {
                        return Ok(Fed::More);
                    }
                    self.state = ResponseState::Done;
                }
                ResponseState::Done => return Ok(Fed::Done(at)),
            }
        }
    }

    /// Reads the end of the connection. This is valid for a body that lasts until then.
    pub fn end(&mut self) -> Result<(), ProtocolFault> {
        match self.state {
            ResponseState::Done | ResponseState::Body(Framing::UntilClose) => Ok(()),
            _ => Err(ProtocolFault::Truncated),
        }
    }

    /// Reads bytes of the head. Returns the number of consumed bytes once the head is complete.
    fn head(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolFault> {
        let ResponseState::Head(before) = &mut self.state else { unreachable!("only called in the head") };
        let had = before.len();
        // Most heads arrive in one piece, and are parsed in place.
        let mut joined = std::mem::take(before);
        let whole = if had == 0 {
            input
        } else {
            joined.extend_from_slice(&input[..input.len().min(HEAD_BYTES_MAX)]);
            &joined
        };
        // Uninitialized, because filling it would cost as much as parsing.
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        match httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, whole, &mut fields) {
            Ok(httparse::Status::Complete(length)) => {
                self.state = self.after_head(&response)?;
                Ok(Some(length - had))
            }
            Ok(httparse::Status::Partial) if whole.len() >= HEAD_BYTES_MAX => Err(ProtocolFault::TooLong),
            Ok(httparse::Status::Partial) => {
                if had == 0 {
                    joined.extend_from_slice(input);
                }
                self.state = ResponseState::Head(joined);
                Ok(None)
            }
            Err(httparse::Error::TooManyHeaders) => Err(ProtocolFault::TooLong),
            Err(_) => Err(ProtocolFault::Head),
        }
    }

    /// Derives the next state from the head.
    fn after_head(&mut self, response: &httparse::Response<'_, '_>) -> Result<ResponseState, ProtocolFault> {
        let status = response.code.ok_or(ProtocolFault::Head)?;
        let fields = Fields::read(response)?;
        if status == 101 {
            return Err(ProtocolFault::Upgrade);
        }
        if (100..200).contains(&status) {
            self.interim += 1;
            return if self.interim > INTERIM_MAX {
                Err(ProtocolFault::TooLong)
            } else {
                Ok(ResponseState::Head(Vec::new()))
            };
        }
        self.status = status;
        self.persistent = if response.version == Some(1) { !fields.close } else { fields.keep_alive };
        if let Some(headers) = self.keep.headers() {
            for field in response.headers.iter() {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ProtocolFault::Head)?;
                headers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| ProtocolFault::Head)?);
            }
        }
        if self.to_head || matches!(status, 204 | 304) {
            return Ok(ResponseState::Done);
        }
        let framing = match (fields.chunked, fields.length) {
            (true, Some(_)) => return Err(ProtocolFault::Length),
            (true, None) => Framing::Chunked(Chunked::new()),
            (false, Some(0)) => return Ok(ResponseState::Done),
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        self.persistent &= !matches!(framing, Framing::UntilClose);
        Ok(ResponseState::Body(framing))
    }
}

impl Framing {
    /// Reads bytes of the body. Returns the number of consumed bytes, and whether the body is complete.
    fn feed(&mut self, input: &[u8], data: &mut impl FnMut(&[u8])) -> Result<(usize, bool), ProtocolFault> {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                data(&input[..taken]);
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            Self::Chunked(chunked) => {
                let taken = chunked.feed(input, data)?;
                Ok((taken, chunked.is_done()))
            }
            Self::UntilClose => {
                data(input);
                Ok((input.len(), false))
            }
        }
    }
}

/// The header fields that determine the end of the message and of the connection.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    fn read(response: &httparse::Response<'_, '_>) -> Result<Self, ProtocolFault> {
        let mut fields = Self::default();
        for field in response.headers.iter() {
            // Compares lengths first, because this runs for every field of every response.
            match field.name.len() {
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    let length = content_length(field.value).ok_or(ProtocolFault::Length)?;
                    if fields.length.is_some_and(|before| before != length) {
                        return Err(ProtocolFault::Length);
                    }
                    fields.length = Some(length);
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    // The client requested no coding other than chunked (it sends no TE).
                    if fields.chunked || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                        return Err(ProtocolFault::Length);
                    }
                    fields.chunked = true;
                }
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    for option in field.value.split(|&byte| byte == b',') {
                        fields.close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}

/// Digits only, without the sign that `str::parse` would accept.
fn content_length(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0, |length, &byte| byte.is_ascii_digit().then(|| length * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn read(input: &[u8]) -> Result<(ResponseReader, Fed), ProtocolFault> {
        let mut reader = ResponseReader::new(false, Keep::answer(1 << 20));
        let fed = reader.feed(input)?;
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
        assert_eq!(cut.end(), Err(ProtocolFault::Truncated));
    }

    #[test]
    fn interim_responses_are_passed_over() {
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let (reader, fed) = read(&[&interim[..], b"HTTP/1.1 204 No Content\r\n\r\n"].concat()).unwrap();
        assert_eq!((reader.status(), fed), (204, Fed::Done(interim.len() + 27)));
        assert_eq!(read(&interim.repeat(INTERIM_MAX + 1)).unwrap_err(), ProtocolFault::TooLong);
    }

    #[test]
    fn the_response_to_head_has_no_body() {
        let mut reader = ResponseReader::new(true, Keep::default());
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(reader.feed(response).unwrap(), Fed::Done(response.len()));
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
    fn unclear_lengths_are_refused() {
        for fields in [
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ] {
            let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nabc");
            assert_eq!(read(response.as_bytes()).unwrap_err(), ProtocolFault::Length, "{fields}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        assert_eq!(read(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap_err(), ProtocolFault::Head);
        assert_eq!(read(b"HTTP/1.1 200 OK\r\n no-name\r\n\r\n").unwrap_err(), ProtocolFault::Head);
        let endless = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; HEAD_BYTES_MAX]].concat();
        assert_eq!(read(&endless).unwrap_err(), ProtocolFault::TooLong);
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
                let fed = reader.feed(&response[pair[0]..pair[1]]).unwrap();
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
