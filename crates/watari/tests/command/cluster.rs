//! A dispatcher and two agents as processes on loopback addresses of their own, and clients that hold connections open.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::support::{Ended, Running, WAIT_MAX, next_notification, own_loopback, watari, write_key};

const HOST: &str = "site.test";
/// More bytes than all buffers between an agent and a client that does not read.
pub(crate) const LARGE_LEN: u64 = 64 << 20;

/// `d1`, which leaves connections at the agent of their handshake, and `a1` and `a2`.
pub(crate) struct Cluster {
    service: SocketAddr,
    tls: Arc<ClientConfig>,
    pub(crate) d1: Node,
    pub(crate) a1: Node,
    pub(crate) a2: Node,
    // Dropped after the processes: they must end before their directory is removed.
    _dir: tempfile::TempDir,
}

/// A node, and the socket for its messages to the service manager.
pub(crate) struct Node {
    pub(crate) process: Running,
    dir: PathBuf,
    socket: String,
    manager: UnixDatagram,
}

impl Cluster {
    /// Starts all nodes, and waits until they are linked and the dispatcher can use both agents.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certificate = site(dir.path());
        let ip = own_loopback();
        configure(dir.path(), &ip);
        let [d1, a1, a2] = ["d1", "a1", "a2"].map(|name| Node::start(dir.path(), name));
        let service = format!("{ip}:8443").parse().unwrap();
        let cluster = Self { service, tls: trust(certificate), d1, a1, a2, _dir: dir };
        for node in [&cluster.d1, &cluster.a1, &cluster.a2] {
            node.expects_notification("READY=1");
            until(|| node.list("nodes"), |nodes| nodes.iter().all(|node| node["up"] == true));
        }
        cluster.until("nodes", |nodes| nodes.iter().filter(|node| node["available"] == true).count() == 2);
        cluster
    }

    /// Runs `watari ctl` for the dispatcher.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Ended {
        self.d1.ctl(arguments)
    }

    /// A list from the dispatcher.
    pub(crate) fn list(&self, what: &str) -> Vec<Value> {
        self.d1.list(what)
    }

    /// Polls the dispatcher until its list meets the condition.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) {
        until(|| self.list(what), is_so);
    }

    /// A new client that has had one response, with its connection from the dispatcher's list.
    pub(crate) fn client(&self) -> (Client, Value) {
        let mut client = Client::connect(self.service, &self.tls);
        client.page();
        // The dispatcher may learn a little later that the handshake is complete.
        let own = client.address();
        self.until("connections", |connections| {
            connections.iter().any(|connection| connection["client"] == own && !connection["version"].is_null())
        });
        let connection = self.connection(&client);
        (client, connection)
    }

    /// A new client that has had the server's first flight, and has not continued.
    pub(crate) fn greeted_client(&self) -> Client {
        Client::connect(self.service, &self.tls).greeted()
    }

    /// A client whose connection is on `agent`.
    pub(crate) fn client_on(&self, agent: &str) -> Client {
        // Handshakes go to the agents in turn.
        let mut clients = (0..2).map(|_| self.client());
        clients.find(|(_, connection)| connection["node"] == agent).unwrap().0
    }

    pub(crate) fn connection(&self, client: &Client) -> Value {
        let own = client.address();
        self.list("connections").into_iter().find(|connection| connection["client"] == own).unwrap()
    }
}

impl Node {
    fn start(dir: &Path, name: &str) -> Self {
        let (process, manager) = Running::start_node(dir, &format!("{name}.toml"));
        Self { process, dir: dir.to_owned(), socket: format!("{name}.sock"), manager }
    }

    fn ctl(&self, arguments: &[&str]) -> Ended {
        watari(&self.dir, &[&["ctl", "--admin", &self.socket], arguments].concat())
    }

    fn list(&self, what: &str) -> Vec<Value> {
        serde_json::from_str(&self.ctl(&["--json", what]).done()).unwrap()
    }

    /// Waits for the next message to the service manager.
    pub(crate) fn expects_notification(&self, state: &str) {
        assert_eq!(next_notification(&self.manager), state);
    }
}

/// Polls until the list meets the condition.
fn until(list: impl Fn() -> Vec<Value>, is_so: impl Fn(&[Value]) -> bool) {
    let begin = Instant::now();
    loop {
        let list = list();
        if is_so(&list) {
            return;
        }
        assert!(begin.elapsed() < WAIT_MAX, "{list:?}");
    }
}

