//! Splits the input into records (RFC 8446, section 5.1; RFC 5246, section 6.2.1).
//!
//! rustls gets exactly one record at a time. If it got the client's Finished together with application data, it would
//! open both. The extraction of the secrets would then drop the opened data without an error.

use watari_record::{FRAGMENT_LEN_MAX, HEADER_LEN, RECORD_LEN_MAX};

use crate::error::HandshakeError;

const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// `change_cipher_spec`, alert, handshake, `application_data`.
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// An invalid record header: rustls fails with an alert, sealed as the state of the handshake requires.
pub(crate) const IMPOSSIBLE_HEADER: [u8; HEADER_LEN] = [HANDSHAKE, 3, 3, 0xff, 0xff];

/// The first record of `input`, header included, or `None` if it is not complete.
pub(crate) fn first_record(input: &[u8]) -> Result<Option<&[u8]>, HandshakeError> {
    match header(input) {
        Some(header) if !CONTENT_TYPES.contains(&header[0]) || header[1] != 3 => Err(HandshakeError::Garbage),
        Some(header) => whole(input, header, RECORD_LEN_MAX),
        None => Ok(None),
    }
}

/// Like [`first_record`], before the `ClientHello`: the input may not be TLS.
pub(crate) fn first_hello_record(input: &[u8]) -> Result<Option<&[u8]>, HandshakeError> {
    let Some(header) = header(input) else {
        return Ok(None);
    };
    match header {
        [HANDSHAKE, 3, ..] => whole(input, header, HEADER_LEN + FRAGMENT_LEN_MAX),
        _ if is_http(header) => Err(HandshakeError::PlainHttp),
        _ if is_sslv2_hello(header) => Err(HandshakeError::Sslv2Hello),
        [content_type, 3, ..] if CONTENT_TYPES.contains(&content_type) => Err(HandshakeError::Unexpected(
            "a record of another type than handshake, before the ClientHello".to_owned(),
        )),
        _ => Err(HandshakeError::Garbage),
    }
}

/// Refuses a complete `record` that is empty and must not be (RFC 8446, sections 5.1 and 5.4: `unexpected_message`; RFC
/// 5246, section 6.2.1). rustls would send `decode_error`.
pub(crate) fn check_fragment(record: &[u8]) -> Result<(), HandshakeError> {
    let is_empty = record.len() == HEADER_LEN && record[0] != APPLICATION_DATA;
    if is_empty { Err(HandshakeError::Unexpected("an empty record".to_owned())) } else { Ok(()) }
}

fn header(input: &[u8]) -> Option<[u8; HEADER_LEN]> {
    input.first_chunk().copied()
}

fn whole(input: &[u8], header: [u8; HEADER_LEN], record_len_max: usize) -> Result<Option<&[u8]>, HandshakeError> {
    let record_len = HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]]));
    if record_len > record_len_max {
        return Err(HandshakeError::RecordTooLong);
    }
    Ok(input.get(..record_len))
}

fn is_http(start: [u8; HEADER_LEN]) -> bool {
    const STARTS: [&[u8]; 10] =
        [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELET", b"CONNE", b"OPTIO", b"TRACE", b"PATCH", b"PRI *"];
    STARTS.iter().any(|method| start.starts_with(method))
}

/// A `ClientHello` in the format of SSL 2.0 (RFC 5246, appendix E.2): a two-byte length with the top bit set, message
/// type 1, and the requested version.
fn is_sslv2_hello(start: [u8; HEADER_LEN]) -> bool {
    start[0] & 0x80 != 0 && start[2] == 1 && matches!([start[3], start[4]], [0, 2] | [3, _])
}
