//! The CSV files of a run. A value that is missing is an empty field.

use std::collections::BTreeSet;

use csv::Writer;

use crate::result::{CpuSeries, FigureResult, FigureRow, RatioResult, RunResult};

/// `figures.csv`: a line for each figure, variant and round. A variant without a value has one line. Each variable of a
/// matrix has a column `matrix.NAME`.
pub(super) fn figures(run: &RunResult) -> Vec<u8> {
    let variables = variables(run);
    let columns = variables.iter().map(|variable| format!("matrix.{variable}"));
    let heads = ["figure", "unit", "variant", "title"].map(str::to_owned).into_iter().chain(columns);
    let mut lines = vec![heads.chain(["round", "value", "paper"].map(str::to_owned)).collect()];
    for figure in &run.figures {
        for row in &figure.rows {
            lines.extend(figure_lines(figure, row, &variables));
        }
    }
    written(lines)
}

/// `ratios.csv`: a line for each ratio. Each peer has a column `peer.NAME`, and each round a column `round.N`.
pub(super) fn ratios(run: &RunResult) -> Vec<u8> {
    let peers: BTreeSet<_> = run.ratios.values().flat_map(|ratio| ratio.peers.keys()).collect();
    let rounds = run.ratios.values().map(|ratio| ratio.values.len()).max().unwrap_or(0);
    let heads = RATIO_HEADS.map(str::to_owned).into_iter();
    let heads = heads.chain(peers.iter().map(|peer| format!("peer.{peer}")));
    let mut lines = vec![heads.chain((1..=rounds).map(|round| format!("round.{round}"))).collect()];
    lines.extend(run.ratios.iter().map(|(name, ratio)| ratio_line(name, ratio, &peers, rounds)));
    written(lines)
}

/// `cpu.csv`: a line for each variant, round, host and second.
pub(super) fn cpu(series: &[CpuSeries]) -> Vec<u8> {
    let mut lines = vec![["variant", "round", "host", "second", "cores", "quota"].map(str::to_owned).to_vec()];
    for one in series {
        let line = |&(second, cores): &(f64, f64)| {
            let numbers = [second.to_string(), cores.to_string(), field(one.quota)];
            [one.variant.clone(), one.round.to_string(), one.host.clone()].into_iter().chain(numbers).collect()
        };
        lines.extend(one.points.iter().map(line));
    }
    written(lines)
}

fn variables(run: &RunResult) -> BTreeSet<&String> {
    run.figures.iter().flat_map(|figure| &figure.rows).flat_map(|row| row.matrix.keys()).collect()
}

fn figure_lines(figure: &FigureResult, row: &FigureRow, variables: &BTreeSet<&String>) -> Vec<Vec<String>> {
    let names = [&figure.name, &figure.unit, &row.variant, &row.title].map(String::clone).into_iter();
    let matrix = variables.iter().map(|variable| row.matrix.get(*variable).cloned().unwrap_or_default());
    let start: Vec<_> = names.chain(matrix).collect();
    let line = |round: String, value: String| [start.clone(), vec![round, value, field(row.paper)]].concat();
    if row.values.is_empty() {
        return vec![line(String::new(), String::new())];
    }
    let rounds = (1_u32..).zip(&row.values);
    rounds.map(|(round, value)| line(round.to_string(), field(*value))).collect()
}

fn ratio_line(name: &str, ratio: &RatioResult, peers: &BTreeSet<&String>, rounds: usize) -> Vec<String> {
    let verdict = ratio.verdict.to_string();
    let numbers = [ratio.paper, ratio.ours, ratio.spread, ratio.speed_spread, ratio.at_least, ratio.at_most].map(field);
    let start = [name.to_owned(), ratio.source.clone()].into_iter().chain(numbers);
    let peers = peers.iter().map(|peer| field(ratio.peers.get(*peer).copied().flatten()));
    let values = (0..rounds).map(|round| field(ratio.values.get(round).copied().flatten()));
    start.chain([verdict, ratio.because.clone(), ratio.spread_because.clone()]).chain(peers).chain(values).collect()
}

fn field(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}

fn written(lines: Vec<Vec<String>>) -> Vec<u8> {
    let mut writer = Writer::from_writer(Vec::new());
    for line in lines {
        writer.write_record(line).expect("a vector takes all, and lines of a file are equally long");
    }
    writer.into_inner().expect("a vector takes all")
}

const RATIO_HEADS: [&str; 11] = [
    "ratio",
    "source",
    "paper",
    "ours",
    "spread",
    "speed_spread",
    "at_least",
    "at_most",
    "verdict",
    "because",
    "spread_because",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::output::test_samples::{HOSTILE, cpu_series, scenario_b};

    fn parsed(bytes: &[u8]) -> Vec<std::collections::BTreeMap<String, String>> {
        csv::Reader::from_reader(bytes).deserialize().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn each_round_of_a_figure_has_a_line() {
        let mut run = scenario_b();
        run.figures[0].rows[0].matrix = [("size".to_owned(), "4".to_owned())].into();
        run.figures[0].rows[1].values.clear();
        let lines = parsed(&figures(&run));
        let of = |variant: &str, figure: &str| {
            lines.iter().filter(|line| line["variant"] == variant && line["figure"] == figure).collect::<Vec<_>>()
        };
        let rows = of("lb-rr", "requests per second");
        assert_eq!(rows.len(), 5);
        assert_eq!((rows[4]["round"].as_str(), rows[4]["matrix.size"].as_str()), ("5", "4"));
        assert_eq!(
            rows[0]["value"].parse::<f64>().unwrap().to_bits(),
            run.figures[0].rows[0].values[0].unwrap().to_bits()
        );
        let missing = of("pound-rr", "requests per second");
        assert_eq!((missing.len(), missing[0]["value"].as_str(), missing[0]["paper"].as_str()), (1, "", "142.3"));
    }

    #[test]
    fn a_ratio_has_its_peers_and_rounds() {
        let lines = parsed(&ratios(&scenario_b()));
        let on_off = lines.iter().find(|line| line["ratio"] == "on/off").unwrap();
        assert_eq!((on_off["paper"].as_str(), on_off["verdict"].as_str()), ("1.64", "exceeded"));
        assert_eq!((on_off["round.5"].as_str(), on_off["peer.HAProxy"].as_str()), ("1.92", ""));
    }

    #[test]
    fn hostile_names_stay_fields() {
        let mut run = scenario_b();
        run.figures[0].name = HOSTILE.to_owned();
        assert_eq!(parsed(&figures(&run))[0]["figure"], HOSTILE);
    }

    #[test]
    fn each_second_of_a_host_has_a_line() {
        let series = cpu_series("sl-on");
        let lines = parsed(&cpu(&series));
        assert_eq!(lines.len(), series.iter().map(|one| one.points.len()).sum::<usize>());
        assert_eq!((lines[0]["host"].as_str(), lines[0]["quota"].as_str()), ("agent1", "0.5"));
    }
}
