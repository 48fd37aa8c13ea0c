//! The byte order of a file.

/// The byte order of the host that wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Big,
    Little,
}

impl Order {
    pub(super) fn u16(self, octets: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(octets),
            Self::Little => u16::from_le_bytes(octets),
        }
    }

    pub(super) fn u32(self, octets: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(octets),
            Self::Little => u32::from_le_bytes(octets),
        }
    }

    pub(super) fn i64(self, octets: [u8; 8]) -> i64 {
        match self {
            Self::Big => i64::from_be_bytes(octets),
            Self::Little => i64::from_le_bytes(octets),
        }
    }

    /// Splits `octets` into words.
    pub(super) fn words<const N: usize, const WORDS: usize>(self, octets: [u8; N]) -> [u32; WORDS] {
        const { assert!(N == WORDS * 4, "a word has 4 octets") };
        let (words, _) = octets.as_chunks();
        std::array::from_fn(|at| self.u32(words[at]))
    }
}
