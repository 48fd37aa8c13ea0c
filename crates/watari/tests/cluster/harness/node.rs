//! One node of the cluster: its process, its files, and operations on it.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::metrics::Metrics;
use super::wait::{until, until_some};
use super::{DISPATCHER, ctl, nursery};

/// The program under test.
pub(crate) const WATARI: &str = env!("CARGO_BIN_EXE_watari");

/// The library of Debian's package faketime, which changes the time that a program sees.
fn faketime() -> PathBuf {
    let path = PathBuf::from(format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH));
    assert!(path.exists(), "{} is missing: install faketime", path.display());
    path
}

/// The length of the log's end that a failed test prints, in bytes.
const LAST_WORDS_LEN: usize = 6_000;

/// A node. Its process is killed when this is dropped.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    /// The address at which it accepts links of the mesh.
    pub(crate) mesh: SocketAddr,
    /// The address at which it accepts legs, if it is an agent.
    pub(crate) legs: SocketAddr,
    pub(crate) metrics: SocketAddr,
    dir: PathBuf,
    files_max: Option<u64>,
    /// The offset of its clock from the system's, in the notation of faketime(1).
    clock: Option<&'static str>,
    process: Mutex<Option<Process>>,
}

/// The process that a node had before an upgrade. It ends when it has no connections left.
pub(crate) struct Previous(Process);

impl Previous {
    pub(crate) fn is_running(&mut self) -> bool {
        self.0.ended().is_none()
    }

    pub(crate) fn wait_until_ended(&mut self) {
        until("the previous process ends", || !self.is_running());
    }
}

/// The process of a node.
enum Process {
    Started(Child),
    /// The successor of a process that the test has started. It is in that process's group.
    Successor {
        pid: Pid,
        group: Pid,
    },
}

impl Process {
    fn pid(&self) -> Pid {
        match self {
            Self::Started(child) => pid_of(child),
            Self::Successor { pid, .. } => *pid,
        }
    }

    /// Whether it has ended with success. `None`: it runs. The status of a successor is not known.
    fn ended(&mut self) -> Option<bool> {
        match self {
            Self::Started(child) => child.try_wait().unwrap().map(|status| status.success()),
            Self::Successor { pid, .. } => state_of(*pid).is_none_or(|state| state == 'Z').then_some(true),
        }
    }

    /// It may have ended by itself. Then only its status is read.
    fn kill(&mut self) {
        match self {
            Self::Started(child) => {
                let group = pid_of(child);
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
            }
            Self::Successor { group, .. } => {
                let _ = kill_process_group(*group, Signal::KILL);
            }
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).expect("a child has a number")
}

/// The state of a process, as a letter of proc(5).
fn state_of(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

impl Node {
    pub(crate) fn new(
        name: &'static str,
        dir: &Path,
        files_max: Option<u64>,
        mut take: impl FnMut() -> SocketAddr,
    ) -> Self {
        let (mesh, legs, metrics) = (take(), take(), take());
        Self { name, mesh, legs, metrics, dir: dir.to_owned(), files_max, clock: None, process: Mutex::default() }
    }

    pub(crate) fn with_clock(mut self, clock: Option<&'static str>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn is_agent(&self) -> bool {
        self.name != DISPATCHER
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join(format!("{}.toml", self.name))
    }

    pub(crate) fn admin(&self) -> PathBuf {
        self.dir.join(format!("{}.sock", self.name))
    }

    pub(crate) fn start(&self) {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = match self.files_max {
            None => Command::new(WATARI),
            Some(max) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={max}:{max}")).arg(WATARI);
                command
            }
        };
        command.args(["run", "--with-parent", "--config"]).arg(self.config());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if let Some(clock) = self.clock {
            // Timers must run at their normal speed.
            command.env("LD_PRELOAD", faketime()).env("FAKETIME", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command.env("DONT_FAKE_MONOTONIC", "1");
        }
        // In a group of its own, a stopped process cannot outlive the test either: when a group is orphaned, the system
        // continues its stopped processes and sends them SIGHUP.
        command.process_group(0);
        let previous = self.process.lock().unwrap().replace(Process::Started(nursery::start(command)));
        assert!(previous.is_none(), "{} was running already", self.name);
    }

    /// SIGKILL: the system closes its sockets, and all its state is lost.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            process.kill();
        }
    }

