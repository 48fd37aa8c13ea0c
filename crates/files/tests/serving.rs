//! A served directory, as clients see it.

#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::registry::Registry;
use watari_body::Body;
use watari_files::{Files, Metrics};

struct Site {
    directory: tempfile::TempDir,
    files: Arc<Files>,
    registry: Registry,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let files = Arc::new(Files::open(directory.path(), metrics).unwrap());
        Self { directory, files, registry }
    }

    /// Adds a file that was written one hour ago.
    fn with(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_hours(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
        self
    }

    async fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Answer::read(self.files.respond(&request.body(()).unwrap().into_parts().0).await).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[]).await
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    #[track_caller]
    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

#[tokio::test]
async fn a_file_comes_with_its_fields() {
    let site = Site::new().with("a b.txt", "content");
    let answer = site.get("/a%20b.txt?ignored").await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"content"[..]));
    assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    assert_eq!(answer.field("content-length"), "7");
    assert_eq!(answer.field("accept-ranges"), "bytes");
    assert!(answer.field("etag").starts_with('"') && answer.field("etag").ends_with("-7\""));
    assert!(httpdate::parse_http_date(answer.field("last-modified")).is_ok());
}

#[tokio::test]
async fn types_follow_the_extension() {
    let names = ["a.html", "a.CSS", "a.js", "a.json", "a.png", "a.svg", "a", "a.unknown-thing", "a.tar.gz"];
    let site = names.iter().fold(Site::new(), |site, name| site.with(name, ""));
    let mut types = Vec::new();
    for name in names {
        types.push(site.get(&format!("/{name}")).await.field("content-type").to_owned());
    }
    assert_eq!(
        types,
        [
            "text/html; charset=utf-8",
            "text/css; charset=utf-8",
            "text/javascript; charset=utf-8",
            "application/json",
            "image/png",
            "image/svg+xml",
            "application/octet-stream",
            "application/octet-stream",
            "application/gzip",
        ]
    );
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let site = Site::new().with("a", "content");
    for (path, fields) in [("/a", &[][..]), ("/missing", &[]), ("/a", &[("if-none-match", "*")])] {
        let get = site.ask(Method::GET, path, fields).await;
        let head = site.ask(Method::HEAD, path, fields).await;
        assert_eq!((head.status, head.headers), (get.status, get.headers));
        assert!(head.body.is_empty());
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let site = Site::new().with("a", "content");
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE] {
        let answer = site.ask(method, "/a", &[]).await;
        assert_eq!((answer.status, answer.field("allow")), (405, "GET, HEAD"));
    }
}

#[tokio::test]
async fn a_directory_is_its_index() {
    let site = Site::new().with("index.html", "root").with("d/index.html", "inner").with("empty/a", "");
    assert_eq!(site.get("/").await.body, "root");
    let inner = site.get("/d/").await;
    assert_eq!((&inner.body[..], inner.field("content-type")), (&b"inner"[..], "text/html; charset=utf-8"));
    assert_eq!(site.get("/empty/").await.status, 404);
    assert_eq!(site.get("/d/index.html/").await.status, 404);
}

#[tokio::test]
async fn a_directory_without_its_slash_is_elsewhere() {
    let site = Site::new().with("d/e f/index.html", "").with("\\host/index.html", "");
    for (path, location) in [("/d", "/d/"), ("/d?a=b", "/d/?a=b"), ("/d/e%20f", "/d/e%20f/"), ("/%5chost", "/%5Chost/")]
    {
        let answer = site.get(path).await;
        assert_eq!((answer.status, answer.field("location")), (301, location), "{path}");
    }
    assert_eq!(site.get("//d").await.status, 404);
}

#[tokio::test]
async fn what_is_not_served_does_not_exist() {
    let site = Site::new().with(".hidden", "").with("d/.git/config", "").with("a", "").with(".well-known/b", "");
    symlink("/etc/passwd", site.directory.path().join("link")).unwrap();
    for (path, status) in [
        ("/missing", 404),
        ("/.hidden", 404),
        ("/d/.git/config", 404),
        ("/link", 404),
        ("/a/b", 404),
        ("/../a", 404),
        ("/%2e%2e/a", 404),
        ("/a%00", 400),
        ("/a%zz", 400),
        ("/.well-known/b", 200),
    ] {
        assert_eq!(site.get(path).await.status, status, "{path}");
    }
    assert_eq!(site.get(&format!("/{}", "a".repeat(300))).await.status, 404);
    assert_eq!(site.get(&format!("/{}", "a/".repeat(5000))).await.status, 404);
}

#[tokio::test]
async fn conditions_are_heeded() {
    let site = Site::new().with("a", "content");
    let first = site.get("/a").await;
    let (etag, date) = (first.field("etag"), first.field("last-modified"));
    for (field, value, status) in [
        ("if-none-match", etag, 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", date, 304),
        ("if-match", etag, 200),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ] {
        let answer = site.ask(Method::GET, "/a", &[(field, value)]).await;
        assert_eq!(answer.status, status, "{field}: {value}");
        assert_eq!((answer.field("etag"), answer.field("last-modified")), (etag, date));
        assert_eq!(answer.body.is_empty(), status != 200);
    }
}

#[tokio::test]
async fn a_file_just_written_has_a_weak_tag() {
    let site = Site::new();
    fs::write(site.directory.path().join("a"), "content").unwrap();
    let answer = site.get("/a").await;
    assert!(answer.field("etag").starts_with("W/\""));
    let part = [("range", "bytes=0-0"), ("if-range", answer.field("etag"))];
    assert_eq!(site.ask(Method::GET, "/a", &part).await.status, 200);
}

#[tokio::test]
async fn one_range_is_a_part() {
    let content = pattern(200_000);
    let site = Site::new().with("a.bin", &content);
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=100000-", 100_000..200_000),
        ("bytes=-5", 199_995..200_000),
        ("bytes=70000-70009,70005-70019", 70_000..70_020),
    ] {
        let answer = site.ask(Method::GET, "/a.bin", &[("range", range)]).await;
        let content_range = format!("bytes {}-{}/200000", expected.start, expected.end - 1);
        assert_eq!((answer.status, answer.field("content-range")), (206, content_range.as_str()));
        assert_eq!(answer.field("content-length"), expected.len().to_string());
        assert_eq!(answer.field("content-type"), "application/octet-stream");
        assert_eq!(answer.body, content[expected]);
    }
}

