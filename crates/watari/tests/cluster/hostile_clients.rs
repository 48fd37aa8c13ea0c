//! Faulty or malicious clients. Each gets the right alert. The cluster counts and logs it with the cause, and no other
//! client is disturbed.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use crate::clients::http::Http;
use crate::clients::openssl::SClient;
use crate::clients::raw::{alert, exchange, listen};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, dial};
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan, SharedCluster};

static SHARED: SharedCluster = SharedCluster::new();

/// Alerts (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;
const PROTOCOL_VERSION: u8 = 70;

const FAILED: &str = "watari_agent_handshakes_failed_total";
const REFUSED: &str = "watari_agent_records_refused_total";

/// The cluster, and a client that must not be disturbed.
struct Scene {
    cluster: Arc<Cluster>,
    bystander: Http<Tls>,
}

impl Scene {
    fn set() -> Self {
        let cluster = SHARED.get(&Plan { agent_limits: "handshake_timeout = \"2s\"", ..Plan::default() });
        let bystander = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
        let mut scene = Self { cluster, bystander: Http::new(bystander) };
        scene.check_undisturbed();
        scene
    }

    /// Waits until `metric` has counted one more of this cause, and some agent has logged `sentence` about the client.
    fn check_reported(&self, metric: &str, cause: &str, before: i64, client: IpAddr, sentence: &str) {
        until("it is counted", || self.cluster.count_on_agents(metric, cause) > before);
        let client = format!("client={client}:");
        until("it is logged", || {
            let logs = self.cluster.agent_logs();
            logs.lines().any(|line| line.contains(&client) && line.contains(sentence))
        });
    }

    fn check_undisturbed(&mut self) {
        self.bystander.download(100_000, 1).unwrap();
    }

    /// A client sends `bytes` instead of a handshake.
    fn check_refused(&mut self, bytes: &[u8], expected: u8, cause: &str, sentence: &str) {
        let before = self.cluster.count_on_agents(FAILED, cause);
        let client = self.cluster.clients.any();
        let answer = exchange(&mut dial(client, self.cluster.service).unwrap(), bytes);
        assert_eq!(alert(&answer), expected, "{cause}");
        self.check_reported(FAILED, cause, before, client, sentence);
        self.check_undisturbed();
    }

    /// `openssl s_client` with `arguments` is refused, and prints `alert`.
    fn check_openssl_refused(&mut self, arguments: &[&str], alert: &str, cause: &str, sentence: &str) {
        let before = self.cluster.count_on_agents(FAILED, cause);
        let client = self.cluster.clients.any();
        let printed = SClient::start(client, self.cluster.service, &self.cluster.site_ca(), arguments).finish();
        assert!(printed.contains(alert), "{printed}");
        self.check_reported(FAILED, cause, before, client, sentence);
        self.check_undisturbed();
    }
}

#[test]
fn what_is_not_tls_is_refused() {
    let mut scene = Scene::set();
    scene.check_refused(&[0xff; 64], UNEXPECTED_MESSAGE, "garbage", "does not speak TLS");
    scene.check_refused(b"GET / HTTP/1.1\r\n\r\n", UNEXPECTED_MESSAGE, "plain_http", "plain HTTP to a TLS port");
    let sslv2_hello = [&[0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10][..], &[7; 40]].concat();
    scene.check_refused(&sslv2_hello, PROTOCOL_VERSION, "sslv2_hello", "SSL 2.0");
}

#[test]
fn malformed_records_are_refused() {
    let mut scene = Scene::set();
    let too_long = [22, 3, 1, 0x48, 1];
    scene.check_refused(&too_long, RECORD_OVERFLOW, "record_too_long", "a record longer than TLS allows");
    let empty_hello = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    scene.check_refused(&empty_hello, DECODE_ERROR, "malformed", "a malformed message");
}

#[test]
fn a_client_that_wants_what_there_is_not_is_refused() {
    let mut scene = Scene::set();
    scene.check_openssl_refused(
        &["-servername", "other.test"],
        "alert number 112",
        "unknown_sni",
        "no certificate for the name that the client asks for: \"other.test\"",
    );
    scene.check_openssl_refused(&["-alpn", "smtp"], "alert number 120", "no_common_alpn", "application protocol");
    let old = ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"];
    scene.check_openssl_refused(&old, "alert number 70", "no_common_version", "neither TLS 1.2 nor TLS 1.3");
    let cbc = ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"];
    scene.check_openssl_refused(&cbc, "alert number 40", "no_common_suite", "no supported cipher suite");
}

const HALF_A_HELLO: [u8; 11] = [22, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3];

#[test]
fn a_client_that_leaves_in_its_handshake_is_noted() {
    let mut scene = Scene::set();
    let before = scene.cluster.count_on_agents(FAILED, "closed_early");
    let client = scene.cluster.clients.any();
    let mut stream = dial(client, scene.cluster.service).unwrap();
    stream.write_all(&HALF_A_HELLO).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(listen(&mut stream).is_empty());
    scene.check_reported(FAILED, "closed_early", before, client, "before its ClientHello was complete");
    scene.check_undisturbed();
}

#[test]
fn a_client_that_stops_in_its_handshake_is_not_waited_for() {
    let mut scene = Scene::set();
    let before = scene.cluster.count_on_agents(FAILED, "timed_out");
    let client = scene.cluster.clients.any();
    let mut stream = dial(client, scene.cluster.service).unwrap();
    stream.write_all(&HALF_A_HELLO).unwrap();
    assert!(listen(&mut stream).is_empty());
    scene.check_reported(FAILED, "timed_out", before, client, "before its ClientHello was complete");
    scene.check_undisturbed();
}

#[test]
fn records_that_do_not_verify_are_refused_after_the_handshake() {
    let forged = [&[23, 3, 3, 0, 40][..], &[0x5a; 40]].concat();
    check_record_refused(&forged, "BadRecordMac", "bad_record_mac", "does not authenticate");
}

#[test]
fn records_that_are_too_long_are_refused_after_the_handshake() {
    check_record_refused(&[23, 3, 3, 0x48, 1], "RecordOverflow", "record_too_long", "is too long");
}

fn check_record_refused(record: &[u8], alert: &str, cause: &str, sentence: &str) {
    let mut scene = Scene::set();
    for version in [&TLS12, &TLS13] {
        // Handshakes go to the agents in turn: some of these connections have moved.
        for client in scene.cluster.clients.two_of_each_agent() {
            let before = scene.cluster.count_on_agents(REFUSED, cause);
            let taste = Taste { version, ..Taste::default() };
            let mut stream = Http::new(Tls::to_site(client, scene.cluster.service, &taste).unwrap());
            stream.download(1000, 1).unwrap();
            stream.stream.tcp().write_all(record).unwrap();
            let error = stream.stream.read(&mut [0; 16]).unwrap_err();
            assert!(error.to_string().contains(alert), "{error}");
            scene.check_reported(REFUSED, cause, before, client, sentence);
            scene.check_undisturbed();
        }
    }
}
