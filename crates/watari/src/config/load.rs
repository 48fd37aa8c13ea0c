//! Reading what the configuration names: certificates, keys, directories.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use prometheus_client::registry::Registry;
use watari_files::Files;
use watari_handshake::{Certificate, ClientRoots, ServerConfig, ServerOptions};
use watari_pki::Identity;
use watari_proxy::Proxy;
use watari_wire::Role;
use zeroize::Zeroizing;

use super::{At, CertificateFiles, ClientCertificates, Config, ConfigError, Site, Tls};

/// More than any chain of certificates takes; a wrong path may lead to a large file.
const FILE_LEN_MAX: usize = 1 << 20;

/// What the files of a configuration hold, ready for use.
pub(crate) struct Loaded {
    pub(crate) identity: Identity,
    /// What this process does.
    pub(crate) roles: BTreeSet<Role>,
    /// For handshakes, where the agent does any.
    pub(crate) tls: Option<ServerConfig>,
    /// What the agent serves, if there is one.
    pub(crate) site: Option<watari_agent::Site>,
}

impl Config {
    /// Reads every file that the configuration names, and checks that it is of use. What is served counts in
    /// `registry`.
    pub(crate) fn load(&self, registry: &mut Registry) -> Result<Loaded, ConfigError> {
        let identity = self.identity()?;
        let roles = self.roles();
        if let Some(role) = roles.difference(identity.roles()).next() {
            let name = &self.node.name;
            let sentence = format!("the certificate of {} does not allow the role {role}", name.value);
            return Err(self.wrong(name.line, &sentence));
        }
        let tls = self.agent.as_ref().and_then(|agent| agent.tls.as_ref());
        Ok(Loaded {
            identity,
            roles,
            tls: tls.map(|tls| self.server_config(tls)).transpose()?,
            site: self.agent.as_ref().map(|agent| self.site(&agent.site, registry)).transpose()?,
        })
    }

    fn identity(&self) -> Result<Identity, ConfigError> {
        let pki = &self.node.pki;
        Identity::load(&pki.value, &self.node.name.value).map_err(|error| self.wrong(pki.line, &error))
    }

    fn roles(&self) -> BTreeSet<Role> {
        let dispatcher = self.dispatcher.iter().map(|_| Role::Dispatcher);
        dispatcher.chain(self.agent.iter().map(|_| Role::Agent)).collect()
    }

    fn server_config(&self, tls: &Tls) -> Result<ServerConfig, ConfigError> {
        let mut options = ServerOptions {
            alpn: tls.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect(),
            client_certificates: self.client_certificates(&tls.clients)?,
            ..ServerOptions::default()
        };
        for files in &tls.certificates {
            let certificate = self.certificate(files)?;
            if files.default {
                options.default_certificates.push(certificate.clone());
            }
            if !certificate.names().is_empty() {
                options.certificates.push(certificate);
            } else if !files.default {
                let sentence = format!(
                    "{} is issued for no DNS name, so only `default` can be its use",
                    files.chain.value.display()
                );
                return Err(self.wrong(files.chain.line, &sentence));
            }
        }
        let line = tls.certificates.first().map_or(1, |files| files.chain.line);
        ServerConfig::new(&options).map_err(|error| self.wrong(line, &error))
    }

    fn certificate(&self, files: &CertificateFiles) -> Result<Certificate, ConfigError> {
        use watari_handshake::CertificateError::{EncryptedKey, KeyMismatch, NoKey, UnsupportedKey};
        let chain = self.read_file(&files.chain)?;
        let key = self.read_key(&files.key)?;
        Certificate::from_pem(&chain, &key).map_err(|error| {
            let blamed = match error {
                EncryptedKey | KeyMismatch | NoKey | UnsupportedKey => &files.key,
                _ => &files.chain,
            };
            self.wrong(blamed.line, &named(&blamed.value, &error))
        })
    }

    fn client_certificates(
        &self,
        clients: &ClientCertificates,
    ) -> Result<watari_handshake::ClientCertificates, ConfigError> {
        use watari_handshake::ClientCertificates::{NotAsked, Optional, Required};
        match clients {
            ClientCertificates::None => Ok(NotAsked),
            ClientCertificates::Optional(roots) => self.client_roots(roots).map(Optional),
            ClientCertificates::Required(roots) => self.client_roots(roots).map(Required),
        }
    }

    fn client_roots(&self, file: &At<PathBuf>) -> Result<ClientRoots, ConfigError> {
        let roots = ClientRoots::from_pem(&self.read_file(file)?);
        roots.map_err(|error| self.wrong(file.line, &named(&file.value, &error)))
    }

    fn site(&self, site: &Site, registry: &mut Registry) -> Result<watari_agent::Site, ConfigError> {
        match site {
            Site::Files(root) => {
                let files = Files::open(&root.value, watari_files::Metrics::register(registry));
                let files = files.map_err(|error| self.wrong(root.line, &named(&root.value, &error)))?;
                Ok(watari_agent::Site::Files(files))
            }
            Site::Proxy(origins) => {
                let metrics = watari_proxy::Metrics::register(registry);
                let limits = watari_proxy::Limits::default();
                Ok(watari_agent::Site::Proxy(Proxy::new(origins.iter().cloned(), limits, metrics)))
            }
        }
    }

    fn read_file(&self, file: &At<PathBuf>) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let content = File::open(&file.value).and_then(read);
        content.map_err(|error| self.wrong(file.line, &named(&file.value, &error)))
    }

    /// Reads a file that must not be everybody's to read.
    fn read_key(&self, file: &At<PathBuf>) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let content = File::open(&file.value).and_then(|opened| refuse_exposed(&opened).and_then(|()| read(opened)));
        content.map_err(|error| self.wrong(file.line, &named(&file.value, &error)))
    }
}

fn refuse_exposed(key: &File) -> io::Result<()> {
    let mode = key.metadata()?.permissions().mode() & 0o7777;
    if mode & 0o004 == 0 {
        return Ok(());
    }
    let sentence = format!("everybody on this machine can read it (its mode is {mode:04o}): chmod 600 it");
    Err(io::Error::new(ErrorKind::PermissionDenied, sentence))
}

fn read(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    // Once allocated for all of it: growing would leave copies of a key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_LEN_MAX + 1));
    file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_LEN_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "too large for certificates or a key"));
    }
    Ok(bytes)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
