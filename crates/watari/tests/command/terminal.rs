//! A pseudo-terminal for a program, with the answers of a terminal behind it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{Running, WAIT_MAX};

/// A command in the foreground of a terminal of its own, with 80 columns and 24 rows.
pub(crate) struct Terminal {
    process: Running,
    keyboard: File,
    /// Kept open, because the terminal's settings are lost when its last user closes it.
    device: File,
    output: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// The state after the command has ended.
pub(crate) struct Left {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    /// Whether line editing and echo are on again, as before.
    pub(crate) restored: bool,
}

impl Terminal {
    pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let device = OpenOptions::new().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&device, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(device.try_clone().unwrap());
        // Of util-linux. It gives the command a session whose terminal is its standard input.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_watari")).args(arguments);
        command.current_dir(dir).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let process = Running(command.spawn().unwrap());
        let keyboard = File::from(keyboard);
        let output = Arc::new(Mutex::new(String::new()));
        let (screen, into) = (keyboard.try_clone().unwrap(), Arc::clone(&output));
        let reader = thread::spawn(move || answer(screen, &into));
        Self { process, keyboard, device, output, reader }
    }

    /// Waits until the command has written `text`.
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        while !self.output.lock().unwrap().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in {}", self.output.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until the command has ended.
    pub(crate) fn left(self) -> Left {
        let Self { mut process, device, output, reader, .. } = self;
        let status = process.wait();
        let restored = tcgetattr(device.as_fd()).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO);
        // The last user closes it. Then the reader gets no more output.
        drop(device);
        reader.join().unwrap();
        let output = output.lock().unwrap().clone();
        Left { status, output, restored }
    }
}

/// Reads to the end. Answers each query for the cursor position with the first row.
fn answer(mut screen: File, output: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = screen.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        for _ in text.matches("\x1b[6n") {
            screen.write_all(b"\x1b[1;1R").unwrap();
        }
        output.lock().unwrap().push_str(&text);
    }
}