/// A client that speaks HTTP/1.1 over one connection.
pub(crate) struct Client(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Client {
    fn address(&self) -> String {
        self.0.get_ref().sock.local_addr().unwrap().to_string()
    }

    fn connect(service: SocketAddr, tls: &Arc<ClientConfig>) -> Self {
        let socket = TcpStream::connect(service).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let connection = ClientConnection::new(tls.clone(), ServerName::try_from(HOST).unwrap()).unwrap();
        Self(BufReader::new(StreamOwned::new(connection, socket)))
    }

    /// Sends its hello and waits for the server's flight, which it does not read yet.
    fn greeted(mut self) -> Self {
        let StreamOwned { conn, sock } = self.0.get_mut();
        conn.write_tls(sock).unwrap();
        assert_eq!(sock.peek(&mut [0]).unwrap(), 1);
        self
    }

    /// Requests the page and reads it.
    pub(crate) fn page(&mut self) {
        let len = self.begin("/index.html");
        let mut page = vec![0; usize::try_from(len).unwrap()];
        self.0.read_exact(&mut page).unwrap();
        assert_eq!(page, b"the page\n");
    }

    /// Requests the large file, and reads only the head of the response.
    pub(crate) fn begin_large(&mut self) {
        assert_eq!(self.begin("/large.bin"), LARGE_LEN);
    }

    /// Reads the rest of the large file.
    pub(crate) fn finish_large(&mut self) {
        let mut zeros = (&mut self.0).take(LARGE_LEN);
        let mut chunk = vec![0; 1 << 16];
        let mut len = 0;
        while len < LARGE_LEN {
            let read = zeros.read(&mut chunk).unwrap();
            assert!(read > 0, "cut at {len}");
            assert!(chunk[..read].iter().all(|byte| *byte == 0));
            len += read as u64;
        }
    }

    /// Sends a request and reads the head of the response. Returns the length of its body.
    fn begin(&mut self, path: &str) -> u64 {
        let stream = self.0.get_mut();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").unwrap();
        stream.flush().unwrap();
        let mut lines = (&mut self.0).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).map(|line| line.to_ascii_lowercase()).collect();
        let len = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        len.unwrap().parse().unwrap()
    }
}

/// Makes the agents' content, and their certificate, which it returns.
fn site(dir: &Path) -> CertificateDer<'static> {
    fs::create_dir(dir.join("www")).unwrap();
    fs::write(dir.join("www/index.html"), "the page\n").unwrap();
    let large = fs::File::create(dir.join("www/large.bin")).unwrap();
    large.set_len(LARGE_LEN).unwrap();
    // A file that may change has no strong validator, so its download cannot continue at another agent.
    large.set_modified(SystemTime::now() + Duration::from_hours(1)).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(dir.join("site.pem"), certificate.pem()).unwrap();
    write_key(&dir.join("site.key"), &key.serialize_pem());
    certificate.der().clone()
}

fn configure(dir: &Path, ip: &str) {
    watari(dir, &["pki", "init"]).done();
    let nodes = [("d1", "dispatcher"), ("a1", "agent"), ("a2", "agent")];
    let peers = (1..).zip(nodes).map(|(number, (name, _))| peer(name, ip, number)).collect::<Vec<_>>().concat();
    for (number, (name, role)) in (1..).zip(nodes) {
        watari(dir, &["pki", "issue", name, "--role", role]).done();
        let role = if role == "agent" { agent(ip, number) } else { dispatcher(ip) };
        // Longer than any test waits. So an earlier end has another cause.
        let node = format!(
            "[node]\nname = \"{name}\"\npki = \"pki\"\nmesh = \"{ip}:700{number}\"\nadmin = \"{name}.sock\"\n\
             drain_timeout = \"10m\"\n"
        );
        fs::write(dir.join(format!("{name}.toml")), node + &peers + &role).unwrap();
    }
}

fn peer(name: &str, ip: &str, number: u32) -> String {
    format!("[[peer]]\nname = \"{name}\"\nmesh = \"{ip}:700{number}\"\n")
}

fn dispatcher(ip: &str) -> String {
    format!(
        "[dispatcher]\nlisten = [\"{ip}:8443\"]\nbulk = \"stay\"\n\
         agents = [{{ name = \"a1\", legs = \"{ip}:7102\" }}, {{ name = \"a2\", legs = \"{ip}:7103\" }}]\n"
    )
}

fn agent(ip: &str, number: u32) -> String {
    format!(
        "[agent]\nlegs = \"{ip}:710{number}\"\n[[agent.certificate]]\nchain = \"site.pem\"\nkey = \"site.key\"\n\
         [agent.files]\nroot = \"www\"\n"
    )
}

fn trust(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}
