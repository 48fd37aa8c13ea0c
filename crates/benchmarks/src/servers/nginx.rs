//! nginx as server of the site, as proxy, and as TCP relay.

use std::fs;
use std::net::SocketAddr;

use super::Server;
use crate::clients::Clients;
use crate::failure::{Failure, doing, tls};
use crate::process::Process;
use crate::site::{Key, Site};

/// The path of nginx's stream module in Debian.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Serves the files over HTTPS, by HTTP/1.1 and HTTP/2.
pub(crate) fn nginx(site: &Site, clients: &Clients) -> Result<Server, Failure> {
    let service = site.address()?;
    let hosts: String = Key::ALL.map(|key| host(site, service, key)).concat();
    let http = format!(
        "http {{\n  access_log off;\n  sendfile on;\n  keepalive_requests 1000000000;\n  keepalive_timeout 10m;\n  \
         ssl_protocols TLSv1.3;\n{hosts}}}\n"
    );
    start(site, "nginx", service, "", &http)?.ready(clients)
}

/// Serves the files over HTTPS, also in TLS 1.2. The workers share ticket keys, which a file holds.
pub(crate) fn nginx_with_tickets(site: &Site, clients: &Clients) -> Result<Server, Failure> {
    let service = site.address()?;
    let mut keys = [0; TICKET_KEYS_LEN];
    aws_lc_rs::rand::fill(&mut keys).map_err(tls("drawing keys of tickets"))?;
    let file = site.path("nginx-tickets.keys");
    fs::write(&file, keys).map_err(doing("writing keys of tickets"))?;
    let hosts: String = Key::ALL.map(|key| host(site, service, key)).concat();
    let http = format!(
        "http {{\n  access_log off;\n  sendfile on;\n  keepalive_requests 1000000000;\n  keepalive_timeout 10m;\n  \
         ssl_protocols TLSv1.2 TLSv1.3;\n  ssl_session_ticket_key {};\n{hosts}}}\n",
        file.display()
    );
    start(site, "nginx-tickets", service, "", &http)?.ready(clients)
}

/// Length of nginx's ticket key file with AES-256, in bytes.
const TICKET_KEYS_LEN: usize = 80;

/// The server for load generators. Each service has its own address, because some generators send no server name.
pub(crate) struct Asked {
    pub(crate) server: Server,
    pub(crate) plain: SocketAddr,
    pub(crate) rsa: SocketAddr,
    pub(crate) p256: SocketAddr,
}

/// Serves the files over HTTP and, with each key, over HTTPS; HTTP/1.1 and HTTP/2.
pub(crate) fn nginx_for_generators(site: &Site, clients: &Clients) -> Result<Asked, Failure> {
    let (plain, rsa, p256) = (site.address()?, site.address()?, site.address()?);
    let http = format!(
        "http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 10m;\n  ssl_protocols TLSv1.3;\n  \
         server {{ listen {plain}; root {}; }}\n{}{}}}\n",
        site.root().display(),
        host(site, rsa, Key::Rsa2048),
        host(site, p256, Key::P256),
    );
    let server = start(site, "nginx-asked", p256, "", &http)?.ready(clients)?;
    Ok(Asked { server, plain, rsa, p256 })
}

/// Serves the files over HTTP and over HTTPS.
pub(crate) fn nginx_as_origin(site: &Site, clients: &Clients) -> Result<(Server, SocketAddr), Failure> {
    origin(site, clients, "nginx-origin", "")
}

/// Like [`nginx_as_origin`]. Caches may store the files for an hour.
pub(crate) fn nginx_as_cacheable_origin(site: &Site, clients: &Clients) -> Result<(Server, SocketAddr), Failure> {
    origin(site, clients, "nginx-cacheable-origin", "  expires 1h;\n")
}

