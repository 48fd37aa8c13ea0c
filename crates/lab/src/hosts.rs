//! The hosts of a trial: network namespaces on bridges, with control groups. They exist only inside the sandbox.
//!
//! ```text
//!   sandbox:   bridge clients ---- p1        p2 ---- bridge servers
//!                    |              |         |            |
//!                    p0             +-- wan --+            p3         wan: a router, number 254 in both networks
//!                    |                                     |
//!   hosts:      client-1: eth0                       server-a: eth0
//! ```

mod process;
mod sampler;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use process::{Process, ProcessError};
pub use sampler::{Sampler, Samples};

use crate::commands;
use crate::control_group::{self, Groups, HostGroup};
use crate::experiment::{self, Network, Router};

/// The number of routers in their networks.
const ROUTER_NUMBER: u8 = 254;
/// How long a router may take until packets pass.
const ROUTER_READY_MAX: Duration = Duration::from_secs(30);
/// The largest number of a host.
const NUMBER_MAX: u8 = 250;
/// Names of interfaces have at most 15 characters, and those of bridges start with `br-`.
const NAME_LEN_MAX: usize = 12;
/// Settings of namespaces below `/proc/sys/net`, and their values.
const SETTINGS: [(&str, &str); 5] = [
    // A load opens more connections than ports are there by default, ..
    ("ipv4/ip_local_port_range", "2000 65000"),
    // .. and needs these again before the minute of TIME-WAIT has passed.
    ("ipv4/tcp_tw_reuse", "1"),
    // Servers ask for long queues of new connections. The kernel allows 4096 by default.
    ("core/somaxconn", "16384"),
    // Otherwise a router would send no IPv6 packets in its first two seconds: a check for duplicates of its link-local
    // addresses, which its neighbour solicitations come from.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
];
/// A word of a processor mask.
const MASK_BITS: usize = 32;
/// Where `ip` has the names of namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing}: {error}")]
    File { doing: String, error: io::Error },
    #[error("{command} failed: {stderr}")]
    Ip { command: String, stderr: String },
    #[error("{name} is not a name of 1 to {NAME_LEN_MAX} of a-z, 0-9 and -")]
    Name { name: String },
    #[error("{host} has the number {number}: the largest is {NUMBER_MAX}, and the smallest 1")]
    Number { host: String, number: u8 },
    #[error("{host} and {other} have the same number in the network {network}")]
    SameNumber { host: String, other: String, network: String },
    #[error("two hosts or routers are named {name}: each needs a name of its own")]
    SameName { name: String },
    #[error("{place} names the network {name} twice")]
    SameNetwork { place: String, name: String },
    #[error(
        "{router} is the second router in the network {network}, where only one can have the number {ROUTER_NUMBER}"
    )]
    SecondRouter { router: String, network: String },
    #[error("{place} names the network {name}, which is not there")]
    Network { place: String, name: String },
    #[error("the network {name} has no address with the number {number}: use a prefix of at most 24 bits (IPv6: 120)")]
    Prefix { name: String, number: u8 },
    #[error("no host is named {0}")]
    Host(String),
    #[error(transparent)]
    ControlGroup(#[from] control_group::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// All hosts of a trial. They end with this value, and all processes on them.
#[derive(Debug)]
pub struct Testbed {
    hosts: Vec<Host>,
    /// Names of bridges.
    bridges: Vec<String>,
    routers: Vec<(String, Process)>,
    /// Why the kernel may change the order of packets.
    unordered: Option<String>,
}

#[derive(Debug)]
pub struct Host {
    name: String,
    group: HostGroup,
    /// In the order of its interfaces.
    addresses: Vec<(String, Vec<IpAddr>)>,
}

/// Once in the sandbox, before the first testbed: a place for the names of namespaces, and names of hosts.
pub fn prepare_sandbox(hosts_file: &Path) -> Result<(), Error> {
    if fs::create_dir_all(NAMESPACES).is_err() {
        // Only root of the machine can create it in the directory of the machine.
        run(Command::new("mount"), &["-t", "tmpfs", "lab", "/run"])?;
        fs::create_dir_all(NAMESPACES).map_err(file(format!("create {NAMESPACES}")))?;
    }
    run(Command::new("mount"), &["-t", "tmpfs", "lab", NAMESPACES])?;
    fs::write(hosts_file, "").map_err(file(format!("write {}", hosts_file.display())))?;
    run(Command::new("mount"), &["--bind", &hosts_file.display().to_string(), "/etc/hosts"])?;
    run(Command::new("ip"), &["link", "set", "lo", "up"])
}

impl Testbed {
    /// Makes the hosts. `delaying` is the command of a router, to which the names of its two interfaces are added. It
    /// prints a line when packets can pass.
    pub fn new(
        networks: &[Network],
        hosts: &[experiment::Host],
        routers: &[Router],
        groups: &Groups,
        delaying: &dyn Fn(&Router) -> Vec<String>,
    ) -> Result<Self, Error> {
        check(networks, hosts, routers)?;
        let mut testbed = Self { hosts: Vec::new(), bridges: Vec::new(), routers: Vec::new(), unordered: None };
        for network in networks {
            testbed.add_bridge(&network.name)?;
        }
        let mut ports = 0..;
        for host in hosts {
            let connected: Vec<&Network> = host.networks.iter().filter_map(|name| find(networks, name)).collect();
            let group = groups.add_host(&host.name, host.cpu)?;
            testbed.hosts.push(Host { name: host.name.clone(), group, addresses: Vec::new() });
            add_namespace(&host.name)?;
            for (index, network) in connected.into_iter().enumerate() {
                let port = ports.next().unwrap_or(0);
                let addresses = connect(&host.name, index, network, host.number, port)?;
                if network.in_order && testbed.unordered.is_none() {
                    testbed.unordered = keep_order(port).err().map(|error| error.to_string());
                }
                let added = testbed.hosts.last_mut().expect("it was added above");
                added.addresses.push((network.name.clone(), addresses));
            }
        }
        for router in routers {
            let networks = router.between.each_ref().map(|name| find(networks, name).expect("check has found it"));
            testbed.add_router(router, networks, hosts, &mut ports, &delaying(router))?;
        }
        testbed.write_hosts_file()?;
        Ok(testbed)
    }

    /// How the networks differ from those of the experiment.
    pub fn deviation(&self) -> Option<String> {
        let because = self.unordered.as_ref()?;
        Some(format!("Packets of a host can arrive in another order, which costs retransmissions: {because}."))
    }

    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        self.hosts.iter().find(|host| host.name == name).ok_or_else(|| Error::Host(name.to_owned()))
    }

    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    fn add_bridge(&mut self, network: &str) -> Result<(), Error> {
        let name = format!("br-{network}");
        ip(&["link", "add", &name, "type", "bridge"])?;
        self.bridges.push(name.clone());
        // Otherwise the bridge would get another address with each port that comes or goes.
        ip(&["link", "set", &name, "address", "02:00:00:00:00:01"])?;
        ip(&["link", "set", &name, "up"])
    }

    fn add_router(
        &mut self,
        router: &Router,
        networks: [&Network; 2],
        hosts: &[experiment::Host],
        ports: &mut impl Iterator<Item = u32>,
        delaying: &[String],
    ) -> Result<(), Error> {
        add_namespace(&router.name)?;
        for (index, network) in networks.into_iter().enumerate() {
            connect(&router.name, index, network, ROUTER_NUMBER, ports.next().unwrap_or(0))?;
        }
        for [near, far] in [networks, [networks[1], networks[0]]] {
            for host in
                hosts.iter().filter(|host| host.networks.contains(&near.name) && !host.networks.contains(&far.name))
            {
                add_routes(&host.name, near, far)?;
            }
        }
        let mut command = in_namespace(&router.name, &delaying[0]);
        command.args(&delaying[1..]).args(["eth0", "eth1"]);
        let mut process = Process::spawn_with_pipe(command)?;
        process.wait_for_line(&router.name, ROUTER_READY_MAX)?;
        self.routers.push((router.name.clone(), process));
        Ok(())
    }

    /// Gives the hosts names: `server-a`, and `server-a.clients` for its address in the network `clients`.
    fn write_hosts_file(&self) -> Result<(), Error> {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for host in &self.hosts {
            for (index, (network, addresses)) in host.addresses.iter().enumerate() {
                for address in addresses {
                    let short = if index == 0 { format!(" {}", host.name) } else { String::new() };
                    let _ = writeln!(text, "{address} {}.{network}{short}", host.name);
                }
            }
        }
        fs::write("/etc/hosts", text).map_err(file("write the names of hosts".to_owned()))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for host in &self.hosts {
            host.group.remove();
            delete_namespace(&host.name, host.addresses.len());
        }
        for (name, mut process) in self.routers.drain(..) {
            process.kill();
            delete_namespace(&name, 2);
        }
        for bridge in &self.bridges {
            let _ = ip(&["link", "delete", bridge]);
        }
    }
}

