//! TLS of the clients: the offered parameters, session resumption, the verification of certificates, and the results.
//!
//! Imports: `sample`, for what a handshake showed.

mod error;
mod pem;
mod seen;
mod sessions;
mod verify;

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::{ClientSessionMemoryCache, Resumption, Tls12Resumption};
use tokio_rustls::TlsConnector;
use watari_client_tls::{ClientTls, Verifier, roots_of, system_roots};
use watari_handshake::Policy;

pub use error::TlsError;
pub use pem::Pem;
pub(crate) use seen::Observer;

use crate::tls::sessions::StoredOnly;
use crate::tls::verify::{checking, trusting};

/// The parameters that TLS connections offer, and how they resume sessions.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Versions, cipher suites and groups.
    pub policy: Policy,
    /// The authorities that the server's certificate is verified against.
    pub roots: Roots,
    /// How many handshakes try to resume a session.
    pub resume: Resume,
    /// TLS 1.2: only session ids, no tickets.
    pub session_ids_only: bool,
    /// A certificate chain and its key, both in PEM, for servers that request a client certificate.
    pub certificate: Option<(Pem, Pem)>,
}

/// The authorities that the server's certificate is verified against. In every case, the client verifies that the
/// server has the key of its certificate.
#[derive(Clone, Debug, Default)]
pub enum Roots {
    /// None: any certificate is accepted, as in other load generators.
    #[default]
    Unchecked,
    /// The authorities that this system trusts.
    System,
    /// The authorities in this PEM file.
    File(Pem),
}

/// How many handshakes try to resume a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// None: every handshake is full.
    #[default]
    Full,
    /// All except the first of each client.
    Reuse,
    /// This percentage of the handshakes.
    Mixed(u8),
}

/// The TLS configuration that all clients share.
#[derive(Debug)]
pub struct Tls {
    full: Arc<ClientConfig>,
    resume: Resume,
    session_ids_only: bool,
}

impl Tls {
    /// Builds the configuration. Offers `alpn` unchanged.
    pub fn prepare(options: &TlsOptions, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        let provider = options.policy.provider();
        let verifier = match &options.roots {
            Roots::Unchecked => trusting(&provider),
            Roots::System => checking(system_roots()?, &provider)?,
            Roots::File(file) => checking(roots_of(file.certificates()?)?, &provider)?,
        };
        let certificate = options.certificate.as_ref();
        let certificate = certificate
            .map(|(chain, key)| Ok::<_, TlsError>((chain.certificates()?, key.private_key()?)))
            .transpose()?;
        let settings = ClientTls {
            provider,
            versions: options.policy.rustls_versions(),
            verifier: Verifier::Custom(verifier),
            certificate,
            alpn: alpn.iter().map(|protocol| protocol.to_vec()).collect(),
        };
        let mut config = settings.into_config()?;
        config.resumption = Resumption::disabled();
        Ok(Self { full: Arc::new(config), resume: options.resume, session_ids_only: options.session_ids_only })
    }

    /// A client without sessions.
    pub fn client(&self) -> TlsClient {
        if self.resume == Resume::Full {
            return TlsClient {
                resuming: Arc::clone(&self.full),
                storing: Arc::clone(&self.full),
                resume: self.resume,
            };
        }
        let sessions = Arc::new(ClientSessionMemoryCache::new(SESSIONS));
        let with = |store| {
            let mut config = ClientConfig::clone(&self.full);
            let by = if self.session_ids_only {
                Tls12Resumption::SessionIdOnly
            } else {
                Tls12Resumption::SessionIdOrTickets
            };
            config.resumption = Resumption::store(store).tls12_resumption(by);
            Arc::new(config)
        };
        let storing: Arc<StoredOnly> = Arc::new(StoredOnly(Arc::clone(&sessions)));
        TlsClient { resuming: with(sessions), storing: with(storing), resume: self.resume }
    }
}

/// Generates the first random number of the process. This takes a tenth of a second, in which entropy is gathered.
/// Called early, so that the time does not count for a connection.
pub(crate) fn gather_entropy() -> Result<(), TlsError> {
    aws_lc_rs::rand::fill(&mut [0; 32]).map_err(|_| TlsError::Random)
}

/// Number of servers whose sessions a client stores.
const SESSIONS: usize = 32;

/// The TLS configuration of one client, with its own sessions.
#[derive(Clone, Debug)]
pub struct TlsClient {
    resuming: Arc<ClientConfig>,
    /// Stores sessions, and offers none.
    storing: Arc<ClientConfig>,
    resume: Resume,
}

impl TlsClient {
    /// The connector for connection `number`, counted from 0 over the whole run.
    pub(crate) fn connector(&self, number: u64) -> TlsConnector {
        let tries = match self.resume {
            Resume::Full => false,
            Resume::Reuse => true,
            // Evenly distributed: with 25, every fourth connection.
            Resume::Mixed(percent) => {
                let share = |number: u64| number.wrapping_mul(u64::from(percent)) / 100;
                share(number.wrapping_add(1)) != share(number)
            }
        };
        TlsConnector::from(Arc::clone(if tries { &self.resuming } else { &self.storing }))
    }
}

/// The cause of a failed handshake, without the type names of the TLS library.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    if text.contains("CaUsedAsEndEntity") {
        return "the server's certificate is that of an authority (CA:TRUE), which --verify and --cacert do not accept for a server: \
                it needs one with CA:FALSE"
            .to_owned();
    }
    // `Other(OtherError(UnsupportedSignatureAlgorithm))`: the innermost name is the cause.
    match text.split_once(": Other(OtherError(") {
        Some((what, inner)) => {
            let inner = inner.trim_end_matches(')');
            let word = inner.split(['(', ' ', '{']).next().unwrap_or(inner);
            format!("{what}: {}", spaced(word))
        }
        None => text,
    }
}

/// Splits a type name into words: `UnknownIssuer` becomes `unknown issuer`.
fn spaced(word: &str) -> String {
    let mut text = String::new();
    for letter in word.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Whether a handshake failed because the two sides have no protocol in common (RFC 7301, section 3.2).
pub(crate) fn is_no_protocol(error: &io::Error) -> bool {
    use rustls::AlertDescription::NoApplicationProtocol;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let is_alert = matches!(inner, Some(rustls::Error::AlertReceived(alert)) if *alert == NoApplicationProtocol);
    is_alert || matches!(inner, Some(rustls::Error::NoApplicationProtocol))
}

/// Whether this side ended a failed handshake. Otherwise the server sent an alert or closed the connection.
pub(crate) fn is_refused_here(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoApplicationProtocol))
}
