//! Which certificate answers which name.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;

/// Certificates by the name the client asks for (SNI, RFC 6066, section 3).
///
/// A name is looked up as it is, then under the wildcard of its parent (`*.example.com`, one label, RFC 6125, section
/// 6.4.3), then among the defaults. Of the certificates found, the first whose key can sign what the client verifies
/// is served.
#[derive(Debug)]
pub(crate) struct Names {
    exact: HashMap<String, Candidates>,
    /// Keyed by what follows `*.`.
    wildcards: HashMap<String, Candidates>,
    default: Candidates,
}

/// Certificates for one name, preferred first.
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

    /// The certificates that answer `name`, preferred first.
    pub(crate) fn candidates(&self, name: Option<&str>) -> &[Certificate] {
        name.and_then(|name| self.issued_for(name)).unwrap_or(&self.default)
    }

    /// `name` is in lower case: rustls has seen to it.
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
    /// Falls back on the first candidate where the client verifies none of them with the suites it offers: rustls then
    /// refuses the handshake for what it is, nothing in common, where `None` would say "access denied".
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(hello.server_name());
        let verifiable = candidates.iter().find(|candidate| candidate.signs_with(hello.signature_schemes()));
        verifiable.or(candidates.first()).map(|chosen| Arc::clone(chosen.certified_key()))
    }
}
