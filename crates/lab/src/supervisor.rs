//! The supervisor of a run. The run itself happens in a sandbox: new pid, mount and network namespaces, which the kernel
//! removes with all their processes when the sandbox ends, however it ends.
//!
//! ```text
//!   supervisor --> setpriv --> unshare --> watari lab inside    is process 1 of the sandbox
//!       |             dies with the            |
//!       |             process before it        +--> programs on hosts
//!       +-- control groups, the directory of the run: what is left after a sandbox, and removed here
//! ```
//!
//! The supervisor ends the sandbox by closing its standard input. Process 1 then exits, and `unshare` exits after the
//! kernel has ended all other processes. So none of them is left that could still write to the directory of the run.
//!
//! If the supervisor is killed, the next one removes its control groups and its directory.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Child;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::catalogue;
use crate::commands;
use crate::control_group::{self, Groups};
use crate::plan::{self, Options, Plan};
use crate::result::RunResult;
use crate::run::{self, Places};

/// The folder of the folders of runs, in the current directory.
pub const RUNS: &str = "lab-runs";

/// Directories of programs that servers are in, besides those of the user.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The folder of temporary files, in the directory of the run.
const TEMPORARY: &str = "tmp";

/// How long the kernel may take to end the processes of a sandbox.
const END_MAX: Duration = Duration::from_secs(10);

/// An experiment, and the folders of its run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The name or the file of the experiment.
    pub name: String,
    pub options: Options,
    /// The folder of the result. None is one in [`RUNS`], by the kind of the run.
    pub folder: Option<PathBuf>,
    /// Where the directory of the run stays. None removes it.
    pub keep: Option<PathBuf>,
}

/// What the sandbox gets as its argument.
#[derive(Deserialize, Serialize)]
struct Inside {
    name: String,
    options: Options,
    places: Places,
    groups: Groups,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing}: {error}")]
    File { doing: String, error: io::Error },
    #[error("{} is not empty: name another directory to keep", .path.display())]
    NotEmpty { path: PathBuf },
    #[error(transparent)]
    Catalogue(#[from] catalogue::Error),
    #[error(transparent)]
    Plan(#[from] plan::Error),
    #[error(transparent)]
    ControlGroup(#[from] control_group::Error),
    #[error(
        "cannot make a sandbox: {stderr}: run it as root, or where users may make a user namespace \
         (kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0); it needs the programs \
         setpriv, unshare and nsenter (Debian: util-linux) and ip (iproute2)"
    )]
    Sandbox { stderr: String },
    #[error("interrupted: everything that the run had made is removed")]
    Interrupted,
    #[error("the experiment {name} failed ({status}): its error is above")]
    Failed { name: String, status: ExitStatus },
    #[error("the order of the supervisor is not readable: `watari lab run` makes it")]
    Order,
    #[error(transparent)]
    Run(#[from] Box<run::Error>),
}

/// Runs an experiment in a sandbox. `command` makes this program call [`inside`], with one more argument.
pub fn run(order: &Order, command: &[&str]) -> Result<RunResult, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(file("start a runtime".to_owned()))?;
    // From here on, no signal ends this process before it has removed everything.
    let mut signals = Signals::listen(&runtime)?;
    // Fails before anything is made, if the file is wrong.
    let plan = Plan::new(catalogue::find(&order.name)?, order.options.clone(), Path::new(""))?;
    check_sandbox()?;
    let folder = order.folder.clone().unwrap_or_else(|| Path::new(RUNS).join(plan.folder_name()));
    let folder = absolute(&folder)?;
    check_folder(&folder)?;
    let work = Work::make(order.keep.as_deref())?;
    let groups = Groups::create()?;
    let places = Places { work: work.path().to_owned(), folder: folder.clone() };
    let inside = Inside { name: order.name.clone(), options: order.options.clone(), places, groups };
    let ended = runtime.block_on(run_sandbox(command, &inside, work.path(), &mut signals));
    inside.groups.remove();
    let status = ended?;
    if !status.success() {
        return Err(Error::Failed { name: order.name.clone(), status });
    }
    let path = folder.join("result.json");
    let result = fs::read(&path).map_err(file(format!("read {}", path.display())))?;
    serde_json::from_slice(&result).map_err(|error| file(format!("read {}", path.display()))(error.into()))
}

/// The sandbox's part of [`run()`].
pub fn inside(order: &str) -> Result<(), Error> {
    let inside: Inside = serde_json::from_str(order).map_err(|_| Error::Order)?;
    std::thread::spawn(exit_with_supervisor);
    let plan = Plan::new(catalogue::find(&inside.name)?, inside.options, &inside.places.work)?;
    run::run(&plan, &inside.places, &inside.groups).map_err(Box::new)?;
    Ok(())
}

/// Ends this process, and so the sandbox, when the supervisor closes its end of standard input.
fn exit_with_supervisor() {
    let _ = io::stdin().read(&mut [0]);
    std::process::exit(1);
}

