#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn line(text: &str) -> Line {
    Line::parse(text).unwrap().unwrap()
}

fn error(text: &str) -> LineError {
    Line::parse(text).unwrap_err()
}

/// Paper section 3: the example of a line.
#[test]
fn the_papers_line_is_read_as_it_stands() {
    let read = line("192.168.10.13 /index.html 0");
    let ask = Ask::get(Uri::from_static("/index.html"), false);
    assert_eq!(read, Line { source: Some("192.168.10.13".parse().unwrap()), ask });
}

#[test]
fn options_are_read() {
    let digest = "00ff".repeat(16);
    let read = line(&format!(
        r#"- https://[::1]:8443/a?b=c 1 method=POST header="A: b \"c\"" header=B:d body="my file" weight=3 status=404 sha256={digest} class=x # y"#
    ));
    assert_eq!(read.source, None);
    let ask = read.ask;
    assert_eq!((ask.uri.to_string(), ask.tls), ("https://[::1]:8443/a?b=c".to_owned(), true));
    assert_eq!((ask.method, ask.weight, ask.status), (Method::POST, 3, Some(StatusCode::NOT_FOUND)));
    let headers: Vec<_> = ask.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("a", r#"b "c""#), ("b", "d")]);
    assert_eq!((ask.body.as_deref(), ask.class.as_deref()), (Some("my file"), Some("x")));
    assert_eq!(ask.sha256, Some([0, 255].repeat(16).try_into().unwrap()));
}

#[test]
fn a_header_that_is_no_ascii_is_written_as_it_was_read() {
    let read = line("- / 0 header=\"x-name: \u{e9}\u{50f}\"");
    assert_eq!(read.to_string(), "- / 0 header=\"x-name: \u{e9}\u{50f}\"");
    assert_eq!(line(&read.to_string()), read);
}

#[test]
fn empty_lines_and_comments_are_none() {
    for text in ["", " \t", "# 10.0.0.1 / 0", "  #"] {
        assert_eq!(Line::parse(text), Ok(None));
    }
}

#[test]
fn wrong_columns_are_named() {
    for (text, message) in [
        ("10.0.0.1", "no URI: a line is SOURCE URI TLS [key=value ...]"),
        ("10.0.0.1 / # 0", "no TLS column: a line is SOURCE URI TLS [key=value ...]"),
        ("localhost / 0", r#""localhost" is not a source address; - stands for any"#),
        ("- / 2", r#"TLS is 0 or 1, not "2""#),
        ("- http://a/ 1", "the URI's scheme and the TLS column contradict each other"),
        ("- https://a/ 0", "the URI's scheme and the TLS column contradict each other"),
    ] {
        assert_eq!(error(text).to_string(), message);
    }
    for uri in [
        "index.html",
        "*",
        "ftp://a/",
        "a:80",
        "http://",
        "http:///a",
        "http://u@a/",
        "/a#b",
        "/\u{1}",
        "http://a:b/",
        "http://a:/",
        "/a\"b",
    ] {
        assert_eq!(error(&format!("- {uri} 0")), LineError::Uri { text: uri.to_owned() });
    }
}

#[test]
fn wrong_options_are_named() {
    for (option, message) in [
        (
            "Method=GET",
            r#""Method" is not an option: the options are method=, header=, body=, weight=, status=, sha256= and class="#,
        ),
        ("x", r#""x" is not an option: the options are method=, header=, body=, weight=, status=, sha256= and class="#),
        ("weight=1 weight=1", "weight= is set twice"),
        ("weight=0", r#"weight="0" is not a number from 1 to 1000000"#),
        ("weight=1000001", r#"weight="1000001" is not a number from 1 to 1000000"#),
        ("status=103", r#"status="103" is not a status from 200 to 599"#),
        ("method=CONNECT", r#"method="CONNECT" is not a method, and not CONNECT"#),
        ("sha256=+f", r#"sha256="+f" is not 64 hexadecimal digits"#),
        ("body=", r#"body="" is not the name of a file"#),
    ] {
        assert_eq!(error(&format!("- / 0 {option}")).to_string(), message);
    }
    let long_name = "c".repeat(33);
    for value in [
        "header=a",
        "header=content-length:1",
        "header=\"a:\u{7f}\"",
        "header=\"a b:c\"",
        &format!("class={long_name}"),
    ] {
        assert!(matches!(error(&format!("- / 0 {value}")), LineError::Value { .. }), "{value}");
    }
}

#[test]
fn sizes_are_limited() {
    let headers = " header=a:b".repeat(64);
    assert_eq!(line(&format!("- / 0{headers}")).ask.headers.len(), 64);
    let message = error(&format!("- / 0{headers} header=a:b")).to_string();
    assert_eq!(message, r#"header="a:b" is not one of at most 64"#);
    assert_eq!(error(&format!("- /{} 0", "x".repeat(LINE_BYTES_MAX))), LineError::TooLong);
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let uri = prop_oneof!["/[a-z0-9?=&%.]{0,12}", "https?://[a-z]{1,5}(:80)?/[a-z]{0,3}"];
    let header = ("[a-z]{1,9}", "([!-~]([ -~]{0,9}[!-~])?)?")
        .prop_filter("ours", |(name, _)| !OURS.contains(&name.as_str()))
        .prop_map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let body = prop::option::of("[ -~é]{1,12}");
    let status = prop::option::of((200_u16..600).prop_map(|status| StatusCode::from_u16(status).unwrap()));
    let class = prop::option::of("[ -~é]{1,32}");
    let columns = (uri, any::<bool>(), prop::sample::select(vec!["GET", "POST", "M-SEARCH"]));
    let options = (prop::collection::vec(header, 0..4), body, 1..=WEIGHT_MAX, status, any::<Option<[u8; 32]>>(), class);
    (columns, options).prop_map(|((uri, tls, method), (headers, body, weight, status, sha256, class))| {
        let uri: Uri = uri.parse().unwrap();
        let tls = uri.scheme_str().map_or(tls, |scheme| scheme == "https");
        Ask { uri, tls, method: method.parse().unwrap(), headers, body, weight, status, sha256, class }
    })
}

proptest! {
    #[test]
    fn a_line_is_read_as_it_was_written(source in any::<Option<IpAddr>>(), ask in any_ask()) {
        let written = Line { source, ask };
        let text = written.to_string();
        prop_assert_eq!(Line::parse(&text), Ok(Some(written)), "{}", text);
    }

    #[test]
    fn nothing_panics(text in any::<String>(), options in "[a-z0-9=\"\\\\ :é]{0,40}") {
        let _ = Line::parse(&text);
        let _ = Line::parse(&format!("- / 0 {options}"));
    }
}
