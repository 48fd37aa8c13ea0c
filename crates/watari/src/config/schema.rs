//! The JSON schema of node files (draft 2020-12).
//!
//! schemars derives it from the types of `raw`. This module adapts it to TOML and to readers: types of Rust are not
//! named, values are never null, and documentation has no line breaks of source code.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::raw::RawConfig;

/// The schema.
pub(crate) fn schema() -> Value {
    let mut root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>().to_value();
    let types = root.as_object_mut().and_then(|root| root.remove("$defs"));
    let types = types.and_then(|types| if let Value::Object(types) = types { Some(types) } else { None });
    let (named, inlined): (Map<_, _>, Map<_, _>) =
        types.unwrap_or_default().into_iter().partition(|(name, _)| is_for_readers(name));
    root["$defs"] = Value::Object(named);
    root["title"] = "The configuration of a Watari node".into();
    tidy(&mut root, &inlined);
    root
}

/// Types of values have names for readers, such as `duration`. All other names are those of Rust types.
fn is_for_readers(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

fn tidy(schema: &mut Value, inlined: &Map<String, Value>) {
    match schema {
        Value::Object(object) => {
            forbid_null(object);
            while inline(object, inlined) {}
            bound(object);
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = joined(text);
            }
            object.values_mut().for_each(|value| tidy(value, inlined));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| tidy(value, inlined)),
        _ => {}
    }
}

/// Replaces a reference to one of `inlined`. `false`: there is none.
fn inline(object: &mut Map<String, Value>, inlined: &Map<String, Value>) -> bool {
    let name = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
    let Some(Value::Object(definition)) = name.and_then(|name| inlined.get(name)) else { return false };
    object.remove("$ref");
    merge(object, definition);
    true
}

/// Adds the keywords of `other` that `object` does not have.
fn merge(object: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (keyword, value) in other {
        object.entry(keyword.clone()).or_insert_with(|| value.clone());
    }
}

/// TOML has no null. schemars allows it for each `Option`.
fn forbid_null(object: &mut Map<String, Value>) {
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(schemas)) = object.get_mut("anyOf") {
        schemas.retain(|schema| schema["type"] != "null");
        if let [Value::Object(only)] = &schemas[..] {
            let only = only.clone();
            object.remove("anyOf");
            merge(object, &only);
        }
    }
}

/// The formats of integers are not those of JSON schemas.
fn bound(object: &mut Map<String, Value>) {
    let format = if object.get("type").is_some_and(|name| name == "integer" || name == "number") {
        object.remove("format")
    } else {
        None
    };
    if format.is_some_and(|format| format == "uint32") {
        object.entry("maximum").or_insert(u32::MAX.into());
    }
}

/// Each paragraph as one line.
fn joined(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}
