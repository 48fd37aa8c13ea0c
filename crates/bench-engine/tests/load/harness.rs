//! Scripted servers, and loads for them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use watari_bench_engine::ending::{Ending, EndingKind, Phase, Side};
use watari_bench_engine::list::AccessList;
use watari_bench_engine::load::{Finished, Load};
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts};
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::sample::ConnectionSample;
use watari_bench_engine::site::Site;
use watari_bench_engine::tally::Endings;
use watari_bench_engine::tls::TlsOptions;

/// A step of the script that a server runs for each connection. After the last step, it closes the connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Reads up to the end of a request's head.
    Request,
    /// Writes.
    Say(&'static [u8]),
    /// Begins again with the first step.
    Again,
    /// Closes with a reset.
    Reset,
    /// Does nothing until the client closes.
    Stall,
    /// Waits until so many clients have connected.
    Await(usize),
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nwatari";

/// A server on loopback. Its thread ends with the process, because it may wait for a client that never connects.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Number of requests whose heads were read.
    pub(crate) requests: Arc<AtomicU64>,
    /// The clients' addresses.
    pub(crate) clients: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Server {
    pub(crate) fn start(steps: &[Step]) -> Self {
        Self::at("127.0.0.1:0", steps)
    }

    pub(crate) fn at(address: &str, steps: &[Step]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, requests: Arc::default(), clients: Arc::default() };
        let (steps, requests, clients) = (steps.to_vec(), Arc::clone(&server.requests), Arc::clone(&server.clients));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                clients.lock().unwrap().push(stream.peer_addr().unwrap());
                let (steps, requests, clients) = (steps.clone(), Arc::clone(&requests), Arc::clone(&clients));
                // Errors of a connection are ignored.
                thread::spawn(move || serve(stream, &steps, &requests, &clients));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(
    mut stream: TcpStream,
    steps: &[Step],
    requests: &AtomicU64,
    clients: &Mutex<Vec<SocketAddr>>,
) -> io::Result<()> {
    let mut unread = Vec::new();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        at += 1;
        match step {
            Step::Request => {
                if !read_head(&mut stream, &mut unread)? {
                    return Ok(());
                }
                requests.fetch_add(1, Ordering::SeqCst);
            }
            Step::Say(bytes) => stream.write_all(bytes)?,
            Step::Again => at = 0,
            Step::Reset => return SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
            Step::Stall => {
                io::copy(&mut stream, &mut io::sink())?;
            }
            // The thread ends with the process if they never do.
            Step::Await(number) => {
                while clients.lock().unwrap().len() < *number {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
    // Closing with unread bytes would be a reset.
    stream.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

/// Takes a request without a body from the received bytes. False if the client closes before.
fn read_head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            unread.drain(..end + 4);
            return Ok(true);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes)? {
            0 => return Ok(false),
            length => unread.extend_from_slice(&bytes[..length]),
        }
    }
}

/// A closed loop of `requests` over `connections`. Tests modify it.
pub(crate) fn plan(url: &str, requests: u64, connections: usize) -> Plan {
    of_list(&format!("- {url} {}\n", u8::from(url.starts_with("https"))), &[], requests, connections)
}

/// The same with a list, whose paths belong to `urls`.
pub(crate) fn of_list(list: &str, urls: &[&str], requests: u64, connections: usize) -> Plan {
    let list = AccessList::parse("list", list, |_| unreachable!("no line names a file")).unwrap();
    let mut sites = Sites::default();
    for url in urls {
        sites.add(Arc::new(Site::resolve(url).unwrap().0));
    }
    Plan {
        work: Requests::prepare(&list, &sites).unwrap().into(),
        sources: None,
        pace: Pace::Closed { connections },
        stop: Stop { requests: Some(requests), after: None },
        protocol: Protocol::Http1 { requests_per_connection: None, pipeline: 1 },
        tls: TlsOptions::default(),
        timeouts: Timeouts::default(),
        threads: 1,
    }
}

pub(crate) fn one_each(plan: Plan) -> Plan {
    Plan { protocol: Protocol::Http1 { requests_per_connection: Some(1), pipeline: 1 }, ..plan }
}

/// The plan with short timeouts.
pub(crate) fn impatient(plan: Plan) -> Plan {
    let short = Duration::from_millis(200);
    Plan { timeouts: Timeouts { connect: short, response: short }, ..plan }
}

pub(crate) fn run(plan: Plan) -> Finished {
    Load::start(plan, None).unwrap().finish()
}

pub(crate) fn endings(finished: &Finished) -> Vec<(Ending, u64)> {
    counted(&finished.tally.total().endings)
}

pub(crate) fn ends_of_connections(finished: &Finished) -> Vec<(Ending, u64)> {
    counted(&finished.tally.total().connections.endings)
}

fn counted(endings: &Endings) -> Vec<(Ending, u64)> {
    endings.iter().filter(|(_, count)| *count > 0).collect()
}

/// The ending of a successful request.
pub(crate) const ANSWERED: Ending = Ending { kind: EndingKind::Normal, phase: Phase::Response, side: Side::Server };

pub(crate) fn by_server(kind: EndingKind, phase: Phase) -> Ending {
    Ending::new(kind, phase, Side::Server)
}

pub(crate) fn by_client(kind: EndingKind, phase: Phase) -> Ending {
    Ending::new(kind, phase, Side::Client)
}

/// Stores the samples of connections.
#[derive(Debug, Default)]
pub(crate) struct Kept(pub(crate) Mutex<Vec<ConnectionSample>>);

impl watari_bench_engine::connection_log::ConnectionLog for Kept {
    fn ended(&self, sample: &ConnectionSample) {
        self.0.lock().unwrap().push(sample.clone());
    }
}
