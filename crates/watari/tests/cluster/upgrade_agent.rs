//! An agent is replaced by a new process, and neither its dispatcher nor the clients notice anything.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::h2::{Frame, H2};
use crate::clients::http::{get_bytes, put};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::ctl::order_move;
use crate::harness::node::{Node, Previous, WATARI};
use crate::harness::pattern::pattern;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Content, Plan, ctl};
use crate::sessions::{self, visit};
use crate::upgrade::{
    Beginner, LARGE_LEN, PATIENT, SMALL_LEN, UPGRADES, check_nothing_was_reset, client, count_resets, fetch, get, lost,
    script, upgrade_under_load,
};
use crate::websockets;

/// Without another agent, nothing can go on elsewhere.
const ALONE: &[&str] = &["a1"];

fn files() -> Plan {
    let content = Content::Files(&[LARGE_LEN, SMALL_LEN]);
    Plan { content, agents: Some(ALONE), agent_limits: PATIENT, dispatcher_limits: PATIENT, ..Plan::default() }
}

fn tastes() -> [Taste; 2] {
    [&TLS12, &TLS13].map(|version| Taste { version, ..Taste::default() })
}

fn agent(cluster: &Cluster) -> &Node {
    cluster.node(ALONE[0])
}

#[test]
fn idle_connections_go_on_in_a_new_process() {
    let cluster = Cluster::start(&files());
    let mut idle: Vec<_> = tastes().iter().map(|taste| client(&cluster, taste)).collect();
    for (_, http) in &mut idle {
        fetch(http, SMALL_LEN);
    }
    let ids = |cluster: &Cluster| {
        let known = idle.iter().map(|(ip, _)| cluster.connection_of(*ip));
        known.map(|connection| (connection.id, connection.moves)).collect::<Vec<_>>()
    };
    let before = ids(&cluster);
    for _ in 0..UPGRADES {
        agent(&cluster).upgrade(None).unwrap();
        cluster.wait_until_whole();
    }
    assert_eq!(ids(&cluster), before, "they are the same connections");
    for (_, http) in &mut idle {
        fetch(http, SMALL_LEN);
    }
    fetch(&mut client(&cluster, &tastes()[0]).1, SMALL_LEN);
    assert_eq!(agent(&cluster).count("watari_agent_connections", ""), 3);
    check_nothing_was_reset(&cluster);
}

#[test]
fn a_busy_agent_is_upgraded_again_and_again() {
    let cluster = Cluster::start(&files());
    upgrade_under_load(&cluster, agent(&cluster), &tastes(), UPGRADES, get);
}

#[test]
fn a_busy_agent_with_origins_is_upgraded_again_and_again() {
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), ..Plan::default() });
    upgrade_under_load(&cluster, agent(&cluster), &tastes(), UPGRADES, |len| get_bytes(len, len));
}

/// Both ends of each leg pass.
#[test]
fn a_busy_node_with_both_roles_is_upgraded_again_and_again() {
    let cluster = Cluster::start(&Plan { agents: Some(&[]), has_both_roles: true, ..files() });
    upgrade_under_load(&cluster, cluster.dispatcher(), &tastes(), UPGRADES, get);
}

/// The clients' connections move to and fro meanwhile.
#[test]
fn busy_agents_are_upgraded_in_turn() {
    let cluster = Cluster::start(&Plan { agents: None, ..files() });
    let (is_over, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let (cluster, is_over, moves) = (&cluster, &is_over, &moves);
    thread::scope(|scope| {
        for number in 0..6 {
            scope.spawn(move || {
                let (_, mut http) = client(cluster, &tastes()[number % 2]);
                while !is_over.load(Relaxed) {
                    fetch(&mut http, if number < 3 { SMALL_LEN } else { LARGE_LEN });
                }
            });
        }
        scope.spawn(move || {
            for target in AGENTS.into_iter().cycle() {
                if is_over.load(Relaxed) {
                    return;
                }
                for connection in cluster.connections() {
                    // A target that is being upgraded may refuse.
                    let _ = order_move(&cluster.dispatcher().admin(), &connection.id, target);
                }
                moves.store(cluster.connections().iter().map(|known| u64::from(known.moves)).sum(), Relaxed);
            }
        });
        let upgrades = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..2 * UPGRADES {
                let begun = moves.load(Relaxed);
                until("connections move", || moves.load(Relaxed) > begun + 3);
                let agent = cluster.node(AGENTS[number % AGENTS.len()]);
                agent.upgrade(None).unwrap();
            }
        }));
        is_over.store(true, Relaxed);
        upgrades.unwrap();
    });
    check_nothing_was_reset(cluster);
}

