//! Disturbed moves: nodes stop, die or lose their links, and clients leave.
//!
//! To catch a move in the middle, a test stops its target (SIGSTOP) before the client connects. The target's kernel
//! still accepts legs and links. So the source ships and proposes, and then all nodes wait.

use std::net::{IpAddr, Shutdown};

use crate::clients::http::{Fault, Http, get_bytes};
use crate::clients::tls::{Taste, Tls, reset};
use crate::harness::addresses::bulk_agent;
use crate::harness::node::Node;
use crate::harness::pattern::pattern;
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// The agent that does the first handshake of a cluster.
const SOURCE: &str = "a1";
/// The agent that the first client's data belong to.
const TARGET: &str = "a2";

const ABORTED_SOON: &str = "move_timeout = \"500ms\"";
/// The largest permitted value: the events of a move take a fraction of it.
const ABORTED_LATE: &str = "move_timeout = \"5s\"";

/// A connection in the middle of its move from [`SOURCE`] to [`TARGET`].
struct Undecided {
    cluster: Cluster,
    client: Http<Tls>,
    address: IpAddr,
}

impl Undecided {
    fn begin(dispatcher_limits: &'static str) -> Self {
        Self::begin_with(&Plan { dispatcher_limits, ..Plan::default() })
    }

    fn begin_with(plan: &Plan) -> Self {
        let cluster = Cluster::start(plan);
        cluster.node(TARGET).stop();
        let (address, client) = connect(&cluster, TARGET);
        let undecided = Self { cluster, client, address };
        undecided.wait_for_proposals(1);
        undecided
    }

    fn source(&self) -> &Node {
        self.cluster.node(SOURCE)
    }

    fn target(&self) -> &Node {
        self.cluster.node(TARGET)
    }

    fn dispatcher(&self) -> &Node {
        self.cluster.dispatcher()
    }

    /// Waits until the source has sent `count` proposals.
    fn wait_for_proposals(&self, count: i64) {
        until("the move is proposed", || {
            self.dispatcher().count("watari_mesh_messages_received_total", "propose") >= count
        });
    }

    /// Lets the target answer while the dispatcher is stopped.
    ///
    /// The dispatcher must have handled the proposal: otherwise it may still relay a request to the source. It has if
    /// the source has repeated its proposal.
    fn hold_while_the_dispatcher_is_stopped(&self) {
        self.wait_for_proposals(2);
        self.dispatcher().stop();
        self.target().go_on();
        until("the target holds the connection", || self.target().count("watari_mesh_messages_sent_total", "held") > 0);
    }

    /// Checks that the connection works, and which agent serves it.
    fn check_alive(&mut self, node: &str) {
        self.client.download(1_000_000, 1).unwrap();
        self.client.upload(&pattern(1, 0..100_000)).unwrap();
        let connection = self.cluster.connection_of(self.address);
        assert_eq!((connection.handshake_node.as_str(), connection.node.as_str()), (SOURCE, node));
        assert_eq!(connection.moves, u32::from(node != SOURCE));
    }

    /// Checks that new connections move as before the disturbance.
    fn check_healed(self) {
        drop(self.client);
        self.cluster.wait_until_whole();
        self.cluster.wait_until_idle();
        check_moves_go_on(&self.cluster);
    }
}

/// Connects a client whose data belong to `agent`.
fn connect(cluster: &Cluster, agent: &str) -> (IpAddr, Http<Tls>) {
    let address = cluster.clients.served_by(agent);
    (address, Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap()))
}

fn check_moves_go_on(cluster: &Cluster) {
    let mut moves = 0;
    for address in cluster.clients.two_of_each_agent() {
        let mut client = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap());
        client.download(10_000, 9).unwrap();
        let connection = cluster.connection_of(address);
        assert_eq!(connection.node, bulk_agent(address));
        moves += connection.moves;
    }
    assert!(moves >= 3, "{moves} connections have moved");
}

