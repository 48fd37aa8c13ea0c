//! The journal: a file of the alerts that receivers do not have yet. A restart neither loses them nor changes them.
//!
//! The file is small and written as a whole: to a temporary file beside it, which is then renamed. Delivery is *at
//! least once*: a notice that was delivered right before the process ended may be sent again. This is harmless, because
//! a notice identifies its alert (by labels and `fingerprint`) and its episode (by `startsAt`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use watari_packets::Timestamp;

use super::alerts::{ALERTS_MAX, Alert, Alerts, NoticeState, PendingNotice, Policy, Slot};
use super::file::directory;
use super::notice::{Episode, Key, Over, Trouble};

/// The journal file.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    path: PathBuf,
}

/// The file's content is not a journal.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    /// It is not JSON, or has other fields.
    #[error("it cannot be read: {0}")]
    Content(#[from] serde_json::Error),
    /// Another version of this program wrote it.
    #[error("it has version {0}, expected {VERSION}")]
    Version(u32),
    /// It is longer than [`LEN_MAX`].
    #[error("it is larger than {LEN_MAX} bytes")]
    Len,
    /// It has more than [`ALERTS_MAX`] alerts.
    #[error("it has more than {ALERTS_MAX} alerts")]
    Alerts,
}

/// More than [`ALERTS_MAX`] alerts of some receivers need, in bytes.
const LEN_MAX: u64 = 32 << 20;
const VERSION: u32 = 1;

impl Journal {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The stored alerts. `Err` inside: the file was damaged, and was renamed to [`Journal::aside`].
    pub(super) fn read(&self, policies: &[Policy], now: Timestamp) -> io::Result<Result<Alerts, Damage>> {
        let content = match File::open(&self.path) {
            Ok(file) => read_all(file)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(Alerts::new(policies.to_vec()))),
            Err(error) => return Err(error),
        };
        let alerts = decode(&content, policies, now);
        if alerts.is_err() {
            fs::rename(&self.path, self.aside())?;
        }
        Ok(alerts)
    }

    /// The path to which a damaged file is renamed.
    pub(super) fn aside(&self) -> PathBuf {
        self.beside(".damaged")
    }

    /// Replaces the content of the file atomically.
    pub(super) fn write(&self, content: &[u8]) -> io::Result<()> {
        let new = self.beside(".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(directory(&self.path))?.sync_all()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name: OsString = self.path.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    }
}

fn read_all(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(LEN_MAX + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// The content of the file.
pub(super) fn encode(alerts: &Alerts) -> Vec<u8> {
    let names: Vec<&str> = alerts.policies().map(|policy| policy.name.as_str()).collect();
    let alerts = alerts.all().map(|(key, alert)| AlertRow::new(key, alert, &names)).collect();
    serde_json::to_vec(&FileRow { version: VERSION, alerts }).expect("plain values")
}

pub(super) fn decode(content: &[u8], policies: &[Policy], now: Timestamp) -> Result<Alerts, Damage> {
    if content.len() as u64 > LEN_MAX {
        return Err(Damage::Len);
    }
    let VersionRow { version } = serde_json::from_slice(content)?;
    if version != VERSION {
        return Err(Damage::Version(version));
    }
    let file: FileRow = serde_json::from_slice(content)?;
    if file.alerts.len() > ALERTS_MAX {
        return Err(Damage::Alerts);
    }
    let saved = file.alerts.into_iter().map(|alert| alert.into_alert(policies)).collect();
    Ok(Alerts::restore(policies.to_vec(), saved, now))
}

/// Parsed first, with any other fields.
#[derive(Deserialize)]
struct VersionRow {
    version: u32,
}

/// The file. Times are in nanoseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    version: u32,
    alerts: Vec<AlertRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertRow {
    sensor: String,
    server: SocketAddr,
    state: Trouble,
    /// `null` if the alert is over.
    episode: Option<EpisodeRow>,
    /// By name. Receivers without anything to get are left out.
    receivers: BTreeMap<String, SlotRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotRow {
    state: NoticeStateRow,
    pending: Option<PendingNoticeRow>,
    may_know: bool,
    repeat_at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NoticeStateRow {
    None,
    HeldUntil(u64),
    Due,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingNoticeRow {
    episode: EpisodeRow,
    over: Option<OverRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpisodeRow {
    since: u64,
    reason: String,
    because: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverRow {
    at: u64,
    because: String,
}

impl AlertRow {
    fn new(key: &Key, alert: &Alert, names: &[&str]) -> Self {
        let slots = names.iter().zip(&alert.slots);
        let notified =
            slots.filter(|(_, slot)| slot.state != NoticeState::None || slot.pending.is_some() || slot.may_know);
        Self {
            sensor: key.sensor.clone(),
            server: key.server,
            state: key.trouble,
            episode: alert.episode.as_ref().map(EpisodeRow::from),
            receivers: notified.map(|(name, slot)| ((*name).to_owned(), SlotRow::from(slot))).collect(),
        }
    }

    /// Converts for the present receivers. Those that are no longer configured are dropped.
    fn into_alert(mut self, policies: &[Policy]) -> (Key, Alert) {
        let slot = |policy: &Policy| self.receivers.remove(&policy.name).map_or_else(Slot::default, Slot::from);
        let slots = policies.iter().map(slot).collect();
        let key = Key::new(&self.sensor, self.server, self.state);
        (key, Alert::saved(self.episode.map(Episode::from), slots))
    }
}

impl From<&Slot> for SlotRow {
    fn from(slot: &Slot) -> Self {
        let state = match slot.state {
            NoticeState::None => NoticeStateRow::None,
            NoticeState::Held(until) => NoticeStateRow::HeldUntil(until.0),
            NoticeState::Due => NoticeStateRow::Due,
        };
        let pending = slot.pending.as_ref().map(|pending| PendingNoticeRow {
            episode: EpisodeRow::from(&pending.episode),
            over: pending.over.as_ref().map(|over| OverRow { at: over.at.0, because: over.because.clone() }),
        });
        Self { state, pending, may_know: slot.may_know, repeat_at: slot.repeat_at.map(|at| at.0) }
    }
}

impl From<SlotRow> for Slot {
    fn from(row: SlotRow) -> Self {
        let state = match row.state {
            NoticeStateRow::None => NoticeState::None,
            NoticeStateRow::HeldUntil(until) => NoticeState::Held(Timestamp(until)),
            NoticeStateRow::Due => NoticeState::Due,
        };
        let over = |over: OverRow| Over { at: Timestamp(over.at), because: over.because };
        let pending = row.pending.map(|row| PendingNotice::saved(row.episode.into(), row.over.map(over)));
        Self::saved(state, pending, row.may_know, row.repeat_at.map(Timestamp))
    }
}

impl From<&Episode> for EpisodeRow {
    fn from(episode: &Episode) -> Self {
        Self { since: episode.since.0, reason: episode.reason.clone(), because: episode.because.clone() }
    }
}

impl From<EpisodeRow> for Episode {
    fn from(row: EpisodeRow) -> Self {
        Self { since: Timestamp(row.since), reason: row.reason, because: row.because }
    }
}

#[cfg(test)]
mod tests;
