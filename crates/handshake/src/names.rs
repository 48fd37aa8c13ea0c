//! Selects a certificate by server name.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;

/// Certificates by server name (SNI, RFC 6066, section 3).
///
/// The lookup tries the exact name, then the wildcard of its parent (`*.example.com`, one label, RFC 6125, section
/// 6.4.3), then the defaults. Of the certificates found, the server sends the first whose key fits the client's
/// signature schemes.
#[derive(Debug)]
pub(crate) struct Names {
    exact: HashMap<String, Candidates>,
    /// Keyed by the part after `*.`.
    wildcards: HashMap<String, Candidates>,
    default: Candidates,
}

/// Certificates for one name, in order of preference.
type Candidates = Vec<Certificate>;

impl Names {
    pub(crate) fn new(certificates: &[Certificate], default: &[Certificate]) -> Self {
        let mut names = Self { exact: HashMap::new(), wildcards: HashMap::new(), default: default.to_vec() };
        for certificate in certificates {
            for name in certificate.names() {
                names.candidates_mut(name).push(certificate.clone());
            }
        }
        let lists = names.exact.values_mut().chain(names.wildcards.values_mut());
        for candidates in lists.chain([&mut names.default]) {
            candidates.sort_by_key(Certificate::preference);
        }
        names
    }

    /// The certificates for `name`, in order of preference.
    pub(crate) fn candidates(&self, name: Option<&str>) -> &[Certificate] {
        name.and_then(|name| self.issued_for(name)).unwrap_or(&self.default)
    }

    /// rustls passes `name` in lower case.
    fn issued_for(&self, name: &str) -> Option<&Candidates> {
        let wildcard = || name.split_once('.').and_then(|(_, parent)| self.wildcards.get(parent));
        self.exact.get(name).or_else(wildcard)
    }

    fn candidates_mut(&mut self, name: &str) -> &mut Candidates {
        match name.strip_prefix("*.") {
            Some(parent) => self.wildcards.entry(parent.to_owned()).or_default(),
            None => self.exact.entry(name.to_owned()).or_default(),
        }
    }
}

impl ResolvesServerCert for Names {
    /// Falls back on the first candidate if the client accepts none of them with the suites it offers. rustls then
    /// refuses the handshake because nothing is in common; after `None` it would send "access denied".
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(hello.server_name());
        let verifiable = candidates.iter().find(|candidate| candidate.signs_with(hello.signature_schemes()));
        verifiable.or(candidates.first()).map(|chosen| Arc::clone(chosen.certified_key()))
    }
}
