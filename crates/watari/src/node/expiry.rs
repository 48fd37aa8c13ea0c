//! Certificates that have expired or expire soon, as a metric and in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use watari_handshake::{Validity, ValidityState};

use crate::config::{CertificateFile, CertificateUse, Config};

/// How often the log repeats a warning.
const REPEAT: Duration = Duration::from_hours(24);

type Certificates = Vec<(CertificateFile, Validity)>;

/// The certificates of a configuration, and the warnings that were logged.
#[derive(Default)]
pub(crate) struct Expiry {
    metric: Family<Labels, Gauge>,
    /// The certificates of the node and its cluster. They are read once, because the mesh does not reload them either.
    of_mesh: Option<Certificates>,
    logged: BTreeMap<(PathBuf, String), (ValidityState, SystemTime)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// The text of [`CertificateUse::label`].
    usage: &'static str,
    file: String,
    subject: String,
}

/// A certificate that has expired, expires soon, or is not valid yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) usage: CertificateUse,
    pub(crate) file: PathBuf,
    pub(crate) validity: Validity,
    pub(crate) state: ValidityState,
}

impl Expiry {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let expiry = Self::default();
        let help = "Expiry of each certificate in use, in seconds since 1970: those of listeners with their chains, the authorities of client certificates, the node's own and its cluster's authority";
        registry.register("watari_certificate_expiry_timestamp_seconds", help, expiry.metric.clone());
        expiry
    }

    /// Sets the metric for the certificates in `config`, and logs warnings. The log repeats a warning after a day, or
    /// at once if `all` is set.
    pub(crate) fn look(&mut self, config: &Config, now: SystemTime, all: bool) {
        let is_of_mesh = |usage: CertificateUse| matches!(usage, CertificateUse::Node | CertificateUse::Cluster);
        let mut certificates = read(config, |usage| !is_of_mesh(usage));
        certificates.extend_from_slice(self.of_mesh.get_or_insert_with(|| read(config, is_of_mesh)));
        self.metric.clear();
        for (CertificateFile { usage, path }, validity) in &certificates {
            let (file, subject) = (path.display().to_string(), validity.subject.clone());
            self.metric.get_or_create(&Labels { usage: usage.label(), file, subject }).set(validity.not_after);
        }
        let warnings = warnings(certificates, now);
        self.logged.retain(|key, _| warnings.iter().any(|warning| warning.key() == *key));
        for warning in warnings {
            let is_due = |(state, logged): &(ValidityState, SystemTime)| {
                *state != warning.state || now.duration_since(*logged).is_ok_and(|since| since >= REPEAT)
            };
            if all || self.logged.get(&warning.key()).is_none_or(is_due) {
                tracing::warn!("{warning}");
                self.logged.insert(warning.key(), (warning.state, now));
            }
        }
    }
}

/// The warnings for the certificates of `config` at `now`.
pub(crate) fn check(config: &Config, now: SystemTime) -> Vec<Warning> {
    warnings(read(config, |_| true), now)
}

/// Skips files that cannot be read: the parts that need them report the error.
fn read(config: &Config, is_wanted: impl Fn(CertificateUse) -> bool) -> Certificates {
    let mut read = Vec::new();
    for file in config.certificate_files().into_iter().filter(|file| is_wanted(file.usage)) {
        let validities = std::fs::read(&file.path).ok().and_then(|pem| Validity::of_pem(&pem).ok());
        read.extend(validities.into_iter().flatten().map(|validity| (file.clone(), validity)));
    }
    read
}

fn warnings(certificates: Certificates, now: SystemTime) -> Vec<Warning> {
    let warning = |(CertificateFile { usage, path: file }, validity): (CertificateFile, Validity)| {
        let state = validity.state(now);
        (state != ValidityState::Valid).then_some(Warning { usage, file, validity, state })
    };
    certificates.into_iter().filter_map(warning).collect()
}

impl Warning {
    fn key(&self) -> (PathBuf, String) {
        (self.file.clone(), self.validity.subject.clone())
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usage, file, validity, state } = self;
        write!(f, "{}: the certificate of {} ({usage}) ", file.display(), validity.subject)?;
        match state {
            ValidityState::Expired => write!(f, "expired at {}: renew it", date(validity.not_after)),
            ValidityState::NotYetValid => {
                write!(f, "is not valid before {}: check the clock of this machine", date(validity.not_before))
            }
            ValidityState::ExpiresSoon | ValidityState::Valid => {
                write!(f, "expires at {}: renew it", date(validity.not_after))
            }
        }
    }
}

/// RFC 3339, UTC.
fn date(seconds: i64) -> String {
    let date = OffsetDateTime::from(UNIX_EPOCH) + time::Duration::seconds(seconds);
    date.format(&Rfc3339).unwrap_or_else(|_| seconds.to_string())
}
