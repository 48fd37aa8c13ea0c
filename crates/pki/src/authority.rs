//! The certificate authority.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use watari_values::{NodeName, Role};
use zeroize::Zeroizing;

use crate::certificate::{Parsed, ROLE_PREFIX};
use crate::{BadCertificate, PkiError, Subject, files};

const DAY: Duration = Duration::from_hours(24);
const CA_DAYS: u32 = 3650;
/// The allowed difference between the clocks of nodes.
const SKEW: Duration = Duration::from_hours(1);
/// The longest cluster name, in bytes: the limit of a certificate's names (X.520) without the suffix of the common
/// name.
const CLUSTER_NAME_LEN_MAX: usize = 48;

/// The certificate authority of one cluster, with its key.
pub struct Authority {
    dir: PathBuf,
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The paths of a new node's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// `NODE.pem`.
    pub certificate: PathBuf,
    /// `NODE.key`.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority for the cluster named `cluster`, and writes it to `dir`. Creates `dir` if it does not exist.
    ///
    /// The key is ECDSA on P-256. The certificate is valid for ten years. It can sign node certificates, but no further
    /// authorities.
    pub fn create(dir: &Path, cluster: &str) -> Result<Self, PkiError> {
        check_cluster_name(cluster)?;
        let mut params = params(&format!("{cluster} authority"), cluster, CA_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        files::create_dir(dir)?;
        write(&certificate, &files::ca_certificate(dir), &key, &files::ca_key(dir))?;
        Ok(Self { dir: dir.to_owned(), cluster: cluster.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// Reads the authority in `dir`, including its key.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        let (certificate_path, key_path) = (files::ca_certificate(dir), files::ca_key(dir));
        let pem = files::read(&certificate_path)?;
        let der = CertificateDer::from_pem_slice(&pem).map_err(files::content(&certificate_path))?;
        let key_pem = files::read_key(&key_path)?;
        let key_pem = str::from_utf8(&key_pem).map_err(files::content(&key_path))?;
        let key = KeyPair::from_pem(key_pem).map_err(files::content(&key_path))?;
        let parsed = Parsed::new(&der).map_err(|cause| named(&certificate_path, cause))?;
        let description = parsed.describe().map_err(|cause| named(&certificate_path, cause))?;
        if description.subject != Subject::Authority {
            return Err(files::content(&certificate_path)("not the certificate of an authority"));
        }
        if parsed.public_key() != key.subject_public_key_info() {
            return Err(files::content(&key_path)("not the key of the authority's certificate"));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(files::content(&certificate_path))?;
        Ok(Self { dir: dir.to_owned(), cluster: description.cluster, issuer })
    }

    /// Makes a key and a certificate for `node` with `roles`, valid for `days` days from now. Writes both to the
    /// directory of the authority.
    pub fn issue(&self, node: &NodeName, roles: &[Role], days: u32) -> Result<Issued, PkiError> {
        if roles.is_empty() {
            return Err(PkiError::Request("a node needs at least one role"));
        }
        if !(1..=CA_DAYS).contains(&days) {
            return Err(PkiError::Request("a certificate is valid for 1 to 3650 days"));
        }
        let mut params = params(node.as_str(), &self.cluster, days);
        params.subject_alt_names = alternative_names(node, roles)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let issued =
            Issued { certificate: files::node_certificate(&self.dir, node), key: files::node_key(&self.dir, node) };
        write(&certificate, &issued.certificate, &key, &issued.key)?;
        Ok(issued)
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }
}

fn check_cluster_name(name: &str) -> Result<(), PkiError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    if name.is_empty() || name.len() > CLUSTER_NAME_LEN_MAX || !name.chars().all(allowed) {
        return Err(PkiError::Request("a cluster name is 1 to 48 letters, digits, spaces, '-', '_' and '.'"));
    }
    Ok(())
}

fn params(common_name: &str, cluster: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, cluster);
    let now = SystemTime::now();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + DAY * days).into();
    params
}

fn alternative_names(node: &NodeName, roles: &[Role]) -> Result<Vec<SanType>, PkiError> {
    let mut names = vec![SanType::DnsName(Ia5String::try_from(node.as_str())?)];
    for role in roles {
        names.push(SanType::URI(Ia5String::try_from(format!("{ROLE_PREFIX}{role}"))?));
    }
    Ok(names)
}

fn write(
    certificate: &rcgen::Certificate,
    certificate_path: &Path,
    key: &KeyPair,
    key_path: &Path,
) -> Result<(), PkiError> {
    let key_pem = Zeroizing::new(key.serialize_pem());
    files::write_pair((certificate_path, &certificate.pem()), (key_path, &key_pem))
}

fn named(path: &Path, cause: BadCertificate) -> PkiError {
    PkiError::Certificate { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_their_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pki = dir.path().join("new/pki");
        let issued = Authority::create(&pki, "c").unwrap().issue(&node("a"), &[Role::Agent], 1).unwrap();
        assert_eq!(mode(&pki), 0o700);
        assert_eq!(mode(&pki.join("ca.key")), 0o600);
        assert_eq!(mode(&issued.key), 0o600);
        assert!(fs::read_to_string(&issued.key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "c").unwrap();
        authority.issue(&node("a"), &[Role::Agent], 1).unwrap();
        let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
        let before = ["ca.pem", "ca.key", "a.pem", "a.key"].map(read);
        assert!(matches!(Authority::create(dir.path(), "d"), Err(PkiError::Exists(_))));
        assert!(matches!(authority.issue(&node("a"), &[Role::Agent], 1), Err(PkiError::Exists(_))));
        assert!(matches!(authority.issue(&node("ca"), &[Role::Agent], 1), Err(PkiError::Exists(_))));
        assert_eq!(["ca.pem", "ca.key", "a.pem", "a.key"].map(read), before);
        // If only the key is left, it stays, and no certificate is written.
        fs::remove_file(dir.path().join("a.pem")).unwrap();
        let again = authority.issue(&node("a"), &[Role::Agent], 1);
        assert!(matches!(again, Err(PkiError::Exists(path)) if path.ends_with("a.key")));
        assert_eq!(read("a.key"), before[3]);
        assert!(!dir.path().join("a.pem").exists());
    }

    #[test]
    fn an_authority_opens_again() {
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path(), "north wing").unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        assert_eq!(authority.cluster(), "north wing");
        authority.issue(&node("a"), &[Role::Dispatcher], 1).unwrap();
        crate::Identity::load(dir.path(), &node("a")).unwrap();
    }

    #[test]
    fn a_key_that_is_another_authoritys_is_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Authority::create(dir.path(), "c").unwrap();
        Authority::create(other.path(), "c").unwrap();
        fs::copy(other.path().join("ca.key"), dir.path().join("ca.key")).unwrap();
        let error = Authority::open(dir.path()).err().unwrap().to_string();
        assert!(error.contains("ca.key: not the key"), "{error}");
    }

