//! Reloads of configurations while clients are served.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{fs, io};

use serde_json::json;
use watari_test_origins::LoopbackAddresses;

use crate::clients::http::{Http, get_bytes};
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl;
use crate::harness::site::renew;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

const LARGE: u64 = 30_000_000;

fn connect(cluster: &Cluster, agent: &str) -> Http<Tls> {
    let source = cluster.clients.served_by(agent);
    Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap())
}

#[test]
fn connections_outlast_a_new_certificate_and_later_ones_see_it() {
    let cluster = Cluster::start(&Plan::default());
    let before = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap().site_certificate();
    let (mut downloads, mut idle): (Vec<_>, Vec<_>) =
        AGENTS.map(|agent| (connect(&cluster, agent), connect(&cluster, agent))).into_iter().unzip();
    for (download, idle) in downloads.iter_mut().zip(&mut idle) {
        idle.download(1000, 1).unwrap();
        download.send(&get_bytes(LARGE, 2)).unwrap();
    }
    until("the downloads are in progress", || cluster.count_on_agents("watari_agent_requests_total", "") == 6);

    let renewed = renew(true);
    let chain = cluster.dir().join("site/p256.pem");
    // The files have new names, so only a reload finds them.
    fs::write(cluster.dir().join("site/new.pem"), &renewed.chain_pem).unwrap();
    crate::harness::site::write_key(&cluster.dir().join("site/new.key"), &renewed.key_pem);
    for agent in cluster.agents() {
        let reloaded = agent.reconfigure(|text| text.replace("site/p256.", "site/new."));
        let added = |suffix: &str| json!(format!("\"site/new.{suffix}\""));
        let changes = reloaded["changes"].as_array().unwrap();
        assert!(changes.iter().any(|change| change["new"] == added("pem") && change["old"].is_null()), "{reloaded}");
        assert!(changes.iter().any(|change| change["new"] == added("key")), "{reloaded}");
        assert_eq!(reloaded["files"], json!([]));
    }
    for _ in 0..6 {
        let mut client = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
        assert_eq!(client.site_certificate(), renewed.der, "right after the reload");
        client.session().send_close_notify();
    }
    assert_ne!(before, renewed.der);
    assert!(chain.exists());

    for (download, idle) in downloads.iter_mut().zip(&mut idle) {
        idle.download(1000, 3).unwrap();
        download.take_download(LARGE, 2).unwrap();
        download.download(1000, 4).unwrap();
    }
    let nothing = ctl::reload(&cluster.node("a1").admin()).unwrap();
    assert_eq!(nothing, json!({"changes": [], "files": []}));
}

#[test]
fn what_is_wrong_changes_nothing() {
    let cluster = Cluster::start(&Plan::default());
    let agent = cluster.node("a1");
    let text = fs::read_to_string(agent.config()).unwrap();
    let last = text.lines().count() + 1;
    let wrong = [
        (format!("{text}x = 1\n"), format!(":{last}: ")),
        (
            format!("{text}[[agent.certificate]]\nchain = \"site/gone.pem\"\nkey = \"site/gone.key\"\n"),
            format!(":{}: ", last + 1),
        ),
        (
            text.replace("name = \"a1\"", "name = \"a9\""),
            "node.name cannot change while the node runs: restart the node".into(),
        ),
        (
            text.replace("[agent.proxy]", "[agent.files]\nroot = \"gone\"\n#").replace("\norigins", "\n# origins"),
            "gone: No such file".into(),
        ),
    ];
    for (wrong, expected) in wrong {
        agent.configure(|_| wrong);
        let refused = ctl::reload(&agent.admin()).unwrap_err();
        assert!(refused.starts_with(&format!("watari: the node refused: {}:", agent.config().display())), "{refused}");
        assert!(refused.contains(&expected), "{expected}: {refused}");
        let logged = refused.trim_start_matches("watari: the node refused: ");
        // The log has all mistakes on one line.
        until("it is logged", || {
            let log = agent.log().replace("\\\"", "\"");
            logged.lines().all(|mistake| log.contains(mistake.trim_start_matches("watari: ").trim()))
        });
        connect(&cluster, "a1").download(1000, 1).unwrap();
    }
    // The same by signal: the process keeps running, and logs the error.
    let reloads = |what: &str| agent.log().matches(what).count();
    let before = reloads("configuration not reloaded");
    agent.hang_up();
    until("the reload is refused", || reloads("configuration not reloaded") == before + 1);
    agent.configure(|_| text.replace("[agent.limits]", "[agent.limits]\nrequests_max = 77"));
    agent.hang_up();
    until("the configuration is reloaded", || agent.log().contains("agent.limits.requests_max: (not set) -> 77"));
    connect(&cluster, "a1").download(1000, 1).unwrap();
}

