//! `watari ctl cache`, and the states of a node in which there is no cache.

use std::fs::File;
use std::process::Output;

use rustix::fs::{FlockOperation, flock};

use super::script::{Asked, Reply};
use super::{ALONE, DISK, FRESH, Scene, directory, is_open, purge, state, wait_until_open};
use crate::harness::node::Node;
use crate::harness::{Cluster, Content, Plan, ctl};

fn answer(asked: &Asked) -> Reply {
    let group = match asked.target() {
        "/one" => "cache-groups: \"red\", \"blue\"\r\n",
        "/two" => "surrogate-key: red green\r\n",
        "/three" => "cache-tag: blue\r\n",
        "/four" => "xkey: green\r\n",
        _ => "",
    };
    Reply::ok(&format!("{FRESH}{group}"), asked.earlier.to_string())
}

/// The status and the only line of a command that fails.
fn refused(output: Output) -> (Option<i32>, String) {
    assert!(output.stdout.is_empty());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn cache(node: &Node, arguments: &[&str]) -> Output {
    ctl::cache(&node.admin(), &[], arguments)
}

#[test]
fn the_state_of_the_cache_is_shown() {
    let scene = Scene::set(answer);
    for _ in 0..3 {
        scene.get("/one", "");
    }
    scene.get("/two", "");
    let text = String::from_utf8(cache(scene.agent(), &["status"]).stdout).unwrap();
    let rows = [("open", "yes"), ("entries in memory", "2"), ("bytes on disk", "-"), ("filling", "0"), ("purges", "0")];
    let requests = [("requests: hit", "2"), ("requests: miss", "2"), ("requests: collapsed", "0")];
    for (key, value) in rows.into_iter().chain(requests) {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        assert_eq!(line.map(str::trim), Some(value), "{key}: {text}");
    }
    let state = state(scene.agent()).unwrap();
    assert_eq!((&state["is_open"], &state["entries_in_memory"]), (&true.into(), &2.into()), "{state}");
    assert_eq!((&state["requests"]["hit"], &state["bytes_on_disk"]), (&2.into(), &serde_json::Value::Null));
    assert!(state["bytes_in_memory"].as_u64().unwrap() > 0);
}

/// Fills the cache with all of `targets`, purges `what`, and returns the targets that were purged.
fn purged(scene: &Scene, targets: &[&'static str], what: &[&str]) -> Vec<&'static str> {
    for target in targets {
        scene.get(target, "");
        assert!(scene.get(target, "").is_hit(), "{target}");
    }
    purge(scene.agent(), what);
    targets.iter().copied().filter(|target| !scene.get(target, "").is_hit()).collect()
}

#[test]
fn purges_are_for_a_url_a_beginning_a_group_or_all() {
    let scene = Scene::set(answer);
    let targets = ["/one", "/two", "/three", "/four", "/one/", "/one?x", "/onest", "/%6fne", "/"];
    for (what, expected) in [
        (&["https://site.test/one"][..], &["/one"][..]),
        (&["http://SITE.test:443/one"], &["/one"]),
        (&["https://site.test/One"], &[]),
        (&["https://other.test/one"], &[]),
        (&["https://site.test:8443/one"], &[]),
        (&["https://site.test/one?x"], &["/one?x"]),
        (&["https://site.test/%6fne"], &["/%6fne"]),
        (&["https://site.test"], &["/"]),
        (&["--prefix", "https://site.test/one"], &["/one", "/one/", "/one?x", "/onest"]),
        (&["--prefix", "https://site.test/t"], &["/two", "/three"]),
        (&["--group", "red"], &["/one", "/two"]),
        (&["--group", "blue"], &["/one", "/three"]),
        (&["--group", "green"], &["/two", "/four"]),
        (&["--group", "black"], &[]),
        (&["--prefix", "https://site.test"], &targets),
        (&["--all"], &targets),
    ] {
        assert_eq!(purged(&scene, &targets, what), expected, "{what:?}");
    }
    assert_eq!(state(scene.agent()).unwrap()["purges"], 16);
}

#[test]
fn a_purge_is_for_all_variants() {
    let scene = Scene::set(|asked| {
        let language = asked.field("accept-language").unwrap_or_default();
        Reply::ok(&format!("{FRESH}vary: accept-language\r\n"), format!("{language} {}", asked.earlier))
    });
    let languages = ["de", "en", "fr"].map(|language| format!("accept-language: {language}\r\n"));
    for is_hit in [false, true] {
        for language in &languages {
            assert_eq!(scene.get("/", language).is_hit(), is_hit);
        }
    }
    purge(scene.agent(), &["https://site.test/"]);
    for language in &languages {
        assert!(!scene.get("/", language).is_hit());
    }
}

#[test]
fn the_result_of_a_purge_is_one_line() {
    let scene = Scene::set(answer);
    let port = scene.cluster.service.port();
    for (what, expected) in [
        (&[&*format!("https://site.test:{port}/one")][..], format!("site.test:{port}/one: purged\n")),
        (&["--prefix", "https://site.test/a"], "site.test/a*: purged\n".to_owned()),
        (&["--group", "red"], "group red: purged\n".to_owned()),
        (&["--all"], "all responses: purged\n".to_owned()),
    ] {
        assert_eq!(purge(scene.agent(), what), expected);
    }
    let output = ctl::cache(&scene.agent().admin(), &["--json"], &["purge", "--group", "red"]);
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done, serde_json::json!({"done": "purge", "what": "group red"}));
}

#[test]
fn wrong_purges_are_refused() {
    let scene = Scene::set(answer);
    scene.get("/one", "");
    for (what, expected) in [
        (&["site.test/one"][..], "a URL begins with https:// or http://"),
        (&["ftp://site.test/one"], "a URL begins with https:// or http://"),
        (&["https://"], "a URL is https://HOST/PATH: empty host"),
        (&["https://site.test:port/"], "a URL is https://HOST/PATH: invalid port number"),
        (&["--prefix", "/one"], "a URL begins with https:// or http://"),
        (&["--prefix", ""], "a URL begins with https:// or http://"),
        (&["--all", "https://site.test/one"], "cannot be used with"),
        (&["--all", "--group", "red"], "cannot be used with"),
        (&["--group"], "a value is required"),
        (&[], "required"),
    ] {
        let (status, error) = refused(cache(scene.agent(), &[&["purge"], what].concat()));
        assert_eq!(status, Some(2), "{what:?}: {error}");
        assert!(error.contains(expected), "{what:?}: {error}");
    }
    assert!(scene.get("/one", "").is_hit());
    assert_eq!(state(scene.agent()).unwrap()["purges"], 0);
}

#[test]
fn a_node_without_a_cache_says_so() {
    let closed = "watari: the node refused: the store of the cache is not open: set cache at a route, or wait until \
                  its directory is read\n";
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), ..Plan::default() });
    let agent = cluster.node("a1");
    let state = state(agent).unwrap();
    assert_eq!(state["is_open"], false, "{state}");
    assert_eq!(refused(cache(agent, &["purge", "--all"])), (Some(1), closed.to_owned()));
    let only = "watari: the node refused: d1 is not an agent: only agents have a cache\n".to_owned();
    assert_eq!(refused(cache(cluster.dispatcher(), &["status"])), (Some(1), only));
    assert_eq!(refused(cache(cluster.dispatcher(), &["purge", "--all"])).0, Some(1));
    drop(cluster);
    let files = Content::Files(&[1000]);
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), content: files, ..Plan::default() });
    let (status, error) = refused(cache(cluster.node("a1"), &["status"]));
    assert_eq!(status, Some(1));
    assert!(error.starts_with("watari: the node refused: ") && error.lines().count() == 1, "{error}");
    assert_eq!(refused(cache(cluster.node("a1"), &["purge", "--all"])).0, Some(1));
}

