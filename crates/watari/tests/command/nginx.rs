//! nginx as a server whose log the tests rely on.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use watari_test_origins::LoopbackAddresses;

use super::support::{Running, WAIT_MAX};

/// The polling interval.
const POLL: Duration = Duration::from_millis(20);

/// nginx with the files of a directory, an address for HTTP and one for HTTPS, and a log of all requests.
pub(crate) struct Nginx {
    process: Running,
    directory: PathBuf,
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
}

/// A line of the log.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) client: String,
    pub(crate) uri: String,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) version: String,
    pub(crate) resumed: bool,
    pub(crate) connection: u64,
}

impl Nginx {
    /// Serves `directory`. `more` is added to the server block with TLS.
    pub(crate) fn start(directory: &Path, more: &str) -> Self {
        let addresses = LoopbackAddresses::draw();
        let (plain, tls) = (addresses.take(), addresses.take());
        configure(directory, plain, tls, more);
        let mut process = Running(spawn(directory));
        let deadline = Instant::now() + WAIT_MAX;
        while TcpStream::connect(tls).is_err() {
            assert!(process.0.try_wait().unwrap().is_none(), "{}", log(directory, "error.log"));
            assert!(Instant::now() < deadline, "nginx does not come up: {}", log(directory, "error.log"));
            thread::sleep(POLL);
        }
        Self { process, directory: directory.to_owned(), plain, tls }
    }

    /// All requests, after nginx has ended.
    pub(crate) fn requests(mut self) -> Vec<Logged> {
        self.process.signal(rustix::process::Signal::QUIT);
        self.process.wait();
        logged(&self.directory)
    }
}

/// Writes nginx's configuration and a certificate to `directory`.
pub(crate) fn configure(directory: &Path, plain: SocketAddr, tls: SocketAddr, more: &str) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(directory.join("tls.pem"), cert.pem()).unwrap();
    fs::write(directory.join("tls.key"), signing_key.serialize_pem()).unwrap();
    let root = directory.display();
    let config = format!(
        "daemon off; user root; pid {root}/pid; worker_processes 1;\n\
         events {{ worker_connections 1000; }}\n\
         http {{\n\
         log_format told '$remote_addr $request_uri $status $body_bytes_sent $ssl_protocol=$ssl_session_reused $connection';\n\
         access_log {root}/access.log told; root {root}; ssl_protocols TLSv1.2 TLSv1.3;\n\
         client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;\n\
         uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;\n\
         server {{ listen {plain}; }}\n\
         server {{ listen {tls} ssl; ssl_certificate tls.pem; ssl_certificate_key tls.key; {more} }}\n\
         }}\n"
    );
    fs::write(directory.join("nginx.conf"), config).unwrap();
}

/// The requests in the log of an nginx that has ended.
pub(crate) fn logged(directory: &Path) -> Vec<Logged> {
    log(directory, "access.log").lines().map(Logged::parse).collect()
}

impl Logged {
    fn parse(line: &str) -> Self {
        let fields: Vec<_> = line.split(' ').collect();
        let [client, uri, status, body_bytes, tls, connection] = fields[..] else { panic!("{line}") };
        let (version, reused) = tls.split_once('=').unwrap();
        Self {
            client: client.to_owned(),
            uri: uri.to_owned(),
            status: status.parse().unwrap(),
            body_bytes: body_bytes.parse().unwrap(),
            version: version.to_owned(),
            resumed: reused == "r",
            connection: connection.parse().unwrap(),
        }
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new("/usr/sbin/nginx")
        .args(["-c", "nginx.conf", "-e", "error.log", "-p"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx is installed by scripts/deps")
}

fn log(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}
