//! The file of an experiment: its hosts and networks, the variants that it compares, what it measures, and what the
//! paper printed.
//!
//! The text of commands and templates can name variables: `${name}`. Their values come from, in this order:
//!
//! 1. the process (`vars`, and `dir`, its own directory);
//! 2. the variant (`vars`, and the values of its `matrix`);
//! 3. the experiment (`[params]`);
//! 4. the lab: `work`, the directory of the run; `seed`; `pid.NAME`, the id of a process that has started before.
//!
//! A command is split into words at blanks before its variables get their values. It runs in the directory of the run.
//! `watari` is the running program.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::duration;
use crate::result::Verdict;

/// An experiment as its file states it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// The name on the command line. It is also the name of the file, without `.toml`.
    pub name: String,
    pub title: String,
    /// The digest of the paper: `cssl`, `standby`, `handover`, `anma-enma` or `tls-suites`. None is beyond the papers.
    #[serde(default)]
    pub paper: Option<String>,
    /// What the experiment shows, in sentences.
    pub text: String,
    /// What differs from the paper's experiment, and why.
    #[serde(default)]
    pub deviations: Vec<String>,
    /// Why rounds differ by more than 5 %, for ratios without a reason of their own.
    #[serde(default)]
    pub spread_because: String,
    /// Programs that scripts start. Those of commands need not be named.
    #[serde(default)]
    pub needs: Vec<String>,
    /// How often each variant runs. The variants take turns.
    pub rounds: Repeats,
    /// Values of variables, which a quick run may replace.
    #[serde(default)]
    pub params: BTreeMap<String, Param>,
    #[serde(default, rename = "network")]
    pub networks: Vec<Network>,
    #[serde(default, rename = "router")]
    pub routers: Vec<Router>,
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    /// Files of random bytes in the directory of the run.
    #[serde(default, rename = "file")]
    pub files: Vec<File>,
    /// Templates of the experiment's folder that become files in the directory of the run: name there, name here.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    /// Commands that run once, outside of all hosts, before the first variant.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Processes of every variant. They start first.
    #[serde(default, rename = "process")]
    pub processes: Vec<Process>,
    /// Processes that variants name.
    #[serde(default, rename = "system")]
    pub systems: Vec<System>,
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// Steps of every variant.
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    #[serde(default, rename = "ratio")]
    pub ratios: Vec<Ratio>,
    #[serde(default, rename = "plot")]
    pub plots: Vec<Plot>,
    /// Rows of the paper that this machine cannot measure.
    #[serde(default, rename = "impossible")]
    pub impossible: Vec<Impossible>,
    /// Figures that other papers print for the same thing. They are not measured here.
    #[serde(default, rename = "printed")]
    pub printed: Vec<Printed>,
}

/// A number of rounds, and that of a quick run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    pub full: u32,
    pub quick: u32,
}

/// The value of a variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Param {
    Same(Scalar),
    Differs { full: Scalar, quick: Scalar },
}

/// A number or a text in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

/// A bridge, and the addresses of the hosts on it: that of the host with the number `n` is the `n`th of each prefix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// At most 12 characters.
    pub name: String,
    #[serde(default)]
    pub ipv4: Option<Ipv4Net>,
    #[serde(default)]
    pub ipv6: Option<Ipv6Net>,
    /// Keeps the packets of each host in their order, also if both the host's process and the acknowledgements that
    /// come in make it send. A packet then takes up to 0.03 ms longer. For hosts without segmentation offload.
    #[serde(default)]
    pub in_order: bool,
}

/// A router between two networks, which delays, loses and shapes packets. It has the number 254 in both. Hosts
/// of each network reach the other network through it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Router {
    /// At most 12 characters.
    pub name: String,
    pub between: [String; 2],
    /// The delay that a packet and its answer have together. Each direction has half of it.
    #[serde(default, deserialize_with = "duration::parse")]
    pub round_trip: Duration,
    /// The largest random addition to the delay of a direction. Packets keep their order.
    #[serde(default, deserialize_with = "duration::parse")]
    pub jitter: Duration,
    /// The share of lost packets in each direction, from 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// Bits per second in each direction. None is unlimited.
    #[serde(default)]
    pub rate: Option<f64>,
}

