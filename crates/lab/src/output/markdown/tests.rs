use super::*;
use crate::output::folder::Unreadable;
use crate::output::test_samples::{HOSTILE, anma_2, scenario_a, scenario_b};
use crate::output::text::clean;
use crate::result::RunResult;

fn written(results: impl IntoIterator<Item = RunResult>) -> String {
    let run = |result| Run { result, pictures: Vec::new() };
    let unreadable = vec![Unreadable { path: "runs/broken/result.json".into(), why: String::new() }];
    document(&Runs { runs: results.into_iter().map(run).collect(), unreadable }, Path::new("docs/reproduction"))
}

/// The cells of a table's line.
fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")).unwrap_or_default();
    let marked = inner.replace("\\|", "\u{1}");
    marked.split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect()
}

#[test]
fn a_document_has_overview_ratios_figures_and_verdicts() {
    let text = written([scenario_a(), scenario_b()]);
    for line in [
        "# Reproduction of the papers' experiments",
        "| cssl-b | Scenario B: sessions without persistence | Hatsugai and Saito, 2007 | exceeded | 1 reproduced, 1 impossible | full | 5 | 2026-11-27 |",
        "| broken | - | - | unreadable | - | - | - | - |",
        "## cssl-b",
        "### Ratios",
        "| on/off | Table 3 | 1.64 | 1.910 (1.890 to 1.930) | 2.1 % (1.4 %) | HAProxy -; nginx 1.020 | within 10 %, at least 1.64 | exceeded (5 of 5) | - |",
        "### requests per second, requests/s (Table 3)",
        "| variant | paper | ours: median (least to largest) |",
        "| CSSL-SL, migration on | 638.3 | 2,110 (2,080 to 2,150) |",
        "| One server | - | - |",
        "| Figures 11-14, cyclesoak | impossible (cyclesoak needs a kernel of its time) |",
        "| HA/TCP (NSDI 2025) | an overhead of 0.2 % for replicated connections | no replication |",
        "| kernel | 6.12.0 x86_64 |",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    assert!(text.contains("`watari lab report --markdown`"));
    assert!(text.contains("Experiments without a run: anma-1, anma-2,"), "{text}");
    assert!(!text.lines().any(|line| line.contains("without a run") && line.contains("cssl-a")), "{text}");
}

#[test]
fn a_reason_of_several_ratios_is_a_note_below_the_table() {
    let mut run = scenario_b();
    run.ratios.values_mut().for_each(|ratio| ratio.spread_because = "It varies.".to_owned());
    let text = written([run]);
    assert_eq!(text.matches("Spread: Note 1. |").count(), 2, "{text}");
    assert!(text.contains(" |\n\n* Note 1: It varies.\n\n### "), "{text}");
}

#[test]
fn lines_outside_tables_are_short_and_paragraphs_apart() {
    let long = "A deviation that goes on. ".repeat(20) + "1. `code of several words` # not a heading - no list";
    let run = RunResult { deviations: vec![long.clone()], text: long, ..anma_2() };
    let text = written([run]);
    for line in text.lines().filter(|line| !line.starts_with('|')) {
        assert!(line.chars().count() <= LINE_LEN_MAX, "{line}");
        assert_eq!(line, line.trim_end());
    }
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.windows(2) {
        assert!(!pair[1].starts_with('#') || pair[0].is_empty(), "{pair:?}");
        assert!(!(pair[0].is_empty() && pair[1].is_empty()), "two empty lines before {pair:?}");
    }
}

#[test]
fn hostile_texts_break_no_table() {
    let mut run = RunResult { name: clean(HOSTILE), title: format!("{}\nnext", clean(HOSTILE)), ..scenario_b() };
    run.figures[0].rows[0].title = clean(HOSTILE);
    run.versions = [(clean(HOSTILE), clean(HOSTILE))].into();
    let text = written([run]);
    assert!(!text.contains("\n<script") && !text.replace("\\<", "").contains("<script"));
    let mut columns = 0;
    let mut seen = 0;
    for line in text.lines() {
        if line.starts_with('|') {
            let count = cells(line).len();
            assert!(columns == 0 || columns == count, "{line}");
            columns = count;
            seen += usize::from(line.contains("a\\|b"));
        } else {
            columns = 0;
        }
    }
    assert_eq!(seen, 3);
}

#[test]
fn a_line_does_not_begin_like_markup() {
    let lines = ["# a", "1. a", "12) a", "- a", "> a", "-5 %", "a # b", "1.5 times", "1 a"].map(begun);
    assert_eq!(lines, ["\\# a", "1\\. a", "12\\) a", "\\- a", "\\> a", "\\-5 %", "a # b", "1\\.5 times", "1 a"]);
}

#[test]
fn code_stays_code() {
    assert_eq!(escaped("_a_b_ `c_d<e>` *"), "\\_a_b\\_ `c_d<e>` \\*");
    assert_eq!(escaped("`c|<e>` [f] 1 < 2 &amp; & ` "), "\\`c|\\<e>\\` \\[f] 1 \\< 2 \\&amp; & \\` ");
}
