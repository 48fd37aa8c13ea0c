//! The reports of `watari bench http`: on a terminal, in files, and elsewhere.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rustix::process::Signal;
use tempfile::tempdir;

use super::support::{WAIT_MAX, watari};
use super::terminal::Terminal;

#[test]
fn a_terminal_shows_a_run_until_it_is_interrupted() {
    let dir = tempdir().unwrap();
    let ends: [fn(&mut Terminal); 3] =
        [|terminal| terminal.press("q"), |terminal| terminal.press("\x03"), |terminal| terminal.signal(Signal::TERM)];
    for end in ends {
        let server = Server::start();
        let mut terminal = Terminal::run(dir.path(), &["bench", "http", &server.url, "-d", "1h", "-c", "2"]);
        // A run without any response ends with status 1. Words only: over cells that are blank already, the terminal
        // gets cursor movements.
        terminal.wait_for("NORMAL");
        server.wait_until_a_response_is_read();
        end(&mut terminal);
        let left = terminal.left();
        assert_eq!(left.status.code(), Some(0), "{}", left.output);
        let (view, summary) = left.output.rsplit_once("\x1b[J").unwrap();
        assert!(view.contains("p99.9") && view.contains("NORMAL"), "{view}");
        assert!(summary.contains("requests in ") && summary.contains("\r\nIPv4 "), "{summary}");
        assert!(summary.starts_with("\x1b[?25h") && left.restored, "{summary}");
    }
}

#[test]
fn what_is_no_terminal_gets_the_summary_alone() {
    let dir = tempdir().unwrap();
    let summary = watari(dir.path(), &["bench", "http", &Server::start().url, "-n", "10"]).done();
    assert!(summary.starts_with("10 requests in ") && !summary.contains('\x1b'), "{summary}");
}

#[test]
fn a_run_is_written_to_files() {
    let dir = tempdir().unwrap();
    let files = ["--html", "run.html", "--csv", "run.csv", "--hdr", "run.hdr"];
    watari(dir.path(), &[&["bench", "http", &Server::start().url, "-n", "10", "-c", "2"], &files[..]].concat()).done();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(read("run.html").starts_with("<!DOCTYPE html>"));
    assert_eq!(read("run.csv").lines().count(), 3, "a head, and two connections");
    assert!(read("run.hdr").contains("Tag=latency"));
}

#[test]
fn a_file_that_cannot_be_written_costs_no_run() {
    let dir = tempdir().unwrap();
    for option in ["--html", "--csv", "--hdr"] {
        let refused =
            watari(dir.path(), &["bench", "http", &Server::start().url, "-d", "1h", option, "none/run"]).refused(1);
        assert_eq!(refused, "watari: cannot write none/run: No such file or directory (os error 2)");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Answers every request until the test's process ends.
struct Server {
    url: String,
    /// A message for each second request of a connection.
    second_requests: Receiver<()>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let (sender, second_requests) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || answer(&stream, &sender));
            }
        });
        Self { url: format!("http://{address}/"), second_requests }
    }

    /// A client sends its second request only after it has read the response to the first.
    fn wait_until_a_response_is_read(&self) {
        self.second_requests.recv_timeout(WAIT_MAX).unwrap();
    }
}

fn answer(mut stream: &TcpStream, second_requests: &Sender<()>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    for request in 1.. {
        if lines.by_ref().take_while(|line| !line.is_empty()).count() == 0 {
            return;
        }
        if request == 2 {
            // Most tests do not wait for it.
            let _ = second_requests.send(());
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
