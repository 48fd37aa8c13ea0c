//! Several dispatchers have the same addresses, behind a router with real multipath routes.
//!
//! The test's own namespace is the router: `c1` is a client on one of its links, the dispatchers and the agent are on
//! the other. BPF programs need root of the machine, so these tests are not in a user namespace.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use watari_test_origins::namespace::{Machine, add_bridge, is_inside_as_root};

use crate::lab::{Lab, stdout, succeed, until};
use crate::switches::{Client, Downloads, as_curl};

/// What a dispatcher logs of another one that it takes for gone.
const SILENT: &str = "a dispatcher of the shared addresses is silent";
const V4: &str = "203.0.113.1";
const V6: &str = "2001:db8:f::1";
const DISPATCHERS: [(&str, u8); 4] = [("d1", 1), ("d2", 2), ("d4", 4), ("d5", 5)];
/// The addresses and options of downloads.
const DOWNLOADS: [(&str, &[&str]); 12] = [
    (V4, &["--http1.1"]),
    (V4, &["--http1.1"]),
    (V4, &["--http1.1"]),
    (V4, &["--http1.1", "--tls-max", "1.2"]),
    (V4, &["--http2"]),
    (V4, &["--http2"]),
    (V6, &["--http1.1"]),
    (V6, &["--http1.1"]),
    (V6, &["--http1.1", "--tls-max", "1.2"]),
    (V6, &["--http2", "--tls-max", "1.2"]),
    (V6, &["--http2"]),
    (V6, &["--http2"]),
];

struct Site {
    lab: Lab,
    client: Machine,
}

impl Site {
    fn start(dispatchers: &[&str]) -> Self {
        let machines: Vec<_> = DISPATCHERS.into_iter().chain([("a1", 3)]).collect();
        let lab = Lab::with_machines(&machines);
        add_bridge("br1", &["198.51.100.9/24", "2001:db8:1::9/64"]).unwrap();
        let client = Machine::connect("br1", "vc1", &["198.51.100.2/24", "2001:db8:1::2/64"]).unwrap();
        succeed(client.command("ip").args(["route", "add", "default", "via", "198.51.100.9"]));
        succeed(client.command("ip").args(["route", "add", "default", "via", "2001:db8:1::9"]));
        for key in [
            "ipv4/ip_forward",
            "ipv6/conf/all/forwarding",
            "ipv4/fib_multipath_hash_policy",
            "ipv6/fib_multipath_hash_policy",
        ] {
            fs::write(format!("/proc/sys/net/{key}"), "1").unwrap();
        }
        let site = Self { lab, client };
        for (name, _) in DISPATCHERS {
            succeed(site.lab.command(name, "ip").args(["route", "add", "default", "via", "192.0.2.9"]));
            succeed(site.lab.command(name, "ip").args(["route", "add", "default", "via", "2001:db8::9"]));
            site.lab.write_config(name, &tables("eth0", ""));
        }
        site.lab.start_node("a1");
        for name in dispatchers {
            site.lab.start_node(name);
        }
        site.until_settled(dispatchers);
        if !dispatchers.is_empty() {
            Self::route_to(dispatchers);
        }
        site
    }

    /// The router spreads packets over these dispatchers from now on.
    fn route_to(dispatchers: &[&str]) {
        for (address, net) in [(format!("{V4}/32"), "192.0.2."), (format!("{V6}/128"), "2001:db8::")] {
            let mut command = Command::new("ip");
            command.args(["route", "replace", &address]);
            for (_, number) in DISPATCHERS.into_iter().filter(|(name, _)| dispatchers.contains(name)) {
                command.args(["nexthop", "via", &format!("{net}{number}")]);
            }
            succeed(&mut command);
        }
    }

