//! The cookies of one user.

use cookie_store::{Cookie, CookieStore};
use http::{HeaderMap, HeaderValue, header};
use url::Url;

/// The cookie store of one user (RFC 6265). The machine's clock decides when cookies expire, because their dates are
/// absolute.
#[derive(Debug, Default)]
pub(super) struct Jar {
    store: CookieStore,
}

impl Jar {
    /// Stores the cookies that the response to a request for `url` sets. Ignores malformed, too long and too many
    /// cookies, as browsers do.
    pub(super) fn keep(&mut self, headers: &HeaderMap, url: &Url) {
        let lines = headers.get_all(header::SET_COOKIE).iter().filter_map(|line| line.to_str().ok());
        for line in lines.filter(|line| line.len() <= COOKIE_BYTES_MAX) {
            if let Ok(cookie) = Cookie::parse(line, url)
                && self.has_room_for(&cookie)
            {
                // A rejected cookie is not an error: a site may try to set cookies of other sites.
                let _ = self.store.insert(cookie.into_owned(), url);
            }
        }
    }

    fn has_room_for(&self, cookie: &Cookie<'_>) -> bool {
        let domain = cookie.domain.as_cow().unwrap_or_default();
        self.store.contains_any(&domain, &cookie.path, cookie.name()) || self.store.iter_any().count() < COOKIES_MAX
    }

    /// The `Cookie` field of a request for `url`, if there are cookies for it.
    pub(super) fn field(&self, url: &Url) -> Option<HeaderValue> {
        let pairs: Vec<_> = self.store.get_request_values(url).map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { None } else { HeaderValue::from_str(&pairs.join("; ")).ok() }
    }
}

/// The minima of RFC 6265, section 6.1: 50 cookies of a site, 4096 bytes each.
const COOKIES_MAX: usize = 50;
const COOKIE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn keep(jar: &mut Jar, at: &str, line: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(header::SET_COOKIE, line.parse().unwrap());
        jar.keep(&headers, &url(at));
    }

    fn field(jar: &Jar, at: &str) -> Option<String> {
        jar.field(&url(at)).map(|field| field.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_cookie_goes_where_it_belongs() {
        let mut jar = Jar::default();
        keep(&mut jar, "https://a.test/shop/cart", "sid=1; Path=/shop; Secure");
        assert_eq!(field(&jar, "https://a.test/shop/pay").as_deref(), Some("sid=1"));
        for elsewhere in ["https://a.test/", "https://a.test/shopping", "https://b.test/shop/", "http://a.test/shop/"] {
            assert_eq!(field(&jar, elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_cookie_is_replaced_and_removed() {
        let mut jar = Jar::default();
        keep(&mut jar, "http://127.0.0.1:80/", "a=1");
        keep(&mut jar, "http://127.0.0.1:80/", "a=2");
        assert_eq!(field(&jar, "http://127.0.0.1:80/x").as_deref(), Some("a=2"));
        keep(&mut jar, "http://127.0.0.1:80/", "a=; Max-Age=0");
        assert_eq!(field(&jar, "http://127.0.0.1:80/x"), None);
    }

    #[test]
    fn a_jar_is_bounded() {
        let mut jar = Jar::default();
        keep(&mut jar, "http://a.test/", &format!("long={}", "x".repeat(COOKIE_BYTES_MAX)));
        assert_eq!(field(&jar, "http://a.test/"), None);
        for number in 0..COOKIES_MAX + 10 {
            keep(&mut jar, "http://a.test/", &format!("c{number}=x"));
        }
        assert_eq!(field(&jar, "http://a.test/").unwrap().matches("=x").count(), COOKIES_MAX);
        keep(&mut jar, "http://a.test/", "c0=new");
        assert!(field(&jar, "http://a.test/").unwrap().contains("c0=new"));
    }
}
