//! OpenSSL's libssl: that of the system, or with the feature `openssl-weak` one that is built with weak ciphers. The
//! latter has more of the paper's suites (RC4 and 3DES; OpenSSL 1.1.0 removed DES and the export suites).

mod stored;

use std::io;
use std::net::TcpStream;

use openssl::bn::BigNum;
use openssl::dh::Dh;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::provider::Provider;
use openssl::ssl::{
    Ssl, SslCipherRef, SslConnector, SslConnectorBuilder, SslContext, SslContextBuilder, SslMethod, SslOptions,
    SslStream, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::store::{X509Store, X509StoreBuilder};

use super::interface::{Engine, MeasureError, Offer};
use crate::certificates::{Certificates, HOST, Identity};
use crate::loopback::{self, Channel, Client, Connected, Server, Session};
use crate::row::Measured;
use crate::work::Work;
use stored::StoredSessions;

pub(crate) struct OpenSsl<'a> {
    certificates: &'a Certificates,
    offers: Vec<Offer>,
    /// The legacy provider with RC4 and SEED, if the library has it. It stays loaded until this value is dropped.
    _legacy: Option<Provider>,
}

impl<'a> OpenSsl<'a> {
    /// Asks the library which suites it supports.
    pub(super) fn new(certificates: &'a Certificates) -> Result<Self, ErrorStack> {
        let legacy = Provider::try_load(None, "legacy", true).ok();
        Ok(Self { certificates, offers: offers()?, _legacy: legacy })
    }
}

impl Engine for OpenSsl<'_> {
    fn version(&self) -> String {
        openssl::version::version().to_owned()
    }

    fn offers(&self) -> Vec<Offer> {
        self.offers.clone()
    }

    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError> {
        let identity = self.certificates.identity(offer.key);
        let mut server = OpenSslServer(server_context(offer, identity)?.build());
        let mut client = OpenSslClient::new(offer, identity)?;
        Ok(loopback::measure(&mut server, &mut client, work)?)
    }
}

/// Every suite that the library can look up by its number and can enable.
fn offers() -> Result<Vec<Offer>, ErrorStack> {
    let context = SslContext::builder(SslMethod::tls())?.build();
    let numbers: Vec<u8> =
        FIRST_BYTES.iter().flat_map(|first| (0..=u8::MAX).flat_map(|second| [*first, second])).collect();
    let known = Ssl::new(&context)?.bytes_to_cipher_list(&numbers, false)?.suites;
    Ok(known.iter().filter_map(offer).filter(|offer| enable_in_new(offer).is_ok()).collect())
}

fn offer(cipher: &SslCipherRef) -> Option<Offer> {
    Offer::new(cipher.standard_name()?.to_owned(), cipher.name())
}

fn enable_in_new(offer: &Offer) -> Result<(), ErrorStack> {
    enable(&mut SslContext::builder(SslMethod::tls())?, offer)
}

/// Enables only this suite, at any security level.
fn enable(context: &mut SslContextBuilder, offer: &Offer) -> Result<(), ErrorStack> {
    context.set_security_level(0);
    if offer.suite == offer.own_name {
        // Only the suites of TLS 1.3 have the same name in OpenSSL and in IANA's registry.
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        context.set_ciphersuites(&offer.own_name)?;
    } else {
        context.set_min_proto_version(Some(SslVersion::TLS1))?;
        context.set_max_proto_version(Some(SslVersion::TLS1_2))?;
        context.set_cipher_list(&offer.own_name)?;
    }
    // The second group is the curve of a key, which has to be in this list, too.
    context.set_groups_list("X25519:P-256")
}

fn server_context(offer: &Offer, identity: Option<&Identity>) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls_server())?;
    enable(&mut context, offer)?;
    let group_14 = Dh::from_pqg(BigNum::get_rfc3526_prime_2048()?, None, BigNum::from_u32(2)?)?;
    context.set_tmp_dh(&group_14)?;
    // The server stores sessions and does not write them into tickets.
    context.set_options(SslOptions::NO_TICKET);
    context.set_session_id_context(b"watari")?;
    if let Some(identity) = identity {
        context.set_certificate(&*X509::from_der(&identity.certificate)?)?;
        context.set_private_key(&*PKey::private_key_from_der(identity.key().secret_der())?)?;
    }
    Ok(context)
}

fn client_context(offer: &Offer, identity: Option<&Identity>) -> Result<SslConnectorBuilder, ErrorStack> {
    let mut context = SslConnector::builder(SslMethod::tls_client())?;
    enable(&mut context, offer)?;
    context.set_cert_store(trusted(identity)?);
    Ok(context)
}

fn trusted(identity: Option<&Identity>) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    if let Some(identity) = identity {
        store.add_cert(X509::from_der(&identity.authority)?)?;
    }
    Ok(store.build())
}

struct OpenSslServer(SslContext);

impl Server for OpenSslServer {
    fn accept(&mut self, tcp: TcpStream) -> io::Result<Box<dyn Channel>> {
        let stream = Ssl::new(&self.0)?.accept(tcp).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(stream))
    }
}

struct OpenSslClient {
    new: SslConnector,
    stored: StoredSessions,
}

impl OpenSslClient {
    fn new(offer: &Offer, identity: Option<&Identity>) -> Result<Self, ErrorStack> {
        Ok(Self {
            new: client_context(offer, identity)?.build(),
            stored: StoredSessions::new(client_context(offer, identity)?)?,
        })
    }
}

impl Client for OpenSslClient {
    fn connect(&mut self, tcp: TcpStream, session: Session) -> io::Result<Connected> {
        if session == Session::Kept {
            return self.stored.connect(tcp);
        }
        let stream = self.new.connect(HOST, tcp).map_err(|error| io::Error::other(error.to_string()))?;
        let (resumed, version) = (stream.ssl().session_reused(), stream.ssl().version_str());
        Ok(Connected { channel: Box::new(stream), resumed, version })
    }
}

impl Channel for SslStream<TcpStream> {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown().map_err(io::Error::other)?;
        Ok(())
    }
}

/// The first bytes of the numbers of all suites that are not private (IANA's registry): of SSL and TLS, of TLS 1.3,
/// with elliptic curves, with `ChaCha20`.
const FIRST_BYTES: [u8; 4] = [0x00, 0x13, 0xc0, 0xcc];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use openssl::ssl::SslSessionCacheMode;

    use super::*;
    use crate::key::Key;

    #[test]
    fn a_server_that_forgets_shows() {
        let certificates = Certificates::generate().unwrap();
        let work = Work { bulk_bytes: 1, connections: 2 };
        for suite in ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"] {
            let engine = OpenSsl::new(&certificates).unwrap();
            let offer = engine.offers.iter().find(|offer| offer.suite == suite).unwrap();
            let identity = certificates.identity(Key::Rsa);
            let mut context = server_context(offer, identity).unwrap();

            context.set_session_cache_mode(SslSessionCacheMode::OFF);
            let mut client = OpenSslClient::new(offer, identity).unwrap();
            let measured = loopback::measure(&mut OpenSslServer(context.build()), &mut client, work).unwrap();
            assert_eq!(measured.reused, 0, "{suite}");
        }
    }
}
