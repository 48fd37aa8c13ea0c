//! Purges reach all agents, also those that were away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::script::Reply;
use super::{DISK, FRESH, Scene, ask, is_open, purge, settled, state};
use crate::clients::http::Http;
use crate::clients::tls::Tls;
use crate::harness::AGENTS;
use crate::harness::node::Node;
use crate::harness::wait::until;

/// The origin answers with the version of its content.
fn scene(store: &str) -> (Scene, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(1));
    let current = version.clone();
    let scene = Scene::with("true", store, &settled(), move |asked| {
        let group = if asked.path() == "/group" { "cache-groups: \"g\"\r\n" } else { "" };
        Reply::ok(&format!("{FRESH}{group}"), current.load(SeqCst).to_string())
    });
    (scene, version)
}

/// The version that a client gets, and whether it is from the store.
fn version(http: &mut Http<Tls>, target: &str) -> (usize, bool) {
    let got = ask(http, "GET", target, "");
    (got.text().parse().unwrap(), got.is_hit())
}

fn fill(scene: &Scene, targets: &[&str]) {
    for agent in AGENTS {
        let mut http = scene.connect_to(agent);
        for target in targets {
            version(&mut http, target);
            assert_eq!(version(&mut http, target), (1, true), "{agent} {target}");
        }
    }
    assert_eq!(scene.origin.total(), AGENTS.len() * targets.len(), "each agent has a store of its own");
}

#[test]
fn a_purge_reaches_all_agents() {
    let (scene, current) = scene("");
    let targets = ["/url", "/prefix/a", "/group", "/rest"];
    fill(&scene, &targets);
    let mut clients = AGENTS.map(|agent| scene.connect_to(agent));
    let orders = [
        (&["https://site.test/url"][..], "/url"),
        (&["--prefix", "https://site.test/prefix/"], "/prefix/a"),
        (&["--group", "g"], "/group"),
        (&["--all"], "/rest"),
    ];
    for (number, (what, target)) in orders.into_iter().enumerate() {
        for http in &mut clients {
            assert!(version(http, target).1, "{target}");
        }
        current.fetch_add(1, SeqCst);
        purge(scene.cluster.node(AGENTS[number % AGENTS.len()]), what);
        let learned = |agent: &Node| state(agent).is_some_and(|state| state["purges"] == number + 1);
        until("all agents know the purge", || scene.cluster.agents().all(learned));
        for http in &mut clients {
            assert_eq!(version(http, target), (current.load(SeqCst), false), "{target}");
        }
    }
}

/// Purges while an agent is away, which has entries in its directory. From its first response on, it has the new
/// version.
fn purges_of_an_absent_agent(leave: impl Fn(&Node), is_kept: bool) {
    let (scene, current) = scene(DISK);
    let targets = ["/url", "/prefix/a", "/group", "/kept"];
    fill(&scene, &targets);
    let away = scene.cluster.node("a2");
    scene.cluster.begin_anew(&["a2"], |node| {
        leave(node);
        current.store(2, SeqCst);
        purge(scene.cluster.node("a1"), &["https://site.test/url"]);
        purge(scene.cluster.node("a1"), &["--prefix", "https://site.test/prefix/"]);
        purge(scene.cluster.node("a3"), &["--group", "g"]);
    });
    let mut http = scene.connect_to("a2");
    let mut requests_while_closed = 0;
    until("its store is open", || {
        let is_open = is_open(away);
        for target in &targets[..3] {
            assert_eq!(version(&mut http, target).0, 2, "{target}");
            requests_while_closed += usize::from(!is_open);
        }
        is_open
    });
    println!("{requests_while_closed} requests while the store was closed");
    for target in &targets[..3] {
        assert_eq!(version(&mut http, target).0, 2, "{target}");
    }
    let rest = version(&mut http, "/kept");
    assert!(rest == (1, true) || !is_kept, "the rest of the directory is used: {rest:?}");
    // It passes on what it has learned.
    scene.cluster.begin_anew(&["a1", "a3"], Node::terminate);
    for agent in ["a1", "a3"] {
        super::wait_until_open(scene.cluster.node(agent));
        let mut http = scene.connect_to(agent);
        for target in &targets[..3] {
            assert_eq!(version(&mut http, target).0, 2, "{agent} {target}");
        }
        assert_eq!(version(&mut http, "/kept"), (1, true), "{agent}");
    }
}

#[test]
fn an_agent_that_was_stopped_learns_purges_before_it_uses_its_directory() {
    purges_of_an_absent_agent(Node::terminate, true);
}

#[test]
fn an_agent_that_was_killed_learns_purges_before_it_uses_its_directory() {
    // Entries may not have been written.
    purges_of_an_absent_agent(Node::kill, false);
}

/// A purge that is confirmed outlasts the end of all processes, also if only one agent has learned it: the others know it
/// before they use their directories.
#[test]
fn a_purge_that_one_agent_knows_outlasts_the_end_of_all() {
    let (scene, current) = scene(DISK);
    fill(&scene, &["/url"]);
    current.store(2, SeqCst);
    scene.cluster.begin_anew(&["a2", "a3", "a1"], |node| {
        if node.name == "a1" {
            purge(node, &["https://site.test/url"]);
        }
        node.kill();
    });
    for agent in AGENTS {
        super::wait_until_open(scene.cluster.node(agent));
        let mut http = scene.connect_to(agent);
        assert_eq!(version(&mut http, "/url").0, 2, "{agent}");
    }
}
