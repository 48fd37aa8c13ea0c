//! The certificates of the site and of its clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

/// The name that the site has certificates for, one of each kind.
pub(crate) const SITE: &str = "site.test";

/// The kind of a server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Rsa2048,
    P256,
}

impl KeyKind {
    pub(crate) const BOTH: [Self; 2] = [Self::Rsa2048, Self::P256];

    /// One key of each kind serves all clusters, because an RSA key takes long to make.
    fn key(self) -> &'static KeyPair {
        static RSA: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap());
        static P256: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
        match self {
            Self::Rsa2048 => &RSA,
            Self::P256 => &P256,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa",
            Self::P256 => "p256",
        }
    }
}

/// Authorities: of the site, of its clients, and an untrusted one.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn of_site() -> &'static Self {
        static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("site"));
        &AUTHORITY
    }

    pub(crate) fn of_clients() -> &'static Self {
        static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("clients"));
        &AUTHORITY
    }

    pub(crate) fn of_another_authority() -> &'static Self {
        static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("strangers"));
        &AUTHORITY
    }

    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The identity of a client with this name.
    pub(crate) fn issue_to_client(&self, name: &str) -> ClientIdentity {
        let key = KeyKind::P256.key();
        let leaf = CertificateParams::new([name.to_owned()]).unwrap().signed_by(key, &self.0).unwrap();
        ClientIdentity { certificate: leaf.der().clone(), key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

/// A client's certificate and its key.
pub(crate) struct ClientIdentity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), key: self.key.clone_key() }
    }
}

/// Writes the site's certificates and both authorities into `dir`.
pub(crate) fn write(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    fs::write(ca_file(dir), Authority::of_site().0.pem()).unwrap();
    fs::write(dir.join("clients.pem"), Authority::of_clients().0.pem()).unwrap();
    for kind in KeyKind::BOTH {
        let leaf = of_today().signed_by(kind.key(), &Authority::of_site().0).unwrap();
        fs::write(dir.join(format!("{}.pem", kind.file())), leaf.pem()).unwrap();
        write_key(&dir.join(format!("{}.key", kind.file())), &kind.key().serialize_pem());
    }
}

/// Parameters like those of public certificates, which scanners check, too.
fn of_today() -> CertificateParams {
    let mut params = CertificateParams::new([SITE.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = OffsetDateTime::now_utc() - Duration::days(1);
    params.not_after = params.not_before + Duration::days(90);
    params
}

/// A new certificate for the site.
pub(crate) struct Renewed {
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
    pub(crate) der: CertificateDer<'static>,
}

/// Issues a certificate for the site's P-256 key, or for a new one.
pub(crate) fn renew(new_key: bool) -> Renewed {
    let own = new_key.then(|| KeyPair::generate().unwrap());
    let key = own.as_ref().unwrap_or_else(|| KeyKind::P256.key());
    let leaf = CertificateParams::new([SITE.to_owned()]).unwrap().signed_by(key, &Authority::of_site().0).unwrap();
    Renewed { chain_pem: leaf.pem(), key_pem: key.serialize_pem(), der: leaf.der().clone() }
}

/// The last second of the validity of the certificate from [`expired`].
pub(crate) const EXPIRED_AT: i64 = 1_609_459_200;

/// Issues a certificate for the site's P-256 key that was valid in 2020, as PEM.
pub(crate) fn expired() -> String {
    let mut params = CertificateParams::new([SITE.to_owned()]).unwrap();
    params.not_after = OffsetDateTime::from_unix_timestamp(EXPIRED_AT).unwrap();
    params.not_before = params.not_after - Duration::days(366);
    params.signed_by(KeyKind::P256.key(), &Authority::of_site().0).unwrap().pem()
}

/// The authority that clients of the site trust.
pub(crate) fn ca_file(dir: &Path) -> PathBuf {
    dir.join("ca.pem")
}

/// Writes a key that other users cannot read.
pub(crate) fn write_key(path: &Path, pem: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(pem.as_bytes()).unwrap();
}
