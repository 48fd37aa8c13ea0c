//! A process that can do little else than what it does already.
//!
//! Opening a capture takes privileges, reading from it takes none; and what is read was written by anybody. So once captures, sockets
//! and files are open, [`drop_all`] gives up, for good, whatever the rest does not need:
//!
//! | what | how | without it |
//! | --- | --- | --- |
//! | the user, its groups | another user, no supplementary groups | only root can change, and only root needs to |
//! | capabilities | none, nor any to be had by running a program | an error |
//! | files | those that are named (Landlock, Linux 5.13) | reported: files are those that the user may open |
//! | system calls | none that run or trace programs, mount, load code into the kernel, .. (seccomp) | reported |
//!
//! All but the user belongs to the calling thread and those that it starts. So this is done before any other is started, which is
//! checked. What is open stays open.

mod calls;
mod files;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, geteuid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    no_new_privs, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use files::Enforced;

/// Whom root becomes, unless somebody else is named.
pub const NOBODY: &str = "nobody";

/// What a process keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// Which user it becomes; `None`: it stays who it is. Only root can become somebody else. (See [`user`].)
    pub user: Option<String>,
    /// Files and directories that it may still open to read.
    pub read: Vec<PathBuf>,
    /// Files that it may still open to write; directories in which it may do anything but run programs. Files that are still to be
    /// created have to be so in one of these directories.
    pub write: Vec<PathBuf>,
    /// Whether it runs programs. Then it, and they, may read and run whatever the user may, but write nothing else than what is named
    /// here.
    pub programs: bool,
    /// Whether it looks up the names of hosts, and trusts the certificate authorities of the system. Then it may read what that takes:
    /// libraries, and what is configured in `/etc`.
    pub names: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Whom the process has become, if it was somebody else.
    pub user: Option<String>,
    /// Whether the files that it may open are those that were named.
    pub files: Enforced,
    /// Whether system calls are forbidden.
    pub calls: bool,
}

/// Privileges could not be dropped; some may have been.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegesError {
    /// It is too late.
    #[error("privileges belong to threads, and {0} are running already")]
    Threads(usize),
    /// There is nobody of that name.
    #[error("there is no user {0}")]
    NoUser(String),
    /// The process cannot become that user.
    #[error("cannot become {user}: {source}")]
    User {
        /// Whom it was to become.
        user: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something that the process may go on to use is not there.
    #[error("cannot open {}, to which access is kept: {source}", .path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Capabilities are still there.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(io::Error),
    /// Files cannot be restricted, though the system offers to.
    #[error("cannot restrict which files may be opened: {0}")]
    Files(#[from] landlock::RulesetError),
    /// System calls cannot be forbidden, though the system offers to.
    #[error("cannot forbid system calls: {0}")]
    Calls(#[from] seccompiler::Error),
}

/// Whom a process should become, if nothing else is wished: nobody, where it is root's.
pub fn user() -> Option<String> {
    geteuid().is_root().then(|| NOBODY.to_owned())
}

/// Drops all privileges but those to [`Keep`].
pub fn drop_all(keep: &Keep) -> Result<Dropped, PrivilegesError> {
    refuse_threads()?;
    // What this user can open, the next may not be able to.
    let files = files::Rules::new(keep)?;
    drop_bounding_set().map_err(capabilities_error)?;
    let user = keep.user.as_deref().map(become_user).transpose()?.flatten();
    drop_capabilities().map_err(capabilities_error)?;
    Ok(Dropped { user, files: files.enforce()?, calls: calls::forbid(keep.programs)? })
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "user {user}, ")?,
            None => write!(f, "user unchanged, ")?,
        }
        write!(f, "no capabilities, files {}, ", self.files)?;
        f.write_str(if self.calls { "system calls restricted" } else { "system calls not restricted (no seccomp)" })
    }
}

fn refuse_threads() -> Result<(), PrivilegesError> {
    match fs::read_dir("/proc/self/task").map_or(1, Iterator::count) {
        0 | 1 => Ok(()),
        threads => Err(PrivilegesError::Threads(threads)),
    }
}

/// Returns the name, if it is another user's.
fn become_user(name: &str) -> Result<Option<String>, PrivilegesError> {
    let failed = |source: nix::Error| PrivilegesError::User { user: name.to_owned(), source: source.into() };
    let user = User::from_name(name).map_err(failed)?.ok_or_else(|| PrivilegesError::NoUser(name.to_owned()))?;
    if user.uid == geteuid() {
        return Ok(None);
    }
    change(user.uid, user.gid).map_err(failed)?;
    Ok(Some(user.name))
}

fn change(uid: Uid, gid: Gid) -> nix::Result<()> {
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// No program that is run has capabilities, whatever its file has. Without `CAP_SETPCAP` this cannot be done; then
/// `no_new_privs` has to be enough.
fn drop_bounding_set() -> io::Result<()> {
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        match capability_is_in_bounding_set(capability) {
            Ok(true) => match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::PERM) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
            Ok(false) => {}
            // The kernel knows no more of them.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    let left = capabilities(None)?;
    if (left.effective | left.permitted | left.inheritable).is_empty() && no_new_privs()? {
        return Ok(());
    }
    Err(io::Error::other("the system still says that there are some"))
}

fn capabilities_error(error: io::Error) -> PrivilegesError {
    PrivilegesError::Capabilities(error)
}

fn path_error(path: &Path, source: impl Into<io::Error>) -> PrivilegesError {
    PrivilegesError::Path { path: path.to_owned(), source: source.into() }
}
