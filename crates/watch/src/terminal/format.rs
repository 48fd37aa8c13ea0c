//! Texts and colours of values.

use ratatui::style::{Color, Style};
use time::OffsetDateTime;
use watari_endings::ServerState;
use watari_packets::Timestamp;

use crate::board::Entry;

/// How long the server has been in its state, by the clock of the sensor.
pub(super) fn since(entry: &Entry<'_>) -> String {
    let Some(verdict) = entry.server.verdict() else { return "-".to_owned() };
    let seconds = entry.last_report.since(verdict.since).as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A count of the last ten complete seconds, as a rate.
pub(super) fn rate(entry: &Entry<'_>, count: u32) -> String {
    entry.recent.per_s(count.into()).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
}

pub(super) fn milliseconds(time_ms: Option<f64>) -> String {
    time_ms.map_or_else(|| "-".to_owned(), |time_ms| format!("{time_ms:.1}"))
}

pub(super) fn span(seconds: u64) -> String {
    if seconds >= 120 && seconds.is_multiple_of(60) { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}

/// The time of day in UTC: a process without privileges cannot always read the time zone of the machine.
pub(super) fn clock(at: Timestamp) -> String {
    utc(at).map_or_else(String::new, |it| format!("{:02}:{:02}:{:02} UTC", it.hour(), it.minute(), it.second()))
}

pub(super) fn moment(at: Timestamp) -> String {
    utc(at).map_or_else(String::new, |it| format!("{} {}", it.date(), clock(at)))
}

fn utc(at: Timestamp) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp((at.0 / 1_000_000_000).cast_signed()).ok()
}

/// Bad states are in upper case, so that they stand out without colors.
pub(super) fn shown(state: ServerState) -> String {
    match state {
        ServerState::Idle | ServerState::Normal => state.as_str().to_owned(),
        ServerState::Saturated | ServerState::Stopped => state.as_str().to_uppercase(),
    }
}

pub(super) const fn style(state: ServerState) -> Style {
    match state {
        ServerState::Idle => Style::new().add_modifier(ratatui::style::Modifier::DIM),
        ServerState::Normal => Style::new().fg(Color::Green),
        ServerState::Saturated => Style::new().fg(Color::Yellow),
        ServerState::Stopped => Style::new().fg(Color::Red),
    }
}

pub(super) fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}
