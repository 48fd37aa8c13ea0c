//! Searches for the end of a head that arrives in pieces.

use memchr::memchr;

use crate::limits::EMPTY_LINES_MAX;

/// The search for the empty line that ends a head, or a trailer section. It takes linear time in total, however the
/// head is split.
///
/// Lines may end with a bare LF (RFC 9112, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadEnd {
    /// The bytes from the start of the head that contain no end. The byte at this index is yet to be searched.
    scanned: usize,
}

impl HeadEnd {
    /// Whether the head is complete. `head` begins with the head's first byte, and may continue after its end. Further
    /// calls get the same bytes and those that came since.
    pub fn is_complete(&mut self, head: &[u8]) -> bool {
        // Most heads come alone, in one piece.
        if head.ends_with(b"\r\n\r\n") {
            return true;
        }
        while let Some(offset) = memchr(b'\n', head.get(self.scanned..).unwrap_or_default()) {
            let line_end = self.scanned + offset;
            match head[line_end + 1..] {
                [b'\n', ..] | [b'\r', b'\n', ..] => return true,
                [] | [b'\r'] => {
                    self.scanned = line_end;
                    return false;
                }
                _ => self.scanned = line_end + 1,
            }
        }
        self.scanned = head.len();
        false
    }

    /// The bytes that contain no end, for an export.
    pub(crate) fn scanned(self) -> usize {
        self.scanned
    }

    pub(crate) fn at(scanned: usize) -> Self {
        Self { scanned }
    }

    /// Whether a head has begun to arrive.
    pub(crate) fn has_begun(self) -> bool {
        self.scanned > 0
    }
}

/// The length of the empty lines before a request line (RFC 9112, section 2.2). `None` if there are too many.
pub(crate) fn empty_lines_len(input: &[u8]) -> Option<usize> {
    let mut len = 0;
    for _ in 0..=EMPTY_LINES_MAX {
        match input[len..] {
            [b'\r', b'\n', ..] => len += 2,
            [b'\n', ..] => len += 1,
            _ => return Some(len),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_at_an_empty_line() {
        for (head, is_complete) in [
            (&b"a\r\n\r\n"[..], true),
            (b"a\n\n", true),
            (b"a\n\r\n", true),
            (b"a\r\n\n", true),
            (b"a\r\n\r\nbody", true),
            (b"a\nb\n\nbody\n", true),
            (b"", false),
            (b"a", false),
            (b"a\r\n", false),
            (b"a\r\n\r", false),
            (b"a\r\n\rb\r\n", false),
            (b"a\r\r\n", false),
            (b"a\r\nb\r\n", false),
        ] {
            assert_eq!(HeadEnd::default().is_complete(head), is_complete, "{:?}", head.escape_ascii().to_string());
        }
    }

    #[test]
    fn no_byte_is_searched_twice_except_an_undecided_line_end() {
        let mut end = HeadEnd::default();
        for (head, scanned) in [(&b"ab"[..], 2), (b"ab\r", 3), (b"ab\r\n", 3), (b"ab\r\n\r", 3), (b"ab\r\n\rc", 6)] {
            assert!(!end.is_complete(head));
            assert_eq!(end.scanned, scanned, "{:?}", head.escape_ascii().to_string());
        }
        assert!(end.is_complete(b"ab\r\n\rc\n\n"));
    }

    #[test]
    fn some_empty_lines_may_precede_a_request() {
        for (input, len) in [(&b""[..], Some(0)), (b"GET", Some(0)), (b"\r\nG", Some(2)), (b"\n\r\n\r", Some(3))] {
            assert_eq!(empty_lines_len(input), len);
        }
        assert_eq!(empty_lines_len(&b"\r\n".repeat(EMPTY_LINES_MAX)), Some(2 * EMPTY_LINES_MAX));
        assert_eq!(empty_lines_len(&b"\r\n".repeat(EMPTY_LINES_MAX + 1)), None);
    }
}
