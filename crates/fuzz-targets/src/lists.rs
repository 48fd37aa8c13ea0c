//! Arbitrary access lists and access logs. Those that parse mean the same after they are written and parsed again.

use bytes::Bytes;
use watari_bench_analysis::access_log::LogLine;
use watari_bench_engine::list::{AccessList, Line};

pub(crate) fn run(text: &str) {
    for text in text.lines() {
        if let Ok(Some(line)) = Line::parse(text) {
            assert_eq!(Line::parse(&line.to_string()).expect("a written line can be parsed"), Some(line));
        }
        if let Ok(logged) = LogLine::parse(text) {
            assert!(text.contains(logged.client) && text.contains(logged.request));
            logged.method_and_target();
        }
    }
    if let Ok(list) = AccessList::parse("list", text, |_| Ok(Bytes::from_static(b"body"))) {
        let lines = text.lines().count() as u64;
        for turn in 0..lines.min(100) {
            assert!(list.nth(turn).request.class < list.classes().len());
        }
    }
}
