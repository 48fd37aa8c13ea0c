//! The certificates of the demo's site: an authority, and one name with two kinds of key.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, RsaKeySize,
};

use super::error::{DemoError, doing};

/// The name in the demo's certificates. `.test` is reserved (RFC 6761).
pub(super) const HOST: &str = "demo.watari.test";

/// The authority and the certificates that it issued, in DER. The files are in PEM.
pub(super) struct Site {
    pub(super) authority: Vec<u8>,
    pub(super) rsa: Vec<u8>,
    pub(super) ecdsa: Vec<u8>,
}

impl Site {
    /// Makes all certificates, and writes them to `dir`: `ca.pem`, and `rsa` and `p256`, each `.pem` and `.key`. The
    /// authority's key is not kept.
    pub(super) fn create(dir: &Path) -> Result<Self, DemoError> {
        fs::create_dir(dir).map_err(doing(format!("making {}", dir.display())))?;
        let key = KeyPair::generate()?;
        let mut params = named("Watari demo site authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = params.self_signed(&key)?;
        write(dir, "ca.pem", &authority.pem())?;
        let issuer = Issuer::new(params, key);
        Ok(Self {
            rsa: issue(dir, "rsa", &issuer, &KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?)?,
            ecdsa: issue(dir, "p256", &issuer, &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)?,
            authority: authority.der().to_vec(),
        })
    }
}

fn issue(dir: &Path, name: &str, issuer: &Issuer<'_, KeyPair>, key: &KeyPair) -> Result<Vec<u8>, DemoError> {
    let mut params = CertificateParams::new([HOST.to_owned(), "localhost".to_owned()])?;
    params.distinguished_name = named(HOST).distinguished_name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let certificate = params.signed_by(key, issuer)?;
    write(dir, &format!("{name}.pem"), &certificate.pem())?;
    write_key(&dir.join(format!("{name}.key")), &key.serialize_pem())?;
    Ok(certificate.der().to_vec())
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn write(dir: &Path, name: &str, pem: &str) -> Result<(), DemoError> {
    let path = dir.join(name);
    fs::write(&path, pem).map_err(doing(format!("writing {}", path.display())))
}

/// The file is never readable by other users.
fn write_key(path: &Path, pem: &str) -> Result<(), DemoError> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(pem.as_bytes()));
    written.map_err(doing(format!("writing {}", path.display())))
}
