//! A report of a run as one page of HTML that needs nothing else: no network, no script.
//!
//! Everything that a page shows is in the [`Summary`], so that it can be made of a saved one, too.
//!
//! What comes from outside (the command line, names of classes, what a server said) gets into a page through templates that escape
//! it, and without control characters; the page also forbids scripts to itself. The markup is XML at the same time.

mod course;
mod latency;
mod plot;
mod table;

use askama::Template;

use crate::grid::shown;
use crate::page::plot::Plot;
use crate::page::table::Table;
use crate::summary::Summary;

/// The page of a run.
pub fn page(summary: &Summary) -> String {
    Page::new(summary).to_string()
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    command: String,
    run: String,
    keys: Vec<Key>,
    notes: Vec<String>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    course: Option<Table>,
}

/// A figure that one looks for first.
struct Key {
    name: &'static str,
    value: String,
    unit: &'static str,
    bad: bool,
}

impl Page {
    fn new(summary: &Summary) -> Self {
        let run = &summary.run;
        Self {
            title: title(&run.command),
            command: shown(&run.command.join(" ")),
            run: shown(&format!("Watari {}, {}, {}", run.version, run.started, run.machine)),
            keys: keys(summary),
            notes: summary.notes(),
            plots: plots(summary),
            tables: table::of_run(summary),
            course: table::of_course(&summary.series),
        }
    }
}

/// The target, if the command line has one that looks so.
fn title(command: &[String]) -> String {
    let target = command.iter().find(|word| word.starts_with("http://") || word.starts_with("https://"));
    target.map_or_else(|| "A load of HTTP requests".to_owned(), |url| shown(&format!("A load on {url}")))
}

fn keys(summary: &Summary) -> Vec<Key> {
    let total = &summary.total;
    let key = |name, value, unit| Key { name, value, unit, bad: false };
    let time = |ms: f64| if total.latency_ms.count > 0 { format!("{ms:.3}") } else { "-".to_owned() };
    vec![
        key("Answered", format!("{:.1}", total.requests_per_s), "/s"),
        key("Latency p50", time(total.latency_ms.p50), "ms"),
        key("Latency p99", time(total.latency_ms.p99), "ms"),
        key("Requests", total.requests.to_string(), ""),
        Key { bad: total.failures > 0.0, ..key("Failed", format!("{:.4}", 100.0 * total.failures), "%") },
        key("Bodies", format!("{:.2}", total.bytes_per_s / f64::from(1 << 20)), "MiB/s"),
        key("Duration", format!("{:.2}", total.seconds), "s"),
    ]
}

fn plots(summary: &Summary) -> Vec<Plot> {
    let latency = [latency::distribution(summary), latency::percentiles(summary)];
    let course =
        [course::rate(summary), course::latency(summary), course::failures(summary), course::connections(summary)];
    latency.into_iter().chain(course).flatten().collect()
}

#[cfg(test)]
mod tests;
