//! Client certificates: the client's identity moves with its connection, and reaches the origin (RFC 9440).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::clients::http::{Fault, Http, fault};
use crate::clients::tls::{Taste, Tls};
use crate::harness::site::{Authority, ClientIdentity};
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// Fields with which a client must not be able to claim an identity.
const SPOOFED: &str = "client-cert: :c3Bvb2ZlZA==:\r\nClient-Cert: :c3Bvb2ZlZA==:\r\n";

fn cluster(client_certificates: &'static str) -> Cluster {
    Cluster::start(&Plan { client_certificates: Some(client_certificates), ..Plan::default() })
}

/// Clients with this identity, in both versions of TLS.
fn tastes(identity: Option<&ClientIdentity>) -> Vec<Taste> {
    Taste::all().into_iter().map(|taste| Taste { identity: identity.cloned(), ..taste }).collect()
}

/// The fields that reach the origin, over connections half of which have moved.
fn fields_at_the_origin(cluster: &Cluster, taste: &Taste) -> Vec<String> {
    let mut moves = 0;
    let fields = cluster.clients.two_of_each_agent().map(|source| {
        let mut client = Http::new(Tls::to_site(source, cluster.service, taste).unwrap());
        let fields = client.get_text("/headers", SPOOFED).unwrap();
        moves += cluster.connection_of(source).moves;
        fields
    });
    assert!(moves >= 3, "{moves} connections have moved");
    fields.to_vec()
}

fn certificates_in(fields: &str) -> Vec<&str> {
    fields.lines().filter_map(|line| line.strip_prefix("client-cert: ")).collect()
}

#[test]
fn an_identity_reaches_the_origin_after_a_move() {
    let identity = Authority::of_clients().issue_to_client("client.test");
    let expected = format!(":{}:", STANDARD.encode(&identity.certificate));
    for demand in ["optional", "required"] {
        let cluster = cluster(demand);
        for taste in tastes(Some(&identity)) {
            for fields in fields_at_the_origin(&cluster, &taste) {
                assert_eq!(certificates_in(&fields), [&expected], "{fields}");
            }
        }
    }
}

#[test]
fn a_client_without_a_certificate_cannot_pretend_to_have_one() {
    let cluster = cluster("optional");
    for taste in tastes(None) {
        for fields in fields_at_the_origin(&cluster, &taste) {
            assert!(certificates_in(&fields).is_empty(), "{fields}");
        }
    }
}

#[test]
fn a_client_without_a_required_certificate_is_refused() {
    let cluster = cluster("required");
    for (taste, refused) in tastes(None).iter().zip(1..) {
        check_refused(&cluster, taste, "CertificateRequired", ("no_client_certificate", refused));
    }
    cluster.wait_until_idle();
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    for demand in ["optional", "required"] {
        let cluster = cluster(demand);
        let stranger = Authority::of_another_authority().issue_to_client("client.test");
        for (taste, refused) in tastes(Some(&stranger)).iter().zip(1..) {
            check_refused(&cluster, taste, "UnknownCA", ("bad_client_certificate", refused));
        }
        cluster.wait_until_idle();
    }
}

/// In TLS 1.3 the client's handshake ends before the server has seen its certificate. `counted`: a cause, and the
/// expected count of it.
fn check_refused(cluster: &Cluster, taste: &Taste, alert: &str, counted: (&str, i64)) {
    let source = cluster.clients.any();
    let connected = Tls::to_site(source, cluster.service, taste).map_err(fault);
    let refused = connected.and_then(|stream| Http::new(stream).download(1, 1)).unwrap_err();
    match refused {
        Fault::Broken(error) => assert!(error.to_string().contains(alert), "{error}"),
        other => panic!("{other:?}"),
    }
    let (cause, count) = counted;
    until("it is counted", || cluster.count_on_agents("watari_agent_handshakes_failed_total", cause) == count);
    let client = format!("client={source}:");
    let logs = cluster.agent_logs();
    assert!(logs.lines().any(|line| line.contains(&client) && line.contains("handshake failed")), "{logs}");
}
