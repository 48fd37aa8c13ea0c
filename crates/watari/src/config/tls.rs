//! `[agent.tls]` and `[[agent.tls.listener]]`: the parameters of handshakes, by the address that clients connect to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use watari_agent::Listener;
use watari_handshake::{BadPolicy, Group, Policy};
use watari_record::{CipherSuite, Version};

use super::check::{Check, Wrong};
use super::file::At;
use super::model::{CertificateFiles, ClientCertificates, Tls, TlsParameters};
use super::raw::{ALPN, Demand, RawCertificate, RawListener, RawTls, RawTlsParameters, VERSIONS};
use super::spanned::{Spanned, Texts};
use super::value::ListenerAddress;

/// The parameters of one table, before the check of its client certificates.
struct Set {
    line: Option<usize>,
    policy: Policy,
    alpn: Vec<String>,
    demand: Option<At<Demand>>,
    ca: Option<At<PathBuf>>,
}

impl Check<'_> {
    pub(super) fn tls(
        &self,
        certificates: Vec<RawCertificate>,
        raw: Option<Spanned<RawTls>>,
    ) -> Result<Option<Tls>, Wrong> {
        if certificates.is_empty() {
            return match raw {
                Some(raw) => self.wrong(&raw, "[agent.tls] has no effect without an [[agent.certificate]]"),
                None => Ok(None),
            };
        }
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
        let default = self.set(raw_terms, line, &unset)?;
        let listeners = self.listener_sets(raw_listeners, &default)?;
        inherited_ca_is_of_use(&default, &listeners)?;
        Ok(Some(Tls {
            certificates: certificates.into_iter().map(|raw| self.certificate_files(&raw)).collect(),
            parameters: parameters(default)?,
            listeners: listeners
                .into_iter()
                .map(|(listener, set)| Ok((listener, parameters(set)?)))
                .collect::<Result<_, Wrong>>()?,
        }))
    }

    fn certificate_files(&self, raw: &RawCertificate) -> CertificateFiles {
        CertificateFiles { chain: self.path(&raw.chain), key: self.path(&raw.key), default: raw.default }
    }

    fn listener_sets(&self, raw: Vec<Spanned<RawListener>>, default: &Set) -> Result<Vec<(Listener, Set)>, Wrong> {
        let mut seen = BTreeMap::new();
        let mut sets = Vec::new();
        for raw in raw {
            let line = self.line(&raw);
            let raw = raw.into_inner();
            let at = self.line(&raw.address);
            let ListenerAddress(listener) = *raw.address.get_ref();
            if let Some(first) = seen.insert(listener, at) {
                return Err((at, format!("the listener {listener} is listed twice, first on line {first}")));
            }
            let set = self.set(raw.parameters(), Some(line), default)?;
            if let (Some(ca), false) = (&set.ca, asks(&set)) {
                let own = default.ca.as_ref().is_none_or(|inherited| inherited.line != ca.line);
                if own {
                    return Err((ca.line, "client_ca has no effect while client_certificates is \"none\"".into()));
                }
            }
            sets.push((listener, set));
        }
        Ok(sets)
    }

    /// The parameters of a table. A key that it does not set is as in `above`.
    fn set(&self, raw: RawTlsParameters, line: Option<usize>, above: &Set) -> Result<Set, Wrong> {
        let policy = Policy {
            versions: self.named(raw.versions.as_ref(), &above.policy.versions, "the version", version)?,
            suites: self.named(raw.suites.as_ref(), &above.policy.suites, "the cipher suite", suite)?,
            groups: self.named(raw.groups.as_ref(), &above.policy.groups, "the group", group)?,
        };
        policy.check().map_err(|error| (line.unwrap_or(1), sentence(error)))?;
        if let Some(suites) = &raw.suites {
            self.suites_are_of_use(suites, &policy)?;
        }
        Ok(Set {
            line,
            policy,
            alpn: self.named(raw.alpn.as_ref(), &above.alpn, "the protocol", alpn)?,
            demand: raw.client_certificates.map(|demand| self.at(demand)).or_else(|| above.demand.clone()),
            ca: raw.client_ca.map(|ca| self.path(&ca)).or_else(|| above.ca.clone()),
        })
    }

    fn suites_are_of_use(&self, suites: &Texts, policy: &Policy) -> Result<(), Wrong> {
        for (name, suite) in suites.get_ref().iter().zip(&policy.suites) {
            if !policy.versions.contains(&suite.version()) {
                return self
                    .wrong(name, format!("{suite} is a suite of {}, which is not in versions", suite.version()));
            }
        }
        Ok(())
    }

    /// Reads a list of names. Each may occur once.
    fn named<T: Clone>(
        &self,
        raw: Option<&Texts>,
        above: &[T],
        what: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Wrong> {
        let Some(raw) = raw else { return Ok(above.to_vec()) };
        let mut seen = BTreeMap::new();
        let mut values = Vec::new();
        for name in raw.get_ref() {
            values.push(read(name.get_ref()).map_err(|sentence| (self.line(name), sentence))?);
            self.once(&mut seen, name, what)?;
        }
        Ok(values)
    }
}

/// The table above may have a `client_ca` for its listeners alone. So it is refused only if none of them uses it.
fn inherited_ca_is_of_use(default: &Set, listeners: &[(Listener, Set)]) -> Result<(), Wrong> {
    let Some(ca) = &default.ca else { return Ok(()) };
    let inherits = |set: &Set| asks(set) && set.ca.as_ref().is_some_and(|own| own.line == ca.line);
    if asks(default) || listeners.iter().any(|(_, set)| inherits(set)) {
        return Ok(());
    }
    Err((ca.line, "client_ca has no effect while client_certificates is \"none\"".into()))
}

fn asks(set: &Set) -> bool {
    set.demand.as_ref().is_some_and(|demand| demand.value != Demand::None)
}

fn parameters(set: Set) -> Result<TlsParameters, Wrong> {
    let Set { line, policy, alpn, demand, ca } = set;
    let clients = match (demand, ca) {
        (None | Some(At { value: Demand::None, .. }), _) => ClientCertificates::None,
        (Some(At { value: Demand::Optional, .. }), Some(ca)) => ClientCertificates::Optional(ca),
        (Some(At { value: Demand::Required, .. }), Some(ca)) => ClientCertificates::Required(ca),
        (Some(demand), None) => {
            let sentence = "client_certificates needs client_ca, the accepted authorities";
            return Err((demand.line, sentence.into()));
        }
    };
    Ok(TlsParameters { line, policy, alpn, clients })
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
