//! Why a link ended, or did not come to be.

use std::io;

use watari_pki::BadCertificate;
use watari_wire::frame::FrameError;
use watari_wire::{NodeName, Role};

/// Why a link ended, or did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The TCP connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer's certificate is not of the cluster's authority, not valid now, or of another name than was dialed.
    #[error("the peer's certificate is refused: {0}")]
    Untrusted(rustls::Error),
    /// TLS failed in another way; the peer may have refused this node's certificate.
    #[error("TLS failed: {0}")]
    Tls(rustls::Error),
    /// The peer's certificate is of the cluster's authority, but not a node's.
    #[error("the peer cannot be told by its certificate: {0}")]
    Certificate(#[from] BadCertificate),
    /// The certificate is of another node than was dialed.
    #[error("it was {0} that answered")]
    OtherNode(NodeName),
    /// A node of the cluster, but none of the configured peers.
    #[error("{0} is none of the configured peers")]
    UnknownPeer(NodeName),
    /// A node of the cluster that an operator has evicted.
    #[error("{0} is evicted from the cluster")]
    Evicted(NodeName),
    /// A node that is not known, or is to be dialed, did not say where.
    #[error("the node does not say where it listens (`join = \"certified\"`), or its clock is far ahead")]
    NoIntroduction,
    /// A peer that this node dials, and that should not dial it.
    #[error("{0} connected, although this node connects to it")]
    WrongDirection(NodeName),
    /// TLS and hellos took too long.
    #[error("the handshake took too long")]
    HandshakeTimeout,
    /// Too many connections had not identified their peers yet, and this one made room for a newer one.
    #[error("too many connections have not identified their peers: this one makes room for a newer one")]
    CrowdedOut,
    /// The peer began with something else than a hello.
    #[error("the peer did not begin with a hello")]
    NoHello,
    /// The peer said hello a second time.
    #[error("the peer said hello twice")]
    SecondHello,
    /// The peer's hello names another node than its certificate.
    #[error("the peer calls itself {0}, against its certificate")]
    FalseName(NodeName),
    /// The peer claims a role that its certificate does not allow.
    #[error("the peer claims the role {0}, which its certificate does not allow")]
    FalseRole(Role),
    /// The peer speaks none of this build's versions.
    #[error("the peer speaks versions {min} to {max}, this node none of them")]
    NoCommonVersion {
        /// Its oldest.
        min: u8,
        /// Its newest.
        max: u8,
    },
    /// The peer sent what is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer ended the link.
    #[error("the peer closed the link")]
    Closed,
    /// Nothing came for too long.
    #[error("nothing came from the peer for too long")]
    Silent,
    /// The peer took nothing for too long.
    #[error("the peer took nothing for too long")]
    Stalled,
    /// The peer has connected anew.
    #[error("the peer connected anew")]
    Replaced,
    /// The peer is none of the configured peers any more.
    #[error("it is none of this node's peers any more")]
    Removed,
    /// This node ends its links.
    #[error("this node is shutting down")]
    Shutdown,
}

impl LinkError {
    /// The error as a metric label and log field.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Io(_) => "io",
            Self::Untrusted(_) => "untrusted_certificate",
            Self::Tls(_) => "tls",
            Self::Certificate(_) => "bad_certificate",
            Self::OtherNode(_) => "other_node",
            Self::UnknownPeer(_) => "unknown_peer",
            Self::Evicted(_) => "evicted",
            Self::NoIntroduction => "no_introduction",
            Self::WrongDirection(_) => "wrong_direction",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::CrowdedOut => "crowded_out",
            Self::NoHello => "no_hello",
            Self::SecondHello => "second_hello",
            Self::FalseName(_) => "false_name",
            Self::FalseRole(_) => "false_role",
            Self::NoCommonVersion { .. } => "no_common_version",
            Self::Frame(_) => "bad_frame",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// tokio-rustls wraps what rustls says into an `io::Error`.
impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
                Self::Untrusted(error.clone())
            }
            Some(error) => Self::Tls(error.clone()),
            None => Self::Io(error),
        }
    }
}
