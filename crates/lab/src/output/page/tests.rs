#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use roxmltree::{Document, Node, ParsingOptions};

use super::*;
use crate::output::folder::Unreadable;
use crate::output::test_samples::{HOSTILE, anma_2, scenario_a, scenario_b};
use crate::output::text::clean;
use crate::result::RunResult;

fn runs(results: impl IntoIterator<Item = RunResult>) -> Runs {
    let run = |result| Run { result, pictures: Vec::new() };
    Runs { runs: results.into_iter().map(run).collect(), unreadable: Vec::new() }
}

/// Parses the page as XML, which detects errors that a browser would tolerate.
fn parse(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
}

fn elements<'a>(node: Node<'a, 'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.descendants().filter(move |node| node.has_tag_name(name))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.is_text().then(|| node.text()).flatten()).collect()
}

/// The cells of a table's rows.
fn rows(document: &Document<'_>, caption: &str) -> Vec<Vec<String>> {
    let table =
        elements(document.root(), "table").find(|table| elements(*table, "caption").any(|one| text(one) == caption));
    let body = elements(table.unwrap(), "tbody").next().unwrap();
    let cells = |row: Node<'_, '_>| row.children().filter(Node::is_element).map(text).collect();
    elements(body, "tr").map(cells).collect()
}

#[test]
fn a_page_has_all_runs() {
    let mut all = runs([scenario_a(), scenario_b(), anma_2()]);
    all.unreadable.push(Unreadable { path: PathBuf::from("runs/broken/result.json"), why: "no JSON".to_owned() });
    let page = page(&all);
    let overview = rows(&parse(&page), "Experiments");
    let line = [
        "cssl-a",
        "Scenario A: persistence by client address",
        "Hatsugai and Saito, 2007",
        "exceeded",
        "1 reproduced, 1 impossible",
        "quick",
        "3",
        "2026-11-27",
    ];
    assert_eq!(overview[0], line);
    assert_eq!(overview[3], ["broken", "-", "-", "unreadable", "-", "-", "-", "-"]);
    assert_eq!((overview[1][5].as_str(), overview.len()), ("full", 4));
}

#[test]
fn the_papers_numbers_are_beside_ours() {
    let page = page(&runs([scenario_b()]));
    let document = parse(&page);
    let figures = rows(&document, "requests per second, requests/s (Table 3)");
    assert_eq!(figures[3], ["CSSL-SL, migration on", "638.3", "2,110 (2,080 to 2,150)"]);
    assert_eq!(rows(&document, "full handshakes, of 3,000 sessions (Table 3)")[3], ["One server", "-", "-"]);
    let ratios = rows(&document, "Ratios");
    let missing = ["on/LB-RR", "Table 3", "1.45", "-", "-", "-", "within 10 %", "differs", "Apache did not start"];
    let on_off = [
        "on/off",
        "Table 3",
        "1.64",
        "1.910 (1.890 to 1.930)",
        "2.1 % (1.4 %)",
        "HAProxy -; nginx 1.020",
        "within 10 %, at least 1.64",
        "exceeded (5 of 5)",
        "-",
    ];
    assert_eq!(ratios, [on_off.map(str::to_owned), missing.map(str::to_owned)]);
    let entries = rows(&document, "Rows of the paper");
    assert_eq!(entries[1][1], "impossible (cyclesoak needs a kernel of its time)");
}

#[test]
fn a_ratio_says_why_it_differs_and_why_its_spread_is_large() {
    let mut run = scenario_b();
    let ratio = run.ratios.get_mut("on/off").unwrap();
    (ratio.because, ratio.spread_because) = ("It is slow.".to_owned(), "It varies.".to_owned());
    assert_eq!(rows(&parse(&page(&runs([run.clone()]))), "Ratios")[0][8], "It is slow. Spread: It varies.");
    // A reason of several ratios stands once.
    let all = run.ratios.values_mut().map(|ratio| ratio.spread_because = "It <varies>.".to_owned()).count();
    let page = page(&runs([run]));
    let whys: Vec<_> = rows(&parse(&page), "Ratios").into_iter().map(|row| row[8].clone()).collect();
    assert_eq!(
        (all, whys.as_slice()),
        (2, ["It is slow. Spread: Note 1.", "Apache did not start Spread: Note 1."].map(str::to_owned).as_slice())
    );
    assert_eq!(page.matches("<li>Note 1: It &#60;varies&#62;.</li>").count(), 1, "{page}");
}