#[test]
fn connections_in_every_state_go_on_in_a_new_process() {
    let cluster = Cluster::start(&files());
    let mut downloads: Vec<_> = tastes().iter().map(|taste| client(&cluster, taste).1).collect();
    for download in &mut downloads {
        download.send(&get(LARGE_LEN)).unwrap();
        assert_eq!(download.read_head().unwrap().len().unwrap(), LARGE_LEN);
    }
    // A client that takes nothing of a short response, and one that has sent a part of a request.
    let mut silent = client(&cluster, &tastes()[1]).1;
    silent.send(&get(SMALL_LEN)).unwrap();
    let mut slow = client(&cluster, &tastes()[0]).1;
    fetch(&mut slow, SMALL_LEN);
    let request = get(SMALL_LEN);
    slow.send(&request[..20]).unwrap();
    let step = LARGE_LEN / (UPGRADES as u64 + 1);
    let mut beginners = Vec::new();
    for number in 0..UPGRADES as u64 {
        let taste = &tastes()[number as usize % 2];
        beginners.push((Beginner::begin(&cluster, taste), agent(&cluster).upgrade_beside(None).unwrap()));
        cluster.wait_until_whole();
        for download in &mut downloads {
            download.check_body(number * step..(number + 1) * step, LARGE_LEN, LARGE_LEN).unwrap();
        }
    }
    for download in &mut downloads {
        download.check_body(UPGRADES as u64 * step..LARGE_LEN, LARGE_LEN, LARGE_LEN).unwrap();
        fetch(download, SMALL_LEN);
    }
    silent.take_download(SMALL_LEN, SMALL_LEN).unwrap();
    slow.send(&request[20..]).unwrap();
    slow.take_download(SMALL_LEN, SMALL_LEN).unwrap();
    // Each process does the handshakes that it has begun, and then passes their connections on. The first has waited for
    // the others: its messages go through them.
    let mut finished = Vec::new();
    for (beginner, mut previous) in beginners {
        finished.push(beginner.finish());
        previous.wait_until_ended();
    }
    for http in &mut finished {
        http.send(&get(SMALL_LEN)).unwrap();
        http.take_download(SMALL_LEN, SMALL_LEN).unwrap();
    }
    let served = downloads.len() + finished.len() + 2;
    assert_eq!(agent(&cluster).count("watari_agent_connections", ""), i64::try_from(served).unwrap());
    check_nothing_was_reset(&cluster);
}

/// Of the sessions that clients resume, each was established by an earlier process.
#[test]
fn sessions_resume_in_a_new_process() {
    for sessions in ["mode = \"private\"", "mode = \"tickets\"", "mode = \"push\"", "mode = \"owner\""] {
        let cluster = Cluster::start(&Plan { agents: Some(ALONE), sessions, ..Plan::default() });
        let clients = sessions::clients();
        for client in &clients {
            assert!(!visit(&cluster, client).resumed);
        }
        let seeds = || ctl::sessions(&agent(&cluster).admin()).unwrap()["seeds"].clone();
        let before = seeds();
        for _ in 0..2 {
            agent(&cluster).upgrade(None).unwrap();
            for client in &clients {
                assert!(visit(&cluster, client).resumed, "{sessions}");
            }
        }
        assert_eq!(seeds(), before, "{sessions}: no process makes keys of its own");
    }
}

/// A single process at a time has the file of sessions open. The last one wrote its sessions there.
#[test]
fn sessions_in_a_file_resume_in_a_new_process() {
    let sessions = "mode = \"owner\"\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"";
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), sessions, ..Plan::default() });
    let stored = || ctl::sessions(&agent(&cluster).admin()).unwrap()["stored"]["sessions"].as_u64();
    let clients = sessions::clients();
    for client in &clients {
        assert!(!visit(&cluster, client).resumed);
    }
    for _ in 0..UPGRADES {
        agent(&cluster).upgrade(None).unwrap();
        until("the file is open", || stored().is_some_and(|stored| stored >= clients.len() as u64));
        for client in &clients {
            assert!(visit(&cluster, client).resumed);
        }
    }
    // The process goes on if its successor fails.
    let few = script(&cluster, "few", &format!("ulimit -n 48\nexec {WATARI} \"$@\""));
    agent(&cluster).upgrade(Some(&few)).unwrap_err();
    for client in &clients {
        assert!(visit(&cluster, client).resumed);
    }
    cluster.begin_anew(ALONE, Node::terminate);
    for client in &clients {
        assert!(visit(&cluster, client).resumed, "nothing of it was in memory");
    }
}

