//! The certificate of the agents. Its key is of Ed25519, so that no message of a handshake varies in length.

use std::sync::LazyLock;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::CertificateDer;
use watari_handshake::{Certificate, ServerConfig, ServerOptions};

/// The name that clients ask for.
pub(crate) const NAME: &str = "site.test";

pub(crate) struct Pki {
    /// What clients trust.
    pub(crate) authority: CertificateDer<'static>,
    /// What agents offer.
    pub(crate) server: ServerConfig,
}

/// Made once per process.
pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(|| make().expect("the parameters are right"));

fn make() -> Result<Pki, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.serial_number = Some(SerialNumber::from(1));
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ED25519)?)?;
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
    params.serial_number = Some(SerialNumber::from(2));
    let leaf = params.signed_by(&key, &issuer)?;
    let certificate = Certificate::from_der(vec![leaf.der().to_vec()], &key.serialize_der()).expect("a good key");
    let options = ServerOptions { certificates: vec![certificate], ..ServerOptions::default() };
    let server = ServerConfig::new(&options).expect("the options are consistent");
    Ok(Pki { authority: issuer.der().clone(), server })
}
