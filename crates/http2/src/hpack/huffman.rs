//! The Huffman code of string literals (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: the codes of one length are consecutive numbers, in the order of their symbols, and follow
//! those of shorter codes. So the lengths define it.

/// The length of each octet's code in bits, and of the end of a string, which no string contains.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SYMBOLS: usize = 257;
const LEN_MAX: usize = 30;

static CODE: Code = Code::new();

struct Code {
    /// The code of each symbol, in its low bits.
    codes: [u32; SYMBOLS],
    /// All symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// By length: the first code that is not of this length or a shorter one, in the high bits.
    ends: [u64; LEN_MAX + 1],
    /// By length: the first code of this length, and its symbol's place in `symbols`.
    firsts: [(u32, usize); LEN_MAX + 1],
}

impl Code {
    const fn new() -> Self {
        let mut made =
            Self { codes: [0; SYMBOLS], symbols: [0; SYMBOLS], ends: [0; LEN_MAX + 1], firsts: [(0, 0); LEN_MAX + 1] };
        let (mut code, mut place, mut len) = (0_u64, 0, 1);
        while len <= LEN_MAX {
            code <<= 1;
            made.firsts[len] = (code as u32, place);
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == len {
                    made.codes[symbol] = code as u32;
                    made.symbols[place] = symbol as u16;
                    (code, place) = (code + 1, place + 1);
                }
                symbol += 1;
            }
            made.ends[len] = code << (32 - len);
            len += 1;
        }
        made
    }

    /// The symbol whose code `bits` begin with, and the length of the code. `bits` are the high bits of 32.
    fn symbol(&self, bits: u32) -> (u16, u32) {
        // No code is shorter than five bits.
        let mut len = 5;
        while u64::from(bits) >= self.ends[len] && len < LEN_MAX {
            len += 1;
        }
        let (first, place) = self.firsts[len];
        let code = bits >> (32 - len);
        (self.symbols[place + (code - first) as usize], len as u32)
    }
}

/// Appends the decoded string to `out`. `None`: it is not valid.
pub(super) fn decode(encoded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = encoded.iter();
    // The next bits of the string, from the highest on, and their number.
    let (mut bits, mut len) = (0_u64, 0_u32);
    loop {
        while len <= 56
            && let Some(byte) = rest.next()
        {
            bits |= u64::from(*byte) << (56 - len);
            len += 8;
        }
        let (symbol, symbol_len) = CODE.symbol((bits >> 32) as u32);
        if symbol_len > len {
            // The padding: the beginning of the end of a string, shorter than an octet.
            return (len < 8 && bits.leading_ones() >= len).then_some(());
        }
        out.push(u8::try_from(symbol).ok()?);
        bits <<= symbol_len;
        len -= symbol_len;
    }
}

/// The length of a string when it is encoded, in bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded string to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // Bits that are not written yet, in the low bits, and their number: fewer than eight before each symbol.
    let (mut bits, mut len) = (0_u64, 0_u32);
    for byte in text {
        let symbol_len = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << symbol_len | u64::from(CODE.codes[usize::from(*byte)]);
        len += symbol_len;
        while len >= 8 {
            len -= 8;
            out.push((bits >> len) as u8);
        }
    }
    if len > 0 {
        // The high bits of the end of a string are ones.
        out.push((bits << (8 - len)) as u8 | 0xff >> len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(encoded, &mut out).map(|()| out)
    }

    /// Codes of RFC 7541, appendix B.
    #[test]
    fn codes() {
        for (symbol, code, len) in [
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b't'), 0x9, 5),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b':'), 0x5c, 7),
            (usize::from(b'Z'), 0xfd, 8),
            (usize::from(b'\\'), 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (1, 0x7f_ffd8, 23),
            (249, 0xfff_fffe, 28),
            (22, 0x3fff_fffe, 30),
            (256, 0x3fff_ffff, 30),
        ] {
            assert_eq!((CODE.codes[symbol], LENGTHS[symbol]), (code, len), "{symbol}");
        }
    }

    /// RFC 7541, sections C.4 and C.6.
    #[test]
    fn examples() {
        for (text, encoded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            let hex = out.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            assert_eq!(hex, encoded, "{text}");
            assert_eq!(decoded(&out).as_deref(), Some(text.as_bytes()));
        }
    }

    /// RFC 7541, section 5.2.
    #[test]
    fn padding_is_the_beginning_of_the_end_of_a_string() {
        assert_eq!(decoded(b"").as_deref(), Some(&[][..]));
        // `0` is 00000.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
        assert_eq!(decoded(&[0b0000_0110]), None);
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None, "an octet of padding");
        assert_eq!(decoded(&[0xff]), None);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None, "the end of a string");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(out.len(), encoded_len(&text));
            prop_assert_eq!(decoded(&out), Some(text));
        }

        /// A string has one encoding.
        #[test]
        fn what_is_decoded_is_encoded(encoded in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(text) = decoded(&encoded) {
                let mut out = Vec::new();
                encode(&text, &mut out);
                prop_assert_eq!(out, encoded);
            }
        }
    }
}
