#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use proptest::prelude::*;

use super::*;

const SEED: u64 = 1;

const EXAMPLE: &str = r#"
[values]
language = "en"

[[step]]
name = "form"
uri = "/order?lang=${language}&user=${user}"
take.token = { regex = 'name="csrf" value="([^"]+)"' }

[[step]]
name = "confirm"
think = { shares = ["5s", "10s", "30s", "60s"] }
method = "POST"
uri = "/order"
headers = { content-type = "application/x-www-form-urlencoded", x-token = "${token}" }
body = "token=${token|url}"
expect = 303
take.place = { header = "location" }

[[step]]
name = "done"
uri = "${place}"
"#;

fn parse(text: &str) -> Result<Arc<Flow>, FlowError> {
    Flow::parse(Path::new("shop.toml"), text, &"https://shop.test/base/".parse().unwrap(), SEED).map(Arc::new)
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn walk(text: &str) -> Walk {
    Walk::new(parse(text).unwrap(), 7, SEED)
}

/// Answers the walk's next request, and returns that request.
fn exchange(walk: &mut Walk, status: u16, headers: &[(HeaderName, &str)], body: &str) -> Result<Outgoing, Failed> {
    let turn = walk.turn().unwrap();
    let request = walk.request(&turn).unwrap();
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
    let answer = Answer { status, headers: &headers, body: body.as_bytes() };
    walk.answered(&turn, &request.url, answer).map(|()| request)
}

#[test]
fn a_flow_goes_from_answer_to_request() {
    let mut walk = walk(EXAMPLE);
    let set_cookie = [(header::SET_COOKIE, "sid=42; Path=/")];
    let form = exchange(&mut walk, 200, &set_cookie, r#"<input name="csrf" value="a b&c">"#).unwrap();
    assert_eq!((form.method.as_str(), form.url.as_str()), ("GET", "https://shop.test/order?lang=en&user=7"));
    assert!(form.headers.is_empty() && form.body.is_empty());

    let confirm = exchange(&mut walk, 303, &[(header::LOCATION, "thanks/1#top")], "").unwrap();
    assert_eq!((confirm.method.as_str(), confirm.url.as_str()), ("POST", "https://shop.test/order"));
    assert_eq!(confirm.body, "token=a%20b%26c");
    assert_eq!(confirm.headers["x-token"], "a b&c");
    assert_eq!(confirm.headers[header::COOKIE], "sid=42");

    let done = exchange(&mut walk, 200, &[], "").unwrap();
    assert_eq!(done.url.as_str(), "https://shop.test/base/thanks/1");
    assert_eq!(walk.turn(), None);
}

#[test]
fn the_example_is_a_flow() {
    let flow = parse(include_str!("../../../../examples/flow.toml")).unwrap();
    assert_eq!(flow.names()[..], ["form", "pictures", "search", "order", "done"]);
}

#[test]
fn a_flow_ends_where_the_answer_is_not_as_it_must_be() {
    assert_eq!(exchange(&mut walk(EXAMPLE), 404, &[], "").unwrap_err(), Failed::Status(404));
    assert_eq!(
        exchange(&mut walk(EXAMPLE), 200, &[], "<p>").unwrap_err(),
        Failed::Missing { name: "token".to_owned(), missing: Missing::Absent }
    );
    let mut walk = walk(EXAMPLE);
    exchange(&mut walk, 302, &[], r#"name="csrf" value="x""#).unwrap();
    assert_eq!(exchange(&mut walk, 200, &[], "").unwrap_err(), Failed::Status(200));
}

#[test]
fn think_times_belong_to_turns() {
    let thought = |number| {
        let mut walk = Walk::new(parse(EXAMPLE).unwrap(), number, SEED);
        let first = walk.turn().unwrap();
        assert_eq!(first, Turn { step: 0, think: Duration::ZERO });
        walk.turn().unwrap().think.as_secs()
    };
    let mut times: Vec<_> = (0..4).map(thought).collect();
    times.sort_unstable();
    assert_eq!(times, [5, 10, 30, 60]);
}

#[test]
fn steps_are_repeated_and_left_out() {
    let text = "[[step]]\nname = 'a'\nuri = '/'\nrepeat = 3\nprobability = 0.25\n[[step]]\nname = 'b'\nuri = '/'\n";
    let flow = parse(text).unwrap();
    let steps = |number| {
        let mut walk = Walk::new(flow.clone(), number, SEED);
        std::iter::from_fn(|| walk.turn()).map(|turn| turn.step).collect::<Vec<_>>()
    };
    let walks: Vec<_> = (0..4000).map(steps).collect();
    let with_a = walks.iter().filter(|steps| **steps == [0, 0, 0, 1]).count();
    assert_eq!(with_a + walks.iter().filter(|steps| **steps == [1]).count(), 4000);
    assert!((900..1100).contains(&with_a), "{with_a}");
    assert_eq!((0..4000).map(steps).collect::<Vec<_>>(), walks);
}

#[test]
fn users_do_not_share_values_or_cookies() {
    let (mut one, mut other) = (walk(EXAMPLE), walk(EXAMPLE));
    exchange(&mut one, 200, &[(header::SET_COOKIE, "sid=1")], r#"name="csrf" value="one""#).unwrap();
    exchange(&mut other, 200, &[], r#"name="csrf" value="other""#).unwrap();
    let confirm = exchange(&mut other, 303, &[(header::LOCATION, "/")], "").unwrap();
    assert_eq!(confirm.body, "token=other");
    assert!(!confirm.headers.contains_key(header::COOKIE));
}

#[test]
fn cookies_are_not_kept_where_the_file_says_so() {
    let mut walk = walk(&format!("cookies = false\n{EXAMPLE}"));
    exchange(&mut walk, 200, &[(header::SET_COOKIE, "sid=1")], r#"name="csrf" value="x""#).unwrap();
    let confirm = exchange(&mut walk, 303, &[(header::LOCATION, "/")], "").unwrap();
    assert!(!confirm.headers.contains_key(header::COOKIE));
}

#[test]
fn a_body_comes_from_a_file_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("upload.bin"), b"\0${user}\xff").unwrap();
    let file = directory.path().join("flow.toml");
    fs::write(&file, "[[step]]\nname = 'up'\nuri = '/'\nbody_file = 'upload.bin'\n").unwrap();
    let base = "http://a.test".parse().unwrap();
    let mut walk = Walk::new(Arc::new(Flow::read(&file, &base, SEED).unwrap()), 0, SEED);
    let up = exchange(&mut walk, 200, &[], "").unwrap();
    assert_eq!((up.method.as_str(), up.body.as_ref()), ("POST", b"\0${user}\xff".as_slice()));

    fs::write(&file, "[[step]]\nname = 'up'\nuri = '/'\nbody_file = 'none'\n").unwrap();
    let error = Flow::read(&file, &base, SEED).unwrap_err().to_string();
    assert!(error.contains("flow.toml:4: ") && error.contains("none: No such file"), "{error}");
}

#[test]
fn bodies_are_kept_only_where_something_is_taken_from_them() {
    let flow = parse(EXAMPLE).unwrap();
    assert_eq!([0, 1, 2].map(|step| flow.body_looked_at(step)), [BODY_LOOKED_AT, 0, 0]);
    assert_eq!(flow.names()[..], ["form", "confirm", "done"]);
}

#[test]
fn refusals_say_where() {
    let step = |lines: &str| refused(&format!("\n[[step]]\nname = 'a'\nuri = '/'\n{lines}\n"));
    let cases = [
        (refused("x = 1"), "shop.toml:1: unknown field `x`, expected one of `cookies`, `values`, `step`"),
        (refused("step = []"), "shop.toml:1: a flow has 1 to 64 steps"),
        (refused("\n\n[[step]]\nname = 'a'\n"), "shop.toml:3: missing field `uri`"),
        (
            refused("[values]\nuser = '1'\n[[step]]\nname = 'a'\nuri = '/'"),
            "shop.toml:2: \"user\" is reserved for the number of the run",
        ),
        (
            refused("[[step]]\nname = ''\nuri = '/'"),
            "shop.toml:2: a step's name is printable and has 1 to 64 characters",
        ),
        (refused("[[step]]\nname = 'a'\nuri = 'http://b.test/'"), "shop.toml:3: this leads to another site"),
        (refused("[[step]]\nname = 'a'\nuri = \"/\\n\""), "shop.toml:3: this is not a URI"),
        (step("method = 'A B'"), "shop.toml:5: \"A B\" is not a method"),
        (step("headers = { host = 'x' }"), "shop.toml:5: \"host\" is set by the client itself"),
        (
            step("headers.x = \"a\\r\\nb\""),
            "shop.toml:5: a header field has no line breaks or other control characters",
        ),
        (step("body = 'x'\nbody_file = 'x'"), "shop.toml:6: either body or body_file, not both"),
        (step("expect = [200, 700]"), "shop.toml:5: a status is 200 to 599"),
        (step("expect = -1"), "shop.toml:5: a status is 200 to 599"),
        (
            step("take.t = { json = '/a', header = 'b' }"),
            "shop.toml:5: a value is taken from one of header, cookie, regex, json",
        ),
        (step("take.t = { json = 'a' }"), "shop.toml:5: \"a\" is not a JSON pointer such as /items/0/id"),
        (
            step("take.t = { xpath = '/a' }"),
            "shop.toml:5: unknown field `xpath`, expected one of `header`, `cookie`, `regex`, `json`",
        ),
        (step("think = '5'"), "shop.toml:5: \"5\" is not a duration, such as 500ms, 1.5s, 5m, 2h or 7d"),
        (step("think = { uniform = ['3s', '1s'] }"), "shop.toml:5: the shorter time comes first"),
        (step("think = { shares = [] }"), "shop.toml:5: a list of times has 1 to 100 entries"),
        (step("think = {}"), "shop.toml:5: a think time is one of uniform, shares, exponential"),
        (step("repeat = 10001"), "shop.toml:5: a step is repeated at most 10000 times"),
        (step("probability = 0.0"), "shop.toml:5: a probability is above 0 and at most 1"),
        (step("probability = nan"), "shop.toml:5: a probability is above 0 and at most 1"),
        (
            step("body = '${token}'"),
            "shop.toml:5: \"token\" has no value: neither [values] nor an earlier step sets it",
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error, expected);
    }
}

#[test]
fn values_are_known_only_behind_the_step_that_surely_takes_them() {
    let text = |probability: &str, values: &str, uri: &str| {
        format!(
            "{values}\n[[step]]\nname = 'a'\nuri = '{uri}'\nprobability = {probability}\ntake.t = {{ header = 'etag' }}\n\
             [[step]]\nname = 'b'\nuri = '/${{t}}'\n"
        )
    };
    assert!(parse(&text("1.0", "", "/")).is_ok());
    assert!(refused(&text("1.0", "", "/${t}")).starts_with("shop.toml:4: \"t\" has no value: "));
    assert!(refused(&text("0.5", "", "/")).starts_with("shop.toml:9: \"t\" may have no value here"));
    assert!(parse(&text("0.5", "values.t = 'none'", "/")).is_ok());
}

#[test]
fn a_server_cannot_lead_users_elsewhere() {
    let cases = [
        ("/a b\"<é>", Ok("https://shop.test/a%20b%22%3C%C3%A9%3E")),
        ("https://shop.test:443/x", Ok("https://shop.test/x")),
        ("https://evil.test/", Err(Unfit::OtherSite)),
        ("//evil.test/", Err(Unfit::OtherSite)),
        ("\\\\evil.test/", Err(Unfit::OtherSite)),
        ("http://shop.test/", Err(Unfit::OtherSite)),
        ("file:///etc/passwd", Err(Unfit::OtherSite)),
        ("https://shop.test:99999/", Err(Unfit::Uri)),
    ];
    for (place, expected) in cases {
        assert_eq!(follow(place).map(|request| request.url.to_string()), expected.map(str::to_owned), "{place}");
    }
}

/// The request after a response whose JSON body contains `value`. The request uses it as a URI and as a header field.
fn follow(value: &str) -> Result<Outgoing, Unfit> {
    let text = "[[step]]\nname = 'a'\nuri = '/'\ntake.v = { json = '/v' }\n\
                [[step]]\nname = 'b'\nuri = '${v}'\nheaders.x-value = '<${v}>'\n";
    let mut walk = walk(text);
    exchange(&mut walk, 200, &[], &serde_json::json!({ "v": value }).to_string()).unwrap();
    let turn = walk.turn().unwrap();
    walk.request(&turn)
}

proptest! {
    #[test]
    fn a_value_stays_within_its_line(value in "[a-z/ \r\n\t\0\u{7f}\u{85}é?#:]{0,20}") {
        if let Ok(request) = follow(&value) {
            prop_assert!(!request.url.as_str().contains(|c: char| c.is_control() || c == ' '));
            let field: &HeaderValue = &request.headers["x-value"];
            prop_assert!(!field.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)));
            prop_assert!(!value.contains(['\r', '\n', '\0']));
        }
    }

    #[test]
    fn no_file_makes_it_panic(text in r"(\[\[step\]\]|\n|name = 'a'|uri = '/\$\{a\}'|take.a = \{ json = '/a' \}|think = |'1s'|\[|\]){0,12}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_answer_makes_it_panic(status: u16, field in "[ -~\u{e9}]{0,30}", body: String) {
        let mut walk = walk(EXAMPLE);
        let turn = walk.turn().unwrap();
        let url = walk.request(&turn).unwrap().url;
        let headers: HeaderMap = [(header::SET_COOKIE, HeaderValue::from_bytes(field.as_bytes()).unwrap())].into_iter().collect();
        let answer = Answer { status, headers: &headers, body: body.as_bytes() };
        let _ = walk.answered(&turn, &url, answer);
        let _ = walk.turn().map(|turn| walk.request(&turn));
    }
}
