//! A board whose time and reports come from a test, and its page.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use socket2::{Domain, Socket, Type};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;
use watari_endings::{Ending, Profile, Tally};
use watari_packets::Timestamp;
use watari_watch::board::{Board, Link};
use watari_watch::report::{Health, Report};
use watari_watch::web::{Site, serve, tick};

/// A second of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Second {
    /// Numbers of delivered, aborted and timed-out connections.
    Ended(u32, u32, u32),
    /// There are connections, and none ends.
    Quiet,
    /// This many requests get no answer.
    Refused(u32),
}

/// The sensor, the server and the second of a report.
pub(crate) type Line<'a> = (&'a str, &'a str, Second);

pub(crate) struct Feed {
    runtime: Runtime,
    board: Arc<Mutex<Board>>,
    ticks: watch::Sender<Bytes>,
    address: SocketAddr,
    /// Reserves the port while the server is away.
    _port: Socket,
    shutdown: CancellationToken,
    /// The next second.
    second: u64,
}

/// The span of the tests' boards, in seconds.
pub(crate) const SPAN_S: u64 = 60;

impl Feed {
    /// An empty board.
    pub(crate) fn new() -> Self {
        Self::over(SPAN_S)
    }

    /// An empty board with this span.
    pub(crate) fn over(span_s: u64) -> Self {
        let profile = Profile {
            span: Duration::from_secs(span_s),
            stopped_span: Duration::from_secs(10),
            hold: Duration::from_secs(2),
            ..Profile::site()
        };
        let board = Arc::new(Mutex::new(Board::new(profile)));
        let (ticks, _) = watch::channel(tick(&board));
        let port = bound("127.0.0.1:0".parse().unwrap());
        let mut feed = Self {
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
            board,
            ticks,
            address: port.local_addr().unwrap().as_socket().unwrap(),
            _port: port,
            shutdown: CancellationToken::new(),
            second: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(),
        };
        feed.arrive();
        feed
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Starts the server, at the same address each time.
    pub(crate) fn arrive(&mut self) {
        let listener = bound(self.address);
        listener.listen(128).unwrap();
        self.shutdown = CancellationToken::new();
        let site = Site { board: Arc::clone(&self.board), ticks: self.ticks.subscribe(), names: Vec::new() };
        let _entered = self.runtime.enter();
        serve(listener.into(), site, self.shutdown.clone()).unwrap();
    }

    /// Stops the server. Nothing listens any more when this returns.
    pub(crate) fn leave(&self) {
        self.shutdown.cancel();
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(self.address).is_ok() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it still listens");
        }
    }

    /// Advances by a second, with these reports.
    pub(crate) fn pass(&mut self, lines: &[Line<'_>]) {
        let at = Timestamp((self.second + 1) * 1_000_000_000);
        let mut board = self.board.lock().unwrap();
        for (sensor, server, second) in lines {
            let tallies = vec![(server.parse().unwrap(), self.second, second.tally())];
            board.take(sensor, 0, &Report { at, tallies, health: Health::default() });
        }
        board.advance(at);
        drop(board);
        self.second += 1;
        self.ticks.send_replace(tick(&self.board));
    }

    /// Sets the connection of a sensor.
    pub(crate) fn link(&self, sensor: &str, link: Link) {
        *self.board.lock().unwrap().link(sensor).unwrap() = link;
    }

    /// Advances by several seconds, with the same reports.
    pub(crate) fn pass_many(&mut self, seconds: u64, lines: &[Line<'_>]) {
        for _ in 0..seconds {
            self.pass(lines);
        }
    }
}

/// A socket bound to an address. Several sockets may be bound to it, but only one may listen.
fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

impl Second {
    fn tally(self) -> Tally {
        let mut tally = Tally::default();
        match self {
            Self::Ended(s_normal, client_abort, timeout) => {
                let ended = s_normal + client_abort + timeout;
                tally = Tally { opened: ended, s_normal, client_abort, timeout, answered: ended, ..tally };
                // Half of them within 10 to 20 ms, half within 100 to 200 ms.
                (tally.responses.0[7], tally.responses.0[10]) = (ended - ended / 2, ended / 2);
                tally.response_max_us = 200_000;
                (tally.tls_full, tally.tls_resumed) = (1, 3);
                tally.endings[Ending::SNormal as usize] = s_normal;
                tally.endings[Ending::CReset as usize] = client_abort;
                tally.endings[Ending::Timeout as usize] = timeout;
            }
            Self::Quiet => (tally.opened, tally.answered) = (1, 1),
            Self::Refused(count) => {
                (tally.opened, tally.unanswered) = (count, count);
                tally.endings[Ending::Refused as usize] = count;
            }
        }
        tally
    }
}
