//! Sequence numbers (RFC 9293, section 3.4), compared modulo 2^32.

/// Whether `a` is before `b`. False for numbers that are half of the space apart, because they have no order.
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

/// Whether `a` is before `b`, or equal.
pub(crate) const fn is_upto(a: u32, b: u32) -> bool {
    a == b || is_before(a, b)
}

pub(crate) const fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}

/// Keeps `begin` within [`FAR`] of `end`: numbers have an order only within half of their space, and a transfer may be
/// longer than that.
pub(crate) const fn follow(begin: u32, end: u32) -> u32 {
    let farthest = end.wrapping_sub(FAR);
    if is_before(begin, farthest) && is_before(begin, end) { farthest } else { begin }
}

/// The largest distance of numbers that are compared.
pub(crate) const FAR: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_round() {
        let cases = [(0, 1, true), (1, 0, false), (5, 5, false), (u32::MAX, 0, true), (0, u32::MAX, false)];
        for (a, b, before) in cases {
            assert_eq!(is_before(a, b), before, "{a} {b}");
            assert_eq!(is_upto(a, b), before || a == b, "{a} {b}");
        }
        assert_eq!(later(u32::MAX - 2, 3), 3);
        let cases = [(5, 9, 5), (9, 5, 9), (0, 1 << 30, 0), (0, (1 << 30) + 7, 7), (u32::MAX - 4, (1 << 30) + 1, 1)];
        for (begin, end, followed) in cases {
            assert_eq!(follow(begin, end), followed, "{begin} {end}");
        }
        assert!(!is_before(0, 1 << 31) && !is_before(1 << 31, 0));
    }
}
