//! Both ends of a handshake, and the bytes between them.

use std::collections::HashSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion};
use watari_handshake::{
    EarlyData, Established, Failed, Found, Handshake, Miss, NewSession, PolicyId, Progress, Provided, ServerConfig,
    ServerOptions, SessionSource, Sessions, Tickets, Wanted,
};
use watari_values::{SecretBytes, SessionKey, TicketSeedId};

use crate::pki::{Authority, KeyKind};

pub(crate) const NAME: &str = "www.example.com";

/// Options with a certificate of each of `kinds` for [`NAME`].
pub(crate) fn options(kinds: &[KeyKind]) -> ServerOptions {
    let issue = |kind: &KeyKind| Authority::of_servers().issue(*kind, &[NAME]);
    ServerOptions { certificates: kinds.iter().map(issue).collect(), ..ServerOptions::default() }
}

pub(crate) fn server(options: &ServerOptions) -> ServerConfig {
    ServerConfig::new(options).unwrap()
}

/// The settings of a client.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) suites: Vec<SupportedCipherSuite>,
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    pub(crate) signatures: WebPkiSupportedAlgorithms,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) certificate: Option<(CertificateDer<'static>, Arc<PrivateKeyDer<'static>>)>,
    pub(crate) sends_name: bool,
}

impl Default for Client {
    fn default() -> Self {
        let provider = aws_lc_rs::default_provider();
        Self {
            suites: provider.cipher_suites,
            groups: provider.kx_groups,
            signatures: provider.signature_verification_algorithms,
            versions: rustls::ALL_VERSIONS.to_vec(),
            alpn: Vec::new(),
            certificate: None,
            sends_name: true,
        }
    }
}

impl Client {
    pub(crate) fn of_version(version: &'static SupportedProtocolVersion) -> Self {
        Self { versions: vec![version], ..Self::default() }
    }

    /// A client that verifies only signatures of this `scheme`.
    pub(crate) fn verifying(mut self, scheme: SignatureScheme) -> Self {
        let at = self.signatures.mapping.iter().position(|(each, _)| *each == scheme).unwrap();
        self.signatures.mapping = &self.signatures.mapping[at..=at];
        self
    }

    pub(crate) fn config(self) -> Arc<ClientConfig> {
        let provider = CryptoProvider {
            cipher_suites: self.suites,
            kx_groups: self.groups,
            signature_verification_algorithms: self.signatures,
            ..aws_lc_rs::default_provider()
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(Authority::of_servers().store());
        let mut config = match self.certificate {
            Some((leaf, key)) => builder.with_client_auth_cert(vec![leaf], key.clone_key()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn;
        config.enable_sni = self.sends_name;
        Arc::new(config)
    }

    pub(crate) fn connect(self, name: &str) -> ClientConnection {
        connect(&self.config(), name)
    }
}

pub(crate) fn connect(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap()
}

/// The bytes that `client` has to send now.
pub(crate) fn output_of(client: &mut ClientConnection) -> Vec<u8> {
    let mut output = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut output).unwrap();
    }
    output
}

/// Passes all of `bytes` to `client`.
pub(crate) fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// A handshake that was established.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) established: Box<Established>,
    /// The bytes that the client sent together with its Finished, after it.
    pub(crate) unread: Vec<u8>,
    /// The bytes that the client sent in response to the server's last flight.
    pub(crate) answer: Vec<u8>,
}

impl Done {
    /// All bytes that the client sent after its Finished.
    pub(crate) fn records(&self) -> Vec<u8> {
        [&self.unread[..], &self.answer].concat()
    }
}

/// A server's end, with the state of a driver.
pub(crate) struct Server {
    pub(crate) handshake: Handshake,
    pub(crate) unread: Vec<u8>,
    /// The decision on early data, and its bytes.
    pub(crate) early_data: Option<EarlyData>,
    pub(crate) early: Vec<u8>,
    keeper: Keeper,
}

/// How servers resume sessions. Clones share the stored sessions.
#[derive(Clone, Default)]
pub(crate) struct Keeper {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) kept: Arc<Mutex<Vec<NewSession>>>,
    /// The wanted sessions and seeds of each handshake.
    pub(crate) wanted: Arc<Mutex<Vec<Wanted>>>,
    /// The sessions with which early data was approved.
    pub(crate) approved: Arc<Mutex<HashSet<SessionKey>>>,
}

