//! The directory of a store: over restarts, after a kill, unusable, and on a full disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use watari_test_origins::namespace::is_inside;

use super::script::{Asked, Reply};
use super::{ALONE, DISK, FRESH, Scene, directory, purge, wait_until_open};
use crate::clients::http::{Fault, Http};
use crate::clients::tls::{Taste, Tls};
use crate::harness::node::Node;
use crate::harness::pattern::Random;
use crate::harness::wait::until;
use crate::harness::{Plan, ctl};

/// The number of objects.
const OBJECTS: u64 = 40;
/// Kills under load.
const KILLS: usize = 4;
/// Room for the objects several times.
const SMALL_DISK: &str = "memory_mib = 24\ndirectory = \"NAME.cache\"\ndirectory_mib = 32";
const LOG_KEY: &str = "(directory in [agent.proxy.cache])";

fn alone() -> Plan {
    Plan { agents: Some(ALONE), ..Plan::default() }
}

/// The lengths of the objects: inline, in some pieces, and in many.
fn len(number: u64) -> u64 {
    [100, 5_000, 70_000, 300_000, 600_000][number as usize % 5] + number
}

/// Object N is the pattern of seed N.
fn answer(asked: &Asked) -> Reply {
    let number = asked.path()[1..].parse().unwrap_or(0);
    Reply::object(asked, number, len(number), "\"1\"", FRESH)
}

/// Gets an object, whose bytes have to be right. Returns whether it was stored.
fn fetch(http: &mut Http<Tls>, number: u64) -> Result<bool, Fault> {
    http.send(format!("GET /{number} HTTP/1.1\r\nhost: site.test\r\n\r\n").as_bytes())?;
    let head = http.read_head()?;
    if head.status != 200 || head.len()? != len(number) {
        return Err(Fault::Wrong(format!("{head:?}")));
    }
    http.check_body(0..len(number), len(number), number)?;
    Ok(head.field("cache-status").is_some_and(|status| status.starts_with("watari; hit")))
}

fn fetch_all(scene: &Scene) -> usize {
    let mut http = scene.connect();
    (0..OBJECTS).filter(|number| fetch(&mut http, *number).unwrap()).count()
}

#[test]
fn a_restart_keeps_the_entries() {
    let scene = Scene::with("true", DISK, &alone(), answer);
    assert_eq!(fetch_all(&scene), 0);
    for _ in 0..2 {
        scene.cluster.begin_anew(ALONE, Node::terminate);
        wait_until_open(scene.agent());
        assert_eq!(fetch_all(&scene), OBJECTS as usize);
        assert_eq!(scene.origin.total(), OBJECTS as usize);
    }
}

/// Entries that were not written are misses, and no byte is wrong.
#[test]
fn a_kill_under_load_never_makes_wrong_bytes() {
    let scene = Scene::with("true", DISK, &alone(), answer);
    let (is_over, requests, hits) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..4 {
            let (scene, is_over, requests, hits) = (&scene, &is_over, &requests, &hits);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !is_over.load(Relaxed) {
                    let source = scene.cluster.clients.any();
                    let Ok(tls) = Tls::to_site(source, scene.cluster.service, &Taste::default()) else { continue };
                    let mut http = Http::new(tls);
                    for _ in 0..20 {
                        match fetch(&mut http, random.below(OBJECTS)) {
                            Ok(is_hit) => hits.fetch_add(u64::from(is_hit), Relaxed),
                            Err(Fault::Wrong(wrong)) => {
                                is_over.store(true, Relaxed);
                                panic!("{wrong}");
                            }
                            Err(_) => break,
                        };
                        requests.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let kills = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..KILLS {
                let begun = requests.load(Relaxed);
                until("clients are served", || is_over.load(Relaxed) || requests.load(Relaxed) > begun + 60);
                // New entries are on their way to the disk.
                purge(scene.agent(), &["--prefix", "https://site.test/1"]);
                scene.cluster.begin_anew(ALONE, Node::kill);
                wait_until_open(scene.agent());
            }
        }));
        is_over.store(true, Relaxed);
        kills.unwrap();
    });
    assert!(hits.load(Relaxed) > 0);
    fetch_all(&scene);
    assert_eq!(fetch_all(&scene), OBJECTS as usize);
    assert!(!scene.agent().log().contains("panicked"));
}

/// Entries outlast a kill, if they were written.
#[test]
fn a_kill_keeps_what_was_written() {
    let scene = Scene::with("true", DISK, &alone(), answer);
    fetch_all(&scene);
    assert_eq!(fetch_all(&scene), OBJECTS as usize);
    scene.cluster.begin_anew(ALONE, Node::kill);
    wait_until_open(scene.agent());
    let kept = fetch_all(&scene);
    println!("{kept} of {OBJECTS} responses are left");
    assert!(kept >= OBJECTS as usize / 2, "{kept}");
}

/// Bytes that have changed on the disk are misses.
#[test]
fn damaged_entries_are_misses() {
    let scene = Scene::with("true", DISK, &alone(), answer);
    fetch_all(&scene);
    scene.cluster.begin_anew(ALONE, |node| {
        node.terminate();
        for file in fs::read_dir(directory(&scene, "a1").join("entries")).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            for at in (1000..bytes.len()).step_by(50_000) {
                bytes[at] ^= 0x40;
            }
            fs::write(path, bytes).unwrap();
        }
    });
    wait_until_open(scene.agent());
    let hits = fetch_all(&scene);
    assert!(hits < OBJECTS as usize, "some are damaged");
    fetch_all(&scene);
    assert_eq!(fetch_all(&scene), OBJECTS as usize);
}