#[test]
fn a_session_for_one_use_is_resumed_once_by_all_processes() {
    let cluster = Cluster::start(&Plan {
        agents: Some(ALONE),
        sessions: "mode = \"owner\"\nsingle_use = true",
        ..Plan::default()
    });
    let taste = Taste { version: &TLS12, ..Taste::default() };
    // A client of TLS 1.2 offers its session again and again.
    let client = taste.resuming_config();
    assert!(!visit(&cluster, &client).resumed);
    agent(&cluster).upgrade(None).unwrap();
    let spends = ctl::sessions(&agent(&cluster).admin()).unwrap();
    assert!(visit(&cluster, &client).resumed, "{spends}");
    agent(&cluster).upgrade(None).unwrap();
    assert!(!visit(&cluster, &client).resumed, "another process has approved its use");
}

/// An HTTP/2 connection ends in the previous process, when its streams have ended.
#[test]
fn http2_is_served_to_its_end_by_the_previous_process() {
    let cluster = Cluster::start(&files());
    let mut h2 = H2::connect_with_window(cluster.clients.any(), cluster.service, 60_000);
    h2.get(1, &format!("/{LARGE_LEN}.bin"));
    let mut at = 0;
    let mut take = |h2: &mut H2<Tls>, until: u64| {
        let mut goaways = 0;
        while at < until {
            match h2.next_frame().unwrap() {
                Frame::Data { stream: 1, bytes, .. } => {
                    let end = at + bytes.len() as u64;
                    assert!(bytes == pattern(LARGE_LEN, at..end), "wrong bytes at {at}");
                    at = end;
                    h2.grant(1, u32::try_from(bytes.len()).unwrap());
                }
                Frame::GoAway { error: 0 } => goaways += 1,
                frame => panic!("{frame:?}"),
            }
        }
        goaways
    };
    assert_eq!(take(&mut h2, LARGE_LEN / 10), 0);
    let mut previous = agent(&cluster).upgrade_beside(None).unwrap();
    cluster.wait_until_whole();
    assert!(previous.is_running());
    assert!(take(&mut h2, LARGE_LEN) > 0, "clients are asked to connect again");
    while let Some(frame) = h2.next_frame() {
        assert!(matches!(frame, Frame::GoAway { error: 0 } | Frame::Data { is_end: true, .. }), "{frame:?}");
    }
    previous.wait_until_ended();
    fetch(&mut client(&cluster, &tastes()[0]).1, SMALL_LEN);
    check_nothing_was_reset(&cluster);
}

/// An upload stays until its response has ended, and then its connection passes.
#[test]
fn an_upload_passes_after_its_response() {
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), ..Plan::default() });
    let body = pattern(7, 0..1_000_000);
    let request = put(&body);
    let half = request.len() / 2;
    let mut uploads: Vec<_> = tastes().iter().map(|taste| client(&cluster, taste).1).collect();
    for upload in &mut uploads {
        upload.send(&request[..half]).unwrap();
    }
    until("the origin gets both", || agent(&cluster).count("watari_agent_connections", "") == 2);
    let mut previous = agent(&cluster).upgrade_beside(None).unwrap();
    for upload in &mut uploads {
        assert!(previous.is_running());
        upload.send(&request[half..]).unwrap();
        upload.take_receipt(&body).unwrap();
    }
    previous.wait_until_ended();
    for upload in &mut uploads {
        upload.upload(&body).unwrap();
    }
    assert_eq!(agent(&cluster).count("watari_agent_connections", ""), 2);
    check_nothing_was_reset(&cluster);
}

#[test]
fn a_web_socket_stays_in_the_previous_process() {
    let cluster = Cluster::start(&Plan { agents: Some(ALONE), ..websockets::plan() });
    let mut socket = websockets::open(websockets::connect(&cluster, cluster.clients.any()), "/echo");
    websockets::check_echo(&mut socket, 1000, 1);
    let mut previous = agent(&cluster).upgrade_beside(None).unwrap();
    cluster.wait_until_whole();
    for seed in 0..3 {
        websockets::check_echo(&mut socket, websockets::LARGE, seed);
    }
    assert!(previous.is_running());
    websockets::close(&mut socket);
    drop(socket);
    previous.wait_until_ended();
    check_nothing_was_reset(&cluster);
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let cluster = Cluster::start(&files());
    let agent = agent(&cluster);
    let (ip, mut http) = client(&cluster, &tastes()[0]);
    fetch(&mut http, SMALL_LEN);
    let before = cluster.connection_of(ip);
    let broken = |program: PathBuf, reason: &str| {
        let refused = agent.upgrade(Some(&program)).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    };
    broken("/nonexistent/watari".into(), "cannot start /nonexistent/watari: No such file");
    broken("/bin/false".into(), "has ended before it was ready");
    let config = fs::read_to_string(agent.config()).unwrap();
    agent.configure(|text| text + "\nnonsense = 1\n");
    broken(WATARI.into(), "has ended before it was ready");
    agent.configure(|_| config);

    fetch(&mut http, SMALL_LEN);
    assert_eq!(cluster.connection_of(ip), before);
    fetch(&mut client(&cluster, &tastes()[1]).1, SMALL_LEN);
    agent.upgrade(None).unwrap();
    fetch(&mut http, SMALL_LEN);
    fetch(&mut client(&cluster, &tastes()[1]).1, SMALL_LEN);
}

