//! Checks of `[dispatcher.takeover]`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watari_addresses::{ServiceAddress, Settings, StartError};
use watari_takeover::{LEASE_MAX, Terms};
use watari_values::NodeName;
use watari_values::setting::Span;

use super::check::{Check, each};
use super::file::ConfigError;
use super::model::{Config, Node};
use super::raw::{ADVERT_INTERVAL, LEASE, RawServiceAddress, RawTakeover};
use super::spanned::{Spanned, Texts};

/// Voters of which a majority decides. A minority of one may fail.
const VOTERS_MIN: usize = 3;
/// As `VOTERS_MAX` of `watari_wire`.
const VOTERS_MAX: usize = 15;
/// The shortest lease: two thirds of it are left when the clocks' differences and the kernel's ticks are subtracted.
const LEASE_MIN: Duration = Duration::from_millis(200);
/// The longest name of an interface (`IFNAMSIZ`).
const INTERFACE_LEN_MAX: usize = 15;

/// `[dispatcher.takeover]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Takeover {
    pub(crate) settings: Settings,
    /// The lines of the addresses, in order.
    pub(crate) lines: Vec<usize>,
}

impl Check<'_> {
    /// `may_vote` says which nodes can be members. `listen` has the listeners for clients, `None`: they are wrong.
    pub(super) fn takeover(
        &self,
        raw: &RawTakeover,
        node: &Node,
        may_vote: impl Fn(&NodeName) -> bool,
        listen: Option<&[SocketAddr]>,
    ) -> Option<Takeover> {
        let lines = raw.addresses.get_ref().iter().map(|service| self.line(&service.address)).collect();
        let addresses = self.service_addresses(&raw.addresses, node, listen);
        let voters = self.voters(&raw.voters, may_vote);
        let lease = self.lease(raw.lease.as_ref());
        let interval = raw.advert_interval.as_ref().map_or(ADVERT_INTERVAL, |interval| interval.get_ref().get());
        let in_time = match (lease, &raw.advert_interval, &raw.lease) {
            (Some(lease), Some(place), _) | (Some(lease), None, Some(place)) if interval > lease / 3 => {
                let sentence = "advert_interval is at most a third of the lease, so that messages may be lost";
                self.wrong(place, sentence)
            }
            _ => Some(()),
        };
        let notify = raw.notify.as_ref().map(|notify| self.path(notify).value);
        in_time?;
        Some(Takeover {
            lines,
            settings: Settings {
                addresses: addresses?,
                terms: Terms { voters: voters?, lease: lease?, advert_interval: interval },
                preempt: raw.preempt,
                garp_repeat: u32::try_from(raw.garp_repeat).unwrap_or(u32::MAX),
                garp_refresh: raw.garp_refresh.map(Span::get),
                notify,
            },
        })
    }

    fn service_addresses(
        &self,
        raw: &Spanned<Vec<RawServiceAddress>>,
        node: &Node,
        listen: Option<&[SocketAddr]>,
    ) -> Option<Vec<ServiceAddress>> {
        if raw.get_ref().is_empty() {
            return self.wrong(raw, "addresses is empty: expected at least one service address");
        }
        let mut seen = BTreeMap::new();
        each(raw.get_ref().iter().map(|RawServiceAddress { address, interface, priority }| {
            let net = address.get_ref().0;
            let once = match seen.insert(net.addr(), self.line(address)) {
                Some(line) => {
                    self.wrong(address, format!("the address {} is listed twice, first on line {line}", net.addr()))
                }
                None => Some(()),
            };
            let served = self.is_for_clients(address, net.addr(), node, listen);
            let named = self.interface(interface);
            let ((), (), name) = (once?, served?, named?);
            Some(ServiceAddress { address: net, interface: name, priority: priority.0 })
        }))
    }

    /// Checks an address of clients, which is at `place`.
    pub(super) fn is_for_clients<T>(
        &self,
        place: &Spanned<T>,
        address: IpAddr,
        node: &Node,
        listen: Option<&[SocketAddr]>,
    ) -> Option<()> {
        let is_served = |listen: &SocketAddr| {
            listen.ip() == address || listen.ip().is_unspecified() && listen.is_ipv4() == address.is_ipv4()
        };
        let served = if listen.is_some_and(|listen| !listen.iter().any(is_served)) {
            self.wrong(place, format!("no address of listen is at {address}: its clients would be refused"))
        } else {
            Some(())
        };
        let own = if node.mesh.ip() == address {
            self.wrong(place, "the mesh of this node listens at this address: it has to stay at the node")
        } else {
            Some(())
        };
        served.and(own)
    }

    /// Checks the name of an interface.
    pub(super) fn interface(&self, interface: &Spanned<String>) -> Option<String> {
        let name = interface.get_ref();
        let is_name = |c: char| c.is_ascii_graphic() && c != '/';
        if name.is_empty() || name.len() > INTERFACE_LEN_MAX || !name.chars().all(is_name) {
            self.wrong(interface, format!("\"{name}\" is not the name of an interface, such as eth0"))
        } else {
            Some(name.clone())
        }
    }

    fn voters(&self, raw: &Texts, may_vote: impl Fn(&NodeName) -> bool) -> Option<BTreeSet<NodeName>> {
        let mut seen = BTreeMap::new();
        let voters = each(raw.get_ref().iter().map(|text| {
            let voter = match NodeName::new(text.get_ref()) {
                Ok(voter) => voter,
                Err(error) => return self.wrong(text, format!("\"{}\": {error}", text.get_ref())),
            };
            if !may_vote(&voter) {
                return self.wrong(text, format!("the voter {voter} is neither this node nor a [[peer]]"));
            }
            match seen.insert(voter.clone(), self.line(text)) {
                Some(line) => self.wrong(text, format!("the voter {voter} is listed twice, first on line {line}")),
                None => Some(voter),
            }
        }))?;
        match voters.len() {
            2 => self.wrong(
                raw,
                "two voters cannot decide when one of them fails: add a witness, which is any third node, such as an \
                 agent; or name one node alone, which then decides, and without which no address moves",
            ),
            len if len == 1 || (VOTERS_MIN..=VOTERS_MAX).contains(&len) && len % 2 == 1 => {
                Some(voters.into_iter().collect())
            }
            len => self.wrong(
                raw,
                format!("voters has {len} nodes: expected one, or an odd number from {VOTERS_MIN} to {VOTERS_MAX}"),
            ),
        }
    }

    fn lease(&self, raw: Option<&Spanned<Span>>) -> Option<Duration> {
        let Some(raw) = raw else { return Some(LEASE) };
        let lease = raw.get_ref().get();
        if (LEASE_MIN..=LEASE_MAX).contains(&lease) { Some(lease) } else { self.wrong(raw, "lease is 200ms to 30s") }
    }
}