#[test]
fn rotating_the_access_log_loses_no_line() {
    let cluster = Cluster::start(&Plan::default());
    let agent = cluster.node("a1");
    agent.reconfigure(|text| {
        text.replace("[agent.proxy]", "[agent.proxy]\naccess_log = { file = \"access.log\", format = \"json\" }")
    });
    let log = cluster.dir().join("access.log");
    let old = |number: u32| cluster.dir().join(format!("access.log.{number}"));
    let mut client = connect(&cluster, "a1");
    let requests = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.download(1000, 1).unwrap();
                requests.fetch_add(1, Ordering::Relaxed);
            }
        });
        for number in 1..=5 {
            let before = requests.load(Ordering::Relaxed);
            let lines_are_there = || fs::read(&log).is_ok_and(|log| !log.is_empty());
            until("requests are logged", || requests.load(Ordering::Relaxed) > before + 20 && lines_are_there());
            fs::rename(&log, old(number)).unwrap();
            agent.reopen_logs();
            until("the log is opened again", || log.exists());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    let all = || (1..=5).map(|number| lines(&old(number))).sum::<usize>() + lines(&log);
    let sent = requests.load(Ordering::Relaxed);
    until("every line is written", || all() == sent);
    assert!((1..=5).all(|number| lines(&old(number)) > 0));
    assert!(agent.is_running());
    assert!(agent.log().contains("log files are opened again"));
}

#[test]
fn a_log_that_cannot_be_opened_again_is_not_said_to_be() {
    let cluster = Cluster::start(&Plan::default());
    let agent = cluster.node("a1");
    let logs = cluster.dir().join("logs");
    fs::create_dir(&logs).unwrap();
    agent.reconfigure(|text| {
        text.replace("[agent.proxy]", "[agent.proxy]\naccess_log = { file = \"logs/access.log\", format = \"json\" }")
    });
    // A reload opens the log again, too.
    let opened = || agent.log().matches("log files are opened again").count();
    let before = opened();
    fs::rename(&logs, cluster.dir().join("old")).unwrap();
    agent.reopen_logs();
    let failure = format!("cannot reopen the access log {}", logs.join("access.log").display());
    until("the log is not opened again", || agent.log().contains(&failure));
    assert_eq!(opened(), before, "{}", agent.log());
    fs::create_dir(&logs).unwrap();
    agent.reopen_logs();
    until("the log is opened again", || opened() > before);
    assert!(logs.join("access.log").exists());
}

#[test]
fn signals_without_a_meaning_end_no_node() {
    let cluster = Cluster::start(&Plan::default());
    let mut client = connect(&cluster, "a1");
    client.download(1000, 1).unwrap();
    for node in [cluster.dispatcher(), cluster.node("a1")] {
        node.startle();
        // A dispatcher has no log files, so the signal has no effect.
        node.reopen_logs();
        // Signals may be delivered in any order. The line about the last one that was sent shows that all have arrived.
        until("the signals have come", || node.log().contains("log files are opened again"));
        assert!(node.is_running());
    }
    client.download(1000, 2).unwrap();
}

