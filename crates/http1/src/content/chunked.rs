//! The chunked transfer coding, apart from data and trailers (RFC 9112, section 7.1).
//!
//! ```text
//!   Size --digit--> Digits --CR--> SizeLf --LF--> Data (size > 0), Trailers (size 0)
//!                    | | '--SP, HTAB--> Padding --CR--> SizeLf      Data --all data--> DataCr --CR--> DataLf --LF--> Size
//!                    | '---------;---.     | ;
//!                    '--digit--.     v     v
//!                   Digits <---'    Extension --CR--> SizeLf
//! ```
//!
//! | state | byte | next |
//! | --- | --- | --- |
//! | Size, Digits | hexadecimal digit, at most 16 | Digits |
//! | Digits, Padding | SP, HTAB: senders pad sizes | Padding |
//! | Digits, Padding | `;` | Extension |
//! | Extension | HTAB, and all but control characters | Extension |
//! | Digits, Padding, Extension | CR | `SizeLf` |
//! | `SizeLf` | LF | Data, or Trailers after a size of 0 |
//! | `DataCr` | CR | `DataLf` |
//! | `DataLf` | LF | Size |
//! | any | other | a fault |
//!
//! A bare LF ends no line here, unlike in heads. RFC 9112, section 2.2, allows it for start lines and fields only, and
//! recipients disagree about it.

use crate::fault::ContentFault;
use crate::limits::{EXTENSION_BYTES_MAX, SIZE_DIGITS_MAX};

/// Where in the coding the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Size,
    Digits { size: u64, digits: u8 },
    Padding { size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    DataCr,
    DataLf,
}

/// What follows a byte of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Control(Control),
    /// A chunk with this much data, more than 0.
    Data(u64),
    /// The last chunk has ended.
    Trailers,
}

impl Control {
    /// Consumes a byte. Counts bytes of extensions in `extension_bytes`.
    pub(super) fn on_byte(self, byte: u8, extension_bytes: &mut u32) -> Result<After, ContentFault> {
        let next = match self {
            Self::Size => digit(0, 0, byte)?,
            Self::Digits { size, digits } => match byte {
                b'\r' | b';' | b' ' | b'\t' => self.after_size(size, byte, extension_bytes)?,
                _ => digit(size, digits, byte)?,
            },
            Self::Padding { size } | Self::Extension { size } => self.after_size(size, byte, extension_bytes)?,
            Self::SizeLf { size } => {
                return match (byte, size) {
                    (b'\n', 0) => Ok(After::Trailers),
                    (b'\n', size) => Ok(After::Data(size)),
                    _ => Err(ContentFault::ChunkSize),
                };
            }
            Self::DataCr if byte == b'\r' => Self::DataLf,
            Self::DataLf if byte == b'\n' => Self::Size,
            Self::DataCr | Self::DataLf => return Err(ContentFault::ChunkEnd),
        };
        Ok(After::Control(next))
    }

    fn after_size(self, size: u64, byte: u8, extension_bytes: &mut u32) -> Result<Self, ContentFault> {
        if byte == b'\r' {
            return Ok(Self::SizeLf { size });
        }
        *extension_bytes += 1;
        if *extension_bytes > EXTENSION_BYTES_MAX {
            return Err(ContentFault::ExtensionLen);
        }
        match (self, byte) {
            (Self::Extension { .. }, b'\t' | b' '..=b'~' | 0x80..) | (_, b';') => Ok(Self::Extension { size }),
            (Self::Extension { .. }, _) => Err(ContentFault::Extension),
            (_, b' ' | b'\t') => Ok(Self::Padding { size }),
            _ => Err(ContentFault::ChunkSize),
        }
    }
}

fn digit(size: u64, digits: u8, byte: u8) -> Result<Control, ContentFault> {
    let digit = char::from(byte).to_digit(16).ok_or(ContentFault::ChunkSize)?;
    if digits == SIZE_DIGITS_MAX {
        return Err(ContentFault::ChunkLen);
    }
    Ok(Control::Digits { size: size << 4 | u64::from(digit), digits: digits + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte that occurs in the table, and others.
    const BYTES: [u8; 13] = [b'0', b'a', b'F', b'g', b';', b' ', b'\t', b'\r', b'\n', 0, b'"', 0x7f, 0x80];

    fn name(after: Result<After, ContentFault>) -> String {
        match after {
            Ok(After::Control(control)) => format!("{control:?}").split(' ').next().unwrap_or_default().to_owned(),
            Ok(After::Data(_)) => "Data".to_owned(),
            Ok(After::Trailers) => "Trailers".to_owned(),
            Err(fault) => format!("!{fault:?}"),
        }
    }

    #[test]
    fn every_transition() {
        let (extension, padding, digits) = ("Extension", "Padding", "Digits");
        let (size, end, control, lf) = ("!ChunkSize", "!ChunkEnd", "!Extension", "SizeLf");
        let table: [(Control, [&str; 13]); 9] = [
            (Control::Size, [digits, digits, digits, size, size, size, size, size, size, size, size, size, size]),
            (
                Control::Digits { size: 1, digits: 1 },
                [digits, digits, digits, size, extension, padding, padding, lf, size, size, size, size, size],
            ),
            (
                Control::Digits { size: 1, digits: SIZE_DIGITS_MAX },
                [
                    "!ChunkLen",
                    "!ChunkLen",
                    "!ChunkLen",
                    size,
                    extension,
                    padding,
                    padding,
                    lf,
                    size,
                    size,
                    size,
                    size,
                    size,
                ],
            ),
            (
                Control::Padding { size: 1 },
                [size, size, size, size, extension, padding, padding, lf, size, size, size, size, size],
            ),
            (
                Control::Extension { size: 1 },
                [
                    extension, extension, extension, extension, extension, extension, extension, lf, control, control,
                    extension, control, extension,
                ],
            ),
            (
                Control::SizeLf { size: 0 },
                [size, size, size, size, size, size, size, size, "Trailers", size, size, size, size],
            ),
            (
                Control::SizeLf { size: 1 },
                [size, size, size, size, size, size, size, size, "Data", size, size, size, size],
            ),
            (Control::DataCr, [end, end, end, end, end, end, end, "DataLf", end, end, end, end, end]),
            (Control::DataLf, [end, end, end, end, end, end, end, end, "Size", end, end, end, end]),
        ];
        for (control, expected) in table {
            let found = BYTES.map(|byte| name(control.on_byte(byte, &mut 0)));
            assert_eq!(found, expected, "{control:?}");
        }
    }

    #[test]
    fn sizes_have_64_bits() {
        let mut control = Control::Size;
        for _ in 0..SIZE_DIGITS_MAX {
            let Ok(After::Control(next)) = control.on_byte(b'f', &mut 0) else { panic!("a digit is accepted") };
            control = next;
        }
        assert_eq!(control, Control::Digits { size: u64::MAX, digits: SIZE_DIGITS_MAX });
    }

    #[test]
    fn extensions_are_bounded() {
        let mut bytes = EXTENSION_BYTES_MAX;
        for control in
            [Control::Digits { size: 1, digits: 1 }, Control::Padding { size: 1 }, Control::Extension { size: 1 }]
        {
            assert_eq!(control.on_byte(b';', &mut bytes), Err(ContentFault::ExtensionLen));
            assert_eq!(control.on_byte(b'\r', &mut bytes), Ok(After::Control(Control::SizeLf { size: 1 })));
        }
    }
}
