//! What a run leaves behind: nothing, however it ends.
//!
//! ```text
//!   test --> this binary, `role`: supervises --> this binary, `inside`: process 1 of the sandbox --> programs on hosts
//! ```
//!
//! All of them have the folder of the test in their environment.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use watari_lab::control_group::Groups;
use watari_lab::plan::Options;
use watari_lab::supervisor::{self, Order};

use super::{Failure, ROLE, RemovedGroups, until};

/// The step goes on for ever, and so does a process that leaves its session.
const ENDLESS: &str = r#"
    name = "endless"
    title = "Endless"
    text = "It does not end."
    rounds = { full = 1, quick = 1 }
    [[network]]
    name = "net"
    ipv4 = "192.0.2.0/24"
    [[host]]
    name = "a"
    number = 1
    networks = ["net"]
    cpu = 0.5
    [[process]]
    name = "daemon"
    host = "a"
    run = "sh ${work}/../../daemon.sh"
    [[variant]]
    key = "only"
    title = "Only"
    [[step]]
    name = "wait"
    hosts = ["a"]
    run = "sh ${work}/../../wait.sh"
"#;
/// In the experiment.
const WAIT_STEP: &str = "sh ${work}/../../wait.sh";
const DAEMON: &str = "setsid sleep infinity & exec sleep infinity";
/// Runs a program that sees all control groups mounted read-only, as in a container.
const WITH_READ_ONLY_GROUPS: &str = "for groups in /sys/fs/cgroup/* /sys/fs/cgroup; do ! mountpoint -q $groups || mount -o remount,bind,ro $groups; done; \
     exec \"$@\"";
/// Runs a program as in a container: in the root of its hierarchy of version 2. The first argument is the group of the
/// container.
const IN_CONTAINER: &str = "echo +cpu >/sys/fs/cgroup/cgroup.subtree_control; mkdir $1; echo $$ >$1/cgroup.procs; shift; \
     exec unshare --cgroup --mount sh -ec 'umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec \"$@\"' sh \"$@\"";
/// SIGTERM and SIGINT do not end it, and it leaves a temporary file.
const WAIT: &str = "trap '' TERM INT; mktemp; touch \"$(dirname \"$0\")\"/started; while :; do sleep 1; done";

#[test]
fn an_interrupted_run_leaves_nothing() -> Result<(), Failure> {
    if !is_root("an_interrupted_run_leaves_nothing") {
        return Ok(());
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let place = Place::new(ENDLESS)?;
        let mut supervisor = place.start()?;
        supervisor.wait_for_step()?;
        // What a terminal does for Ctrl-C and Ctrl-\, and when it closes.
        kill_process_group(supervisor.id(), signal)?;
        let status = supervisor.child.wait()?;
        assert!(!status.success());
        // At once: the supervisor has waited for the end of all processes.
        place.expect_nothing(&supervisor)?;
        let errors = fs::read_to_string(place.path("err"))?;
        assert!(errors.contains("interrupted"), "{errors}");
        assert!(!errors.contains("daemon"), "the run has reported an error of its own: {errors}");
    }
    Ok(())
}

#[test]
fn a_killed_run_ends_and_the_next_removes_the_rest() -> Result<(), Failure> {
    if !is_root("a_killed_run_ends_and_the_next_removes_the_rest") {
        return Ok(());
    }
    let place = Place::new(ENDLESS)?;
    let mut supervisor = place.start()?;
    supervisor.wait_for_step()?;
    assert!(place.processes()?.len() > 4, "{:?}", place.processes());
    assert!(!supervisor.groups().is_empty());
    supervisor.child.kill()?;
    supervisor.child.wait()?;
    until("all processes of the sandbox have ended", || place.processes().is_ok_and(|ids| ids.is_empty()))?;

    fs::remove_file(place.path("started"))?;
    let mut next = place.start()?;
    next.wait_for_step()?;
    assert_eq!(supervisor.groups(), [""; 0].map(PathBuf::from));
    assert_eq!(fs::read_dir(place.path("tmp"))?.count(), 1, "the directory of the killed run is left");
    kill_process_group(next.id(), Signal::INT)?;
    next.child.wait()?;
    place.expect_nothing(&next)
}

