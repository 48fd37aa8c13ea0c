//! Help texts, manual pages and completions.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::watari;

#[test]
fn shells_accept_the_completions() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("watari.bash");
    fs::write(&script, watari(dir.path(), &["completions", "bash"]).done()).unwrap();
    let completed = r#". "$0"; COMP_WORDS=(watari ctl dr) COMP_CWORD=2; _watari watari dr ctl; echo "${COMPREPLY[@]}""#;
    let bash = Command::new("bash").args(["-c", completed]).arg(&script).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&bash.stdout).trim(), bash.status.success()), ("drain", true), "{bash:?}");
    for shell in ["zsh", "fish"] {
        assert!(watari(dir.path(), &["completions", shell]).done().contains("undrain"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    watari(dir.path(), &["man", "--out", "share/man1"]).done();
    for page in ["watari", "watari-run", "watari-schema", "watari-ctl-drain", "watari-bench-http", "watari-watch-live"]
    {
        let text = fs::read_to_string(dir.path().join(format!("share/man1/{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{text}");
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
    }
    let refused = watari(dir.path(), &["man", "--out", "/proc/man1"]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.error.contains("/proc/man1"), "{}", refused.error);
}

#[test]
fn the_schema_describes_configuration_files() {
    let dir = tempfile::tempdir().unwrap();
    let schema: Value = serde_json::from_str(&watari(dir.path(), &["schema"]).done()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let limits = &schema["properties"]["dispatcher"]["properties"]["limits"];
    assert_eq!((&limits["type"], &limits["additionalProperties"]), (&"object".into(), &false.into()));
    let timeout = &limits["properties"]["idle_timeout"];
    assert_eq!((&timeout["$ref"], &timeout["default"]), (&"#/$defs/duration".into(), &"5m".into()));
    assert!(timeout["description"].is_string(), "{timeout}");
}

#[test]
fn help_has_examples() {
    let dir = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 16] = [
        &[],
        &["run"],
        &["schema"],
        &["ctl"],
        &["ctl", "status"],
        &["ctl", "nodes"],
        &["ctl", "connections"],
        &["ctl", "move"],
        &["ctl", "drain"],
        &["ctl", "undrain"],
        &["bench", "suites"],
        &["demo"],
        &["demo", "origin"],
        &["pki", "init"],
        &["pki", "issue"],
        &["pki", "show"],
    ];
    for command in commands {
        let help = watari(dir.path(), &[command, &["--help"]].concat()).done();
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}