#[test]
fn limits_and_site_change() {
    let cluster = Cluster::start(&Plan::default());
    let mut resident = connect(&cluster, "a2");
    resident.download(1000, 1).unwrap();
    for agent in cluster.agents() {
        agent.reconfigure(|text| text.replace("[agent.limits]", "[agent.limits]\nrequests_max = 1"));
    }
    let (mut slow, mut other) = (connect(&cluster, "a2"), connect(&cluster, "a2"));
    slow.send(&get_bytes(LARGE, 1)).unwrap();
    slow.read_head().unwrap();
    other.send(&get_bytes(10, 2)).unwrap();
    assert_eq!(other.read_head().unwrap().status, 503);
    drop(slow);

    fs::write(cluster.dir().join("www/page"), "another site").unwrap();
    for agent in cluster.agents() {
        let origins = |line: &&str| line.starts_with("origins");
        let edit = |text: String| {
            let origins = text.lines().find(origins).unwrap().to_owned();
            text.replace("[agent.proxy]", "[agent.files]")
                .replace(&origins, "root = \"www\"")
                .replace("requests_max = 1", "")
        };
        agent.reconfigure(edit);
    }
    assert_eq!(resident.get_text("/page", "").unwrap(), "another site", "the connection is from before");
    assert_eq!(connect(&cluster, "a2").get_text("/page", "").unwrap(), "another site");
}

#[test]
fn peers_come_and_go() {
    let cluster = Cluster::start(&Plan::default());
    let mut client = connect(&cluster, "a1");
    client.download(1000, 1).unwrap();
    let agent = cluster.node("a1");
    let text = fs::read_to_string(agent.config()).unwrap();
    let peer = |node: &str| format!("[[peer]]\nname = \"{node}\"\nmesh = \"{}\"\n", cluster.node(node).mesh);
    assert!(text.contains(&peer("a2")));

    agent.configure(|text| text.replace(&peer("d1"), ""));
    let refused = ctl::reload(&agent.admin()).unwrap_err();
    assert!(refused.contains("the peer d1 cannot be removed: it has 1 connections of this node"), "{refused}");
    let links = || agent.count("watari_mesh_links_up", "");
    assert_eq!(links(), 3);

    agent.reconfigure(|_| text.replace(&peer("a2"), ""));
    until("the link is down", || links() == 2);
    client.download(1000, 2).unwrap();
    agent.reconfigure(|_| text.clone());
    cluster.wait_until_whole();
    client.download(1000, 3).unwrap();
}

