//! The keys and values of a configuration file, and the differences between two files.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::raw::line_of;

/// Keys that identify the tables of an array.
const NAMES: [&str; 3] = ["name", "address", "chain"];

/// The path of each key, such as `peer[a1].mesh`, with its value. A configuration has no secrets: it names the files
/// that hold them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outline(BTreeMap<String, Entry>);

#[derive(Debug, Clone)]
struct Entry {
    value: String,
    line: usize,
}

/// A key with another value than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) key: String,
    /// The text in the file. `None`: the key was not set.
    pub(crate) old: Option<String>,
    /// `None`: the key is not set any more.
    pub(crate) new: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(not set)".to_owned());
        write!(f, "{}: {} -> {}", self.key, shown(&self.old), shown(&self.new))
    }
}

impl Outline {
    /// The outline of `text`, which must have passed as a configuration.
    pub(super) fn of(text: &str) -> Self {
        let mut outline = Reader { text, entries: BTreeMap::new() };
        if let Ok(root) = DeTable::parse(text) {
            outline.table("", root.get_ref());
        }
        Self(outline.entries)
    }

    /// The keys whose values differ, including those that only one outline has.
    pub(crate) fn changes(&self, new: &Self) -> Vec<Change> {
        let mut keys: Vec<_> = self.0.keys().chain(new.0.keys()).collect();
        keys.sort();
        keys.dedup();
        let changes = keys.into_iter().map(|key| {
            let value = |outline: &Self| outline.0.get(key).map(|entry| entry.value.clone());
            Change { key: key.clone(), old: value(self), new: value(new) }
        });
        changes.filter(|change| change.old != change.new).collect()
    }

    /// Whether `key`, or a key below it, has another value in `other`.
    pub(super) fn differs(&self, other: &Self, key: &str) -> bool {
        self.changes(other).iter().any(|change| is_below(&change.key, key))
    }

    /// The line of the administration socket, or that of `[node]`.
    pub(super) fn admin_line(&self) -> usize {
        self.line_of("node.admin").or_else(|| self.line_of("node")).unwrap_or(1)
    }

    /// The line of `key`, or the first line below it.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        self.0.iter().filter(|(path, _)| is_below(path, key)).map(|(_, entry)| entry.line).min()
    }
}

fn is_below(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

struct Reader<'a> {
    text: &'a str,
    entries: BTreeMap<String, Entry>,
}

impl Reader<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let dot = if path.is_empty() { "" } else { "." };
            self.value(&format!("{path}{dot}{}", key.get_ref()), value);
        }
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(path, table),
            DeValue::Array(elements) if elements.iter().any(|element| element.get_ref().is_table()) => {
                for (index, element) in elements.iter().enumerate() {
                    self.value(&format!("{path}[{}]", label(element.get_ref(), index)), element);
                }
            }
            _ => {
                let entry = Entry { value: self.shown(value), line: line_of(self.text, value.span().start) };
                self.entries.insert(path.to_owned(), entry);
            }
        }
    }

    /// The value on one line.
    fn shown(&self, value: &Spanned<DeValue<'_>>) -> String {
        match value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Array(elements) => {
                let shown: Vec<_> = elements.iter().map(|element| self.shown(element)).collect();
                format!("[{}]", shown.join(", "))
            }
            _ => self.text.get(value.span()).unwrap_or_default().to_owned(),
        }
    }
}

/// The text that identifies this element in an array of tables.
fn label(element: &DeValue<'_>, index: usize) -> String {
    let table = element.as_table();
    let named = NAMES.iter().find_map(|name| table?.get(*name)?.get_ref().as_str());
    named.map_or_else(|| index.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[node]
name = \"d1\"
[[peer]]
name = \"a1\"
mesh = \"192.0.2.2:7001\"
[dispatcher]
listen = [\"0.0.0.0:443\"]
agents = [{ name = \"a1\", legs = \"192.0.2.2:7101\" }]
[dispatcher.limits]
connections_max = 10
";

    fn changes(from: &str, to: &str) -> Vec<(String, Option<String>, Option<String>)> {
        let changes = Outline::of(TEXT).changes(&Outline::of(&TEXT.replace(from, to)));
        changes.into_iter().map(|Change { key, old, new }| (key, old, new)).collect()
    }

    fn change(key: &str, old: &str, new: &str) -> (String, Option<String>, Option<String>) {
        let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        (key.to_owned(), value(old), value(new))
    }

    #[test]
    fn what_has_changed_is_told_key_by_key() {
        assert_eq!(changes("max = 10", "max = 20"), [change("dispatcher.limits.connections_max", "10", "20")]);
        assert_eq!(
            changes("[\"0.0.0.0:443\"]", "[\"0.0.0.0:443\",\n  '[::]:443', # IPv6\n]"),
            [change("dispatcher.listen", "[\"0.0.0.0:443\"]", "[\"0.0.0.0:443\", \"[::]:443\"]")]
        );
        assert_eq!(
            changes(":7101\" }", ":7102\" }, { name = \"a2\", legs = \"192.0.2.3:7101\" }"),
            [
                change("dispatcher.agents[a1].legs", "\"192.0.2.2:7101\"", "\"192.0.2.2:7102\""),
                change("dispatcher.agents[a2].legs", "", "\"192.0.2.3:7101\""),
                change("dispatcher.agents[a2].name", "", "\"a2\""),
            ]
        );
        let peer = "[[peer]]\nname = \"a1\"\nmesh = \"192.0.2.2:7001\"\n";
        assert_eq!(
            changes(peer, ""),
            [change("peer[a1].mesh", "\"192.0.2.2:7001\"", ""), change("peer[a1].name", "\"a1\"", "")]
        );
    }

    #[test]
    fn order_and_comments_are_no_change() {
        assert_eq!(changes("[node]\nname = \"d1\"\n", "# here\n[node] # there\n\"name\" =   'd1'\n"), []);
    }

    #[test]
    fn keys_and_tables_have_lines() {
        let outline = Outline::of(TEXT);
        assert_eq!(outline.line_of("peer[a1].mesh"), Some(5));
        assert_eq!(outline.line_of("dispatcher"), Some(7));
        assert_eq!(outline.line_of("dispatcher.limits"), Some(10));
        assert_eq!(outline.line_of("disp"), None);
    }
}
