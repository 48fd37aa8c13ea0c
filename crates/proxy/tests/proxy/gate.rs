//! The checks of a request before it is forwarded.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response};
use http_body::Frame;
use watari_body::Body;
use watari_proxy::{
    Access, AuthConfig, Client, ClientLimits, Config, Destination, Metrics, OriginAddress, PoolConfig, Proxy,
    RateLimit, Refusal, Transport,
};

use crate::common::upgrade::{AGREED, LONG, get_echo, join};
use crate::common::{
    Act, ScriptedOrigin, answer, answer_and_stall, client, get, get_path, ok, post, read, refusing_origin, upload,
};

fn proxy(origin: &OriginAddress, change: impl FnOnce(&mut Config)) -> Proxy {
    let mut config = Config::one_pool(PoolConfig::plain("pool", [origin.clone()]));
    change(&mut config);
    Proxy::new(config, Metrics::default()).unwrap()
}

fn limited(origin: &OriginAddress, limits: ClientLimits) -> Proxy {
    proxy(origin, |config| config.clients = limits)
}

async fn status(proxy: &Proxy, client: &Client) -> u16 {
    read(proxy.respond(get(), client).await).await.0
}

fn from(address: &str) -> Client {
    Client::new(format!("{address}:1234").parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None)
}

#[tokio::test]
async fn a_client_over_its_rate_gets_retry_after() {
    let origin = ScriptedOrigin::start([ok(""), ok(""), ok("")]).await;
    let [requests, burst] = [1, 2].map(|count| NonZeroU32::new(count).unwrap());
    let rate = RateLimit { requests, per: Duration::from_hours(1), burst };
    let proxy = limited(&origin.address, ClientLimits { rate: Some(rate), ..ClientLimits::default() });
    assert_eq!(status(&proxy, &from("[2001:db8::1]")).await, 200);
    assert_eq!(status(&proxy, &from("[2001:db8::2]")).await, 200);
    let refused = proxy.respond(get(), &from("[2001:db8::3]")).await;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&wait), "{wait}");
    assert_eq!(status(&proxy, &from("[2001:db8:0:1::1]")).await, 200);
}

#[tokio::test]
async fn a_client_has_so_many_requests_in_progress() {
    let one = ScriptedOrigin::start([ok("first"), ok("second")]).await;
    let other = ScriptedOrigin::start([ok("other")]).await;
    let limits = ClientLimits { requests_max: NonZeroUsize::new(1), ..ClientLimits::default() };
    let proxy = proxy(&one.address, |config| {
        config.pools = vec![PoolConfig::plain("pool", [one.address.clone(), other.address])];
        config.clients = limits;
    });
    let first = proxy.respond(get(), &client()).await;
    let refused = proxy.respond(get(), &client()).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    assert_eq!(status(&proxy, &from("198.51.100.1")).await, 200);
    assert_eq!(read(first).await.1, Ok("first".into()));
    assert_eq!(read(proxy.respond(get(), &client()).await).await.1, Ok("second".into()));
}

#[tokio::test]
async fn a_tunnel_is_a_request_of_its_client() {
    let origin = ScriptedOrigin::start([answer_and_stall(AGREED), ok("next")]).await;
    let limits = ClientLimits { requests_max: NonZeroUsize::new(1), ..ClientLimits::default() };
    let proxy = limited(&origin.address, limits);
    let (end_of_client, tunnel) = join(proxy.respond(get_echo(), &client()).await, LONG);
    assert_eq!(status(&proxy, &client()).await, 429);
    tunnel.abort();
    drop((end_of_client, tunnel.await));
    assert_eq!(status(&proxy, &client()).await, 200);
}

#[tokio::test]
async fn a_body_may_be_so_long() {
    let mut origin = ScriptedOrigin::start([ok("taken"), Act::Ignore]).await;
    let limits = ClientLimits { body_bytes_max: NonZeroU64::new(4), ..ClientLimits::default() };
    let proxy = limited(&origin.address, limits);
    assert_eq!(proxy.respond(post("12345"), &client()).await.status(), 413);
    assert_eq!(proxy.respond(post("1234"), &client()).await.status(), 200);
    assert!(origin.request().await.ends_with("\r\n\r\n1234"));
    let (pieces, request) = upload();
    for piece in ["123", "45"] {
        pieces.send(Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).unwrap();
    }
    assert_eq!(proxy.respond(request, &client()).await.status(), 413);
}

#[tokio::test]
async fn a_route_is_for_some_clients_or_for_none() {
    let origin = ScriptedOrigin::start([ok("")]).await;
    let of_some = Access { allow: vec!["10.0.0.0/8".parse().unwrap()], deny: vec!["10.0.0.1/32".parse().unwrap()] };
    let proxy = proxy(&origin.address, |config| {
        let all = config.routes[0].clone();
        config.routes[0].access = of_some;
        for (path, refusal) in [("/.git", Refusal::NotFound), ("/admin", Refusal::Forbidden)] {
            let to = Destination::Refused(refusal);
            config.routes.push(watari_proxy::Route { path: path.parse().unwrap(), to, ..all.clone() });
        }
    });
    for (client, expected) in [("192.0.2.7", 403), ("10.0.0.1", 403), ("10.0.0.2", 200)] {
        assert_eq!(status(&proxy, &from(client)).await, expected, "{client}");
    }
    for (path, expected) in [("/.git/config", 404), ("/admin", 403)] {
        assert_eq!(proxy.respond(get_path(path), &from("10.0.0.2")).await.status(), expected, "{path}");
    }
}

