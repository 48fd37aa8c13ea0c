//! What is checked before a node becomes a candidate, and what `--dry-run` prints.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, capabilities};
use watari_steering::SteeringError;

use crate::gate::GateError;
use crate::link::{Interface, InterfaceError};
use crate::netlink::{Netlink, PresentAddress};
use crate::settings::{ServiceAddress, Settings};

/// A node cannot be a candidate. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct StartError {
    /// The position of the address at fault in [`Settings::addresses`]. `None`: the error is about all.
    pub address: Option<usize>,
    pub cause: Cause,
}

/// Why a node cannot be a candidate.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(
        "the process lacks the capability {0}, which service addresses need (systemd: \
         AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW, and CAP_BPF for dispatcher.multipath)"
    )]
    Capability(&'static str),
    #[error("an interface of this machine has {0} already, and not from Watari: remove it there")]
    Foreign(IpAddr),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("cannot query interfaces over netlink: {0}")]
    Netlink(#[from] rtnetlink::Error),
    #[error(transparent)]
    Steering(#[from] SteeringError),
    #[error("cannot make packet sockets: {0}")]
    Sockets(io::Error),
    #[error("the program of notify, {}, cannot run: {cause}", program.display())]
    Notify { program: PathBuf, cause: io::Error },
}

impl From<Cause> for StartError {
    fn from(cause: Cause) -> Self {
        Self { address: None, cause }
    }
}

/// The settings of candidates that can start, and the machine as it is before.
pub struct Prepared {
    pub(crate) settings: Settings,
    pub(crate) netlink: Netlink,
    /// Of each address, in the order of the settings.
    pub(crate) interfaces: Vec<Interface>,
    /// Service addresses that an earlier process has left.
    pub(crate) leftovers: Vec<PresentAddress>,
}

impl Prepared {
    /// Checks all that can fail, and changes nothing. Must be called in a tokio runtime.
    pub async fn check(settings: Settings) -> Result<Self, StartError> {
        let interfaces = settings.addresses.iter().enumerate().map(|(number, ServiceAddress { interface, .. })| {
            Interface::find(interface).map_err(|cause| StartError { address: Some(number), cause: cause.into() })
        });
        let interfaces = interfaces.collect::<Result<Vec<_>, _>>()?;
        check_capabilities(Needs::Packets)?;
        check_notify(settings.notify.as_deref())?;
        Interface::try_sockets().map_err(Cause::Sockets)?;
        let netlink = Netlink::open().await.map_err(Cause::Netlink)?;
        let mut leftovers = Vec::new();
        for present in netlink.addresses().await.map_err(Cause::Netlink)? {
            let is_meant = |service: &ServiceAddress| service.address.addr() == present.address;
            let Some(number) = settings.addresses.iter().position(is_meant) else { continue };
            if present.is_permanent {
                return Err(StartError { address: Some(number), cause: Cause::Foreign(present.address) });
            }
            leftovers.push(present);
        }
        Ok(Self { settings, netlink, interfaces, leftovers })
    }
}

/// What a node needs for its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Interfaces, packet filters and packet sockets.
    Packets,
    /// BPF programs, too.
    Bpf,
}

/// Checks that the process has the capabilities.
pub(crate) fn check_capabilities(needs: Needs) -> Result<(), Cause> {
    let effective = capabilities(None).map_err(|error| Cause::Sockets(error.into()))?.effective;
    for (capability, name) in [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")] {
        if !effective.contains(capability) {
            return Err(Cause::Capability(name));
        }
    }
    // Containers may have the older one.
    if needs == Needs::Bpf && !effective.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN) {
        return Err(Cause::Capability("CAP_BPF"));
    }
    Ok(())
}

/// Checks that the operator's program can run.
pub(crate) fn check_notify(program: Option<&Path>) -> Result<(), Cause> {
    let Some(program) = program else { return Ok(()) };
    check_program(program).map_err(|cause| Cause::Notify { program: program.to_owned(), cause })
}

fn check_program(program: &Path) -> io::Result<()> {
    let found = program.metadata()?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is no executable file"));
    }
    Ok(())
}

/// Makes the checks of a start, and describes what the node would do to this machine.
pub async fn dry_run(settings: Settings) -> Result<String, StartError> {
    let Prepared { settings, interfaces, leftovers, .. } = Prepared::check(settings).await?;
    let terms = &settings.terms;
    let mut text = String::new();
    let voters: Vec<_> = settings.voters().map(ToString::to_string).collect();
    let _ = writeln!(text, "voters: {}; {} of them decide", voters.join(", "), voters.len() / 2 + 1);
    let _ = writeln!(text, "at the start:");
    let _ = writeln!(text, "  nft: make the tables inet watari and netdev watari, with all gates closed");
    for PresentAddress { address, prefix_len, .. } in leftovers {
        let _ = writeln!(text, "  remove {address}/{prefix_len}, which an earlier process has left");
    }
    for (ServiceAddress { address, interface, priority }, Interface { mac, .. }) in
        settings.addresses.iter().zip(&interfaces)
    {
        let ip = address.addr();
        let (version, announcement) = match ip {
            IpAddr::V4(_) => (4, "gratuitous ARP requests"),
            IpAddr::V6(_) => (6, "unsolicited neighbour advertisements"),
        };
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        let (lease_ms, lifetime_s) = (terms.owner_lease().as_millis(), settings.lifetime_s());
        let _ = writeln!(text, "{address} becomes active at {interface} ({mac}), with priority {priority}:");
        let _ = writeln!(text, "  ask whether another machine has it, for 60 ms");
        let _ = writeln!(text, "  nft add element inet watari lease{version} {{ {ip} timeout {lease_ms}ms }}");
        let _ = writeln!(text, "  nft add element netdev watari lease{version} {{ {ip} timeout {lease_ms}ms }}");
        let _ =
            writeln!(text, "  ip address add {address} dev {interface} valid_lft {lifetime_s} preferred_lft 0 nodad");
        let _ = writeln!(text, "  send {} {announcement}, one every 500 ms", settings.garp_repeat);
        if let Some(refresh) = settings.garp_refresh {
            let _ = writeln!(text, "  then send one every {refresh:?}");
        }
        notify_line(&mut text, &settings, "active");
        let _ = writeln!(text, "{address} becomes standby:");
        let _ = writeln!(text, "  nft delete element inet watari lease{version} {{ {ip} }}");
        let _ = writeln!(text, "  nft delete element netdev watari lease{version} {{ {ip} }}");
        let _ = writeln!(text, "  ip address del {address} dev {interface}");
        notify_line(&mut text, &settings, "standby");
    }
    Ok(text)
}

fn notify_line(text: &mut String, settings: &Settings, state: &str) {
    if let Some(program) = &settings.notify {
        let _ = writeln!(text, "  run {} {state} ADDRESS INTERFACE", program.display());
    }
}