fn origin(site: &Site, clients: &Clients, name: &str, more: &str) -> Result<(Server, SocketAddr), Failure> {
    let (service, plain) = (site.address()?, site.address()?);
    let hosts: String = Key::ALL.map(|key| host(site, service, key)).concat();
    let http = format!(
        "http {{\n  access_log off;\n  sendfile on;\n  keepalive_requests 1000000000;\n  keepalive_timeout 10m;\n  \
         ssl_protocols TLSv1.3;\n{more}  server {{ listen {plain}; root {}; }}\n{hosts}}}\n",
        site.root().display()
    );
    Ok((start(site, name, service, "", &http)?.ready(clients)?, plain))
}

/// Forwards HTTPS of HTTP/1.1 and HTTP/2 to `origin`, over keep-alive connections.
pub(crate) fn nginx_proxy(site: &Site, clients: &Clients, origin: SocketAddr) -> Result<Server, Failure> {
    proxy(site, clients, "nginx-proxy", origin, "", "")
}

/// Like [`nginx_proxy`]. Caches responses in files.
pub(crate) fn nginx_cache(site: &Site, clients: &Clients, origin: SocketAddr) -> Result<Server, Failure> {
    let files = format!(
        "  proxy_cache_path {} levels=1:2 keys_zone=site:64m max_size=4g inactive=1h use_temp_path=off;\n",
        site.path("nginx-cache").display()
    );
    let cache = " proxy_cache site; add_header X-Cache $upstream_cache_status;";
    proxy(site, clients, "nginx-cache", origin, &files, cache)
}

/// `more` is for `http`, `of_location` is for each location.
fn proxy(
    site: &Site,
    clients: &Clients,
    name: &str,
    origin: SocketAddr,
    more: &str,
    of_location: &str,
) -> Result<Server, Failure> {
    let service = site.address()?;
    let headers = "proxy_set_header Host $host; proxy_set_header X-Forwarded-Host $host; \
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;";
    let forward = format!(
        "location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
         {headers}{of_location} }}\n  }}"
    );
    let hosts: String = Key::ALL.map(|key| host(site, service, key).replace("  }", &forward)).concat();
    let http = format!(
        "http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 10m;\n  ssl_protocols TLSv1.3;\n  \
         upstream origin {{ server {origin}; keepalive 64; keepalive_requests 1000000000; }}\n{more}{hosts}}}\n"
    );
    start(site, name, service, "", &http)?.ready(clients)
}

/// Relays TCP to `backend`.
pub(crate) fn nginx_stream(site: &Site, clients: &Clients, backend: SocketAddr) -> Result<Server, Failure> {
    let service = site.address()?;
    let module = format!("load_module {STREAM_MODULE};\n");
    let stream = format!("stream {{ server {{ listen {service}; proxy_pass {backend}; }} }}\n");
    start(site, "nginx-stream", service, &module, &stream)?.ready(clients)
}

fn host(site: &Site, service: SocketAddr, key: Key) -> String {
    let (chain, private) = site.certificate(key);
    format!(
        "  server {{\n    listen {service} ssl http2;\n    server_name {};\n    root {};\n    \
         ssl_certificate {};\n    ssl_certificate_key {};\n  }}\n",
        key.host(),
        site.root().display(),
        chain.display(),
        private.display()
    )
}

fn start(site: &Site, name: &str, service: SocketAddr, module: &str, role: &str) -> Result<Server, Failure> {
    // Without `user root`, workers give up root, and cannot read the site's directory.
    let text = format!(
        "{module}daemon off;\nworker_processes auto;\nuser root;\npid {};\nerror_log stderr warn;\n\
         events {{ worker_connections 16384; }}\n{role}",
        site.path(&format!("{name}.pid")).display()
    );
    let config = site.write(&format!("{name}.conf"), &text)?;
    let log = site.path(&format!("{name}.log"));
    let process = Process::start(name, "nginx", &["-c", &config, "-e", "stderr"], log)?;
    Ok(Server { service, processes: vec![process] })
}
