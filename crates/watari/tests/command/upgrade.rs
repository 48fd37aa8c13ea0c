//! `watari ctl upgrade`, as a service manager sees it.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::support::wait;

/// A process that is no child of the test. It ends with this value.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn the_service_manager_learns_of_the_new_process() {
    let mut cluster = Cluster::start();
    let (mut client, _) = cluster.client();
    let said = cluster.ctl(&["upgrade"]).done();
    assert_eq!(said, "a new process has taken over the node, with its listeners and connections (1)\n");
    // Until the previous process has ended, it may still answer.
    assert!(cluster.d1.process.wait().success());
    let status: Value = serde_json::from_str(&cluster.ctl(&["--json", "status"]).done()).unwrap();
    let pid = status["pid"].as_i64().unwrap();
    let successor = Successor(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap());
    let process = pidfd_open(successor.0, PidfdFlags::NONBLOCK).unwrap();
    cluster.d1.expects_notification(&format!("MAINPID={pid}"));
    cluster.d1.expects_notification("READY=1");
    client.page();

    kill_process(successor.0, Signal::TERM).unwrap();
    cluster.d1.expects_notification("STOPPING=1");
    wait(&process);
    assert_eq!(cluster.ctl(&["status"]).status, Some(1), "the socket is gone");
}
