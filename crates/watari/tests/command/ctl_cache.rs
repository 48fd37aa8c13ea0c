//! `watari ctl cache`: questions to a node, and its answers. The tests of the cluster have a real cache.

use serde_json::{Value, json};

use crate::ctl::ctl;
use crate::support::watari;

fn cache() -> Value {
    json!({
        "is_open": true, "entries_in_memory": 7, "bytes_in_memory": 70_000, "bytes_on_disk": 1_048_576, "filling": 2,
        "asking": 3, "requests": {"hit": 9, "miss": 1}, "purges": 4,
    })
}

#[test]
fn the_state_of_a_cache_is_a_table() {
    let (question, ended) = ctl(&["cache", "status"], &json!({ "cache": cache() }));
    assert_eq!(question, json!({"version": 1, "topic": "cache"}));
    let shown = ended.done();
    for row in [
        "open               yes",
        "entries in memory  7",
        "bytes on disk      1048576",
        "filling            2",
        "asking             3",
        "purges             4",
        "requests: hit      9",
        "requests: miss     1",
    ] {
        assert!(shown.lines().any(|line| line == row), "{row}\n{shown}");
    }
    let (_, ended) = ctl(&["--json", "cache", "status"], &json!({ "cache": cache() }));
    assert_eq!(serde_json::from_str::<Value>(&ended.done()).unwrap(), cache());
}

#[test]
fn purges_are_sent_as_they_are_written_down() {
    for (arguments, purge, sentence) in [
        (&["https://Site.test/a%2Fb?q"][..], json!({"url": "site.test/a%2Fb?q"}), "site.test/a%2Fb?q: purged\n"),
        (&["--prefix", "http://site.test/a"], json!({"prefix": "site.test/a"}), "site.test/a*: purged\n"),
        (&["--group", "a b"], json!({"group": "a b"}), "group a b: purged\n"),
        (&["--all"], json!("everything"), "all responses: purged\n"),
    ] {
        let (question, ended) = ctl(&[&["cache", "purge"], arguments].concat(), &json!("done"));
        assert_eq!(question, json!({"version": 1, "topic": {"purge": {"purge": purge}}}));
        assert_eq!(ended.done(), sentence);
    }
    let (_, ended) = ctl(&["cache", "purge", "--all"], &json!({"error": "no"}));
    assert_eq!(ended.refused(1), "watari: the node refused: no");
    let (_, ended) = ctl(&["cache", "purge", "--all"], &json!({ "cache": cache() }));
    assert_eq!(ended.refused(1), "watari: the node on s sent an invalid answer");
}

#[test]
fn wrong_purges_are_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [(&[&str], &str); 10] = [
        (&[], "required"),
        (&["site.test/a"], "a URL begins with https:// or http://"),
        (&["ftp://site.test/a"], "a URL begins with https:// or http://"),
        (&["https://"], "a URL is https://HOST/PATH"),
        (&["https://site.test:port/"], "a URL is https://HOST/PATH"),
        (&["--prefix", "/a"], "a URL begins with https:// or http://"),
        (&["--prefix"], "a value is required"),
        (&["--all", "https://site.test/a"], "cannot be used with"),
        (&["--all", "--group", "a"], "cannot be used with"),
        (&["https://site.test/a", "https://site.test/b"], "unexpected argument"),
    ];
    for (arguments, reason) in wrong {
        let ended = watari(dir.path(), &[&["ctl", "--admin", "none", "cache", "purge"], arguments].concat());
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.error);
        assert!(ended.error.contains(reason), "{arguments:?}: {}", ended.error);
    }
}
