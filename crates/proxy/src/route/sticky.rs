//! Cookies that bind clients to an origin.

use std::time::Duration;

use aws_lc_rs::hmac::{self, Key};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::exchange::address::OriginAddress;

/// The settings of a cookie that binds a client to an origin of a pool.
#[derive(Debug, Clone)]
pub struct Sticky {
    name: String,
    ttl: Option<Duration>,
    key: Key,
}

/// The arguments make no [`Sticky`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSticky {
    /// The name is not a token (RFC 6265, section 4.1.1).
    #[error("a cookie's name has 1 to 64 letters, digits, - or _")]
    Name,
    /// The secret is short enough to be guessed.
    #[error("the secret of a cookie has at least {SECRET_LEN_MIN} bytes")]
    Secret,
}

impl Sticky {
    /// * `name`: the name of the cookie.
    /// * `ttl`: how long clients store it. `None`: until the browser ends.
    /// * `secret`: must be the same at all proxies of the pool, and unknown to all others.
    pub fn new(name: &str, ttl: Option<Duration>, secret: &[u8]) -> Result<Self, InvalidSticky> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_allowed) {
            return Err(InvalidSticky::Name);
        }
        if secret.len() < SECRET_LEN_MIN {
            return Err(InvalidSticky::Secret);
        }
        Ok(Self { name: name.to_owned(), ttl, key: Key::new(hmac::HMAC_SHA256, secret) })
    }
}

/// The cookies of one pool.
///
/// A value is the keyed hash of its origin's address. Without the secret, it does not reveal the address and cannot be
/// forged. A forged value could only select one of the pool's origins.
#[derive(Debug)]
pub(crate) struct Stickiness {
    sticky: Sticky,
    /// The value of each origin, by its index in the pool.
    values: Vec<String>,
}

impl Stickiness {
    pub(crate) fn new<'a>(sticky: Sticky, pool: &str, origins: impl Iterator<Item = &'a OriginAddress>) -> Self {
        let values = origins.map(|origin| value(&sticky.key, pool, origin)).collect();
        Self { sticky, values }
    }

    /// The index of the origin that a request's cookie selects.
    pub(crate) fn wanted(&self, headers: &HeaderMap) -> Option<usize> {
        let fields = headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
        let cookies =
            fields.flat_map(|field| field.split(';')).filter_map(|cookie| cookie.trim_ascii().split_once('='));
        let mut ours = cookies.filter(|(name, _)| *name == self.sticky.name);
        ours.find_map(|(_, told)| self.values.iter().position(|value| value == told))
    }

    /// Binds the client to the origin with index `origin`. The cookie is for this client alone, so caches must not
    /// store the response for others.
    pub(crate) fn set_cookie(&self, headers: &mut HeaderMap, origin: usize) {
        let Sticky { name, ttl, .. } = &self.sticky;
        let Some(value) = self.values.get(origin) else { return };
        let age = ttl.map(|ttl| format!("; Max-Age={}", ttl.as_secs().max(1))).unwrap_or_default();
        let cookie = format!("{name}={value}; Path=/{age}; HttpOnly; Secure; SameSite=Lax");
        let cookie = HeaderValue::try_from(cookie).expect("names, base64 and numbers are plain ASCII");
        headers.append(SET_COOKIE, cookie);
        headers.append(CACHE_CONTROL, HeaderValue::from_static("private"));
    }
}

const SECRET_LEN_MIN: usize = 32;
/// The length of a hash, in bytes. It prevents guesses and collisions.
const VALUE_LEN: usize = 16;

/// The pool is part of the hash: each pool has its own values for an address.
fn value(key: &Key, pool: &str, origin: &OriginAddress) -> String {
    let tag = hmac::sign(key, format!("watari sticky\0{pool}\0{origin}").as_bytes());
    URL_SAFE_NO_PAD.encode(&tag.as_ref()[..VALUE_LEN])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn stickiness(pool: &str, secret: &[u8]) -> Stickiness {
        let origins: Vec<OriginAddress> = ["http://10.0.0.1", "http://10.0.0.2"].map(|at| at.parse().unwrap()).into();
        let sticky = Sticky::new("watari", Some(Duration::from_hours(1)), secret).unwrap();
        Stickiness::new(sticky, pool, origins.iter())
    }

    fn cookie(field: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, field.parse().unwrap())])
    }

    #[test]
    fn a_cookie_of_this_node_is_understood() {
        let stickiness = stickiness("pool", &SECRET);
        for origin in 0..2 {
            let mut headers = HeaderMap::new();
            stickiness.set_cookie(&mut headers, origin);
            let told = headers[SET_COOKIE].to_str().unwrap();
            let (cookie_pair, attributes) = told.split_once("; ").unwrap();
            assert_eq!(attributes, "Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Lax");
            assert_eq!(headers[CACHE_CONTROL], "private");
            let among_others = cookie(&format!("a=b; {cookie_pair};watari2=x"));
            assert_eq!(stickiness.wanted(&among_others), Some(origin));
        }
    }

    #[test]
    fn values_are_of_one_pool_and_one_secret() {
        let (own, pool, secret) = (stickiness("a", &SECRET), stickiness("b", &SECRET), stickiness("a", &[8; 32]));
        let values: std::collections::BTreeSet<_> =
            [&own, &pool, &secret].into_iter().flat_map(|s| &s.values).collect();
        assert_eq!(values.len(), 6);
        assert!(values.iter().all(|value| value.len() == 22));
        assert_eq!(stickiness("a", &SECRET).values, own.values);
    }

    #[test]
    fn a_foreign_cookie_is_ignored() {
        let stickiness = stickiness("pool", &SECRET);
        for field in ["", "watari", "watari=", "watari=http://10.0.0.1", "watari=0", "=;=;", "WATARI=x"] {
            assert_eq!(stickiness.wanted(&cookie(field)), None, "{field}");
        }
        let twice = cookie(&format!("watari=old; watari={}", stickiness.values[1]));
        assert_eq!(stickiness.wanted(&twice), Some(1));
    }

    #[test]
    fn what_is_no_cookie_is_refused() {
        for name in ["", "a b", "a=b", "a;b", "\u{e4}", &"a".repeat(65)] {
            assert_eq!(Sticky::new(name, None, &SECRET).unwrap_err(), InvalidSticky::Name, "{name}");
        }
        assert_eq!(Sticky::new("a", None, &[7; 31]).unwrap_err(), InvalidSticky::Secret);
    }
}
