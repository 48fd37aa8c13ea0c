//! Network namespaces: one of its own for a test, without other traffic and with all ports free, and machines in it.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(5);

/// Set in the process inside the namespace, with the test's name.
const INSIDE: &str = "WATARI_TEST_INSIDE";

/// Runs `test`, the calling test, once more in a user, mount and network namespace of its own, as root there. In that
/// run it returns true, and the test continues. Only the loopback interface is there, and it is down.
pub fn is_inside(test: &str) -> bool {
    run_inside(test, &["--map-root-user", "--mount", "--net"])
}

/// The same without a user namespace, for what only root of the machine may do. Without root, prints that the test is
/// skipped, and returns false.
pub fn is_inside_as_root(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: {test} needs root");
        return false;
    }
    run_inside(test, &["--mount", "--net"])
}

#[allow(clippy::unwrap_used, reason = "only tests call it")]
fn run_inside(test: &str, namespaces: &[&str]) -> bool {
    if env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return true;
    }
    let output = Command::new("unshare")
        .args(namespaces)
        .arg("--")
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // Passes on the measurements.
    io::stdout().write_all(said.as_bytes()).unwrap();
    false
}

/// Makes a bridge with these addresses (`192.0.2.9/24`) in this namespace.
pub fn add_bridge(name: &str, addresses: &[&str]) -> io::Result<()> {
    ip(Command::new("ip"), &["link", "add", name, "type", "bridge"])?;
    // Otherwise the bridge would get another address with each port that comes or goes.
    ip(Command::new("ip"), &["link", "set", name, "address", "02:00:00:00:00:09"])?;
    for address in addresses {
        add_address(Command::new("ip"), address, name)?;
    }
    ip(Command::new("ip"), &["link", "set", name, "up"])
}

/// A machine: a network namespace whose `eth0` is connected to a bridge of this namespace. It ends with this value, but
/// not the processes in it.
#[derive(Debug)]
pub struct Machine {
    /// Holds the namespace.
    holder: Child,
}

impl Machine {
    /// A machine with these addresses, at the port `port` of `bridge`.
    pub fn connect(bridge: &str, port: &str, addresses: &[&str]) -> io::Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sleep", "infinity"]).stdin(Stdio::null()).stdout(Stdio::null());
        let machine = Self { holder: command.spawn()? };
        let own = fs::read_link("/proc/self/ns/net")?;
        let deadline = Instant::now() + WAIT_MAX;
        while fs::read_link(machine.namespace())? == own {
            if Instant::now() > deadline {
                return Err(io::Error::other("unshare makes no namespace"));
            }
            sleep(POLL);
        }
        ip(machine.command("ip"), &["link", "set", "lo", "up"])?;
        machine.add_link(bridge, port, "eth0", addresses)?;
        Ok(machine)
    }

    /// Connects an interface of this machine, with these addresses, to the port `port` of `bridge`.
    pub fn add_link(&self, bridge: &str, port: &str, interface: &str, addresses: &[&str]) -> io::Result<()> {
        let id = self.holder.id().to_string();
        ip(Command::new("ip"), &["link", "add", port, "type", "veth", "peer", "name", interface, "netns", &id])?;
        ip(Command::new("ip"), &["link", "set", port, "master", bridge, "up"])?;
        for address in addresses {
            add_address(self.command("ip"), address, interface)?;
        }
        ip(self.command("ip"), &["link", "set", interface, "up"])
    }

    /// The file of its network namespace.
    pub fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// A program on this machine.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace())).arg("--").arg(program);
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// IPv6 addresses are there at once, without a check for duplicates.
fn add_address(command: Command, address: &str, interface: &str) -> io::Result<()> {
    let checked: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
    ip(command, &[&["address", "add", address, "dev", interface], checked].concat())
}

fn ip(mut command: Command, arguments: &[&str]) -> io::Result<()> {
    let output = command.args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))))
}