    /// Waits until these dispatchers, and no others, accept connections, and all connections are at their primaries.
    fn until_settled(&self, dispatchers: &[&str]) {
        for name in dispatchers {
            until(&format!("{name} has settled"), || {
                let Some(shown) = self.lab.address(name, V4) else { return false };
                let why = shown["why"].as_str().unwrap();
                let knows = |other: &&str| *other == *name || why.contains(&format!("{other} serving"));
                shown["role"] == "serving"
                    && why.contains(" 0 strays")
                    && !why.contains("not agreed")
                    && why.matches(" serving").count() == dispatchers.len() - 1
                    && dispatchers.iter().all(knows)
            });
        }
    }

    fn curl(&self, address: &str, file: &str) -> Command {
        as_curl(self.client.command("curl"), &self.lab, address, file)
    }

    fn downloads(&self, rate: &str) -> Downloads {
        self.some_downloads(&DOWNLOADS, rate)
    }

    fn some_downloads(&self, downloads: &[(&str, &[&str])], rate: &str) -> Downloads {
        Downloads::begin_with(&self.lab, downloads, rate, |address, file| self.curl(address, file))
    }

    /// A counter of a dispatcher, with its prefix.
    fn counted(&self, dispatcher: &str, name: &str) -> u64 {
        let metrics = self.lab.command(dispatcher, "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output();
        let metrics = stdout(&metrics.unwrap());
        let value = |line: &str| Some(line.strip_prefix(&format!("{name} "))?.parse().unwrap());
        metrics.lines().find_map(value).unwrap_or(0)
    }
}

/// The tables of a dispatcher.
fn tables(interface: &str, keys: &str) -> String {
    format!(
        "[dispatcher]\nlisten = [\"{V4}:443\", \"[{V6}]:443\"]\n\
         agents = [{{ name = \"a1\", legs = \"192.0.2.3:7101\" }}]\n\
         [dispatcher.multipath]\naddresses = [\"{V4}\", \"{V6}\"]\ninterface = \"{interface}\"\n\
         withdraw = \"500ms\"\n{keys}\n"
    )
}

/// A start that cannot work changes nothing, and names the cause.
#[test]
fn a_start_is_refused() {
    if !is_inside_as_root("multipath::a_start_is_refused") {
        return;
    }
    let lab = Lab::with_machines(&[("d1", 1), ("a1", 3)]);
    let run = |program: &[&str], options: &[&str]| {
        let mut command = lab.command("d1", program[0]);
        command.args(&program[1..]).args([env!("CARGO_BIN_EXE_watari"), "run", "--config", "d1.toml"]).args(options);
        let output = command.output().unwrap();
        (output.status.success(), stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let refused = |program: &[&str], expected: &str| {
        let (is_done, _, said) = run(program, &[]);
        assert!(!is_done && said.contains(expected), "{said}");
        assert!(!lab.ip("d1", &["address", "show"]).contains(V4));
        let filters = lab.command("d1", "tc").args(["filter", "show", "dev", "eth0", "ingress"]).output().unwrap();
        assert_eq!(stdout(&filters), "");
    };
    lab.write_config("d1", &tables("eth7", ""));
    refused(&["timeout", "10"], "there is no interface eth7 (dispatcher.multipath)");
    lab.write_config("d1", &tables("lo", ""));
    refused(&["timeout", "10"], "the interface lo is not Ethernet (dispatcher.multipath)");
    lab.write_config("d1", &tables("eth0", "notify = \"nothing\""));
    refused(&["timeout", "10"], "the program of notify, nothing, cannot run");
    lab.write_config("d1", &tables("eth0", ""));
    let without = "-bpf,-sys_admin";
    refused(&["setpriv", "--bounding-set", without, "--inh-caps", without], "lacks the capability CAP_BPF");
    let (is_done, said, _) = run(&["timeout", "10"], &["--dry-run"]);
    assert!(is_done && said.contains(&format!("ip address add {V4}/32 dev lo")), "{said}");
    assert!(!lab.ip("d1", &["address", "show"]).contains(V4));
}

/// A router that spreads packets otherwise than before breaks nothing, and no connection has to move.
#[test]
fn a_router_may_send_packets_to_any_dispatcher() {
    if !is_inside_as_root("multipath::a_router_may_send_packets_to_any_dispatcher") {
        return;
    }
    let all = ["d1", "d2", "d4"];
    let site = Site::start(&all);
    let silences = || all.map(|name| site.lab.log(name).matches(SILENT).count());
    let counted = |name: &str| all.map(|dispatcher| site.counted(dispatcher, name));
    // On a machine that stands still for a second, dispatchers take each other for gone, and move connections.
    until("no dispatcher was silent meanwhile", || {
        let names =
            ["watari_dispatcher_connections_given_total", "watari_steering_packets_total{to=\"second_chance\"}"];
        let before = (silences(), names.map(counted));
        let mut downloads = site.downloads("2M");
        for only in all.into_iter().cycle().take(12) {
            Site::route_to(&[only]);
            sleep(Duration::from_millis(200));
        }
        Site::route_to(&all);
        downloads.assert_complete();
        let after = (silences(), names.map(counted));
        let is_undisturbed = after.0 == before.0;
        assert!(!is_undisturbed || after == before, "{after:?}, and before {before:?}");
        is_undisturbed
    });
    assert!(counted("watari_steering_packets_total{to=\"primary\"}").iter().all(|&packets| packets > 0));
}

/// The connections of a dispatcher that dies are lost, and no others. Its kernel passes packets on until the router
/// notices.
#[test]
fn a_dispatcher_that_dies_takes_only_its_own_connections_along() {
    if !is_inside_as_root("multipath::a_dispatcher_that_dies_takes_only_its_own_connections_along") {
        return;
    }
    let site = Site::start(&["d1", "d2", "d4"]);
    let mut downloads = site.downloads("2M");
    let shown = site.lab.ctl("d2", &["--json", "connections"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let own = shown.as_array().unwrap().len();
    site.lab.kill("d2");
    // A new connection, by way of the dead one's kernel, too.
    Site::route_to(&["d2"]);
    until("new connections are answered", || {
        let mut command = site.curl(V4, "");
        command.args(["--connect-timeout", "0.5"]).stderr(Stdio::null());
        stdout(&command.output().unwrap()) == "hello\n"
    });
    site.until_settled(&["d1", "d4"]);
    Site::route_to(&["d1", "d4"]);
    assert_eq!(downloads.assert_right(), (DOWNLOADS.len() - own, own));
}

/// A dispatcher gets connections, gives them to a third one, and leaves. The first one has not them in mind any more.
#[test]
fn connections_go_on_at_their_third_dispatcher() {
    if !is_inside_as_root("multipath::connections_go_on_at_their_third_dispatcher") {
        return;
    }
    let site = Site::start(&["d1"]);
    let mut downloads = site.downloads("1M");
    for (joins, all) in [("d4", &["d1", "d4"][..]), ("d5", &["d1", "d4", "d5"])] {
        site.lab.start_node(joins);
        site.until_settled(all);
    }
    site.lab.signal("d4", Signal::TERM);
    until("it leaves", || site.lab.address("d4", V4).is_none_or(|shown| shown["role"] == "leaving"));
    let refused = site.lab.ctl("d4", &["upgrade"]);
    assert!(!refused.status.success(), "a node that ends is not upgraded");
    until("it has left", || site.lab.address("d4", V4).is_none());
    site.until_settled(&["d1", "d5"]);
    downloads.assert_complete();
}

/// The last packet of a handshake with a SYN cookie has no socket. It stays at the dispatcher that has sent the cookie,
/// also while that is in doubt.
#[test]
fn syn_cookies_are_accepted() {
    if !is_inside_as_root("multipath::syn_cookies_are_accepted") {
        return;
    }
    let all = ["d1", "d2", "d4"];
    let site = Site::start(&all);
    for name in all {
        // For every handshake.
        let command = "echo 2 > /proc/sys/net/ipv4/tcp_syncookies";
        succeed(site.lab.command(name, "sh").args(["-c", command]));
    }
    site.lab.kill("d2");
    Site::route_to(&["d1", "d4"]);
    for _ in 0..10 {
        let mut command = site.curl(V4, "");
        assert_eq!(stdout(&command.args(["--connect-timeout", "5"]).output().unwrap()), "hello\n");
    }
}

/// Dispatchers without an agent go on as well as they can, and one leaves if another has an agent.
#[test]
fn a_dispatcher_stays_without_another_that_is_able() {
    if !is_inside_as_root("multipath::a_dispatcher_stays_without_another_that_is_able") {
        return;
    }
    let all = ["d1", "d2", "d4"];
    let site = Site::start(&all);
    site.lab.kill("a1");
    let shows_no_agent = |name: &str| site.lab.log(name).contains("link down peer=a1");
    until("all have noticed", || all.into_iter().all(shows_no_agent));
    // Longer than an agent may be away.
    sleep(Duration::from_secs(2));
    site.until_settled(&all);
    for name in all {
        assert!(site.lab.ip(name, &["address", "show", "dev", "lo"]).contains(V4));
    }
    site.lab.start_node("a1");
    until("clients are served", || stdout(&site.curl(V4, "").output().unwrap()) == "hello\n");
}

/// New processes of dispatchers go on with the connections, the program and what is known of the others.
#[test]
fn dispatchers_are_upgraded_under_load() {
    if !is_inside_as_root("multipath::dispatchers_are_upgraded_under_load") {
        return;
    }
    let all = ["d1", "d2", "d4"];
    let site = Site::start(&all);
    let mut downloads = site.downloads("1500k");
    for name in all {
        site.lab.upgrade(name);
        site.until_settled(&all);
    }
    downloads.assert_complete();
    site.lab.signal("d1", Signal::TERM);
    until("it has left", || site.lab.address("d1", V4).is_none());
    let filters = site.lab.command("d1", "tc").args(["filter", "show", "dev", "eth0", "ingress"]).output().unwrap();
    assert_eq!(stdout(&filters), "", "the program is removed");
    assert_eq!(site.lab.ip("d1", &["route", "show", "table", "local", V4]), "");
    assert!(!site.lab.ip("d1", &["address", "show", "dev", "lo"]).contains(V4));
}

/// Routing daemons announce the addresses that dispatchers have on their loopback interfaces, by BGP. The router's
/// multipath route follows dispatchers that come, leave and die.
#[test]
fn the_routes_of_a_routing_daemon_follow() {
    if !is_inside_as_root("multipath::the_routes_of_a_routing_daemon_follow") {
        return;
    }
    let site = Site::start(&[]);
    let daemons = Daemons::start(&site);
    for name in ["d1", "d2", "d4"] {
        site.lab.start_node(name);
    }
    until("three dispatchers are announced", || daemons.next_hops() == [1, 2, 4]);
    let mut downloads = site.some_downloads(&DOWNLOADS[..6], "1M");
    site.lab.start_node("d5");
    until("the fourth is announced", || daemons.next_hops() == [1, 2, 4, 5]);
    site.until_settled(&["d1", "d2", "d4", "d5"]);
    site.lab.signal("d1", Signal::TERM);
    until("it is withdrawn", || daemons.next_hops() == [2, 4, 5]);
    until("it has left", || site.lab.address("d1", V4).is_none());
    downloads.assert_complete();
    // The kernel removes the address of a dead dispatcher.
    site.lab.kill("d2");
    until("the dead one is withdrawn", || daemons.next_hops() == [4, 5]);
    assert_eq!(stdout(&site.curl(V4, "").output().unwrap()), "hello\n");
}

/// BIRD on the router and on each dispatcher. They end with this value.
struct Daemons(Vec<Client>);

impl Daemons {
    fn start(site: &Site) -> Self {
        let mut router = "router id 192.0.2.9;\nprotocol device { scan time 1; }\n\
                          protocol kernel { merge paths on; ipv4 { import none; export all; }; }\n"
            .to_owned();
        let timers = "hold time 3; connect delay time 1; connect retry time 1; error wait time 1, 2;";
        let run = |mut command: Command, name: &str, text: &str| {
            let path = |end: &str| site.lab.dir().join(format!("bird-{name}.{end}"));
            fs::write(path("conf"), text).unwrap();
            command.args(["-f", "-c"]).arg(path("conf")).arg("-s").arg(path("sock"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Client::start(command)
        };
        let mut running = Vec::new();
        for (name, number) in DISPATCHERS {
            let _ = writeln!(
                router,
                "protocol bgp {name} {{ local 192.0.2.9 as 65000; neighbor 192.0.2.{number} as {}; {timers} \
                 ipv4 {{ import all; export none; }}; }}",
                65000 + u32::from(number)
            );
            let text = format!(
                "router id 192.0.2.{number};\nprotocol device {{ scan time 1; }}\n\
                 protocol direct {{ ipv4; interface \"lo\"; }}\n\
                 protocol bgp {{ local 192.0.2.{number} as {}; neighbor 192.0.2.9 as 65000; {timers} \
                 ipv4 {{ import none; next hop self; export where source = RTS_DEVICE; }}; }}\n",
                65000 + u32::from(number)
            );
            running.push(run(site.lab.command(name, "bird"), name, &text));
        }
        running.push(run(Command::new("bird"), "router", &router));
        Self(running)
    }

    /// The last numbers of the addresses over which the router spreads packets.
    fn next_hops(&self) -> Vec<u8> {
        assert!(!self.0.is_empty());
        let shown = stdout(&Command::new("ip").args(["route", "show", V4]).output().unwrap());
        let mut all: Vec<_> =
            shown.split("via 192.0.2.").skip(1).map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
        all.sort_unstable();
        all
    }
}

/// Dispatchers come and leave under load. No connection is lost, and all are at their primaries afterwards.
#[test]
fn connections_go_on_while_dispatchers_come_and_leave() {
    if !is_inside_as_root("multipath::connections_go_on_while_dispatchers_come_and_leave") {
        return;
    }
    let site = Site::start(&["d1", "d2", "d4"]);
    let mut downloads = site.downloads("600k");
    let requests = [V4, V6].map(|address| {
        let mut command = site.curl(address, "?[1-150]");
        command.args(["--rate", "10/s", "--output", "/dev/null", "--write-out", "%{http_code} %{num_connects}\n"]);
        command.stdout(Stdio::piped());
        Client::start(command)
    });
    site.lab.start_node("d5");
    site.until_settled(&["d1", "d2", "d4", "d5"]);
    Site::route_to(&["d1", "d2", "d4", "d5"]);
    for (leaving, rest) in [("d1", &["d2", "d4", "d5"][..]), ("d2", &["d4", "d5"])] {
        site.lab.signal(leaving, Signal::TERM);
        // Routers notice later.
        until("it leaves", || site.lab.address(leaving, V4).is_none_or(|shown| shown["role"] == "leaving"));
        Site::route_to(rest);
        until("it has left", || site.lab.address(leaving, V4).is_none());
        site.until_settled(rest);
    }
    downloads.assert_complete();
    let taken = ["d4", "d5"].map(|name| site.counted(name, "watari_dispatcher_connections_taken_total"));
    assert!(taken.into_iter().sum::<u64>() > 0, "connections have changed their dispatcher");
    for mut client in requests {
        until("the client has ended", || client.has_ended());
        let output = stdout(&client.take_output());
        let connects: u32 = output.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<u32>().unwrap()).sum();
        assert_eq!((output.lines().filter(|line| line.starts_with("200 ")).count(), connects), (150, 1), "{output}");
    }
}
