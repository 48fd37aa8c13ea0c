//! Varnish behind `HAProxy`, which terminates TLS.

use std::net::SocketAddr;

use super::Server;
use super::haproxy::haproxy_before;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::process::Process;
use crate::site::Site;

/// Caches responses of `origin` in `memory_mib` of memory. The processes are `HAProxy`, then Varnish.
pub(crate) fn haproxy_varnish(
    site: &Site,
    clients: &Clients,
    origin: SocketAddr,
    memory_mib: u64,
) -> Result<Server, Failure> {
    let address = site.address()?;
    let name = format!("varnish-{}", address.ip());
    let dir = site.path(&name).display().to_string();
    let (listen, origin, store) = (address.to_string(), origin.to_string(), format!("malloc,{memory_mib}M"));
    // It keeps the user, because no other user can read the site's directory.
    let arguments = ["-F", "-j", "none", "-n", &dir, "-T", "none", "-a", &listen, "-b", &origin, "-s", &store];
    // It closes idle connections after 5 s otherwise, while HAProxy sends a request on them. It cuts a response off if
    // the store would have to drop more than 50 others for it, which are small.
    let arguments = [&arguments[..], &["-p", "timeout_idle=600", "-p", "nuke_limit=1000000"]].concat();
    let varnish = Process::start(&name, "varnishd", &arguments, site.path(&format!("{name}.log")))?;
    haproxy_before(site, clients, varnish, address)
}
