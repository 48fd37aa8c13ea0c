//! `curl`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::site::{KeyKind, SITE};

/// The protocols that curl uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) http: &'static str,
    pub(crate) tls: &'static str,
    pub(crate) key: KeyKind,
}

impl Manner {
    /// Both versions of HTTP over both versions of TLS with both kinds of key.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for http in ["1.1", "2"] {
            for tls in ["1.2", "1.3"] {
                all.extend(KeyKind::BOTH.map(|key| Self { http, tls, key }));
            }
        }
        all
    }
}

/// The parameters of a call of curl.
pub(crate) struct Curl<'a> {
    pub(crate) manner: Manner,
    pub(crate) source: IpAddr,
    pub(crate) service: SocketAddr,
    pub(crate) ca: &'a Path,
    /// A directory for its files.
    pub(crate) dir: &'a Path,
}

/// The result of a call.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The version of HTTP that was spoken.
    pub(crate) http: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim_end())
    }
}

impl Curl<'_> {
    /// Requests `path`.
    pub(crate) fn run(&self, path: &str, arguments: &[&str]) -> Answer {
        let file = |suffix: &str| self.dir.join(format!("curl-{}.{suffix}", self.source));
        let (body, head) = (file("body"), file("head"));
        // curl makes no file for a response without a body.
        fs::write(&body, []).unwrap();
        let ip = if self.service.is_ipv6() { "[::1]".to_owned() } else { self.service.ip().to_string() };
        let port = self.service.port();
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "60", "--write-out", "%{http_code} %{http_version}"]);
        command.arg(format!("--http{}", self.manner.http)).arg("--cacert").arg(self.ca);
        command.args([&format!("--tlsv{}", self.manner.tls), "--tls-max", self.manner.tls]);
        command.args(["--interface", &self.source.to_string(), "--resolve", &format!("{SITE}:{port}:{ip}")]);
        command.arg("--output").arg(&body).arg("--dump-header").arg(&head).args(arguments);
        command.arg(format!("https://{SITE}:{port}{path}")).env("OPENSSL_CONF", self.openssl_config());
        let output = command.output().expect("the tests need curl");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?} {path} {arguments:?}: {errors}", self.manner);
        let report = String::from_utf8(output.stdout).unwrap();
        let (status, http) = report.split_once(' ').unwrap();
        Answer {
            status: status.parse().unwrap(),
            http: http.to_owned(),
            head: fs::read_to_string(head).unwrap(),
            body: fs::read(body).unwrap(),
        }
    }

    /// curl has no option for the kind of key in TLS 1.3. OpenSSL's configuration has one.
    fn openssl_config(&self) -> PathBuf {
        let (name, algorithms) = match self.manner.key {
            KeyKind::P256 => ("p256", "ecdsa_secp256r1_sha256"),
            KeyKind::Rsa2048 => ("rsa", "rsa_pss_rsae_sha256:RSA+SHA256"),
        };
        let path = self.dir.join(format!("openssl-{name}.cnf"));
        let text = format!(
            "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n[tls]\n\
             SignatureAlgorithms = {algorithms}\n"
        );
        fs::write(&path, text).unwrap();
        path
    }
}
