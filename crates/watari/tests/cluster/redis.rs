//! Sessions at a Redis server that may be down.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use watari_test_origins::LoopbackAddresses;

use crate::clients::tls::Taste;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan, ctl, nursery};
use crate::sessions::{clients, is_known_everywhere, is_resumed_once, stay_known_as_agents_begin_anew, visit};

/// A Redis server with a password, which keeps nothing when it ends.
pub(crate) struct Server {
    address: SocketAddr,
    dir: TempDir,
    process: Option<Child>,
}

const PASSWORD: &str = "correct horse battery staple";

impl Server {
    pub(crate) fn start() -> Self {
        let mut server = Self {
            address: LoopbackAddresses::draw().take(),
            dir: tempfile::Builder::new().prefix("watari-redis-").tempdir().unwrap(),
            process: None,
        };
        let password = server.dir.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        server.go_on();
        server
    }

    fn go_on(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--save", "", "--appendonly", "no"]);
        command.args(["--bind", &self.address.ip().to_string(), "--port", &self.address.port().to_string()]);
        command.args(["--requirepass", PASSWORD, "--dir"]).arg(self.dir.path()).stdout(Stdio::null());
        self.process = Some(nursery::start(command));
        until("the Redis server answers", || TcpStream::connect(self.address).is_ok());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Lines of `[agent.sessions]`. They live as long as the process, because plans hold static strings.
    pub(crate) fn sessions(&self, more: &str) -> &'static str {
        let (address, dir) = (self.address, self.dir.path().display());
        let server = format!("url = \"redis://{address}\"\npassword_file = \"{dir}/password\"");
        // On a busy machine, an answer may take longer than the default permits.
        let server = format!("[agent.sessions.redis]\n{server}\ntimeout = \"10s\"");
        Box::leak(format!("mode = \"redis\"\n{more}\n{server}").into_boxed_str())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn missed(cluster: &Cluster, cause: &str) -> i64 {
    cluster.count_on_agents("watari_agent_sessions_missed_total", cause)
}

#[test]
fn sessions_are_kept_at_the_server_and_known_everywhere() {
    let server = Server::start();
    let cluster = Cluster::start(&Plan { sessions: server.sessions(""), ..Plan::default() });
    let clients = clients();
    for client in &clients {
        assert!(!visit(&cluster, client).resumed);
        for _ in 0..3 {
            is_known_everywhere(&cluster, client);
        }
    }
    assert_eq!(missed(&cluster, ""), 0);
    // Agents keep only seeds, which they send to each other.
    stay_known_as_agents_begin_anew(&cluster, &clients);
}

#[test]
fn while_the_server_is_away_clients_shake_hands_in_full() {
    let mut server = Server::start();
    let cluster = Cluster::start(&Plan { sessions: server.sessions(""), ..Plan::default() });
    let client = Taste::all()[0].resuming_config();
    visit(&cluster, &client);
    is_known_everywhere(&cluster, &client);
    server.kill();
    let redis = |agent: &str| ctl::sessions(&cluster.node(agent).admin()).unwrap()["redis"].clone();
    until("all agents know", || AGENTS.iter().all(|agent| redis(agent)["connected"] == false));
    for taste in Taste::all() {
        let client = taste.resuming_config();
        for _ in 0..3 {
            assert!(!visit(&cluster, &client).resumed);
        }
    }
    assert_eq!(missed(&cluster, ""), missed(&cluster, "unreachable"));
    assert!(missed(&cluster, "unreachable") > 0);
    assert!(AGENTS.iter().all(|agent| redis(agent)["away"].as_u64() > Some(0)));
    server.go_on();
    until("sessions are kept again", || {
        let client = Taste::all()[1].resuming_config();
        visit(&cluster, &client);
        visit(&cluster, &client).resumed
    });
}

/// Of two clients that offer the same session, one resumes it.
#[test]
fn a_session_for_one_use_is_taken_away() {
    let server = Server::start();
    let cluster = Cluster::start(&Plan { sessions: server.sessions("single_use = true"), ..Plan::default() });
    is_resumed_once(&cluster, "unknown");
}
