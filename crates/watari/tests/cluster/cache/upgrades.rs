//! Upgrades of an agent with a directory: it belongs to one process at a time.

use super::script::{Asked, Reply};
use super::{ALONE, DISK, FRESH, Scene, ask, is_open, wait_until_open};
use crate::clients::http::Http;
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::Plan;
use crate::harness::wait::until;
use crate::upgrade::{LARGE_LEN, SMALL_LEN, UPGRADES, check_nothing_was_reset, fetch, get, upgrade_under_load};

fn answer(asked: &Asked) -> Reply {
    let len = if asked.path().contains(&LARGE_LEN.to_string()) { LARGE_LEN } else { SMALL_LEN };
    Reply::object(asked, len, len, "\"1\"", FRESH)
}

fn scene() -> Scene {
    let store = DISK.replace("directory_mib = 64", "directory_mib = 128");
    Scene::with("true", &store, &Plan { agents: Some(ALONE), ..Plan::default() }, answer)
}

fn connect(scene: &Scene, version: &'static rustls::SupportedProtocolVersion) -> Http<Tls> {
    let taste = Taste { version, ..Taste::default() };
    Http::new(Tls::to_site(scene.cluster.clients.any(), scene.cluster.service, &taste).unwrap())
}

/// Downloads from the cache go on, and the new process has the entries when the previous one has ended.
#[test]
fn the_new_process_gets_the_directory_from_the_previous_one() {
    let scene = scene();
    let agent = scene.agent();
    for len in [SMALL_LEN, LARGE_LEN] {
        fetch(&mut connect(&scene, &TLS13), len);
    }
    for turn in 0..UPGRADES {
        let mut downloads = [&TLS12, &TLS13].map(|version| connect(&scene, version));
        for http in &mut downloads {
            http.send(&get(LARGE_LEN)).unwrap();
            let head = http.read_head().unwrap();
            assert!(head.field("cache-status").unwrap().starts_with("watari; hit"), "{turn}: {head:?}");
            http.check_body(0..LARGE_LEN / 10, LARGE_LEN, LARGE_LEN).unwrap();
        }
        let asked = scene.origin.count(&format!("/{LARGE_LEN}.bin"));
        let mut previous = agent.upgrade_beside(None).unwrap();
        scene.cluster.wait_until_whole();
        // New clients are served at once, whether or not the store is open.
        fetch(&mut connect(&scene, &TLS13), SMALL_LEN);
        for http in &mut downloads {
            http.check_body(LARGE_LEN / 10..LARGE_LEN, LARGE_LEN, LARGE_LEN).unwrap();
            fetch(http, SMALL_LEN);
        }
        let again = scene.origin.count(&format!("/{LARGE_LEN}.bin")) - asked;
        println!("upgrade {turn}: {again} requests for the rest of two downloads");
        previous.wait_until_ended();
        wait_until_open(agent);
        until("the entries are there", || {
            ask(&mut connect(&scene, &TLS13), "GET", &format!("/{SMALL_LEN}.bin"), "").is_hit()
        });
    }
    check_nothing_was_reset(&scene.cluster);
    assert!(!agent.log().contains("the cache has only memory"), "{}", agent.log());
}

#[test]
fn an_agent_with_a_cache_is_upgraded_under_load() {
    let scene = scene();
    let tastes = [&TLS12, &TLS13].map(|version| Taste { version, ..Taste::default() });
    upgrade_under_load(&scene.cluster, scene.agent(), &tastes, UPGRADES, get);
    wait_until_open(scene.agent());
    assert!(is_open(scene.agent()));
    fetch(&mut connect(&scene, &TLS13), SMALL_LEN);
    let got = ask(&mut connect(&scene, &TLS13), "GET", &format!("/{SMALL_LEN}.bin"), "");
    assert!(got.is_hit(), "{got:?}");
    check_nothing_was_reset(&scene.cluster);
}

/// Without a directory, each process begins with an empty store.
#[test]
fn an_upgrade_without_a_directory_begins_empty() {
    let scene = Scene::set(answer);
    let mut http = connect(&scene, &TLS13);
    fetch(&mut http, SMALL_LEN);
    for turn in 2..4 {
        scene.agent().upgrade(None).unwrap();
        fetch(&mut http, SMALL_LEN);
        assert_eq!(scene.origin.total(), turn);
        fetch(&mut http, SMALL_LEN);
        assert_eq!(scene.origin.total(), turn);
    }
}
