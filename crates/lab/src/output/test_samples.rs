//! Results with the papers' figures, and with values as they could be measured.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::experiment::{Plot, Printed};
use crate::output::TernaryPoints;
use crate::result::{CpuSeries, Delay, Entry, FigureResult, FigureRow, RatioResult, RunResult, Verdict};
use crate::statistics::median;

/// A text that would be markup, an entity, a column, a link, or a command to a terminal.
pub(super) const HOSTILE: &str =
    "a|b <script>alert('1')</script> \"q\" &lt; ]]> --> `x|y` [l](http://a.example) *s* _u_ \u{1b}[2J\u{0}";

/// Scenario B of the paper on CSSL, Table 3.
pub(super) fn scenario_b() -> RunResult {
    let rates = [
        row(
            "lb-rr",
            "LB-RR: a balancer by round robin, two Apache",
            Some(441.2),
            &[1310.0, 1302.5, 1322.0, 1298.0, 1315.0],
        ),
        row(
            "pound-rr",
            "TLS at one reverse proxy, by round robin",
            Some(142.3),
            &[2105.0, 2090.0, 2130.0, 2111.0, 2098.0],
        ),
        row("sl-off", "CSSL-SL, migration off", Some(389.6), &[1105.0, 1098.0, 1120.0, 1089.0, 1101.0]),
        row("sl-on", "CSSL-SL, migration on", Some(638.3), &[2110.0, 2098.0, 2150.0, 2080.0, 2123.0]),
        row("one", "One server", Some(319.1), &[905.0, 911.0, 899.0, 920.0, 903.0]),
        row(
            "nginx-keys",
            "nginx with shared ticket keys and stickiness",
            None,
            &[2055.0, 2040.0, 2070.0, 2061.0, 2049.0],
        ),
    ];
    let full = [
        row("lb-rr", "LB-RR: a balancer by round robin, two Apache", Some(1893.0), &[1902.0; 5]),
        row("sl-off", "CSSL-SL, migration off", Some(2883.0), &[1997.0; 5]),
        row("sl-on", "CSSL-SL, migration on", Some(1124.0), &[1000.0; 5]),
        row("one", "One server", None, &[]),
    ];
    let figures = vec![
        figure("requests per second", "requests/s", "Table 3", rates.into()),
        figure("full handshakes", "of 3,000 sessions", "Table 3", full.into()),
    ];
    let on_off = RatioResult {
        at_least: Some(1.64),
        peers: [("nginx".to_owned(), Some(1.02)), ("HAProxy".to_owned(), None)].into(),
        ..ratio(Some(1.64), &[1.91, 1.90, 1.93, 1.89, 1.92], Verdict::Exceeded, "")
    };
    let missing = ratio(Some(1.45), &[], Verdict::Differs, "Apache did not start");
    let ratios = [("on/off".to_owned(), on_off), ("on/LB-RR".to_owned(), missing)].into();
    RunResult { ratios, figures, ..run("cssl-b", "cssl", "Scenario B: sessions without persistence") }
}

/// Scenario A of the paper on CSSL, Table 2, at the paper's rates.
pub(super) fn scenario_a() -> RunResult {
    let rates = [
        row("lb-ip", "LB-IP", Some(179.5), &[181.0, 176.0, 185.0]),
        row("pound-ip", "Pound-IP", Some(108.2), &[99.0, 131.0, 112.0]),
        row("sf-off", "CSSL-SF, migration off", Some(184.7), &[180.0, 183.2, 182.4]),
        row("sf-on", "CSSL-SF, migration on", Some(223.4), &[231.0, 229.6, 238.3]),
        row("one", "One Apache/mod_ssl", Some(100.5), &[97.0, 98.2, 96.1]),
    ];
    let figures = vec![figure("requests per second", "requests/s", "Table 2", rates.into())];
    RunResult { figures, rounds: 3, quick: true, ..run("cssl-a", "cssl", "Scenario A: persistence by client address") }
}

/// Experiment 2 of ANMA: the two printed times, and what a run could measure.
pub(super) fn anma_2() -> RunResult {
    let mut rows = Vec::new();
    for (family, slower) in [("v6", 1.025), ("v4", 1.0)] {
        for connections in [1000, 2000, 5000] {
            for (size, ms) in [(1, 0.31), (16, 0.62), (4, 0.38), (8, 0.45), (32, 1.05)] {
                let ms = slower * (ms + 0.000_01 * f64::from(connections));
                let paper = match (family, size, connections) {
                    ("v6", 1, 1000) => Some(1.025),
                    ("v4", 1, 1000) => Some(0.998),
                    ("v6", 32, 5000) => Some(4.342),
                    ("v4", 32, 5000) => Some(4.142),
                    _ => None,
                };
                let title = format!("IP{family}, {connections} connections, {size} KB");
                let mut one =
                    row(&format!("{family}-{connections}-{size}"), &title, paper, &[0.98 * ms, ms, 1.03 * ms]);
                let matrix = [
                    ("size", size.to_string()),
                    ("connections", connections.to_string()),
                    ("family", family.to_owned()),
                ];
                one.matrix = matrix.map(|(name, value)| (name.to_owned(), value)).into();
                rows.push(one);
            }
        }
    }
    let of = |connections: &str| rows.iter().filter(|row| row.matrix["connections"] == connections).cloned().collect();
    let figures = vec![
        figure("Tc", "ms", "section 3.4.3", rows.clone()),
        figure("Tc at 1000", "ms", "section 3.4.3", of("1000")),
    ];
    RunResult { figures, ..run("anma-2", "anma-enma", "Sizes and connections over IPv4 and IPv6") }
}

