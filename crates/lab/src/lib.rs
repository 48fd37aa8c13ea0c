//! Experiments in network namespaces: the testbed, the experiments of the papers, and their results.
//!
//! * `experiment`: the file of an experiment;
//! * `testbed`: hosts, networks, CPU quotas and processes;
//! * `router`: a network with delay, jitter, loss and a rate;
//! * `result`: what a run has found;
//! * `output`: its files: tables, plots, pages.

pub mod catalogue;
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
pub mod supervisor;
pub mod variables;
pub mod verdict;
