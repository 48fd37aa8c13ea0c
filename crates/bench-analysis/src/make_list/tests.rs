#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;
use watari_bench_engine::list::AccessList;

use super::*;

fn recipe(from: &[&str], asks: &[&str], tls: &str, lines: u32) -> Recipe {
    Recipe {
        from: from.iter().map(|text| text.parse().unwrap()).collect(),
        asks: asks.iter().map(|text| parse_ask(text).unwrap()).collect(),
        tls: tls.parse().unwrap(),
        lines,
        seed: 7,
    }
}

fn lines(recipe: &Recipe) -> Vec<Line> {
    recipe.lines().unwrap().collect()
}

/// Paper section 2, experiment 1: of 10,000 requests, 2001 and 7999 were sent for a list of 2 to 8.
#[test]
fn families_have_exactly_their_shares() {
    for (ipv6, ipv4) in [(5000, 5000), (8000, 2000), (2000, 8000), (10_000, 0)] {
        let from = [("2001:db8::/64", ipv6), ("10.0.0.0/24", ipv4)];
        let from: Vec<_> = from.iter().filter(|(_, w)| *w > 0).map(|(net, weight)| format!("{net}={weight}")).collect();
        let from: Vec<_> = from.iter().map(String::as_str).collect();
        let list = lines(&recipe(&from, &["/"], "0", 10_000));
        let is_ipv6 = |line: &&Line| line.source.unwrap().is_ipv6();
        assert_eq!(list.iter().filter(is_ipv6).count(), ipv6);
        // Any beginning of the list has the same proportions.
        assert_eq!(list[..100].iter().filter(is_ipv6).count(), ipv6 / 100);
    }
}

#[test]
fn all_shares_are_exact_and_independent() {
    let recipe = recipe(&["10.0.0.0/24=1", "2001:db8::/64=1"], &["/a weight=3", "/b"], "25%", 1600);
    let mut counts = HashMap::new();
    for line in lines(&recipe) {
        let cell = (line.source.unwrap().is_ipv6(), line.ask.uri.path().to_owned(), line.ask.tls);
        *counts.entry(cell).or_insert(0) += 1;
    }
    for ((_, uri, tls), count) in counts {
        let expected = 1600 / 2 / 4 / 4 * if uri == "/a" { 3 } else { 1 } * if tls { 1 } else { 3 };
        assert_eq!(count, expected, "{uri} {tls}");
    }
}

#[test]
fn addresses_are_drawn_by_seed() {
    let recipe = recipe(&["10.0.0.0/8"], &["/"], "0", 100);
    let list = lines(&recipe);
    let distinct: std::collections::HashSet<_> = list.iter().map(|line| line.source).collect();
    assert!(distinct.len() > 90);
    assert_eq!(lines(&recipe), list);
    assert_ne!(lines(&Recipe { seed: 8, ..recipe }), list);
}

#[test]
fn without_networks_the_source_is_any() {
    let mut text = Vec::new();
    write(recipe(&[], &["/a.cgi method=POST header=\"A: b c\" weight=2"], "1", 2).lines().unwrap(), &mut text).unwrap();
    let line = "- /a.cgi 1 method=POST header=\"a: b c\"\n";
    assert_eq!(String::from_utf8(text).unwrap(), format!("# source URI TLS\n{line}{line}"));
}

#[test]
fn what_is_wrong_is_said() {
    let from = |text: &str| text.parse::<WeightedRange>().unwrap_err().to_string();
    assert_eq!(from("10.0.0.1=0"), r#""10.0.0.1=0" has no weight: write a number from 1, as in 10.0.0.0/24=8"#);
    assert!(from("10.0.0.256=1").starts_with(r#""10.0.0.256" is not an address"#));
    for text in ["x", "-1", "101%", "nan", ""] {
        assert_eq!(
            text.parse::<TlsShare>().unwrap_err().to_string(),
            format!("{text:?} is not a share such as 0.3 or 30%")
        );
    }
    let ask = |text: &str| parse_ask(text).unwrap_err().to_string();
    assert_eq!(ask("https://a/"), "https://a/ is not a path: the TLS share decides whether TLS is used");
    assert_eq!(ask("/ weight=x"), r#"weight="x" is not a number from 1 to 1000000"#);
    let error = |recipe: Recipe| recipe.lines().err().unwrap().to_string();
    assert_eq!(error(recipe(&[], &[], "0", 1)), "cannot make the list: no item has a weight");
    assert_eq!(error(recipe(&[], &["/"], "0", 0)), "cannot make the list: no item has a weight");
    let too_much = "a list has at most 16777216 lines, of at most 1048576 pairs of a network and a URI";
    assert_eq!(error(recipe(&[], &["/"], "0", LINES_MAX + 1)), too_much);
}

proptest! {
    #[test]
    fn what_is_made_reads_back_equal(
        from in prop::collection::vec((0_u8..=255, 1_u32..9), 0..4),
        asks in prop::collection::vec(("/[a-z.?=]{0,9}", 1_u32..9, "[ -~]{1,9}"), 1..4),
        tls in 0_u32..=100, lines in 1_u32..200, seed in any::<u64>(),
    ) {
        let from = from.iter().map(|(net, weight)| format!("10.{net}.0.0/16={weight}").parse().unwrap()).collect();
        let ask = |(uri, weight, class): &(String, u32, String)| Ask {
            weight: *weight, class: Some(class.clone()), ..Ask::get(uri.parse().unwrap(), false)
        };
        let asks = asks.iter().map(ask).collect();
        let recipe = Recipe { from, asks, tls: format!("{tls}%").parse().unwrap(), lines, seed };
        let made: Vec<_> = recipe.lines().unwrap().collect();
        let mut text = Vec::new();
        write(made.iter().cloned(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let read: Vec<_> = text.lines().filter_map(|line| Line::parse(line).unwrap()).collect();
        prop_assert_eq!(&read, &made);
        prop_assert_eq!(made.iter().filter(|line| line.ask.tls).count() as u32, (tls * lines + 49) / 100);
        let list = AccessList::parse("a.list", &text, |_| unreachable!()).unwrap();
        for (entry, line) in list.entries().iter().zip(&made) {
            prop_assert_eq!((entry.source, &entry.request.uri, entry.request.tls), (line.source, &line.ask.uri, line.ask.tls));
        }
    }
}
