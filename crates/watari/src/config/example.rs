//! `examples/every-key.toml`: the text with the keys that it has in comments, and its tables in their order.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table with a header, and its keys in the order of the file.
pub(super) struct Table {
    /// `agent.proxy.pool`
    pub(super) path: String,
    pub(super) is_array: bool,
    pub(super) keys: Vec<Key>,
}

pub(super) struct Key {
    /// `origins`, or `rate.burst` for a key of a table in braces.
    pub(super) name: String,
    pub(super) example: String,
}

/// The example with all its keys. A line keeps its number.
pub(super) fn every_key() -> String {
    include_str!("../../../../examples/every-key.toml").lines().flat_map(|line| [bare(line), "\n"]).collect()
}

/// Whether the line sets a key.
pub(super) fn is_key(line: &str) -> bool {
    let name = |key: &str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    line.split_once(" = ").is_some_and(|(key, _)| name(key))
}

fn bare(line: &str) -> &str {
    match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || is_key(rest) => rest,
        _ => line,
    }
}

/// The tables in their order. `has_keys`: whether the schema names the keys of the table in braces at a path. Otherwise,
/// the writer of the file chooses them.
pub(super) fn tables(has_keys: &dyn Fn(&str) -> bool) -> Vec<Table> {
    let text = every_key();
    let root = DeTable::parse(&text).unwrap();
    let mut walk = Walk { text: &text, has_keys, tables: BTreeMap::new(), keys: BTreeMap::new() };
    walk.table(root.get_ref(), &Place::default());
    let Walk { tables, keys, .. } = walk;
    let mut tables: Vec<_> = tables.into_iter().map(|(path, (start, is_array))| (start, path, is_array)).collect();
    tables.sort();
    let tables = tables.into_iter().map(|(_, path, is_array)| {
        let mut of_table: Vec<_> = keys.iter().filter(|((table, _), _)| *table == path).collect();
        of_table.sort_by_key(|(_, (start, _))| *start);
        let keys =
            of_table.into_iter().map(|((_, name), (_, example))| Key { name: name.clone(), example: example.clone() });
        Table { keys: keys.collect(), path, is_array }
    });
    tables.collect()
}

/// Where a value is: the table with a header that it belongs to, and its name there.
#[derive(Clone, Default)]
struct Place {
    table: String,
    name: String,
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Walk<'a> {
    text: &'a str,
    has_keys: &'a dyn Fn(&str) -> bool,
    /// Of each table with a header: where the first one begins, and whether it is one of a list.
    tables: BTreeMap<String, (usize, bool)>,
    /// Of each key in each of these tables: where its first value begins, and the value.
    keys: BTreeMap<(String, String), (usize, String)>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, place: &Place) {
        for (key, value) in table {
            let (elements, is_array) = tables_in(value);
            // A table with a header begins with a bracket, a table in braces with a brace.
            let first = elements.first().filter(|table| !self.text[table.span().start..].starts_with('{'));
            let place = if let Some(first) = first {
                let path = below(&place.table, key.get_ref());
                self.tables.entry(path.clone()).or_insert((first.span().start, is_array));
                Place { table: path, name: String::new() }
            } else {
                let place = Place { name: below(&place.name, key.get_ref()), ..place.clone() };
                let example = (value.span().start, one_line(&self.text[value.span()]));
                self.keys.entry((place.table.clone(), place.name.clone())).or_insert(example);
                place
            };
            if place.name.is_empty() || (self.has_keys)(&below(&place.table, &place.name)) {
                for table in elements {
                    self.table(table.get_ref().as_table().unwrap(), &place);
                }
            }
        }
    }
}

/// The tables that a value is, and whether they are in a list.
fn tables_in<'a, 'b>(value: &'a Spanned<DeValue<'b>>) -> (Vec<&'a Spanned<DeValue<'b>>>, bool) {
    match value.get_ref() {
        DeValue::Table(_) => (vec![value], false),
        DeValue::Array(elements) => (elements.iter().filter(|element| element.get_ref().is_table()).collect(), true),
        _ => (Vec::new(), false),
    }
}

/// A value in one line, without comments.
fn one_line(value: &str) -> String {
    let lines = value.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let joined = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    joined.replace("[ ", "[").replace(", ]", "]")
}
