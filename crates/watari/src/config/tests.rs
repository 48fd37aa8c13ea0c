#![allow(clippy::unwrap_used)]

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use watari_agent::{DatabaseFile, Mode, RedisServer, Sharing};
use watari_balance::{BulkPolicy, ClientPrefix, HandshakePolicy, HealthThresholds};
use watari_dispatcher::{Checks, Policies, Rebalance};
use watari_handshake::{Group, Policy};
use watari_mesh::Peer;
use watari_pki::Authority;
use watari_record::{CipherSuite, Version};
use watari_values::{NodeName, Role};

use super::model::{ClientCertificates, Site};
use super::*;

const NODE: &str = "[node]\nname = \"n1\"\npki = \"pki\"\nmesh = \"127.0.0.1:1\"\n";
const PEER: &str = "[[peer]]\nname = \"a1\"\nmesh = \"127.0.0.1:2\"\n";
const DISPATCHER: &str =
    "[dispatcher]\nlisten = [\"0.0.0.0:443\"]\nagents = [{ name = \"a1\", legs = \"127.0.0.1:3\" }]\n";
const AGENT: &str = "[agent]\nlegs = \"127.0.0.1:4\"\n";
const FILES: &str = "[agent.files]\nroot = \"www\"\n";
/// A pool with this name and these lines.
fn pool(name: &str, lines: &str) -> String {
    format!("[[agent.proxy.pool]]\nname = \"{name}\"\norigins = [\"http://127.0.0.1:80\"]\n{lines}")
}

/// A route to the pool `a`.
const ROUTE: &str = "[[agent.proxy.route]]\npool = \"a\"\n";
const PROXY: &str = "[agent.proxy]\norigins = [\"http://127.0.0.1:80\"]\n";
const CERTIFICATE: &str = "[[agent.certificate]]\nchain = \"c.pem\"\nkey = \"c.key\"\n";

fn parse(parts: &[&str]) -> Result<Config, String> {
    Config::parse(Path::new("etc/node.toml"), &parts.concat()).map_err(|error| error.to_string())
}

#[test]
fn a_dispatcher_is_read() {
    let limits = "[dispatcher.limits]\nconnections_max = 7\nuser_timeout = \"45s\"\nidle_timeout = \"90s\"\n";
    let drain = "drain_timeout = \"2m\"\n";
    let config = parse(&[NODE, drain, PEER, DISPATCHER, "bulk = \"stay\"\nthreads = 3\n", limits]).unwrap();
    assert_eq!(config.node.drain_timeout, Duration::from_mins(2));
    let dispatcher = config.dispatcher.unwrap();
    assert_eq!(dispatcher.threads.get(), 3);
    assert_eq!(dispatcher.listen, ["0.0.0.0:443".parse().unwrap()]);
    assert_eq!(dispatcher.config.name.as_str(), "n1");
    assert_eq!(dispatcher.config.policies, Policies { bulk: BulkPolicy::Stay, ..Policies::default() });
    let expected = watari_dispatcher::Limits {
        connections_max: 7,
        user_timeout: Duration::from_secs(45),
        idle_timeout: Duration::from_secs(90),
        ..watari_dispatcher::Limits::default()
    };
    assert_eq!(dispatcher.config.limits, expected);
    assert_eq!(config.peers, [Peer { name: NodeName::new("a1").unwrap(), address: "127.0.0.1:2".parse().unwrap() }]);
    assert_eq!(config.node.admin, Path::new(DEFAULT_ADMIN));
    assert_eq!(config.log.format, LogFormat::Text);
    assert!(config.agent.is_none());
}

#[test]
fn an_agent_is_read_and_paths_start_at_the_file() {
    let tls = "[agent.tls]\nalpn = [\"http/1.1\"]\nclient_ca = \"/ca.pem\"\nclient_certificates = \"optional\"\n";
    let config = parse(&[NODE, AGENT, CERTIFICATE, "default = true\n", tls, FILES]).unwrap();
    let agent = config.agent.unwrap();
    let tls = agent.tls.unwrap();
    assert_eq!(tls.parameters.alpn, ["http/1.1"]);
    assert!(matches!(tls.parameters.clients, ClientCertificates::Optional(ca) if ca.value == Path::new("/ca.pem")));
    assert_eq!(tls.certificates[0].chain.value, Path::new("etc/c.pem"));
    assert_eq!((tls.certificates[0].chain.line, tls.certificates[0].default), (8, true));
    assert!(matches!(agent.site, Site::Files(root) if root.value == Path::new("etc/www")));
    assert_eq!(config.node.pki.value, Path::new("etc/pki"));
}

#[test]
fn the_example_has_every_key_and_the_defaults() {
    let text = include_str!("../../../../examples/every-key.toml");
    let config = parse(&[text]).unwrap();
    let dispatcher = config.dispatcher.unwrap();
    assert_eq!(dispatcher.config.limits, watari_dispatcher::Limits::default());
    assert_eq!(dispatcher.config.policies, Policies::default());
    assert_eq!(dispatcher.config.checks, Checks::default());
    assert_eq!(dispatcher.config.agents[0].connections_max, NonZeroUsize::new(4000));
    assert_eq!((dispatcher.listen_proxy.len(), dispatcher.config.proxy_from.len()), (1, 1));
    let [passthrough] = &dispatcher.config.passthrough[..] else { panic!("{:?}", dispatcher.config.passthrough) };
    assert_eq!(passthrough.names, ["db.example.com", "*.raw.example.com"].map(|name| name.parse().unwrap()));
    assert_eq!(passthrough.backends, ["192.0.2.9:443".parse().unwrap()]);
    assert!(passthrough.proxy_protocol);
    let agent = config.agent.unwrap();
    assert_eq!(agent.limits, watari_agent::Limits::default());
    assert_eq!(agent.sharing, watari_agent::Sharing::default());
    let tls = agent.tls.unwrap();
    assert_eq!(tls.parameters.alpn, ["h2", "http/1.1"]);
    assert_eq!(tls.parameters.policy, Policy::default());
    assert_eq!(tls.listeners.len(), 1);
    assert_eq!(config.node.admin, Path::new(DEFAULT_ADMIN));
    let default = parse(&[NODE, AGENT, FILES]).unwrap();
    assert_eq!(config.node.drain_timeout, default.node.drain_timeout);
    assert_eq!((&config.node.limits, &default.node.limits), (&watari_mesh::Limits::default(), &config.node.limits));
    assert_eq!((config.log.repeats_max, default.log.repeats_max), (50, 50));
    let files = "[agent.files]\nroot = \"www\"";
    let proxy = "[agent.proxy]\norigins = [\"http://192.0.2.7:8080\"]";
    let other = text.replace(files, proxy);
    assert!(matches!(parse(&[&other]).unwrap().agent.unwrap().site, Site::Proxy(proxy) if proxy.pools.len() == 1));
}

#[test]
fn pools_take_their_policies() {
    let keys = "balance = \"hash\"\nweights = [3]\nhash_key = \"header:x-user\"\nslow_start = \"30s\"\n\
                retry_on = [\"reset\", \"503\"]\nresolve_interval = \"1s\"\n\
                check = { path = \"/health\", host = \"a:80\", statuses = \"200-399\", interval = \"1s\", fall = 5 }\n\
                limits = { connect_timeout = \"1s\", body_bytes_per_s_min = 0, attempts_max = 2, in_flight_max = 7, idle_max = 0 }\n";
    let Site::Proxy(proxy) = parse(&[NODE, AGENT, &pool("a", keys)]).unwrap().agent.unwrap().site else { panic!() };
    let read = format!("{:?}", proxy.pools);
    for expected in [
        "policy: Hash, hash_key: Header(\"x-user\"), slow_start: Some(30s)",
        "retry_on: {Reset, Unavailable}",
        "weights: [3], resolve_interval: Some(1s)",
        "path: /health, host: Some(a:80), statuses: 200..=399",
        "interval: 1s, timeout: 2s, thresholds: HealthThresholds { fall: 5, rise: 2 }",
        "connect_timeout: 1s, response_timeout: 60s, body_timeout: 60s, body_bytes_per_s_min: 0, attempts_max: 2",
        "in_flight_max: 7, idle_max: 0",
    ] {
        assert!(read.contains(expected), "{expected} is not in {read}");
    }
}

