//! `openssl s_client`.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::harness::site::SITE;
use crate::harness::wait::until_some;

/// A running `openssl s_client`. It is killed when this is dropped.
pub(crate) struct SClient {
    child: Child,
    input: Option<ChildStdin>,
    /// The standard output: data from the server, and reports.
    output: Output,
    /// The standard error.
    notices: Output,
}

impl SClient {
    /// Connects from `source` to the site. Trusts only the site's authority, and ends if the verification fails.
    /// `arguments` are added.
    pub(crate) fn start(source: IpAddr, service: SocketAddr, ca: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &service.to_string(), "-bind", &SocketAddr::new(source, 0).to_string()]);
        command.arg("-CAfile").arg(ca).args(["-verify_return_error", "-verify_hostname", SITE]);
        if !arguments.contains(&"-servername") {
            command.args(["-servername", SITE]);
        }
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tests need openssl");
        let output = Output::collect(child.stdout.take().unwrap());
        let notices = Output::collect(child.stderr.take().unwrap());
        Self { input: child.stdin.take(), child, output, notices }
    }

    /// Types `bytes`. A command has to come in one piece: wait for its effect before typing on.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits until the server has sent `wanted`, after the text of the previous wait.
    pub(crate) fn wait_for(&mut self, wanted: &[u8]) {
        self.output.wait_for(wanted);
    }

    /// Waits until the standard error has `wanted`, after the text of the previous wait.
    pub(crate) fn wait_for_notice(&mut self, wanted: &str) {
        self.notices.wait_for(wanted.as_bytes());
    }

    /// Closes its input, which ends it. Returns all that it has printed.
    pub(crate) fn finish(mut self) -> String {
        drop(self.input.take());
        let _ = self.child.wait();
        self.output.finish() + &self.notices.finish()
    }
}

impl Drop for SClient {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The content of an output stream.
struct Output {
    printed: Arc<Mutex<Vec<u8>>>,
    /// The end of the last text that was waited for.
    awaited: usize,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn collect(mut stream: impl Read + Send + 'static) -> Self {
        let printed: Arc<Mutex<Vec<u8>>> = Arc::default();
        let collected = printed.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                collected.lock().unwrap().extend_from_slice(&buffer[..len]);
            }
        });
        Self { printed, awaited: 0, reader: Some(reader) }
    }

    fn wait_for(&mut self, wanted: &[u8]) {
        let from = self.awaited;
        self.awaited = until_some("s_client prints what it must", || {
            let printed = self.printed.lock().unwrap();
            let at = printed[from..].windows(wanted.len()).position(|window| window == wanted)?;
            Some(from + at + wanted.len())
        });
    }

    fn finish(&mut self) -> String {
        self.reader.take().unwrap().join().unwrap();
        String::from_utf8_lossy(&self.printed.lock().unwrap()).into_owned()
    }
}
