//! Sessions across a standby pair: the active node leaves or dies, and clients resume at the other one.

use serde_json::Value;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, V4, until};
use crate::pair::Pair;
use crate::visitor::{Kind, Seen, Visitor, openssl_with_ids};

/// Clients of each kind.
const CLIENTS: usize = 8;
/// The client with OpenSSL is one more.
const HANDSHAKES: u64 = (CLIENTS * Kind::ALL.len() + 1) as u64;
/// Full handshakes of TLS 1.3 give two tickets.
const SESSIONS: u64 = HANDSHAKES + CLIENTS as u64;

#[test]
fn resumes_with_push() {
    if is_inside("standby::resumes_with_push") {
        every_client_resumes("mode = \"push\"\ndatabase = \"NAME.redb\"");
    }
}

#[test]
fn resumes_with_owner() {
    if is_inside("standby::resumes_with_owner") {
        every_client_resumes("mode = \"owner\"\ndatabase = \"NAME.redb\"");
    }
}

/// The control: agents share nothing.
#[test]
fn does_full_handshakes_with_private_sessions() {
    if !is_inside("standby::does_full_handshakes_with_private_sessions") {
        return;
    }
    let (lab, clients) = begin("mode = \"private\"\ndatabase = \"NAME.redb\"");
    // Each by itself resumes.
    clients.visit(&lab, "d1", Seen::Resumed);
    lab.kill("d1");
    lab.until_owner("d2");
    clients.visit(&lab, "d2", Seen::Full);
    lab.end();
}

/// The active node is cut off from the network of the mesh. Clients still reach it, but its leases end.
#[test]
fn resumes_when_the_network_for_notices_is_cut() {
    if !is_inside("standby::resumes_when_the_network_for_notices_is_cut") {
        return;
    }
    let (lab, clients) = begin("mode = \"push\"");
    Lab::cut_notices("d1");
    lab.until_owner("d2");
    clients.visit(&lab, "d2", Seen::Resumed);
    until("d1 gives the address up", || !lab.has("d1", V4));
    lab.end();
}

/// The active node dies, then the other one, and then there is a planned switch.
fn every_client_resumes(sessions: &'static str) {
    let (lab, clients) = begin(sessions);
    lab.kill("d1");
    lab.until_owner("d2");
    clients.visit(&lab, "d2", Seen::Resumed);
    // The standby restarts and then serves, so it has these sessions only in its file.
    lab.start_node("d1");
    until_standby(&lab, "d1", "d2");
    let before = sessions_in_file(&lab, "d1");
    let clients = Clients::new(&lab, "second");
    clients.visit(&lab, "d2", Seen::Full);
    until("d1 has the sessions in its file", || sessions_in_file(&lab, "d1") >= before + SESSIONS);
    lab.kill("d1");
    lab.start_node("d1");
    until_standby(&lab, "d1", "d2");
    lab.kill("d2");
    lab.until_owner("d1");
    clients.visit(&lab, "d1", Seen::Resumed);
    lab.start_node("d2");
    until_standby(&lab, "d2", "d1");
    let clients = Clients::new(&lab, "third");
    clients.visit(&lab, "d1", Seen::Full);
    until("the switch is possible", || lab.ctl("d1", &["switch", "d2"]).status.success());
    lab.until_owner("d2");
    clients.visit(&lab, "d2", Seen::Resumed);
    lab.end();
}

/// Clients that come again.
struct Clients {
    /// The file of the session of the client with OpenSSL.
    file: &'static str,
    visitors: Vec<Visitor>,
}

impl Clients {
    /// Clients without sessions.
    fn new(lab: &Lab, file: &'static str) -> Self {
        let visitors = Kind::ALL.into_iter().flat_map(|kind| (0..CLIENTS).map(move |_| Visitor::new(lab, kind)));
        Self { file, visitors: visitors.collect() }
    }

    /// Each client connects once. `node` serves all of them, and all handshakes are as wanted, as the clients see it
    /// and as the node counts it.
    fn visit(&self, lab: &Lab, node: &str, wanted: Seen) {
        let before = Counts::of(lab, node);
        for visitor in &self.visitors {
            assert_eq!(visitor.visit().unwrap(), wanted, "{}", lab.log(node));
        }
        assert_eq!(openssl_with_ids(lab, self.file), wanted);
        let is_full = wanted == Seen::Full;
        let (full, resumed) = if is_full { (HANDSHAKES, 0) } else { (0, HANDSHAKES) };
        let wanted = Counts { full: before.full + full, resumed: before.resumed + resumed };
        until("the node has counted all handshakes", || Counts::of(lab, node) == wanted);
    }
}

/// A node's counts of handshakes.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    full: u64,
    resumed: u64,
}

impl Counts {
    fn of(lab: &Lab, node: &str) -> Self {
        let count = |resumed: &str| lab.metric(node, "watari_agent_handshakes_total", resumed);
        Self { full: count("resumed=\"false\""), resumed: count("resumed=\"true\"") }
    }
}

/// A pair of which d1 is active, and clients that have sessions of it.
fn begin(sessions: &'static str) -> (Lab, Clients) {
    let lab = Lab::start(&Plan { pair: Some(Pair::new(sessions)), ..PLAN });
    let clients = Clients::new(&lab, "first");
    clients.visit(&lab, "d1", Seen::Full);
    (lab, clients)
}

/// Waits until a node is a standby that could serve.
pub(crate) fn until_standby(lab: &Lab, name: &str, owner: &str) {
    until(&format!("{name} stands by"), || {
        lab.address(name, V4).is_some_and(|shown| shown["owner"] == owner && shown["ready"] == true)
    });
}

fn sessions_in_file(lab: &Lab, name: &str) -> u64 {
    let shown: Value = serde_json::from_slice(&lab.ctl(name, &["--json", "sessions"]).stdout).unwrap();
    shown["stored"]["sessions"].as_u64().unwrap()
}
