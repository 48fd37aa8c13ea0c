//! Changes of requests and responses by the proxy.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use watari_body::Body;
use watari_proxy::{
    Compression, Config, Destination, ErrorPage, ErrorPages, Metrics, OriginAddress, PathPrefix, PoolConfig, Proxy,
    Redirect, Route, Rules, Sticky,
};

use crate::common::{Act, ScriptedOrigin, answer, client, get, ok, read, refusing_origin};

fn config(origins: impl IntoIterator<Item = OriginAddress>) -> Config {
    Config::one_pool(PoolConfig::plain("pool", origins))
}

async fn respond(config: Config, request: Request<Empty<Bytes>>) -> Response<Body> {
    Proxy::new(config, Metrics::default()).unwrap().respond(request, &client()).await
}

fn asking(fields: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let mut request = get();
    for (name, value) in fields {
        request.headers_mut().append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
    }
    request
}

fn lines(request: &str) -> Vec<&str> {
    request.trim_end().split("\r\n").collect()
}

/// The only value of a field.
fn field<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next().map(|value| value.to_str().unwrap());
    assert_eq!(values.next(), None, "several {name}");
    value
}

#[tokio::test]
async fn rules_change_heads_both_ways() {
    let text = "HTTP/1.1 200 OK\r\nServer: origin\r\nX-Secret: 1\r\nContent-Length: 2\r\n\r\nok";
    let mut origin = ScriptedOrigin::start([answer(text)]).await;
    let mut rules = Rules { host: Some("inner:8080".parse().unwrap()), ..Rules::default() };
    rules.request.set("x-asked", "%{client} %{host}%{path}").unwrap();
    rules.request.remove("accept").unwrap();
    rules.response.set("strict-transport-security", "max-age=63072000").unwrap();
    rules.response.remove("x-secret").unwrap();
    let mut config = config([origin.address.clone()]);
    config.routes[0].rules = rules;
    let response = respond(config, asking(&[("accept", "*/*"), ("x_asked", "anybody"), ("x-asked", "anybody")])).await;
    let names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["server", "content-length", "strict-transport-security"]);
    assert_eq!(read(response).await, (200, Ok("ok".into())));
    let request = origin.request().await;
    let lines = lines(&request);
    assert!(lines.contains(&"host: inner:8080") && lines.contains(&"x-forwarded-host: example.org"), "{request}");
    assert!(lines.contains(&"x-asked: 192.0.2.7 example.org/"), "{request}");
    assert!(!request.contains("accept:") && !request.contains("anybody"), "{request}");
}

#[tokio::test]
async fn rules_hold_for_failures_too() {
    let (address, _socket) = refusing_origin();
    let mut config = config([address]);
    config.routes[0].rules.response.set("strict-transport-security", "max-age=1").unwrap();
    let response = respond(config, get()).await;
    assert_eq!((response.status().as_u16(), field(&response, "strict-transport-security")), (502, Some("max-age=1")));
}

#[tokio::test]
async fn a_route_redirects() {
    let redirect = Redirect::new("https://www.example.org%{path}", 308).unwrap();
    let mut config = config([]);
    let to = Destination::Redirect(redirect);
    config.routes = vec![Route { to, ..Route::to_pool(None, PathPrefix::all(), 0) }];
    let request = Request::get("https://evil.example//other/a?b").body(Empty::new()).unwrap();
    let response = respond(config, request).await;
    assert_eq!(field(&response, "location"), Some("https://www.example.org//other/a?b"));
    assert_eq!(read(response).await, (308, Ok(String::new())));
}

#[tokio::test]
async fn trusted_proxies_are_believed() {
    for (trusted, expected) in [
        ("192.0.2.0/24", "forwarded: for=10.0.0.1, for=192.0.2.7;host=\"example.org\";proto=https"),
        ("198.51.100.0/24", "forwarded: for=192.0.2.7;host=\"example.org\";proto=https"),
    ] {
        let mut origin = ScriptedOrigin::start([ok("")]).await;
        let trusted_proxies = vec![trusted.parse().unwrap()];
        let config = Config { trusted_proxies, ..config([origin.address.clone()]) };
        respond(config, asking(&[("forwarded", "for=10.0.0.1"), ("x-real-ip", "10.0.0.1")])).await;
        let request = origin.request().await;
        assert!(lines(&request).contains(&expected), "{request}");
        assert!(!request.contains("x-real-ip"), "{request}");
    }
}

