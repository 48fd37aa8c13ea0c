//! Two machines on a link: the test's own namespace, and a neighbour.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The neighbour's namespace, on the other end of `eth0`. It ends with this value.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    /// This namespace gets `192.0.2.1` and `2001:db8::1` on `eth0`, the neighbour `192.0.2.2` and `2001:db8::2`.
    pub(crate) fn connect() -> Self {
        let child = Command::new("unshare").args(["--net", "--", "sleep", "infinity"]).stdin(Stdio::null()).spawn();
        let neighbour = Self(child.unwrap());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", neighbour.0.id());
        until("the neighbour has its namespace", || std::fs::read_link(&path).is_ok_and(|theirs| theirs != own));
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "peer0"]);
        ip(&["link", "set", "peer0", "netns", &neighbour.0.id().to_string()]);
        for (number, name) in [(1, "eth0"), (2, "peer0")] {
            let run = |arguments: &[&str]| if number == 1 { ip(arguments) } else { neighbour.ip(arguments) };
            run(&["address", "add", &format!("192.0.2.{number}/24"), "dev", name]);
            run(&["address", "add", &format!("2001:db8::{number}/64"), "dev", name, "nodad"]);
            run(&["link", "set", name, "up"]);
        }
        neighbour
    }

    /// Runs `ip` there, and returns its output.
    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        self.output("ip", arguments).1
    }

    /// Whether the machine with `address` answers from there, also to an ARP request or neighbour solicitation: it
    /// refuses a connection to a port without a listener.
    pub(crate) fn reaches(&self, address: &str) -> bool {
        const REFUSED: i32 = 7;
        self.ip(&["neigh", "flush", "all"]);
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let url = format!("http://{host}:9/");
        self.output("curl", &["--silent", "--connect-timeout", "0.3", &url]).0 == Some(REFUSED)
    }

    fn output(&self, program: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let net = format!("--net=/proc/{}/ns/net", self.0.id());
        let output = Command::new("nsenter").arg(net).arg("--").arg(program).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `ip` here, and returns its output.
pub(crate) fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {WAIT_MAX:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
