//! The parts of a configuration that were changed to find further mistakes.
//!
//! A value that `form` has removed may make others look wrong: without its pool, a route leads nowhere. Mistakes in the
//! changed parts, and in those that refer to them, are not reported until the form is right.

use std::collections::{BTreeMap, BTreeSet};

use super::form::{Node, Path, PathStep, shown};

/// The changed parts.
#[derive(Default)]
pub(super) struct Mended {
    parts: BTreeSet<Part>,
    /// The changed keys, as messages show them.
    keys: BTreeSet<String>,
    /// The part of each line on which a value begins.
    lines: BTreeMap<usize, Part>,
}

/// Tables whose values are checked with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// `[node]`, `[[peer]]`, `[dispatcher]`, and which tables there are.
    Cluster,
    /// The keys of `[agent]`, and which tables it has.
    Agent,
    /// `[[agent.certificate]]` and `[agent.tls]`
    Tls,
    /// `[agent.sessions]`
    Sessions,
    /// The keys of `[agent.proxy]`, and which tables it has.
    Proxy,
    /// A pool, by its index.
    Pool(usize),
    /// A route, by its index.
    Route(usize),
    /// Tables whose values are not checked with others.
    Alone,
}

impl Mended {
    /// Nothing is changed yet in `root`.
    pub(super) fn of(text: &str, root: &Node<'_>) -> Self {
        let lines = root.lines(text).into_iter().map(|(line, path)| (line, Part::of(&path)));
        Self { lines: lines.collect(), ..Self::default() }
    }

    /// The value at `path` was removed, or a placeholder inserted.
    pub(super) fn add(&mut self, path: &Path) {
        let part = Part::of(path);
        self.keys.insert(shown(path));
        if part != Part::Alone {
            let table = path.split_last().map_or(part, |(_, table)| Part::of(table));
            self.parts.extend([part, table]);
        }
    }

    /// Whether `key`, such as `node.admin`, was changed.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Whether a mistake on this line may be a consequence of the changes. Placeholders have no line of their own.
    pub(super) fn may_cause(&self, line: usize) -> bool {
        let part = self.lines.get(&line);
        !self.parts.is_empty() && part.is_none_or(|part| self.parts.iter().any(|mended| mended.reaches(*part)))
    }
}

impl Part {
    fn of(path: &[PathStep]) -> Self {
        let keys: Vec<_> = path
            .iter()
            .filter_map(|step| if let PathStep::Key(key) = step { Some(key.as_str()) } else { None })
            .collect();
        let index = path.iter().find_map(|step| if let PathStep::Element(index) = step { Some(*index) } else { None });
        match (keys.as_slice(), index) {
            (
                [_, "limits", ..]
                | ["log", ..]
                | ["dispatcher", "check", ..]
                | ["agent", "proxy", "limits" | "access_log" | "compress", ..]
                | ["agent", "proxy", "pool", "limits" | "handover", ..],
                _,
            ) => Self::Alone,
            (["agent", "certificate" | "tls", ..], _) => Self::Tls,
            (["agent", "sessions", ..], _) => Self::Sessions,
            (["agent", "proxy", "pool", ..], Some(index)) => Self::Pool(index),
            (["agent", "proxy", "route", ..], Some(index)) => Self::Route(index),
            (["agent", "proxy", ..], _) => Self::Proxy,
            (["agent", ..], _) => Self::Agent,
            _ => Self::Cluster,
        }
    }

    /// Whether a change in this part can make values of `other` look wrong.
    fn reaches(self, other: Self) -> bool {
        match (self, other) {
            (Self::Proxy, Self::Pool(_) | Self::Route(_)) | (Self::Pool(_), Self::Route(_)) => true,
            _ => self == other,
        }
    }
}