fn pages(intercept: bool) -> ErrorPages {
    let mut pages = ErrorPages::new(intercept);
    let content_type = HeaderValue::from_static("text/html; charset=utf-8");
    pages.add("5xx".parse().unwrap(), ErrorPage { content: Bytes::from_static(b"<p>sorry"), content_type });
    pages
}

#[tokio::test]
async fn own_failures_have_pages() {
    let (address, _socket) = refusing_origin();
    let response = respond(Config { error_pages: pages(false), ..config([address]) }, get()).await;
    assert_eq!(field(&response, "content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(field(&response, "content-length"), Some("8"));
    assert_eq!(read(response).await, (502, Ok("<p>sorry".into())));
}

#[tokio::test]
async fn origins_failures_have_pages_where_wanted() {
    let text = "HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nown";
    for (intercept, body, coding) in [(true, "<p>sorry", None), (false, "own", Some("gzip"))] {
        let origin = ScriptedOrigin::start([answer(text)]).await;
        let response = respond(Config { error_pages: pages(intercept), ..config([origin.address]) }, get()).await;
        assert_eq!((field(&response, "retry-after"), field(&response, "content-encoding")), (Some("5"), coding));
        assert_eq!(read(response).await, (503, Ok(body.into())));
    }
}

#[tokio::test]
async fn alternative_services_of_origins_are_not_for_clients() {
    let origin =
        ScriptedOrigin::start([answer("HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 0\r\n\r\n")]).await;
    let response = respond(config([origin.address]), get()).await;
    assert_eq!(field(&response, "alt-svc"), None);
}

fn sticky(origins: impl IntoIterator<Item = OriginAddress>) -> Proxy {
    let sticky = Sticky::new("watari", Some(Duration::from_hours(1)), &[7; 32]).unwrap();
    let pool = PoolConfig { sticky: Some(sticky), ..PoolConfig::plain("pool", origins) };
    Proxy::new(Config::one_pool(pool), Metrics::default()).unwrap()
}

/// The cookie that the client sends back.
fn cookie(response: &Response<Body>) -> Option<String> {
    field(response, "set-cookie").map(|set| set.split(';').next().unwrap().to_owned())
}

/// Sends a request with a cookie. Returns the response and the new cookie.
async fn ask(proxy: &Proxy, with: &str) -> (String, Option<String>) {
    let response = proxy.respond(asking(&[("cookie", with)]), &client()).await;
    let told = cookie(&response);
    (read(response).await.1.unwrap(), told)
}

fn often(text: &str) -> Vec<Act> {
    vec![ok(text); 8]
}

#[tokio::test]
async fn clients_stay_with_their_origin() {
    let (first, second) = (ScriptedOrigin::start(often("1")).await, ScriptedOrigin::start(often("2")).await);
    let addresses = [first.address.clone(), second.address.clone()];
    let proxy = sticky(addresses.clone());
    let (begun, told) = ask(&proxy, "a=b").await;
    let told = told.unwrap();
    assert!(!told.contains("127.0.0.1"), "{told}");
    for _ in 0..3 {
        assert_eq!(ask(&proxy, &told).await, (begun.clone(), None));
    }
    // Other proxies of the same pool accept it. A scripted origin has one connection at a time.
    drop(proxy);
    for _ in 0..2 {
        assert_eq!(ask(&sticky(addresses.clone()), &told).await.0, begun);
    }
}

#[tokio::test]
async fn a_draining_origin_is_left_for_good() {
    let (first, second) = (ScriptedOrigin::start(often("1")).await, ScriptedOrigin::start(often("2")).await);
    let proxy = sticky([first.address.clone(), second.address.clone()]);
    let (begun, told) = ask(&proxy, "").await;
    let left = if begun == "1" { &first.address } else { &second.address };
    proxy.drain(left, true).unwrap();
    let (other, renewed) = ask(&proxy, &told.unwrap()).await;
    assert_ne!(begun, other);
    assert_eq!(ask(&proxy, &renewed.unwrap()).await, (other, None));
}

/// An origin that responds once and then ends.
async fn mortal_origin() -> OriginAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndead").await.unwrap();
    });
    address
}

