//! A server that counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Responds to every request, and counts requests by path.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<BTreeMap<String, u64>>>,
    clients: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::answering(u64::MAX)
    }

    /// Responds to the first `limit` requests, and leaves the others without a response.
    pub(crate) fn answering(limit: u64) -> Self {
        let left = Arc::new(AtomicU64::new(limit));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Self { address: listener.local_addr().unwrap(), requests: Arc::default(), clients: Arc::default() };
        let (counted, clients) = (Arc::clone(&server.requests), Arc::clone(&server.clients));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, left) = (Arc::clone(&counted), Arc::clone(&left));
                clients.lock().unwrap().extend(stream.peer_addr());
                thread::spawn(move || serve(&stream, &counted, &left));
            }
        });
        server
    }

    /// The number of requests for each path.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.lock().unwrap().clone()
    }

    /// The clients' addresses, sorted.
    pub(crate) fn clients(&self) -> Vec<SocketAddr> {
        let mut clients = self.clients.lock().unwrap().clone();
        clients.sort_unstable();
        clients
    }

    pub(crate) fn total(&self) -> u64 {
        self.requests().values().sum()
    }
}

/// Serves a connection until the client closes it, resets it or requests its close.
fn serve(mut stream: &TcpStream, counted: &Mutex<BTreeMap<String, u64>>, left: &AtomicU64) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let fields: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        if fields.is_empty() {
            return;
        }
        *counted.lock().unwrap().entry(path).or_default() += 1;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            continue;
        }
        let answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        if answered.is_err() || fields.iter().any(|field| field == "connection: close") {
            return;
        }
    }
}
