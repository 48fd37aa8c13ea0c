//! Content of certificates.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use watari_values::{NodeName, Role};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::{BadCertificate, PkiError, files};

/// The prefix of a role in a URI among the alternative names.
pub(crate) const ROLE_PREFIX: &str = "urn:watari:role:";

/// Reads the node name and the roles from a certificate (DER).
///
/// The caller has verified the certificate against the cluster's authority. Roles that this build does not have are
/// ignored: they allow nothing here.
pub fn peer_identity(der: &[u8]) -> Result<(NodeName, BTreeSet<Role>), BadCertificate> {
    Parsed::new(der)?.node()
}

/// A certificate, as `watari pki show` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub subject: Subject,
    /// The cluster's name.
    pub cluster: String,
    /// Its first second, as RFC 3339 (UTC).
    pub not_before: String,
    /// Its last second, as RFC 3339 (UTC).
    pub not_after: String,
    /// SHA-256 of its DER form, in hexadecimal.
    pub fingerprint: String,
}

/// The owner of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Authority,
    Node {
        name: NodeName,
        /// The roles that this build has.
        roles: BTreeSet<Role>,
    },
}

/// Describes every certificate (`*.pem`) in `dir`: the authority first, then the nodes by name.
pub fn describe(dir: &Path) -> Result<Vec<Description>, PkiError> {
    let mut descriptions = Vec::new();
    for path in certificates_in(dir)? {
        let der = CertificateDer::from_pem_slice(&files::read(&path)?).map_err(files::content(&path))?;
        let description = Parsed::new(&der).and_then(|parsed| parsed.describe());
        descriptions.push(description.map_err(|cause| PkiError::Certificate { path, cause })?);
    }
    descriptions.sort_by(|a, b| a.subject.cmp(&b.subject));
    Ok(descriptions)
}