#[tokio::test]
async fn a_dead_origin_is_left_for_good() {
    let (dead, alive) = (mortal_origin().await, ScriptedOrigin::start(often("1")).await);
    let proxy = sticky([dead, alive.address]);
    let (begun, told) = ask(&proxy, "").await;
    assert_eq!(begun, "dead");
    let (other, renewed) = ask(&proxy, &told.unwrap()).await;
    assert_eq!(other, "1");
    assert_eq!(ask(&proxy, &renewed.unwrap()).await, ("1".into(), None));
}

fn page(fields: &str, length: usize) -> Act {
    let body = "<p>".repeat(length / 3);
    answer(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// A page through a compressing proxy.
async fn compressed(page: Act, accepts: &str) -> Response<Body> {
    let origin = ScriptedOrigin::start([page]).await;
    let config = Config { compression: Some(Compression::default()), ..config([origin.address]) };
    respond(config, asking(&[("accept-encoding", accepts)])).await
}

async fn bytes(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn pages_are_compressed() {
    for (accepts, coding) in [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("zstd;q=0.1, gzip", "gzip")] {
        let response = compressed(page("ETag: \"a\"\r\n", 30_000), accepts).await;
        assert_eq!(field(&response, "content-encoding"), Some(coding));
        assert_eq!((field(&response, "etag"), field(&response, "vary")), (Some("W/\"a\""), Some("accept-encoding")));
        assert_eq!(field(&response, "content-length"), None);
        let coded = bytes(response).await;
        assert!(coded.len() < 1000, "{}", coded.len());
        let mut text = String::new();
        match coding {
            "gzip" => flate2::read::GzDecoder::new(&coded[..]).read_to_string(&mut text).unwrap(),
            _ => zstd::stream::read::Decoder::new(&coded[..]).unwrap().read_to_string(&mut text).unwrap(),
        };
        assert!(text == "<p>".repeat(10_000), "{coding}");
    }
}

#[tokio::test]
async fn a_client_that_accepts_no_coding_gets_none() {
    for accepts in ["identity", "br", "gzip;q=0", "gzip;q=0.5, identity"] {
        let response = compressed(page("ETag: \"a\"\r\n", 30_000), accepts).await;
        assert_eq!((field(&response, "content-encoding"), field(&response, "etag")), (None, Some("\"a\"")));
        assert_eq!(
            (field(&response, "vary"), field(&response, "content-length")),
            (Some("accept-encoding"), Some("30000"))
        );
        assert_eq!(bytes(response).await.len(), 30_000, "{accepts}");
    }
}

#[tokio::test]
async fn what_could_move_is_not_compressed() {
    let movable = page("ETag: \"a\"\r\nAccept-Ranges: bytes\r\n", 300_000);
    let response = compressed(movable, "gzip").await;
    assert_eq!((field(&response, "content-encoding"), field(&response, "vary")), (None, None));
    assert_eq!(bytes(response).await.len(), 300_000);
    // Without a validator it cannot move.
    let response = compressed(page("", 300_000), "gzip").await;
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn a_rule_keeps_a_route_from_being_compressed() {
    let origin = ScriptedOrigin::start([page("", 30_000)]).await;
    let mut config = Config { compression: Some(Compression::default()), ..config([origin.address]) };
    config.routes[0].rules.response.append("cache-control", "no-transform").unwrap();
    let response = respond(config, asking(&[("accept-encoding", "gzip")])).await;
    assert_eq!(field(&response, "content-encoding"), None);
}

#[tokio::test]
async fn a_cut_stays_a_cut() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 30000\r\n\r\nhalf";
    let response = compressed(crate::common::answer_and_close(cut), "gzip").await;
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
    assert!(response.into_body().collect().await.is_err());
}
