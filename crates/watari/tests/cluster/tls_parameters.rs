//! Listeners with TLS parameters of their own: the results of `openssl s_client` at each.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::clients::openssl::SClient;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// A cluster whose IPv4 and IPv6 listeners have different parameters: `above` are lines of `[agent.tls]`, `own` of the IPv6
/// listener.
fn cluster(above: &str, own: &str) -> Cluster {
    let cluster = Cluster::start(&Plan::default());
    for agent in cluster.agents() {
        let listener = format!("[[agent.tls.listener]]\naddress = \"{}\"\n{own}\n", cluster.service_v6);
        agent.reconfigure(|text| format!("{text}\n[agent.tls]\n{above}\n{listener}"));
    }
    cluster
}

struct Caller<'a>(&'a Cluster);

impl Caller<'_> {
    fn client(&self, service: SocketAddr, arguments: &[&str]) -> SClient {
        let source = if service.is_ipv6() { IpAddr::from(Ipv6Addr::LOCALHOST) } else { self.0.clients.any() };
        SClient::start(source, service, &self.0.site_ca(), arguments)
    }

    /// One request, if the handshake succeeds. Returns the output.
    fn ask(&self, service: SocketAddr, arguments: &[&str]) -> String {
        let mut client = self.client(service, arguments);
        client.wait_for(b"Verify return code: 0 (ok)");
        client.send(format!("GET /bytes/10?1 HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes());
        client.wait_for(b"HTTP/1.1 200 OK");
        client.finish()
    }

    /// A handshake that must fail, with `reason` in the agents' counters.
    fn refused(&self, service: SocketAddr, arguments: &[&str], alert: &str, reason: &str) {
        let before = self.0.count_on_agents("watari_agent_handshakes_failed_total", reason);
        self.client(service, arguments).wait_for_notice(alert);
        until("it is counted", || self.0.count_on_agents("watari_agent_handshakes_failed_total", reason) == before + 1);
    }
}

#[test]
fn versions_suites_and_groups_are_the_listeners() {
    let above = "versions = [\"1.3\"]\nsuites = [\"TLS_AES_256_GCM_SHA384\"]\ngroups = [\"x25519\"]";
    let own = "versions = [\"1.2\"]\ngroups = [\"secp384r1\", \"secp256r1\"]\n\
               suites = [\"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256\"]";
    let cluster = cluster(above, own);
    let (caller, v4, v6) = (Caller(&cluster), cluster.service, cluster.service_v6);

    let printed = caller.ask(v4, &[]);
    assert!(printed.contains("TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384"), "{printed}");
    assert!(printed.contains("Server Temp Key: X25519"), "{printed}");
    caller.refused(v4, &["-tls1_2"], "alert protocol version", "no_common_version");
    caller.refused(v4, &["-ciphersuites", "TLS_AES_128_GCM_SHA256"], "alert handshake failure", "no_common_suite");
    caller.refused(v4, &["-groups", "P-256:P-384"], "alert handshake failure", "no_common_group");

    let printed = caller.ask(v6, &["-groups", "X25519:P-384"]);
    assert!(printed.contains("TLSv1.2, Cipher is ECDHE-RSA-CHACHA20-POLY1305"), "{printed}");
    assert!(printed.contains("Server Temp Key: ECDH, secp384r1"), "{printed}");
    assert!(caller.ask(v6, &["-groups", "P-256"]).contains("Server Temp Key: ECDH, prime256v1"));
    caller.refused(v6, &["-tls1_3"], "alert protocol version", "no_common_version");
    caller.refused(v6, &["-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "alert handshake failure", "no_common_suite");
    caller.refused(v6, &["-groups", "X25519"], "alert handshake failure", "no_common_group");
}

#[test]
fn protocols_above_tls_are_the_listeners() {
    let cluster = cluster("alpn = [\"http/1.1\", \"h2\"]", "alpn = [\"http/1.1\"]");
    let (caller, v4, v6) = (Caller(&cluster), cluster.service, cluster.service_v6);
    let h2 = caller.client(v4, &["-alpn", "h2"]).finish();
    assert!(h2.contains("ALPN protocol: h2"), "{h2}");
    for service in [v4, v6] {
        assert!(caller.ask(service, &["-alpn", "h2,http/1.1"]).contains("ALPN protocol: http/1.1"));
        // A client without ALPN gets HTTP/1.1.
        assert!(caller.ask(service, &[]).contains("No ALPN negotiated"));
        caller.refused(service, &["-alpn", "h3"], "alert no application protocol", "no_common_alpn");
    }
    caller.refused(v6, &["-alpn", "h2"], "alert no application protocol", "no_common_alpn");
}

/// A session of a listener without client certificates does not resume at one that requires them.
#[test]
fn a_session_of_one_listener_is_none_at_another() {
    let cluster = cluster("client_ca = \"site/clients.pem\"", "client_certificates = \"required\"");
    let (caller, v4, v6) = (Caller(&cluster), cluster.service, cluster.service_v6);
    for (number, version) in ["-tls1_2", "-tls1_3"].into_iter().enumerate() {
        let file = cluster.dir().join(format!("session-{number}"));
        let session = file.to_str().unwrap();
        assert!(caller.ask(v4, &[version, "-sess_out", session]).contains("New, TLS"));
        assert!(Path::new(session).exists());
        // Handshakes go to the agents in turn, and each resumes the session.
        let again: String = (0..3).map(|_| caller.ask(v4, &[version, "-sess_in", session])).collect();
        assert_eq!(again.matches("Reused, TLS").count(), 3, "{again}");
        for _ in 0..3 {
            caller.refused(v6, &[version, "-sess_in", session], "alert certificate required", "no_client_certificate");
        }
    }
}