#[test]
fn the_papers_numbers_have_all_of_their_digits() {
    let mut run = scenario_b();
    run.figures[0].rows[0].paper = Some(2.0054);
    assert_eq!(rows(&parse(&page(&runs([run]))), "requests per second, requests/s (Table 3)")[0][1], "2.0054");
}

#[test]
fn a_run_has_its_circumstances() {
    let page = page(&runs([scenario_b()]));
    for part in [
        "A full run: 5 rounds, started at 2026-11-27T06:00:00Z, 412 s, seed 7.",
        "<code>MSG_SSL_OBJ</code> brings",
        "TLS 1.2 and 1.3 instead of",
        "not measured here",
        "6.12.0 x86_64",
        "<details>",
        "30.07",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn links_lead_to_experiments() {
    let page = page(&runs([scenario_a(), scenario_b()]));
    let document = parse(&page);
    let links: Vec<_> = elements(document.root(), "a").map(|link| link.attribute("href").unwrap()).collect();
    assert_eq!(links, ["#experiment-1", "#experiment-2"]);
    for link in links {
        let section = document.descendants().find(|node| node.attribute("id") == Some(&link[1..])).unwrap();
        assert_eq!(section.tag_name().name(), "section");
    }
}

#[test]
fn a_page_needs_nothing_else() {
    let mut all = runs([scenario_b()]);
    all.runs[0].pictures = vec![
        ReadPicture { title: "A".to_owned(), svg: Some("<svg width=\"1\"></svg>".to_owned()) },
        ReadPicture { title: "B".to_owned(), svg: None },
    ];
    let page = page(&all);
    let document = parse(&page);
    assert_eq!((elements(document.root(), "script").count(), elements(document.root(), "svg").count()), (0, 1));
    assert!(page.contains("missing or unreadable: B"));
    let attributes = document.descendants().flat_map(|node| node.attributes());
    for link in attributes.filter(|attribute| ["src", "href", "action"].contains(&attribute.name())) {
        assert!(link.value().starts_with('#') || link.value() == "data:,", "{}", link.value());
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn tables_are_complete_and_named() {
    let page = page(&runs([scenario_b(), anma_2()]));
    let document = parse(&page);
    for table in elements(document.root(), "table") {
        assert!(!text(elements(table, "caption").next().unwrap()).is_empty());
        let columns = elements(elements(table, "thead").next().unwrap(), "th").count();
        for row in elements(elements(table, "tbody").next().unwrap(), "tr") {
            assert_eq!(row.children().filter(Node::is_element).count(), columns);
        }
    }
}

/// Replaces all texts of a result.
fn hostile() -> RunResult {
    let json = serde_json::to_string(&scenario_b()).unwrap();
    let hostile = serde_json::to_string(&clean(HOSTILE)).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    for field in ["name", "title", "text", "started", "paper"] {
        value[field] = serde_json::from_str(&hostile).unwrap();
    }
    let json = value.to_string();
    let inner = &hostile[1..hostile.len() - 1];
    let json =
        ["requests per second", "nginx", "Apache did not start", "Table 3, LB-RR", "HA/TCP (NSDI 2025)", "on/off"]
            .iter()
            .fold(json, |json, word| json.replace(word, inner));
    let mut run: RunResult = serde_json::from_str(&json).unwrap();
    run.commands = vec![clean(HOSTILE)];
    run.deviations = vec![clean(HOSTILE)];
    run
}

#[test]
fn hostile_texts_stay_text() {
    let page = page(&runs([hostile()]));
    let document = parse(&page);
    assert_eq!(elements(document.root(), "script").count(), 0);
    assert!(document.descendants().all(|node| !node.is_comment()));
    let hostile = clean(HOSTILE);
    assert_eq!(elements(document.root(), "a").map(text).collect::<Vec<_>>(), [hostile.replace('`', "")]);
    assert!(elements(document.root(), "code").any(|code| text(code) == hostile));
    assert!(elements(document.root(), "li").any(|entry| text(entry) == hostile.replace('`', "")));
}

#[test]
fn code_is_marked_up_when_its_quotes_are_paired() {
    assert_eq!(rich("a `<b>` c"), "a <code>&#60;b&#62;</code> c");
    assert_eq!(rich("a ` <b>"), "a ` &#60;b&#62;");
}