/// The CPU use of two agents, uneven at first.
pub(super) fn cpu_series(variant: &str) -> Vec<CpuSeries> {
    let mut series = Vec::new();
    for round in 1..=3 {
        for (host, level) in [("agent1", 0.46), ("agent2", 0.23), ("dispatcher", 0.06)] {
            let cores =
                |second: f64| level * (1.0 + 0.05 * (second * f64::from(round)).sin()) * (second / 4.0).min(1.0);
            let points = (1..=40).map(f64::from).map(|second| (second, cores(second))).collect();
            series.push(CpuSeries {
                variant: variant.to_owned(),
                round,
                host: host.to_owned(),
                quota: Some(0.5),
                points,
            });
        }
    }
    series
}

/// A cloud like that of a server that answers everything, and one of a saturated server.
pub(super) fn clouds() -> Vec<TernaryPoints> {
    let wave = |index: u32, speed: f64| (f64::from(index) * speed).sin().abs();
    let normal = (0..80).map(|index| {
        let (aborts, timeouts) = (28.0 + 10.0 * wave(index, 1.3), 6.0 * wave(index, 2.1));
        [100.0 - aborts - timeouts, aborts, timeouts]
    });
    let saturated = (0..80).map(|index| {
        let (aborts, timeouts) = (10.0 + 20.0 * wave(index, 0.7), 40.0 + 30.0 * wave(index, 1.9));
        [100.0 - aborts - timeouts, aborts, timeouts]
    });
    vec![
        TernaryPoints { process: "watch".to_owned(), variant: "700".to_owned(), points: normal.collect() },
        TernaryPoints { process: "watch".to_owned(), variant: "1200".to_owned(), points: saturated.collect() },
        TernaryPoints { process: "watch".to_owned(), variant: "down".to_owned(), points: Vec::new() },
    ]
}

pub(super) fn bars(title: &str, figure: &str) -> Plot {
    Plot::Bars { title: title.to_owned(), figure: figure.to_owned() }
}

pub(super) fn row(key: &str, title: &str, paper: Option<f64>, values: &[f64]) -> FigureRow {
    FigureRow {
        variant: key.to_owned(),
        title: title.to_owned(),
        matrix: BTreeMap::new(),
        paper,
        values: values.iter().copied().map(Some).collect(),
        median: median(values.iter().copied()),
    }
}

pub(super) fn figure(name: &str, unit: &str, source: &str, rows: Vec<FigureRow>) -> FigureResult {
    FigureResult { name: name.to_owned(), unit: unit.to_owned(), source: source.to_owned(), rows }
}

fn ratio(paper: Option<f64>, values: &[f64], verdict: Verdict, because: &str) -> RatioResult {
    let ours = median(values.iter().copied());
    RatioResult {
        paper,
        ours,
        peers: BTreeMap::new(),
        spread: ours.map(|_| 0.021),
        speed_spread: ours.map(|_| 0.014),
        values: values.iter().copied().map(Some).collect(),
        tolerance: 0.1,
        at_least: None,
        at_most: None,
        source: "Table 3".to_owned(),
        verdict,
        because: because.to_owned(),
        spread_because: String::new(),
    }
}

fn run(name: &str, paper: &str, title: &str) -> RunResult {
    let entry = |source: &str, verdict, why: &str| Entry { source: source.to_owned(), verdict, why: why.to_owned() };
    RunResult {
        name: name.to_owned(),
        title: title.to_owned(),
        paper: Some(paper.to_owned()),
        text: "Clients resume TLS sessions at another server than the one that made them.\n\nWith migration on, \
               `MSG_SSL_OBJ` brings each session to all agents, so that each agent can resume it."
            .to_owned(),
        verdict: Verdict::Exceeded,
        quick: false,
        changes: Vec::new(),
        rounds: 5,
        seed: 7,
        started: "2026-11-27T06:00:00Z".to_owned(),
        seconds: 412.3,
        ratios: IndexMap::new(),
        figures: Vec::new(),
        entries: vec![
            entry("Table 3, LB-RR", Verdict::Reproduced, ""),
            entry("Figures 11-14, cyclesoak", Verdict::Impossible, "cyclesoak needs a kernel of its time"),
        ],
        printed: vec![Printed {
            paper: "HA/TCP (NSDI 2025)".to_owned(),
            text: "an overhead of 0.2 % for replicated connections".to_owned(),
            ours: "no replication".to_owned(),
        }],
        deviations: vec!["TLS 1.2 and 1.3 instead of TLS 1.0, which today's libraries leave out.".to_owned()],
        delays: vec![Delay { router: "wan".to_owned(), set_ms: 30.0, measured_ms: 30.071, is_exact: true }],
        plots: Vec::new(),
        versions: [("nginx", "1.26.3"), ("kernel", "6.12.0 x86_64")]
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .into(),
        commands: vec!["watari bench --connections 100 https://10.9.0.1/ > out".to_owned()],
        digest: String::new(),
    }
}