#[test]
fn connections_may_move_by_themselves_where_they_would_stay() {
    let rebalance =
        |keys: &str| parse(&[NODE, PEER, DISPATCHER, keys]).unwrap().dispatcher.unwrap().config.policies.rebalance;
    assert_eq!(rebalance(""), Rebalance::Off);
    assert_eq!(rebalance("rebalance = \"off\"\n"), Rebalance::Off);
    assert_eq!(rebalance("bulk = \"stay\"\nrebalance = \"connections\"\n"), Rebalance::Connections);
    assert_eq!(rebalance("bulk = \"stay\"\nrebalance = \"load\"\n"), Rebalance::Load);
    check(&[(
        &[NODE, PEER, DISPATCHER, "rebalance = \"load\"\n"],
        "11: rebalance needs bulk = \"stay\": the other policies select the agent by address",
    )]);
}

#[test]
fn policies_are_read() {
    let keys = "handshake = \"shortest_response\"\nbulk = \"off\"\nclient_prefix = { ipv6 = 56 }\nslow_start = \"10s\"\n\
                listen_proxy = [\"[::1]:8443\"]\nproxy_from = [\"10.0.0.0/8\", \"::1/128\"]\n\
                [dispatcher.check]\ntimeout = \"200ms\"\nfall = 1\n";
    let agents = DISPATCHER.replace(":3\"", ":3\", weight = 1000, connections_max = 5");
    let dispatcher = parse(&[NODE, PEER, &agents, keys]).unwrap().dispatcher.unwrap();
    let expected = Policies {
        handshake: HandshakePolicy::ShortestResponse,
        bulk: BulkPolicy::Off,
        rebalance: Rebalance::Off,
        client_prefix: ClientPrefix::new(32, 56).unwrap(),
        slow_start: Some(Duration::from_secs(10)),
    };
    assert_eq!(dispatcher.config.policies, expected);
    let default = Checks::default();
    let thresholds = HealthThresholds { fall: 1, ..default.thresholds };
    assert_eq!(dispatcher.config.checks, Checks { timeout: Duration::from_millis(200), thresholds, ..default });
    let agent = &dispatcher.config.agents[0];
    assert_eq!((agent.weight, agent.connections_max), (1000, NonZeroUsize::new(5)));
    assert_eq!(dispatcher.listen_proxy, ["[::1]:8443".parse().unwrap()]);
    assert_eq!(dispatcher.config.proxy_from, ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
    for policy in ["round_robin", "weighted", "least_connections", "client_address"] {
        parse(&[NODE, PEER, DISPATCHER, &format!("handshake = \"{policy}\"\n")]).unwrap();
    }
}

#[test]
fn relays_alone_may_connect() {
    let keys = "listen_proxy = [\"127.0.0.1:9\"]\nproxy_from = [\"0.0.0.0/0\"]\n";
    let dispatcher =
        parse(&[NODE, PEER, &DISPATCHER.replace("\"0.0.0.0:443\"", ""), keys]).unwrap().dispatcher.unwrap();
    assert_eq!((dispatcher.listen.len(), dispatcher.listen_proxy.len()), (0, 1));
}

#[test]
fn a_move_is_decided_before_the_agents_give_up() {
    let limits = "[dispatcher.limits]\nmove_timeout = \"5s\"\n";
    let longest = parse(&[NODE, PEER, DISPATCHER, limits]).unwrap().dispatcher.unwrap().config.limits.move_timeout;
    assert_eq!(longest, Duration::from_secs(5));
    let agent = watari_agent::Limits::default();
    assert!(longest < agent.preface_timeout.min(agent.fence_timeout).min(agent.hold_timeout));
}

#[test]
fn a_bulk_agent_has_no_certificate() {
    let config = parse(&[NODE, AGENT, PROXY]).unwrap();
    assert!(config.agent.unwrap().tls.is_none());
}

#[test]
fn a_node_may_be_among_its_peers() {
    let own = "[[peer]]\nname = \"n1\"\nmesh = \"127.0.0.1:1\"\n";
    assert_eq!(parse(&[NODE, own, PEER, DISPATCHER]).unwrap().peers.len(), 1);
}

#[test]
fn a_dispatcher_may_pick_its_own_node() {
    let own = DISPATCHER.replace("a1", "n1").replace(":3", ":4");
    let config = parse(&[NODE, &own, AGENT, FILES]).unwrap();
    assert_eq!(config.dispatcher.unwrap().config.agents[0].name, config.node.name.value);
}

#[test]
fn what_is_not_known_or_has_the_wrong_shape_is_refused() {
    let weight = |weight: &str| DISPATCHER.replace(":3\"", &format!(":3\", weight = {weight}"));
    let cases: [(&[&str], &str); 31] = [
        (
            &[NODE, AGENT, FILES, "[node.limits]\nunidentified_max = 0\n"],
            "10: 0 is not from 1 to 65536 (node.limits.unidentified_max)",
        ),
        (
            &[NODE, AGENT, FILES, "[agent.limits]\nunidentified_per_address_max = 65537\n"],
            "10: 65537 is not from 1 to 65536 (agent.limits.unidentified_per_address_max)",
        ),
        (&[NODE, AGENT, FILES, "[log]\nrepeats_max = 0\n"], "10: 0 is not from 1 to 1000000 (log.repeats_max)"),
        (&["[node"], "1: invalid TOML: unclosed table, expected `]`"),
        (
            &[NODE, "x = 1\n"],
            "5: [node] has no key \"x\": expected one of name, pki, mesh, join, advertise, admin, metrics, drain_timeout, limits",
        ),
        (&[NODE, AGENT, "[x]\n"], "7: unknown table [x]: expected one of node, peer, dispatcher, agent, log"),
        (&[NODE, AGENT, FILES, "index = true\n"], "9: [agent.files] has no key \"index\": expected root"),
        (&[AGENT, FILES], "1: the table [node] is missing"),
        (&["[node]\nname = \"n1\"\n"], "1: [node] lacks the key \"pki\""),
        (&[NODE, "name = \"n2\"\n"], "5: invalid TOML: duplicate key"),
        (&["[node]\nname = 5\n"], "2: expected a string in quotes, found 5 (node.name)"),
        (
            &["[node]\nname = \"N 1\"\n"],
            "2: a node name is 1 to 63 characters of a-z, 0-9 and '-', with no '-' at an end and not only digits (node.name)",
        ),
        (
            &["[node]\npki = \"p\"\nmesh = \"localhost:1\"\n"],
            "3: \"localhost:1\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443 (node.mesh)",
        ),
        (
            &["[node]\npki = \"p\"\nmesh = \"127.0.0.1:0\"\n"],
            "3: \"127.0.0.1:0\" has port 0: expected 1 to 65535 (node.mesh)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "bulk = \"any\"\n"],
            "11: \"any\" is not allowed here: expected one of client_address, stay, off (dispatcher.bulk)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "handshake = \"random\"\n"],
            "11: \"random\" is not allowed here: expected one of round_robin, weighted, least_connections, \
             shortest_response, client_address (dispatcher.handshake)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "client_prefix = { ipv4 = 33 }\n"],
            "11: a prefix has 1 to 32 bits, not 33 (dispatcher.client_prefix)",
        ),
        (&[NODE, PEER, &weight("0")], "10: a weight is 1 to 1000, not 0 (dispatcher.agents.weight)"),
        (&[NODE, PEER, &weight("1001")], "10: a weight is 1 to 1000, not 1001 (dispatcher.agents.weight)"),
        (
            &[NODE, PEER, DISPATCHER, "listen_proxy = [\"127.0.0.1:9\"]\nproxy_from = [\n\"10.0.0.1/8\"]\n"],
            "13: \"10.0.0.1/8\" has bits after its prefix: did you mean \"10.0.0.0/8\"?",
        ),
        (
            &[NODE, PEER, DISPATCHER, "listen_proxy = [\"127.0.0.1:9\"]\nproxy_from = [\"10.0.0.1\"]\n"],
            "12: \"10.0.0.1\" is not a network, such as 192.0.2.0/24 or 2001:db8::/32",
        ),
        (
            &[NODE, PEER, DISPATCHER, "[dispatcher.check]\nfall = 0\n"],
            "12: expected a whole number from 1 to 4294967295, found 0 (dispatcher.check.fall)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "[dispatcher.limits]\nconnections_max = 0\n"],
            "12: expected a whole number from 1 to 2^63, found 0 (dispatcher.limits.connections_max)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "[dispatcher.limits]\nidle_timeout = \"0s\"\n"],
            "12: \"0s\" must be more than 0 (dispatcher.limits.idle_timeout)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "[dispatcher.limits]\nidle_timeout = \"soon\"\n"],
            "12: \"soon\" is not a duration, such as 500ms, 1.5s, 5m, 2h or 7d (dispatcher.limits.idle_timeout)",
        ),
        (
            &[NODE, PEER, DISPATCHER, "[dispatcher.limits]\nmove_timeout = \"5001ms\"\n"],
            "12: move_timeout is at most 5s: agents wait at most 10 s for the decision (dispatcher.limits.move_timeout)",
        ),
        (
            &[NODE, AGENT, FILES, "[agent.limits]\nhead_bytes_max = 8191\n"],
            "10: 8191 is not from 8192 to 1048576 (agent.limits.head_bytes_max)",
        ),
        (
            &[NODE, AGENT, "[agent.proxy]\norigins = [\n  \"http://a\",\n  \"ftp://b\",\n]\n"],
            "10: \"ftp://b\" is not an origin: expected http://HOST[:PORT] or https://HOST[:PORT]",
        ),
        (
            &[NODE, AGENT, FILES, CERTIFICATE, "[agent.tls]\nclient_certificates = \"maybe\"\n"],
            "13: \"maybe\" is not allowed here: expected one of none, optional, required (agent.tls.client_certificates)",
        ),
        (
            &[NODE, AGENT, FILES, "[log]\nlevel = \"loud\"\n"],
            "10: \"loud\" is not a log level, such as info or info,watari_mesh=debug (log.level)",
        ),
        (
            &[NODE, AGENT, FILES, "[log]\nformat = \"xml\"\n"],
            "10: \"xml\" is not allowed here: expected one of text, json (log.format)",
        ),
    ];
    check(&cases);
}

