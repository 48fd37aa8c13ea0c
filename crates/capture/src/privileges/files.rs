//! Restricts the files that may be opened, with Landlock.

use std::fmt;
use std::fs;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use super::error::{PrivilegesError, path_error};
use super::keep::Keep;

/// The restrictions of Linux 6.12, as far as the kernel has them.
const NEWEST: ABI = ABI::V6;

/// The files that the C library reads to resolve a name (nsswitch.conf(5), and its modules), and the certificate
/// authorities.
const NAMES: [&str; 6] = [
    "/etc",
    "/lib",
    "/usr/lib",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/run/systemd/resolve",
];

/// How far the kernel enforces the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// Only the files of `Keep` can be opened, and processes outside cannot be signalled.
    Fully,
    /// The kernel is too old for some rules (before 6.12).
    Partly,
    /// The kernel has no Landlock, or it is disabled. Only the user's permissions apply.
    Not,
}

/// Rules that are not enforced yet.
#[derive(Debug)]
pub(super) struct Rules(RulesetCreated);

impl Rules {
    /// Opens the paths of `keep`.
    pub(super) fn new(keep: &Keep) -> Result<Self, PrivilegesError> {
        let all = AccessFs::from_all(NEWEST);
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = all & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
        let mut rules = Self(Ruleset::default().handle_access(all)?.scope(Scope::from_all(NEWEST))?.create()?);
        if keep.programs {
            rules = rules.allow(Path::new("/"), read | AccessFs::Execute)?;
            rules = rules.allow(Path::new("/dev/null"), write)?;
        }
        if keep.names {
            for path in NAMES.map(Path::new).into_iter().filter(|path| path.exists()) {
                rules = rules.allow(path, read)?;
            }
        }
        for path in &keep.read {
            rules = rules.allow(path, read)?;
        }
        for path in &keep.write {
            rules = rules.allow(path, write)?;
        }
        Ok(rules)
    }

    /// Enforces the rules from now on.
    pub(super) fn enforce(self) -> Result<Enforced, PrivilegesError> {
        Ok(match self.0.restrict_self()?.ruleset {
            RulesetStatus::FullyEnforced => Enforced::Fully,
            RulesetStatus::PartiallyEnforced => Enforced::Partly,
            RulesetStatus::NotEnforced => Enforced::Not,
        })
    }

    fn allow(self, path: &Path, access: BitFlags<AccessFs>) -> Result<Self, PrivilegesError> {
        let is_dir = fs::metadata(path).map_err(|error| path_error(path, error))?.is_dir();
        let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
        let opened = PathFd::new(path).map_err(|error| path_error(path, std::io::Error::other(error)))?;
        Ok(Self(self.0.add_rule(PathBeneath::new(opened, access))?))
    }
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fully => "restricted",
            Self::Partly => "restricted as far as this kernel supports it",
            Self::Not => "not restricted (no Landlock)",
        })
    }
}
