//! A server that counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Answers every request, and counts them by path.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || serve(&stream, &counted));
            }
        });
        Self { address, requests }
    }

    /// How often each path was asked for.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn total(&self) -> u64 {
        self.requests().values().sum()
    }
}

/// Until the client closes, or resets.
fn serve(stream: &TcpStream, counted: &Mutex<BTreeMap<String, u64>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        if !lines.any(|line| line.is_empty()) {
            return;
        }
        *counted.lock().unwrap().entry(path).or_default() += 1;
        let mut stream = stream;
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
