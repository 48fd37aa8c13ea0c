//! The site that all servers serve: certificates and files, in a temporary directory.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, RsaKeySize,
};
use tempfile::TempDir;

use crate::failure::{Failure, doing, tls};

/// The file for the cost of a request.
pub(crate) const SMALL: Item = Item { path: "/small.bin", len: 1024 };
/// The file for the cost of bytes.
pub(crate) const LARGE: Item = Item { path: "/large.bin", len: 32 << 20 };

/// Files of the paper's sizes. Only their length matters.
pub(crate) const EMPTY: [Item; 5] = [
    Item { path: "/2m.bin", len: 2 << 20 },
    Item { path: "/16m.bin", len: 16 << 20 },
    Item { path: "/128m.bin", len: 128 << 20 },
    Item { path: "/1g.bin", len: 1 << 30 },
    Item { path: "/4g.bin", len: 4 << 30 },
];

/// A file of the site.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// As in a URL.
    pub(crate) path: &'static str,
    pub(crate) len: u64,
}

impl Item {
    /// The content of [`SMALL`] or [`LARGE`].
    pub(crate) fn content(self) -> Vec<u8> {
        (0..self.len).map(|at| (at % 251) as u8).collect()
    }
}

/// The kind of a server's key. Each kind has its own server name, by which the client selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Rsa2048,
    P256,
}

impl Key {
    pub(crate) const ALL: [Self; 2] = [Self::Rsa2048, Self::P256];

    /// The DNS name of the certificate.
    pub(crate) const fn host(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa.bench.test",
            Self::P256 => "p256.bench.test",
        }
    }
}

/// The temporary directory, and free loopback addresses.
pub(crate) struct Site {
    dir: TempDir,
    addresses: Cell<u16>,
}

impl Site {
    pub(crate) fn create() -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("watari-benchmarks-").tempdir();
        let dir = dir.map_err(doing("making a temporary directory"))?;
        let site = Self { dir, addresses: Cell::new(0) };
        site.certify()?;
        fs::create_dir(site.root()).map_err(doing("making the root of the site"))?;
        for item in [SMALL, LARGE] {
            let path = site.root().join(&item.path[1..]);
            fs::write(path, item.content()).map_err(doing(format!("writing {}", item.path)))?;
        }
        for item in EMPTY {
            let file = File::create(site.root().join(&item.path[1..]));
            file.and_then(|file| file.set_len(item.len)).map_err(doing(format!("making {}", item.path)))?;
        }
        Ok(site)
    }

    /// The directory of the files.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("www")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path of the authority's certificate (PEM), with which clients verify the servers' certificates.
    pub(crate) fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// The paths of a certificate chain and its key (PEM).
    pub(crate) fn certificate(&self, key: Key) -> (PathBuf, PathBuf) {
        (self.path(&format!("{}.pem", key.host())), self.path(&format!("{}.key", key.host())))
    }

    /// Writes a configuration, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String, Failure> {
        let path = self.path(name);
        fs::write(&path, text).map_err(doing(format!("writing {}", path.display())))?;
        Ok(path.display().to_string())
    }

    /// A loopback address for a server, with a free port. Each call returns another IP address, so that no address is
    /// returned twice. Outgoing connections use 127.0.0.1, so they cannot take the port before the server binds it.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        self.addresses.set(self.addresses.get() + 1);
        let [high, low] = self.addresses.get().to_be_bytes();
        let ip = Ipv4Addr::new(127, 200, high, low);
        let free = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr());
        free.map_err(doing("looking for a free port"))
    }

    /// Creates the authority, and the certificates that it issues.
    fn certify(&self) -> Result<(), Failure> {
        let key = KeyPair::generate().map_err(tls("making a key"))?;
        let mut params = named("Watari benchmarks");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = params.self_signed(&key).map_err(tls("making an authority"))?;
        fs::write(self.authority(), authority.pem()).map_err(doing("writing the authority's certificate"))?;
        let issuer = Issuer::new(params, key);
        Key::ALL.into_iter().try_for_each(|kind| issue(self.dir.path(), kind, &issuer))
    }
}

fn issue(dir: &Path, kind: Key, issuer: &Issuer<'_, KeyPair>) -> Result<(), Failure> {
    let key = match kind {
        Key::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        Key::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
    };
    let key = key.map_err(tls("making a key"))?;
    let mut params = CertificateParams::new([kind.host().to_owned()]).map_err(tls("naming a certificate"))?;
    params.distinguished_name = named(kind.host()).distinguished_name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let certificate = params.signed_by(&key, issuer).map_err(tls("issuing a certificate"))?;
    // Agents refuse a key that all users can read.
    let write = |ending, text: String| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.join(format!("{}.{ending}", kind.host())));
        file?.write_all(text.as_bytes())
    };
    write("pem", certificate.pem()).and_then(|()| write("key", key.serialize_pem())).map_err(doing("writing a key"))
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
