//! The examples in documents are valid.

use std::fs;

use tempfile::tempdir;
use watari_watch::alerting::Config;

/// Those of the section on notifications.
#[test]
fn examples_are_read() {
    let page = include_str!("../../../../docs/watch.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Alerts\n")).unwrap();
    let examples: Vec<&str> = section.split("```toml\n").skip(1).map(|it| it.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 4, "{examples:?}");
    let dir = tempdir().unwrap();
    let file = dir.path().join("watch.toml");
    for example in examples {
        fs::write(&file, example).unwrap();
        let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}\n{example}"));
        assert!(!config.receivers.is_empty(), "{example}");
    }
}
