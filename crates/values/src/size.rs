//! Sizes as text in arguments: a number of bytes, possibly with a fraction and a unit.
//!
//! `512`, `100MB`, `1.5GiB`

use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;

/// A number of bytes. Its text form has decimal units (`100 MB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// The text is not a size, or one of 2^64 bytes or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of bytes below 2^64, such as 100MB or 1GiB")]
pub struct InvalidSize;

impl FromStr for Size {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        // The parser returns its maximum for a greater number.
        let size = text.parse().map_or(u64::MAX, |size: ByteSize| size.as_u64());
        if size < u64::MAX { Ok(Self(size)) } else { Err(InvalidSize) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize::b(self.0).display().si().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_written() {
        let cases = [("512", 512), ("100MB", 100_000_000), ("1.5GiB", 3 << 29), ("1 kB", 1000)];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MB", "-1", "1XB", "18446744073709551615", "99999999999999999999999"] {
            assert_eq!(text.parse::<Size>(), Err(InvalidSize), "{text}");
        }
        assert_eq!(Size(100_000_000).to_string(), "100.0 MB");
    }
}
