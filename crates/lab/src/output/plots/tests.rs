#![allow(clippy::unwrap_used)]

use roxmltree::Document;

use super::*;
use crate::output::test_samples::{HOSTILE, anma_2, bars, clouds, cpu_series, figure, row, scenario_a, scenario_b};

fn only(plot: Plot, run: &RunResult) -> Option<String> {
    let (pictures, failed) = draw(&[plot], run, &cpu_series("sl-on"), &clouds());
    assert!(failed.is_none());
    pictures.into_iter().next().map(|picture| picture.svg)
}

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let nodes = document.descendants().filter(|node| node.has_tag_name("text"));
    nodes.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}

fn shapes(svg: &str, name: &str, looks: &[(&str, &str)]) -> usize {
    let document = Document::parse(svg).unwrap();
    let nodes = document.descendants().filter(|node| node.has_tag_name(name));
    nodes.filter(|node| looks.iter().all(|(key, value)| node.attribute(*key) == Some(value))).count()
}

fn assert_has(texts: &[String], all: &[&str]) {
    for text in all {
        assert!(texts.iter().any(|known| known == text), "{text:?} in {texts:?}");
    }
}

const OURS: (&str, &str) = ("fill", "#0072b2");
const PAPER: (&str, &str) = ("fill", "#f7e2b5");

#[test]
fn bars_have_our_values_and_the_papers() {
    let svg = only(bars("Rates", "requests per second"), &scenario_a()).unwrap();
    // Each legend has one more.
    assert_eq!((shapes(&svg, "rect", &[OURS]), shapes(&svg, "rect", &[PAPER])), (6, 6));
    assert_has(
        &texts(&svg),
        &["Rates", "CSSL-SF, migration on", "231", "223.4", "the paper", "requests/s", "0", "250"],
    );
    // A whisker has three lines.
    assert_eq!(shapes(&svg, "path", &[("stroke-width", "1.5")]), 15);
}

#[test]
fn a_much_slower_machine_of_the_paper_has_its_own_scale() {
    let svg = only(bars("Rates", "requests per second"), &scenario_b()).unwrap();
    assert_has(&texts(&svg), &["the paper (upper scale)", "638.3", "2,110", "2,500", "800"]);
}

#[test]
fn variants_without_a_value_have_a_dash_or_no_bar() {
    let rows = vec![row("a", "A", Some(3.0), &[]), row("b", "B", None, &[]), row("c", "C", None, &[2.0])];
    let run = RunResult { figures: vec![figure("f", "", "", rows)], ..scenario_a() };
    let svg = only(bars("T", "f"), &run).unwrap();
    assert_has(&texts(&svg), &["A", "-", "3", "C", "2"]);
    assert!(!texts(&svg).contains(&"B".to_owned()));
    let run = RunResult { figures: vec![figure("f", "", "", vec![row("b", "B", None, &[])])], ..scenario_a() };
    assert_eq!(only(bars("T", "f"), &run), None);
}

#[test]
fn bars_stay_within_the_picture() {
    let rows = vec![row("a", "A", Some(-2.0), &[-1.0, -3.0, f64::NAN]), row("b", "B", None, &[1e300, 5.0])];
    let run = RunResult { figures: vec![figure("f", "%", "", rows)], ..scenario_a() };
    let svg = only(bars("T", "f"), &run).unwrap();
    let document = Document::parse(&svg).unwrap();
    for bar in document.descendants().filter(|node| node.has_tag_name("rect")) {
        let of = |name: &str| bar.attribute(name).unwrap().parse::<f64>().unwrap();
        assert!(of("x") >= 0.0 && of("x") + of("width") <= 720.0 && of("width") >= 0.0, "{bar:?}");
    }
}

#[test]
fn variables_sort_by_their_amounts() {
    let run = anma_2();
    let sizes: Vec<_> = sorted(&run.figures[1]).iter().map(|row| row.matrix["size"].clone()).collect();
    assert_eq!(sizes, ["1", "4", "8", "16", "32", "1", "4", "8", "16", "32"]);
    let rows = [("b", None), ("x", Some("10")), ("x", Some("9")), ("a", None)].map(|(key, value)| FigureRow {
        matrix: value.map(|value: &str| ("n".to_owned(), value.to_owned())).into_iter().collect(),
        ..row(key, key, None, &[])
    });
    let mixed = figure("f", "", "", rows.into());
    let order: Vec<_> = sorted(&mixed).iter().map(|row| (row.variant.clone(), row.matrix.get("n").cloned())).collect();
    let value = |text: &str| Some(text.to_owned());
    let expected = [("b", None), ("x", value("9")), ("x", value("10")), ("a", None)];
    assert_eq!(order, expected.map(|(key, value)| (key.to_owned(), value)));
}

