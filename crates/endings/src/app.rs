//! What is understood of the data of a connection.

use watari_packets::Segment;

use crate::half::Data;
use crate::turn::State;

/// What the data are.
#[derive(Debug, Default)]
pub(crate) enum App {
    #[default]
    Opaque,
}

impl App {
    /// Data of the client; whether they ask for something.
    pub(crate) fn see_client(&mut self, _from: u32, _data: Data, _segment: &Segment<'_>) -> bool {
        matches!(self, Self::Opaque)
    }

    /// Data of the server; where the answer ends, if they show it.
    pub(crate) fn see_server(&mut self, _from: u32, _data: Data, _segment: &Segment<'_>) -> Option<u32> {
        match self {
            Self::Opaque => None,
        }
    }

    /// Whether the server's last data belonged to an answer.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Opaque)
    }

    /// Whether a handshake is in progress.
    pub(crate) fn is_shaking(&self) -> bool {
        !matches!(self, Self::Opaque)
    }

    /// Whether an answer in this state is known to lack something.
    pub(crate) fn lacks(&self, _state: State) -> bool {
        !matches!(self, Self::Opaque)
    }
}
