//! A real server, in a process of its own.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use watari_test_origins::LoopbackAddresses;

use crate::wait::until;

/// A Redis server that persists nothing. It is killed when this value is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    dir: TempDir,
    process: Child,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| String::new()).await
    }

    /// Starts a server with more configuration lines, which may depend on its address.
    pub(crate) async fn start_with(more: impl FnOnce(IpAddr) -> String) -> Self {
        let (dir, address) = (tempfile::tempdir().unwrap(), LoopbackAddresses::draw().take());
        let more = more(address.ip());
        let port = if more.contains("tls-cert-file") { "port 0\ntls-port" } else { "port" };
        let config = format!(
            "bind {}\n{port} {}\ndir {}\nsave \"\"\nappendonly no\nloglevel warning\n{more}",
            address.ip(),
            address.port(),
            dir.path().display()
        );
        fs::write(dir.path().join("redis.conf"), config).unwrap();
        let process = run(dir.path());
        let mut server = Self { address, dir, process };
        server.wait().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again after it was killed.
    pub(crate) async fn start_again(&mut self) {
        self.process = run(self.dir.path());
        self.wait().await;
    }

    /// A connection of a user with all permissions.
    pub(crate) async fn admin(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    async fn wait(&mut self) {
        let address = self.address;
        until("the server listens", async || tokio::net::TcpStream::connect(address).await.is_ok()).await;
        assert!(self.process.try_wait().unwrap().is_none(), "the server has ended");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(dir: &Path) -> Child {
    let mut command = Command::new("redis-server");
    command.arg(dir.join("redis.conf")).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("`scripts/deps test` installs redis-server")
}
