//! What a run of an experiment does: its variants and ratios with the values of their variables. A plan is checked before
//! anything runs.

mod ratios;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use watari_values::size::Size;

use crate::catalogue::{self, Found};
use crate::experiment::{Experiment, File, Plot, Process, Quotient, Ratio, Scalar, Step, Variant};
use crate::hosts;
use crate::measure::{self, Subject};
use crate::router;
use crate::variables::{self, Values};

/// The most rounds of a run.
pub const ROUNDS_MAX: u32 = 1000;

/// The largest file of a run.
const FILE_LEN_MAX: Size = Size(16 << 30);

/// Keys of an experiment's file that change what runs.
const KEYS_OF_RUNS: [&str; 10] =
    ["network", "router", "host", "file", "prepare", "templates", "process", "system", "variant", "step"];

/// How an experiment runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Options {
    pub is_quick: bool,
    /// Instead of the file's number of rounds.
    pub rounds: Option<u32>,
    pub seed: u64,
    /// Values in place of those of `[params]`.
    pub set: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub found: Found,
    pub options: Options,
    pub rounds: u32,
    /// The variables of `prepare` and of templates of the run.
    pub values: Values,
    /// The texts of all templates, by their names.
    pub templates: BTreeMap<String, String>,
    pub variants: Vec<PlannedVariant>,
    /// One for each combination of a matrix. The sides of all are `VARIANT:MEASURE`.
    pub ratios: Vec<Ratio>,
}

#[derive(Clone, Debug)]
pub struct PlannedVariant {
    pub key: String,
    pub title: String,
    /// The values of its matrix.
    pub matrix: BTreeMap<String, String>,
    pub values: Values,
    /// In the order of their start.
    pub processes: Vec<Process>,
    /// Each on one host.
    pub steps: Vec<PlannedStep>,
}

