//! Timeouts of a connection.

use watari_packets::Timestamp;

use crate::settings::Settings;
use crate::tracked::{Stage, TrackedConnection};
use crate::turn::TurnState;

/// The reason of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its SYN has no answer for [`Settings::connect_overdue`].
    ConnectOverdue,
    /// Its request has no answer for [`Settings::request_overdue`].
    RequestOverdue,
    /// It has ended.
    End,
    /// Its request timed out.
    Timeout,
    /// Its entry can be dropped.
    Forget,
}

impl TrackedConnection {
    /// The next timeout and its reason, if no segment arrives until then.
    pub(crate) fn due(&self, settings: &Settings) -> (Timestamp, Cause) {
        match self.stage {
            // [`crate::reorder`] decides when it continues.
            Stage::Ahead => (Timestamp(u64::MAX), Cause::Forget),
            Stage::Opening if self.is_connecting() && !self.is_connect_overdue => {
                (self.started + settings.connect_overdue, Cause::ConnectOverdue)
            }
            Stage::Opening => (self.last + settings.handshake_timeout, Cause::End),
            Stage::Open => self.due_open(settings),
            Stage::Closing if self.is_doubtful => (self.staged + settings.settle_doubtful, Cause::End),
            Stage::Closing => (self.staged + settings.settle, Cause::End),
            // The silence limit of a connection that is not reported.
            Stage::Over if self.may_go_on() => (self.last + settings.silence_max, Cause::Forget),
            Stage::Over => (self.staged + settings.linger, Cause::Forget),
        }
    }

    fn due_open(&self, settings: &Settings) -> (Timestamp, Cause) {
        if self.client.fin.is_some() || self.server.fin.is_some() {
            return (self.last + settings.half_closed_timeout, Cause::End);
        }
        if let Some(asked_at) = self.waits_since() {
            // A request that times out earlier is not reported overdue as well.
            if !self.turn.is_overdue && settings.request_overdue < settings.timeout {
                return (asked_at + settings.request_overdue, Cause::RequestOverdue);
            }
            return (asked_at + settings.timeout, Cause::Timeout);
        }
        if self.turn.state == TurnState::Answering {
            let since = self.turn.asked_at.unwrap_or(self.turn.first_at);
            return (since + settings.timeout, Cause::Timeout);
        }
        (self.last + settings.silence_max, Cause::End)
    }

    /// Since when the client has waited for the first octet of an answer, or for the server's part of a handshake.
    pub(crate) fn waits_since(&self) -> Option<Timestamp> {
        match self.turn.state {
            TurnState::Asked => Some(self.turn.asked_at.unwrap_or(self.last)),
            TurnState::Quiet if self.app.is_shaking() && self.server.data_at < self.client.data_at => {
                Some(self.client.data_at)
            }
            _ => None,
        }
    }

    /// Whether a SYN is without an answer.
    pub(crate) fn is_connecting(&self) -> bool {
        self.client.syns > 0 && self.server.packets == 0
    }
}
