//! The access log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;
use watari_proxy::{AccessLog, Config, LogFormat, Metrics, OriginAddress, PoolConfig, Proxy};
use watari_test_origins::{Content, Fault, Moment, Origin, Resource};

use crate::common::upgrade::{AGREED, LONG, get_echo, join};
use crate::common::{
    Act, ScriptedOrigin, answer, answer_and_close, answer_and_stall, client, get, get_path, ok, post, read,
    refusing_origin,
};

const WAIT_MAX: Duration = Duration::from_secs(20);

struct Logged {
    proxy: Proxy,
    path: PathBuf,
    _dir: TempDir,
}

impl Logged {
    fn new(origins: impl IntoIterator<Item = OriginAddress>, format: LogFormat) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let metrics = Metrics::default();
        let log = AccessLog::open(&path, format, &metrics).unwrap();
        let config = Config { access_log: Some(log), ..Config::one_pool(PoolConfig::plain("pool", origins)) };
        Self { proxy: Proxy::new(config, metrics).unwrap(), path, _dir: dir }
    }

    /// The first lines, as soon as they are written.
    async fn lines<const COUNT: usize>(&self) -> [String; COUNT] {
        lines(&self.path).await
    }

    /// These values of the only line.
    async fn values<const COUNT: usize>(&self, names: [&str; COUNT]) -> [Value; COUNT] {
        let [line] = self.lines().await;
        let line: Value = serde_json::from_str(&line).unwrap();
        names.map(|name| line[name].clone())
    }
}

async fn lines<const COUNT: usize>(path: &Path) -> [String; COUNT] {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let lines: Vec<String> = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        match lines.try_into() {
            Ok(lines) => return lines,
            Err(lines) => assert!(Instant::now() < deadline, "{lines:?}"),
        }
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_request_is_logged_when_its_response_has_ended() {
    let origin = ScriptedOrigin::start([ok("answer")]).await;
    let logged = Logged::new([origin.address.clone()], LogFormat::Combined);
    let mut request = post("body");
    *request.uri_mut() = "/path?query".parse().unwrap();
    for (name, value) in
        [("cookie", "secret"), ("authorization", "secret"), ("referer", "there"), ("user-agent", "\"it\"")]
    {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let response = logged.proxy.respond(request, &client()).await;
    assert_eq!(fs::read_to_string(&logged.path).unwrap(), "");
    drop(read(response).await);
    let [line] = logged.lines().await;
    assert!(line.starts_with("192.0.2.7 - - ["), "{line}");
    assert!(line.ends_with("] \"POST /path?query HTTP/1.1\" 200 6 \"there\" \"\\x22it\\x22\""), "{line}");
}

#[tokio::test]
async fn it_is_logged_where_a_response_came_from() {
    let (refusing, _socket) = refusing_origin();
    let origin = ScriptedOrigin::start([ok("answer")]).await;
    let logged = Logged::new([refusing, origin.address.clone()], LogFormat::Json);
    drop(read(logged.proxy.respond(get(), &client()).await).await);
    let names = ["client", "host", "status", "bytes", "origin", "tries", "moves", "ending", "user_agent"];
    let origin = origin.address.to_string();
    let expected = json!(["192.0.2.7", "example.org", 200, 6, origin, 2, 0, "complete", null]);
    assert_eq!(json!(logged.values(names).await), expected);
}

#[tokio::test]
async fn it_is_logged_how_often_a_transfer_moved() {
    let resource = || Resource::new(Content::generated(1, 300_000));
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Death { after: 100_000 });
    let second = Origin::start(resource());
    let logged = Logged::new([&first, &second].map(|origin| origin.url().parse().unwrap()), LogFormat::Json);
    let response = logged.proxy.respond(get_path("/file"), &client()).await;
    http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    let expected = json!([300_000, second.url(), 1, 1, "complete"]);
    assert_eq!(json!(logged.values(["bytes", "origin", "tries", "moves", "ending"]).await), expected);
}

#[tokio::test]
async fn it_is_logged_how_a_response_ended() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    for (script, expected) in [
        (answer_and_close(cut), json!([200, 4, "cut"])),
        (answer("HTTP/1.1 204 No Content\r\n\r\n"), json!([204, 0, "complete"])),
        (answer("nonsense\r\n\r\n"), json!([502, 12, "complete"])),
    ] {
        let origin = ScriptedOrigin::start([script]).await;
        let logged = Logged::new([origin.address], LogFormat::Json);
        drop(read(logged.proxy.respond(get(), &client()).await).await);
        assert_eq!(json!(logged.values(["status", "bytes", "ending"]).await), expected);
    }
    let origin = ScriptedOrigin::start([answer("nonsense\r\n\r\n")]).await;
    let logged = Logged::new([origin.address], LogFormat::Json);
    let mut head = get();
    *head.method_mut() = http::Method::HEAD;
    drop(logged.proxy.respond(head, &client()).await);
    assert_eq!(json!(logged.values(["status", "bytes", "ending"]).await), json!([502, 0, "complete"]));
}

#[tokio::test]
async fn a_client_that_leaves_is_logged() {
    let mut origin = ScriptedOrigin::start([Act::Ignore, answer_and_stall(&head(9))]).await;
    let logged = Logged::new([origin.address.clone()], LogFormat::Json);
    let client = client();
    tokio::select! {
        _ = logged.proxy.respond(get(), &client) => panic!("it is not answered"),
        _ = origin.request() => {}
    }
    assert_eq!(json!(logged.values(["status", "ending", "tries"]).await), json!([499, "client_left", 1]));
    drop(logged.proxy.respond(get(), &client).await);
    let [_, line] = logged.lines().await;
    assert!(line.contains("\"status\":200") && line.contains("\"ending\":\"client_left\""), "{line}");
}

