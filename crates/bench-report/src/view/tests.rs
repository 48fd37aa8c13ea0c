#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use watari_bench_engine::test_samples::tally;
use watari_bench_engine::test_samples::{end_at, look};

use super::*;

#[test]
fn a_run_is_shown_at_the_usual_width() {
    let expected = "\
watari bench http http://127.0.0.1:8080/ -d 60s\u{fffd}                          q: end
11.4 s of 60 s, 60 of 100 ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━──────────────────────

answered/s                           10  latency p99, ms                    6000
        ▄▄█                                       ▂█
      ▃▆███                                     ▁▅██
  ▁▁███████                                   ▁▅████
▃▃█████████                               ▁▂▄▆██████

latency, ms        p50      p90      p99    p99.9      max
last second       5503     5906     6000     6000     6000
so far            3104     5503     6000     6000     6000

endings      NORMAL 59  RESET 1
connections  9 open, 10 opened
handshakes   4 full, 5 resumed
";
    assert_eq!(drawn(80, HEIGHT), expected);
}

#[test]
fn what_is_narrow_has_one_chart() {
    let expected = "\
watari bench http http://127.0.0… q: end
11.4 s of 60 s, 60 of 100 ━━━━━━━━──────

answered/s                            10
        ▄▄█
      ▃▆███
  ▁▁███████
▃▃█████████

latency, ms        p50      p99      max
last second       5503     6000     6000
so far            3104     6000     6000

endings      NORMAL 59  RESET 1
connections  9 open, 10 opened
handshakes   4 full, 5 resumed
";
    assert_eq!(drawn(40, HEIGHT), expected);
}

#[test]
fn failures_are_red() {
    let buffer = buffer(80, HEIGHT);
    let color_of = |text: &str| {
        let mut rows = buffer.content.chunks(80);
        let (row, at) = rows.find_map(|row| Some((row, symbols(row).find(text)?))).unwrap();
        row[at].fg
    };
    assert_eq!([color_of("NORMAL"), color_of("RESET")], [Color::Green, Color::Red]);
}

#[test]
fn of_two_limits_the_nearer_one_counts() {
    let mut progress = progress();
    let mut share = |stop| View::new("", stop, &mut progress).share();
    let after = |s| Some(Duration::from_secs(s));
    assert!((share(Stop { requests: Some(120), after: after(1140) }) - 0.5).abs() < 1e-9);
    assert!((share(Stop { requests: Some(6000), after: after(114) }) - 0.1).abs() < 1e-9);
    assert!((share(Stop { requests: Some(1), after: Some(Duration::ZERO) }) - 1.0).abs() < 1e-9);
    assert!(share(Stop::default()).abs() < 1e-9);
}

proptest! {
    #[test]
    fn any_size_will_do(width in 0..300_u16, height in 0..60_u16) {
        buffer(width, height);
    }
}

#[test]
fn at_any_width_what_is_shown_is_whole() {
    let numbers = |text: &str| -> std::collections::BTreeSet<String> {
        // The lines below the command, which has a mark where it is truncated.
        let words = text.lines().skip(1).flat_map(str::split_whitespace);
        words.filter(|word| word.contains(|c: char| c.is_ascii_digit())).map(|word| word.replace(',', "")).collect()
    };
    let known = numbers(&drawn(200, HEIGHT));
    for width in 20..=200 {
        let text = drawn(width, HEIGHT);
        let unknown: Vec<_> = numbers(&text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{width}: {unknown:?}\n{text}");
    }
    assert!(drawn(32, HEIGHT).contains("latency, ms        p50      p99\n"), "{}", drawn(32, HEIGHT));
}

fn drawn(width: u16, height: u16) -> String {
    buffer(width, height).content.chunks(width.into()).map(|row| symbols(row).trim_end().to_owned() + "\n").collect()
}

fn symbols(row: &[ratatui::buffer::Cell]) -> String {
    row.iter().map(ratatui::buffer::Cell::symbol).collect()
}

fn buffer(width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut progress = progress();
    let stop = Stop { requests: Some(100), after: Some(Duration::from_mins(1)) };
    let view = View::new("watari bench http http://127.0.0.1:8080/ -d 60s\u{1b}", stop, &mut progress);
    terminal.draw(|frame| frame.render_widget(&view, frame.area())).unwrap();
    terminal.backend().buffer().clone()
}

/// A run of 11.4 s: the response rate and the latency increase, and one request fails.
fn progress() -> Progress {
    let mut tally = tally();
    for at in 0..60_u32 {
        // The number of requests that end in each second grows in proportion to the time.
        let ended = Duration::from_secs_f64((2.0 * f64::from(at)).sqrt());
        let kind = if at == 20 { EndingKind::Reset } else { EndingKind::Normal };
        end_at(&mut tally, ended, Duration::from_millis(100 * u64::from(at + 1)), kind);
    }
    let mut progress = Progress::default();
    look(&mut progress, &[tally], Duration::from_millis(11_400));
    progress.counts = Some(Counts { opened: 10, closed: 1, full: 4, resumed: 5 });
    progress
}
