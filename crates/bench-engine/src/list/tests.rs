#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;

use super::*;

fn no_body(_: &str) -> io::Result<Bytes> {
    Err(io::ErrorKind::NotFound.into())
}

fn parse(text: &str) -> AccessList {
    AccessList::parse("a.list", text, no_body).unwrap()
}

fn error(text: &str) -> String {
    AccessList::parse("a.list", text, no_body).unwrap_err().to_string()
}

#[test]
fn lines_keep_their_order() {
    let list = parse("# source URI TLS\n10.0.0.1 /a.html 0\n\n::1 /b.cgi 1\r\n- / 0");
    let lines: Vec<_> = list
        .entries()
        .iter()
        .map(|entry| (entry.source.map(|source| source.to_string()), entry.request.uri.to_string(), entry.request.tls))
        .collect();
    let line = |source: &str, uri: &str, tls| ((!source.is_empty()).then(|| source.into()), uri.into(), tls);
    assert_eq!(lines, [line("10.0.0.1", "/a.html", false), line("::1", "/b.cgi", true), line("", "/", false)]);
    assert_eq!(list.classes(), [".html", ".cgi", "/"]);
    assert_eq!(list.nth(4).request.class, 1);
}

#[test]
fn requests_that_are_the_same_are_shared() {
    let list = parse("10.0.0.1 /a 0\n10.0.0.2 /a 0 \n10.0.0.2 /a 1");
    let [first, second, third] = list.entries() else { panic!("{list:?}") };
    assert!(Arc::ptr_eq(&first.request, &second.request));
    assert!(!Arc::ptr_eq(&first.request, &third.request));
}

#[test]
fn a_line_of_millions_is_small() {
    assert!(size_of::<Entry>() <= 32);
}

/// Paper section 2, experiment 1: a list of 8 to 2.
#[test]
fn weights_decide_how_often_a_line_is_used() {
    let list = parse("2001:db8::1 / 0 weight=8\n10.0.0.1 / 0 weight=2");
    assert_eq!(list.turns(), 5);
    let ipv6 = (0..10_000).filter(|turn| list.nth(*turn).source.unwrap().is_ipv6()).count();
    assert_eq!(ipv6, 8000);
}

#[test]
fn classes_are_named_or_made_of_the_uri() {
    let list = parse("- /a.html 0 class=\"front page\"\n- /b.html 0\n- /b.html 1");
    assert_eq!(list.classes(), ["front page", ".html"]);
    assert_eq!(list.entries().iter().map(|entry| entry.request.class).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn there_are_few_classes_whatever_the_list_says() {
    let lines: Vec<_> = (0..1000).map(|i| format!("- /{i}/ 0")).collect();
    let list = parse(&lines.join("\n"));
    assert_eq!((list.classes().len(), list.classes()[CLASSES_MAX - 1].as_str()), (CLASSES_MAX, OTHER));
    assert_eq!(list.entries()[30].request.class, 30);
    assert_eq!(list.entries()[999].request.class, CLASSES_MAX - 1);
}

#[test]
fn a_list_of_one_request_is_that_request() {
    let one = parse("- /a.html 1 method=HEAD");
    let request = one.nth(0).request.as_ref().clone();
    assert_eq!(AccessList::of_one(Request { class: 7, ..request }), one);
}

#[test]
fn bodies_are_got_once() {
    let mut got = HashMap::new();
    let list = AccessList::parse("a.list", "- / 0 body=x\n- / 1 body=x\n- / 0 body=y", |file| {
        *got.entry(file.to_owned()).or_insert(0) += 1;
        Ok(Bytes::copy_from_slice(file.as_bytes()))
    })
    .unwrap();
    let bodies: Vec<_> = list.entries().iter().map(|entry| entry.request.body.clone()).collect();
    assert_eq!(bodies, ["x", "x", "y"]);
    assert_eq!(got, HashMap::from([("x".to_owned(), 1), ("y".to_owned(), 1)]));
}

#[test]
fn errors_say_file_and_line() {
    assert_eq!(error("\n- / 0\n- / x"), r#"a.list:3: TLS is 0 or 1, not "x""#);
    assert_eq!(error("- / 0 body=x"), "a.list:1: cannot read the body x: entity not found");
    let weights = "- / 0 weight=999999\n- / 1 weight=1000000\n".repeat(10);
    let too_long = "a.list: the weights add up to 19999990, over the maximum of 16777216: use smaller numbers";
    assert_eq!(error(&weights), too_long);
    assert_eq!(error("# nothing\n"), "a.list contains no requests");
}

#[test]
fn a_list_is_read_with_its_bodies_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.list");
    fs::write(&path, "- / 0 method=POST body=form.txt").unwrap();
    fs::write(directory.path().join("form.txt"), "a=b").unwrap();
    assert_eq!(AccessList::read(&path).unwrap().nth(0).request.body, "a=b");
}

#[test]
fn a_list_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.list");
    let error = |path: &Path| AccessList::read(path).unwrap_err().to_string();
    assert!(error(&path).starts_with(&format!("cannot read {}: ", path.display())));
    fs::write(&path, b"- / 0\n- /\xff 0").unwrap();
    assert_eq!(error(&path), format!("{}:2: not UTF-8", path.display()));
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "12345").unwrap();
    assert_eq!(read_file(file.path(), 5).unwrap(), b"12345");
    assert_eq!(read_file(file.path(), 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}
