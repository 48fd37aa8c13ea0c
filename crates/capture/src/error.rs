//! What can go wrong with a capture.

use std::io;

use watari_packets::UnknownLinkType;

/// Frames cannot be captured, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The interface is not there.
    #[error("there is no interface {interface}: there are {}", .there.join(", "))]
    NoInterface {
        /// What was asked for.
        interface: String,
        /// What could be.
        there: Vec<String>,
    },
    /// The process may not capture.
    #[error(
        "cannot capture on {interface}: that takes CAP_NET_RAW: run as root, or allow the program to by \
         `setcap cap_net_raw+ep PROGRAM`"
    )]
    NotPermitted {
        /// Where.
        interface: String,
    },
    /// The filter is none.
    #[error("the filter `{filter}` cannot be used on {interface}: {reason} (see pcap-filter(7))")]
    Filter {
        /// What was asked for.
        filter: String,
        /// Where.
        interface: String,
        /// What libpcap says of it.
        reason: String,
    },
    /// Frames of this interface would not be understood.
    #[error("{interface} has {source}")]
    Link {
        /// Which.
        interface: String,
        /// What its frames are.
        source: UnknownLinkType,
    },
    /// The capture does not begin, for another reason.
    #[error("cannot capture on {interface}: {reason}")]
    Open {
        /// Where.
        interface: String,
        /// What libpcap says.
        reason: String,
    },
    /// The kernel does not share frames out among several rings.
    #[error("cannot share the frames of {interface} among threads (use one): {source}")]
    Share {
        /// Where.
        interface: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The capture has ended, for example because its interface is gone.
    #[error("the capture on {interface} failed: {reason}")]
    Read {
        /// Where.
        interface: String,
        /// What libpcap says.
        reason: String,
    },
}