#[tokio::test]
async fn several_ranges_are_a_multipart() {
    let content = pattern(2000);
    let site = Site::new().with("a.bin", &content);
    let answer = site.ask(Method::GET, "/a.bin", &[("range", "bytes=1000-1009, 0-4, -3")]).await;
    assert_eq!((answer.status, answer.field("content-range")), (206, ""));
    assert_eq!(answer.field("content-length"), answer.body.len().to_string());
    let boundary = answer.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |range: std::ops::Range<usize>| {
        let head = format!(
            "--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {}-{}/2000\r\n\r\n",
            range.start,
            range.end - 1
        );
        [head.as_bytes(), &content[range], b"\r\n"].concat()
    };
    let end = format!("--{boundary}--\r\n").into_bytes();
    assert_eq!(answer.body, [part(1000..1010), part(0..5), part(1997..2000), end].concat());
}

#[tokio::test]
async fn ranges_that_do_not_apply() {
    let site = Site::new().with("a", "content").with("empty", "");
    let unsatisfiable = site.ask(Method::GET, "/a", &[("range", "bytes=7-")]).await;
    assert_eq!((unsatisfiable.status, unsatisfiable.field("content-range")), (416, "bytes */7"));
    assert_eq!(site.ask(Method::GET, "/empty", &[("range", "bytes=0-")]).await.status, 416);

    let etag = site.get("/a").await.field("etag").to_owned();
    for (fields, status) in [
        (&[("range", "bytes=0-1"), ("if-range", etag.as_str())][..], 206),
        (&[("range", "bytes=0-1"), ("if-range", "\"other\"")], 200),
        (&[("range", "bytes=0-1"), ("if-none-match", etag.as_str())], 304),
        (&[("range", "bytes=7-"), ("if-match", "\"other\"")], 412),
        (&[("range", "bytes=1-0")], 200),
        (&[("range", "bytes=0-0"), ("range", "bytes=1-1")], 200),
    ] {
        assert_eq!(site.ask(Method::GET, "/a", fields).await.status, status, "{fields:?}");
    }
    let head = site.ask(Method::HEAD, "/a", &[("range", "bytes=0-1")]).await;
    assert_eq!((head.status, head.field("content-length")), (200, "7"));
}

#[tokio::test]
async fn requests_are_counted_by_status() {
    let site = Site::new().with("a", "content");
    for path in ["/a", "/a", "/b"] {
        site.get(path).await;
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &site.registry).unwrap();
    for line in [
        "watari_files_requests_total{status=\"200\"} 2",
        "watari_files_requests_total{status=\"404\"} 1",
        "watari_files_bodies_cut_total 0",
    ] {
        assert!(text.lines().any(|candidate| candidate == line), "no {line} in\n{text}");
    }
}

/// Requests `path` over a connection of `version`.
async fn fetch(files: Arc<Files>, version: Version, path: &str) -> Result<Bytes, hyper::Error> {
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let service = service_fn(move |request: Request<Incoming>| {
        let files = Arc::clone(&files);
        async move { Ok::<_, Infallible>(files.respond(&request.into_parts().0).await) }
    });
    let (ours, theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
    let request = Request::get(format!("https://example.org{path}")).body(Empty::<Bytes>::new()).unwrap();
    let response = if version == Version::HTTP_2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(async move { server.serve_connection(theirs, service).await });
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), ours).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(async move { server.serve_connection(theirs, service).await });
        let (mut sender, connection) = hyper::client::conn::http1::handshake(ours).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn clients_of_both_versions_get_every_byte() {
    let content = pattern(1_000_003);
    let site = Site::new().with("large", &content);
    for version in [Version::HTTP_11, Version::HTTP_2] {
        assert!(fetch(Arc::clone(&site.files), version, "/large").await.unwrap() == content, "{version:?}");
    }
}

#[tokio::test]
async fn clients_of_both_versions_can_tell_that_a_file_shrank() {
    // A sparse file, longer than all buffers between the file and the client.
    const LEN: u64 = 64 << 20;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let site = Site::new().with("sparse", "");
        let file = fs::File::options().write(true).open(site.directory.path().join("sparse")).unwrap();
        file.set_len(LEN).unwrap();
        let fetched = tokio::spawn(fetch(Arc::clone(&site.files), version, "/sparse"));
        // The request is counted as soon as its file is open.
        while !counted(&site.registry) {
            tokio::task::yield_now().await;
        }
        file.set_len(10).unwrap();
        assert!(fetched.await.unwrap().is_err(), "{version:?}");
    }
}

fn counted(registry: &Registry) -> bool {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.contains("watari_files_requests_total{status=\"200\"} 1")
}
