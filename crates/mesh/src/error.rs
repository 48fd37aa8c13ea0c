//! The reasons that links end or cannot be established.

use std::io;

use watari_link::PeerError;
use watari_pki::BadCertificate;
use watari_values::{NodeName, Role};
use watari_wire::frame::FrameError;

/// The reason that a link ended or could not be established.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The TCP connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer's certificate is not signed by the cluster's authority, is not valid now, or has another name than was
    /// dialed.
    #[error("the peer's certificate is refused: {0}")]
    Untrusted(rustls::Error),
    /// TLS failed for another reason. The peer may have refused this node's certificate.
    #[error("TLS failed: {0}")]
    Tls(rustls::Error),
    /// The peer's certificate is signed by the cluster's authority, but is not a node's.
    #[error("the peer's certificate does not identify a node: {0}")]
    Certificate(BadCertificate),
    /// The certificate is that of another node than was dialed.
    #[error("another node answered: {0}")]
    OtherNode(NodeName),
    /// The peer is a node of the cluster, but not a configured peer.
    #[error("{0} is not a configured peer")]
    UnknownPeer(NodeName),
    /// The peer is a node of the cluster that an operator has evicted.
    #[error("{0} is evicted from the cluster")]
    Evicted(NodeName),
    /// A peer without an entry, or one that this node dials, did not send its address.
    #[error("the node did not announce its address (set `join = \"certified\"` there), or its clock is far ahead")]
    NoIntroduction,
    /// TLS and hellos were not complete in time.
    #[error("the handshake took too long")]
    HandshakeTimeout,
    /// Too many connections were unidentified. This one was closed to make room for a newer one.
    #[error("too many unidentified connections: the node closed this one to accept a newer one")]
    CrowdedOut,
    /// This node or the peer is no agent. HTTP is only between agents.
    #[error("{0} is not an agent")]
    NotAnAgent(NodeName),
    /// The peer did not select the protocol for HTTP.
    #[error("the peer does not support HTTP between agents: its version is older")]
    NoHttp,
    /// This process handles no HTTP of agents.
    #[error("this node takes no HTTP connections")]
    NoHttpHandler,
    /// The peer has too many HTTP connections, or too many wait for the handler.
    #[error("too many HTTP connections")]
    HttpFull,
    /// The peer's first message was not a hello.
    #[error("the peer did not begin with a hello")]
    NoHello,
    /// The peer sent a second hello.
    #[error("the peer sent a second hello")]
    SecondHello,
    /// The peer's hello has another name than its certificate.
    #[error("the peer claims the name {0}, which is not that of its certificate")]
    FalseName(NodeName),
    /// The peer claims a role that its certificate does not allow.
    #[error("the peer claims the role {0}, which its certificate does not allow")]
    FalseRole(Role),
    /// The peer supports no message version of this build.
    #[error("no common message version: the peer supports {min} to {max}")]
    NoCommonVersion {
        /// The peer's oldest version.
        min: u8,
        /// The peer's newest version.
        max: u8,
    },
    /// The peer sent an invalid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer closed the link.
    #[error("the peer closed the link")]
    Closed,
    /// The peer sent nothing for `dead_after`.
    #[error("the peer sent nothing in time")]
    Silent,
    /// The peer took no bytes for `dead_after`.
    #[error("the peer read nothing in time")]
    Stalled,
    /// The peer has made a newer connection.
    #[error("the peer made a newer connection")]
    Replaced,
    /// The peer was removed from the configured peers.
    #[error("the peer was removed from this node's peers")]
    Removed,
    /// This node shuts down.
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
            Self::HandshakeTimeout => "handshake_timeout",
            Self::CrowdedOut => "crowded_out",
            Self::NotAnAgent(_) => "not_an_agent",
            Self::NoHttp => "no_http",
            Self::NoHttpHandler => "no_http_handler",
            Self::HttpFull => "http_full",
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

impl From<PeerError> for LinkError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Tls(error) => error.into(),
            PeerError::NoCertificate => Self::Untrusted(rustls::Error::NoCertificatesPresented),
            PeerError::Certificate(cause) => Self::Certificate(cause),
        }
    }
}

/// tokio-rustls wraps errors of rustls in an `io::Error`.
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
