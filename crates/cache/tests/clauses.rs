//! The tests that `docs/cache.md` names for each clause exist.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

/// The names `module::test` of the last column of each row.
fn named_tests(document: &str) -> Vec<(&str, &str)> {
    let section =
        document.split("\n## ").find(|section| section.trim_start_matches("## ").starts_with("RFC 9111 by clause"));
    let rows = section.unwrap().lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    last.flat_map(|cell| cell.split('`')).filter_map(|name| name.split_once("::")).collect()
}

#[test]
fn each_clause_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/cache.md")).unwrap();
    let named = named_tests(&document);
    assert!(named.len() > 40, "{named:?}");
    for (module, test) in named {
        let files = [format!("src/{module}.rs"), format!("src/{module}/tests.rs")];
        let texts: Vec<_> = files.iter().filter_map(|file| fs::read_to_string(root.join(file)).ok()).collect();
        let is_defined = texts.iter().any(|text| text.contains(&format!("fn {test}(")));
        assert!(is_defined, "docs/cache.md names {module}::{test}");
    }
}
