//! `HAProxy` as TCP relay, as proxy, and as server of the site's small file.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use super::{Replaced, Server};
use crate::clients::Clients;
use crate::failure::{Failure, doing};
use crate::process::Process;
use crate::site::{Key, SMALL, Site};

/// Relays TCP to `backend`, with splice(2) or through its own memory. `option splice-auto` never splices here, because
/// the pieces of TLS records are too short for it.
pub(crate) fn haproxy(site: &Site, clients: &Clients, backend: SocketAddr, splice: bool) -> Result<Server, Failure> {
    let service = site.address()?;
    let (name, option) =
        if splice { ("haproxy-splice", "option splice-request\n  option splice-response") } else { ("haproxy", "") };
    let text = format!(
        "global\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n  \
         {option}\nlisten relay\n  bind {service}\n  server backend {backend}\n"
    );
    let config = site.write(&format!("{name}.cfg"), &text)?;
    let process = Process::start(name, "haproxy", &["-db", "-f", &config], site.path(&format!("{name}.log")))?;
    Server { service, processes: vec![process] }.ready(clients)
}

/// Forwards HTTPS to `origin`, over keep-alive connections.
pub(crate) fn haproxy_proxy(site: &Site, clients: &Clients, origin: SocketAddr) -> Result<Server, Failure> {
    let (service, certificates) = (site.address()?, certificates(site)?);
    let text = format!(
        "global\n  maxconn 4000\n  ssl-default-bind-options ssl-min-ver TLSv1.3\ndefaults\n  mode http\n  \
         timeout client 10m\n  timeout http-keep-alive 10m\n  timeout connect 5s\n  timeout server 1m\nlisten site\n  \
         bind {service} ssl{certificates}\n  http-reuse safe\n  option forwardfor\n  http-request set-header X-Forwarded-Proto https\n  \
         http-request set-header X-Forwarded-Host %[req.hdr(Host)]\n  server origin {origin}\n"
    );
    let config = site.write("haproxy-proxy.cfg", &text)?;
    let process = Process::start("haproxy-proxy", "haproxy", &["-db", "-f", &config], site.path("haproxy-proxy.log"))?;
    Server { service, processes: vec![process] }.ready(clients)
}

/// Terminates TLS of HTTP/1.1 and HTTP/2 before `inner`, which listens at `address`, over keep-alive connections.
pub(super) fn haproxy_before(
    site: &Site,
    clients: &Clients,
    inner: Process,
    address: SocketAddr,
) -> Result<Server, Failure> {
    let (service, certificates) = (site.address()?, certificates(site)?);
    let name = format!("haproxy-before-{}", address.ip());
    let text = format!(
        "global\n  maxconn 4000\n  ssl-default-bind-options ssl-min-ver TLSv1.3\ndefaults\n  mode http\n  \
         timeout client 10m\n  timeout http-keep-alive 10m\n  timeout connect 5s\n  timeout server 1m\nlisten site\n  \
         bind {service} ssl{certificates} alpn h2,http/1.1\n  http-reuse always\n  server inner {address}\n"
    );
    let config = site.write(&format!("{name}.cfg"), &text)?;
    let process = Process::start(&name, "haproxy", &["-db", "-f", &config], site.path(&format!("{name}.log")))?;
    Server { service, processes: vec![process, inner] }.ready(clients)
}

/// `HAProxy` that terminates TLS, with its configuration and log for another start.
pub(crate) struct Haproxy {
    pub(crate) server: Server,
    config: String,
    log: PathBuf,
}

/// Serves the small file over HTTPS, from memory.
pub(crate) fn haproxy_of_tls(site: &Site, clients: &Clients) -> Result<Haproxy, Failure> {
    let service = site.address()?;
    let config = site.write("haproxy-tls.cfg", &haproxy_config(site, &service.to_string())?)?;
    let log = site.path("haproxy-tls.log");
    let process = Process::start("haproxy-tls", "haproxy", &["-db", "-f", &config], log.clone())?;
    Ok(Haproxy { server: Server { service, processes: vec![process] }.ready(clients)?, config, log })
}

/// The configuration of [`haproxy_of_tls`], with the address and options of its `bind`.
pub(crate) fn haproxy_config(site: &Site, bind: &str) -> Result<String, Failure> {
    let certificates = certificates(site)?;
    Ok(format!(
        "global\n  maxconn 9000\n  ssl-default-bind-options ssl-min-ver TLSv1.3\ndefaults\n  mode http\n  \
         timeout client 10m\n  timeout http-keep-alive 10m\n  timeout connect 5s\n  timeout server 1m\nfrontend site\n  \
         bind {bind} ssl{certificates}\n  http-request return status 200 content-type application/octet-stream file {}\n",
        site.root().join(&SMALL.path[1..]).display()
    ))
}

/// The certificates as options of `bind`.
fn certificates(site: &Site) -> Result<String, Failure> {
    let mut certificates = String::new();
    for key in Key::ALL {
        let (chain, private) = site.certificate(key);
        let read = |path| fs::read_to_string(path).map_err(doing("reading a certificate of the site"));
        let path = site.write(&format!("{}-haproxy.pem", key.host()), &(read(chain)? + &read(private)?))?;
        let _ = write!(certificates, " crt {path}");
    }
    Ok(certificates)
}

impl Haproxy {
    /// Starts another process, which takes over the address and signals the old one to end (`-sf`).
    pub(crate) fn replace(&mut self) -> Result<Replaced, Failure> {
        let (old, since) = (self.server.processes[0].id(), Instant::now());
        let arguments = ["-db", "-f", &self.config, "-sf", &old.to_string()];
        self.server.processes.push(Process::start("haproxy-tls-new", "haproxy", &arguments, self.log.clone())?);
        Ok(Replaced { pids: vec![old], since })
    }
}
