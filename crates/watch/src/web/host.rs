//! The host names of the page.
//!
//! A page of another site may point a name of its own at this address, and then read the board as its own origin (DNS
//! rebinding). It needs a name for that. So addresses are safe, and so is `localhost`, which RFC 6761, section 6.3
//! reserves.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::uri::Authority;

/// Whether `host` is an address, `localhost`, or one of `names`.
pub(super) fn is_ours(host: &Authority, names: &[String]) -> bool {
    if host.as_str().contains('@') {
        return false;
    }
    let name = host.host();
    is_address(name) || is_localhost(name) || names.iter().any(|known| is_same(name, known))
}

fn is_address(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    inner.map_or_else(|| name.parse::<Ipv4Addr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

fn is_localhost(name: &str) -> bool {
    let last = name.strip_suffix('.').unwrap_or(name).rsplit('.').next();
    last.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

fn is_same(name: &str, known: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(known.strip_suffix('.').unwrap_or(known))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_and_known_names_are_ours() {
        let names = ["watch.example".to_owned()];
        let ours = [
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "a.localhost",
            "127.0.0.1:8",
            "10.1.2.3",
            "[::1]:9",
            "[2001:db8::1]",
            "watch.example",
            "Watch.Example.:443",
        ];
        for host in ours {
            assert!(is_ours(&host.parse().unwrap(), &names), "{host}");
        }
        let others = [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "evil.watch.example",
            "localhost@evil.example",
            "evil@localhost",
            "notlocalhost",
            "1.2.3",
            "0x7f.1",
        ];
        for host in others {
            assert!(!is_ours(&host.parse().unwrap(), &names), "{host}");
        }
    }
}