/// Origins may treat all of these as equal.
#[tokio::test]
async fn a_route_is_for_a_path_however_it_is_spelled() {
    let mut origin = ScriptedOrigin::start([ok("")]).await;
    let proxy = proxy(&origin.address, |config| {
        let to = Destination::Refused(Refusal::Forbidden);
        let all = config.routes[0].clone();
        config.routes.push(watari_proxy::Route { path: "/private".parse().unwrap(), to, ..all });
    });
    for path in ["//private/a", "/%70rivate/a", "/private%2fa", "/private;v=1/a", "/private%5Ca", "/private%3Bv/a"] {
        assert_eq!(proxy.respond(get_path(path), &client()).await.status(), 403, "{path}");
    }
    for path in ["/./private/a", "/b/../private/a", "/b/%2e%2e/private/a", "/b/..;/private/a", "/b%2f..%2fprivate/a"] {
        assert_eq!(proxy.respond(get_path(path), &client()).await.status(), 400, "{path}");
    }
    assert_eq!(read(proxy.respond(get_path("//b%2Fc"), &client()).await).await.0, 200);
    assert!(
        origin.request().await.starts_with("GET //b%2Fc HTTP/1.1"),
        "what is not refused stays as it was asked for"
    );
}

fn with_auth(origin: &OriginAddress, authority: &OriginAddress, timeout: Duration) -> Proxy {
    proxy(origin, |config| {
        config.routes[0].auth = Some(0);
        config.auths.push(AuthConfig {
            url: format!("{authority}/check?a").parse().unwrap(),
            transport: Transport::default(),
            copy: vec![HeaderName::from_static("x-user")],
            timeout,
        });
    })
}

const SOON: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_authority_says_who_asks() {
    let yes = answer("HTTP/1.1 200 OK\r\nX-User: alice\r\nX-Other: 1\r\nContent-Length: 2\r\n\r\nok");
    let mut authority = ScriptedOrigin::start([yes, answer("HTTP/1.1 204 No Content\r\n\r\n")]).await;
    let mut origin = ScriptedOrigin::start([ok(""), ok("")]).await;
    let proxy = with_auth(&origin.address, &authority.address, LATE);
    for expected in [Some("x-user: alice"), None] {
        let mut request = post("body");
        *request.uri_mut() = "/path?query".parse().unwrap();
        for (name, value) in [("cookie", "a=1"), ("x-user", "mallory"), ("x_user", "mallory"), ("range", "bytes=1-")] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        assert_eq!(proxy.respond(request, &client()).await.status(), 200);
        let forwarded = origin.request().await;
        assert!(forwarded.ends_with("body") && forwarded.contains("range: bytes=1-"), "{forwarded}");
        let user = forwarded.lines().find(|line| line.starts_with("x-user") || line.starts_with("x_user"));
        assert_eq!(user, expected);
        assert!(!forwarded.contains("x-other"));
    }
    let question = authority.request().await;
    assert!(question.starts_with("GET /check?a HTTP/1.1\r\n"), "{question}");
    let host = authority.address.to_string().replace("http://", "host: ");
    let expected = ["cookie: a=1", "x-forwarded-method: POST", "x-forwarded-uri: /path?query", &host];
    for line in expected.into_iter().chain(["x-forwarded-host: example.org", "x-forwarded-for: 192.0.2.7"]) {
        assert!(question.lines().any(|other| other == line), "no {line} in {question}");
    }
    for name in ["content-length", "transfer-encoding", "range"] {
        assert!(!question.contains(name), "{name} in {question}");
    }
    assert_eq!(authority.connections(), [1], "its connection is kept");
}

#[tokio::test]
async fn the_authority_answers_the_client_where_it_refuses() {
    let unauthorized = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 5\r\n\r\nlogin";
    let redirect = "HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n";
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let authority = ScriptedOrigin::start([unauthorized, redirect, forbidden].map(answer)).await;
    let mut origin = ScriptedOrigin::start([]).await;
    let proxy = with_auth(&origin.address, &authority.address, LATE);
    let response = proxy.respond(get(), &client()).await;
    assert_eq!(response.headers()["www-authenticate"], "Basic");
    assert_eq!(read(response).await, (401, Ok("login".into())));
    let response: Response<Body> = proxy.respond(get(), &client()).await;
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (302, &"/login".parse().unwrap()));
    drop(read(response).await);
    assert_eq!(status(&proxy, &client()).await, 403);
    assert!(origin.connections().is_empty());
}

#[tokio::test]
async fn nothing_is_allowed_while_the_authority_does_not_say_so() {
    let mut origin = ScriptedOrigin::start([]).await;
    let answers = ["500 Internal Server Error", "404 Not Found", "304 Not Modified"];
    let answers = answers.map(|status| answer(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")));
    let authority = ScriptedOrigin::start(answers).await;
    let wrong = with_auth(&origin.address, &authority.address, LATE);
    for _ in 0..3 {
        assert_eq!(status(&wrong, &client()).await, 503);
    }
    let silent = ScriptedOrigin::start([Act::Ignore]).await;
    let (refusing, _socket) = refusing_origin();
    for authority in [silent.address, refusing] {
        assert_eq!(status(&with_auth(&origin.address, &authority, SOON), &client()).await, 503, "{authority}");
    }
    assert!(origin.connections().is_empty());
}