    /// Replaces its process by a new one, of `program` if it is given. Returns when the previous one has ended. The
    /// error is the sentence of a refusal.
    pub(crate) fn upgrade(&self, program: Option<&Path>) -> Result<(), String> {
        let mut previous = self.upgrade_beside(program)?;
        previous.wait_until_ended();
        assert_eq!(previous.0.ended(), Some(true), "{}: its previous process has failed", self.name);
        Ok(())
    }

    /// Replaces its process by a new one, and returns the previous one when the new one answers.
    pub(crate) fn upgrade_beside(&self, program: Option<&Path>) -> Result<Previous, String> {
        ctl::upgrade(&self.admin(), program)?;
        let mut process = self.process.lock().unwrap();
        let previous = process.take().expect("it was started");
        let group = match &previous {
            Process::Started(child) => pid_of(child),
            Process::Successor { group, .. } => *group,
        };
        let pid = until_some("its successor answers", || ctl::pid(&self.admin()).filter(|pid| *pid != previous.pid()));
        *process = Some(Process::Successor { pid, group });
        Ok(Previous(previous))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.lock().unwrap().as_ref().expect("it was started").pid()
    }

    /// SIGTERM: it moves its connections away, and ends by itself.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        until("the process ends", || !self.is_running());
        let process = self.process.lock().unwrap().take();
        assert_eq!(process.and_then(|mut process| process.ended()), Some(true), "{} has failed", self.name);
    }

    /// SIGSTOP: it appears dead, but still has its sockets. Returns when the process has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("the process stands", || self.state() == Some('T'));
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// SIGUSR1.
    pub(crate) fn reopen_logs(&self) {
        self.signal(Signal::USR1);
    }

    /// Sends signals that have no meaning for it.
    pub(crate) fn startle(&self) {
        for signal in [Signal::USR2, Signal::ALARM, Signal::PIPE, Signal::IO, Signal::POWER, Signal::WINCH] {
            self.signal(signal);
        }
    }

    /// Writes another configuration, without a reload.
    pub(crate) fn configure(&self, edit: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(self.config()).unwrap();
        fs::write(self.config(), edit(text)).unwrap();
    }

    /// Reloads it with another configuration. Returns the changes.
    pub(crate) fn reconfigure(&self, edit: impl FnOnce(String) -> String) -> Value {
        self.configure(edit);
        ctl::reload(&self.admin()).unwrap()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.lock().unwrap().as_mut().is_some_and(|process| process.ended().is_none())
    }

    pub(crate) fn metrics(&self) -> io::Result<Metrics> {
        Metrics::read(self.metrics)
    }

    /// The sum of the samples of `name` that have a label with this value.
    pub(crate) fn count(&self, name: &str, label: &str) -> i64 {
        let metrics = self.metrics().unwrap_or_else(|error| panic!("{} shows no metrics: {error}", self.name));
        metrics.sum(name, label)
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = self.proc("status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Prints the end of its log, to find the cause of a failure.
    pub(crate) fn print_last_words(&self) {
        let log = self.log();
        let start = log.ceil_char_boundary(log.len().saturating_sub(LAST_WORDS_LEN));
        eprintln!("--- log of {} ---\n{}", self.name, &log[start..]);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.lock().unwrap();
        kill_process(process.as_ref().expect("it was started").pid(), signal).unwrap();
    }

    /// The state of its process, as a letter of proc(5).
    fn state(&self) -> Option<char> {
        state_of(self.process.lock().unwrap().as_ref()?.pid())
    }

    fn proc(&self, file: &str) -> Option<String> {
        let pid = self.process.lock().unwrap().as_ref()?.pid();
        fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).ok()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
