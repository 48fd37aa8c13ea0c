//! Profiles: the limits between the states of servers.
//!
//! ```toml
//! base = "site"                # or lab; keys that are left out are as in the base
//! span_s = 1200                # the time that the shares cover
//! aborts = 0.4                 # saturated above; 1: never
//! timeouts = 0.1
//! aborts_and_timeouts = 1
//! failures = 0.1
//! unanswered = 0.5             # stopped above
//! stopped_span_s = 30
//! margin = 0.05                # how far below a limit a share has to fall after it exceeded the limit
//! hold_s = 5                   # how long a change has to last
//! ended_min = 10               # connections that have to end before their shares count
//! unanswered_min = 3           # SYNs and requests without an answer before these count
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use watari_endings::Profile;

/// The keys of a profile's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    #[serde(default)]
    base: Base,
    span_s: Option<u64>,
    aborts: Option<f64>,
    timeouts: Option<f64>,
    aborts_and_timeouts: Option<f64>,
    failures: Option<f64>,
    unanswered: Option<f64>,
    stopped_span_s: Option<u64>,
    margin: Option<f64>,
    hold_s: Option<u64>,
    ended_min: Option<u32>,
    unanswered_min: Option<u32>,
}

/// A built-in profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// [`Profile::lab`].
    Lab,
    /// [`Profile::site`].
    #[default]
    Site,
}

/// A file has no valid profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read the profile {}: {source}; the profiles lab and site need no file", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not TOML, or has unknown keys or other types.
    #[error("the profile {}: {source}", .path.display())]
    Parse {
        path: PathBuf,
        /// The error and its position.
        source: toml::de::Error,
    },
    /// A value is out of range.
    #[error("the profile {}: {key} is not {expected}", .path.display())]
    Value { path: PathBuf, key: &'static str, expected: &'static str },
}

/// A profile by its name: `lab`, `site`, or the path of a file.
pub fn named(name: &str) -> Result<Profile, ProfileError> {
    match name {
        "lab" => Ok(Profile::lab()),
        "site" => Ok(Profile::site()),
        path => read(Path::new(path)),
    }
}

/// Reads a profile from a file.
pub fn read(path: &Path) -> Result<Profile, ProfileError> {
    let text = fs::read_to_string(path).map_err(|source| ProfileError::Read { path: path.into(), source })?;
    let file: ProfileFile =
        toml::from_str(&text).map_err(|source| ProfileError::Parse { path: path.into(), source })?;
    file.profile().map_err(|(key, expected)| ProfileError::Value { path: path.into(), key, expected })
}

impl Base {
    pub const fn profile(self) -> Profile {
        match self {
            Self::Lab => Profile::lab(),
            Self::Site => Profile::site(),
        }
    }
}

impl ProfileFile {
    /// A profile with all keys, for a learned one.
    pub fn of(profile: &Profile) -> Self {
        Self {
            base: Base::Site,
            span_s: Some(profile.span.as_secs()),
            aborts: Some(rounded(profile.aborts)),
            timeouts: Some(rounded(profile.timeouts)),
            aborts_and_timeouts: Some(rounded(profile.aborts_and_timeouts)),
            failures: Some(rounded(profile.failures)),
            unanswered: Some(profile.unanswered),
            stopped_span_s: Some(profile.stopped_span.as_secs()),
            margin: Some(profile.margin),
            hold_s: Some(profile.hold.as_secs()),
            ended_min: Some(profile.ended_min),
            unanswered_min: Some(profile.unanswered_min),
        }
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain values")
    }

    fn profile(&self) -> Result<Profile, (&'static str, &'static str)> {
        let base = self.base.profile();
        let limit =
            |key, value: Option<f64>, base: Option<f64>| value.map_or(Ok(base), |value| share(key, value).map(Some));
        let value = |key, value: Option<f64>, base: f64| value.map_or(Ok(base), |value| share(key, value));
        let time =
            |key, value: Option<u64>, base: Duration, most| value.map_or(Ok(base), |value| seconds(key, value, most));
        Ok(Profile {
            span: time("span_s", self.span_s, base.span, SPAN_MAX_S)?,
            aborts: limit("aborts", self.aborts, base.aborts)?,
            timeouts: limit("timeouts", self.timeouts, base.timeouts)?,
            aborts_and_timeouts: limit("aborts_and_timeouts", self.aborts_and_timeouts, base.aborts_and_timeouts)?,
            failures: limit("failures", self.failures, base.failures)?,
            unanswered: value("unanswered", self.unanswered, base.unanswered)?,
            stopped_span: time("stopped_span_s", self.stopped_span_s, base.stopped_span, SPAN_MAX_S)?,
            margin: value("margin", self.margin, base.margin)?,
            hold: time("hold_s", self.hold_s, base.hold, SPAN_MAX_S)?,
            ended_min: self.ended_min.unwrap_or(base.ended_min),
            unanswered_min: self.unanswered_min.unwrap_or(base.unanswered_min),
        })
    }
}

/// The longest span, in seconds. Each of its seconds is stored.
const SPAN_MAX_S: u64 = 86_400;

fn share(key: &'static str, value: f64) -> Result<f64, (&'static str, &'static str)> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err((key, "a share, 0 to 1")) }
}

fn seconds(key: &'static str, value: u64, most: u64) -> Result<Duration, (&'static str, &'static str)> {
    if (1..=most).contains(&value) {
        Ok(Duration::from_secs(value))
    } else {
        Err((key, "a number of seconds, 1 to 86400"))
    }
}

/// A missing limit is 1, which no share exceeds.
fn rounded(limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(text: &str) -> Result<Profile, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("profile.toml");
        fs::write(&path, text).unwrap();
        named(path.to_str().unwrap()).map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn what_is_left_out_is_as_in_the_base() {
        assert_eq!(parsed("base = 'lab'"), Ok(Profile::lab()));
        assert_eq!(parsed(""), Ok(Profile::site()));
        let site = Profile { aborts: Some(0.3), hold: Duration::from_secs(7), ..Profile::site() };
        assert_eq!(parsed("base = 'site'\naborts = 0.3\nhold_s = 7"), Ok(site));
    }

    #[test]
    fn what_is_written_is_read() {
        for profile in [Profile::lab(), Profile::site()] {
            let read = parsed(&ProfileFile::of(&profile).to_toml()).unwrap();
            let never = |limit: Option<f64>| Some(limit.unwrap_or(1.0));
            let (aborts, timeouts) = (never(profile.aborts), never(profile.timeouts));
            let aborts_and_timeouts = never(profile.aborts_and_timeouts);
            assert_eq!(read, Profile { aborts, timeouts, aborts_and_timeouts, ..profile });
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |text| parsed(text).unwrap_err();
        assert_eq!(refused("base = 'lab'\naborts = 40"), "the profile FILE: aborts is not a share, 0 to 1");
        assert_eq!(
            refused("base = 'lab'\nspan_s = 0"),
            "the profile FILE: span_s is not a number of seconds, 1 to 86400"
        );
        assert!(refused("base = 'lab'\nabort = 1").contains("unknown field `abort`"));
        let missing = named("/nowhere").unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the profile /nowhere: ") && missing.ends_with("need no file"));
    }
}
