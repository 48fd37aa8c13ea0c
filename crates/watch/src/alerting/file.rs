//! The file with the receivers of alerts.
//!
//! ```toml
//! journal = "alerts.json"
//!
//! [[receiver]]
//! type = "webhook"
//! url = "https://alerts.example/hook"
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use watari_capture::privileges::Keep;

use super::config::{AlertingConfigError, Receiver, ReceiverFile, Target, receivers};

/// Receivers and journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    pub receivers: Vec<Receiver>,
    /// The file of the alerts that receivers do not have yet; `None` forgets them at a restart.
    pub journal: Option<PathBuf>,
}

/// The file has no valid receivers.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not TOML, or has unknown keys or other types.
    #[error("{}: {source}", .path.display())]
    Parse {
        path: PathBuf,
        /// The error and its position.
        source: toml::de::Error,
    },
    /// A receiver is invalid.
    #[error("{}: {source}", .path.display())]
    Receiver {
        /// The path of the file.
        path: PathBuf,
        source: AlertingConfigError,
    },
}

/// The keys of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    journal: Option<PathBuf>,
    #[serde(default)]
    receiver: Vec<ReceiverFile>,
}

impl Config {
    /// Reads a file. Relative paths in it are relative to its directory.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text, directory(path)).map_err(|wrong| wrong.of(path))
    }

    fn parse(text: &str, directory: &Path) -> Result<Self, Wrong> {
        let ConfigFile { journal, receiver: mut sections } = toml::from_str(text)?;
        for receiver in &mut sections {
            receiver.resolve(directory);
        }
        Ok(Self { receivers: receivers(&sections)?, journal: journal.map(|journal| directory.join(journal)) })
    }

    /// Adds the privileges that notifications need: see [`Keep`].
    pub fn keep(&self, keep: &mut Keep) {
        keep.write.extend(self.journal.as_deref().map(|journal| directory(journal).to_owned()));
        for receiver in &self.receivers {
            match &receiver.target {
                Target::Webhook(http) | Target::Alertmanager(http) => {
                    keep.names = true;
                    keep.read.extend(http.ca_file.clone());
                    // Tokens are replaced by renaming another file, so the directory is needed.
                    keep.read.extend(http.token_file.as_deref().map(|token| directory(token).to_owned()));
                }
                Target::Command { .. } => keep.programs = true,
                Target::Syslog { .. } => keep.names = true,
            }
        }
    }
}

/// An error in the text.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Wrong {
    Parse(#[from] toml::de::Error),
    Receiver(#[from] AlertingConfigError),
}

impl Wrong {
    fn of(self, path: &Path) -> ConfigError {
        let path = path.to_owned();
        match self {
            Self::Parse(source) => ConfigError::Parse { path, source },
            Self::Receiver(source) => ConfigError::Receiver { path, source },
        }
    }
}

/// The directory of a file.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HERE: &str = "/etc/watari";

    fn parse(text: &str) -> Result<Config, Wrong> {
        Config::parse(text, Path::new(HERE))
    }

    #[test]
    fn files_are_beside_it() {
        let config = parse(
            "journal = 'alerts.json'\n\
             [[receiver]]\ntype = 'webhook'\nurl = 'https://a.example/'\nca_file = 'ca.pem'\ntoken_file = '/run/secrets/token'\n",
        );
        let mut keep = Keep::default();
        config.unwrap().keep(&mut keep);
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!((keep.read, keep.write), (paths(&["/etc/watari/ca.pem", "/run/secrets"]), paths(&[HERE])));
        assert!(keep.names && !keep.programs);
    }

    #[test]
    fn only_processes_with_command_receivers_may_run_programs() {
        let mut keep = Keep::default();
        parse("[[receiver]]\ntype = 'command'\nprogram = 'page'\n").unwrap().keep(&mut keep);
        assert_eq!(keep, Keep { programs: true, ..Keep::default() });
        let mut keep = Keep::default();
        parse("").unwrap().keep(&mut keep);
        assert_eq!(keep, Keep::default());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| parse(text).unwrap_err().of(Path::new("watch.toml")).to_string();
        assert!(said("jornal = 'a'").contains("watch.toml: TOML parse error at line 1"), "{}", said("jornal = 'a'"));
        let missing = said("[[receiver]]\ntype = 'webhook'");
        assert_eq!(missing, "watch.toml: the [[receiver]] webhook needs url: it is of type webhook");
        let none = Config::load(Path::new("/nowhere/watch.toml")).unwrap_err().to_string();
        assert_eq!(none, "cannot read /nowhere/watch.toml: No such file or directory (os error 2)");
    }
}
