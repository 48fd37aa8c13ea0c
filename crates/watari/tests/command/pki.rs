//! `watari pki`

use std::fs;

use serde_json::Value;

use crate::support::watari;

#[test]
fn an_authority_issues_and_shows() {
    let dir = tempfile::tempdir().unwrap();
    let pki = |arguments: &[&str]| watari(dir.path(), &[&["pki"], arguments].concat());
    assert_eq!(pki(&["init", "--dir", "p", "--cluster", "north"]).done(), "made the authority of north in p\n");
    assert_eq!(
        pki(&["issue", "x1", "--dir", "p", "--role", "agent", "--role", "dispatcher", "--days", "9"]).done(),
        "made p/x1.pem and p/x1.key\n"
    );
    pki(&["issue", "a1", "--dir", "p", "--role", "agent"]).done();

    let shown: Value = serde_json::from_str(&pki(&["show", "--dir", "p", "--json"]).done()).unwrap();
    let column = |key: &str| shown.as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Value>();
    assert_eq!(column("node"), serde_json::json!([null, "a1", "x1"]));
    assert_eq!(column("roles"), serde_json::json!([[], ["agent"], ["dispatcher", "agent"]]));
    assert_eq!(column("cluster"), serde_json::json!(["north", "north", "north"]));

    let table = pki(&["show", "--dir", "p"]).done();
    let firsts: Vec<_> = table.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(firsts, ["node", "(authority)", "a1", "x1"]);
}

#[test]
fn refusals_are_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let pki = |arguments: &[&str]| watari(dir.path(), &[&["pki"], arguments].concat());
    let no_authority = pki(&["issue", "a1", "--role", "agent"]).refused(1);
    assert!(no_authority.starts_with("watari: pki/ca.pem: No such file or directory (os error 2) (`watari pki init`"));
    pki(&["init"]).done();
    assert_eq!(pki(&["init"]).refused(1), "watari: pki/ca.pem exists already and is not overwritten");
    let days = pki(&["issue", "a1", "--role", "agent", "--days", "0"]).refused(2);
    assert_eq!(days, "watari: a certificate is valid for 1 to 3650 days");
    assert!(fs::metadata(dir.path().join("pki/a1.key")).is_err());
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 6] = [
        &["pki"],
        &["pki", "issue", "a1"],
        &["pki", "issue", "A 1", "--role", "agent"],
        &["pki", "issue", "a1", "--role", "king"],
        &["pki", "show", "--colour"],
        &["cross"],
    ];
    for arguments in wrong {
        let ended = watari(dir.path(), arguments);
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!ended.error.is_empty(), "{arguments:?}");
    }
}