#[test]
fn a_target_that_looks_dead_costs_no_connection_and_its_late_answer_is_refused() {
    let mut moving = Undecided::begin(ABORTED_SOON);
    moving.check_alive(SOURCE);
    assert_eq!(moving.dispatcher().count("watari_dispatcher_moves_aborted_total", "timeout"), 1);
    assert_eq!(moving.source().count("watari_agent_not_moved_total", "timeout"), 1);

    moving.target().go_on();
    // `aborted` goes to source and target at the decision, and to the target again when its `held` arrives too late.
    // The target sends `held` unless it reads the decision first, which comes over another link than the connection.
    until("the late answer is refused", || {
        let (dispatcher, target) = (moving.dispatcher(), moving.target());
        let late = target.count("watari_mesh_messages_sent_total", "held");
        target.count("watari_mesh_messages_received_total", "ship") == 1
            && target.count("watari_mesh_messages_received_total", "aborted") > late
            && dispatcher.count("watari_mesh_messages_received_total", "held") == late
            && dispatcher.count("watari_mesh_messages_sent_total", "aborted") >= 2 + late
            && target.count("watari_agent_held", "") == 0
    });
    moving.check_alive(SOURCE);
    moving.check_healed();
}

#[test]
fn a_target_that_dies_before_it_answers_costs_no_connection() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.target().kill();
    moving.check_alive(SOURCE);
    assert_eq!(moving.dispatcher().count("watari_dispatcher_moves_aborted_total", "no_leg"), 1);
    moving.target().start();
    moving.check_alive(SOURCE);
    moving.check_healed();
}

/// The dispatcher may learn first of the target's death or of its answer. The client may lose its connection, but must
/// not get wrong data.
/// not be deceived.
#[test]
fn a_target_that_dies_after_its_answer_does_no_harm() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.hold_while_the_dispatcher_is_stopped();
    moving.target().kill();
    moving.dispatcher().go_on();
    match moving.client.download(1_000_000, 1) {
        Ok(()) | Err(Fault::Broken(_)) => {}
        Err(fault) => panic!("{fault:?}"),
    }
    moving.target().start();
    moving.check_healed();
}

#[test]
fn a_source_that_dies_before_the_target_answers_costs_no_connection() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    // The source has proposed again, so the state that it shipped first has been sent.
    moving.wait_for_proposals(2);
    moving.source().kill();
    moving.target().go_on();
    moving.check_alive(TARGET);
    moving.source().start();
    moving.check_alive(TARGET);
    moving.check_healed();
}

#[test]
fn a_source_that_dies_after_the_target_answered_costs_no_connection() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.hold_while_the_dispatcher_is_stopped();
    moving.source().kill();
    moving.dispatcher().go_on();
    moving.check_alive(TARGET);
    moving.source().start();
    moving.check_healed();
}

#[test]
fn a_dispatcher_that_dies_in_a_move_leaves_nothing_behind() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.hold_while_the_dispatcher_is_stopped();
    moving.dispatcher().kill();
    assert!(!moving.client.ends_cleanly());
    moving.dispatcher().start();
    // The source asks, and learns that its connection is gone. The target waits until its timeout.
    moving.check_healed();
}

#[test]
fn a_client_that_ends_its_stream_in_a_move_gets_its_response() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.client.send(&get_bytes(1_000_000, 4)).unwrap();
    moving.client.stream.session().send_close_notify();
    moving.client.stream.send().unwrap();
    moving.client.stream.tcp().shutdown(Shutdown::Write).unwrap();
    moving.target().go_on();
    moving.client.take_download(1_000_000, 4).unwrap();
    assert!(moving.client.ends_cleanly());
    moving.cluster.wait_until_idle();
    assert_eq!(moving.target().count("watari_agent_moved_in_total", ""), 1);
    moving.check_healed();
}

#[test]
fn a_client_that_resets_its_connection_in_a_move_leaves_nothing_behind() {
    let moving = Undecided::begin(ABORTED_LATE);
    reset(moving.client.stream.tcp());
    let Undecided { cluster, client, .. } = moving;
    drop(client);
    until("the dispatcher has noticed", || {
        cluster.dispatcher().count("watari_dispatcher_connections_reset_total", "client_gone") == 1
    });
    cluster.node(TARGET).go_on();
    cluster.wait_until_idle();
    assert_eq!(cluster.node(SOURCE).count("watari_agent_lost_in_moves_total", ""), 1);
    check_moves_go_on(&cluster);
}

