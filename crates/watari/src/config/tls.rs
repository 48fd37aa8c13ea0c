//! `[agent.tls]` and `[[agent.tls.listener]]`: the parameters of handshakes, by the address that clients connect to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use watari_agent::Listener;
use watari_handshake::{BadPolicy, Group, Policy};
use watari_record::{CipherSuite, Version};

use super::check::{Check, Checked, each};
use super::file::At;
use super::load;
use super::model::{CertificateFiles, ClientCertificates, Tls, TlsParameters};
use super::raw::{ALPN, Demand, RawCertificate, RawListener, RawTls, RawTlsParameters, VERSIONS};
use super::spanned::{Spanned, Texts};
use super::value::{FilePath, ListenerAddress};

/// The parameters of one table, before the check of its client certificates.
struct Set {
    line: Option<usize>,
    policy: Policy,
    alpn: Vec<String>,
    demand: Option<At<Demand>>,
    ca: Option<At<PathBuf>>,
}

impl Check<'_> {
    pub(super) fn tls(&self, certificates: Vec<RawCertificate>, raw: Option<Spanned<RawTls>>) -> Checked<Option<Tls>> {
        if certificates.is_empty() {
            return match raw {
                Some(raw) => self.wrong(&raw, "[agent.tls] has no effect without an [[agent.certificate]]"),
                None => Some(None),
            };
        }
        let certificates = certificates.into_iter().map(|raw| self.certificate_files(&raw)).collect();
        let line = raw.as_ref().map(|raw| self.line(raw));
        let raw = raw.map(Spanned::into_inner).unwrap_or_default();
        let unset = Set {
            line: None,
            policy: Policy::default(),
            alpn: ALPN.map(String::from).to_vec(),
            demand: None,
            ca: None,
        };
        let (raw_terms, raw_listeners) = raw.parts();
        let ca = raw_terms.client_ca.as_ref().map(|ca| self.path(ca));
        let default = self.set(raw_terms, line, Some(&unset));
        let listeners = self.listener_sets(raw_listeners, default.as_ref(), ca.as_ref());
        let (default, listeners) = (default?, listeners?);
        let is_of_use = self.inherited_ca_is_of_use(&default, &listeners);
        let parameters = self.parameters(default);
        let listeners = each(listeners.into_iter().map(|(listener, set)| Some((listener, self.parameters(set)?))));
        is_of_use?;
        Some(Some(Tls { certificates, parameters: parameters?, listeners: listeners? }))
    }

    fn certificate_files(&self, raw: &RawCertificate) -> CertificateFiles {
        let files = CertificateFiles { chain: self.path(&raw.chain), key: self.path(&raw.key), default: raw.default };
        if self.is_real(&raw.chain) && self.is_real(&raw.key) {
            let files = files.clone();
            self.later(move |file| load::named_certificate(file, &files).map(drop));
        }
        files
    }

    /// `default` is `None` if the table above is wrong. `above_ca`: its `client_ca`.
    fn listener_sets(
        &self,
        raw: Vec<Spanned<RawListener>>,
        default: Option<&Set>,
        above_ca: Option<&At<PathBuf>>,
    ) -> Option<Vec<(Listener, Set)>> {
        let mut seen = BTreeMap::new();
        each(raw.into_iter().map(|raw| {
            let line = self.line(&raw);
            let raw = raw.into_inner();
            let at = self.line(&raw.address);
            let ListenerAddress(listener) = *raw.address.get_ref();
            let is_new = match seen.insert(listener, at) {
                Some(first) if self.is_real(&raw.address) => {
                    self.note(at, format!("the listener {listener} is listed twice, first on line {first}"))
                }
                _ => Some(()),
            };
            let set = self.set(raw.parameters(), Some(line), default)?;
            let own_ca = set.ca.as_ref().filter(|ca| above_ca.is_none_or(|above| above.line != ca.line));
            if let (Some(ca), false) = (own_ca, asks(&set)) {
                return self.note(ca.line, NO_EFFECT);
            }
            is_new.map(|()| (listener, set))
        }))
    }

    /// The parameters of a table. A key that it does not set is as in `above`. `None`: `above` is wrong.
    fn set(&self, raw: RawTlsParameters, line: Option<usize>, above: Option<&Set>) -> Option<Set> {
        let policy = above.map(|set| &set.policy);
        let versions = self.named(raw.versions.as_ref(), policy.map(|it| &it.versions[..]), "the version", version);
        let suites = self.named(raw.suites.as_ref(), policy.map(|it| &it.suites[..]), "the cipher suite", suite);
        let groups = self.named(raw.groups.as_ref(), policy.map(|it| &it.groups[..]), "the group", group);
        let alpn = self.named(raw.alpn.as_ref(), above.map(|set| &set.alpn[..]), "the protocol", alpn);
        let ca = raw.client_ca.map(|ca| self.client_ca(&ca));
        let policy = Policy { versions: versions?, suites: suites?, groups: groups? };
        if let Err(error) = policy.check() {
            return self.note(line.unwrap_or(1), sentence(error));
        }
        if let Some(suites) = &raw.suites {
            self.suites_are_of_use(suites, &policy)?;
        }
        let above = above?;
        Some(Set {
            line,
            policy,
            alpn: alpn?,
            demand: raw.client_certificates.map(|demand| self.at(demand)).or_else(|| above.demand.clone()),
            ca: ca.or_else(|| above.ca.clone()),
        })
    }

    fn client_ca(&self, raw: &Spanned<FilePath>) -> At<PathBuf> {
        let ca = self.path(raw);
        let roots = ca.clone();
        self.later(move |file| load::client_roots(file, &roots).map(drop));
        ca
    }

    fn suites_are_of_use(&self, suites: &Texts, policy: &Policy) -> Option<()> {
        let named = suites.get_ref().iter().zip(&policy.suites);
        let results = named.map(|(name, suite)| {
            if policy.versions.contains(&suite.version()) {
                return Some(());
            }
            self.wrong(name, format!("{suite} is a suite of {}, which is not in versions", suite.version()))
        });
        each(results).map(drop)
    }

    /// Reads a list of names. Each may occur once. `above` has the list of the table above, or `None` if that is wrong.
    fn named<T: Clone>(
        &self,
        raw: Option<&Texts>,
        above: Option<&[T]>,
        what: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let Some(raw) = raw else { return above.map(<[T]>::to_vec) };
        let mut seen = BTreeMap::new();
        each(raw.get_ref().iter().map(|name| {
            let value = read(name.get_ref()).map_or_else(|sentence| self.wrong(name, sentence), Some)?;
            self.once(&mut seen, name, what).map(|()| value)
        }))
    }

    /// The table above may have a `client_ca` for its listeners alone. So it is refused only if none of them uses it.
    fn inherited_ca_is_of_use(&self, default: &Set, listeners: &[(Listener, Set)]) -> Option<()> {
        let Some(ca) = &default.ca else { return Some(()) };
        let inherits = |set: &Set| asks(set) && set.ca.as_ref().is_some_and(|own| own.line == ca.line);
        if asks(default) || listeners.iter().any(|(_, set)| inherits(set)) {
            return Some(());
        }
        self.note(ca.line, NO_EFFECT)
    }

    fn parameters(&self, set: Set) -> Option<TlsParameters> {
        let Set { line, policy, alpn, demand, ca } = set;
        let clients = match (demand, ca) {
            (None | Some(At { value: Demand::None, .. }), _) => ClientCertificates::None,
            (Some(At { value: Demand::Optional, .. }), Some(ca)) => ClientCertificates::Optional(ca),
            (Some(At { value: Demand::Required, .. }), Some(ca)) => ClientCertificates::Required(ca),
            (Some(demand), None) => {
                return self.note(demand.line, "client_certificates needs client_ca, the accepted authorities");
            }
        };
        Some(TlsParameters { line, policy, alpn, clients })
    }
}