async fn run_sandbox(
    command: &[&str],
    inside: &Inside,
    work: &Path,
    signals: &mut Signals,
) -> Result<ExitStatus, Error> {
    let order = serde_json::to_string(inside).map_err(|error| file("write the order".to_owned())(error.into()))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut sandbox = in_sandbox(work.join("bin/watari"));
    sandbox.args(command).arg(order).stdin(Stdio::piped());
    sandbox.env("PATH", format!("{}:{path}:{SYSTEM_PATH}", work.join("bin").display()));
    // Programs that are killed leave their temporary files.
    sandbox.env("TMPDIR", work.join(TEMPORARY));
    let mut sandbox = tokio::process::Command::from(sandbox);
    // Ctrl-C reaches the supervisor alone, so that the sandbox reports no failure of its own.
    let sandbox = sandbox.process_group(0).kill_on_drop(true).spawn();
    let mut sandbox = sandbox.map_err(file("run setpriv (Debian: util-linux)".to_owned()))?;
    // `wait` would close it.
    let input = sandbox.stdin.take();
    tokio::select! {
        status = sandbox.wait() => status.map_err(file("wait for the sandbox".to_owned())),
        () = signals.next() => {
            drop(input);
            end(&mut sandbox).await
        }
    }
}

async fn end(sandbox: &mut Child) -> Result<ExitStatus, Error> {
    let failed = || file("end the sandbox".to_owned());
    match timeout(END_MAX, sandbox.wait()).await {
        Ok(status) => drop(status.map_err(failed())?),
        Err(_) => sandbox.kill().await.map_err(failed())?,
    }
    Err(Error::Interrupted)
}

/// Runs a program as root of a sandbox.
fn in_sandbox(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"]);
    command.args(["--mount", "--mount-proc", "--net"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--").arg(program);
    command
}

/// Fails early where the kernel allows no sandbox, or a program is missing.
fn check_sandbox() -> Result<(), Error> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = in_sandbox("ip");
    command.args(["link", "set", "lo", "up"]).env("PATH", format!("{path}:{SYSTEM_PATH}"));
    let ran = commands::run(&mut command).map_err(|error| Error::Sandbox { stderr: format!("setpriv: {error}") })?;
    ran.map(drop).map_err(|stderr| Error::Sandbox { stderr })
}

/// Fails before the run if its result could not be written.
fn check_folder(folder: &Path) -> Result<(), Error> {
    tempfile::tempfile_in(folder).map(drop).map_err(file(format!("write in {}", folder.display())))
}

/// The signals that end a run.
struct Signals([Signal; 4]);

impl Signals {
    fn listen(runtime: &Runtime) -> Result<Self, Error> {
        let _entered = runtime.enter();
        let listen = |kind| signal(kind).map_err(file("listen for signals".to_owned()));
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(listen);
        // A terminal that closes, and Ctrl-\.
        let [hangup, quit] = [SignalKind::hangup(), SignalKind::quit()].map(listen);
        Ok(Self([interrupt?, terminate?, hangup?, quit?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// The directory of the run.
enum Work {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Work {
    fn make(keep: Option<&Path>) -> Result<Self, Error> {
        // Those of supervisors that were killed.
        control_group::remove_stale_entries(&std::env::temp_dir(), &|path| drop(fs::remove_dir_all(path)));
        let work = if let Some(path) = keep { Self::keep(path)? } else { Self::make_temporary()? };
        // Some servers read their files as another user.
        permit(work.path(), 0o755)?;
        let (bin, temporary) = (work.path().join("bin"), work.path().join(TEMPORARY));
        for folder in [&bin, &temporary] {
            fs::create_dir_all(folder).map_err(file(format!("create {}", folder.display())))?;
        }
        permit(&temporary, 0o1777)?;
        // Its own name for this file, which a build may replace while the run goes on.
        let (program, watari) = (std::env::current_exe(), bin.join("watari"));
        let program = program.map_err(file("find this program".to_owned()))?;
        let linked = fs::hard_link(&program, &watari).or_else(|_| fs::copy(&program, &watari).map(drop));
        linked.map_err(file("copy this program".to_owned()))?;
        Ok(work)
    }

    fn keep(path: &Path) -> Result<Self, Error> {
        let path = absolute(path)?;
        let is_empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if is_empty { Ok(Self::Kept(path)) } else { Err(Error::NotEmpty { path }) }
    }

    fn make_temporary() -> Result<Self, Error> {
        let prefix = format!("{}{}-", control_group::PREFIX, std::process::id());
        let made = tempfile::Builder::new().prefix(&prefix).tempdir();
        Ok(Self::Temporary(made.map_err(file("make a temporary directory".to_owned()))?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

fn permit(folder: &Path, mode: u32) -> Result<(), Error> {
    let permitted = fs::set_permissions(folder, fs::Permissions::from_mode(mode));
    permitted.map_err(file(format!("set permissions of {}", folder.display())))
}

/// The absolute path of a folder, which it makes.
fn absolute(folder: &Path) -> Result<PathBuf, Error> {
    let failed = || file(format!("create {}", folder.display()));
    fs::create_dir_all(folder).map_err(failed())?;
    folder.canonicalize().map_err(failed())
}

fn file(doing: String) -> impl Fn(io::Error) -> Error {
    move |error| Error::File { doing: doing.clone(), error }
}