    #[test]
    fn a_key_that_everybody_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path(), "c").unwrap();
        fs::set_permissions(dir.path().join("ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Authority::open(dir.path()), Err(PkiError::Exposed(_))));
    }

    #[test]
    fn impossible_requests_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "c\n", &"c".repeat(49)] {
            assert!(matches!(Authority::create(dir.path(), name), Err(PkiError::Request(_))), "{name:?}");
        }
        let authority = Authority::create(dir.path(), "c").unwrap();
        for (roles, days) in [(&[][..], 1), (&[Role::Agent][..], 0), (&[Role::Agent][..], 3651)] {
            assert!(matches!(authority.issue(&node("a"), roles, days), Err(PkiError::Request(_))));
        }
        assert!(!dir.path().join("a.key").exists());
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Authority::open(dir.path()).err().unwrap().to_string();
        assert!(missing.contains("ca.pem: No such file"), "{missing}");
        fs::write(dir.path().join("ca.pem"), "nothing").unwrap();
        let garbage = Authority::open(dir.path()).err().unwrap().to_string();
        assert!(garbage.contains("ca.pem: "), "{garbage}");
        fs::write(dir.path().join("ca.pem"), vec![b'x'; 70_000]).unwrap();
        let large = Authority::open(dir.path()).err().unwrap().to_string();
        assert!(large.contains("too large"), "{large}");
    }
}