#[test]
fn a_key_update_in_a_move_is_opened_by_the_target() {
    let mut moving = Undecided::begin(ABORTED_LATE);
    moving.client.stream.session().refresh_traffic_keys().unwrap();
    moving.client.send(&get_bytes(1000, 4)).unwrap();
    moving.target().go_on();
    moving.client.take_download(1000, 4).unwrap();
    moving.check_alive(TARGET);
    moving.check_healed();
}

#[test]
fn agents_without_a_link_keep_their_connections() {
    let plan = Plan { dispatcher_limits: ABORTED_SOON, tapped_links: &[(SOURCE, TARGET)], ..Plan::default() };
    let cluster = Cluster::start(&plan);
    let link = cluster.tap("a1-a2");
    let not_moved = |reason| cluster.node(SOURCE).count("watari_agent_not_moved_total", reason);

    link.hold();
    let (lost_on_the_way, mut first) = connect(&cluster, TARGET);
    first.download(10_000, 1).unwrap();
    assert_eq!(cluster.connection_of(lost_on_the_way).node, SOURCE);
    assert_eq!(not_moved("timeout"), 1);

    link.break_off();
    until("the link is down", || cluster.node(SOURCE).count("watari_mesh_links_up", "") == 2);
    let moved_elsewhere = [connect(&cluster, "a1"), connect(&cluster, "a1")];
    let (not_tried, mut second) = connect(&cluster, TARGET);
    second.download(10_000, 1).unwrap();
    assert_eq!(cluster.connection_of(not_tried).node, SOURCE);
    assert_eq!(not_moved("no_link"), 1);

    link.pass();
    cluster.wait_until_whole();
    first.download(10_000, 2).unwrap();
    second.download(10_000, 2).unwrap();
    drop((first, second, moved_elsewhere));
    check_moves_go_on(&cluster);
}

/// The dispatcher decides, but its decision is lost with the link. The source stays fenced, and asks again when it has
/// a link.
#[test]
fn a_lost_decision_is_asked_for_again() {
    let plan = Plan { dispatcher_limits: ABORTED_LATE, tapped_links: &[(SOURCE, "d1")], ..Plan::default() };
    let mut moving = Undecided::begin_with(&plan);
    let link = moving.cluster.tap("a1-d1").clone();
    link.break_off();
    until("the link is down", || moving.dispatcher().count("watari_mesh_links_up", "") == 2);
    moving.target().go_on();
    moving.check_alive(TARGET);
    assert_eq!(moving.source().count("watari_agent_fenced", ""), 1);
    link.pass();
    until("the source knows", || moving.source().count("watari_agent_moved_out_total", "") == 1);
    moving.check_alive(TARGET);
    moving.check_healed();
}

#[test]
fn an_owner_that_dies_in_a_response_does_not_end_it_cleanly() {
    let cluster = Cluster::start(&Plan::default());
    let (_, mut bystander) = connect(&cluster, SOURCE);
    bystander.download(1000, 1).unwrap();
    let (address, mut client) = connect(&cluster, TARGET);
    client.send(b"GET /slow/50000000?1 HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
    client.read_head().unwrap();
    client.read_piece(1).unwrap();
    assert_eq!(cluster.connection_of(address).node, TARGET);
    cluster.node(TARGET).kill();
    assert!(!client.ends_cleanly());
    bystander.download(1_000_000, 2).unwrap();
}

#[test]
fn a_dispatcher_that_looks_dead_costs_only_time() {
    let cluster = Cluster::start(&Plan::default());
    let mut clients: Vec<_> = cluster.clients.two_of_each_agent().map(|_| connect(&cluster, TARGET).1).into();
    for client in &mut clients {
        client.send(&get_bytes(3_000_000, 5)).unwrap();
    }
    cluster.dispatcher().stop();
    cluster.dispatcher().go_on();
    for client in &mut clients {
        client.take_download(3_000_000, 5).unwrap();
    }
}
