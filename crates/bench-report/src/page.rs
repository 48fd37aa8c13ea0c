//! A report of a run as one self-contained page of HTML: no network, no script.
//!
//! All data of a page come from the [`Summary`], so that a page can be made from a saved one.
//!
//! External text (the command line, names of classes, text from a server) passes through templates that escape it and
//! remove control characters. The page also forbids scripts. The markup is also valid XML.
//!
//! Imports: `summary`; `axis` and `grid` for scales and text.

mod course;
mod latency;
mod plot;
mod table;

use askama::Template;

use crate::grid::shown;
use crate::page::plot::Plot;
use crate::page::table::Table;
use crate::summary::{Run, Summary};

/// The page of a run.
pub fn page(summary: &Summary) -> String {
    Page::new(summary).to_string()
}

/// A page about another subject than the results of a run. `main` is trusted markup.
pub fn document(title: &str, run: &Run, main: String) -> String {
    Document { head: Head::new(title, run), main }.to_string()
}

#[derive(Template)]
#[template(path = "document.html")]
struct Document {
    head: Head,
    main: String,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    head: Head,
    keys: Vec<Key>,
    notes: Vec<String>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    course: Option<Table>,
}

/// The head of every page.
struct Head {
    title: String,
    command: String,
    run: String,
}

impl Head {
    fn new(title: &str, run: &Run) -> Self {
        Self {
            title: shown(title),
            command: shown(&run.command.join(" ")),
            run: shown(&format!("Watari {}, {}, {}", run.version, run.started, run.machine)),
        }
    }
}

/// A key figure at the top of the page.
struct Key {
    name: &'static str,
    value: String,
    unit: &'static str,
    bad: bool,
}

impl Page {
    fn new(summary: &Summary) -> Self {
        Self {
            head: Head::new(&title(&summary.run.command), &summary.run),
            keys: keys(summary),
            notes: summary.notes(),
            plots: plots(summary),
            tables: table::of_run(summary),
            course: table::of_course(&summary.series),
        }
    }
}

/// The title: the target, if the command line contains one.
fn title(command: &[String]) -> String {
    let target = command.iter().find(|word| word.starts_with("http://") || word.starts_with("https://"));
    target.map_or_else(|| "A load of HTTP requests".to_owned(), |url| format!("A load on {url}"))
}

fn keys(summary: &Summary) -> Vec<Key> {
    let total = &summary.total;
    let key = |name, value, unit| Key { name, value, unit, bad: false };
    let time = |ms: f64| if total.latency_ms.count > 0 { format!("{ms:.3}") } else { "-".to_owned() };
    vec![
        key("Succeeded", format!("{:.1}", total.requests_per_s), "/s"),
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
