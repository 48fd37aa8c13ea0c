//! `docs/configuration.md` and `docs/configuration.schema.json`, and the tests that they are current.
//!
//! The schema has the type, default, range and documentation of each key. `examples/every-key.toml` has the order of
//! tables and keys, and an example of each.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::example::{self, Table};
use super::schema::schema;

const INTRODUCTION: &str = "\
# Configuration of a node

`make docs` writes this page from the code that reads the file. It has every table and key, in the order of
[examples/every-key.toml](../examples/every-key.toml). [configuration.schema.json](configuration.schema.json) has the
same for editors: with Taplo (Even Better TOML), a file that begins with the line
`#:schema ./configuration.schema.json` is completed and checked. `watari schema` prints the schema of the installed
version.

* `watari run --config FILE --check` reports all that is wrong with a file.
* `watari ctl reload` and SIGHUP make a running node read its file again.
  [operating.md](operating.md#reload) lists the keys that need a restart.
* `table.key` is a key of a table in braces, or of each such table in a list. It is required only within that table.
* A node is a dispatcher, an agent, or both: `[dispatcher]` and `[agent]` are optional. So are all tables below them,
  except that an agent needs `[agent.files]` or `[agent.proxy]`.

Other files that Watari reads: [receivers of alerts](watch.md#alerts) of `watari watch`, [request
lists](load-generator.md#request-lists-and-source-addresses) and [flows](load-generator.md#flows) of `watari bench`.
";

#[test]
fn the_documentation_of_the_configuration_is_current() {
    for (file, text) in files() {
        let is_current = fs::read_to_string(&file).is_ok_and(|found| found == text);
        assert!(is_current, "{} is not current: run `make docs`", file.display());
    }
}

#[test]
#[ignore = "writes documents: `make docs`"]
fn write_the_documentation() {
    for (file, text) in files() {
        fs::write(file, text).unwrap();
    }
}

#[test]
fn the_schema_and_the_example_have_the_same_keys() {
    let mut in_schema = BTreeSet::new();
    note_keys(&schema(), "", &mut in_schema);
    let mut in_example = BTreeSet::new();
    for table in tables() {
        in_example.extend(table.keys.iter().map(|key| format!("{}.{}", table.path, key.name)));
        in_example.insert(table.path);
    }
    let without_example: Vec<_> = in_schema.difference(&in_example).collect();
    let unknown: Vec<_> = in_example.difference(&in_schema).collect();
    assert!(without_example.is_empty() && unknown.is_empty(), "no example: {without_example:?}; no key: {unknown:?}");
}

#[test]
fn each_key_is_documented() {
    for table in tables() {
        for key in &table.keys {
            let path = format!("{}.{}", table.path, key.name);
            let meaning = meaning(&at(&schema(), &path));
            assert!(meaning.ends_with(['.', '`']) && meaning.len() > 10, "{path}: \"{meaning}\"");
        }
    }
}

/// The tables of the example.
fn tables() -> Vec<Table> {
    let schema = schema();
    example::tables(&|path| properties(&at(&schema, path)).is_some())
}

/// The files, and the texts that they should have.
fn files() -> [(PathBuf, String); 2] {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let json = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    [(docs.join("configuration.md"), page()), (docs.join("configuration.schema.json"), json)]
}

fn page() -> String {
    let schema = schema();
    let mut page = INTRODUCTION.to_owned() + "\n## Types\n\n";
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        wrap(&mut page, &format!("* **{name}**: {}", paragraph(&definition["description"])), "  ");
    }
    for table in tables() {
        let (open, close) = if table.is_array { ("[[", "]]") } else { ("[", "]") };
        let _ = write!(page, "\n## `{open}{}{close}`\n\n", table.path);
        let of_table = at(&schema, &table.path);
        let described = of_table.get("items").filter(|_| table.is_array).unwrap_or(&of_table);
        wrap(&mut page, &paragraph(&described["description"]), "");
        page +=
            "\n| key | type | default | range or values | meaning | example |\n| --- | --- | --- | --- | --- | --- |\n";
        for key in &table.keys {
            let path = format!("{}.{}", table.path, key.name);
            let of_key = at(&schema, &path);
            let default = default(&schema, &path, &of_key);
            let example = if key.example.len() > CELL_LEN_MAX && default == list(&key.example) {
                "the default".to_owned()
            } else {
                list(&key.example)
            };
            let range = range(&of_key);
            let default = if default == range && default != "-" { "all".to_owned() } else { default };
            let cells = [format!("`{}`", key.name), kind(&of_key), default, range, meaning(&of_key), example];
            let _ = writeln!(page, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    page
}

/// Lists with a longer text have a line for each element.
const CELL_LEN_MAX: usize = 60;

/// A value of TOML, as code.
fn list(value: &str) -> String {
    match value.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]")) {
        Some(elements) if value.len() > CELL_LEN_MAX => {
            elements.split("\", \"").map(|element| format!("`\"{element}\"`")).collect::<Vec<_>>().join("<br>")
        }
        _ => format!("`{value}`"),
    }
}

fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return format!("[{}](#types)", name.trim_start_matches("#/$defs/"));
    }
    match (schema["type"].as_str(), &schema["additionalProperties"]) {
        (Some("array"), _) => format!("list of {}", kind(&schema["items"])),
        (Some("object"), Value::Object(value)) => format!("table of {}", kind(&Value::Object(value.clone()))),
        (Some("object"), _) => "table".to_owned(),
        (Some(name), _) => name.to_owned(),
        (None, _) => "string".to_owned(),
    }
}

