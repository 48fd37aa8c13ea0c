#![allow(clippy::unwrap_used)]

use super::*;
use crate::plan::tests::plan_of;

const FILE: &str = "
name = 'try'
title = 'A try'
paper = 'cssl'
text = 'It tries.'
deviations = ['The file deviates.']
spread-because = 'All vary.'
rounds = { full = 3, quick = 1 }
[[host]]
name = 'a'
number = 1
networks = []
[[variant]]
key = 'on'
title = 'On'
[[variant]]
key = 'off'
title = 'Off'
[[variant]]
key = 'more'
title = 'More'
quick = false
[[figure]]
name = 'rates'
measure = 'cpu.a'
paper = { on = 7 }
[[ratio]]
name = 'on / off'
of = 'on:cpu.a'
over = 'off:cpu.a'
paper = 2.0
source = 'Table 1'
because = 'It is known.'
spread-because = 'It varies.'
peers = { itself = { of = 'off:cpu.a', over = 'off:cpu.a' } }
[[ratio]]
name = 'more / off'
of = 'more:cpu.a'
over = 'off:cpu.a'
source = 'Table 2'
at-least = 0
[[ratio]]
name = 'ours only'
of = 'on:cpu.a'
at-least = 0
[[impossible]]
source = 'Table 3'
why = 'It has no machine.'
";

/// The result of trials with these CPU seconds and speeds, of rounds from the first on.
fn result_of(is_quick: bool, trials: &[(&str, &[f64], f64)]) -> RunResult {
    let plan = plan_of(FILE, is_quick).unwrap();
    let trial = |seconds: f64, speed: f64| Trial {
        hosts: [("a".to_owned(), crate::measure::HostUse { seconds, ..Default::default() })].into(),
        speed: Some(speed),
        ..Trial::default()
    };
    let taken = trials.iter().flat_map(|(variant, values, speed)| {
        let rounds = (1..).zip(values.iter());
        rounds.map(move |(round, seconds)| Taken {
            variant: (*variant).to_owned(),
            round,
            trial: trial(*seconds, speed * f64::from(round)),
        })
    });
    let measured = Measured {
        options: plan.options.clone(),
        started: String::new(),
        seconds: 1.0,
        commands: Vec::new(),
        delays: Vec::new(),
        versions: BTreeMap::new(),
        deviations: vec!["The run deviates.".to_owned()],
        trials: taken.collect(),
    };
    result(&plan, &measured).unwrap()
}

#[test]
fn a_ratio_is_the_median_of_the_rounds() {
    let trials: [(&str, &[f64], f64); 3] =
        [("on", &[3.0, 4.0, 5.0], 2.0), ("off", &[1.0, 1.0, 1.0], 1.0), ("more", &[2.0, 2.0, 2.0], 1.0)];
    let result = result_of(false, &trials);
    let ratio = &result.ratios["on / off"];
    assert_eq!((ratio.ours, ratio.spread, ratio.speed_spread), (Some(4.0), Some(0.5), Some(0.0)));
    assert_eq!((ratio.values.clone(), ratio.peers["itself"]), ([3.0, 4.0, 5.0].map(Some).into(), Some(1.0)));
    assert_eq!((ratio.verdict, ratio.because.as_str()), (Verdict::Differs, "It is known."));
    assert_eq!(ratio.spread_because, "It varies.");
    assert_eq!(result.ratios["ours only"].spread_because, "All vary.");
    // The speeds of one side grow: a ratio of one trial has their spread.
    assert_eq!(result.ratios["ours only"].speed_spread, Some(1.0));
    assert_eq!(result.figures[0].rows[0].median, Some(4.0));
    assert_eq!((result.figures[0].rows[0].paper, result.figures[0].rows[1].paper), (Some(7.0), None));
    assert_eq!(result.deviations, ["The file deviates.", "The run deviates."]);
    assert_eq!(result.verdict, Verdict::Differs);
}

#[test]
fn reasons_are_there_only_where_they_are_needed() {
    let trials: [(&str, &[f64], f64); 3] =
        [("on", &[2.0, 2.0, 2.0], 1.0), ("off", &[1.0, 1.0, 1.0], 1.0), ("more", &[2.0, 2.0, 2.0], 1.0)];
    let ratio = &result_of(false, &trials).ratios["on / off"];
    assert_eq!((ratio.verdict, ratio.because.as_str(), ratio.spread_because.as_str()), (Verdict::Reproduced, "", ""));
}

#[test]
fn a_quotient_by_zero_is_a_round_without_a_value() {
    let trials: [(&str, &[f64], f64); 3] =
        [("on", &[2.0, 0.0, 6.0], 1.0), ("off", &[1.0, 0.0, 1.0], 1.0), ("more", &[1.0, 1.0, 1.0], 1.0)];
    let ratio = &result_of(false, &trials).ratios["on / off"];
    assert_eq!((ratio.values.clone(), ratio.ours), (vec![Some(2.0), None, Some(6.0)], Some(4.0)));
    let none: [(&str, &[f64], f64); 3] = [("on", &[0.0], 1.0), ("off", &[0.0], 1.0), ("more", &[1.0], 1.0)];
    let ratio = &result_of(false, &none).ratios["on / off"];
    assert_eq!((ratio.verdict, ratio.because.as_str()), (Verdict::Impossible, "No round has a value."));
}

#[test]
fn rows_of_the_paper_are_ratios_with_a_source_and_the_impossible() {
    let result = result_of(true, &[("on", &[2.0], 1.0), ("off", &[1.0], 1.0)]);
    let rows: Vec<_> = result.entries.iter().map(|row| (row.source.as_str(), row.verdict, row.why.as_str())).collect();
    let expected = [
        ("Table 1: on / off", Verdict::Reproduced, ""),
        ("Table 2: more / off", Verdict::Impossible, "The run has none of its variants."),
        ("Table 3", Verdict::Impossible, "It has no machine."),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn one_value_has_no_spread() {
    assert_eq!([spread(&[Some(2.0)]), spread(&[Some(0.0); 2]), spread(&[None; 2])], [None; 3]);
    assert_eq!(spread(&[Some(1.0), None, Some(2.0), Some(3.0)]), Some(1.0));
    assert_eq!(spread(&[Some(-1.0), Some(-3.0), Some(-2.0)]), Some(1.0));
}
