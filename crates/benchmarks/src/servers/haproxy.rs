//! `HAProxy` as relay of TCP.

use std::net::SocketAddr;

use super::Server;
use crate::client::Client;
use crate::failure::Failure;
use crate::process::Process;
use crate::site::Site;

/// Relays TCP to `backend`, with splice(2) or by way of its own memory. `option splice-auto` would not do: TLS
/// records come in pieces that are too short for it, and it never splices.
pub(crate) fn haproxy(site: &Site, client: &Client, backend: SocketAddr, splice: bool) -> Result<Server, Failure> {
    let service = site.address()?;
    let (name, option) =
        if splice { ("haproxy-splice", "option splice-request\n  option splice-response") } else { ("haproxy", "") };
    let text = format!(
        "global\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n  \
         {option}\nlisten relay\n  bind {service}\n  server backend {backend}\n"
    );
    let config = site.write(&format!("{name}.cfg"), &text)?;
    let process = Process::start(name, "haproxy", &["-db", "-f", &config], site.path(&format!("{name}.log")))?;
    Server { service, processes: vec![process] }.ready(client)
}
