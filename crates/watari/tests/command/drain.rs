//! `watari ctl move`, `drain` and `undrain`, and SIGTERM, on a cluster whose clients stay connected.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::support::{Running, agent, watari};

#[test]
fn an_idle_connection_moves_and_goes_on() {
    let cluster = Cluster::start();
    let (mut client, connection) = cluster.client();
    let id = connection["id"].as_str().unwrap();
    let [here, there] = if connection["node"] == "a1" { ["a1", "a2"] } else { ["a2", "a1"] };

    assert_eq!(cluster.ctl(&["move", id, there]).done(), format!("{id} is on {there}\n"));
    client.page();
    let moved = cluster.connection(&client);
    assert_eq!((&moved["node"], &moved["moves"], &moved["stays"]), (&json!(there), &json!(1), &Value::Null));

    let back: Value = serde_json::from_str(&cluster.ctl(&["move", id, here, "--json"]).done()).unwrap();
    assert_eq!((&back["id"], &back["node"], &back["moves"]), (&json!(id), &json!(here), &json!(2)));
    client.page();
}

#[test]
fn an_order_that_cannot_be_followed_is_refused() {
    let cluster = Cluster::start();
    let (mut client, connection) = cluster.client();
    let (id, here) = (connection["id"].as_str().unwrap(), connection["node"].as_str().unwrap());
    let (boot, _) = id.split_once('-').unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["move", id, here], "the agent has the connection already"),
        (&["move", id, "a9"], "there is no such agent"),
        (&["move", &format!("{boot}-999"), "a1"], "there is no such connection, or its handshake is not done"),
        (&["drain", "a9"], "there is no such agent"),
        (&["undrain", "d1"], "there is no such agent"),
    ];
    for (order, sentence) in cases {
        assert_eq!(cluster.ctl(order).refused(1), format!("watari: the node refused: {sentence}"), "{order:?}");
    }
    client.page();
    assert_eq!(cluster.connection(&client)["moves"], 0);
}

#[test]
fn only_dispatchers_take_orders() {
    let dir = agent();
    let _node = Running::node(dir.path(), "n1.toml");
    let refused = watari(dir.path(), &["ctl", "--admin", "n1.sock", "drain", "n1"]).refused(1);
    assert_eq!(refused, "watari: the node refused: n1 is not a dispatcher: only dispatchers move and drain");
}

#[test]
fn a_drained_agent_is_left_and_gets_nothing_until_it_is_undrained() {
    let cluster = Cluster::start();
    let mut clients: Vec<_> = (0..6).map(|_| cluster.client().0).collect();
    let on = |agent: &str| cluster.list("connections").iter().filter(|connection| connection["node"] == agent).count();
    assert_eq!((on("a1"), on("a2")), (3, 3));

    let said = cluster.ctl(&["drain", "a1"]).done();
    assert!(said.ends_with("a1: 0 remaining\n"), "{said}");
    assert!(said.lines().all(|line| line.starts_with("a1: ")), "{said}");
    assert_eq!((on("a1"), on("a2")), (0, 6));
    assert_eq!(draining(&cluster), [json!(true), json!(false), Value::Null]);
    for client in &mut clients {
        client.page();
    }
    clients.extend((0..2).map(|_| cluster.client().0));
    assert_eq!((on("a1"), on("a2")), (0, 8));
    // A second drain is no error, and has nothing to do.
    let report: Value = serde_json::from_str(&cluster.ctl(&["drain", "a1", "--json"]).done()).unwrap();
    assert_eq!(report, json!({"node": "a1", "moved_or_ended": 0, "remaining": []}));

    assert_eq!(cluster.ctl(&["undrain", "a1"]).done(), "a1 gets connections of this dispatcher again\n");
    assert_eq!(draining(&cluster), [json!(false), json!(false), Value::Null]);
    clients.extend((0..2).map(|_| cluster.client().0));
    assert_eq!((on("a1"), on("a2")), (1, 9));
}

#[test]
fn a_download_is_not_cut_when_the_time_is_over_and_moves_at_its_end() {
    let cluster = Cluster::start();
    let mut client = cluster.client_on("a1");
    let idle = cluster.client_on("a1");
    client.begin_large();
    let ended = cluster.ctl(&["drain", "a1", "--grace", "1s", "--json"]);
    assert_eq!(ended.status, Some(1));
    let sentence = "1 of the connections on a1 remain after 1 s; it stays drained, and they continue";
    assert_eq!(ended.error, format!("watari: {sentence}\n"));
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let remaining = report["remaining"].as_array().unwrap();
    let id = cluster.connection(&client)["id"].clone();
    assert_eq!((remaining.len(), &remaining[0]["id"], &remaining[0]["stays"]), (1, &id, &json!("in_request")));
    assert_eq!(report["moved_or_ended"], 1);
    assert_eq!(cluster.connection(&idle)["node"], "a2");

    let shown = cluster.ctl(&["drain", "a1", "--grace", "1ms"]);
    assert_eq!(shown.status, Some(1));
    let lines: Vec<_> = shown.out.lines().collect();
    assert_eq!((lines[0], lines.len()), ("a1: 1 remaining", 3), "{}", shown.out);
    assert!(lines[2].starts_with(id.as_str().unwrap()) && lines[2].ends_with("in_request"), "{}", shown.out);

    client.finish_large();
    cluster.until("connections", |connections| connections.iter().all(|connection| connection["node"] == "a2"));
    client.page();
}

#[test]
fn an_agent_that_is_terminated_gives_its_connections_away_first() {
    let mut cluster = Cluster::start();
    let mut clients: Vec<_> = (0..4).map(|_| cluster.client().0).collect();
    cluster.a1.process.signal(Signal::TERM);
    cluster.a1.expects_notification("STOPPING=1");
    assert_eq!(cluster.a1.process.wait().code(), Some(0));
    for client in &mut clients {
        client.page();
        assert_eq!(cluster.connection(client)["node"], "a2");
    }
}

#[test]
fn an_agent_that_is_terminated_finishes_its_handshakes_first() {
    let mut cluster = Cluster::start();
    // Handshakes go to the agents in turn: one of these is at a1.
    let mut clients = [cluster.greeted_client(), cluster.greeted_client()];
    cluster.a1.process.signal(Signal::TERM);
    cluster.a1.expects_notification("STOPPING=1");
    cluster.until("nodes", |nodes| nodes.iter().any(|node| node["draining"] == true));
    for client in &mut clients {
        client.page();
    }
    assert_eq!(cluster.a1.process.wait().code(), Some(0));
    for client in &mut clients {
        client.page();
        assert_eq!(cluster.connection(client)["node"], "a2");
    }
}

#[test]
fn a_second_signal_ends_an_agent_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let mut cluster = Cluster::start();
        let mut client = cluster.client_on("a1");
        client.begin_large();
        cluster.a1.process.signal(Signal::TERM);
        cluster.a1.expects_notification("STOPPING=1");
        // The drain waits for the end of the download.
        cluster.until("nodes", |nodes| nodes.iter().any(|node| node["draining"] == true));
        cluster.a1.process.signal(second);
        assert_eq!(cluster.a1.process.wait().code(), Some(0));
    }
}

/// Whether a1, a2 and d1 are drained.
fn draining(cluster: &Cluster) -> [Value; 3] {
    let nodes = cluster.list("nodes");
    ["a1", "a2", "d1"].map(|name| nodes.iter().find(|node| node["name"] == name).unwrap()["draining"].clone())
}
