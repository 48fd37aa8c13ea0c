//! Two machines and a client on a bridge, each with a network namespace. The client has that of the test.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, SockRef, Socket, Type};
use watari_test_origins::namespace;

pub(crate) const V4: &str = "192.0.2.100";
pub(crate) const V6: &str = "2001:db8::100";
/// The values of the product's connections (`watari_sys::tcp`), in bytes.
const BUFFER_LEN: usize = 256 * 1024;
/// Far longer than any step takes.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

pub(crate) struct Lab {
    pub(crate) a: Machine,
    pub(crate) b: Machine,
}

/// Who decides on the sizes of a connection's buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// The program, as the product does.
    Fixed,
    /// The kernel, by what the connection needs.
    Adapted,
}

/// A machine on the bridge.
pub(crate) struct Machine {
    _held: namespace::Machine,
    namespace: File,
    mac: String,
}

impl Lab {
    /// Machine a has the service addresses.
    pub(crate) fn new() -> Self {
        ip("link set lo up");
        namespace::add_bridge("br0", &["192.0.2.9/24", "2001:db8::9/64"]).unwrap();
        let lab = Self { a: Machine::new("a", 1), b: Machine::new("b", 2) };
        for address in [V4, V6] {
            lab.a.add(address.parse().unwrap());
        }
        lab
    }
}

impl Machine {
    fn new(name: &str, number: u8) -> Self {
        let addresses = [format!("192.0.2.{number}/24"), format!("2001:db8::{number}/64")];
        let machine =
            namespace::Machine::connect("br0", &format!("v{name}"), &addresses.each_ref().map(String::as_str));
        let machine = machine.unwrap();
        let namespace = File::open(machine.namespace()).unwrap();
        let shown = machine.command("ip").args(["link", "show", "dev", "eth0"]).output().unwrap().stdout;
        let mac = String::from_utf8(shown).unwrap().split("link/ether ").nth(1).unwrap()[..17].to_owned();
        Self { _held: machine, namespace, mac }
    }

    /// Runs this in the namespace of the machine. Sockets that it makes stay there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Gives the machine a service address, and tells the client.
    pub(crate) fn add(&self, address: IpAddr) {
        let len = if address.is_ipv4() { 24 } else { 64 };
        let nodad = if address.is_ipv4() { "" } else { "nodad" };
        self.run(|| ip(&format!("address add {address}/{len} dev eth0 {nodad}")));
        ip(&format!("neigh replace {address} lladdr {} dev br0", self.mac));
    }

    pub(crate) fn remove(&self, address: IpAddr) {
        let len = if address.is_ipv4() { 24 } else { 64 };
        self.run(|| ip(&format!("address del {address}/{len} dev eth0")));
    }

    /// A counter of a file below /proc/net that has rows of names and rows of values.
    pub(crate) fn counter(&self, file: &str, prefix: &str, name: &str) -> u64 {
        let text = self.run(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap());
        let mut rows = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let at = rows.next().unwrap().split_whitespace().position(|shown| shown == name).unwrap();
        rows.next().unwrap().split_whitespace().nth(at).unwrap().parse().unwrap()
    }

    /// A connection from the client to a service address of this machine: the client's end and the machine's, which
    /// does not block.
    pub(crate) fn connect(&self, address: IpAddr, buffers: Buffers) -> (TcpStream, TcpStream) {
        let listener = self.run(|| {
            let socket = Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::STREAM, None).unwrap();
            prepare(&socket, buffers);
            socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
            socket.listen(1).unwrap();
            TcpListener::from(socket)
        });
        let near = TcpStream::connect_timeout(&listener.local_addr().unwrap(), WAIT_MAX).unwrap();
        prepare(&near, buffers);
        near.set_read_timeout(Some(WAIT_MAX)).unwrap();
        near.set_write_timeout(Some(WAIT_MAX)).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_nonblocking(true).unwrap();
        (near, far)
    }
}

/// Options of the product's connections.
fn prepare(socket: &impl AsFd, buffers: Buffers) {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true).unwrap();
    if buffers == Buffers::Fixed {
        socket.set_send_buffer_size(BUFFER_LEN).unwrap();
        socket.set_recv_buffer_size(BUFFER_LEN).unwrap();
    }
    socket.set_tcp_congestion(b"cubic").unwrap();
}

/// Sets a key below `net.ipv4` in the client's namespace.
pub(crate) fn sysctl(key: &str, value: &str) {
    fs::write(format!("/proc/sys/net/ipv4/{key}"), value).unwrap();
}

/// Runs `ip` in the namespace of the thread.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {WAIT_MAX:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
