//! The `watari` command from its users' view: arguments, output, exit status.

#![allow(clippy::unwrap_used)]

mod behind_others;
mod bench_http;
mod bench_report;
mod bench_truth;
mod capacity;
mod cluster;
mod compare;
mod ctl;
mod ctl_cache;
mod demo;
mod drain;
mod example;
mod help;
mod lab;
mod nginx;
mod pipes;
mod pki;
mod run;
mod statuses;
mod suites;
mod support;
mod terminal;
mod upgrade;
mod users;
mod workers;
