//! The keys and certificates of a run. They are generated for it and not stored.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, Error, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::key::Key;

/// The name in every certificate, which every client requests.
pub(crate) const HOST: &str = "localhost";

/// An identity for each kind of key.
pub(crate) struct Certificates {
    rsa: Identity,
    ec: Identity,
    ec_by_rsa: Identity,
}

/// The server's certificate and key, and the authority that the client trusts.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) authority: CertificateDer<'static>,
    /// Signed by the authority.
    pub(crate) certificate: CertificateDer<'static>,
    /// The server's key in PKCS #8.
    key: Vec<u8>,
}

impl Certificates {
    /// Generates new keys, and signs them with authorities of their own.
    pub(crate) fn generate() -> Result<Self, Error> {
        let (rsa, ec) = (Authority::new(rsa_key()?)?, Authority::new(ec_key()?)?);
        Ok(Self { rsa: rsa.issue(&rsa_key()?)?, ec: ec.issue(&ec_key()?)?, ec_by_rsa: rsa.issue(&ec_key()?)? })
    }

    /// The identity with this kind of key. `None` for [`Key::None`].
    pub(crate) fn identity(&self, key: Key) -> Option<&Identity> {
        match key {
            Key::Rsa => Some(&self.rsa),
            Key::Ec => Some(&self.ec),
            Key::EcByRsa => Some(&self.ec_by_rsa),
            Key::None => None,
        }
    }
}

impl Identity {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(key: KeyPair) -> Result<Self, Error> {
        let mut params = named("Watari bench suites authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Self { certificate: params.self_signed(&key)?, issuer: Issuer::new(params, key) })
    }

    /// Issues a certificate for signatures, for key transport by RSA, and for static Diffie-Hellman.
    fn issue(&self, key: &KeyPair) -> Result<Identity, Error> {
        let mut params = CertificateParams::new([HOST.to_owned()])?;
        params.distinguished_name = named(HOST).distinguished_name;
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyAgreement];
        let certificate = params.signed_by(key, &self.issuer)?.der().clone();
        Ok(Identity { authority: self.certificate.der().clone(), certificate, key: key.serialize_der() })
    }
}

fn rsa_key() -> Result<KeyPair, Error> {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
}

fn ec_key() -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