#[test]
fn a_run_that_ends_leaves_nothing_but_its_result() -> Result<(), Failure> {
    if !is_root("a_run_that_ends_leaves_nothing_but_its_result") {
        return Ok(());
    }
    let place = Place::new(&ENDLESS.replace(WAIT_STEP, "true"))?;
    let mut supervisor = place.start()?;
    let status = supervisor.child.wait()?;
    assert!(status.success(), "{}", fs::read_to_string(place.path("err"))?);
    place.expect_nothing(&supervisor)?;
    assert!(place.path("result/result.json").exists());
    Ok(())
}

#[test]
fn a_run_without_privileges_fails_and_says_what_is_needed() -> Result<(), Failure> {
    if !is_root("a_run_without_privileges_fails_and_says_what_is_needed") {
        return Ok(());
    }
    let place = Place::new(ENDLESS)?;
    // Root who may do nothing that others may not.
    let mut supervisor = place.start_by(&["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"])?;
    assert!(!supervisor.child.wait()?.success());
    let errors = fs::read_to_string(place.path("err"))?;
    for needed in ["root", "user namespace", "unprivileged_userns_clone", "unshare", "iproute2"] {
        assert!(errors.contains(needed), "{needed} is not in {errors}");
    }
    place.expect_nothing(&supervisor)
}

#[test]
fn a_user_runs_an_experiment_without_quotas() -> Result<(), Failure> {
    if !is_root("a_user_runs_an_experiment_without_quotas") {
        return Ok(());
    }
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let mut namespaces = Command::new("setpriv");
    namespaces.args(&user[1..]).args(["unshare", "--user", "--map-root-user", "--net", "true"]);
    let can = namespaces.output()?;
    if !can.status.success() {
        println!("SKIPPED: a_user_runs_an_experiment_without_quotas needs user namespaces of users");
        return Ok(());
    }
    expect_run_without_quotas(&user, "Permission denied")
}

#[test]
fn an_experiment_runs_without_quotas_if_groups_are_read_only() -> Result<(), Failure> {
    if !is_root("an_experiment_runs_without_quotas_if_groups_are_read_only") {
        return Ok(());
    }
    expect_run_without_quotas(
        &["unshare", "--mount", "sh", "-ec", WITH_READ_ONLY_GROUPS, "sh"],
        "Read-only file system",
    )
}

#[test]
#[ignore = "control groups of version 2: make cgroup2"]
fn an_experiment_runs_without_quotas_in_a_container_with_its_processes_in_the_root_group() -> Result<(), Failure> {
    let container = Path::new("/sys/fs/cgroup").join(format!("container-{}", std::process::id()));
    let ran = expect_run_without_quotas(
        &["sh", "-ec", IN_CONTAINER, "sh", &container.display().to_string()],
        "cannot limit those below it",
    );
    fs::remove_dir(container)?;
    ran
}

fn expect_run_without_quotas(wrapper: &[&str], because: &str) -> Result<(), Failure> {
    let place = Place::new(&ENDLESS.replace(WAIT_STEP, "true"))?;
    let mut supervisor = place.start_by(wrapper)?;
    let status = supervisor.child.wait()?;
    assert!(status.success(), "{}", fs::read_to_string(place.path("err"))?);
    place.expect_nothing(&supervisor)?;
    let result = fs::read_to_string(place.path("result/result.json"))?;
    assert!(result.contains("no CPU quotas") && result.contains(because), "{result}");
    Ok(())
}

#[test]
fn groups_of_a_predecessor_with_the_same_process_id_are_removed() -> Result<(), Failure> {
    if !is_root("groups_of_a_predecessor_with_the_same_process_id_are_removed") {
        return Ok(());
    }
    // In a container, each supervisor may have the same id.
    let predecessor = RemovedGroups(Groups::create()?);
    predecessor.0.add_host("a", None)?;
    Groups::create()?.add_host("a", None)?;
    Ok(())
}