fn certificates_in(dir: &Path) -> Result<Vec<PathBuf>, PkiError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(files::at(dir))? {
        let path = entry.map_err(files::at(dir))?.path();
        if path.extension().is_some_and(|extension| extension == "pem") {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// A certificate that is valid X.509.
pub(crate) struct Parsed<'a> {
    der: &'a [u8],
    x509: X509Certificate<'a>,
}

impl<'a> Parsed<'a> {
    pub(crate) fn new(der: &'a [u8]) -> Result<Self, BadCertificate> {
        match X509Certificate::from_der(der) {
            Ok(([], x509)) => Ok(Self { der, x509 }),
            _ => Err(BadCertificate::Unreadable),
        }
    }

    /// The `SubjectPublicKeyInfo` (DER).
    pub(crate) fn public_key(&self) -> &[u8] {
        self.x509.public_key().raw
    }

    pub(crate) fn describe(&self) -> Result<Description, BadCertificate> {
        let subject = if self.x509.is_ca() {
            Subject::Authority
        } else {
            let (name, roles) = self.node()?;
            Subject::Node { name, roles }
        };
        Ok(Description {
            subject,
            cluster: self.cluster()?,
            not_before: rfc3339(self.x509.validity().not_before),
            not_after: rfc3339(self.x509.validity().not_after),
            fingerprint: hex(digest::digest(&digest::SHA256, self.der).as_ref()),
        })
    }

    fn cluster(&self) -> Result<String, BadCertificate> {
        let name = self.x509.subject().iter_organization().next().and_then(|name| name.as_str().ok());
        name.map(str::to_owned).ok_or(BadCertificate::NoCluster)
    }

    fn node(&self) -> Result<(NodeName, BTreeSet<Role>), BadCertificate> {
        if self.x509.is_ca() {
            return Err(BadCertificate::Authority);
        }
        let names = self.x509.subject_alternative_name().map_err(|_| BadCertificate::Unreadable)?;
        let names = names.ok_or(BadCertificate::NoNames)?;
        let (mut node, mut roles) = (None, BTreeSet::new());
        for name in &names.value.general_names {
            match name {
                GeneralName::DNSName(_) if node.is_some() => return Err(BadCertificate::NotOneNode),
                GeneralName::DNSName(name) => {
                    node = Some(NodeName::new(name).map_err(|_| BadCertificate::ForeignName)?);
                }
                GeneralName::URI(uri) => {
                    let role = uri.strip_prefix(ROLE_PREFIX).ok_or(BadCertificate::ForeignName)?;
                    roles.extend(role.parse::<Role>());
                }
                _ => return Err(BadCertificate::ForeignName),
            }
        }
        Ok((node.ok_or(BadCertificate::NotOneNode)?, roles))
    }
}

fn rfc3339(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use rcgen::string::Ia5String;
    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyPair, SanType};

    use super::*;
    use crate::Authority;

    fn dns(name: &str) -> SanType {
        SanType::DnsName(Ia5String::try_from(name).unwrap())
    }

    fn uri(uri: &str) -> SanType {
        SanType::URI(Ia5String::try_from(uri).unwrap())
    }

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn with_names(names: Vec<SanType>) -> Vec<u8> {
        certificate(|params| params.subject_alt_names = names)
    }

    #[test]
    fn node_and_roles_are_read() {
        let agent = with_names(vec![dns("a-1"), uri("urn:watari:role:agent")]);
        let (node, roles) = peer_identity(&agent).unwrap();
        assert_eq!((node.as_str(), roles), ("a-1", BTreeSet::from([Role::Agent])));
        let both = with_names(vec![uri("urn:watari:role:agent"), uri("urn:watari:role:dispatcher"), dns("x")]);
        assert_eq!(peer_identity(&both).unwrap().1, BTreeSet::from([Role::Agent, Role::Dispatcher]));
        let newer = with_names(vec![dns("x"), uri("urn:watari:role:conductor")]);
        assert_eq!(peer_identity(&newer).unwrap().1, BTreeSet::new());
    }

    #[test]
    fn other_shapes_are_refused() {
        let role = || uri("urn:watari:role:agent");
        let cases = [
            (with_names(vec![]), BadCertificate::NoNames),
            (with_names(vec![role()]), BadCertificate::NotOneNode),
            (with_names(vec![dns("a"), dns("b"), role()]), BadCertificate::NotOneNode),
            (with_names(vec![dns("a"), dns("a"), role()]), BadCertificate::NotOneNode),
            (with_names(vec![dns("a.example"), role()]), BadCertificate::ForeignName),
            (with_names(vec![dns("A"), role()]), BadCertificate::ForeignName),
            (with_names(vec![dns("a"), uri("urn:other:role:agent")]), BadCertificate::ForeignName),
            (with_names(vec![dns("a"), SanType::IpAddress([192, 0, 2, 1].into())]), BadCertificate::ForeignName),
            (vec![], BadCertificate::Unreadable),
            ([with_names(vec![dns("a"), role()]), vec![0]].concat(), BadCertificate::Unreadable),
        ];
        for (der, error) in cases {
            assert_eq!(peer_identity(&der), Err(error));
        }
    }

    #[test]
    fn an_authority_is_no_node() {
        let authority = certificate(|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.subject_alt_names = vec![dns("a"), uri("urn:watari:role:agent")];
        });
        assert_eq!(peer_identity(&authority), Err(BadCertificate::Authority));
    }

    #[test]
    fn a_second_list_of_names_is_refused() {
        // An empty GeneralNames under the same object identifier: it would be ambiguous which one counts.
        let twice = certificate(|params| {
            params.subject_alt_names = vec![dns("a"), uri("urn:watari:role:agent")];
            params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 0])];
        });
        assert_eq!(peer_identity(&twice), Err(BadCertificate::Unreadable));
    }

    #[test]
    fn a_directory_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "north").unwrap();
        for (name, role) in [("b", Role::Agent), ("a", Role::Dispatcher)] {
            authority.issue(&NodeName::new(name).unwrap(), &[role], 30).unwrap();
        }
        let shown = describe(dir.path()).unwrap();
        let node = |name, role| Subject::Node { name: NodeName::new(name).unwrap(), roles: BTreeSet::from([role]) };
        let subjects: Vec<_> = shown.iter().map(|description| description.subject.clone()).collect();
        assert_eq!(subjects, [Subject::Authority, node("a", Role::Dispatcher), node("b", Role::Agent)]);
        for description in shown {
            assert_eq!(description.cluster, "north");
            assert_eq!(description.fingerprint.len(), 64);
            assert!(description.not_before < description.not_after);
        }
    }

    #[test]
    fn times_and_fingerprints_are_printed() {
        let time = ASN1Time::from_timestamp(1_700_000_000).unwrap();
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20Z");
        assert_eq!(hex(&[0x00, 0x1f, 0xa0]), "001fa0");
    }

    proptest! {
        #[test]
        fn a_changed_certificate_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut der = with_names(vec![dns("a"), uri("urn:watari:role:agent")]);
            let at = at.index(der.len());
            der[at] = byte;
            let _ = peer_identity(&der);
            prop_assert!(peer_identity(&der[..at]).is_err());
        }
    }
}