#[test]
fn a_dispatcher_listens_at_the_reloaded_addresses() {
    let cluster = Cluster::start(&Plan::default());
    let mut resident = connect(&cluster, "a1");
    resident.download(1000, 1).unwrap();
    let (dispatcher, added) = (cluster.dispatcher(), LoopbackAddresses::draw().take());
    let (first, other) = (format!("\"{}\"", cluster.service), format!("\"{added}\""));
    let connect_to = |address| Tls::to_site(cluster.clients.any(), address, &Taste::default());
    for _ in 0..3 {
        dispatcher.reconfigure(|text| text.replace(&first, &format!("{first}, {other}")));
        Http::new(connect_to(added).unwrap()).download(1000, 2).unwrap();
        Http::new(connect_to(cluster.service).unwrap()).download(1000, 2).unwrap();
        let mut guest = Http::new(connect_to(added).unwrap());
        guest.download(1000, 3).unwrap();
        dispatcher.reconfigure(|text| text.replace(&format!(", {other}"), ""));
        assert_eq!(TcpStream::connect(added).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        guest.download(1000, 4).unwrap();
    }
    resident.download(1000, 5).unwrap();

    // An address with another listener cannot be bound. Then no part of the configuration takes effect.
    let (taken, free) = (TcpListener::bind((added.ip(), 0)).unwrap(), LoopbackAddresses::draw().take());
    let taken = taken.local_addr().map(|address| (taken, address)).unwrap();
    dispatcher.configure(|text| text.replace(&first, &format!("{first}, \"{free}\", \"{}\"", taken.1)));
    let refused = ctl::reload(&dispatcher.admin()).unwrap_err();
    assert!(
        refused.contains(&format!("cannot listen on {} for clients: Address already in use", taken.1)),
        "{refused}"
    );
    assert_eq!(TcpStream::connect(free).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    connect(&cluster, "a2").download(1000, 6).unwrap();
}

#[test]
fn the_level_of_the_log_changes() {
    let cluster = Cluster::start(&Plan::default());
    let served = || cluster.agent_logs().matches("handshake done").count();
    let level = |from: &str, to: &str| {
        let (from, to) = (format!("level = \"{from}\""), format!("level = \"{to}\""));
        for agent in cluster.agents() {
            agent.reconfigure(|text| {
                assert!(text.contains(&from));
                text.replace(&from, &to)
            });
        }
    };
    let usual = "info,watari_agent=debug,watari_dispatcher=debug";
    connect(&cluster, "a1").download(1000, 1).unwrap();
    assert_eq!(served(), 1);
    level(usual, "info");
    connect(&cluster, "a1").download(1000, 1).unwrap();
    assert_eq!(served(), 1);
    level("info", "info,watari_agent=debug");
    connect(&cluster, "a1").download(1000, 1).unwrap();
    assert_eq!(served(), 2);
}

/// The handshake policy, the limit on clients, and the list of agents.
#[test]
fn a_dispatcher_applies_a_reload() {
    let cluster = Cluster::start(&Plan::default());
    let dispatcher = cluster.dispatcher();
    let usual = fs::read_to_string(dispatcher.config()).unwrap();
    let limits = "[dispatcher.limits]\n";
    dispatcher.reconfigure(|text| text.replace(limits, &format!("{limits}connections_max = 1\n")));
    let mut only = connect(&cluster, "a1");
    only.download(1000, 1).unwrap();
    assert!(Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).is_err());
    dispatcher.reconfigure(|text| {
        text.replace("[dispatcher]\n", "[dispatcher]\nbulk = \"off\"\n").replace("connections_max = 1", "")
    });
    // Without handoff, the address selects the agent of the handshake.
    for agent in AGENTS {
        let source = cluster.clients.served_by(agent);
        let mut client = Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap());
        client.download(1000, 2).unwrap();
        assert_eq!(cluster.connection_of(source).handshake_node, agent);
    }

    // Its connections move away. Then the peer can be removed, too.
    let agent = usual.lines().find(|line| line.contains("name = \"a1\"") && line.contains("legs")).unwrap();
    dispatcher.reconfigure(|_| usual.replace(agent, ""));
    until("no connection is left there", || cluster.node("a1").count("watari_agent_connections", "") == 0);
    only.download(1000, 3).unwrap();
    let peer = format!("[[peer]]\nname = \"a1\"\nmesh = \"{}\"\n", cluster.node("a1").mesh);
    let without = usual.replace(agent, "").replace(&peer, "");
    assert_ne!(without, usual.replace(agent, ""));
    dispatcher.reconfigure(|_| without);
    only.download(1000, 4).unwrap();
    dispatcher.reconfigure(|_| usual);
    cluster.wait_until_whole();
    only.download(1000, 5).unwrap();
}

/// Socket options of accepted clients are set on the listeners, which stay.
#[test]
fn clients_that_take_nothing_are_given_up_as_it_is_said_now() {
    let cluster = Cluster::start(&Plan::default());
    let mut resident = connect(&cluster, "a1");
    let limits = "[dispatcher.limits]\n";
    cluster.dispatcher().reconfigure(|text| text.replace(limits, &format!("{limits}user_timeout = \"1s\"\n")));
    // Without the new option, the agent waits for it longer than this test.
    let source = cluster.clients.served_by("a2");
    let mut client = Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap());
    cluster.connection_of(source);
    client.send(&get_bytes(LARGE, 1)).unwrap();
    until("it is given up", || cluster.connections().len() == 1);
    assert!(client.take_download(LARGE, 1).is_err());
    resident.download(1000, 2).unwrap();
}
