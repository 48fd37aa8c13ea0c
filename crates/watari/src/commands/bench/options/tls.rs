//! How TLS is spoken.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use watari_bench_engine::tls::{Pem, Resume, Roots, TlsOptions};
use watari_handshake::{Group, Policy};
use watari_record::{CipherSuite, Version};

use crate::failure::Failure;

/// TLS connections
#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// Handshakes that offer a session: none (full), all but the first of each client (reuse), or N percent (mixed:N)
    /// [default: full; of users: reuse]
    #[arg(long, value_name = "full|reuse|mixed:N", value_parser = resume)]
    resume: Option<Resume>,
    /// TLS 1.2: resume by session ids only, and ignore tickets
    #[arg(long)]
    session_ids: bool,
    /// The only version to offer
    #[arg(long = "tls", value_enum)]
    version: Option<VersionName>,
    /// A cipher suite to offer, by its IANA name; repeatable
    #[arg(long, value_name = "SUITE", value_parser = suite)]
    suite: Vec<CipherSuite>,
    /// A group to offer, the preferred one first; repeatable: X25519MLKEM768, x25519, secp256r1, secp384r1
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Vec<Group>,
    /// Verify the server's certificate by the authorities that this system trusts [default: no verification]
    #[arg(long, conflicts_with = "cacert")]
    verify: bool,
    /// Verify the server's certificate by the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// A client certificate for servers that request one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum VersionName {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Tls {
    /// The options. `resume` counts if `--resume` is not given.
    pub(crate) fn options(&self, resume: Resume) -> Result<TlsOptions, Failure> {
        let mut policy = Policy::default();
        if let Some(version) = self.version {
            policy.versions = vec![match version {
                VersionName::Tls12 => Version::Tls12,
                VersionName::Tls13 => Version::Tls13,
            }];
        }
        if !self.suite.is_empty() {
            policy.suites.clone_from(&self.suite);
            if self.version.is_none() {
                policy.versions.retain(|version| self.suite.iter().any(|suite| suite.version() == *version));
            }
        }
        if !self.group.is_empty() {
            policy.groups.clone_from(&self.group);
            if self.version.is_none() {
                policy.versions.retain(|version| self.group.iter().any(|group| group.fits(*version)));
            }
        }
        if self.session_ids && !policy.versions.contains(&Version::Tls12) {
            return Err(Failure::Usage("--session-ids needs TLS 1.2, which is not offered".to_owned()));
        }
        policy.check().map_err(|error| Failure::Usage(format!("no handshake is possible: {error}")))?;
        Ok(TlsOptions {
            policy,
            roots: match &self.cacert {
                Some(file) => Roots::File(pem(file)?),
                None if self.verify => Roots::System,
                None => Roots::Unchecked,
            },
            resume: self.resume.unwrap_or(resume),
            session_ids_only: self.session_ids,
            certificate: match (&self.cert, &self.key) {
                (Some(chain), Some(key)) => Some((pem(chain)?, pem(key)?)),
                _ => None,
            },
        })
    }
}

fn pem(file: &Path) -> Result<Pem, Failure> {
    Pem::read(file).map_err(|error| Failure::Usage(error.to_string()))
}

fn resume(text: &str) -> Result<Resume, &'static str> {
    match text {
        "full" => Ok(Resume::Full),
        "reuse" => Ok(Resume::Reuse),
        _ => {
            let percent = text.strip_prefix("mixed:").and_then(|percent| percent.parse().ok());
            let percent = percent.filter(|percent| *percent <= 100);
            percent.map(Resume::Mixed).ok_or("expected full, reuse, or mixed:N with N from 0 to 100")
        }
    }
}

fn suite(text: &str) -> Result<CipherSuite, String> {
    let named = CipherSuite::ALL.into_iter().find(|suite| suite.name() == text);
    named.ok_or_else(|| format!("expected one of {}", names(CipherSuite::ALL.map(CipherSuite::name))))
}

fn group(text: &str) -> Result<Group, String> {
    Group::from_name(text).ok_or_else(|| format!("expected one of {}", names(Group::ALL.map(Group::name))))
}

fn names<const N: usize>(names: [&str; N]) -> String {
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        tls: Tls,
    }

    fn options(words: &[&str]) -> Result<TlsOptions, Failure> {
        Command::try_parse_from([&["command"], words].concat()).unwrap().tls.options(Resume::Full)
    }

    #[test]
    fn groups_and_suites_narrow_the_versions_that_are_offered() {
        let versions = |words: &[&str]| options(words).unwrap().policy.versions;
        assert_eq!(versions(&["--group", "X25519MLKEM768"]), [Version::Tls13]);
        assert_eq!(versions(&["--suite", "TLS_AES_128_GCM_SHA256", "--group", "X25519MLKEM768"]), [Version::Tls13]);
        assert_eq!(versions(&["--group", "X25519MLKEM768", "--group", "x25519"]).len(), 2);
        assert!(options(&["--tls", "1.2", "--group", "X25519MLKEM768"]).is_err());
    }

    #[test]
    fn session_ids_need_tls_1_2() {
        assert!(options(&["--session-ids"]).unwrap().session_ids_only);
        let refused = options(&["--session-ids", "--tls", "1.3"]).unwrap_err().to_string();
        assert_eq!(refused, "--session-ids needs TLS 1.2, which is not offered");
    }
}