/// Without valid purges, entries may have been purged.
#[test]
fn entries_without_their_purges_are_dropped() {
    for damage in [|path: PathBuf| fs::remove_file(path).unwrap(), |path| fs::write(path, b"\0").unwrap()] {
        let scene = Scene::with("true", DISK, &alone(), answer);
        fetch_all(&scene);
        scene.cluster.begin_anew(ALONE, |node| {
            node.terminate();
            damage(directory(&scene, "a1").join("purges"));
        });
        wait_until_open(scene.agent());
        assert_eq!(fetch_all(&scene), 0);
        assert!(scene.agent().log().contains("no valid purges: stored responses are dropped"));
    }
}

#[test]
fn an_unusable_directory_is_an_error_that_names_the_key() {
    let scene = Scene::with("true", DISK, &alone(), answer);
    let (cluster, agent) = (&scene.cluster, scene.agent());
    fs::write(cluster.dir().join("file"), "").unwrap();
    let text = fs::read_to_string(agent.config()).unwrap();
    for (directory, cause) in [("file", "File exists"), ("file/cache", "Not a directory"), ("/proc/cache", "")] {
        // As long as no route has a cache, nothing opens the directory.
        let wrong = text.replace("\"a1.cache\"", &format!("\"{directory}\""));
        let off = wrong.replace("cache = true", "cache = false");
        cluster.begin_anew(ALONE, |node| {
            node.terminate();
            node.configure(|_| off.clone());
        });
        agent.configure(|_| wrong.clone());
        let refused = ctl::reload(&agent.admin()).unwrap_err();
        let named = format!("cannot use the directory {} ", cluster.dir().join(directory).display());
        assert!([LOG_KEY, cause, &named].iter().all(|part| refused.contains(part)), "{refused}");
        let got = scene.get("/1", "");
        assert_eq!((got.head.status, got.status()), (200, ""));
        agent.terminate();
        agent.start();
        until("it ends", || !agent.is_running());
        let log = agent.log();
        assert!([LOG_KEY, cause, &named].iter().all(|part| log.lines().last().unwrap().contains(part)), "{log}");
        agent.kill();
        agent.configure(|_| off.clone());
        agent.start();
        cluster.wait_until_whole();
    }
    cluster.begin_anew(ALONE, |node| {
        node.terminate();
        node.configure(|_| text.clone());
    });
    wait_until_open(agent);
}

/// A small file system in memory.
fn mount(scene: &Scene) -> PathBuf {
    let path = directory(scene, "a1");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=40m", "none"]).arg(&path).status().unwrap();
    assert!(mount.success());
    path
}

/// Fills the file system to its last byte.
fn exhaust(path: &std::path::Path) {
    let mut ballast = File::create(path.join("ballast")).unwrap();
    let error = loop {
        if let Err(error) = ballast.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

/// The disk is full when the node starts, and later.
#[test]
fn a_full_disk_leaves_the_cache_in_memory() {
    if !is_inside("cache::directory::a_full_disk_leaves_the_cache_in_memory") {
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let scene = Scene::with("true", SMALL_DISK, &alone(), answer);
    let disk = std::cell::OnceCell::new();
    scene.cluster.begin_anew(ALONE, |node| {
        node.terminate();
        exhaust(disk.get_or_init(|| mount(&scene)));
    });
    fetch_all(&scene);
    until("the cache works in memory", || fetch_all(&scene) == OBJECTS as usize);
    let log = scene.agent().log();
    assert!(log.contains("No space left on device"), "{log}");

    let disk = disk.get().unwrap();
    scene.cluster.begin_anew(ALONE, |node| {
        node.terminate();
        fs::remove_file(disk.join("ballast")).unwrap();
    });
    wait_until_open(scene.agent());
    fetch_all(&scene);
    exhaust(disk);
    fetch_all(&scene);
    assert_eq!(fetch_all(&scene), OBJECTS as usize);
    // A purge may not be lost without a word.
    let order = ctl::cache(&scene.agent().admin(), &[], &["purge", "--all"]);
    let said = String::from_utf8_lossy(&order.stderr);
    assert!(order.status.success() || said.contains("could not be written to the directory"), "{said}");
    assert_eq!(fetch_all(&scene), 0, "it is in effect all the same");
    fs::remove_file(disk.join("ballast")).unwrap();
    purge(scene.agent(), &["--all"]);
    assert_eq!(fetch_all(&scene), 0);
    scene.cluster.begin_anew(ALONE, Node::terminate);
    wait_until_open(scene.agent());
    assert!(fetch_all(&scene) > OBJECTS as usize / 2);
}

/// The log of the directory has been written around.
#[test]
fn a_restart_keeps_the_entries_after_purges() {
    for (rounds, what) in [(1, &["--all"][..]), (1, &["--prefix", "https://site.test/"]), (5, &["--all"])] {
        let scene = Scene::with("true", SMALL_DISK, &alone(), answer);
        for _ in 0..rounds {
            fetch_all(&scene);
            purge(scene.agent(), what);
            assert_eq!(fetch_all(&scene), 0);
        }
        assert_eq!(fetch_all(&scene), OBJECTS as usize);
        scene.cluster.begin_anew(ALONE, Node::terminate);
        wait_until_open(scene.agent());
        // Writes may have been dropped.
        let kept = fetch_all(&scene);
        assert!(kept > OBJECTS as usize / 2, "{rounds} {what:?}: {kept}");
    }
}
