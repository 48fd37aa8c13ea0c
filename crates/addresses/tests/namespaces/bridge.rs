//! Two dispatchers and a client on a bridge, each with a network namespace. The client has that of the test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use watari_addresses::Flow;
use watari_test_origins::namespace;

use crate::lab::{ip, until};

pub(crate) const V4: &str = "192.0.2.100";
pub(crate) const V6: &str = "2001:db8::100";
pub(crate) const CLIENT: &str = "192.0.2.9";
/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(20);

pub(crate) struct Bridge {
    pub(crate) d1: Machine,
    pub(crate) d2: Machine,
}

/// A machine on the bridge, with the interface `eth0`.
pub(crate) struct Machine {
    _held: namespace::Machine,
    namespace: File,
    pub(crate) mac: [u8; 6],
    /// The number of its port at the bridge.
    pub(crate) port: u32,
}

impl Bridge {
    pub(crate) fn new() -> Self {
        ip(&["link", "set", "lo", "up"]);
        namespace::add_bridge("br0", &[&format!("{CLIENT}/24"), "2001:db8::9/64"]).unwrap();
        Self { d1: Machine::new("d1", 1), d2: Machine::new("d2", 2) }
    }

    /// The link-layer address of a machine, as the client knows it. The client asks anew.
    pub(crate) fn neighbour(address: IpAddr) -> Option<String> {
        let address = address.to_string();
        ip(&["neigh", "flush", "dev", "br0"]);
        // Any packet asks.
        let socket = std::net::UdpSocket::bind(if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
        let port_of_discard = SocketAddr::new(address.parse().unwrap(), 9);
        let _ = socket.send_to(b"", port_of_discard);
        let shown = || ip(&["neigh", "show", &address, "dev", "br0"]);
        until("the client knows the machine, or that there is none", || {
            shown().contains("lladdr ") || shown().contains("FAILED")
        });
        shown().split("lladdr ").nth(1).map(|rest| rest[..17].to_owned())
    }
}

impl Machine {
    fn new(name: &str, number: u8) -> Self {
        let addresses = [format!("192.0.2.{number}/24"), format!("2001:db8::{number}/64")];
        let port = format!("v{name}");
        let held = namespace::Machine::connect("br0", &port, &addresses.each_ref().map(String::as_str)).unwrap();
        let namespace = File::open(held.namespace()).unwrap();
        let mut machine = Self { _held: held, namespace, mac: [0; 6], port: interface_index(&port) };
        let shown = machine.run(|| ip(&["link", "show", "dev", "eth0"]));
        let mac = shown.split("link/ether ").nth(1).unwrap()[..17].to_owned();
        for (octet, text) in machine.mac.iter_mut().zip(mac.split(':')) {
            *octet = u8::from_str_radix(text, 16).unwrap();
        }
        machine
    }

    pub(crate) fn shown_mac(&self) -> String {
        self.mac.map(|octet| format!("{octet:02x}")).join(":")
    }

    pub(crate) fn namespace(&self) -> File {
        self.namespace.try_clone().unwrap()
    }

    /// Runs this in the namespace of the machine. Sockets that it makes stay there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&self.namespace);
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Adds an address that is not preferred as a source.
    pub(crate) fn add(&self, address: IpAddr) {
        let address = format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 });
        let lifetime = ["valid_lft", "3600", "preferred_lft", "0", "nodad"];
        self.run(|| ip(&[&["address", "add", &address, "dev", "eth0"], &lifetime[..]].concat()));
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.run(|| ip(&["address", "show", "dev", "eth0"])).contains(&format!(" {address}/"))
    }

    /// A connection from the client to an address of this machine.
    pub(crate) fn connect(&self, address: IpAddr) -> Connection {
        let listener = self.run(|| TcpListener::bind((address, 0)).unwrap());
        let near = TcpStream::connect_timeout(&listener.local_addr().unwrap(), WAIT_MAX).unwrap();
        let far = listener.accept().unwrap().0;
        Connection::new(near, far)
    }

    /// A counter of /proc/net/snmp.
    pub(crate) fn counter(&self, prefix: &str, name: &str) -> u64 {
        let text = self.run(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        counter(&text, prefix, name)
    }
}

/// A counter of rows of names and rows of values.
pub(crate) fn counter(text: &str, prefix: &str, name: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let at = rows.next().unwrap().split_whitespace().position(|shown| shown == name).unwrap();
    rows.next().unwrap().split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// Moves the thread into a network namespace.
pub(crate) fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// The number of an interface of this namespace. /sys is that of another one.
fn interface_index(name: &str) -> u32 {
    let shown = ip(&["-oneline", "link", "show", "dev", name]);
    shown.split(':').next().unwrap().trim().parse().unwrap()
}

/// Both ends of a connection.
pub(crate) struct Connection {
    /// The client's.
    pub(crate) near: TcpStream,
    /// The dispatcher's.
    pub(crate) far: TcpStream,
}

impl Connection {
    pub(crate) fn new(near: TcpStream, far: TcpStream) -> Self {
        for end in [&near, &far] {
            end.set_nonblocking(false).unwrap();
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(WAIT_MAX)).unwrap();
            end.set_write_timeout(Some(WAIT_MAX)).unwrap();
        }
        Self { near, far }
    }

    pub(crate) fn flow(&self) -> Flow {
        Flow { client: self.near.local_addr().unwrap(), server: self.near.peer_addr().unwrap() }
    }

    /// Sends that many bytes both ways, and checks them.
    pub(crate) fn exchange(&self, len: usize) {
        let pattern = |direction: u8| (0..len).map(|at| (at % 251) as u8 ^ direction).collect::<Vec<_>>();
        thread::scope(|scope| {
            for (mut from, mut to, direction) in [(&self.near, &self.far, 1), (&self.far, &self.near, 2)] {
                scope.spawn(move || from.write_all(&pattern(direction)).unwrap());
                scope.spawn(move || {
                    let mut received = vec![0; len];
                    to.read_exact(&mut received).unwrap();
                    assert!(received == pattern(direction), "other bytes arrived");
                });
            }
        });
    }
}
