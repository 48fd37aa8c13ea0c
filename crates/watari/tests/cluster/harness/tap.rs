//! A TCP relay in front of a node that can record connections, hold their data, delay pieces, and break them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::pattern::Random;

/// The length of the recorded beginning of each connection, in bytes.
const RECORDED_MAX: usize = 1024;

/// The percentage of pieces that are lost after [`Tap::lose`].
const LOST_OF_100: u64 = 5;
/// The delay of a lost piece and of all data behind it, which is the effect of a lost packet on a TCP connection. Linux
/// sends a packet again after at least 200 ms, and after 400 ms more if it is lost again.
const LATE: Duration = Duration::from_millis(500);

/// Relays every connection to one server.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    open: Vec<TcpStream>,
    /// The first bytes of each connection's client.
    recorded: Vec<Vec<u8>>,
    /// Decides which pieces are lost. `None`: none are.
    losing: Option<Random>,
    lost: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passing,
    Holding,
    Broken,
}

impl Tap {
    /// Relays from `address` to `server`.
    pub(crate) fn start(address: SocketAddr, server: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let state =
            Mutex::new(State { mode: Mode::Passing, open: Vec::new(), recorded: Vec::new(), losing: None, lost: 0 });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let tap = Self { address, shared: shared.clone() };
        thread::spawn(move || {
            for client in listener.incoming() {
                relay(&shared, client.unwrap(), server);
            }
        });
        tap
    }

    /// From now on no data arrive, as if every packet were lost.
    pub(crate) fn hold(&self) {
        drop(self.set(Mode::Holding));
    }

    /// Closes all connections, and every new one at once.
    pub(crate) fn break_off(&self) {
        let mut state = self.set(Mode::Broken);
        for stream in state.open.drain(..) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From now on all data arrive, including held data.
    pub(crate) fn pass(&self) {
        drop(self.set(Mode::Passing));
    }

    /// From now on some pieces, of both directions, arrive late.
    pub(crate) fn lose(&self, seed: u64) {
        self.shared.lock().losing = Some(Random::new(seed));
    }

    /// The number of late pieces so far.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lock().lost
    }

    /// The first bytes of each connection's client so far.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        self.shared.lock().recorded.clone()
    }

    fn set(&self, mode: Mode) -> MutexGuard<'_, State> {
        let mut state = self.shared.lock();
        state.mode = mode;
        self.shared.changed.notify_all();
        state
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until data may pass. Returns false if they never will.
    fn may_pass(&self) -> bool {
        let state = self.changed.wait_while(self.lock(), |state| state.mode == Mode::Holding).unwrap();
        state.mode == Mode::Passing
    }

    /// Sleeps for the delay of a late piece. The delay itself is the disturbance: no state is waited for by it.
    fn delay(&self) {
        let mut state = self.lock();
        let is_lost = state.losing.as_mut().is_some_and(|random| random.below(100) < LOST_OF_100);
        state.lost += usize::from(is_lost);
        drop(state);
        if is_lost {
            thread::sleep(LATE);
        }
    }

    fn record(&self, connection: usize, bytes: &[u8]) {
        let recorded = &mut self.lock().recorded[connection];
        let room = RECORDED_MAX - recorded.len();
        recorded.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

fn relay(shared: &Arc<Shared>, client: TcpStream, server: SocketAddr) {
    // If the server is down, the client sees its connection closed.
    let Ok(server) = TcpStream::connect(server) else { return };
    let mut state = shared.lock();
    if state.mode == Mode::Broken {
        return;
    }
    let connection = state.recorded.len();
    state.recorded.push(Vec::new());
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        state.open.push(stream.try_clone().unwrap());
    }
    let (client_out, server_out) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (up, down) = (shared.clone(), shared.clone());
    thread::spawn(move || copy(&up, client, server_out, |bytes| up.record(connection, bytes)));
    thread::spawn(move || copy(&down, server, client_out, |_| {}));
}

fn copy(shared: &Shared, mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        see(&buffer[..len]);
        shared.delay();
        if !shared.may_pass() || to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The end of a stream passes like data.
    if shared.may_pass() {
        let _ = to.shutdown(Shutdown::Write);
    }
}