impl Keeper {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self { sessions: Arc::new(sessions), ..Self::default() }
    }

    /// With tickets.
    pub(crate) fn tickets() -> Self {
        let tickets = Arc::new(OpenTickets::default());
        Self::new(Sessions {
            tickets: Some(tickets),
            lifetime: LIFETIME,
            tickets_per_handshake: 2,
            ..Sessions::default()
        })
    }

    /// With stored sessions.
    pub(crate) fn sessions() -> Self {
        Self::new(Sessions { kept: true, lifetime: LIFETIME, tickets_per_handshake: 2, ..Sessions::default() })
    }

    /// The same, with early data approved once for each session.
    pub(crate) fn early_data() -> Self {
        Self::new(Sessions { early_data: true, ..Sessions::clone(&Self::sessions().sessions) })
    }

    pub(crate) fn find(&self, wanted: &Wanted) -> Provided {
        self.wanted.lock().unwrap().push(wanted.clone());
        let found = |kept: &NewSession| Found { session: kept.session.clone(), source: SessionSource::Elsewhere };
        let kept = self.kept.lock().unwrap();
        let offered = kept.iter().filter(|kept| wanted.sessions.contains(&kept.key));
        let found: Vec<_> = offered.map(|kept| (kept.key, found(kept))).collect();
        let miss = found.is_empty().then_some(Miss::Unknown);
        let early_data = wanted.early_data && self.approved.lock().unwrap().insert(wanted.sessions[0]);
        Provided { found, miss, early_data }
    }
}

impl Server {
    pub(crate) fn new(config: &ServerConfig, keeper: &Keeper) -> Self {
        let handshake = Handshake::new(config, &keeper.sessions);
        Self { handshake, unread: Vec::new(), early_data: None, early: Vec::new(), keeper: keeper.clone() }
    }

    /// Receives `bytes`, and passes the output to `client`.
    pub(crate) fn arrive(
        &mut self,
        bytes: &[u8],
        client: &mut ClientConnection,
    ) -> Result<Option<Box<Established>>, Failed> {
        self.unread.extend_from_slice(bytes);
        let mut progress = self.receive()?;
        if !progress.wanted.is_empty() {
            assert!(progress.output.is_empty() && progress.established.is_none());
            let provided = self.keeper.find(&progress.wanted);
            let provided = self.handshake.provide(provided)?;
            self.take(provided, client);
            progress = self.receive()?;
        }
        assert!(self.unread.len() <= Handshake::UNREAD_MAX || progress.established.is_some());
        Ok(self.take(progress, client))
    }

    fn receive(&mut self) -> Result<Progress, Failed> {
        let progress = self.handshake.receive(&self.unread)?;
        self.unread.drain(..progress.consumed);
        Ok(progress)
    }

    fn take(&mut self, mut progress: Progress, client: &mut ClientConnection) -> Option<Box<Established>> {
        self.keeper.kept.lock().unwrap().append(&mut progress.made);
        self.early_data = self.early_data.take().or(progress.early_data);
        self.early.append(&mut progress.early);
        give(client, &progress.output).unwrap();
        progress.established
    }

    /// Passes bytes both ways, those to the server in pieces of at most `piece` bytes, until the handshake ends.
    pub(crate) fn finish(mut self, client: &mut ClientConnection, piece: usize) -> Result<Done, Failed> {
        loop {
            let bytes = output_of(client);
            assert!(!bytes.is_empty(), "the handshake stalls");
            let mut pieces = bytes.chunks(piece);
            while let Some(bytes) = pieces.next() {
                if let Some(established) = self.arrive(bytes, client)? {
                    let unread = self.unread.into_iter().chain(pieces.flatten().copied()).collect();
                    return Ok(Done { established, unread, answer: output_of(client) });
                }
            }
        }
    }
}

/// A complete handshake with a server that resumes nothing.
pub(crate) fn shake(config: &ServerConfig, client: &mut ClientConnection) -> Result<Done, Failed> {
    shake_with(config, &Keeper::default(), client)
}

/// A complete handshake.
pub(crate) fn shake_with(
    config: &ServerConfig,
    keeper: &Keeper,
    client: &mut ClientConnection,
) -> Result<Done, Failed> {
    Server::new(config, keeper).finish(client, usize::MAX)
}

/// Makes `client` send `data` as soon as possible: directly after its Finished.
pub(crate) fn send_early(client: &mut ClientConnection, data: &[u8]) {
    client.writer().write_all(data).unwrap();
}

const LIFETIME: Duration = Duration::from_hours(1);

/// Seals nothing: a ticket is a key name, the policy id and the session.
#[derive(Debug, Default)]
pub(crate) struct OpenTickets {
    pub(crate) word: RwLock<TicketSeedId>,
}

impl Tickets for OpenTickets {
    fn seal(&self, policy_id: &PolicyId, session: &[u8]) -> Option<Vec<u8>> {
        Some([&self.word()[..], policy_id.as_bytes(), session].concat())
    }

    fn open(&self, policy_id: &PolicyId, ticket: &[u8]) -> Result<Found, Miss> {
        let (word, rest) = ticket.split_first_chunk::<8>().ok_or(Miss::Forged)?;
        let session = rest.strip_prefix(policy_id.as_bytes()).ok_or(Miss::Forged)?;
        if *word != self.word() {
            return Err(Miss::NoKey);
        }
        let session = SecretBytes::new(session.to_vec());
        Ok(Found { session, source: SessionSource::Elsewhere })
    }

    fn missing_seed(&self, ticket: &[u8]) -> Option<TicketSeedId> {
        ticket.first_chunk().copied().filter(|word| *word != self.word())
    }
}

impl OpenTickets {
    fn word(&self) -> TicketSeedId {
        *self.word.read().unwrap_or_else(PoisonError::into_inner)
    }
}
