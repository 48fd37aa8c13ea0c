//! Histograms as text in the format of the `HdrHistogram` tools: base64 of the "V2 deflate" encoding.

use std::io::Read;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

/// A histogram in nanoseconds, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Encoded(String);

impl Encoded {
    /// Encodes a histogram.
    pub fn of<T: Counter>(histogram: &Histogram<T>) -> Self {
        Self(BASE64_STANDARD.encode(to_bytes(histogram)))
    }

    /// Decodes the histogram. It does not trust the size in the header: the histogram may have at most three
    /// significant digits, and needs no more memory than one of this program.
    pub fn decode<T: Counter>(&self) -> Result<Histogram<T>, DecodeError> {
        if self.0.len() > TEXT_BYTES_MAX {
            return Err(DecodeError::TooLarge);
        }
        from_bytes(&BASE64_STANDARD.decode(&self.0).map_err(|_| DecodeError::Base64)?)
    }
}

/// Accepts any text. [`Encoded::decode`] checks it.
impl From<String> for Encoded {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// The encoding before base64.
pub fn to_bytes<T: Counter>(histogram: &Histogram<T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("writing into memory does not fail");
    bytes
}

/// Decodes such bytes, with the checks of [`Encoded::decode`].
pub fn from_bytes<T: Counter>(bytes: &[u8]) -> Result<Histogram<T>, DecodeError> {
    let plain = inflate(bytes)?;
    check_header(&plain)?;
    let mut histogram = Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|_| DecodeError::Histogram)?;
    histogram.auto(true);
    Ok(histogram)
}

/// The text is not a histogram that this program could have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not base64.
    #[error("a histogram is not base64")]
    Base64,
    /// Not in the "V2 deflate" format.
    #[error("a histogram is not in the format \"V2 deflate\" of HdrHistogram")]
    Deflate,
    /// The inflated data is not a histogram.
    #[error("a histogram is damaged")]
    Histogram,
    /// Larger than any histogram that this program writes.
    #[error("a histogram is too large, or has more than three significant digits")]
    TooLarge,
}

/// Removes the outer header (cookie, length) and the compression.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let (header, deflated) = bytes.split_first_chunk::<8>().ok_or(DecodeError::Deflate)?;
    if header[..4] != COOKIE_V2_DEFLATE {
        return Err(DecodeError::Deflate);
    }
    let mut plain = Vec::new();
    let mut inflated = ZlibDecoder::new(deflated).take(PLAIN_BYTES_MAX + 1);
    inflated.read_to_end(&mut plain).map_err(|_| DecodeError::Deflate)?;
    if plain.len() as u64 > PLAIN_BYTES_MAX { Err(DecodeError::TooLarge) } else { Ok(plain) }
}

/// Checks the sizes first, because the library allocates what the header asks for: the length of the counts, and an
/// array that grows with the digits.
fn check_header(plain: &[u8]) -> Result<(), DecodeError> {
    let field = |at: usize| Some(u32::from_be_bytes(*plain.get(at..)?.first_chunk()?));
    let (counts_bytes, digits) = field(4).zip(field(12)).ok_or(DecodeError::Histogram)?;
    if counts_bytes as usize > plain.len() {
        return Err(DecodeError::Histogram);
    }
    if digits > DIGITS_MAX { Err(DecodeError::TooLarge) } else { Ok(()) }
}

const COOKIE_V2_DEFLATE: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
const DIGITS_MAX: u32 = 3;
/// Three digits over the range of 64 bits are 55,296 counts of at most 9 bytes.
const PLAIN_BYTES_MAX: u64 = 512 * 1024;
const TEXT_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use hdrhistogram::serialization::V2Serializer;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_digits_than_three_are_refused_before_they_are_allocated() {
        let text = Encoded::of(&Histogram::<u64>::new_with_max(u64::MAX, 5).unwrap());
        assert_eq!(text.decode::<u64>(), Err(DecodeError::TooLarge));
    }

    #[test]
    fn a_bomb_is_not_inflated() {
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::copy(&mut std::io::repeat(0).take(100_000_000), &mut deflated).unwrap();
        assert_eq!(wrapped(&deflated.finish().unwrap()).decode::<u64>(), Err(DecodeError::TooLarge));
    }

    #[test]
    fn a_false_length_is_found() {
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&Histogram::<u64>::new(3).unwrap(), &mut plain).unwrap();
        plain[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(wrapped(&deflate(&plain)).decode::<u64>(), Err(DecodeError::Histogram));
    }

    #[test]
    fn what_is_no_histogram_is_named() {
        assert_eq!(Encoded("%".to_owned()).decode::<u64>(), Err(DecodeError::Base64));
        assert_eq!(Encoded(String::new()).decode::<u64>(), Err(DecodeError::Deflate));
        assert_eq!(wrapped(b"garbage").decode::<u64>(), Err(DecodeError::Deflate));
        assert_eq!(Encoded("A".repeat(TEXT_BYTES_MAX + 1)).decode::<u64>(), Err(DecodeError::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            for value in values {
                histogram.record(value).unwrap();
            }
            prop_assert_eq!(Encoded::of(&histogram).decode::<u64>().unwrap(), histogram);
        }

        #[test]
        fn hostile_bytes_do_no_harm(plain in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
            let mut bytes = plain;
            if honest && bytes.len() > 16 {
                bytes[..16].copy_from_slice(&[0x1c, 0x84, 0x93, 0x13, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 3]);
            }
            let _ = wrapped(&deflate(&bytes)).decode::<u64>();
        }
    }

    fn deflate(plain: &[u8]) -> Vec<u8> {
        let mut deflated = Vec::new();
        flate2::read::ZlibEncoder::new(plain, flate2::Compression::fast()).read_to_end(&mut deflated).unwrap();
        deflated
    }

    fn wrapped(deflated: &[u8]) -> Encoded {
        let length = u32::try_from(deflated.len()).unwrap().to_be_bytes();
        Encoded(BASE64_STANDARD.encode([&COOKIE_V2_DEFLATE[..], &length, deflated].concat()))
    }
}