#[test]
fn caches_are_read() {
    let cached_before = |lines: &str, setting: &str| {
        let route = format!("[[agent.proxy.route]]\npool = \"a\"\ncache = {setting}\n");
        let config = parse(&[NODE, AGENT, &pool("a", lines), &pool("b", "proxy_protocol = \"v2\"\n"), &route]).unwrap();
        let Some(Site::Proxy(proxy)) = config.agent.map(|agent| agent.site) else { panic!("no proxy") };
        (proxy.has_cache(), proxy.routes[0].cache.clone())
    };
    let cached = |setting: &str| cached_before("", setting);
    assert_eq!(cached("false"), (false, None));
    assert_eq!(cached("true"), cached("{}"));
    let (_, cache) = cached(
        "{ query_except = [\"utm\"], headers = [\"X-A\"], lifetime_by_status = { 404 = \"10s\" }, shared = true }",
    );
    let cache = cache.unwrap();
    assert_eq!(cache.rules.key.headers, ["x-a"]);
    assert_eq!(cache.rules.lifetimes.by_status, [(404, Duration::from_secs(10))].into());
    assert!(cache.is_shared && !cache.by_server);
    let (_, cache) = cached_before("proxy_protocol = \"v2\"\n", "true");
    assert!(cache.unwrap().by_server, "the origins get the service address");
}

