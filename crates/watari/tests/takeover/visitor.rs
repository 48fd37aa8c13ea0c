//! Clients that come again with their sessions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Tls12Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::lab::{HOST, Lab, V4, stdout};

/// Far longer than a request takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The means of resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TLS 1.2, session ids: the client takes no tickets.
    Ids,
    /// TLS 1.2, tickets.
    Tickets,
    /// TLS 1.3.
    Psk,
}

/// How a handshake was done, as the client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Full,
    Resumed,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Ids, Self::Tickets, Self::Psk];
}

/// A client of the site, with rustls. It offers the latest session that it has got.
pub(crate) struct Visitor(Arc<ClientConfig>);

impl Visitor {
    /// A client without sessions.
    pub(crate) fn new(lab: &Lab, kind: Kind) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(lab.dir().join("site.pem")).unwrap()).unwrap();
        let version = if kind == Kind::Psk { &TLS13 } else { &TLS12 };
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        if kind == Kind::Ids {
            config.resumption = config.resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
        }
        Self(Arc::new(config))
    }

    /// Gets the site's page by a new connection. Fails if that takes too long, or if the response is another.
    pub(crate) fn visit(&self) -> std::io::Result<Seen> {
        let service = SocketAddr::new(V4.parse().unwrap(), 443);
        let tcp = TcpStream::connect_timeout(&service, TIMEOUT)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        let tls = ClientConnection::new(self.0.clone(), ServerName::try_from(HOST).unwrap()).unwrap();
        let mut stream = StreamOwned::new(tls, tcp);
        write!(stream, "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        // To the end, behind which there are no more tickets.
        stream.read_to_string(&mut response)?;
        if !response.ends_with("\r\n\r\nhello\n") {
            return Err(std::io::Error::other(response));
        }
        Ok(match stream.conn.handshake_kind() {
            Some(HandshakeKind::Resumed) => Seen::Resumed,
            _ => Seen::Full,
        })
    }
}

/// A handshake of TLS 1.2 by `openssl s_client` without tickets. It offers the session in `file`, if that exists, and
/// stores its session there.
pub(crate) fn openssl_with_ids(lab: &Lab, file: &str) -> Seen {
    let mut command = Command::new("openssl");
    command.current_dir(lab.dir()).args(["s_client", "-connect", &format!("{V4}:443"), "-servername", HOST]);
    command.args(["-tls1_2", "-no_ticket", "-sess_out", file]).stdin(Stdio::null());
    if lab.dir().join(file).exists() {
        command.args(["-sess_in", file]);
    }
    let said = stdout(&command.output().unwrap());
    match (said.contains("\nNew, TLSv1.2"), said.contains("\nReused, TLSv1.2")) {
        (true, false) => Seen::Full,
        (false, true) => Seen::Resumed,
        _ => panic!("no handshake: {said}"),
    }
}
