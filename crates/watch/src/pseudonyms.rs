//! Pseudonyms: replaces addresses so that they do not identify their owners.
//!
//! Each address is always replaced by the same other one, for one key. Two addresses of one network, of any prefix
//! length, stay in one network: they have as many leading bits in common as before (`ipcrypt-pfx`,
//! draft-denis-ipcrypt). So searches by network still work. If a reader can identify some addresses, they learn the
//! common prefix of those and others, and no more.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ipcrypt_rs::IpcryptPfx;
use watari_endings::Event;
use zeroize::Zeroizing;

/// Replaces addresses. Ports stay.
pub struct Pseudonyms {
    whose: Whose,
    cipher: IpcryptPfx,
}

/// The addresses to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of clients.
    Clients,
    /// Those of servers too. Server names are left out then.
    All,
}

/// There is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Other users can read the file.
    #[error("the key {} is readable by all users: restrict it (chmod o-rwx)", .0.display())]
    Exposed(PathBuf),
    /// The content of the file is not a valid key.
    #[error("the key {} is not 64 hexadecimal digits with different halves (run openssl rand -hex 32)", .0.display())]
    Content(PathBuf),
}

const KEY_LEN: usize = IpcryptPfx::KEY_BYTES;
/// The key may have whitespace around it.
const FILE_LEN_MAX: usize = 2 * KEY_LEN + 16;

type Key = Zeroizing<[u8; KEY_LEN]>;

impl Pseudonyms {
    /// Draws a random key, which is stored nowhere.
    pub fn drawn(whose: Whose) -> Self {
        loop {
            if let Some(pseudonyms) = Self::new(whose, &Zeroizing::new(rand::random())) {
                return pseudonyms;
            }
        }
    }

    /// Reads the key from a file, as hexadecimal digits.
    pub fn load(whose: Whose, path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        let key = parse(&text).and_then(|key| Self::new(whose, &key));
        key.ok_or_else(|| KeyError::Content(path.to_owned()))
    }

    /// `None` if both halves of the key are equal.
    fn new(whose: Whose, key: &Key) -> Option<Self> {
        let (one, other) = key.split_at(KEY_LEN / 2);
        (one != other).then(|| Self { whose, cipher: IpcryptPfx::new(**key) })
    }

    /// Replaces the addresses in an event.
    pub fn replace(&self, event: &mut Event) {
        let (client, server) = event.ends_mut();
        if let Some(client) = client {
            self.any(client);
        }
        if self.whose == Whose::All {
            self.any(server);
            if let Event::Closed(connection) = event
                && let Some(tls) = &mut connection.tls
            {
                tls.sni = None;
            }
        }
    }

    fn any(&self, address: &mut SocketAddr) {
        address.set_ip(self.cipher.encrypt_ipaddr(address.ip()));
    }
}

impl fmt::Debug for Pseudonyms {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pseudonyms").field("whose", &self.whose).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(KeyError::Exposed(path.to_owned()));
    }
    // With enough capacity, so that it never reallocates and leaves a copy behind.
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_LEN_MAX + 1));
    file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn parse(text: &[u8]) -> Option<Key> {
    let digits = text.trim_ascii();
    let mut key = Key::default();
    if text.len() > FILE_LEN_MAX || digits.len() != 2 * key.len() {
        return None;
    }
    for (octet, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *octet = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::net::IpAddr;

    use watari_endings::Overdue;
    use watari_packets::Timestamp;

    use super::*;

    /// The key of the draft's test vectors for `ipcrypt-pfx`.
    const KEY: &str = "0123456789abcdeffedcba98765432101032547698badcfeefcdab8967452301";

    fn pseudonyms(whose: Whose) -> Pseudonyms {
        Pseudonyms::new(whose, &parse(KEY.as_bytes()).unwrap()).unwrap()
    }

    fn replaced(address: &str) -> IpAddr {
        let mut address = SocketAddr::new(address.parse().unwrap(), 443);
        pseudonyms(Whose::Clients).any(&mut address);
        assert_eq!(address.port(), 443);
        address.ip()
    }

    #[test]
    fn addresses_are_as_the_draft_has_them() {
        for (address, pseudonym) in [
            ("0.0.0.0", "151.82.155.134"),
            ("192.0.2.1", "100.115.72.131"),
            ("2001:db8::1", "c180:5dd4:2587:3524:30ab:fa65:6ab6:f88"),
        ] {
            assert_eq!(replaced(address), pseudonym.parse::<IpAddr>().unwrap(), "{address}");
        }
    }

    #[test]
    fn networks_stay_together() {
        let bits = |address: &str| match replaced(address) {
            IpAddr::V4(address) => u32::from(address),
            IpAddr::V6(_) => unreachable!(),
        };
        let common = |one: &str, other: &str| (bits(one) ^ bits(other)).leading_zeros();
        assert_eq!(common("192.0.2.1", "192.0.2.129"), 24);
        assert_eq!(common("192.0.2.1", "192.0.3.1"), 23);
        assert_eq!(common("192.0.2.1", "10.0.0.1"), 0);
    }

    #[test]
    fn whose_are_replaced_is_chosen() {
        let [client, server] = ["192.0.2.1:4000", "192.0.2.2:443"].map(|it| it.parse::<SocketAddr>().unwrap());
        let overdue =
            Event::Overdue(Overdue { client, server, since: Timestamp(0), at: Timestamp(9), is_connect: true });
        for (whose, stays) in [(Whose::Clients, true), (Whose::All, false)] {
            let mut event = overdue.clone();
            pseudonyms(whose).replace(&mut event);
            let (other_client, other_server) = event.ends_mut();
            assert!(other_client.is_some_and(|it| *it != client) && (*other_server == server) == stays, "{event:?}");
        }
    }

    #[test]
    fn a_key_is_that_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let load = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Pseudonyms::load(Whose::All, &path)
        };
        load(&format!("{KEY}\n"), 0o640).unwrap();
        assert!(matches!(load(KEY, 0o644), Err(KeyError::Exposed(_))));
        let same = "00".repeat(KEY_LEN);
        for text in ["", &KEY[1..], &KEY.replace('0', "g"), &format!("{KEY}00"), &same] {
            assert!(matches!(load(text, 0o600), Err(KeyError::Content(_))), "{text}");
        }
        assert!(matches!(Pseudonyms::load(Whose::All, Path::new("/nowhere")), Err(KeyError::Read { .. })));
        assert_ne!(
            Pseudonyms::drawn(Whose::All).cipher.encrypt_ipaddr("192.0.2.1".parse().unwrap()),
            Pseudonyms::drawn(Whose::All).cipher.encrypt_ipaddr("192.0.2.1".parse().unwrap())
        );
    }
}
