#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};

use super::*;
use crate::summary::tests::summary;

#[test]
fn a_page_has_all_that_a_run_has() {
    let page = page(&summary());
    let document = parse(&page);
    let captions: Vec<_> = texts(&document, "caption");
    let expected = [
        "How requests ended",
        "Times",
        "Split by family, handshake and class",
        "How connections ended",
        "Results of TLS handshakes",
        "Statuses",
        "Intervals of the run",
    ];
    assert_eq!(captions, expected);
    assert_eq!(elements(&document, "svg").count(), 6);
    for text in ["RESET", "TIMEOUT", "image", "X25519MLKEM768", "2 more requests were in progress"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn everything_has_a_name_for_those_who_do_not_see_it() {
    let page = page(&summary());
    let document = parse(&page);
    for svg in elements(&document, "svg") {
        let name = svg.attribute("aria-labelledby").unwrap();
        assert!(document.descendants().any(|node| node.attribute("id") == Some(name)), "{name}");
    }
    for table in elements(&document, "table") {
        let columns = elements_in(table, "thead").flat_map(|head| elements_in(head, "th")).count();
        for row in elements_in(table, "tbody").flat_map(|body| elements_in(body, "tr")) {
            assert_eq!(row.children().filter(Node::is_element).count(), columns);
            assert_eq!(elements_in(row, "th").next().unwrap().attribute("scope"), Some("row"));
        }
    }
}

#[test]
fn a_page_needs_nothing_else() {
    let page = page(&summary());
    let document = parse(&page);
    assert_eq!(elements(&document, "script").count(), 0);
    let links = document.descendants().flat_map(|node| node.attributes());
    for link in links.filter(|attribute| ["src", "href", "action"].contains(&attribute.name())) {
        assert_eq!(link.value(), "data:,");
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn nothing_comes_of_a_run_in_which_nothing_happened() {
    let tally = watari_bench_engine::test_samples::tally();
    let summary = Summary::new(crate::summary::Run::default(), std::time::Duration::ZERO, &tally);
    let page = page(&summary);
    assert_eq!(elements(&parse(&page), "svg").count(), 0);
}

#[test]
fn a_histogram_that_cannot_be_read_is_left_out() {
    let mut json = serde_json::to_value(summary()).unwrap();
    json["histograms"]["latency"] = "garbage".into();
    let page = page(&Summary::read(json.to_string().as_bytes()).unwrap());
    assert_eq!(elements(&parse(&page), "svg").count(), 4);
}

proptest! {
    // A case takes a tenth of a second: it renders a page and parses it.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Hostile text of a list's author, of a server, or in a summary file.
    #[test]
    fn hostile_names_stay_text(name in r#"[<>&"'a-z/!\-\[\]{}%=\x00-\x1f\u{7f}-\u{9f} ]{0,20}"#) {
        let name = format!("{name}\"'><script>alert(1)</script><!--]]>&#0;{{{{{name}");
        let mut summary = summary();
        let total = summary.total.clone();
        summary.by_class.insert(name.clone(), total);
        summary.run.command = vec![name.clone(), format!("http://{name}")];
        summary.run.version.clone_from(&name);
        summary.total.status.insert(name.clone(), 1);
        summary.total.tls.alpn.insert(name.clone(), 1);
        summary.total.endings_at[0].kind.clone_from(&name);
        let page = page(&summary);
        let document = parse(&page);
        prop_assert_eq!(elements(&document, "script").count(), 0);
        prop_assert!(document.descendants().all(|node| !node.is_comment()));
        prop_assert!(texts(&document, "th").contains(&shown(name.trim_start())));
        prop_assert_eq!(texts(&document, "code"), [shown(&summary.run.command.join(" "))]);
    }

    /// A summary file may contain any values that JSON can express.
    #[test]
    fn hostile_numbers_do_no_harm(count in any::<u64>(), number in any::<f64>().prop_filter("JSON", |number| number.is_finite()), interval_s in any::<u64>()) {
        let mut summary = summary();
        summary.series.interval_s = interval_s;
        for point in &mut summary.series.points {
            (point.endings.normal, point.endings.reset, point.opened, point.full) = (count, count, count, count);
            (point.p50_ms, point.p99_ms, point.max_ms) = (number, -number, number);
        }
        let total = &mut summary.total;
        (total.seconds, total.requests_per_s, total.latency_ms.p50) = (number, number, number);
        (total.endings.normal, total.tls.full, total.tls.resumed, total.endings_at[0].count) = (count, count, count, count);
        let page = page(&summary);
        parse(&page);
        prop_assert!(!page.contains("NaN") && !page.contains("inf"), "{}", page);
    }
}

/// Parses the page as XML, which detects errors that a browser would tolerate.
fn parse(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
}

fn elements<'a>(document: &'a Document<'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    elements_in(document.root(), name)
}

fn elements_in<'a>(node: Node<'a, 'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.descendants().filter(move |node| node.has_tag_name(name))
}

fn texts(document: &Document<'_>, name: &str) -> Vec<String> {
    let named = document.descendants().filter(|node| node.has_tag_name(name));
    named.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}