/// The successor that `parent` has started, and the number of its open files. Before it runs its program, it has all
/// files of its parent, which waits for it.
fn successor_of(parent: Pid) -> Option<(Pid, usize)> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    let mut children = pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent_of = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<i32>().ok());
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent_of == Some(parent.as_raw_nonzero().get()) && String::from_utf8_lossy(&command).contains("--successor")
    });
    let pid = children.next()?;
    Some((Pid::from_raw(pid)?, fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)))
}

/// A successor that ends or stands still in the middle takes the connections with it that it has. They end by a reset.
/// All others go on, and clients connect as before.
#[test]
fn a_successor_that_fails_halfway_loses_only_what_it_has() {
    const CLIENTS: usize = 300;
    let cluster = Cluster::start(&files());
    let agent = agent(&cluster);
    // It never has room for all of them, and so never completes.
    let few = script(&cluster, "few", &format!("ulimit -n {CLIENTS}\nexec {WATARI} \"$@\""));
    for (signal, files) in [(None, 0), (Some(Signal::KILL), 30), (Some(Signal::KILL), 150), (Some(Signal::STOP), 150)] {
        let mut clients: Vec<_> = (0..CLIENTS).map(|number| client(&cluster, &tastes()[number % 2]).1).collect();
        for http in &mut clients {
            fetch(http, SMALL_LEN);
        }
        let refused = thread::scope(|scope| {
            let upgrade = scope.spawn(|| agent.upgrade(Some(&few)).unwrap_err());
            while let (false, Some(signal)) = (upgrade.is_finished(), signal) {
                if let Some((pid, open)) = successor_of(agent.pid())
                    && open >= files
                {
                    // It may have ended by itself.
                    let _ = kill_process(pid, signal);
                    break;
                }
            }
            upgrade.join().unwrap()
        });
        let lost = lost(&refused);
        assert!(lost < CLIENTS, "{refused}");
        assert!(signal.is_some() || lost > 0, "{refused}");
        assert_eq!(count_resets(&mut clients), lost, "{signal:?} {refused}");
        fetch(&mut client(&cluster, &tastes()[0]).1, SMALL_LEN);
    }
    let mut http = client(&cluster, &tastes()[0]).1;
    fetch(&mut http, SMALL_LEN);
    agent.upgrade(None).unwrap();
    fetch(&mut http, SMALL_LEN);
    fetch(&mut client(&cluster, &tastes()[0]).1, SMALL_LEN);
}

/// The agents with both ends of an anchored stream are upgraded. The ends stay in the previous processes, and exchange
/// their bytes through the new ones.
#[test]
fn a_web_socket_that_has_moved_goes_on() {
    let cluster = Cluster::start(&websockets::plan());
    let source = cluster.clients.served_by(AGENTS[0]);
    let mut socket = websockets::open(websockets::connect(&cluster, source), "/echo");
    websockets::check_echo(&mut socket, 1000, 1);
    order_move(&cluster.dispatcher().admin(), &cluster.connection_of(source).id, AGENTS[1]).unwrap();
    until("the tunnel has moved", || cluster.connection_of(source).node == AGENTS[1]);
    let mut previous = Vec::new();
    for (seed, agent) in (2..).zip(AGENTS.into_iter().chain(AGENTS)) {
        previous.push(cluster.node(agent).upgrade_beside(None).unwrap());
        websockets::check_echo(&mut socket, 100_000, seed);
    }
    assert!(previous[..2].iter_mut().all(Previous::is_running));
    websockets::close(&mut socket);
    drop(socket);
    previous.iter_mut().for_each(Previous::wait_until_ended);
    check_nothing_was_reset(&cluster);
}
