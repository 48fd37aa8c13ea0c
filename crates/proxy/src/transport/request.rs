//! Converts a client's request to one for an origin.

use http::header::{CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, TE, TRANSFER_ENCODING, VIA};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::exchange::fields;
use crate::transport::upgrade::Upgrade;
use crate::transport::upload::Upload;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");

/// Converts the head of a client's request, of any version, to that of an HTTP/1.1 request to an origin. Returns the
/// requested authority.
///
/// If the client requests an [`Upgrade`], it is in the request's extensions. `Expect` stays if a client of HTTP/1.1
/// waits for a response to it (RFC 9110, section 10.1.1). The origin has to respond to it.
pub(crate) fn rewrite(head: &mut Parts, has_content: bool, client: &Client) -> Result<Authority, Failure> {
    let upgrade = Upgrade::asked(head, has_content)?;
    let is_stream = matches!(upgrade, Some(Upgrade::Stream(_)));
    if (head.method == Method::CONNECT && !is_stream) || head.method == Method::TRACE {
        return Err(Failure::Method);
    }
    let host = host(head, client)?;
    let takes_trailers = fields::lists(&head.headers, &TE, "trailers");
    fields::remove_hop_by_hop(&mut head.headers);
    fields::settle_length(&mut head.headers).map_err(|_| Failure::BadRequest("invalid Content-Length"))?;
    remove_claims(&mut head.headers);
    let waits =
        has_content && head.version == Version::HTTP_11 && fields::lists(&head.headers, &EXPECT, "100-continue");
    head.headers.remove(EXPECT);
    if waits {
        head.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    if takes_trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if head.version == Version::HTTP_2 {
        join_cookies(&mut head.headers)?;
    }
    introduce(&mut head.headers, client, &host);
    head.headers.append(VIA, via(head.version));
    head.uri = Uri::from(origin_form(&head.uri)?);
    head.version = Version::HTTP_11;
    head.extensions.clear();
    if let Some(upgrade) = upgrade {
        upgrade.ask(head);
        head.extensions.insert(upgrade);
    }
    Ok(host)
}

/// The target in origin form, or `*` (RFC 9112, section 3.2.1). A target in absolute form may have an empty path before
/// a query.
fn origin_form(target: &Uri) -> Result<PathAndQuery, Failure> {
    match target.path_and_query() {
        None => Ok(PathAndQuery::from_static("/")),
        Some(path) if path.as_str().starts_with('?') => {
            PathAndQuery::try_from(format!("/{}", path.as_str())).map_err(|_| Failure::BadRequest("invalid target"))
        }
        Some(path) => Ok(path.clone()),
    }
}

/// Whether a request can be repeated: it has no body, so no `upload`, and its method is idempotent (RFC 9110, section
/// 9.2.2). A request for an upgrade is sent once, over a new connection.
pub(crate) fn is_repeatable(head: &Parts, upload: Option<&Upload>) -> bool {
    upload.is_none() && head.method.is_idempotent() && head.extensions.get::<Upgrade>().is_none()
}

/// The HTTP/2 form of the head of an HTTP/1.1 request to an origin (RFC 9113, sections 8.2.2 and 8.3.1).
pub(crate) fn for_http2(head: &Parts, tls: bool) -> Parts {
    let mut head = head.clone();
    let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
    let host = head.headers.remove(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    head.headers.remove(CONNECTION);
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.remove(EXPECT);
    if let Some(host) = host {
        let mut uri = head.uri.into_parts();
        (uri.scheme, uri.authority) = (Some(scheme), Some(host));
        head.uri = Uri::from_parts(uri).unwrap_or_default();
    }
    head.version = Version::HTTP_2;
    head
}

/// The requested authority: that of the target, else the `Host` field (RFC 9112, sections 3.2 and 3.2.2; RFC 9113,
/// section 8.3.1). An HTTP/1.0 request may have none. Then it is the service address.
fn host(head: &Parts, client: &Client) -> Result<Authority, Failure> {
    let mut fields = head.headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(Failure::BadRequest("several Host fields"));
    }
    let field = field.map(|field| Authority::try_from(field.as_bytes())).transpose();
    let field = field.map_err(|_| Failure::BadRequest("invalid Host"))?;
    let authority = match (head.uri.authority().cloned(), field) {
        (Some(target), Some(field)) if head.version == Version::HTTP_2 && target != field => {
            return Err(Failure::BadRequest("Host differs from :authority"));
        }
        (Some(target), _) => target,
        (None, Some(field)) => field,
        (None, None) if head.version <= Version::HTTP_10 => {
            let server = client.server().to_string();
            Authority::try_from(server).map_err(|_| Failure::BadRequest("no Host"))?
        }
        (None, None) => return Err(Failure::BadRequest("no Host")),
    };
    // User information can deceive (RFC 9110, section 4.2.4). Without it, an authority that begins with a port has no
    // host.
    if authority.as_str().contains('@') || authority.as_str().starts_with(':') {
        return Err(Failure::BadRequest("invalid Host"));
    }
    Ok(authority)
}

/// Removes fields about a client that only a proxy may set.
fn remove_claims(headers: &mut HeaderMap) {
    fields::remove_if(headers, is_claim);
}

fn is_claim(name: &str) -> bool {
    const CLAIMS: [&str; 4] = ["forwarded", "x-real-ip", "client-cert", "client-cert-chain"];
    const PREFIX: &str = "x-forwarded-";
    CLAIMS.iter().any(|claim| fields::are_alike(claim, name))
        || name.get(..PREFIX.len()).is_some_and(|start| fields::are_alike(PREFIX, start))
}

/// Adds fields about the client and the requested host: `Host`, `Forwarded` (RFC 7239), the older `X-Forwarded-`
/// fields, and `Client-Cert` (RFC 9440).
fn introduce(headers: &mut HeaderMap, client: &Client, host: &Authority) {
    const PRINTABLE: &str = "an authority is printable ASCII without quotes";
    let forwarded = [&*client.forwarded_for, ";host=\"", host.as_str(), "\";proto=https"].concat();
    headers.insert(FORWARDED, HeaderValue::try_from(forwarded).expect(PRINTABLE));
    let said = headers.get(HOST).filter(|said| *said == host.as_str()).cloned();
    let host = said.unwrap_or_else(|| HeaderValue::from_str(host.as_str()).expect(PRINTABLE));
    headers.insert(HOST, host.clone());
    headers.insert(X_FORWARDED_HOST.clone(), host);
    headers.insert(X_FORWARDED_FOR.clone(), client.address_field.clone());
    headers.insert(X_FORWARDED_PROTO.clone(), HeaderValue::from_static("https"));
    if let Some(certificate) = &client.certificate_field {
        headers.insert(CLIENT_CERT.clone(), certificate.clone());
    }
}

/// RFC 9110, section 7.6.3.
fn via(received: Version) -> HeaderValue {
    HeaderValue::from_static(match received {
        Version::HTTP_2 => "2.0 watari",
        Version::HTTP_11 => "1.1 watari",
        _ => "1.0 watari",
    })
}

/// Joins cookies: HTTP/2 may split them into several fields, HTTP/1.1 may not (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Failure> {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1 {
        let cookies = crumbs.join(b"; ".as_slice());
        let cookies = HeaderValue::try_from(cookies).map_err(|_| Failure::BadRequest("invalid cookies"))?;
        headers.insert(COOKIE, cookies);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn client(certificate: Option<&[u8]>) -> Client {
        Client::new("192.0.2.7:1234".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), certificate)
    }

    fn head(version: Version, target: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn rewritten_for(client: &Client, mut head: Parts) -> Result<Parts, Failure> {
        rewrite(&mut head, false, client).map(|_| head)
    }

    fn rewritten(version: Version, target: &str, fields: &[(&str, &str)]) -> Result<Parts, Failure> {
        rewritten_for(&client(None), head(version, target, fields))
    }

    /// All fields as `name: value`, sorted.
    fn lines(head: &Parts) -> Vec<String> {
        let lines = head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_origin_gets_the_address_of_the_client() {
        let head = rewritten(Version::HTTP_11, "/path?query", &[("host", "example.org"), ("accept", "*/*")]).unwrap();
        assert_eq!(head.uri, "/path?query");
        assert_eq!(
            lines(&head),
            [
                "accept: */*",
                "forwarded: for=192.0.2.7;host=\"example.org\";proto=https",
                "host: example.org",
                "via: 1.1 watari",
                "x-forwarded-for: 192.0.2.7",
                "x-forwarded-host: example.org",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn what_the_client_claims_is_replaced() {
        let honest = rewritten(Version::HTTP_11, "/", &[("host", "a")]).unwrap();
        let claims = [
            ("host", "a"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-anything", "evil"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("client-cert", ":AAAA:"),
            ("client_cert", ":AAAA:"),
            ("client-cert-chain", ":AAAA:"),
            ("client_cert-chain", ":AAAA:"),
        ];
        assert_eq!(lines(&rewritten(Version::HTTP_11, "/", &claims).unwrap()), lines(&honest));
    }

    #[test]
    fn what_is_set_cannot_be_removed_by_connection() {
        let connection = ("connection", "host, forwarded, x-forwarded-for, via, client-cert, x-secret");
        let fields = [("host", "a"), ("x-secret", "1"), connection];
        let head = rewritten_for(&client(Some(b"der")), head(Version::HTTP_11, "/", &fields)).unwrap();
        for name in ["host", "forwarded", "x-forwarded-for", "via", "client-cert"] {
            assert!(head.headers.contains_key(name), "{name}");
        }
        assert!(!head.headers.contains_key("x-secret"));
    }

    #[test]
    fn the_certificate_is_a_byte_sequence() {
        let head = rewritten_for(&client(Some(b"\xff\xfe\x01")), head(Version::HTTP_2, "https://a/", &[])).unwrap();
        assert_eq!(head.headers["client-cert"], "://4B:");
    }

    #[test]
    fn ipv6_is_quoted_and_mapped_ipv4_is_not() {
        for (address, forwarded, plain) in [
            ("[2001:db8::1]:5", "for=\"[2001:db8::1]\"", "2001:db8::1"),
            ("[::ffff:192.0.2.7]:5", "for=192.0.2.7", "192.0.2.7"),
        ] {
            let client = Client::new(address.parse().unwrap(), "[::1]:443".parse().unwrap(), None);
            assert_eq!(&*client.forwarded_for, forwarded);
            assert_eq!(client.address_field, plain);
        }
    }

    #[test]
    fn hosts() {
        use Version as V;
        let host = |version, target, fields: &[(&str, &str)]| {
            rewritten(version, target, fields).ok().map(|head| head.headers[HOST].to_str().unwrap().to_owned())
        };
        for (version, target, fields, expected) in [
            (V::HTTP_11, "/", &[("host", "a:8443")][..], Some("a:8443")),
            (V::HTTP_11, "/", &[("host", "[::1]:1")], Some("[::1]:1")),
            (V::HTTP_11, "/", &[], None),
            (V::HTTP_11, "/", &[("host", "")], None),
            (V::HTTP_11, "/", &[("host", "a"), ("host", "a")], None),
            (V::HTTP_11, "/", &[("host", "a b")], None),
            (V::HTTP_11, "/", &[("host", "a/b")], None),
            (V::HTTP_11, "/", &[("host", "user@a")], None),
            (V::HTTP_11, "/", &[("host", ":80")], None),
            (V::HTTP_11, "http://a/", &[("host", "b")], Some("a")),
            (V::HTTP_11, "http://user@a/", &[("host", "a")], None),
            (V::HTTP_10, "/", &[], Some("192.0.2.1:443")),
            (V::HTTP_10, "/", &[("host", "a")], Some("a")),
            (V::HTTP_2, "https://a/", &[], Some("a")),
            (V::HTTP_2, "https://a/", &[("host", "a")], Some("a")),
            (V::HTTP_2, "https://a/", &[("host", "b")], None),
            (V::HTTP_2, "/", &[("host", "a")], Some("a")),
            (V::HTTP_2, "/", &[], None),
        ] {
            assert_eq!(host(version, target, fields).as_deref(), expected, "{version:?} {target} {fields:?}");
        }
    }

    #[test]
    fn targets_become_paths() {
        for (method, target, expected) in [
            (Method::GET, "http://a", "/"),
            (Method::GET, "http://a?c", "/?c"),
            (Method::GET, "http://a/b?c", "/b?c"),
            (Method::OPTIONS, "*", "*"),
        ] {
            let mut head = head(Version::HTTP_11, target, &[("host", "a")]);
            head.method = method;
            assert_eq!(rewritten_for(&client(None), head).unwrap().uri.to_string(), expected);
        }
    }

    #[test]
    fn methods_that_end_here() {
        for method in [Method::CONNECT, Method::TRACE] {
            let mut head = head(Version::HTTP_11, "/", &[("host", "a")]);
            head.method = method;
            assert!(matches!(rewritten_for(&client(None), head), Err(Failure::Method)));
        }
    }

    #[test]
    fn cookies_of_http2_are_joined() {
        let cookies = [("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
        let head = rewritten(Version::HTTP_2, "https://a/", &cookies).unwrap();
        assert_eq!(head.headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
    }

    #[test]
    fn trailers_are_asked_for_and_expectations_met_here() {
        let fields = [("host", "a"), ("te", "gzip, trailers"), ("expect", "100-continue"), ("via", "1.0 other")];
        let head = rewritten(Version::HTTP_11, "/", &fields).unwrap();
        assert_eq!(head.headers[TE], "trailers");
        assert_eq!(head.headers[CONNECTION], "te");
        assert!(!head.headers.contains_key(EXPECT));
        assert_eq!(head.headers.get_all(VIA).iter().collect::<Vec<_>>(), ["1.0 other", "1.1 watari"]);
    }

    proptest! {
        #[test]
        fn no_host_breaks_out_of_its_quotes(host in "[ -~]{1,24}") {
            let host = http::HeaderValue::from_str(&host).unwrap();
            let mut head = head(Version::HTTP_11, "/", &[]);
            head.headers.insert(HOST, host);
            if let Ok(head) = rewritten_for(&client(None), head) {
                let forwarded = head.headers[FORWARDED].to_str().unwrap();
                prop_assert_eq!(forwarded.matches('"').count(), 2);
                prop_assert!(!forwarded.contains('\\'));
            }
        }
    }
}
