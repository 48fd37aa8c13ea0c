//! Opens connections: TCP from a local address, then TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::plan;
use crate::request::Request;
use crate::run::Run;
use crate::sample::{ConnectionSample, Family};
use crate::site::Site;
use crate::stream::Stream;
use crate::tls::{self, TlsClient};
use crate::watchdog::Watchdog;

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) sample: ConnectionSample,
    pub(crate) route: Route,
}

/// The site of a connection and its local address.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) site: Arc<Site>,
    pub(crate) source: Option<IpAddr>,
}

impl Route {
    /// Whether the connection leads to `site`, and comes from `source` if the caller requires one.
    pub(crate) fn fits(&self, site: &Arc<Site>, source: Option<IpAddr>) -> bool {
        Arc::ptr_eq(&self.site, site) && (source.is_none() || source == self.source)
    }
}

/// Opens a connection for `request`, from `source` if the caller requires one. On failure, it records the connection's
/// sample in the run.
pub(crate) async fn open(
    run: &Run,
    tls: &TlsClient,
    request: &Request,
    source: Option<IpAddr>,
    watchdog: &mut Watchdog,
) -> Result<Opened, Ending> {
    let number = run.next_connection();
    let source = source.or_else(|| run.plan.sources.as_ref().map(|sources| sources.nth(number)));
    let Some(remote) = request.site.address_for(source) else { return Err(no_such_family(run, source)) };
    let mut sample = begin(run, request.class, remote);
    let deadline = run.shared.instant(sample.opened + run.plan.timeouts.connect);
    let attempt = watchdog.within(deadline, attempt(run, tls, request, source, &mut sample)).await;
    match attempt.unwrap_or_else(|| Err(overdue(&sample))) {
        Ok(stream) => Ok(Opened { stream, sample, route: Route { site: Arc::clone(&request.site), source } }),
        Err(ending) => {
            run.connection_ended(&ConnectionSample { closed: run.now(), ending, ..sample });
            Err(ending)
        }
    }
}

/// The sample of a connection that is about to be opened.
fn begin(run: &Run, class: usize, remote: SocketAddr) -> ConnectionSample {
    let now = run.now();
    ConnectionSample {
        class,
        family: Family::of(remote),
        local: None,
        remote,
        tls: None,
        opened: now,
        connected: None,
        secured: None,
        written: None,
        first_byte: None,
        last_byte: None,
        closed: now,
        requests: 0,
        bytes_read: 0,
        bytes_written: 0,
        ending: Ending::new(EndingKind::Normal, Phase::Close, Side::Client),
    }
}

/// Fills in `sample` as it proceeds, also on failure.
async fn attempt(
    run: &Run,
    tls: &TlsClient,
    request: &Request,
    source: Option<IpAddr>,
    sample: &mut ConnectionSample,
) -> Result<Stream, Ending> {
    let site = &request.site;
    let connected = connect(sample.remote, source, !is_one_segment(run, request)).await;
    let tcp = connected.map_err(|error| connect_failed(run, &error))?;
    sample.connected = Some(run.now());
    // Only if a log shows it: system calls dominate the cost of short connections.
    sample.local = if run.is_logged() { tcp.local_addr().ok() } else { None };
    if !site.tls {
        return Ok(Stream::Plain(tcp));
    }
    let connector = tls.connector(run.next_handshake());
    let connected = connector.connect(site.server_name.clone(), tcp).await;
    let stream = connected.map_err(|error| handshake_failed(run, &error))?;
    sample.secured = Some(run.now());
    let agreed = stream.get_ref().1;
    let seen = run.observer.observe(agreed);
    run.secured(seen.kind);
    sample.tls = Some(seen);
    if matches!(run.plan.protocol, plan::Protocol::Http2 { .. }) && agreed.alpn_protocol() != Some(b"h2") {
        let agreed = agreed.alpn_protocol().map_or("nothing".into(), String::from_utf8_lossy);
        run.shared.causes.add(format!("{NOT_BY_ALPN}: it selected {agreed}; leave out --http2 to measure HTTP/1.1"), 1);
        return Err(NO_HTTP2);
    }
    Ok(Stream::Tls(Box::new(stream)))
}

/// Whether the connection carries one request that fits one segment. Then Nagle's algorithm has nothing to delay.
fn is_one_segment(run: &Run, request: &Request) -> bool {
    let is_alone = matches!(run.plan.protocol, plan::Protocol::Http1 { requests_per_connection: Some(1), .. });
    is_alone && !request.site.tls && request.last.len() <= SEGMENT_BYTES_MIN
}

/// The segment size that every host accepts, in bytes (RFC 9293, section 3.7.1).
const SEGMENT_BYTES_MIN: usize = 536;

async fn connect(remote: SocketAddr, source: Option<IpAddr>, no_delay: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(source) = source {
        // The kernel selects the port at connect. Then the port need only be unique among connections to the same
        // server.
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&remote.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    // Reads the error only after a failure: system calls dominate the cost of short connections.
    if stream.ready(Interest::WRITABLE).await?.is_write_closed()
        && let Some(error) = stream.take_error()?
    {
        return Err(error);
    }
    Ok(stream)
}

/// The ending of a connection that exceeded the connect timeout.
fn overdue(sample: &ConnectionSample) -> Ending {
    let phase = if sample.connected.is_some() { Phase::Handshake } else { Phase::Connect };
    Ending::new(EndingKind::Timeout, phase, Side::Server)
}

/// The ending of a connection whose TCP connect failed.
fn connect_failed(run: &Run, error: &io::Error) -> Ending {
    use io::ErrorKind as Kind;
    run.shared.causes.add(format!("connect: {error}"), 1);
    match error.kind() {
        Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown => Ending::new(EndingKind::Refused, Phase::Connect, Side::Server),
        // The kernel's own timeout.
        Kind::TimedOut => Ending::new(EndingKind::Timeout, Phase::Connect, Side::Server),
        // No file descriptor, no port, no such address, or no permission.
        _ => Ending::new(EndingKind::Local, Phase::Connect, Side::Client),
    }
}

fn handshake_failed(run: &Run, error: &io::Error) -> Ending {
    if tls::is_no_protocol(error) {
        run.shared.causes.add(format!("{NOT_BY_ALPN} (alert no_application_protocol)"), 1);
    } else {
        run.shared.causes.add(format!("TLS handshake: {}", tls::sentence(error)), 1);
    }
    let side = if tls::is_refused_here(error) { Side::Client } else { Side::Server };
    Ending::new(EndingKind::Handshake, Phase::Handshake, side)
}

/// The host has no address of the same family as the source address.
fn no_such_family(run: &Run, source: Option<IpAddr>) -> Ending {
    let source = source.map_or_else(|| "any source".to_owned(), |address| address.to_string());
    run.shared.causes.add(format!("connect: the server has no address of the family of {source}"), 1);
    Ending::new(EndingKind::Local, Phase::Connect, Side::Client)
}

/// RFC 7301, section 3.2.
const NOT_BY_ALPN: &str = "TLS handshake: the server does not select the offered protocol by ALPN";

/// TLS is established, but without HTTP/2 (RFC 9113, section 3.2).
const NO_HTTP2: Ending = Ending { kind: EndingKind::Handshake, phase: Phase::Handshake, side: Side::Server };