/// A network namespace with a CPU quota.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// At most 12 characters.
    pub name: String,
    /// From 1 to 250.
    pub number: u8,
    /// Its interfaces are named `eth0`, `eth1` and so on, in this order.
    pub networks: Vec<String>,
    /// The quota in cores. None is unlimited.
    #[serde(default)]
    pub cpu: Option<f64>,
}

/// A file of random bytes, the same in each run with the same seed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Below the directory of the run.
    pub path: String,
    /// In octets: `5120`, `4 KiB`, `1GB`.
    pub size: String,
}

/// A program that runs as long as a trial. SIGTERM ends it, and SIGKILL after ten seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub name: String,
    pub host: String,
    pub run: String,
    /// Templates that become files in the directory of the process: name there, name in the experiment's folder.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    #[serde(default)]
    pub vars: BTreeMap<String, Scalar>,
    /// Commands on the same host. The process is ready when all of them have succeeded; each is tried again until then.
    #[serde(default)]
    pub ready: Vec<String>,
    /// Ends with its own work, at any time: a monitor, for example. Its standard output is kept as `NAME.out`.
    #[serde(default, rename = "may-end")]
    pub may_end: bool,
}

/// Processes that belong together: a cluster, or a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    pub name: String,
    #[serde(rename = "process")]
    pub processes: Vec<Process>,
}

/// One of the systems, or one of the settings, that the experiment compares.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// A short name for measures: `sf-on`. With a matrix, it contains its variables.
    pub key: String,
    /// The name in tables and plots.
    pub title: String,
    #[serde(default)]
    pub vars: BTreeMap<String, Scalar>,
    /// Makes a variant for each combination of these values.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Scalar>>,
    /// The systems whose processes run. They start in this order.
    #[serde(default)]
    pub systems: Vec<String>,
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
    /// False leaves it out of quick runs.
    #[serde(default = "yes")]
    pub quick: bool,
}

/// A command that a trial waits for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    /// It runs on each of them. On several, their steps are named `NAME@HOST`.
    pub hosts: Vec<String>,
    pub run: String,
    /// When it starts, from the start of the trial on.
    #[serde(default, deserialize_with = "duration::parse")]
    pub at: Duration,
    /// It prints the JSON of `watari bench`, and counts in the measures `load.*`.
    #[serde(default)]
    pub load: bool,
    /// It prints JSON for measures `step.NAME.*`.
    #[serde(default)]
    pub json: bool,
    /// Starts when the step of this name has ended, and not before `at`.
    #[serde(default)]
    pub after: Option<String>,
    /// The trial goes on if it fails.
    #[serde(default, rename = "may-fail")]
    pub may_fail: bool,
}

/// A column of the table of variants.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    pub name: String,
    #[serde(default)]
    pub unit: String,
    /// See `measure`.
    pub measure: String,
    /// What the paper printed, by the keys of the variants.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// Where in the paper: `Table 2`.
    #[serde(default)]
    pub source: String,
    /// The variants that have the figure. Empty is all.
    #[serde(default)]
    pub variants: Vec<String>,
}

