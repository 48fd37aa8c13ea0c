//! The syntax of a host with an optional port (RFC 9110, section 7.2; RFC 3986, section 3.2).

use memchr::memchr_iter;

/// Whether `value` names a host. Refuses user information (RFC 9110, section 4.2.4), an empty host, percent-encoding
/// and ports that are not numbers.
///
/// Each value that is accepted is an `http::uri::Authority`.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (is_valid, rest) = if let Some(literal) = value.strip_prefix(b"[") {
        let Some(end) = literal.iter().position(|byte| *byte == b']') else { return false };
        (is_address(&literal[..end]), &literal[end + 1..])
    } else {
        let end = value.iter().position(|byte| !IN_NAME[usize::from(*byte)]).unwrap_or(value.len());
        (end > 0, &value[end..])
    };
    is_valid && (rest.is_empty() || rest[0] == b':' && rest[1..].iter().all(u8::is_ascii_digit))
}

/// The bytes of a `reg-name` without percent-encoding: `unreserved` and `sub-delims`. IPv4 addresses consist of them,
/// too. A table, because each request has a host.
const IN_NAME: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0u8);
    loop {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
            );
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// The bytes of an IPv6 address, at most 8 groups.
fn is_address(address: &[u8]) -> bool {
    let colons = memchr_iter(b':', address).count();
    let is_valid = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    (2..=8).contains(&colons) && address.iter().all(is_valid)
}

#[cfg(test)]
mod tests {
    use http::uri::Authority;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts() {
        for host in ["a", "a.example:8443", "a:", "127.0.0.1", "[::1]", "[2001:db8::1]:443", "a_b", "xn--e1a"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for other in [
            "",
            ":80",
            "u@a",
            "a/b",
            "a b",
            "a:b",
            "a:80:80",
            "a,b ",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[a]",
            "a%20",
            "a#b",
            "a?b",
            "a\\b",
            "a:-1",
            "[::1%25eth0]",
        ] {
            assert!(!is_host(other.as_bytes()), "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_host_is_an_authority(value in "[a-c0-9.:\\[\\]%@/,;_ -]{0,12}") {
            prop_assert!(!is_host(value.as_bytes()) || Authority::try_from(value.as_bytes()).is_ok());
        }
    }
}
