//! Arbitrary requests for files. No file outside of the directory and no hidden file is served. Parts match their
//! `Content-Range`.

use std::path::Path;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use watari_files::Files;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    is_head: bool,
    path: Asked<'a>,
    range: Option<&'a [u8]>,
    condition: Option<(Condition, &'a [u8])>,
}

#[derive(Arbitrary, Debug)]
enum Asked<'a> {
    File,
    Any(&'a str),
}

#[derive(Arbitrary, Debug)]
enum Condition {
    Match,
    NoneMatch,
    Range,
    ModifiedSince,
}

const SECRET: &[u8] = b"not for clients";

/// A directory with a file, and files that must not be served.
struct Site {
    files: Files,
    runtime: Runtime,
    _directory: tempfile::TempDir,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("a/.b")).expect("directories");
    let write = |path: &Path, content: &[u8]| std::fs::write(path, content).expect("a file");
    write(&root.join("f"), &content());
    write(&root.join("a/index.html"), b"index");
    for secret in ["../f", ".f", "a/.f", "a/.b/f"] {
        write(&root.join(secret), SECRET);
    }
    std::os::unix::fs::symlink("../f", root.join("l")).expect("a link");
    let files = Files::open(&root, watari_files::Metrics::default()).expect("a root");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    Site { files, runtime, _directory: directory }
});

fn content() -> Vec<u8> {
    (0..1000u32).map(|index| (index % 251) as u8).collect()
}

pub(crate) fn run(input: Input<'_>) {
    let path = match input.path {
        Asked::File => "/f",
        Asked::Any(path) => path,
    };
    let mut request = Request::builder().uri(path).method(if input.is_head { Method::HEAD } else { Method::GET });
    if let Some(range) = input.range {
        request = request.header(RANGE, range);
    }
    if let Some((condition, value)) = input.condition {
        request = request.header(field(&condition), value);
    }
    // Such input is rejected before it reaches the file server.
    let Ok(request) = request.body(()) else { return };
    SITE.runtime.block_on(check(request));
}

fn field(condition: &Condition) -> HeaderName {
    match condition {
        Condition::Match => IF_MATCH,
        Condition::NoneMatch => IF_NONE_MATCH,
        Condition::Range => IF_RANGE,
        Condition::ModifiedSince => IF_MODIFIED_SINCE,
    }
}

async fn check(request: Request<()>) {
    let (is_head, is_file) = (request.method() == Method::HEAD, request.uri().path() == "/f");
    let (head, body) = SITE.files.respond(&request.into_parts().0).await.into_parts();
    let body = body.collect().await.expect("the file stays as it is").to_bytes();
    assert!(!body.windows(SECRET.len()).any(|window| window == SECRET));
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let length = head.headers.get(CONTENT_LENGTH).map(|length| number(length.to_str().expect("digits")));
    if is_head {
        return assert!(body.is_empty());
    }
    assert!(length.is_none_or(|length| length == body.len()));
    match (head.status, head.headers.get(CONTENT_RANGE)) {
        (StatusCode::OK, _) if is_file => assert_eq!(body, content()),
        (StatusCode::PARTIAL_CONTENT, Some(range)) => {
            let range = range.to_str().expect("ASCII").strip_prefix("bytes ").expect("of bytes");
            let (first, rest) = range.split_once('-').expect("a range");
            let (last, total) = rest.split_once('/').expect("of a total");
            assert!(number(total) == content().len() || !is_file);
            if is_file {
                assert_eq!(body, content()[number(first)..=number(last)]);
            }
        }
        // Parts are at most as long as the file, plus the separators.
        (StatusCode::PARTIAL_CONTENT, None) => assert!(body.len() < content().len() + 16 * 200),
        (status, _) => assert!(!status.is_server_error(), "{status}"),
    }
}
