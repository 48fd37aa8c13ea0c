//! TLS, with certificates on both sides.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use watari_session_stores::{BadRedisSettings, RedisTls};

use super::*;
use crate::access::is_turned_away;
use crate::server::Server;
use crate::wait::until;

/// An authority, and a directory for the certificates that it has issued.
struct Site {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the default name, which all certificates share, OpenSSL would treat them as self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let site = Self { dir: tempfile::tempdir().unwrap(), authority };
        fs::write(site.authority(), site.authority.pem()).unwrap();
        site
    }

    fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A certificate chain and its key, for a name or address.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let (chain, key) = (self.dir.path().join(format!("{name}.pem")), self.dir.path().join(format!("{name}.key")));
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        fs::write(&chain, params.signed_by(&pair, &self.authority).unwrap().pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        (chain, key)
    }

    /// A server that requires certificates of this site.
    async fn server(&self) -> Server {
        let lines = |address: IpAddr| {
            let (chain, key) = self.issue(&address.to_string());
            let files = [("cert", chain), ("key", key), ("ca-cert", self.authority())];
            let lines = files.map(|(what, path)| format!("tls-{what}-file {}\n", path.display()));
            lines.concat() + "tls-auth-clients yes\n"
        };
        Server::start_with(lines).await
    }

    /// Trusts this site, and has a client certificate from it.
    fn client(&self) -> RedisTls {
        let (chain, key) = self.issue("node.test");
        RedisTls::load(Some(&self.authority()), Some((&chain, &key))).unwrap()
    }
}

fn settings(server: &Server, tls: RedisTls) -> RedisSettings {
    RedisSettings { tls: Some(tls), ..settings_with_long_timeout(&server.url()) }
}

#[tokio::test]
async fn both_sides_show_certificates() {
    let site = Site::new();
    let mut server = site.server().await;
    let redis = connected(settings(&server, site.client())).await;
    redis.put(&[entry(1)], NOW).await.unwrap();
    assert_eq!(redis.take(&key(1), NOW).await.unwrap(), Some(entry(1)));
    server.kill();
    server.start_again().await;
    until("it is back", async || redis.put(&[entry(2)], NOW).await.is_ok()).await;
}

#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let (site, other) = (Site::new(), Site::new());
    let server = site.server().await;
    let (chain, key) = other.issue("node.test");
    for tls in
        [RedisTls::load(Some(&site.authority()), None), RedisTls::load(Some(&site.authority()), Some((&chain, &key)))]
    {
        is_turned_away(settings(&server, tls.unwrap())).await;
    }
    is_turned_away(settings_with_long_timeout(&server.url())).await;
}

#[tokio::test]
async fn servers_of_others_get_nothing() {
    let (site, other) = (Site::new(), Site::new());
    let server = site.server().await;
    is_turned_away(settings(&server, other.client())).await;
    // A certificate for another address.
    let named = RedisSettings { host: "localhost".to_owned(), ..settings(&server, site.client()) };
    is_turned_away(named).await;
    // A server without TLS.
    is_turned_away(settings(&Server::start().await, site.client())).await;
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let site = Site::new();
    let (chain, key) = site.issue("node.test");
    let load = |authorities: &Path, chain: &Path, key: &Path| RedisTls::load(Some(authorities), Some((chain, key)));
    assert!(load(&site.authority(), &chain, &key).is_ok());
    let error = load(Path::new("/nowhere"), &chain, &key).unwrap_err();
    assert!(matches!(&error, BadRedisSettings::File { path, .. } if path == Path::new("/nowhere")), "{error}");
    assert!(matches!(load(&key, &chain, &key), Err(BadRedisSettings::Content { .. })));
    assert!(matches!(load(&site.authority(), &chain, &site.authority()), Err(BadRedisSettings::Exposed(_))));
    let (_, other_key) = site.issue("other.test");
    assert!(matches!(load(&site.authority(), &chain, &other_key), Err(BadRedisSettings::Tls(_))));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(load(&site.authority(), &chain, &key), Err(BadRedisSettings::Exposed(_))));
}
