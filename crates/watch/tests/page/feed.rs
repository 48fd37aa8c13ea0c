//! A board whose time and sensors a test is, and the page of it.

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

/// A second at a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Second {
    /// So many are delivered, so many cut off, so many out of time.
    Ended(u32, u32, u32),
    /// Connections are there, and none ends.
    Quiet,
    /// Nobody gets anything.
    Refused(u32),
}

/// What a sensor says of a server in a second.
pub(crate) type Said<'a> = (&'a str, &'a str, Second);

pub(crate) struct Feed {
    runtime: Runtime,
    board: Arc<Mutex<Board>>,
    ticks: watch::Sender<Bytes>,
    address: SocketAddr,
    /// Keeps the port while the server is away: nobody else gets it.
    _port: Socket,
    shutdown: CancellationToken,
    /// The second that is over next.
    second: u64,
}

/// What the tests' boards hold.
pub(crate) const SPAN_S: u64 = 60;

impl Feed {
    /// Of nothing yet.
    pub(crate) fn new() -> Self {
        Self::over(SPAN_S)
    }

    /// Of nothing yet; it holds so much time.
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

    /// The server comes, or comes back where it was.
    pub(crate) fn arrive(&mut self) {
        let listener = bound(self.address);
        listener.listen(128).unwrap();
        self.shutdown = CancellationToken::new();
        let site = Site { board: Arc::clone(&self.board), ticks: self.ticks.subscribe(), names: Vec::new() };
        let _entered = self.runtime.enter();
        serve(listener.into(), site, self.shutdown.clone()).unwrap();
    }

    /// The server goes: nothing listens any more when this returns.
    pub(crate) fn leave(&self) {
        self.shutdown.cancel();
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(self.address).is_ok() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it still listens");
        }
    }

    /// A second passes.
    pub(crate) fn pass(&mut self, said: &[Said<'_>]) {
        let at = Timestamp((self.second + 1) * 1_000_000_000);
        let mut board = self.board.lock().unwrap();
        for (sensor, server, second) in said {
            let tallies = vec![(server.parse().unwrap(), self.second, second.tally())];
            board.take(sensor, 0, &Report { at, tallies, health: Health::default() });
        }
        board.advance(at);
        drop(board);
        self.second += 1;
        self.ticks.send_replace(tick(&self.board));
    }

    /// The way to a sensor is like this from now on.
    pub(crate) fn link(&self, sensor: &str, link: Link) {
        *self.board.lock().unwrap().link(sensor).unwrap() = link;
    }

    /// So many seconds pass.
    pub(crate) fn pass_many(&mut self, seconds: u64, said: &[Said<'_>]) {
        for _ in 0..seconds {
            self.pass(said);
        }
    }
}

/// A socket with an address, which others that do the same may have, too, but one of them that listens.
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
                // Half of them within 10 to 20 ms, half within 100 to 200.
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
