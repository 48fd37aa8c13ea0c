//! Experiments in network namespaces: the testbed, the experiments of the papers, and their results.
//!
//! * `experiment`: the file of an experiment;
//! * `plan`: what a run of it does: its variants and ratios, with the values of their variables;
//! * `supervisor`: the sandbox of a run, and what is left after it;
//! * `run`: the trials of a run, in the sandbox, and its result;
//! * `hosts`, `control_group`: the testbed: namespaces, networks, CPU quotas and processes;
//! * `commands`: programs that run to their end;
//! * `router`: a network with delay, jitter, loss and a rate;
//! * `measure`, `speed`, `verdict`: what the trials show;
//! * `output`: the files of a result: tables, plots, pages;
//! * `scale`: a simulated cluster of many nodes.

pub mod catalogue;
mod commands;
pub mod control_group;
mod duration;
pub mod experiment;
pub mod hosts;
pub mod measure;
pub mod output;
pub mod plan;
pub mod result;
pub mod router;
pub mod run;
pub mod scale;
mod speed;
mod statistics;
pub mod supervisor;
pub mod variables;
pub mod verdict;
