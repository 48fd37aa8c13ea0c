//! Drops the privileges of a process.
//!
//! Opening a capture takes privileges, and reading from it takes none. Its input comes from untrusted peers. So when
//! captures, sockets and files are open, [`drop_all`] permanently drops all privileges that the rest does not need:
//!
//! | privilege | restriction | if it fails |
//! | --- | --- | --- |
//! | the user, its groups | another user, no supplementary groups | an error; only root changes its user |
//! | capabilities | none, and none from running a program | an error |
//! | files | only those of [`Keep`] (Landlock, Linux 5.13) | reported: the user's permissions apply |
//! | system calls | none that run or trace programs, mount, load kernel code, and similar (seccomp) | reported |
//!
//! All restrictions but the user belong to the calling thread and to those that it starts. So [`drop_all`] has to run
//! before other threads start, and fails otherwise. Open files and sockets stay open.

mod calls;
mod error;
mod files;
mod keep;

use std::fmt;
use std::fs;
use std::io;

use nix::unistd::{Gid, Uid, User, geteuid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    no_new_privs, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use error::PrivilegesError;
pub use files::Enforced;
pub use keep::Keep;

/// The default user for a process that root started.
pub const DEFAULT_USER: &str = "nobody";

/// The result of [`drop_all`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The new user of the process, if it changed.
    pub user: Option<String>,
    /// Whether only the files of [`Keep`] may be opened.
    pub files: Enforced,
    /// Whether system calls are forbidden.
    pub calls: bool,
}

/// The default user: [`DEFAULT_USER`] if the process runs as root, else `None`.
pub fn user() -> Option<String> {
    geteuid().is_root().then(|| DEFAULT_USER.to_owned())
}

/// Drops all privileges except those of `keep`.
pub fn drop_all(keep: &Keep) -> Result<Dropped, PrivilegesError> {
    refuse_threads()?;
    // The present user may open these paths, and the next one may not.
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

/// Returns the user's name if the user changed.
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

/// Programs that the process runs get no capabilities from their files. Without `CAP_SETPCAP` the bounding set stays.
/// Then `no_new_privs` has to suffice.
fn drop_bounding_set() -> io::Result<()> {
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        match capability_is_in_bounding_set(capability) {
            Ok(true) => match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::PERM) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
            Ok(false) => {}
            // The kernel has no further capabilities.
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
    Err(io::Error::other("some capabilities are left, or no_new_privs is not set"))
}

fn capabilities_error(error: io::Error) -> PrivilegesError {
    PrivilegesError::Capabilities(error)
}