fn default(schema: &Value, path: &str, of_key: &Value) -> String {
    let (above, key) = path.rsplit_once('.').unwrap();
    let table = table_of(at(schema, above));
    if table["required"].as_array().is_some_and(|keys| keys.iter().any(|name| name == key)) {
        return "**required**".to_owned();
    }
    // A table of values may have the defaults of all its keys.
    let of_table = at(schema, above);
    match of_key.get("default").or_else(|| of_table["default"].as_object()?.get(key)) {
        Some(Value::Array(values)) if values.is_empty() => "`[]`".to_owned(),
        Some(value) => list(&in_toml(value)),
        None => "-".to_owned(),
    }
}

fn in_toml(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(in_toml).collect::<Vec<_>>().join(", ")),
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{key} = {}", in_toml(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

fn range(schema: &Value) -> String {
    if let Some(range) = schema["x-range"].as_str() {
        return range.to_owned();
    }
    let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join("<br>");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices
            .iter()
            .flat_map(values_of)
            .map(|(value, _)| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join("<br>");
    }
    match (&schema["minimum"], &schema["maximum"], &schema["exclusiveMinimum"]) {
        (Value::Null, Value::Null, Value::Null) => "-".to_owned(),
        (Value::Null, Value::Null, above) => format!("above {above}"),
        (min, Value::Null, _) => format!("{min} or more"),
        (min, max, _) if *max == u32::MAX => format!("{min} or more"),
        (min, max, _) => format!("{min} to {max}"),
    }
}

/// The values of a choice, with their meanings.
fn values_of(choice: &Value) -> Vec<(Value, String)> {
    match &choice["enum"] {
        Value::Array(values) => values.iter().map(|value| (value.clone(), String::new())).collect(),
        _ => vec![(choice["const"].clone(), paragraph(&choice["description"]))],
    }
}

fn meaning(schema: &Value) -> String {
    let text = paragraph(&schema["description"]);
    let of_values = if schema["type"] == "array" { &schema["items"]["oneOf"] } else { &schema["oneOf"] };
    let choices = of_values.as_array().into_iter().flatten().flat_map(values_of);
    let lines =
        choices.filter(|(_, meaning)| !meaning.is_empty()).map(|(value, meaning)| format!("<br>`{value}`: {meaning}"));
    text + &lines.collect::<String>()
}

/// The first paragraph of a description.
fn paragraph(description: &Value) -> String {
    description.as_str().and_then(|text| text.split("\n\n").next()).unwrap_or_default().to_owned()
}

fn wrap(page: &mut String, text: &str, indent: &str) {
    let mut line_len = 0;
    for word in text.split(' ') {
        if line_len > 0 && line_len + 1 + word.len() > 120 {
            *page += "\n";
            *page += indent;
            line_len = indent.len();
        } else if line_len > 0 {
            *page += " ";
            line_len += 1;
        }
        *page += word;
        line_len += word.len();
    }
    *page += "\n";
}

/// The schema of the table or key at `path`.
fn at(schema: &Value, path: &str) -> Value {
    path.split('.').fold(schema.clone(), |schema, key| table_of(schema)["properties"][key].clone())
}

/// The schema of a table, or of the tables in a list.
fn table_of(schema: Value) -> Value {
    if schema["type"] == "array" { schema["items"].clone() } else { schema }
}

fn properties(schema: &Value) -> Option<Map<String, Value>> {
    table_of(schema.clone())["properties"].as_object().cloned()
}

fn note_keys(schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    for (key, schema) in properties(schema).into_iter().flatten() {
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        note_keys(&schema, &path, keys);
        keys.insert(path);
    }
}
