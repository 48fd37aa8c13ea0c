//! A client and a server on loopback, each on its own thread, one connection at a time.
//!
//! The client connects, announces the connection to the server through a channel, and both perform the handshake. The
//! server therefore never waits for a connection that does not come: when the client has finished or failed, the
//! channel closes and the server ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use watari_sys::thread_cpu_time;

use crate::row::{Cost, Measured};
use crate::work::Work;

/// The server's side of TLS, configured for one suite.
pub(crate) trait Server: Send {
    /// Performs the handshake of a connection.
    fn accept(&mut self, tcp: TcpStream) -> io::Result<Box<dyn Channel>>;
}

/// The client's side of TLS, configured for one suite.
pub(crate) trait Client: Send {
    /// Performs the handshake of a connection.
    fn connect(&mut self, tcp: TcpStream, session: Session) -> io::Result<Connected>;
}

/// A TLS connection after its handshake.
pub(crate) trait Channel: Read + Write {
    /// Sends `close_notify`. The connection can still be read.
    fn finish(&mut self) -> io::Result<()>;
}

/// The session that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// No session, and the client stores none: a full handshake.
    New,
    /// A session that the client stored from an earlier connection, if it has one.
    Kept,
}

/// A client's connection after its handshake, and the result of the handshake.
pub(crate) struct Connected {
    pub(crate) channel: Box<dyn Channel>,
    pub(crate) resumed: bool,
    pub(crate) version: &'static str,
}

/// An error between client and server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoopbackError {
    /// The system did not provide a listener.
    #[error("cannot listen on loopback: {0}")]
    Listen(io::Error),
    /// Only the client had an error.
    #[error("client: {0}")]
    Client(io::Error),
    /// Only the server had an error.
    #[error("server: {0}")]
    Server(io::Error),
    /// Both had an error, one of which is the consequence of the other.
    #[error("client: {client}; server: {server}")]
    Both { client: io::Error, server: io::Error },
    /// New connections resumed a session instead of full handshakes, so their times would not be comparable.
    #[error("{0} of the new connections resumed a session")]
    NotNew(u32),
}

/// Runs the three tasks. Before the connections that reuse a session, one more connection establishes the session that
/// they offer.
pub(crate) fn measure(server: &mut dyn Server, client: &mut dyn Client, work: Work) -> Result<Measured, LoopbackError> {
    let mut run = |connections, bytes, session| visit(server, client, Visits { connections, bytes, session });
    let bulk = run(1, work.bulk_bytes, Session::New)?;
    let new = run(work.connections, 1, Session::New)?;
    if new.resumed > 0 {
        return Err(LoopbackError::NotNew(new.resumed));
    }
    run(1, 1, Session::Kept)?;
    let reuse = run(work.connections, 1, Session::Kept)?;
    Ok(Measured {
        version: bulk.version.to_owned(),
        bulk: bulk.cost,
        new: new.cost,
        reuse: reuse.cost,
        reused: reuse.resumed,
    })
}

/// Connections, one after the other.
#[derive(Clone, Copy)]
struct Visits {
    connections: u32,
    /// Bytes that the server sends on each connection.
    bytes: u64,
    session: Session,
}

/// The results of the connections.
struct Visited {
    cost: Cost,
    resumed: u32,
    version: &'static str,
}

fn visit(server: &mut dyn Server, client: &mut dyn Client, visits: Visits) -> Result<Visited, LoopbackError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(LoopbackError::Listen)?;
    let address = listener.local_addr().map_err(LoopbackError::Listen)?;
    let (announce, announced) = mpsc::channel();
    let began = Instant::now();
    let (calling, serving) = thread::scope(|scope| {
        let serving = scope.spawn(move || timed(|| serve(server, &listener, &announced, visits.bytes)));
        let calling = scope.spawn(move || timed(|| call(client, address, &announce, visits)));
        (joined(calling.join()), joined(serving.join()))
    });
    let wall = began.elapsed();
    let (((resumed, version), client_cpu), ((), server_cpu)) = both(calling, serving)?;
    Ok(Visited { cost: Cost { wall, client_cpu, server_cpu }, resumed, version })
}

fn both<C, S>(client: io::Result<C>, server: io::Result<S>) -> Result<(C, S), LoopbackError> {
    match (client, server) {
        (Ok(client), Ok(server)) => Ok((client, server)),
        (Err(client), Err(server)) => Err(LoopbackError::Both { client, server }),
        (Err(client), Ok(_)) => Err(LoopbackError::Client(client)),
        (Ok(_), Err(server)) => Err(LoopbackError::Server(server)),
    }
}

/// Turns a panic of a side into an error of that side, so that the run continues.
fn joined<T>(result: thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::Error::other("panicked")))
}

/// The client's side: returns how many connections resumed a session, and the version of the last.
fn call(
    client: &mut dyn Client,
    address: SocketAddr,
    announce: &Sender<()>,
    visits: Visits,
) -> io::Result<(u32, &'static str)> {
    let mut seen = (0, "");
    for _ in 0..visits.connections {
        let tcp = prepared(TcpStream::connect(address)?)?;
        announce.send(()).map_err(|_| io::Error::other("the server has ended"))?;
        let mut connected = client.connect(tcp, visits.session)?;
        receive(connected.channel.as_mut(), visits.bytes)?;
        end_of(connected.channel.as_mut())?;
        connected.channel.finish()?;
        seen = (seen.0 + u32::from(connected.resumed), connected.version);
    }
    Ok(seen)
}

/// The server's side. Both sides send `close_notify` and wait for the peer's: OpenSSL discards sessions of connections
/// that end without it.
fn serve(server: &mut dyn Server, listener: &TcpListener, announced: &Receiver<()>, bytes: u64) -> io::Result<()> {
    while announced.recv().is_ok() {
        let tcp = prepared(listener.accept()?.0)?;
        let mut channel = server.accept(tcp)?;
        send(channel.as_mut(), bytes)?;
        channel.finish()?;
        end_of(channel.as_mut())?;
    }
    Ok(())
}

fn send(channel: &mut dyn Channel, bytes: u64) -> io::Result<()> {
    let mut rest = bytes;
    while rest > 0 {
        let len = rest.min(RECORD.len() as u64) as usize;
        channel.write_all(&RECORD[..len])?;
        rest -= len as u64;
    }
    channel.flush()
}

fn receive(channel: &mut dyn Channel, bytes: u64) -> io::Result<()> {
    let mut buffer = [0; RECORD.len()];
    let mut rest = bytes;
    while rest > 0 {
        let room = rest.min(buffer.len() as u64) as usize;
        match channel.read(&mut buffer[..room])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => rest -= len as u64,
        }
    }
    Ok(())
}

/// Checks that the peer sends nothing more.
fn end_of(channel: &mut dyn Channel) -> io::Result<()> {
    match channel.read(&mut [0; 1])? {
        0 => Ok(()),
        _ => Err(io::Error::other("the peer sent more than it should")),
    }
}

/// Sets `TCP_NODELAY`, and timeouts for a peer that does not respond.
fn prepared(tcp: TcpStream) -> io::Result<TcpStream> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(WAIT_MAX))?;
    tcp.set_write_timeout(Some(WAIT_MAX))?;
    Ok(tcp)
}

/// Runs `action`, and returns the CPU time that this thread used for it.
fn timed<T>(action: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Duration)> {
    let before = thread_cpu_time();
    let done = action()?;
    Ok((done, thread_cpu_time().saturating_sub(before)))
}

/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The bytes that are sent: as many as fit into one TLS record.
static RECORD: [u8; 16_384] = [b'w'; 16_384];
