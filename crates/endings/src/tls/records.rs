//! Parses the records of one direction, as far as their headers were captured.

use crate::sequence::{is_before, is_upto};
use crate::tls::version::TlsVersion;

/// Content types of records (RFC 8446, section 5.1).
pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

/// The longest record without its header, in octets (RFC 5246, section 6.2.3).
const RECORD_LEN_MAX: u16 = (1 << 14) + 2048;
const HEADER_LEN: usize = 5;

/// The state of the parser.
#[derive(Debug)]
pub(crate) struct Records {
    at: u32,
    header: [u8; HEADER_LEN],
    /// Octets of the header that were read.
    have: u8,
    kind: u8,
    /// Octets left of the record.
    left: u16,
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A record begins, with `len` octets behind its header.
    Record { kind: u8, len: u16 },
    /// Octets of a record.
    Fragment { kind: u8, bytes: &'a [u8] },
    /// Octets that were not captured.
    Hidden,
}

/// Whether these can be the first octets of a record.
pub(crate) fn begins_record(data: &[u8]) -> bool {
    match *data {
        [kind, 3, minor, high, low, ..] => {
            let len = u16::from_be_bytes([high, low]);
            (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind) && minor <= 4 && 0 < len && len <= RECORD_LEN_MAX
        }
        _ => false,
    }
}

/// Whether a record of this length is as short as one that is not a request: an alert, or a frame that manages an
/// HTTP/2 connection. A request may be shorter than some of those if its fields repeat the previous request's (RFC
/// 7541).
pub(crate) fn is_small(len: u16, version: Option<TlsVersion>) -> bool {
    let added: &[u16] = match version {
        Some(TlsVersion::TLS_1_3) => &ADDED[..1],
        Some(_) => &ADDED[1..],
        None => &ADDED,
    };
    added.iter().any(|added| len <= ALERT_LEN + added || MANAGING_LENS.iter().any(|managing| len == managing + added))
}

/// The octets that encryption adds: a type and a tag in TLS 1.3 (RFC 8446, section 5.2); before that a tag (RFC 7905),
/// and with GCM half of the nonce too (RFC 5288).
const ADDED: [u16; 3] = [17, 16, 24];
const ALERT_LEN: u16 = 2;
/// Frame lengths of `SETTINGS` acknowledgments; of `WINDOW_UPDATE` and `RST_STREAM`; of `PING` and `GOAWAY` (RFC 9113,
/// section 6).
const MANAGING_LENS: [u16; 3] = [9, 13, 17];

impl Records {
    pub(crate) const fn new(at: u32) -> Self {
        Self { at, header: [0; HEADER_LEN], have: 0, kind: 0, left: 0 }
    }

    /// Skips octets that were seen before. After a gap, parsing resumes at a segment that begins with a record.
    pub(crate) fn locate(&mut self, position: &mut u32, data: &mut &[u8], len: &mut u32) {
        if is_before(self.at, *position) && begins_record(data) {
            self.at = *position;
            (self.have, self.left) = (0, 0);
        }
        let seen = self.at.wrapping_sub(*position);
        if is_before(self.at, *position) || is_upto(position.wrapping_add(*len), self.at) {
            *len = 0;
        }
        *data = data.get(seen as usize..).unwrap_or_default();
        *len = len.saturating_sub(seen);
    }

    /// The next part of a segment that has `len` octets left, of which `data` were captured.
    pub(crate) fn next<'a>(&mut self, data: &mut &'a [u8], len: &mut u32) -> Option<Piece<'a>> {
        if *len == 0 {
            return None;
        }
        if data.is_empty() {
            self.pass_hidden(len);
            return Some(Piece::Hidden);
        }
        if self.left > 0 {
            let bytes = take(data, self.left.into());
            self.left -= bytes.len() as u16;
            self.pass(bytes.len() as u32, len);
            return Some(Piece::Fragment { kind: self.kind, bytes });
        }
        let missing = HEADER_LEN - usize::from(self.have);
        let bytes = take(data, missing);
        let have = usize::from(self.have);
        self.header[have..have + bytes.len()].copy_from_slice(bytes);
        self.have += bytes.len() as u8;
        self.pass(bytes.len() as u32, len);
        if usize::from(self.have) < HEADER_LEN {
            return self.next(data, len);
        }
        self.have = 0;
        if !begins_record(&self.header) {
            // Not a record, or the stream was lost. Parsing resumes at a later segment.
            self.pass(*len, len);
            return Some(Piece::Hidden);
        }
        self.kind = self.header[0];
        self.left = u16::from_be_bytes([self.header[3], self.header[4]]);
        Some(Piece::Record { kind: self.kind, len: self.left })
    }

    /// The rest of a segment was not captured. It may end within the record or behind it.
    fn pass_hidden(&mut self, len: &mut u32) {
        let is_within = *len <= u32::from(self.left);
        self.left = if is_within { self.left - *len as u16 } else { 0 };
        self.have = 0;
        self.pass(*len, len);
    }

    fn pass(&mut self, octets: u32, len: &mut u32) {
        self.at = self.at.wrapping_add(octets);
        *len = len.saturating_sub(octets);
    }
}

fn take<'a>(data: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = data.split_at(len.min(data.len()));
    *data = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_manages_a_connection_is_no_request_and_a_repeated_request_is_one() {
        let (one_two, one_three) = (Some(TlsVersion::TLS_1_2), Some(TlsVersion::TLS_1_3));
        for (plain, is_managing) in
            [(2, true), (9, true), (13, true), (14, false), (15, false), (17, true), (18, false)]
        {
            assert_eq!(is_small(plain + 17, one_three), is_managing, "{plain}");
            for added in [16, 24] {
                assert_eq!(is_small(plain + added, one_two), is_managing, "{plain} {added}");
            }
        }
        assert!(!is_small(120, None) && is_small(19, None));
    }

    #[test]
    fn kinds_are_those_of_tls() {
        assert!(begins_record(&[HANDSHAKE, 3, 1, 0, 5]) && begins_record(&[ALERT, 3, 3, 0, 2, 2, 40]));
        for wrong in
            [&[19, 3, 1, 0, 5][..], &[22, 2, 1, 0, 5], &[22, 3, 1, 0, 0], &[22, 3, 1, 0xff, 0], &[22, 3], b"GET /"]
        {
            assert!(!begins_record(wrong), "{wrong:?}");
        }
    }
}