impl Config {
    /// An error of the start of candidates, with the line of its key.
    pub(crate) fn takeover_error(&self, error: &StartError) -> ConfigError {
        let takeover = self.dispatcher.as_ref().and_then(|dispatcher| dispatcher.takeover.as_ref());
        let of_address = error.address.zip(takeover).and_then(|(number, takeover)| takeover.lines.get(number).copied());
        let key = if of_address.is_some() { "dispatcher.takeover.addresses" } else { "dispatcher.takeover" };
        let line = of_address.or(self.outline.line_of("dispatcher.takeover")).unwrap_or(1);
        self.file.wrong(line, &format!("{error} ({key})"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    /// A dispatcher with these keys of `[dispatcher.takeover]`.
    fn parse(keys: &str) -> Result<Takeover, String> {
        let text = format!(
            "[node]\nname = \"d1\"\npki = \"pki\"\nmesh = \"192.0.2.1:1\"\n\
             [[peer]]\nname = \"d2\"\nmesh = \"192.0.2.2:1\"\n[[peer]]\nname = \"a1\"\nmesh = \"192.0.2.3:1\"\n\
             [dispatcher]\nlisten = [\"0.0.0.0:443\", \"[2001:db8::9]:443\"]\n\
             agents = [{{ name = \"a1\", legs = \"192.0.2.3:2\" }}]\n[dispatcher.takeover]\n{keys}\n"
        );
        let config = Config::parse(Path::new("d1.toml"), &text).map_err(|error| error.to_string())?;
        Ok(config.dispatcher.unwrap().takeover.unwrap())
    }

    const ADDRESSES: &str = "addresses = [{ address = \"192.0.2.9/24\", interface = \"eth0\" }]\n";
    const VOTERS: &str = "voters = [\"d1\", \"d2\", \"a1\"]\n";

    #[test]
    fn defaults() {
        let Takeover { settings, lines } = parse(&[ADDRESSES, VOTERS].concat()).unwrap();
        let service =
            ServiceAddress { address: "192.0.2.9/24".parse().unwrap(), interface: "eth0".to_owned(), priority: 100 };
        let voters = ["a1", "d1", "d2"].map(|name| NodeName::new(name).unwrap()).into();
        let terms = Terms { voters, lease: LEASE, advert_interval: ADVERT_INTERVAL };
        let expected = Settings {
            addresses: vec![service],
            terms,
            preempt: true,
            garp_repeat: 5,
            garp_refresh: None,
            notify: None,
        };
        assert_eq!((settings, lines), (expected, vec![15]));
        assert!(parse(&[ADDRESSES, "voters = [\"d1\"]\n"].concat()).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let one =
            |address: &str| format!("addresses = [{{ address = \"{address}\", interface = \"eth0\" }}]\n{VOTERS}");
        let twice = "addresses = [\n{ address = \"192.0.2.9/24\", interface = \"eth0\" },\n\
                     { address = \"192.0.2.9/32\", interface = \"eth1\" },\n]\n";
        let with = |key: &str| [ADDRESSES, VOTERS, key].concat();
        let cases = [
            (format!("addresses = []\n{VOTERS}"), "addresses is empty"),
            (one("192.0.2.9"), "is not an address with a prefix"),
            (one("224.0.0.1/4"), "is not an address that an interface can have"),
            (one("2001:db8::8/64"), "no address of listen is at 2001:db8::8"),
            (one("192.0.2.1/24"), "the mesh of this node listens at this address"),
            ([twice, VOTERS].concat(), "d1.toml:17: the address 192.0.2.9 is listed twice, first on line 16"),
            ([&ADDRESSES.replace("eth0", "a/b"), VOTERS].concat(), "\"a/b\" is not the name of an interface"),
            (with("").replace("\"eth0\"", "\"eth0\", priority = 255"), "a priority is 1 to 254, not 255"),
            ([ADDRESSES, "voters = []\n"].concat(), "voters has 0 nodes: expected one, or an odd number"),
            ([ADDRESSES, "voters = [\"d1\", \"d2\"]\n"].concat(), "add a witness"),
            ([ADDRESSES, "voters = [\"d1\", \"d2\", \"d1\"]\n"].concat(), "the voter d1 is listed twice"),
            ([ADDRESSES, "voters = [\"d1\", \"d2\", \"a9\"]\n"].concat(), "a9 is neither this node nor a [[peer]]"),
            ([ADDRESSES, "voters = [\"D1\"]\n"].concat(), "a node name is"),
            (with("lease = \"100ms\"\n"), "lease is 200ms to 30s"),
            (with("lease = \"400ms\"\n"), "advert_interval is at most a third of the lease"),
            (with("advert_interval = \"300ms\"\n"), "advert_interval is at most a third of the lease"),
            (with("garp_repeat = 0\n"), "garp_repeat"),
        ];
        for (keys, expected) in cases {
            let said = parse(&keys).unwrap_err();
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
