//! Integers that begin within an octet (RFC 7541, section 5.1).

/// The most octets after the first. Larger integers are of no use here.
const MORE_MAX: usize = 4;

/// Decodes the integer at the start of `input` whose prefix has `prefix` bits, and removes it. `None`: it is not
/// complete, or too large.
pub(super) fn decode(input: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, mut rest) = input.split_first()?;
    let mask = (1_u32 << prefix) - 1;
    let mut value = u64::from(u32::from(*first) & mask);
    if value == u64::from(mask) {
        for place in 0.. {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            value += u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
            if place + 1 == MORE_MAX {
                return None;
            }
        }
    }
    *input = rest;
    usize::try_from(value).ok()
}

/// Appends an integer with a prefix of `prefix` bits. `flags` are the other bits of its first octet.
pub(super) fn encode(value: usize, prefix: u32, flags: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 7541, section C.1.
    #[test]
    fn examples() {
        for (value, prefix, encoded) in [(10, 5, &[0b01010][..]), (1337, 5, &[31, 0x9a, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            encode(value, prefix, 0, &mut out);
            assert_eq!(out, encoded);
        }
    }

    #[test]
    fn incomplete_and_large_integers() {
        for input in [&[][..], &[31], &[31, 0x80], &[31, 0xff, 0xff, 0xff, 0xff, 0x01]] {
            assert_eq!(decode(&mut &*input, 5), None, "{input:?}");
        }
        assert_eq!(decode(&mut &[31, 0xff, 0xff, 0xff, 0x7f][..], 5), Some(31 + (1 << 28) - 1));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value in 0_usize..1 << 28, prefix in 4_u32..8, flags in any::<u8>()) {
            let mut out = Vec::new();
            encode(value, prefix, flags << prefix, &mut out);
            out.push(7);
            let mut rest = &out[..];
            prop_assert_eq!(decode(&mut rest, prefix), Some(value));
            prop_assert_eq!(rest, [7]);
        }
    }
}