#[tokio::test]
async fn a_tunnel_is_logged_when_it_has_ended() {
    let origin = ScriptedOrigin::start([answer_and_close(&format!("{AGREED}hello"))]).await;
    let logged = Logged::new([origin.address], LogFormat::Json);
    let (mut client, end) = join(logged.proxy.respond(get_echo(), &client()).await, LONG);
    let begun = Instant::now();
    let mut all = Vec::new();
    client.read_to_end(&mut all).await.unwrap();
    assert_eq!(fs::read_to_string(&logged.path).unwrap(), "", "the client has not ended its side");
    let elapsed = begun.elapsed();
    client.shutdown().await.unwrap();
    end.await.unwrap().unwrap();
    let [status, bytes, ending, duration_ms] = logged.values(["status", "bytes", "ending", "duration_ms"]).await;
    assert_eq!(json!([status, bytes, ending]), json!([101, 5, "complete"]));
    assert!(duration_ms.as_f64().unwrap() >= elapsed.as_secs_f64() * 1000.0, "{duration_ms}");
}

#[tokio::test]
async fn it_is_logged_that_an_origin_broke_its_tunnel_off() {
    let origin = ScriptedOrigin::start([answer_and_close(AGREED)]).await;
    let logged = Logged::new([origin.address], LogFormat::Json);
    let (mut client, end) = join(logged.proxy.respond(get_echo(), &client()).await, LONG);
    // The origin reads no more, so its connection is reset.
    while client.write_all(&[0; 1000]).await.is_ok() {}
    end.await.unwrap().unwrap_err();
    assert_eq!(json!(logged.values(["status", "ending"]).await), json!([101, "cut"]));
}

#[tokio::test]
async fn an_unused_tunnel_is_logged() {
    let origin = ScriptedOrigin::start([answer_and_stall(AGREED)]).await;
    let logged = Logged::new([origin.address], LogFormat::Json);
    let (_client, end) = join(logged.proxy.respond(get_echo(), &client()).await, Duration::from_millis(1));
    end.await.unwrap().unwrap_err();
    assert_eq!(json!(logged.values(["status", "ending"]).await), json!([101, "silent"]));
}

#[tokio::test]
async fn it_is_logged_that_a_client_left_its_tunnel() {
    let origin = ScriptedOrigin::start([answer_and_stall(&format!("{AGREED}hello"))]).await;
    let logged = Logged::new([origin.address], LogFormat::Json);
    let (client, end) = join(logged.proxy.respond(get_echo(), &crate::common::client()).await, LONG);
    drop(client);
    end.await.unwrap().unwrap_err();
    assert_eq!(json!(logged.values(["status", "bytes", "ending"]).await), json!([101, 0, "client_left"]));
}

fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test]
async fn a_log_that_was_renamed_is_opened_anew() {
    let origin = ScriptedOrigin::start([ok("1"), ok("2"), ok("3")]).await;
    let logged = Logged::new([origin.address], LogFormat::Combined);
    drop(read(logged.proxy.respond(get(), &client()).await).await);
    logged.lines::<1>().await;
    let old = logged.path.with_extension("old");
    fs::rename(&logged.path, &old).unwrap();
    drop(read(logged.proxy.respond(get(), &client()).await).await);
    lines::<2>(&old).await;
    logged.proxy.reopen_log().unwrap();
    assert!(logged.path.exists(), "the file is opened at once, not with the next line");
    drop(read(logged.proxy.respond(get(), &client()).await).await);
    let Logged { proxy, path, _dir } = logged;
    drop(proxy);
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 1, "the end of a log waits for its last line");
    lines::<2>(&old).await;
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_again_goes_on_in_the_old_file() {
    let origin = ScriptedOrigin::start([ok("1"), ok("2"), ok("3")]).await;
    let dir = tempfile::tempdir().unwrap();
    let (logs, old) = (dir.path().join("logs"), dir.path().join("old"));
    fs::create_dir(&logs).unwrap();
    let metrics = Metrics::register(&mut Registry::default());
    let log = AccessLog::open(&logs.join("access.log"), LogFormat::Json, &metrics).unwrap();
    let config = Config { access_log: Some(log), ..Config::one_pool(PoolConfig::plain("pool", [origin.address])) };
    let proxy = Proxy::new(config, metrics).unwrap();
    fs::rename(&logs, &old).unwrap();
    let error = proxy.reopen_log().unwrap_err().to_string();
    let path = logs.join("access.log");
    let expected = format!("cannot reopen the access log {}: No such file or directory (os error 2)", path.display());
    assert_eq!(error, expected);
    drop(read(proxy.respond(get(), &client()).await).await);
    lines::<1>(&old.join("access.log")).await;
    fs::create_dir(&logs).unwrap();
    proxy.reopen_log().unwrap();
    drop(read(proxy.respond(get(), &client()).await).await);
    lines::<1>(&path).await;
}

#[tokio::test]
async fn lines_that_cannot_be_written_are_counted() {
    let origin = ScriptedOrigin::start([ok("")]).await;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let log = AccessLog::open(Path::new("/dev/full"), LogFormat::Json, &metrics).unwrap();
    let config = Config { access_log: Some(log), ..Config::one_pool(PoolConfig::plain("pool", [origin.address])) };
    let proxy = Proxy::new(config, metrics).unwrap();
    drop(read(proxy.respond(get(), &client()).await).await);
    drop(proxy);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("watari_proxy_access_log_lines_lost_total 1\n"), "{text}");
}
