//! Connections that this node owns, gives away, holds for a decision, or ends. The protocol is in `watari_handoff`.

pub(crate) mod anchored_stream;
pub(crate) mod anchors;
pub(crate) mod ending;
pub(crate) mod live;
pub(crate) mod passing;
pub(crate) mod registry;
pub(crate) mod source;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod testing;
