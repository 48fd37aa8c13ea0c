//! Arbitrary answers to a flow's users. No value leads them to another site, or breaks out of a line.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use watari_bench_engine::flow::{Answer, Flow, Walk};

static FLOW: LazyLock<Arc<Flow>> = LazyLock::new(|| {
    let base = "https://www.example.com/".parse().expect("a URL");
    Arc::new(Flow::parse(Path::new("flow.toml"), TEXT, &base, 1).expect("a flow"))
});

const TEXT: &str = r#"
[[step]]
name = "take"
uri = "/a/b"
take.field = { header = "location" }
take.cookie = { cookie = "c" }
take.group = { regex = 'v=([^"]*)' }
take.pointed = { json = "/v/0" }

[[step]]
name = "field"
uri = "${field}"
headers = { x-field = "${field}", x-cookie = "${cookie}" }

[[step]]
name = "body"
method = "POST"
uri = "/a/${group}?${pointed}#${cookie|url}"
headers = { x-group = "${group}", x-pointed = "${pointed|json}" }
body = "${pointed}"
"#;

pub(crate) fn run(input: &[u8]) {
    let (headers, body) = answer(input);
    let mut walk = Walk::new(Arc::clone(&FLOW), 0, 1);
    while let Some(turn) = walk.turn() {
        let Ok(request) = walk.request(&turn) else { return };
        assert!(request.url.as_str().starts_with("https://www.example.com/"), "{}", request.url);
        assert!(!request.url.as_str().contains(|c: char| c.is_control() || c == ' '), "{}", request.url);
        assert!(request.headers.values().all(|value| !value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte))));
        let answer = Answer { status: 200, headers: &headers, body };
        if walk.answered(&turn, &request.url, answer).is_err() {
            return;
        }
    }
}

/// The input as fields, one per line, an empty line, and a body.
fn answer(input: &[u8]) -> (HeaderMap, &[u8]) {
    let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    };
    let headers = input[..end].split(|byte| *byte == b'\n').filter_map(field).collect();
    (headers, input.get(end + 2..).unwrap_or_default())
}