impl Host {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program on this host. Its process id is that of the started process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut enter = String::new();
        for path in self.group.entrances() {
            let _ = write!(enter, "echo 0 >'{}'; ", path.display());
        }
        let mut command = Command::new("sh");
        let namespace = format!("--net={NAMESPACES}/{}", self.name);
        command.args(["-e", "-c", &format!("{enter}exec nsenter {namespace} -- \"$@\""), "sh"]).arg(program);
        command
    }

    /// The addresses in a network, IPv4 first. None in one that it is not in.
    pub fn addresses(&self, network: &str) -> &[IpAddr] {
        let addresses = self.addresses.iter().find(|(name, _)| name == network);
        addresses.map_or(&[], |(_, addresses)| addresses)
    }

    /// The CPU time of all its processes until now.
    pub fn used(&self) -> Result<Duration, Error> {
        Ok(self.group.used()?)
    }

    fn group(&self) -> HostGroup {
        self.group.clone()
    }
}

pub(crate) fn check(networks: &[Network], hosts: &[experiment::Host], routers: &[Router]) -> Result<(), Error> {
    let names = networks.iter().map(|network| &network.name).chain(hosts.iter().map(|host| &host.name));
    for name in names.chain(routers.iter().map(|router| &router.name)) {
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_valid) {
            return Err(Error::Name { name: name.clone() });
        }
    }
    let mut seen = BTreeSet::new();
    for name in hosts.iter().map(|host| &host.name).chain(routers.iter().map(|router| &router.name)) {
        if !seen.insert(name) {
            return Err(Error::SameName { name: name.clone() });
        }
    }
    for host in hosts {
        if host.number == 0 || host.number > NUMBER_MAX {
            return Err(Error::Number { host: host.name.clone(), number: host.number });
        }
        control_group::check_quota(&host.name, host.cpu)?;
        check_networks(networks, &host.networks, &format!("the host {}", host.name), host.number)?;
    }
    for (index, host) in hosts.iter().enumerate() {
        for other in hosts[..index].iter().filter(|other| other.number == host.number) {
            if let Some(network) = host.networks.iter().find(|network| other.networks.contains(network)) {
                let (host, other, network) = (host.name.clone(), other.name.clone(), network.clone());
                return Err(Error::SameNumber { host, other, network });
            }
        }
    }
    let mut routed = BTreeSet::new();
    for router in routers {
        check_networks(networks, &router.between, &format!("the router {}", router.name), ROUTER_NUMBER)?;
        if let Some(network) = router.between.iter().find(|name| !routed.insert(*name)) {
            return Err(Error::SecondRouter { router: router.name.clone(), network: network.clone() });
        }
    }
    Ok(())
}