/// A quotient of two measures, which is compared with the paper's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ratio {
    /// With a matrix, it contains its variables.
    pub name: String,
    /// Makes a ratio for each combination of these values. The name and the quotients can contain the variables.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Scalar>>,
    /// The figure whose measure all sides have, which then are `VARIANT`. If it has the paper's values of both, the ratio
    /// has the paper's quotient and the figure's source.
    #[serde(default)]
    pub figure: Option<String>,
    /// The figure of `over`, if it is another one.
    #[serde(default)]
    pub over_figure: Option<String>,
    #[serde(flatten)]
    pub ours: Quotient,
    /// The same quotient of other systems, by their names.
    #[serde(default)]
    pub peers: BTreeMap<String, Quotient>,
    #[serde(default)]
    pub paper: Option<f64>,
    /// Where in the paper.
    #[serde(default)]
    pub source: String,
    /// Which values are better than the paper's.
    #[serde(default)]
    pub better: Better,
    /// The largest relative distance from the paper's value that still reproduces it.
    #[serde(default = "tenth")]
    pub tolerance: f64,
    #[serde(default)]
    pub at_least: Option<f64>,
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Why ours is not as the paper's, for a ratio that is known to be so.
    #[serde(default)]
    pub because: String,
    /// Why ours is better than the paper's, if that has another reason than to be worse.
    #[serde(default)]
    pub exceeded_because: String,
    /// Why rounds differ by more than 5 %, for a ratio that is known for it.
    #[serde(default)]
    pub spread_because: String,
}

/// `of` divided by `over`. Both are `VARIANT:MEASURE`, or `VARIANT` if the ratio names a figure. Without `over`, it is `of`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotient {
    pub of: String,
    #[serde(default)]
    pub over: Option<String>,
}

impl Repeats {
    pub(crate) fn of(self, is_quick: bool) -> u32 {
        if is_quick { self.quick } else { self.full }
    }
}

impl Figure {
    /// Whether the variant with this key has the figure.
    pub(crate) fn is_of(&self, variant: &String) -> bool {
        self.variants.is_empty() || self.variants.contains(variant)
    }
}

impl Ratio {
    /// The known reason of a verdict. Empty if there is none.
    pub fn reason(&self, verdict: Verdict) -> &str {
        match verdict {
            Verdict::Exceeded if !self.exceeded_because.is_empty() => &self.exceeded_because,
            Verdict::Exceeded | Verdict::Differs => &self.because,
            Verdict::Reproduced | Verdict::Impossible => "",
        }
    }
}

impl Quotient {
    pub(crate) fn sides(&self) -> impl Iterator<Item = &str> {
        [Some(&self.of), self.over.as_ref()].into_iter().flatten().map(String::as_str)
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
    #[default]
    Equal,
}

/// A picture of the run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Plot {
    /// A bar for each variant, and the paper's beside it.
    Bars { title: String, figure: String },
    /// The CPU use of hosts over time, one picture for each variant.
    Cpu { title: String, hosts: Vec<String>, variants: Vec<String> },
    /// A figure over a variable of the variants' matrix, one line for each value of another.
    Lines { title: String, figure: String, x: String, series: Option<String> },
    /// Shares of endings on a triangle, a point for each span, from the JSON lines that a process has printed.
    Ternary { title: String, process: String, variants: Vec<String> },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impossible {
    /// The row: `Tables 1 and 3, IIS 6.0`.
    pub source: String,
    pub why: String,
}

/// A figure of another paper, in an experiment and in its results.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The paper: `HA/TCP (NSDI 2025)`.
    pub paper: String,
    pub text: String,
    /// The figure of Watari for the same thing and where it is, or why there is none.
    pub ours: String,
}

impl Plot {
    pub fn title(&self) -> &str {
        let (Self::Bars { title, .. }
        | Self::Cpu { title, .. }
        | Self::Lines { title, .. }
        | Self::Ternary { title, .. }) = self;
        title
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(out),
            Self::Float(value) => value.fmt(out),
            Self::Text(value) => value.fmt(out),
        }
    }
}

impl Param {
    /// The value in this kind of run.
    pub fn value(&self, is_quick: bool) -> &Scalar {
        match self {
            Self::Same(value) => value,
            Self::Differs { full, quick } => {
                if is_quick {
                    quick
                } else {
                    full
                }
            }
        }
    }
}

fn yes() -> bool {
    true
}

fn tenth() -> f64 {
    0.1
}
