//! What the fields of a head say about its content and its connection.

use super::Field;
use super::host::is_host;

/// The facts of a head, from one pass over its fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each holds independently of the others")]
pub(crate) struct Facts {
    pub(crate) length: Length,
    /// `Content-Length` has a comma.
    pub(crate) has_length_list: bool,
    /// `Content-Length` has several fields or elements.
    pub(crate) has_surplus_length: bool,
    pub(crate) coding: Coding,
    pub(crate) host: Host,
    /// `Connection: close` (RFC 9112, section 9.6).
    pub(crate) closes: bool,
    /// `Connection: keep-alive` (RFC 9112, appendix C.2.2).
    pub(crate) keeps_alive: bool,
    /// `Connection: upgrade`, and an `Upgrade` field (RFC 9110, section 7.8).
    pub(crate) has_upgrade_option: bool,
    pub(crate) has_upgrade: bool,
    /// `Expect: 100-continue` (RFC 9110, section 10.1.1).
    pub(crate) expects_continue: bool,
    /// `TE: trailers` (RFC 9110, section 10.1.4).
    pub(crate) takes_trailers: bool,
}

/// The value of `Content-Length` (RFC 9110, section 8.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Length {
    #[default]
    Absent,
    Known(u64),
    /// Not a number of at most 64 bits, or several that differ.
    Invalid,
}

/// The elements of `Transfer-Encoding` (RFC 9112, section 6.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Coding {
    #[default]
    Absent,
    /// `chunked` alone.
    Chunked,
    /// `chunked`, and other elements after it, `chunked` among them.
    ChunkedFirst,
    /// Something else, and `chunked` after it.
    ChunkedLast,
    /// Something else, or nothing.
    Other,
}

/// The `Host` fields (RFC 9112, section 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Host {
    #[default]
    Absent,
    One,
    /// Several, or an invalid one.
    Invalid,
}

