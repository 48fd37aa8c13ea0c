//! Errors of a capture.

use std::io;

use watari_packets::UnknownLinkType;

/// Frames cannot be captured, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The interface does not exist.
    #[error("there is no interface {interface}, the existing ones are {}", .there.join(", "))]
    NoInterface {
        /// The requested interface.
        interface: String,
        /// The existing interfaces.
        there: Vec<String>,
    },
    /// The process has no permission to capture.
    #[error(
        "cannot capture on {interface}: CAP_NET_RAW is missing: run as root, or give the program the capability with \
         `setcap cap_net_raw+ep PROGRAM`"
    )]
    NotPermitted { interface: String },
    /// The filter is invalid.
    #[error("the filter `{filter}` cannot be used on {interface}: {reason} (see pcap-filter(7))")]
    Filter {
        filter: String,
        interface: String,
        /// The message of libpcap.
        reason: String,
    },
    /// The interface has an unsupported link type.
    #[error("cannot capture on {interface}: {source}")]
    Link { interface: String, source: UnknownLinkType },
    /// The capture cannot begin, for another reason.
    #[error("cannot capture on {interface}: {reason}")]
    Open {
        interface: String,
        /// The message of libpcap, or of the system.
        reason: String,
    },
    /// The kernel cannot distribute frames among several rings.
    #[error("cannot distribute the frames of {interface} among threads (use one thread): {source}")]
    Share { interface: String, source: io::Error },
    /// The capture has ended, for example because its interface was removed.
    #[error("the capture on {interface} failed: {reason}")]
    Read {
        interface: String,
        /// The message of libpcap, or of the system.
        reason: String,
    },
}