const NO_EFFECT: &str = "client_ca has no effect while client_certificates is \"none\"";

fn asks(set: &Set) -> bool {
    set.demand.as_ref().is_some_and(|demand| demand.value != Demand::None)
}

fn sentence(error: BadPolicy) -> String {
    match error {
        BadPolicy::NoVersion => "versions is empty: expected 1.2, 1.3 or both".into(),
        BadPolicy::NoSuite(version) => format!("suites has none of {version}, which is in versions"),
        BadPolicy::NoGroup(version) => format!("groups has none for {version}, which is in versions"),
    }
}

fn version(name: &str) -> Result<Version, String> {
    let known = VERSIONS.into_iter().find(|(known, _)| *known == name);
    known
        .map(|(_, version)| version)
        .ok_or_else(|| format!("\"{name}\" is not a supported version: expected 1.2 or 1.3"))
}

fn suite(name: &str) -> Result<CipherSuite, String> {
    CipherSuite::ALL.into_iter().find(|suite| suite.name() == name).ok_or_else(|| {
        format!(
            "\"{name}\" is not a supported cipher suite: expected the IANA name of a suite with ECDHE and an \
             AEAD, or of TLS 1.3, such as TLS_AES_128_GCM_SHA256"
        )
    })
}

fn group(name: &str) -> Result<Group, String> {
    let known = || Group::ALL.map(Group::name).join(", ");
    Group::from_name(name).ok_or_else(|| format!("\"{name}\" is not a supported group: expected one of {}", known()))
}

fn alpn(name: &str) -> Result<String, String> {
    if ALPN.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("\"{name}\" is not a supported protocol: expected h2 or http/1.1"))
}