#[test]
fn proxies_that_cannot_be_are_refused() {
    let cases: &[(&[&str], &str)] = &[
        (&[NODE, AGENT, "[agent.proxy]\norigins = []\n"], "8: a pool needs at least one origin"),
        (&[NODE, AGENT, "[agent.proxy]\n"], "7: the proxy has no origins: set origins, or add an [[agent.proxy.pool]]"),
        (&[NODE, AGENT, PROXY, &pool("a", "")], "9: set origins either in [agent.proxy] or in its pools, not in both"),
        (&[NODE, AGENT, &pool("a", ""), &pool("a", "")], "11: the pool a is listed twice, first on line 8"),
        (&[NODE, AGENT, &pool("a", ""), &pool("b", "")], "10: several pools need at least one [[agent.proxy.route]]"),
        (&[NODE, AGENT, &pool("a", "weights = [1, 2]\n")], "10: there are 2 weights for 1 origins"),
        (
            &[NODE, AGENT, &pool("a", "weights = [2]\n")],
            "10: round_robin does not use weights: set balance = \"weighted\"",
        ),
        (&[NODE, AGENT, &pool("a", "hash_key = \"path\"\n")], "10: hash_key has no effect without balance = \"hash\""),
        (
            &[NODE, AGENT, &pool("a", "balance = \"hash\"\nhash_key = \"url\"\n")],
            "11: \"url\": expected \"path\", \"client\", \"header:NAME\" or \"cookie:NAME\"",
        ),
        (
            &[NODE, AGENT, &pool("a", "limits.body_bytes_per_s_min = 1000001\n")],
            "10: 1000001 is above the limit of 1000000 bytes/s (agent.proxy.pool.limits.body_bytes_per_s_min)",
        ),
        (
            &[NODE, AGENT, &pool("a", "check.statuses = \"200\"\n")],
            "10: host and statuses have no effect without path: the check only connects",
        ),
        (&[NODE, AGENT, &pool("a", "check.path = \"x\"\n")], "10: the path \"x\" does not begin with /"),
        (
            &[NODE, AGENT, &pool("a", "check = { path = \"/x\", statuses = \"299-200\" }\n")],
            "10: \"299-200\" is not a status or a range, such as \"204\" or \"200-299\"",
        ),
        (&[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\npool = \"b\"\n"], "11: there is no pool \"b\""),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\npool = \"a\"\npath = \"x\"\n"],
            "12: \"x\": a path begins with /, and has neither ? nor # nor segments such as ..",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\npool = \"a\"\nhost = \"a:80\"\n"],
            "12: \"a:80\": a host is a name such as www.example.com, all names below one (*.example.com), or an address",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\npath = \"/x\"\n"],
            "10: a route needs exactly one of pool, refuse and redirect",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\nredirect = { to = \"//%{path}\" }\n"],
            "11: \"//%{path}\": expected http://HOST[/PATH] or https://HOST[/PATH], or a path such as /new%{path}",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\nredirect = { to = \"/x\", status = 200 }\n"],
            "11: \"/x\": the status of a redirect is 301, 302, 303, 307 or 308",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), ROUTE, "request_headers.set = { Content-Length = \"5\" }\n"],
            "12: only the proxy may set content-length",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), ROUTE, "request_headers.host = \"a/b\"\n"],
            "12: \"a/b\" is not a host, with or without a port",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), ROUTE, "response_headers.append = { Vary = \"%{cookie}\" }\n"],
            "12: vary: unknown placeholder, expected %{client}, %{host} or %{path}",
        ),
        (
            &[NODE, AGENT, PROXY, "error_pages = { \"200\" = \"a.html\" }\n"],
            "9: \"200\": expected a status from 400 to 599, or 4xx or 5xx",
        ),
        (&[NODE, AGENT, PROXY, "intercept_errors = true\n"], "9: intercept_errors has no effect without error_pages"),
        (
            &[NODE, AGENT, PROXY, "trusted_proxies = [\"10.0.0.1\"]\n"],
            "9: \"10.0.0.1\" is not a network, such as 192.0.2.0/24 or 2001:db8::/32",
        ),
        (&[NODE, AGENT, &pool("a", "tls = { certificate = \"c.pem\" }\n")], "10: set both the certificate and its key"),
        (&[NODE, AGENT, &pool("a", "tls = { server_name = \"a b\" }\n")], "10: \"a b\" is not a host name"),
        (
            &[NODE, AGENT, &pool("a", "http = \"3\"\n")],
            "10: \"3\" is not allowed here: expected one of 1.1, 2, negotiated (agent.proxy.pool.http)",
        ),
    ];
    check(cases);
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let cases: &[(&[&str], &str)] = &[
        (&[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\nrefuse = 404\ncache = true\n"], "12: cache needs pool"),
        (
            &[
                NODE,
                AGENT,
                &pool("a", ""),
                "[[agent.proxy.route]]\npool = \"a\"\ncache = { query = [], query_except = [] }\n",
            ],
            "12: set query or query_except, not both",
        ),
        (
            &[NODE, AGENT, &pool("a", ""), "[[agent.proxy.route]]\npool = \"a\"\ncache = { headers = [\"a b\"] }\n"],
            "12: \"a b\": invalid HTTP header name",
        ),
        (
            &[
                NODE,
                AGENT,
                &pool("a", ""),
                "[[agent.proxy.route]]\npool = \"a\"\ncache.lifetime_by_status.999 = \"1s\"\n",
            ],
            "12: a status is a number from 200 to 599",
        ),
    ];
    check(cases);
}

#[test]
fn what_cannot_be_is_refused() {
    let two_sites = [NODE, AGENT, FILES, PROXY];
    let agents = |agents: &str| DISPATCHER.replace("{ name = \"a1\", legs = \"127.0.0.1:3\" }", agents);
    let cases: &[(&[&str], &str)] = &[
        (&[NODE], "1: the node has no role: add [dispatcher] or [agent]"),
        (&[NODE, PEER, PEER, DISPATCHER], "9: the peer a1 is listed twice, first on line 6"),
        (
            &[NODE, PEER, &PEER.replace("a1", "a2"), DISPATCHER],
            "10: the address 127.0.0.1:2 is listed twice, first on line 7",
        ),
        (
            &[NODE, "metrics = \"127.0.0.1:1\"\n", AGENT, FILES],
            "5: 127.0.0.1:1 is in use already, by 127.0.0.1:1 on line 4",
        ),
        (
            &[NODE, &AGENT.replace("127.0.0.1:4", "0.0.0.0:1"), FILES],
            "6: 0.0.0.0:1 is in use already, by 127.0.0.1:1 on line 4",
        ),
        (
            &[NODE, PEER, &DISPATCHER.replace("443\"", "443\",\n\"[::]:443\", \"0.0.0.0:443\"")],
            "10: 0.0.0.0:443 is in use already, by 0.0.0.0:443 on line 9",
        ),
        (
            &[NODE, PEER, &DISPATCHER.replace("\"0.0.0.0:443\"", "")],
            "9: the dispatcher needs an address in listen or listen_proxy",
        ),
        (&[NODE, PEER, &agents("")], "10: the dispatcher has no agents: add one, or set discover = true"),
        (&[NODE, DISPATCHER], "7: the agent a1 is not a peer: add a [[peer]]"),
        (
            &[NODE, PEER, &agents("{ name = \"n1\", legs = \"127.0.0.1:3\" }")],
            "10: this node, n1, is not an agent: it has no [agent]",
        ),
        (
            &[NODE, PEER, &agents("{name = \"a1\", legs = \"127.0.0.1:3\"},\n{name = \"a1\", legs = \"127.0.0.1:5\"}")],
            "11: the agent a1 is listed twice, first on line 10",
        ),
        (
            &[
                NODE,
                PEER,
                &PEER.replace("a1", "a5").replace(":2", ":5"),
                &agents("{name = \"a1\", legs = \"127.0.0.1:3\"},\n{name = \"a5\", legs = \"127.0.0.1:3\"}"),
            ],
            "14: the address 127.0.0.1:3 is listed twice, first on line 13",
        ),
        (&[NODE, AGENT], "5: the agent has nothing to serve: add [agent.files] or [agent.proxy]"),
        (&two_sites, "9: the agent serves either [agent.files] or [agent.proxy], not both"),
        (&[NODE, AGENT, FILES, "[agent.tls]\n"], "9: [agent.tls] has no effect without an [[agent.certificate]]"),
        (
            &[NODE, AGENT, FILES, CERTIFICATE, "[agent.tls]\nalpn = [\"h3\"]\n"],
            "13: \"h3\" is not a supported protocol: expected h2 or http/1.1",
        ),
        (
            &[NODE, AGENT, FILES, CERTIFICATE, "[agent.tls]\nalpn = [\"h2\", \"h2\"]\n"],
            "13: the protocol h2 is listed twice, first on line 13",
        ),
        (
            &[NODE, AGENT, FILES, CERTIFICATE, "[agent.tls]\nclient_ca = \"ca.pem\"\n"],
            "13: client_ca has no effect while client_certificates is \"none\"",
        ),
        (
            &[NODE, AGENT, FILES, CERTIFICATE, "[agent.tls]\nclient_certificates = \"required\"\n"],
            "13: client_certificates needs client_ca, the accepted authorities",
        ),
        (&["# nothing\n\n", NODE], "3: the node has no role: add [dispatcher] or [agent]"),
    ];
    check(cases);
}

#[test]
fn what_a_dispatcher_cannot_take_in_or_pass_through_is_refused() {
    let passthrough = |names: &str, backends: &str| {
        format!("[[dispatcher.passthrough]]\nnames = [{names}]\nbackends = [{backends}]\n")
    };
    let cases: [(&[&str], &str); 11] = [
        (
            &[NODE, PEER, DISPATCHER, "listen_proxy = [\"127.0.0.1:1\"]\n"],
            "11: 127.0.0.1:1 is in use already, by 127.0.0.1:1 on line 4",
        ),
        (
            &[NODE, PEER, DISPATCHER, "listen_proxy = [\"127.0.0.1:9\"]\n"],
            "11: listen_proxy needs proxy_from, the networks that may connect to it",
        ),
        (
            &[NODE, PEER, DISPATCHER, "listen_proxy = [\"127.0.0.1:9\"]\nproxy_from = []\n"],
            "11: listen_proxy needs proxy_from, the networks that may connect to it",
        ),
        (
            &[NODE, PEER, DISPATCHER, "proxy_from = [\"10.0.0.0/8\"]\n"],
            "11: proxy_from has no effect without listen_proxy",
        ),
        (&[NODE, PEER, DISPATCHER, &passthrough("", "")], "12: names is empty: expected at least one server name"),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"a.test\"", "")],
            "13: backends is empty: expected at least one address",
        ),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"a.test\", \"A.test\"", "\"127.0.0.1:9\"")],
            "12: the name a.test is listed twice, first on line 12",
        ),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"a.test\"", "\"127.0.0.1:9\", \"127.0.0.1:443\"")],
            "13: 127.0.0.1:443 is a listener of this dispatcher: connections would loop",
        ),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"192.0.2.1\"", "\"127.0.0.1:9\"")],
            "12: \"192.0.2.1\" is not a valid name: expected a host name such as db.example.com, or one with * as its first label",
        ),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"a.*.test\"", "\"127.0.0.1:9\"")],
            "12: \"a.*.test\" is not a valid name: expected a host name such as db.example.com, or one with * as its first label",
        ),
        (
            &[NODE, PEER, DISPATCHER, &passthrough("\"a.test\"", "\"db:9\"")],
            "13: \"db:9\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443",
        ),
    ];
    check(&cases);
}