#[test]
fn lines_are_one_for_each_value_of_a_variable() {
    let plot = |figure: &str, series: Option<&str>| Plot::Lines {
        title: "Tc".to_owned(),
        figure: figure.to_owned(),
        x: "size".to_owned(),
        series: series.map(str::to_owned),
    };
    let run = anma_2();
    let svg = only(plot("Tc at 1000", Some("family")), &run).unwrap();
    assert_has(&texts(&svg), &["v4", "v6", "1", "4", "8", "16", "32", "size", "hollow: the paper"]);
    // One hollow mark of the legend, and those of the paper: a circle and a square.
    assert_eq!(shapes(&svg, "circle", &[("fill", "#ffffff")]), 2);
    assert_eq!(shapes(&svg, "rect", &[("fill", "#ffffff"), ("stroke-width", "1.5")]), 1);
    let all = only(plot("Tc", None), &run).unwrap();
    assert_has(&texts(&all), &["IPv6, 1000 connections, KB", "IPv4, 5000 connections, KB"]);
    // `connections` alone would put two rows at one place.
    let ambiguous = only(plot("Tc", Some("connections")), &run).unwrap();
    assert_has(&texts(&ambiguous), &["IPv6, 1000 connections, KB"]);
    assert_eq!(
        only(Plot::Lines { title: "T".into(), figure: "Tc".into(), x: "other".into(), series: None }, &run),
        None
    );
}

#[test]
fn cpu_has_a_picture_for_each_variant_and_a_line_for_each_host() {
    let plot = |hosts: &[&str], variants: &[&str]| Plot::Cpu {
        title: "CPU".to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        variants: variants.iter().map(|variant| (*variant).to_owned()).collect(),
    };
    let cpu = [cpu_series("sl-on"), cpu_series("sl-off")].concat();
    let titles = |plot| {
        let (pictures, _) = draw(&[plot], &scenario_b(), &cpu, &[]);
        pictures.into_iter().map(|picture| (picture.title, picture.svg)).collect::<Vec<_>>()
    };
    let both = titles(plot(&["agent1", "agent2"], &["sl-off", "sl-on", "unknown"]));
    let names: Vec<_> = both.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(names, ["CPU: CSSL-SL, migration off", "CPU: CSSL-SL, migration on"]);
    assert_has(&texts(&both[0].1), &["agent1", "agent2", "100", "40", "seconds"]);
    assert_eq!(shapes(&both[0].1, "path", &[("stroke-linejoin", "round")]), 4);
    assert_eq!(titles(plot(&[], &[])).len(), 2);
    assert_eq!(titles(plot(&["unknown"], &[])).len(), 0);
}

#[test]
fn a_triangle_has_a_dot_for_each_span() {
    let plot = Plot::Ternary { title: "T".to_owned(), process: "watch".to_owned(), variants: vec![] };
    let svg = only(plot, &scenario_b()).unwrap();
    assert_eq!(shapes(&svg, "circle", &[OURS]), 160);
    assert_has(
        &texts(&svg),
        &["TIMEOUT 100 %", "S_NORMAL 100 %", "client aborts 100 %", "700 (80 spans)", "down (0 spans)"],
    );
    let empty = Plot::Ternary { title: "T".to_owned(), process: "watch".to_owned(), variants: vec!["down".to_owned()] };
    assert_eq!(only(empty, &scenario_b()), None);
}

#[test]
fn hostile_names_stay_text() {
    let mut run = scenario_b();
    run.figures[0].unit = HOSTILE.to_owned();
    run.figures[0].rows[0].title = HOSTILE.to_owned();
    let svg = only(bars(HOSTILE, "requests per second"), &run).unwrap();
    assert!(texts(&svg).iter().any(|text| text.contains("<script>")));
    assert_eq!(shapes(&svg, "script", &[]), 0);
    assert_eq!(file_name(1, "../<a> B"), "01-a-b");
}