impl Facts {
    pub(crate) fn of(fields: &[Field<'_>]) -> Self {
        let mut facts = Self::default();
        for field in fields {
            facts.add(field.name, field.value);
        }
        facts
    }

    fn add(&mut self, name: &str, value: &[u8]) {
        // Compares lengths first, because this runs for every field of every head.
        match name.len() {
            2 if name.eq_ignore_ascii_case("te") => self.takes_trailers |= lists(value, b"trailers"),
            4 if name.eq_ignore_ascii_case("host") => self.add_host(value),
            6 if name.eq_ignore_ascii_case("expect") => self.expects_continue |= lists(value, b"100-continue"),
            7 if name.eq_ignore_ascii_case("upgrade") => self.has_upgrade = true,
            10 if name.eq_ignore_ascii_case("connection") => self.add_connection(value),
            14 if name.eq_ignore_ascii_case("content-length") => self.add_length(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.add_coding(value),
            _ => {}
        }
    }

    fn add_host(&mut self, value: &[u8]) {
        self.host = if self.host == Host::Absent && is_host(value) { Host::One } else { Host::Invalid };
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.has_upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn add_length(&mut self, value: &[u8]) {
        self.has_surplus_length |= self.length != Length::Absent;
        for (index, element) in value.split(|byte| *byte == b',').enumerate() {
            self.has_length_list |= index > 0;
            self.length = match (self.length, number(element.trim_ascii())) {
                (Length::Absent, Some(length)) => Length::Known(length),
                (Length::Known(before), Some(length)) if before == length => Length::Known(length),
                _ => Length::Invalid,
            };
        }
        self.has_surplus_length |= self.has_length_list;
    }

    fn add_coding(&mut self, value: &[u8]) {
        for element in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.coding = match self.coding {
                Coding::Absent if element.eq_ignore_ascii_case(b"chunked") => Coding::Chunked,
                Coding::Other if element.eq_ignore_ascii_case(b"chunked") => Coding::ChunkedLast,
                Coding::ChunkedLast if element.eq_ignore_ascii_case(b"chunked") => Coding::ChunkedFirst,
                Coding::Absent | Coding::Other | Coding::ChunkedLast => Coding::Other,
                // An empty element after `chunked` is no coding, but not all recipients see it so.
                Coding::Chunked if element.is_empty() => Coding::Other,
                Coding::Chunked | Coding::ChunkedFirst => Coding::ChunkedFirst,
            };
        }
    }
}

/// `1*DIGIT` of at most 64 bits. `parse` alone would accept a sign.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The elements of a list that are not empty (RFC 9110, section 5.6.1).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Whether a list has an element, in any case. Parameters are ignored.
fn lists(value: &[u8], token: &[u8]) -> bool {
    let names = elements(value).filter_map(|element| element.split(|byte| *byte == b';').next());
    names.into_iter().any(|name| name.trim_ascii().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(fields: &[(&str, &str)]) -> Facts {
        let fields: Vec<_> = fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        Facts::of(&fields)
    }

    #[test]
    fn lengths() {
        const MAX: &str = "18446744073709551615";
        for (values, length, is_surplus, is_list) in [
            (&[][..], Length::Absent, false, false),
            (&["0"], Length::Known(0), false, false),
            (&["007"], Length::Known(7), false, false),
            (&[MAX], Length::Known(u64::MAX), false, false),
            (&["3", "3"], Length::Known(3), true, false),
            (&["3", "03"], Length::Known(3), true, false),
            (&["3, 3"], Length::Known(3), true, true),
            (&["3", "4"], Length::Invalid, true, false),
            (&["3,4"], Length::Invalid, true, true),
            (&["3,"], Length::Invalid, true, true),
            (&["x", "3"], Length::Invalid, true, false),
            (&["18446744073709551616"], Length::Invalid, false, false),
            (&["99999999999999999999999"], Length::Invalid, false, false),
            (&[""], Length::Invalid, false, false),
            (&["+3"], Length::Invalid, false, false),
            (&["-3"], Length::Invalid, false, false),
            (&["0x3"], Length::Invalid, false, false),
            (&["3 3"], Length::Invalid, false, false),
            (&["3;"], Length::Invalid, false, false),
        ] {
            let fields: Vec<_> = values.iter().map(|value| ("Content-Length", *value)).collect();
            let facts = facts(&fields);
            let found = (facts.length, facts.has_surplus_length, facts.has_length_list);
            assert_eq!(found, (length, is_surplus, is_list), "{values:?}");
        }
    }

    #[test]
    fn codings() {
        for (values, coding) in [
            (&[][..], Coding::Absent),
            (&["chunked"], Coding::Chunked),
            (&["Chunked"], Coding::Chunked),
            (&["chunked, chunked"], Coding::ChunkedFirst),
            (&["chunked", "chunked"], Coding::ChunkedFirst),
            (&["chunked", "gzip"], Coding::ChunkedFirst),
            (&["gzip, chunked"], Coding::ChunkedLast),
            (&["gzip", "chunked"], Coding::ChunkedLast),
            (&["gzip, chunked, gzip"], Coding::Other),
            (&["gzip, chunked", "chunked"], Coding::ChunkedFirst),
            (&["xchunked"], Coding::Other),
            (&["chunked;a"], Coding::Other),
            (&["\"chunked\""], Coding::Other),
            (&["chunked,"], Coding::Other),
            (&[",chunked"], Coding::ChunkedLast),
            (&["", "chunked"], Coding::ChunkedLast),
            (&["chunked", ""], Coding::Other),
            (&[""], Coding::Other),
        ] {
            let fields: Vec<_> = values.iter().map(|value| ("transfer-encoding", *value)).collect();
            assert_eq!(facts(&fields).coding, coding, "{values:?}");
        }
    }

    #[test]
    fn hosts() {
        for (values, host) in [
            (&[][..], Host::Absent),
            (&["a"], Host::One),
            (&["a", "a"], Host::Invalid),
            (&["", "a"], Host::Invalid),
            (&["u@a"], Host::Invalid),
        ] {
            let fields: Vec<_> = values.iter().map(|value| ("HOST", *value)).collect();
            assert_eq!(facts(&fields).host, host, "{values:?}");
        }
    }

    #[test]
    fn options() {
        let none = Facts::default();
        for (name, value, expected) in [
            ("connection", "Close", Facts { closes: true, ..none }),
            ("Connection", "x, keep-alive ,,", Facts { keeps_alive: true, ..none }),
            ("CONNECTION", "Upgrade", Facts { has_upgrade_option: true, ..none }),
            ("connection", "closed", none),
            ("upgrade", "websocket", Facts { has_upgrade: true, ..none }),
            ("expect", "100-Continue", Facts { expects_continue: true, ..none }),
            ("expect", "200-ok", none),
            ("te", "gzip, Trailers;q=1", Facts { takes_trailers: true, ..none }),
            ("te", "gzip", none),
            ("content-lengt", "3", none),
            ("content-lengths", "3", none),
            ("content_length", "3", none),
        ] {
            assert_eq!(facts(&[(name, value)]), expected, "{name}: {value}");
        }
    }
}
