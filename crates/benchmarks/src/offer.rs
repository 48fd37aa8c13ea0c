//! The clients' offer in handshakes: one version with one cipher suite, and X25519. The version is TLS 1.3 unless a
//! benchmark says otherwise. All servers support the offer, so all do the same work. Every handshake is full, unless
//! clients resume.

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use watari_bench_engine::tls::{Pem, Resume, Roots, TlsOptions};
use watari_client_tls::{ClientTls, Verifier, roots_of};
use watari_handshake::{Group, Policy};
use watari_record::CipherSuite;

use crate::failure::{Failure, tls};
use crate::site::Site;

/// The offer of loads.
pub(crate) fn options(site: &Site, offered: CipherSuite) -> Result<TlsOptions, Failure> {
    let authority = Pem::read(&site.authority()).map_err(tls("trusting the authority"))?;
    Ok(TlsOptions {
        policy: policy(offered),
        roots: Roots::File(authority),
        resume: Resume::Full,
        ..TlsOptions::default()
    })
}

/// The offer of other connections: those in memory, and those of [`Opener`](crate::connection::Opener).
pub(crate) fn config(site: &Site, offered: CipherSuite) -> Result<ClientConfig, Failure> {
    let authority = CertificateDer::from_pem_file(site.authority()).map_err(tls("reading the authority"))?;
    let roots = roots_of([authority]).map_err(tls("trusting the authority"))?;
    let policy = policy(offered);
    let settings = ClientTls {
        provider: policy.provider(),
        versions: policy.rustls_versions(),
        verifier: Verifier::Roots(roots),
        certificate: None,
        alpn: vec![b"http/1.1".to_vec()],
    };
    let mut config = settings.into_config().map_err(tls("configuring a client"))?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn policy(offered: CipherSuite) -> Policy {
    Policy { versions: vec![offered.version()], suites: vec![offered], groups: vec![Group::X25519] }
}