/// The networks of a host or router with a number.
fn check_networks(networks: &[Network], names: &[String], place: &str, number: u8) -> Result<(), Error> {
    for (index, name) in names.iter().enumerate() {
        let place = || place.to_owned();
        if names[..index].contains(name) {
            return Err(Error::SameNetwork { place: place(), name: name.clone() });
        }
        let missing = || Error::Network { place: place(), name: name.clone() };
        addresses(find(networks, name).ok_or_else(missing)?, number)?;
    }
    Ok(())
}

fn find<'a>(networks: &'a [Network], name: &str) -> Option<&'a Network> {
    networks.iter().find(|network| network.name == name)
}

/// The addresses of a number in a network, IPv4 first.
fn addresses(network: &Network, number: u8) -> Result<Vec<IpAddr>, Error> {
    let missing = || Error::Prefix { name: network.name.clone(), number };
    let mut found = Vec::new();
    if let Some(prefix) = network.ipv4 {
        let address = u32::from(prefix.network()).checked_add(number.into()).ok_or_else(missing)?;
        found.push(IpAddr::V4(address.into()));
    }
    if let Some(prefix) = network.ipv6 {
        let address = u128::from(prefix.network()).checked_add(number.into()).ok_or_else(missing)?;
        found.push(IpAddr::V6(address.into()));
    }
    let is_within = |address: &IpAddr| match address {
        IpAddr::V4(address) => network.ipv4.is_some_and(|prefix| prefix.contains(address)),
        IpAddr::V6(address) => network.ipv6.is_some_and(|prefix| prefix.contains(address)),
    };
    if found.is_empty() || !found.iter().all(is_within) { Err(missing()) } else { Ok(found) }
}