/// Another process has the directory. Requests go to the origin until it leaves.
#[test]
fn an_agent_serves_while_its_store_is_not_open() {
    let scene = Scene::with("true", DISK, &Plan { agents: Some(ALONE), ..Plan::default() }, answer);
    let agent = scene.agent();
    scene.get("/one", "");
    agent.terminate();
    let other = File::open(directory(&scene, "a1").join("lock")).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    agent.start();
    scene.cluster.wait_until_whole();
    for turn in 1..4 {
        let got = scene.get("/one", "");
        assert_eq!((got.text(), got.status()), (turn.to_string(), ""));
    }
    assert!(!is_open(agent));
    let (status, error) = refused(cache(agent, &["purge", "--all"]));
    assert!(status == Some(1) && error.contains("the store of the cache is not open"), "{error}");
    drop(other);
    wait_until_open(agent);
    let got = scene.get("/one", "");
    assert_eq!((got.text(), got.is_hit()), ("0".to_owned(), true));
}

/// A reload turns the cache on and off.
#[test]
fn a_reload_changes_the_cache_of_a_route() {
    let scene = Scene::set(answer);
    let agent = scene.agent();
    let change = |from: &str, to: &str| {
        let changes = agent.reconfigure(|text| text.replace(&format!("cache = {from}\n"), &format!("cache = {to}\n")));
        assert_ne!(changes["changes"], serde_json::json!([]));
    };
    scene.get("/one", "");
    change("true", "false");
    assert_eq!(scene.get("/one", "").status(), "");
    change("false", "{ query = [] }");
    assert!(!scene.get("/one?a", "").is_hit());
    assert!(scene.get("/one?b", "").is_hit());
    change("{ query = [] }", "{ bypass_cookies = [\"session\"], lifetime = \"1ms\" }");
    assert!(scene.get("/one", "cookie: session=1\r\n").status().contains("fwd=bypass"));
    scene.get("/two", "");
    assert!(!scene.get("/two", "").is_hit());
}