#[test]
fn listeners_have_terms_of_their_own_and_the_rest_from_above() {
    let tls = "[agent.tls]\nversions = [\"1.3\"]\ngroups = [\"x25519\"]\nclient_ca = \"ca.pem\"\n";
    let listeners = "[[agent.tls.listener]]\naddress = \"192.0.2.1:8443\"\nclient_certificates = \"required\"\n\
                     [[agent.tls.listener]]\naddress = \":8444\"\nversions = [\"1.2\"]\nalpn = [\"http/1.1\"]\n\
                     suites = [\"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]\n";
    let tls = parse(&[NODE, AGENT, FILES, CERTIFICATE, tls, listeners]).unwrap().agent.unwrap().tls.unwrap();
    assert_eq!(
        (&tls.parameters.policy.versions[..], &tls.parameters.policy.groups[..]),
        (&[Version::Tls13][..], &[Group::X25519][..])
    );
    assert!(matches!(tls.parameters.clients, ClientCertificates::None));
    let [(strict, demanding), (port, old)] = &tls.listeners[..] else { panic!("{:?}", tls.listeners) };
    assert_eq!((strict.to_string(), port.to_string()), ("192.0.2.1:8443".into(), ":8444".into()));
    assert_eq!((&demanding.policy, &demanding.alpn), (&tls.parameters.policy, &tls.parameters.alpn));
    assert!(matches!(&demanding.clients, ClientCertificates::Required(ca) if ca.value == Path::new("etc/ca.pem")));
    assert_eq!((&old.policy.versions[..], &old.policy.groups), (&[Version::Tls12][..], &tls.parameters.policy.groups));
    assert_eq!(old.policy.suites, [CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
    assert_eq!(old.alpn, ["http/1.1"]);
}

#[test]
fn sessions_are_read_and_bounded() {
    let sessions = |lines: &str| format!("[agent.sessions]\n{lines}\n");
    let set = "mode = \"push\"\nlifetime = \"2h\"\ntickets = 1\nmemory_mib = 2\nsingle_use = true\n";
    let set =
        sessions(&(set.to_owned() + "early_data = true\nkeys_file = \"keys\"\ndatabase = \"db\"\ndatabase_mib = 3"));
    let sharing = parse(&[NODE, AGENT, FILES, &set]).unwrap().agent.unwrap().sharing;
    let hours = Duration::from_hours;
    let expected = Sharing {
        mode: Mode::Push,
        lifetime: hours(2),
        rotation: hours(1),
        tickets_per_handshake: 1,
        memory_bytes: 2 << 20,
        single_use: true,
        early_data: true,
        keys_file: Some("etc/keys".into()),
        database: Some(DatabaseFile { path: "etc/db".into(), bytes_max: 3 << 20 }),
        redis: None,
    };
    assert_eq!(sharing, expected);
    let cases = [
        (
            "mode = \"shared\"",
            "\"shared\" is not allowed here: expected one of private, tickets, push, owner, redis (agent.sessions.mode)",
        ),
        ("lifetime = \"9m\"", "lifetime must be from 10m to 7d"),
        ("lifetime = \"8d\"", "lifetime must be from 10m to 7d"),
        ("rotation = \"29m\"", "rotation must be at least 1/24 of lifetime"),
        ("tickets = 0", "tickets must be from 1 to 10"),
        ("mode = \"redis\"", "mode \"redis\" needs [agent.sessions.redis] with the url of the server"),
        ("database_mib = 5", "database_mib has no effect without database"),
        ("tickets = 11", "tickets must be from 1 to 10"),
        ("early_data = true", "early_data needs a mode in which agents store sessions: \"owner\" or \"push\""),
        ("single_use = true", "single_use needs a mode that stores sessions: \"owner\", \"push\" or \"redis\""),
    ];
    for (line, sentence) in cases {
        let refused = parse(&[NODE, AGENT, FILES, &sessions(line)]).unwrap_err();
        assert!(refused.ends_with(&format!("10: {sentence}")), "{refused}");
    }
}

#[test]
fn a_redis_server_is_read() {
    let redis = |mode: &str, lines: &str| {
        let text =
            format!("[agent.sessions]\nmode = \"{mode}\"\n[agent.sessions.redis]\nurl = \"redis://r1\"\n{lines}\n");
        let config = parse(&[NODE, AGENT, FILES, &text]);
        config.map(|config| config.agent.unwrap().sharing.redis.unwrap())
    };
    let all =
        "username = \"w\"\npassword_file = \"pw\"\nca = \"ca\"\ncertificate = \"c\"\nkey = \"/k\"\ntimeout = \"1s\"";
    let expected = RedisServer {
        url: "redis://r1".to_owned(),
        username: Some("w".to_owned()),
        password_file: Some("etc/pw".into()),
        ca: Some("etc/ca".into()),
        certificate: Some(("etc/c".into(), "/k".into())),
        timeout: Duration::from_secs(1),
    };
    assert_eq!(redis("redis", all).unwrap(), expected);
    assert_eq!(redis("redis", "").unwrap().timeout, Duration::from_millis(250));
    let cases = [
        ("owner", "", "11: [agent.sessions.redis] has no effect unless mode is \"redis\""),
        ("redis", "username = \"w\"", "13: username needs password_file"),
        ("redis", "key = \"k\"", "13: set both the certificate and its key"),
    ];
    for (mode, lines, sentence) in cases {
        let refused = redis(mode, lines).unwrap_err();
        assert!(refused.ends_with(sentence), "{refused}");
    }
}

#[test]
fn terms_under_which_nobody_connects_are_refused() {
    let tls = |lines: &str| format!("[agent.tls]\n{lines}\n");
    let listener = |lines: &str| format!("[agent.tls]\n[[agent.tls.listener]]\n{lines}\n");
    let ca = "client_ca = \"ca.pem\"\n";
    let cases = [
        (tls("versions = [\"1.1\"]"), "13: \"1.1\" is not a supported version: expected 1.2 or 1.3"),
        (tls("versions = []"), "12: versions is empty: expected 1.2, 1.3 or both"),
        (tls("versions = [\"1.3\", \"1.3\"]"), "13: the version 1.3 is listed twice, first on line 13"),
        (
            tls("suites = [\"TLS_RSA_WITH_AES_128_CBC_SHA\"]"),
            "13: \"TLS_RSA_WITH_AES_128_CBC_SHA\" is not a supported cipher suite: expected the IANA name \
             of a suite with ECDHE and an AEAD, or of TLS 1.3, such as TLS_AES_128_GCM_SHA256",
        ),
        (tls("suites = [\"TLS_AES_128_GCM_SHA256\"]"), "12: suites has none of TLS 1.2, which is in versions"),
        (
            tls("versions = [\"1.2\"]\nsuites = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\",\n \
                 \"TLS_AES_128_GCM_SHA256\"]"),
            "15: TLS_AES_128_GCM_SHA256 is a suite of TLS 1.3, which is not in versions",
        ),
        (tls("groups = [\"X25519MLKEM768\"]"), "12: groups has none for TLS 1.2, which is in versions"),
        (
            tls("groups = [\"P-256\"]"),
            "13: \"P-256\" is not a supported group: expected one of X25519MLKEM768, SecP256r1MLKEM768, x25519, secp256r1, \
             secp384r1",
        ),
        (listener("versions = [\"1.3\"]"), "13: [agent.tls.listener] lacks the key \"address\""),
        (
            listener("address = \"8443\""),
            "14: \"8443\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443 (agent.tls.listener.address)",
        ),
        (listener("address = \":0\""), "14: \":0\" is not a port, such as :8443 (agent.tls.listener.address)"),
        (
            listener("address = \"0.0.0.0:443\""),
            "14: clients cannot connect to 0.0.0.0:443: write \":443\" for all addresses (agent.tls.listener.address)",
        ),
        (
            listener("address = \":1\"\n[[agent.tls.listener]]\naddress = \":1\""),
            "16: the listener :1 is listed twice, first on line 14",
        ),
        (
            listener("address = \":1\"\nclient_certificates = \"required\""),
            "15: client_certificates needs client_ca, the accepted authorities",
        ),
        (
            listener(&format!("address = \":1\"\n{ca}")),
            "15: client_ca has no effect while client_certificates is \"none\"",
        ),
        (
            tls(&format!("{ca}[[agent.tls.listener]]\naddress = \":1\"\nclient_certificates = \"none\"")),
            "13: client_ca has no effect while client_certificates is \"none\"",
        ),
        (
            listener("address = \":1\"\nversions = [\"1.2\"]\ngroups = [\"SecP256r1MLKEM768\"]"),
            "13: groups has none for TLS 1.2, which is in versions",
        ),
    ];
    for (terms, expected) in cases {
        check(&[(&[NODE, AGENT, FILES, CERTIFICATE, &terms], expected)]);
    }
}

#[test]
fn what_is_kept_while_a_node_runs_is_named_with_its_line() {
    let before = parse(&[NODE, PEER, DISPATCHER, AGENT, FILES]).unwrap();
    let node = |from: &str, to: &str| NODE.replace(from, to);
    let agent = AGENT.replace(":4", ":5");
    let cases: [(&[&str], &str); 10] = [
        (&[&node("n1", "n2"), PEER, DISPATCHER, AGENT, FILES], "2: node.name"),
        (&[&node("\"pki\"", "\"pki2\""), PEER, DISPATCHER, AGENT, FILES], "3: node.pki"),
        (&[&node(":1\"", ":9\""), PEER, DISPATCHER, AGENT, FILES], "4: node.mesh"),
        (&[NODE, "metrics = \"127.0.0.1:8\"\n", PEER, DISPATCHER, AGENT, FILES], "5: node.metrics"),
        (&[NODE, "admin = \"x.sock\"\n", PEER, DISPATCHER, AGENT, FILES], "5: node.admin"),
        (&[NODE, PEER, AGENT, FILES], "2: dispatcher"),
        (&[NODE, PEER, DISPATCHER, "threads = 200\n", AGENT, FILES], "11: dispatcher.threads"),
        (&[NODE, PEER, DISPATCHER, &agent, FILES], "12: agent.legs"),
        (&[NODE, PEER, DISPATCHER, AGENT, "threads = 200\n", FILES], "13: agent.threads"),
        (&[NODE, PEER, DISPATCHER, AGENT, FILES, "[log]\nformat = \"json\"\n"], "16: log.format"),
    ];
    for (parts, expected) in cases {
        let refused = before.refuse_restart(&parse(parts).unwrap()).unwrap_err().to_string();
        assert_eq!(refused, format!("etc/node.toml:{expected} cannot change while the node runs: restart the node"));
    }
    let all = parse(&[&node("n1", "n2"), "admin = \"x.sock\"\n", PEER, DISPATCHER, &agent, FILES]).unwrap();
    let refused = before.refuse_restart(&all).unwrap_err().to_string();
    let lines: Vec<_> = refused.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(lines, ["node.name", "node.admin", "agent.legs"], "{refused}");
    let peer = "[[peer]]\nname = \"a2\"\nmesh = \"127.0.0.1:7\"\n";
    let limits = "[agent.limits]\nrequests_max = 5\n[log]\nlevel = \"debug\"\n";
    let other =
        parse(&[NODE, "drain_timeout = \"1s\"\n", PEER, peer, DISPATCHER, AGENT, PROXY, CERTIFICATE, limits]).unwrap();
    before.refuse_restart(&other).unwrap();
}

fn check(cases: &[(&[&str], &str)]) {
    for (parts, expected) in cases {
        let text = parts.concat();
        match parse(parts) {
            Ok(_) => panic!("accepted, against \"{expected}\":\n{text}"),
            // A text without a node has more mistakes than the expected one.
            Err(error) => assert!(
                error.lines().any(|line| line == format!("etc/node.toml:{expected}")),
                "{expected}\n{error}\n{text}"
            ),
        }
    }
}

#[test]
fn every_mistake_is_shown_by_line() {
    let text = "\
[agnet]
legs = 5
[node]
name = \"N 1\"
pki = \"pki\"
mehs = \"127.0.0.1:1\"
[[peer]]
name = \"a1\"
mesh = \"127.0.0.1:2\"
[[peer]]
name = \"a2\"
mesh = \"localhost\"
[[peer]]
name = 7
[dispatcher]
listen = [\"0.0.0.0:443\"]
agents = [{ name = \"a1\", legs = \"x\" }, { name = \"a2\", legs = \"127.0.0.1:4\", wieght = 2 }]
bulk = \"any\"
check = 5
[dispatcher.limits]
connections_max = 0
idle_timeout = 10
";
    let shown = parse(&[text]).unwrap_err();
    let expected = "\
etc/node.toml:1: unknown table [agnet]: did you mean \"agent\"?
etc/node.toml:4: a node name is 1 to 63 characters of a-z, 0-9 and '-', with no '-' at an end and not only digits (node.name)
etc/node.toml:6: [node] has no key \"mehs\": did you mean \"mesh\"?
etc/node.toml:12: \"localhost\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443 (peer.mesh)
etc/node.toml:13: [peer] lacks the key \"mesh\"
etc/node.toml:14: expected a string in quotes, found 7 (peer.name)
etc/node.toml:17: \"x\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443 (dispatcher.agents.legs)
etc/node.toml:17: [dispatcher.agents] has no key \"wieght\": did you mean \"weight\"?
etc/node.toml:18: \"any\" is not allowed here: expected one of client_address, stay, off (dispatcher.bulk)
etc/node.toml:19: expected a table with the keys interval, timeout, fall and rise, found 5 (dispatcher.check)
etc/node.toml:21: expected a whole number from 1 to 2^63, found 0 (dispatcher.limits.connections_max)
etc/node.toml:22: expected a string in quotes, found 10 (dispatcher.limits.idle_timeout)";
    assert_eq!(shown, expected);
}

/// A key that is not near any other gets the list of all keys, and hides no other mistake.
#[test]
fn only_near_keys_are_suggested() {
    let key = |table: &str, line: &str| parse(&[NODE, PEER, DISPATCHER, AGENT, table, line]).unwrap_err();
    let pool = "[[agent.proxy.pool]]\norigins = [\"http://127.0.0.1:80\"]\n";
    for (table, line) in [(pool, "rate = 5\n"), (pool, "rate = \"10/s\"\n"), ("[agent.proxy]\n", "rate = 5\n")] {
        let refused = key(table, line);
        assert!(
            refused.contains("has no key \"rate\": expected one of ") && !refused.contains("did you mean"),
            "{refused}"
        );
        assert_eq!(refused.contains("lacks the key \"name\""), table == pool, "{refused}");
    }
    let rate = key(PROXY, "[agent.proxy.limits]\nrate = 5\n");
    let expected =
        "etc/node.toml:16: expected a table with the keys requests, per and burst, found 5 (agent.proxy.limits.rate)";
    assert_eq!(rate, expected);
}

#[test]
fn what_cannot_be_is_all_shown_too() {
    let keys = "discover = true\nthreads = 1000\nlisten_proxy = [\"127.0.0.1:9\"]\n";
    let tls = "[agent.tls]\nalpn = [\"h3\"]\n";
    let proxy = [pool("a", "weights = [1, 2]\n"), pool("b", "hash_key = \"path\"\n")].concat();
    let threads = "threads = 257\n";
    let shown = parse(&[NODE, PEER, DISPATCHER, keys, AGENT, threads, &proxy, CERTIFICATE, tls]).unwrap_err();
    let lines: Vec<_> = shown.lines().map(|line| line.trim_start_matches("etc/node.toml:")).collect();
    let starts = [
        "11: discover needs join",
        "12: threads is at most",
        "13: listen_proxy needs proxy_from",
        "16: threads is at most",
        "20: there are 2 weights",
        "21: several pools need at least one",
        "24: hash_key has no effect",
        "29: \"h3\" is not a supported protocol",
    ];
    assert_eq!(lines.len(), starts.len(), "{shown}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{shown}");
}

/// One mistake of a value does not hide another that does not depend on it.
#[test]
fn no_wrong_value_hides_another() {
    let dispatcher = DISPATCHER
        .replace("\"0.0.0.0:443\"", "")
        .replace(":3\" }", ":3\" }, { name = \"a9\", legs = \"127.0.0.1:3\" }");
    let passthrough = "[[dispatcher.passthrough]]\nnames = [\"a.*.test\", \"b.*.test\"]\nbackends = []\n";
    let sessions = "[agent.sessions]\nlifetime = \"1m\"\ntickets = 0\nearly_data = true\n";
    let pool = "[[agent.proxy.pool]]\nname = \"a\"\norigins = [\"ftp://a\", \"http://127.0.0.1:80\", \"b c\"]\n\
                weights = [1]\nhash_key = \"x\"\ntls = { key = \"k\", server_name = \"a b\" }\n\
                check = { path = \"x\", statuses = \"9\" }\n\
                [[agent.proxy.pool.queue]]\npattern = \"x\"\n[[agent.proxy.pool.queue]]\npattern = \"y\"\n";
    let route = "[[agent.proxy.route]]\npool = \"b\"\npath = \"x\"\nhost = \"a:80\"\nallow = [\"1\", \"2\"]\n\
                 request_headers.set = { Content-Length = \"5\", Host = \"x y\" }\n\
                 response_headers.append = { Vary = \"%{cookie}\" }\nauth = { url = \"ftp://a/\", copy = [\"a b\"] }\n";
    let tls = "[agent.tls]\nversions = [\"1.1\"]\nsuites = [\"x\"]\nalpn = [\"h3\"]\n\
               [[agent.tls.listener]]\naddress = \":1\"\ngroups = [\"y\"]\n";
    let parts = [NODE, PEER, PEER, &dispatcher, passthrough, AGENT, CERTIFICATE, tls, sessions, pool, route];
    let shown = parse(&parts).unwrap_err();
    let expected = "\
9: the peer a1 is listed twice, first on line 6
10: the address 127.0.0.1:2 is listed twice, first on line 7
12: the dispatcher needs an address in listen or listen_proxy
13: the address 127.0.0.1:3 is listed twice, first on line 13
15: \"a.*.test\" is not a valid name
15: \"b.*.test\" is not a valid name
16: backends is empty
23: \"1.1\" is not a supported version
24: \"x\" is not a supported cipher suite
25: \"h3\" is not a supported protocol
28: \"y\" is not a supported group
30: lifetime must be
31: tickets must be
32: early_data needs
35: \"b c\" is not an origin
35: \"ftp://a\" is not an origin
36: there are 1 weights for 3 origins
37: hash_key has no effect
38: \"a b\" is not a host name
38: set both the certificate and its key
39: \"9\" is not a status
39: the path \"x\" does not begin with /
41: \"x\": no slash
43: \"y\": no slash
45: there is no pool \"b\"
46: \"x\": a path begins
47: \"a:80\": a host is
48: \"1\" is not a network
48: \"2\" is not a network
49: only the proxy may set content-length
49: only the proxy may set host
50: vary: unknown placeholder
51: \"a b\" is not a field name
51: \"ftp://a/\": expected http://";
    let lines: Vec<_> = shown.lines().map(|line| line.trim_start_matches("etc/node.toml:")).collect();
    let starts: Vec<_> = expected.lines().collect();
    assert_eq!(lines.len(), starts.len(), "{shown}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}\n{shown}");
    }
}

/// A mistake of form hides only the values that it may make look wrong.
#[test]
fn mistakes_of_form_hide_no_others() {
    let typo = "drian_timeout = \"1s\"\n";
    let two = [pool("a", ""), "[[agent.proxy.route]]\npool = \"b\"\n".to_owned()].concat();
    let shown = parse(&[NODE, typo, AGENT, &two, CERTIFICATE, "[agent.tls]\nalpn = [\"h3\"]\n"]).unwrap_err();
    let expected = "\
etc/node.toml:5: [node] has no key \"drian_timeout\": did you mean \"drain_timeout\"?
etc/node.toml:12: there is no pool \"b\"
etc/node.toml:17: \"h3\" is not a supported protocol: expected h2 or http/1.1";
    assert_eq!(shown, expected);
    // The pool of the route, the site of the agent, the role of the node and the agents of the dispatcher may be right.
    let dispatcher = DISPATCHER.replace("\"0.0.0.0:443\"", "\"127.0.0.1:1\"");
    for (parts, expected) in [
        (vec![NODE, AGENT, "[[agent.proxy.pool]]\nnaem = \"b\"\norigins = [\"http://a\"]\n", ROUTE], vec!["8"]),
        (vec![NODE, AGENT, "[agent.fils]\nroot = \"www\"\n"], vec!["7"]),
        (vec![NODE, "[agnet]\nlegs = \"127.0.0.1:4\"\n"], vec!["5"]),
        (vec![NODE, "[[peer]]\nnaem = \"a1\"\nmesh = \"127.0.0.1:2\"\n", DISPATCHER], vec!["6"]),
        (vec![NODE, AGENT, FILES, "[[agent.certificat]]\nchain = \"c\"\nkey = \"k\"\n[agent.tls]\n"], vec!["9"]),
        (vec!["[node]\nname = \"n1\"\npki = \"pki\"\n", PEER, &dispatcher], vec!["1"]),
        (vec![NODE, AGENT, PROXY, "[agent.limits]\nx = 1\n[agent.sessions]\ntickets = 0\n"], vec!["10", "12"]),
    ] {
        let shown = parse(&parts).unwrap_err();
        let lines: Vec<_> = shown.lines().filter_map(|line| line.split(':').nth(1)).collect();
        assert_eq!(lines, expected, "{shown}");
    }
}

/// Gives each key of the example values of each type in turn. No message may contain a Rust type, and each must have
/// the right line.
#[test]
fn no_type_of_rust_is_named_whatever_is_written() {
    let example = example::every_key();
    let lines: Vec<_> = example.lines().collect();
    let values = [
        "-1",
        "1.5",
        "true",
        "\"?\"",
        "[]",
        "[[1]]",
        "[\"?\"]",
        "{}",
        "{ x = 1 }",
        "1979-05-27",
        "99999999999",
        "\"\"",
    ];
    // Lists over several lines stay.
    let is_key = |line: &str| example::is_key(line) && !line.contains(" = [  ");
    let leaks = [
        "struct", "enum ", "Raw", "Other(", "::", "usize", "u32", "u16", "u64", "i64", "f64", "sequence", "variant",
        "nonzero", "$__", "field `",
    ];
    let mut looked_at = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_key(line)) {
        let (key, _) = line.split_once(" = ").unwrap();
        for value in values {
            let mut changed: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            changed[at] = format!("{key} = {value}");
            let Err(error) = parse(&[&(changed.join("\n") + "\n")]) else { continue };
            looked_at += 1;
            // An address is no path of a type.
            let words = error.replace("2001:db8::", "");
            for leak in leaks {
                assert!(!words.contains(leak), "{key} = {value}: {error}");
            }
            let here = format!("etc/node.toml:{}: ", at + 1);
            let of_types = error.contains(", found ") && !error.contains("found a date");
            assert!(!of_types || error.lines().any(|said| said.starts_with(&here)), "{key} = {value}: {error}");
        }
    }
    assert!(looked_at > 1500, "{looked_at}");
}

/// A directory with all files that the configuration of an agent names.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let disk = Self { dir: tempfile::tempdir().unwrap() };
        let authority = Authority::create(&disk.path("pki"), "c").unwrap();
        authority.issue(&NodeName::new("n1").unwrap(), &[Role::Agent], 1).unwrap();
        fs::create_dir(disk.path("www")).unwrap();
        disk.certificate("c", vec!["example.test".to_owned()]);
        disk
    }

    fn certificate(&self, name: &str, names: Vec<String>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        self.write_key(&format!("{name}.key"), &key.serialize_pem(), 0o600);
    }

    fn write_key(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Loads the configuration. Removes the directory from errors.
    fn load(&self, parts: &[&str]) -> Result<Loaded, String> {
        let mut config = Config::parse(&self.path("node.toml"), &parts.concat()).unwrap();
        // The default directory may not exist here.
        config.node.admin = self.path("admin.sock");
        config.load(&SiteMetrics::default()).map_err(|error| self.relative(&error))
    }

    /// An error without the directory.
    fn relative(&self, error: &ConfigError) -> String {
        let directory = self.dir.path().display().to_string();
        error.to_string().replace(&format!("{directory}/"), "").replace(&directory, ".")
    }
}

#[test]
fn the_files_are_loaded() {
    let disk = Disk::new();
    disk.certificate("unnamed", Vec::new());
    let unnamed = CERTIFICATE.replace("c.", "unnamed.");
    let tls = "[agent.tls]\nclient_ca = \"pki/ca.pem\"\nclient_certificates = \"required\"\n";
    let loaded = disk.load(&[NODE, AGENT, CERTIFICATE, &unnamed, "default = true\n", tls, FILES]).unwrap();
    assert_eq!(loaded.roles, [Role::Agent].into());
    let settings = loaded.agent.unwrap().settings;
    assert!(settings.tls.is_some());
    assert!(matches!(*settings.site, watari_agent::Site::Files(_)));
    let loaded = disk.load(&[NODE, AGENT, PROXY]).unwrap();
    let settings = loaded.agent.unwrap().settings;
    assert!(settings.tls.is_none());
    assert!(matches!(*settings.site, watari_agent::Site::Proxy(_)));
}

#[test]
fn what_the_proxy_changes_is_loaded() {
    let disk = Disk::new();
    for page in ["503.html", "client.html", "server.html"] {
        disk.write_key(page, "<p>sorry", 0o644);
    }
    disk.write_key("sticky.key", &"s".repeat(32), 0o600);
    let proxy = "[agent.proxy]\ntrusted_proxies = [\"10.0.0.0/8\"]\nintercept_errors = true\ncompress = {}\n\
                 error_pages = { \"503\" = \"503.html\", \"4xx\" = \"client.html\", \"5xx\" = \"server.html\" }\n"
        .to_owned()
        + &pool("a", "sticky = { cookie = \"watari\", ttl = \"1h\", secret = \"sticky.key\" }\n")
        + ROUTE
        + "request_headers = { host = \"b:80\", set = { X-A = \"%{client}\" }, append = { X-B = \"1\" }, remove = [\"X\"] }\n\
           response_headers = { set = { Strict-Transport-Security = \"max-age=1\" }, remove = [\"X\"] }\n\
           [[agent.proxy.route]]\nhost = \"c\"\nredirect = { to = \"https://a%{path}\" }\n";
    assert!(disk.load(&[NODE, AGENT, &proxy]).is_ok(), "{proxy}");
    for (key, other, expected) in [
        ("503.html", "gone.html", "gone.html: No such file or directory (os error 2)"),
        ("sticky.key", "503.html", "all users can read it"),
        ("\"watari\"", "\"a b\"", "a cookie's name has 1 to 64 letters, digits, - or _"),
    ] {
        let refused = disk.load(&[NODE, AGENT, &proxy.replace(key, other)]).err().unwrap();
        assert!(refused.contains(expected), "{refused}");
    }
    disk.write_key("sticky.key", "short", 0o600);
    let refused = disk.load(&[NODE, AGENT, &proxy]).err().unwrap();
    assert!(refused.ends_with("sticky.key: the secret of a cookie has at least 32 bytes"), "{refused}");
}

#[test]
fn files_of_no_use_are_named() {
    let disk = Disk::new();
    disk.certificate("other", vec!["example.test".to_owned()]);
    disk.certificate("unnamed", Vec::new());
    fs::write(disk.path("garbage"), "nothing").unwrap();
    disk.write_key("garbage.key", "nothing", 0o600);
    fs::write(disk.path("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let certificate = |chain: &str, key: &str| CERTIFICATE.replace("c.pem", chain).replace("c.key", key);
    let with = |chain: &str, key: &str| disk.load(&[NODE, AGENT, FILES, &certificate(chain, key)]).err().unwrap();
    let tls = "[agent.tls]\nclient_certificates = \"optional\"\nclient_ca = \"garbage\"\n";
    let cases = [
        (with("gone", "c.key"), "10: gone: No such file or directory (os error 2)"),
        (with("c.pem", "gone"), "11: gone: No such file or directory (os error 2)"),
        (
            with("c.pem", "other.key"),
            "11: other.key: the private key does not belong to the first certificate of the chain",
        ),
        (with("garbage", "c.key"), "10: garbage: contains no certificate"),
        (with("c.pem", "garbage.key"), "11: garbage.key: contains no private key"),
        (with("large", "c.key"), "10: large: too large: more than 1 MiB"),
        (
            with("unnamed.pem", "unnamed.key"),
            "10: unnamed.pem has no DNS name: set default = true, or use another certificate",
        ),
        (disk.load(&[NODE, AGENT, FILES, CERTIFICATE, tls]).err().unwrap(), "14: garbage: contains no certificate"),
        (
            disk.load(&[NODE, AGENT, &FILES.replace("www", "gone")]).err().unwrap(),
            "8: gone: No such file or directory (os error 2)",
        ),
        (
            disk.load(&[&NODE.replace("n1", "n2"), AGENT, FILES]).err().unwrap(),
            "3: pki/n2.pem: No such file or directory (os error 2) (`watari pki init` makes an authority, and `watari pki issue` a node's certificate and key)",
        ),
        (
            disk.load(&[NODE, PEER, DISPATCHER]).err().unwrap(),
            "2: the certificate of n1 does not allow the role dispatcher: issue another (watari pki issue n1 --role dispatcher)",
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error, format!("node.toml:{expected}"));
    }
}

#[test]
fn all_files_of_no_use_are_named() {
    let disk = Disk::new();
    fs::set_permissions(disk.path("c.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let gone = CERTIFICATE.replace("c.pem", "gone.pem");
    let tls = "[agent.tls]\nclient_certificates = \"optional\"\nclient_ca = \"gone.ca\"\n";
    let proxy = "[agent.proxy]\naccess_log = { file = \"gone/a.log\", format = \"json\" }\n\
                 error_pages = { \"503\" = \"503.html\", \"4xx\" = \"4xx.html\" }\n";
    let pools = ["a", "b"].map(|name| {
        let tls = format!("tls = {{ ca = \"{name}.ca\", certificate = \"{name}.pem\", key = \"{name}.key\" }}\n");
        pool(name, &tls).replace("http:", "https:") + "sticky = { cookie = \"c\", secret = \"gone.secret\" }\n"
    });
    let route = "[[agent.proxy.route]]\npool = \"a\"\n";
    let sessions = "[agent.sessions]\nmode = \"owner\"\nkeys_file = \"gone/keys\"\ndatabase = \"gone/db\"\n";
    let rest = [AGENT, &gone, tls, proxy, &pools.concat(), route, sessions].concat();
    let expected = "\
8: gone.pem: No such file
9: c.key: all users can read it
12: gone.ca: No such file
14: gone/a.log: No such file
15: 4xx.html: No such file
15: 503.html: No such file
19: a.ca: No such file
19: a.key: No such file
19: a.pem: No such file
20: gone.secret: No such file
24: b.ca: No such file
24: b.key: No such file
24: b.pem: No such file
25: gone.secret: No such file
30: cannot make gone/keys: there is no directory gone; make it
31: cannot make gone/db: there is no directory gone; make it";
    let check = |shown: &str, expected: &str| {
        let lines: Vec<_> = shown.lines().map(|line| line.trim_start_matches("node.toml:")).collect();
        assert_eq!(lines.len(), expected.lines().count(), "{shown}");
        for (line, start) in lines.iter().zip(expected.lines()) {
            assert!(line.starts_with(start), "{start}\n{shown}");
        }
    };
    check(&disk.load(&[NODE, &rest]).err().unwrap(), expected);
    // Mistakes of form and values do not hide them.
    let node = NODE.replace("n1", "n2");
    let wrong = rest.replace("pool = \"a\"", "pool = \"c\"") + "[log]\nlevle = \"info\"\n";
    fs::write(disk.path("node.toml"), [&node, &wrong].map(String::as_str).concat()).unwrap();
    let shown = disk.relative(&Config::read(&disk.path("node.toml")).unwrap_err());
    let files = expected.replace("30: ", "27: there is no pool \"c\"\n30: ");
    let admin = if Path::new(DEFAULT_ADMIN).parent().is_some_and(Path::exists) {
        ""
    } else {
        "2: cannot make the admin socket\n"
    };
    let expected = format!("{admin}3: pki/n2.pem: No such file\n{files}\n33: [log] has no key \"levle\"");
    check(&shown, &expected);
}

/// The default of a key with a mistake is not checked.
#[test]
fn a_wrong_admin_socket_is_one_mistake() {
    let disk = Disk::new();
    for (node, expected) in [
        (NODE.to_owned() + "admin = 5\n", "node.toml:5: expected a string in quotes, found 5 (node.admin)"),
        (NODE.to_owned() + "admn = \"x\"\n", "node.toml:5: [node] has no key \"admn\": did you mean \"admin\"?"),
        (NODE.replace("[node]", "[nod]"), "node.toml:1: unknown table [nod]: did you mean \"node\"?"),
    ] {
        fs::write(disk.path("node.toml"), [&node, AGENT, FILES].concat()).unwrap();
        assert_eq!(disk.relative(&Config::read(&disk.path("node.toml")).unwrap_err()), expected);
    }
}

#[test]
fn the_directory_of_the_admin_socket_exists() {
    let disk = Disk::new();
    let admin = |path: &str| {
        let config = [NODE, &format!("admin = \"{path}\"\n"), AGENT, FILES].concat();
        let config = Config::parse(&disk.path("node.toml"), &config).unwrap();
        config.load(&SiteMetrics::default()).map_err(|error| disk.relative(&error))
    };
    assert!(admin("admin.sock").is_ok());
    // A file is no directory.
    for directory in ["gone", "c.pem"] {
        let expected = format!(
            "node.toml:5: cannot make the admin socket {directory}/admin.sock: there is no directory {directory}; \
             make it (systemd: RuntimeDirectory=watari), or set admin in [node]"
        );
        assert_eq!(admin(&format!("{directory}/admin.sock")).err().unwrap(), expected);
    }
}

#[test]
fn a_key_that_everybody_can_read_is_refused() {
    let disk = Disk::new();
    let load = |mode: u32| {
        fs::set_permissions(disk.path("c.key"), fs::Permissions::from_mode(mode)).unwrap();
        disk.load(&[NODE, AGENT, FILES, CERTIFICATE])
    };
    for mode in [0o644, 0o604] {
        let expected = format!("node.toml:11: c.key: all users can read it (mode {mode:04o}): chmod 600 it");
        assert_eq!(load(mode).err().unwrap(), expected);
    }
    // A group may share a key, such as that of a service that drops its privileges.
    for mode in [0o600, 0o640, 0o400] {
        load(mode).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::read(Path::new("/nowhere/node.toml")).unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/node.toml: No such file or directory (os error 2)");
}
