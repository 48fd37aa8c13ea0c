//! The response cache of agents, with real clients and scripted origins.

mod attacks;
mod crowds;
mod directory;
mod experiments;
mod hostile_origins;
mod listeners;
mod moves;
mod operating;
mod paths;
mod purges;
mod reuse;
pub(crate) mod script;
mod sharing;
mod suite;
mod upgrades;

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::Value;

use crate::clients::curl::{Answer, Curl, Manner};
use crate::clients::http::{Head, Http};
use crate::clients::tls::{Taste, Tls};
use crate::harness::node::Node;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::wait::until;
use crate::harness::{Cluster, Content, Plan, ctl};
use script::{Asked, Reply, Script};

const ALONE: &[&str] = &["a1"];
/// The store has entries in a directory of the agent's own.
const DISK: &str = "memory_mib = 64\ndirectory = \"NAME.cache\"\ndirectory_mib = 64";
/// A response that is fresh for long.
const FRESH: &str = "cache-control: max-age=600\r\n";

/// A cluster whose connections stay at the agent that their address selects.
fn settled() -> Plan {
    Plan { dispatcher: "bulk = \"off\"", ..Plan::default() }
}

/// A cluster with caches before a scripted origin.
struct Scene {
    cluster: Cluster,
    origin: Script,
}

/// A response that a client has.
#[derive(Debug)]
struct Got {
    head: Head,
    content: Vec<u8>,
}

impl Scene {
    /// One agent with a cache in memory.
    fn set(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::with("true", "", &Plan { agents: Some(ALONE), ..Plan::default() }, answer)
    }

    /// `cache` is the value of the route, `store` the lines of `[agent.proxy.cache]`. Returns when all stores are open.
    fn with(cache: &str, store: &str, plan: &Plan, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let origin = Script::start(answer);
        let content = Content::Proxy(tables(&origin, cache, store));
        let scene = Self { cluster: Cluster::start(&Plan { content, ..*plan }), origin };
        scene.cluster.agents().for_each(wait_until_open);
        scene
    }

    /// The agent of a scene with one.
    fn agent(&self) -> &Node {
        self.cluster.node(ALONE[0])
    }

    fn connect(&self) -> Http<Tls> {
        self.connect_from(self.cluster.clients.any())
    }

    /// A client of this agent, in a cluster that moves no connections.
    fn connect_to(&self, agent: &str) -> Http<Tls> {
        self.connect_from(self.cluster.clients.served_by(agent))
    }

    fn connect_from(&self, source: IpAddr) -> Http<Tls> {
        Http::new(Tls::to_site(source, self.cluster.service, &Taste::default()).unwrap())
    }

    /// A request on a connection of its own, with these further lines.
    fn get(&self, target: &str, lines: &str) -> Got {
        ask(&mut self.connect(), "GET", target, lines)
    }

    /// A call of curl with this version of HTTP.
    fn curl(&self, http: &'static str, target: &str, arguments: &[&str]) -> Answer {
        let curl = Curl {
            manner: Manner { http, tls: "1.3", key: KeyKind::P256 },
            source: self.cluster.clients.any(),
            service: self.cluster.service,
            ca: &self.cluster.site_ca(),
            dir: self.cluster.dir(),
        };
        curl.run(target, &[&["--header", &format!("host: {SITE}")], arguments].concat())
    }

    /// The requests with this result at all agents.
    fn results(&self, result: &str) -> i64 {
        self.cluster.count_on_agents("watari_cache_requests_total", result)
    }

    /// The results of requests for `target` in the access log of the only agent.
    fn logged(&self, target: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.cluster.dir().join("a1.access.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines = lines.filter(|line| line["target"] == target);
        lines.map(|line| line["cache"].as_str().unwrap_or("none").to_owned()).collect()
    }
}

impl Got {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }

    /// The field `Cache-Status`.
    fn status(&self) -> &str {
        self.head.field("cache-status").unwrap_or_default()
    }

    fn is_hit(&self) -> bool {
        self.status().starts_with("watari; hit")
    }
}

/// The tables of an agent before this origin. `NAME` is replaced by the name of the agent.
fn tables(origin: &Script, cache: &str, store: &str) -> String {
    format!(
        "[agent.proxy]\naccess_log = {{ file = \"NAME.access.log\", format = \"json\" }}\n\
         [agent.proxy.cache]\n{store}\n\
         [[agent.proxy.pool]]\nname = \"site\"\norigins = [\"http://{}\"]\n\
         [[agent.proxy.route]]\npool = \"site\"\ncache = {cache}\n",
        origin.address
    )
}

/// Sends a request, and reads the response to its end.
fn ask(http: &mut Http<Tls>, method: &str, target: &str, lines: &str) -> Got {
    http.send(format!("{method} {target} HTTP/1.1\r\nhost: {SITE}\r\n{lines}\r\n").as_bytes()).unwrap();
    take(http, method)
}

/// Reads the response to an earlier request.
fn take(http: &mut Http<Tls>, method: &str) -> Got {
    let head = http.read_head().unwrap();
    let content = match (method, head.status, head.field("transfer-encoding")) {
        ("HEAD", ..) | (_, 204 | 304, _) => Vec::new(),
        (_, _, Some(_)) => read_chunks(http),
        _ => read_exact(http, head.len().unwrap() as usize),
    };
    Got { head, content }
}

fn read_exact(http: &mut Http<Tls>, len: usize) -> Vec<u8> {
    let mut content = Vec::new();
    while content.len() < len {
        content.extend_from_slice(&http.read_piece(len - content.len()).unwrap());
    }
    content
}

fn read_chunks(http: &mut Http<Tls>) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let chunk = http.read_chunk().unwrap();
        if chunk.is_empty() {
            return content;
        }
        content.extend_from_slice(&chunk);
    }
}

/// The state of an agent's cache.
fn state(agent: &Node) -> Option<Value> {
    let output = ctl::cache(&agent.admin(), &["--json"], &["status"]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn is_open(agent: &Node) -> bool {
    state(agent).is_some_and(|state| state["is_open"] == true)
}

fn wait_until_open(agent: &Node) {
    until("the store is open", || is_open(agent));
}

/// Purges, and returns when the agent has done it.
fn purge(agent: &Node, what: &[&str]) -> String {
    let output = ctl::cache(&agent.admin(), &[], &[&["purge"], what].concat());
    assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The directory of an agent's cache.
fn directory(scene: &Scene, agent: &str) -> PathBuf {
    scene.cluster.dir().join(format!("{agent}.cache"))
}