/// Where a run takes place.
struct Place(tempfile::TempDir);

struct Supervisor {
    child: Child,
    place: PathBuf,
}

impl Place {
    fn new(experiment: &str) -> Result<Self, Failure> {
        let place = Self(tempfile::tempdir()?);
        fs::create_dir(place.path("tmp"))?;
        for (name, text) in [("endless.toml", experiment), ("daemon.sh", DAEMON), ("wait.sh", WAIT)] {
            fs::write(place.path(name), text)?;
        }
        // Some of the tests have another user. With `fs::copy`, a child of another test could keep the copy open for
        // writing, and so prevent its execution.
        let copied = Command::new("cp").arg(env::current_exe()?).arg(place.path("program")).status()?;
        assert!(copied.success());
        for name in ["", "tmp", "program"] {
            fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o777))?;
        }
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self) -> Result<Supervisor, Failure> {
        self.start_by(&["env"])
    }

    /// Starts a supervisor in a process group of its own, as a shell does. The words of the wrapper come before it, and
    /// become it.
    fn start_by(&self, wrapper: &[&str]) -> Result<Supervisor, Failure> {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(self.path("program"))
            .args(["--exact", "role", "--nocapture"])
            .env(ROLE, format!("supervise {}", self.0.path().display()));
        command.env("TMPDIR", self.path("tmp")).process_group(0).stdin(Stdio::null());
        command.stdout(File::create(self.path("out"))?).stderr(File::create(self.path("err"))?);
        Ok(Supervisor { child: command.spawn()?, place: self.0.path().to_owned() })
    }

    /// The processes of its runs.
    fn processes(&self) -> Result<Vec<u32>, Failure> {
        // That of the supervisor, or below it.
        let marker = format!("TMPDIR={}", self.path("tmp").display()).into_bytes();
        let ids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_of_run = |id: &u32| {
            // Empty for a process that only waits for its parent.
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&marker))
        };
        Ok(ids.filter(is_of_run).collect())
    }

    fn expect_nothing(&self, supervisor: &Supervisor) -> Result<(), Failure> {
        assert_eq!(supervisor.groups(), [""; 0].map(PathBuf::from), "control groups are left");
        assert_eq!(self.processes()?, [0; 0], "processes are left");
        let left: Vec<_> = fs::read_dir(self.path("tmp"))?.flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?} are left");
        Ok(())
    }
}

impl Supervisor {
    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the step of the trial runs.
    fn wait_for_step(&mut self) -> Result<(), Failure> {
        let started = self.place.join("started");
        let mut status = None;
        until("the step runs", || {
            status = self.child.try_wait().ok().flatten();
            started.exists() || status.is_some()
        })?;
        match status {
            Some(status) => Err(format!("{status}: {}", fs::read_to_string(self.place.join("err"))?).into()),
            None => Ok(()),
        }
    }

    /// The directories of its control groups.
    fn groups(&self) -> Vec<PathBuf> {
        let name = format!("watari-lab-{}", self.child.id());
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        hierarchies
            .chain([root.to_owned()])
            .map(|hierarchy| hierarchy.join(&name))
            .filter(|group| group.exists())
            .collect()
    }
}

/// A failed test leaves nothing, either.
impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role of the program that supervises a run.
pub(super) fn supervise(folder: &Path) -> Result<(), Failure> {
    let name = folder.join("endless.toml").display().to_string();
    let options = Options { is_quick: true, rounds: None, seed: 1, set: BTreeMap::new() };
    let order = Order { name, options, folder: Some(folder.join("result")), keep: None };
    // Shown as a user sees it.
    supervisor::run(&order, &["--exact", "sandbox::inside", "--nocapture"]).map_err(|error| error.to_string())?;
    Ok(())
}

/// No test: process 1 of a sandbox. The supervisor has added the order.
#[test]
fn inside() -> Result<(), Failure> {
    match env::args().next_back().filter(|order| order.starts_with('{')) {
        Some(order) => Ok(supervisor::inside(&order)?),
        None => Ok(()),
    }
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: {test} needs root");
    }
    is_root
}
