//! Notices: a server is in a bad state, or no longer.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use watari_endings::{Change, ServerState, Verdict};
use watari_packets::Timestamp;

use crate::spans::because;

/// A notice of one alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub key: Key,
    pub episode: Episode,
    /// `None` if the alert is active.
    pub over: Option<Over>,
}

/// An alert: a bad state of a server, as one sensor sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The name of the sensor, without control characters.
    pub sensor: String,
    pub server: SocketAddr,
    pub trouble: Trouble,
}

/// The states that receivers are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// [`ServerState::Saturated`].
    Saturated,
    /// [`ServerState::Stopped`].
    Stopped,
}

/// A span in which a server was in a bad state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Episode {
    /// The begin of the span.
    pub since: Timestamp,
    /// The limit that decided, as in [`watari_endings::Reason::as_str`].
    pub reason: String,
    /// The evidence as a sentence, with the measured value.
    pub because: String,
}

/// The end of an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    pub at: Timestamp,
    /// The present state of the server, as a sentence.
    pub because: String,
}

/// The longest name of a sensor in a notice. Longer ones are cut, because names come from outside.
const SENSOR_LEN_MAX: usize = 128;

impl Notice {
    /// `firing` or `resolved`, as in Alertmanager.
    pub const fn status(&self) -> &'static str {
        if self.over.is_none() { "firing" } else { "resolved" }
    }

    /// The labels that identify the alert. They are the same in all its notices.
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let Key { sensor, server, trouble } = &self.key;
        BTreeMap::from([
            ("alertname", trouble.alert_name().to_owned()),
            ("sensor", sensor.clone()),
            ("server", server.to_string()),
            ("severity", trouble.severity().to_owned()),
            ("state", trouble.as_str().to_owned()),
        ])
    }

    /// Texts for people.
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("summary", self.summary()), ("description", self.description())])
    }

    /// One line.
    pub fn summary(&self) -> String {
        let Key { sensor, server, trouble } = &self.key;
        let is = if self.over.is_none() { "is" } else { "is no longer" };
        format!("{server} {is} {}, as sensor {sensor} sees it", trouble.as_str())
    }

    /// The evidence.
    pub fn description(&self) -> String {
        let began = &self.episode;
        match &self.over {
            None => format!("{} ({})", began.because, began.reason),
            Some(over) => {
                let lasted_s = over.at.since(began.since).as_secs();
                format!("It lasted {lasted_s} s: {} ({}). {}", began.because, began.reason, over.because)
            }
        }
    }

    /// As Alertmanager computes it (`LabelSet.Fingerprint` of Prometheus' `common`: FNV-1a over all labels), so that
    /// programs that group notices by it get the same value.
    pub fn fingerprint(&self) -> String {
        let labels = self.labels();
        let octets = labels.iter().flat_map(|(name, value)| {
            name.bytes().chain([FINGERPRINT_SEPARATOR]).chain(value.bytes()).chain([FINGERPRINT_SEPARATOR])
        });
        let hash = octets.fold(FNV_OFFSET, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(FNV_PRIME));
        format!("{hash:016x}")
    }
}

const FINGERPRINT_SEPARATOR: u8 = 0xff;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

impl Key {
    pub(super) fn new(sensor: &str, server: SocketAddr, trouble: Trouble) -> Self {
        let printable = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
        let mut len = 0;
        let fits = |char: &char| {
            len += char.len_utf8();
            len <= SENSOR_LEN_MAX
        };
        Self { sensor: sensor.chars().map(printable).take_while(fits).collect(), server, trouble }
    }
}

impl Trouble {
    pub const ALL: [Self; 2] = [Self::Saturated, Self::Stopped];

    /// `None` if receivers are not notified of this state.
    pub const fn of(state: ServerState) -> Option<Self> {
        match state {
            ServerState::Idle | ServerState::Normal => None,
            ServerState::Saturated => Some(Self::Saturated),
            ServerState::Stopped => Some(Self::Stopped),
        }
    }

    /// The name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Saturated => ServerState::Saturated.as_str(),
            Self::Stopped => ServerState::Stopped.as_str(),
        }
    }

    /// The label `alertname`.
    pub const fn alert_name(self) -> &'static str {
        match self {
            Self::Saturated => "WatariServerSaturated",
            Self::Stopped => "WatariServerStopped",
        }
    }

    /// The label `severity`.
    pub const fn severity(self) -> &'static str {
        match self {
            Self::Saturated => "warning",
            Self::Stopped => "critical",
        }
    }
}

impl Episode {
    pub(super) fn new(verdict: &Verdict) -> Self {
        let evidence = &verdict.evidence;
        Self { since: verdict.since, reason: evidence.reason.as_str().to_owned(), because: because(evidence) }
    }
}

impl Over {
    pub(super) fn new(change: &Change) -> Self {
        let verdict = &change.verdict;
        let because = format!("It is {} now: {}", verdict.state.as_str(), because(&verdict.evidence));
        Self { at: verdict.since, because }
    }
}

/// A UTC time in the format of RFC 3339.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(at.0.into()).ok();
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn notice(over: Option<Over>) -> Notice {
        let key = Key::new("west", "192.0.2.1:443".parse().unwrap(), Trouble::Stopped);
        let because = "60.0 % of attempts and requests got no answer, limit 50.0 %, in 30 s".to_owned();
        let episode = Episode { since: Timestamp(1_000_000_000), reason: "unanswered".to_owned(), because };
        Notice { key, episode, over }
    }

    #[test]
    fn people_read_what_happened() {
        let firing = notice(None);
        assert_eq!(firing.summary(), "192.0.2.1:443 is stopped, as sensor west sees it");
        assert_eq!(
            firing.description(),
            "60.0 % of attempts and requests got no answer, limit 50.0 %, in 30 s (unanswered)"
        );
        let over = Over { at: Timestamp(61_500_000_000), because: "It is normal now".to_owned() };
        let resolved = notice(Some(over));
        assert_eq!(resolved.summary(), "192.0.2.1:443 is no longer stopped, as sensor west sees it");
        assert!(resolved.description().starts_with("It lasted 60 s: 60.0 % of attempts and requests"));
        assert!(resolved.description().ends_with("(unanswered). It is normal now"));
    }

    #[test]
    fn a_fingerprint_is_that_of_its_labels() {
        let firing = notice(None);
        let resolved = notice(Some(Over { at: Timestamp(5), because: String::new() }));
        assert_eq!(firing.fingerprint(), resolved.fingerprint());
        assert_eq!(firing.fingerprint().len(), 16);
        let mut other = notice(None);
        other.key.sensor = "east".to_owned();
        assert_ne!(firing.fingerprint(), other.fingerprint());
    }

    #[test]
    fn a_name_from_outside_is_bounded_and_printable() {
        let server = "192.0.2.1:443".parse().unwrap();
        assert_eq!(Key::new("a\0b\nc", server, Trouble::Stopped).sensor, "a\u{fffd}b\u{fffd}c");
        assert_eq!(Key::new(&"ü".repeat(1000), server, Trouble::Stopped).sensor.len(), SENSOR_LEN_MAX);
    }

    #[test]
    fn times_are_as_in_rfc_3339() {
        assert_eq!(rfc3339(Timestamp(1_700_000_000_250_000_000)), "2023-11-14T22:13:20.25Z");
        assert!(rfc3339(Timestamp(u64::MAX)).starts_with("2554-"));
    }
}
