//! The programs of a run. One that is missing ends the run before its first trial, and not the trials before its own.

use std::collections::BTreeSet;

use crate::plan::{Plan, PlannedVariant};
use crate::variables::{self, Values};

/// The programs of processes, steps and scripts that this machine lacks.
pub(super) fn missing(plan: &Plan) -> Vec<String> {
    let of_scripts = plan.experiment().needs.iter().cloned();
    let programs: BTreeSet<_> = plan.variants.iter().flat_map(programs).chain(of_scripts).collect();
    programs.into_iter().filter(|program| which::which(program).is_err()).collect()
}

/// Leaves out a program whose name depends on what happens in the run.
fn programs(variant: &PlannedVariant) -> BTreeSet<String> {
    let mut programs = BTreeSet::new();
    for process in &variant.processes {
        let mut values = variant.values.clone();
        variables::add(&mut values, &process.vars);
        programs.extend(process.ready.iter().chain([&process.run]).filter_map(|command| program(command, &values)));
    }
    programs.extend(variant.steps.iter().filter_map(|step| program(&step.step.run, &variant.values)));
    programs
}

fn program(command: &str, values: &Values) -> Option<String> {
    variables::fill(command.split_whitespace().next()?, values).ok()
}
