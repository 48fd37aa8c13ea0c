//! Checks of `[dispatcher.multipath]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use watari_addresses::{Cause, MultipathSettings};
use watari_steering::ADDRESSES_MAX;
use watari_values::setting::Span;

use super::check::{Check, each};
use super::file::ConfigError;
use super::model::{Config, Node};
use super::raw::{RawMultipath, WITHDRAW};

impl Check<'_> {
    /// `listen` has the listeners for clients, `None`: they are wrong.
    pub(super) fn multipath(
        &self,
        raw: &RawMultipath,
        node: &Node,
        listen: Option<&[SocketAddr]>,
    ) -> Option<MultipathSettings> {
        let interface = self.interface(&raw.interface);
        let mut seen = BTreeMap::new();
        let count = raw.addresses.get_ref().len();
        let counted = if count == 0 {
            self.wrong(&raw.addresses, "addresses is empty: expected at least one service address")
        } else if count > ADDRESSES_MAX as usize {
            self.wrong(&raw.addresses, format!("addresses has {count} addresses: expected at most {ADDRESSES_MAX}"))
        } else {
            Some(())
        };
        let addresses = each(raw.addresses.get_ref().iter().map(|address| {
            let ip = address.get_ref().0;
            let once = match seen.insert(ip, self.line(address)) {
                Some(line) => self.wrong(address, format!("the address {ip} is listed twice, first on line {line}")),
                None => Some(()),
            };
            self.is_for_clients(address, ip, node, listen).and(once).map(|()| ip)
        }));
        let notify = raw.notify.as_ref().map(|notify| self.path(notify).value);
        counted?;
        Some(MultipathSettings {
            addresses: addresses?.into_iter().collect(),
            interface: interface?,
            withdraw: raw.withdraw.map_or(WITHDRAW, Span::get),
            notify,
        })
    }
}

impl Config {
    /// An error of the start, with the line of its table.
    pub(crate) fn multipath_error(&self, error: &Cause) -> ConfigError {
        const KEY: &str = "dispatcher.multipath";
        self.file.wrong(self.outline.line_of(KEY).unwrap_or(1), &format!("{error} ({KEY})"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A dispatcher with these keys of `[dispatcher.multipath]`, and what follows them.
    fn parse(keys: &str) -> Result<MultipathSettings, String> {
        let text = format!(
            "[node]\nname = \"d1\"\npki = \"pki\"\nmesh = \"192.0.2.1:1\"\n\
             [dispatcher]\nlisten = [\"0.0.0.0:443\", \"[2001:db8::9]:443\"]\n\
             agents = [{{ name = \"a1\", legs = \"192.0.2.3:2\" }}]\n[dispatcher.multipath]\n{keys}\n\
             [[peer]]\nname = \"a1\"\nmesh = \"192.0.2.3:1\"\n"
        );
        let config = Config::parse(Path::new("d1.toml"), &text).map_err(|error| error.to_string())?;
        Ok(config.dispatcher.unwrap().multipath.unwrap())
    }

    #[test]
    fn defaults() {
        let settings = parse("addresses = [\"192.0.2.9\", \"2001:db8::9\"]\ninterface = \"eth0\"").unwrap();
        let expected = MultipathSettings {
            addresses: ["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()].into(),
            interface: "eth0".to_owned(),
            withdraw: Duration::from_secs(5),
            notify: None,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("addresses = []", "addresses is empty"),
            ("addresses = [\"192.0.2.9/32\"]", "is not an address, such as"),
            ("addresses = [\"127.0.0.1\"]", "is not an address that an interface can have"),
            (
                "addresses = [\"192.0.2.9\",\n\"192.0.2.9\"]",
                "d1.toml:10: the address 192.0.2.9 is listed twice, first on line 9",
            ),
            ("addresses = [\"2001:db8::8\"]", "no address of listen is at 2001:db8::8"),
            ("addresses = [\"192.0.2.1\"]", "the mesh of this node listens at this address"),
        ];
        for (addresses, expected) in cases {
            let said = parse(&format!("{addresses}\ninterface = \"eth0\"")).unwrap_err();
            assert!(said.contains(expected), "{expected}: {said}");
        }
        let said = parse("addresses = [\"192.0.2.9\"]\ninterface = \"a/b\"").unwrap_err();
        assert!(said.contains("is not the name of an interface"), "{said}");
        let both = "addresses = [\"192.0.2.9\"]\ninterface = \"eth0\"\n[dispatcher.takeover]\nvoters = [\"d1\"]\n\
                    addresses = [{ address = \"192.0.2.9/24\", interface = \"eth0\" }]";
        let said = parse(both).unwrap_err();
        assert!(said.contains("has [dispatcher.takeover] already"), "{said}");
    }
}