#[derive(Clone, Debug)]
pub struct PlannedStep {
    pub name: String,
    pub host: String,
    pub step: Step,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Catalogue(#[from] catalogue::Error),
    #[error("{place}: {error}")]
    Variable { place: String, error: variables::Error },
    #[error("{place} names the {kind} {name}, which the experiment does not have")]
    Unknown { place: String, kind: &'static str, name: String },
    #[error("two {kind}s are named {name}")]
    Twice { kind: &'static str, name: String },
    #[error("the experiment has no variant in this kind of run")]
    NoVariant,
    #[error("the experiment has {0} rounds: set 1 to {ROUNDS_MAX}")]
    Rounds(u32),
    #[error("{place} has an empty {list}")]
    Empty { place: String, list: &'static str },
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    #[error("the router {name}: {error}")]
    Router { name: String, error: router::Error },
    #[error("the size {size} of the file {path} is not one up to {FILE_LEN_MAX}, such as 5120, 4KiB or 1GB")]
    Size { path: String, size: String },
    #[error("the path {0} leaves its directory: name one below it, without `..`")]
    Path(String),
    #[error("the step {0} waits for itself: the steps that `after` names go round in a circle")]
    Circle(String),
    #[error("the ratio {0} has over-figure, but no figure")]
    NoFigure(String),
    #[error("the ratio {ratio}: {why}")]
    Ratio { ratio: String, why: &'static str },
    #[error("the ratio {ratio} has \"{side}\": write VARIANT:MEASURE, or the name of a figure and VARIANT")]
    Side { ratio: String, side: String },
    #[error("{place}: {error}")]
    Measure { place: String, error: measure::Error },
    #[error("{place} measures the {kind} {name}, which the variant {variant} does not have")]
    Subject { place: String, kind: &'static str, name: String, variant: String },
}

impl Plan {
    /// A plan whose run uses the directory `work`.
    pub fn new(found: Found, options: Options, work: &Path) -> Result<Self, Error> {
        let experiment = &found.experiment;
        check_lists(experiment)?;
        let mut values = Values::new();
        values.insert("work".to_owned(), work.display().to_string());
        values.insert("seed".to_owned(), options.seed.to_string());
        for (name, param) in &experiment.params {
            values.insert(name.clone(), param.value(options.is_quick).to_string());
        }
        for (name, value) in &options.set {
            let is_known = experiment.params.contains_key(name);
            known(is_known, "--set", "variable", name)?;
            values.insert(name.clone(), value.clone());
        }
        let (mut variants, mut keys) = (Vec::new(), BTreeSet::new());
        for variant in &experiment.variants {
            for matrix in combinations(&variant.matrix) {
                let planned = plan_variant(experiment, variant, &values, matrix)?;
                keys.insert(planned.key.clone());
                if variant.quick || !options.is_quick {
                    variants.push(planned);
                }
            }
        }
        let rounds = options.rounds.unwrap_or(experiment.rounds.of(options.is_quick));
        let ratios = experiment.ratios.iter().map(|ratio| ratios::plan(experiment, ratio));
        let ratios = ratios.collect::<Result<Vec<_>, _>>()?.concat();
        let templates = templates(&found)?;
        let plan = Self { found, options, rounds, values, templates, variants, ratios };
        plan.check(&keys)?;
        Ok(plan)
    }

    pub fn experiment(&self) -> &Experiment {
        &self.found.experiment
    }

    /// How the run differs from that of the experiment as this program has it.
    pub fn changes(&self) -> Vec<String> {
        let experiment = self.experiment();
        let built_in = catalogue::find(&experiment.name).ok();
        let is_other = built_in.is_some_and(|built_in| {
            self.found.text != built_in.text || templates(&built_in).ok().as_ref() != Some(&self.templates)
        });
        let file = is_other.then(|| format!("another {}", self.found.file()));
        let set = self.options.set.iter().map(|(name, value)| format!("{name} = {value}"));
        let rounds = experiment.rounds.of(self.options.is_quick);
        let rounds = (self.rounds != rounds).then(|| format!("{} instead of {rounds} rounds", self.rounds));
        file.into_iter().chain(set).chain(rounds).collect()
    }

    /// The name of its folder in [`RUNS`](crate::supervisor::RUNS). Only a full run without changes has the name of the
    /// experiment.
    pub fn folder_name(&self) -> String {
        let changed = if self.changes().is_empty() { "" } else { "-changed" };
        let quick = if self.options.is_quick { "-quick" } else { "" };
        format!("{}{changed}{quick}", self.experiment().name)
    }

    /// The variant that a ratio names, `VARIANT:MEASURE`, and the measure.
    pub fn side<'a>(&self, side: &'a str) -> Option<(&PlannedVariant, &'a str)> {
        let (key, measure) = side.split_once(':')?;
        Some((self.variants.iter().find(|variant| variant.key == key)?, measure))
    }

    /// The first part of the experiment that another plan has not the same way, of those on which measured values depend.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let mut parts = self.parts().into_iter().zip(other.parts());
        parts.find_map(|((name, own), (_, other))| (own != other).then_some(name))
    }

    /// A digest of what runs: the values of the parameters, the keys of the experiment's file that do not only evaluate
    /// or describe, and the templates without lines that are comments. SHA-256, in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut file: toml::Table = self.found.text.parse().expect("the experiment is from this text");
        file.retain(|key, _| KEYS_OF_RUNS.contains(&key));
        for variant in file.get_mut("variant").and_then(toml::Value::as_array_mut).into_iter().flatten() {
            if let Some(variant) = variant.as_table_mut() {
                variant.remove("quick");
            }
        }
        let mut digest = Context::new(&SHA256);
        let params = self.values.iter().filter(|(name, _)| self.experiment().params.contains_key(*name));
        digest.update(format!("{:?}\n{file}", params.collect::<Vec<_>>()).as_bytes());
        for (name, text) in &self.templates {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            digest.update(format!("\n[{name}]\n{}", lines.collect::<Vec<_>>().join("\n")).as_bytes());
        }
        let digits: Vec<_> = digest.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        digits.concat()
    }

    fn parts(&self) -> [(&'static str, String); 7] {
        let Experiment { networks, routers, hosts, files, prepare, .. } = self.experiment();
        let of_variant = |variant: &PlannedVariant| {
            let PlannedVariant { key, values, processes, steps, .. } = variant;
            format!("{key} {values:?} {processes:?} {steps:?}")
        };
        [
            ("params", format!("{:?}", self.values)),
            ("networks and routers", format!("{networks:?} {routers:?}")),
            ("hosts", format!("{hosts:?}")),
            ("files", format!("{files:?}")),
            ("templates", format!("{:?} {:?}", self.experiment().templates, self.templates)),
            ("prepare commands", format!("{prepare:?}")),
            ("variants, processes or steps", self.variants.iter().map(of_variant).collect::<Vec<_>>().join("\n")),
        ]
    }

    /// `keys` are those of all variants. A quick run lacks some.
    fn check(&self, keys: &BTreeSet<String>) -> Result<(), Error> {
        let experiment = self.experiment();
        if self.variants.is_empty() {
            return Err(Error::NoVariant);
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return Err(Error::Rounds(self.rounds));
        }
        hosts::check(&experiment.networks, &experiment.hosts, &experiment.routers)?;
        for router in &experiment.routers {
            let checked = router::Settings::of(router, self.options.seed).check();
            checked.map_err(|error| Error::Router { name: router.name.clone(), error })?;
        }
        for file in &experiment.files {
            check_path(&file.path)?;
            check_size(file)?;
        }
        unique("host", experiment.hosts.iter().map(|host| &host.name))?;
        unique("network", experiment.networks.iter().map(|network| &network.name))?;
        unique("system", experiment.systems.iter().map(|system| &system.name))?;
        unique("variant", self.variants.iter().map(|variant| &variant.key))?;
        unique("figure", experiment.figures.iter().map(|figure| &figure.name))?;
        unique("ratio", self.ratios.iter().map(|ratio| &ratio.name))?;
        for text in &experiment.prepare {
            check_command(text, &self.values, "prepare")?;
        }
        for name in experiment.templates.values() {
            check_variables(&self.templates[name], &self.values, name)?;
        }
        for variant in &self.variants {
            self.check_variant(variant)?;
        }
        for plot in &experiment.plots {
            self.check_plot(plot, keys)?;
        }
        for figure in &experiment.figures {
            let place = format!("the figure {}", figure.name);
            known_variants(figure.paper.keys().chain(&figure.variants), keys, &place)?;
            for variant in self.variants.iter().filter(|variant| figure.is_of(&variant.key)) {
                self.check_measure(&figure.measure, variant, &place)?;
            }
        }
        self.ratios.iter().try_for_each(|ratio| self.check_ratio(ratio, keys))
    }

    fn check_ratio(&self, ratio: &Ratio, keys: &BTreeSet<String>) -> Result<(), Error> {
        let place = format!("the ratio {}", ratio.name);
        for side in ratio.peers.values().chain([&ratio.ours]).flat_map(Quotient::sides) {
            let wrong = || Error::Side { ratio: ratio.name.clone(), side: side.to_owned() };
            let (key, _) = side.split_once(':').ok_or_else(wrong)?;
            known(keys.contains(key), &place, "variant", key)?;
            if let Some((variant, measure)) = self.side(side) {
                self.check_measure(measure, variant, &place)?;
            }
        }
        ratios::check(ratio)
    }

    /// That the variant has all that a measure takes its value out of.
    fn check_measure(&self, measure: &str, variant: &PlannedVariant, place: &str) -> Result<(), Error> {
        let subjects = measure::subjects(measure);
        let subjects = subjects.map_err(|error| Error::Measure { place: place.to_owned(), error })?;
        for subject in subjects {
            let (kind, name, is_known) = match subject {
                Subject::Loads => ("step with", "load = true", variant.steps.iter().any(|step| step.step.load)),
                Subject::Step(name) => ("step", name, variant.steps.iter().any(|step| step.name == name)),
                Subject::Host(name) => ("host", name, self.has_host(name)),
                Subject::Process(name) => ("process", name, variant.processes.iter().any(|of| of.name == name)),
            };
            if !is_known {
                let (place, name, variant) = (place.to_owned(), name.to_owned(), variant.key.clone());
                return Err(Error::Subject { place, kind, name, variant });
            }
        }
        Ok(())
    }

    fn has_host(&self, name: &str) -> bool {
        self.experiment().hosts.iter().any(|host| host.name == name)
    }

    fn check_variant(&self, variant: &PlannedVariant) -> Result<(), Error> {
        unique("process", variant.processes.iter().map(|process| &process.name))?;
        unique("step", variant.steps.iter().map(|step| &step.name))?;
        let mut values = variant.values.clone();
        for process in &variant.processes {
            let place = format!("the process {}", process.name);
            known(self.has_host(&process.host), &place, "host", &process.host)?;
            self.check_process(process, values.clone(), &place)?;
            values.insert(format!("pid.{}", process.name), String::new());
        }
        for step in &variant.steps {
            let place = format!("the step {}", step.name);
            known(self.has_host(&step.host), &place, "host", &step.host)?;
            check_path(&step.name)?;
            check_command(&step.step.run, &values, &place)?;
            if let Some(after) = &step.step.after {
                let is_known = variant.steps.iter().any(|step| step.name == *after);
                known(is_known, &place, "step", after)?;
            }
        }
        variant.steps.iter().try_for_each(|step| check_order(step, &variant.steps))
    }

    /// Checks that its command and its templates have all variables.
    fn check_process(&self, process: &Process, mut values: Values, place: &str) -> Result<(), Error> {
        values.insert("dir".to_owned(), String::new());
        variables::add(&mut values, &process.vars);
        for text in process.ready.iter().chain([&process.run]) {
            check_command(text, &values, place)?;
        }
        check_path(&process.name)?;
        for name in process.templates.values() {
            check_variables(&self.templates[name], &values, &format!("{name} of {place}"))?;
        }
        Ok(())
    }

    fn check_plot(&self, plot: &Plot, keys: &BTreeSet<String>) -> Result<(), Error> {
        let experiment = self.experiment();
        let figure = |figure: &String, place: &str| {
            known(experiment.figures.iter().any(|known| known.name == *figure), place, "figure", figure)
        };
        let place = format!("the plot {}", plot.title());
        match plot {
            Plot::Bars { figure: name, .. } => figure(name, &place),
            Plot::Lines { figure: name, x, series, .. } => {
                figure(name, &place)?;
                let mut variables = [x].into_iter().chain(series);
                variables.try_for_each(|variable| {
                    let has = |variant: &Variant| variant.matrix.contains_key(variable);
                    known(experiment.variants.iter().any(has), &place, "variable of a matrix", variable)
                })
            }
            Plot::Cpu { hosts, variants, .. } => {
                known_variants(variants.iter(), keys, &place)?;
                hosts.iter().try_for_each(|host| known(self.has_host(host), &place, "host", host))
            }
            Plot::Ternary { process, variants, .. } => {
                known_variants(variants.iter(), keys, &place)?;
                let of_systems = experiment.systems.iter().flat_map(|system| &system.processes);
                let mut processes = experiment.processes.iter().chain(of_systems);
                known(processes.any(|known| known.name == *process), &place, "process", process)
            }
        }
    }
}

/// The texts of all templates of an experiment, by their names.
fn templates(found: &Found) -> Result<BTreeMap<String, String>, Error> {
    let experiment = &found.experiment;
    let of_systems = experiment.systems.iter().flat_map(|system| &system.processes);
    let of_processes = experiment.processes.iter().chain(of_systems).map(|process| &process.templates);
    let mut texts = BTreeMap::new();
    for (file, name) in of_processes.chain([&experiment.templates]).flatten() {
        check_path(file)?;
        check_path(name)?;
        texts.insert(name.clone(), found.template(name)?);
    }
    Ok(texts)
}

fn plan_variant(
    experiment: &Experiment,
    variant: &Variant,
    values: &Values,
    matrix: BTreeMap<String, Scalar>,
) -> Result<PlannedVariant, Error> {
    let place = format!("the variant {}", variant.key);
    let mut values = values.clone();
    variables::add(&mut values, &matrix);
    variables::add(&mut values, &variant.vars);
    let fill =
        |text: &str| variables::fill(text, &values).map_err(|error| Error::Variable { place: place.clone(), error });
    let mut processes = experiment.processes.clone();
    for name in &variant.systems {
        let system = experiment.systems.iter().find(|system| system.name == *name);
        known(system.is_some(), &place, "system", name)?;
        processes.extend(system.into_iter().flat_map(|system| system.processes.clone()));
    }
    Ok(PlannedVariant {
        key: fill(&variant.key)?,
        title: fill(&variant.title)?,
        matrix: matrix.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        processes,
        steps: experiment.steps.iter().chain(&variant.steps).flat_map(plan_step).collect(),
        values,
    })
}

fn plan_step(step: &Step) -> Vec<PlannedStep> {
    let name = |host: &String| if step.hosts.len() == 1 { step.name.clone() } else { format!("{}@{host}", step.name) };
    let planned = |host: &String| PlannedStep { name: name(host), host: host.clone(), step: step.clone() };
    step.hosts.iter().map(planned).collect()
}

/// Each combination of the values of a matrix: one empty combination for an empty matrix.
fn combinations(matrix: &BTreeMap<String, Vec<Scalar>>) -> Vec<BTreeMap<String, Scalar>> {
    matrix.iter().fold(vec![BTreeMap::new()], |combinations, (name, values)| {
        let with = |combination: &BTreeMap<String, Scalar>, value: &Scalar| {
            let mut combination = combination.clone();
            combination.insert(name.clone(), value.clone());
            combination
        };
        combinations.iter().flat_map(|combination| values.iter().map(move |value| with(combination, value))).collect()
    })
}

/// Refuses empty lists: their variants, ratios or steps would be left out without a word.
fn check_lists(experiment: &Experiment) -> Result<(), Error> {
    let of_variants =
        experiment.variants.iter().map(|variant| (format!("the variant {}", variant.key), &variant.matrix));
    let of_ratios = experiment.ratios.iter().map(|ratio| (format!("the ratio {}", ratio.name), &ratio.matrix));
    for (place, matrix) in of_variants.chain(of_ratios) {
        if matrix.values().any(Vec::is_empty) {
            return Err(Error::Empty { place, list: "list of values in its matrix" });
        }
    }
    let of_variants = experiment.variants.iter().flat_map(|variant| &variant.steps);
    match experiment.steps.iter().chain(of_variants).find(|step| step.hosts.is_empty()) {
        Some(step) => Err(Error::Empty { place: format!("the step {}", step.name), list: "list of hosts" }),
        None => Ok(()),
    }
}

fn check_command(text: &str, values: &Values, place: &str) -> Result<(), Error> {
    if text.trim().is_empty() {
        return Err(Error::Empty { place: place.to_owned(), list: "command" });
    }
    check_variables(text, values, place)
}

fn check_variables(text: &str, values: &Values, place: &str) -> Result<(), Error> {
    let filled = variables::fill(text, values);
    filled.map(|_| ()).map_err(|error| Error::Variable { place: place.to_owned(), error })
}

/// That the steps before a step do not come to it again.
fn check_order(step: &PlannedStep, steps: &[PlannedStep]) -> Result<(), Error> {
    let before = |step: &PlannedStep| steps.iter().find(|other| Some(&other.name) == step.step.after.as_ref());
    let chain = std::iter::successors(Some(step), |step| before(step));
    if chain.take(steps.len() + 1).count() > steps.len() { Err(Error::Circle(step.name.clone())) } else { Ok(()) }
}

fn check_path(path: &str) -> Result<(), Error> {
    let is_below = Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if is_below && !path.is_empty() { Ok(()) } else { Err(Error::Path(path.to_owned())) }
}

fn check_size(file: &File) -> Result<(), Error> {
    let size = file.size.parse().is_ok_and(|Size(size)| size <= FILE_LEN_MAX.0);
    if size { Ok(()) } else { Err(Error::Size { path: file.path.clone(), size: file.size.clone() }) }
}

fn known(is_known: bool, place: &str, kind: &'static str, name: &str) -> Result<(), Error> {
    if is_known {
        return Ok(());
    }
    Err(Error::Unknown { place: place.to_owned(), kind, name: name.to_owned() })
}

fn known_variants<'a>(
    mut variants: impl Iterator<Item = &'a String>,
    keys: &BTreeSet<String>,
    place: &str,
) -> Result<(), Error> {
    variants.try_for_each(|key| known(keys.contains(key), place, "variant", key))
}

fn unique<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::Twice { kind, name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
