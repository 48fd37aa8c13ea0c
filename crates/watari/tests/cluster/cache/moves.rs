//! Connections move in the middle of a response from the cache, which goes on from that of the next agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::script::Reply;
use super::{FRESH, Scene, ask};
use crate::clients::http::Http;
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::ctl::drain;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Plan};
use crate::in_response::{Download, LARGE_LEN, MOVES, SMALL_LEN, check_nothing_was_lost, file, prepared};

/// The origin has both files, with the patterns of their lengths, and a tag of this version.
fn scene() -> (Scene, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(1));
    let current = version.clone();
    let scene = Scene::with("true", "", &Plan::default(), move |asked| {
        let len = if asked.path() == file(LARGE_LEN) { LARGE_LEN } else { SMALL_LEN };
        Reply::object(asked, len, len, &format!("\"{}\"", current.load(SeqCst)), FRESH)
    });
    (scene, version)
}

/// Has an agent store both files. Returns the client, because its end would be counted as a reset.
fn fill(scene: &Scene, agent: &str) -> Http<Tls> {
    let client = scene.cluster.clients.served_by(agent);
    let mut http = scene.connect_from(client);
    ask(&mut http, "GET", "/settling", "");
    until("the client is at its agent", || scene.cluster.connection_of(client).node == agent);
    for len in [SMALL_LEN, LARGE_LEN] {
        http.send(format!("GET {} HTTP/1.1\r\nhost: site.test\r\n\r\n", file(len)).as_bytes()).unwrap();
        http.take_download(len, len).unwrap();
    }
    until("it is stored", || super::state(scene.cluster.node(agent)).is_some_and(|state| state["filling"] == 0));
    http
}

#[test]
fn a_response_from_the_cache_moves_again_and_again() {
    let (scene, _) = scene();
    let filled = AGENTS.map(|agent| fill(&scene, agent));
    let asked = scene.origin.count(&file(LARGE_LEN));
    let mut done = Vec::new();
    for version in [&TLS12, &TLS13] {
        let taste = Taste { version, ..Taste::default() };
        let mut download = Download::begin(&scene.cluster, "a1", &file(LARGE_LEN), &taste);
        let before = scene.cluster.connection_of(download.client).moves;
        for turn in 1..=MOVES {
            download.move_to(AGENTS[turn as usize % AGENTS.len()]);
        }
        assert_eq!(scene.cluster.connection_of(download.client).moves, before + MOVES);
        done.push(download.finish(&file(SMALL_LEN)));
    }
    assert!(prepared(&scene.cluster, "prepared") >= 2 * i64::from(MOVES));
    assert_eq!(scene.origin.count(&file(LARGE_LEN)), asked, "all parts came from caches");
    check_nothing_was_lost(&scene.cluster);
    drop((done, filled));
    scene.cluster.wait_until_idle();
}

/// The next agents have nothing stored. They get the rest from the origin, in the version of the entry.
#[test]
fn a_response_from_the_cache_moves_to_agents_without_it() {
    let (scene, _) = scene();
    let filled = fill(&scene, "a1");
    let mut download = Download::begin(&scene.cluster, "a1", &file(LARGE_LEN), &Taste::default());
    for agent in ["a2", "a3", "a1", "a2"] {
        download.move_to(agent);
    }
    let http = download.finish(&file(SMALL_LEN));
    assert!(prepared(&scene.cluster, "prepared") >= 4);
    let asked = scene.origin.asked(&file(LARGE_LEN));
    assert!(asked.len() > 1, "the others had to ask");
    assert!(asked[1..].iter().all(|asked| asked.field("range").is_some()), "{:?}", &asked[1..]);
    check_nothing_was_lost(&scene.cluster);
    drop((http, filled));
    scene.cluster.wait_until_idle();
}

/// The cache of a2 has another version. So has the origin.
#[test]
fn a_response_stays_if_the_next_cache_has_another_version() {
    let (scene, current) = scene();
    let filled = [fill(&scene, "a1"), fill(&scene, "a3")];
    current.store(2, SeqCst);
    let other = fill(&scene, "a2");
    let asked = scene.origin.count(&file(LARGE_LEN));
    let mut download = Download::begin(&scene.cluster, "a1", &file(LARGE_LEN), &Taste::default());
    download.order("a2");
    until("the target has refused", || {
        let refused = ["validator", "not_partial", "other"].map(|result| prepared(&scene.cluster, result));
        refused.iter().sum::<i64>() > 0
    });
    for _ in 0..20 {
        download.read();
    }
    assert_eq!(scene.cluster.connection_of(download.client).node, "a1");
    download.move_to("a3");
    let http = download.finish(&file(SMALL_LEN));
    assert_eq!(scene.origin.count(&file(LARGE_LEN)), asked, "all parts came from caches");
    check_nothing_was_lost(&scene.cluster);
    drop((http, filled, other));
}

#[test]
fn a_drain_moves_responses_from_the_cache() {
    let (scene, _) = scene();
    let filled = AGENTS.map(|agent| fill(&scene, agent));
    let asked = scene.origin.count(&file(LARGE_LEN));
    let begin = |_| Download::begin(&scene.cluster, "a2", &file(LARGE_LEN), &Taste::default());
    let mut downloads: Vec<_> = (0..4).map(begin).collect();
    let mut drain = drain(&scene.cluster.dispatcher().admin(), "a2");
    for download in &mut downloads {
        download.read_until(|node, _| node != "a2");
    }
    let done: Vec<_> = downloads.into_iter().map(|download| download.finish(&file(SMALL_LEN))).collect();
    assert!(drain.wait().unwrap().success());
    assert_eq!(scene.origin.count(&file(LARGE_LEN)), asked, "all parts came from caches");
    check_nothing_was_lost(&scene.cluster);
    drop((done, filled));
}

/// Purged in the middle: the response goes on in its version, and later requests get another one.
#[test]
fn a_response_goes_on_after_a_purge() {
    let (scene, current) = scene();
    let filled = AGENTS.map(|agent| fill(&scene, agent));
    let mut download = Download::begin(&scene.cluster, "a1", &file(LARGE_LEN), &Taste::default());
    current.store(2, SeqCst);
    super::purge(scene.cluster.node("a3"), &["--all"]);
    let knows = |agent| super::state(agent).is_some_and(|state| state["purges"] == 1);
    until("all agents know the purge", || scene.cluster.agents().all(knows));
    for _ in 0..20 {
        download.read();
    }
    let mut http = download.finish(&file(SMALL_LEN));
    let got = ask(&mut http, "HEAD", &file(SMALL_LEN), "");
    assert_eq!(got.head.field("etag"), Some("\"2\""));
    check_nothing_was_lost(&scene.cluster);
    drop(filled);
}