fn add_namespace(name: &str) -> Result<(), Error> {
    ip(&["netns", "add", name])?;
    ip_on(name, &["link", "set", "lo", "up"])?;
    for (key, value) in SETTINGS {
        run(in_namespace(name, "sh"), &["-c", &format!("echo {value} >/proc/sys/net/{key}")])?;
    }
    Ok(())
}

/// The kernel removes interfaces some time after their namespace, and the next testbed has the same names. So they go
/// first.
fn delete_namespace(name: &str, interfaces: usize) {
    for index in 0..interfaces {
        let _ = ip_on(name, &["link", "delete", &format!("eth{index}")]);
    }
    let _ = ip(&["netns", "delete", name]);
}

/// Connects `eth<index>` of a namespace to the bridge of a network. Returns its addresses.
fn connect(name: &str, index: usize, network: &Network, number: u8, port: u32) -> Result<Vec<IpAddr>, Error> {
    let (port, bridge, interface) = (format!("p{port}"), format!("br-{}", network.name), format!("eth{index}"));
    ip(&["link", "add", &port, "type", "veth", "peer", "name", &interface, "netns", name])?;
    ip(&["link", "set", &port, "master", &bridge, "up"])?;
    let addresses = addresses(network, number)?;
    for address in &addresses {
        // IPv6 addresses are there at once, without a check for duplicates.
        let (len, checked) = match address {
            IpAddr::V4(_) => (network.ipv4.map_or(0, |prefix| prefix.prefix_len()), &[][..]),
            IpAddr::V6(_) => (network.ipv6.map_or(0, |prefix| prefix.prefix_len()), &["nodad"][..]),
        };
        let address = format!("{address}/{len}");
        ip_on(name, &[&["address", "add", &address, "dev", &interface], checked].concat())?;
    }
    ip_on(name, &["link", "set", &interface, "up"])?;
    Ok(addresses)
}

/// Makes one processor pass on all packets that come in at a port of a bridge. Otherwise the processor that sends a packet
/// also passes it on, and a connection that sends from two (data from its process, and the next data when an
/// acknowledgement comes) has its packets reordered.
///
/// Only root of the machine may do it (the kernel's rule for `rps_cpus`).
fn keep_order(port: u32) -> Result<(), Error> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get).min(MASK_BITS);
    let mask = 1_u32 << (port as usize % processors);
    // `/sys` of the machine shows other interfaces, and has the control groups.
    // `tee` says why it cannot write.
    let set = format!("mount -t sysfs lab /sys; echo {mask:x} | tee /sys/class/net/p{port}/queues/rx-0/rps_cpus");
    run(Command::new("unshare"), &["--mount", "sh", "-e", "-c", &set])
}

/// Sends packets of a host from one network to another through their router.
fn add_routes(host: &str, near: &Network, far: &Network) -> Result<(), Error> {
    for gateway in addresses(near, ROUTER_NUMBER)? {
        let prefix = match gateway {
            IpAddr::V4(_) => far.ipv4.map(|prefix| prefix.to_string()),
            IpAddr::V6(_) => far.ipv6.map(|prefix| prefix.to_string()),
        };
        if let Some(prefix) = prefix {
            ip_on(host, &["route", "add", &prefix, "via", &gateway.to_string()])?;
        }
    }
    Ok(())
}

fn in_namespace(name: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", PathBuf::from(NAMESPACES).join(name).display())).args(["--", program]);
    command
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    run(Command::new("ip"), arguments)
}

fn ip_on(name: &str, arguments: &[&str]) -> Result<(), Error> {
    ip(&[&["-n", name], arguments].concat())
}

fn run(mut command: Command, arguments: &[&str]) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = commands::run(command.args(arguments));
    let ran = ran.map_err(file(format!("run {program} (Debian: iproute2, util-linux)")))?;
    ran.map(drop).map_err(|stderr| Error::Ip { command: format!("{program} {}", arguments.join(" ")), stderr })
}

fn file(doing: String) -> impl Fn(io::Error) -> Error {
    move |error| Error::File { doing: doing.clone(), error }
}
