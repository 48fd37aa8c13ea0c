//! The measurements of the paper: "Maniac Java Programming 10" (2009), JDK 1.6 on a Core 2 Duo of 2.4 GHz, Windows
//! 2000.

use crate::row::{Measured, Row};

/// A row of the paper: a suite, and the milliseconds of its bulk transfer of 100 MB, of 1,000 new and of 1,000 reused
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperRow {
    /// The JDK's name of the suite.
    pub name: &'static str,
    /// In ms.
    pub bulk_ms: u32,
    /// In ms.
    pub new_ms: u32,
    /// In ms.
    pub reuse_ms: u32,
}

impl PaperRow {
    pub fn suite(&self) -> String {
        iana(self.name)
    }
}

/// The IANA name of a suite that the JDK still calls by its SSL name.
pub fn iana(name: &str) -> String {
    let tail = name.get(..4).filter(|head| head.eq_ignore_ascii_case("SSL_")).map(|_| &name[4..]);
    tail.map_or_else(|| name.to_owned(), |tail| format!("TLS_{tail}"))
}

/// A row's times relative to those of [`REFERENCE`] in the same engine, or in the paper. Ratios can be compared between
/// machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    pub bulk: f64,
    pub new: f64,
    pub reuse: f64,
}

impl Ratios {
    /// The ratios of a row of the paper.
    pub fn of_paper(row: &PaperRow) -> Option<Self> {
        let reference = ROWS.iter().find(|row| row.name == REFERENCE)?;
        let ratio = |of: fn(&PaperRow) -> u32| f64::from(of(row)) / f64::from(of(reference));
        Some(Self { bulk: ratio(|row| row.bulk_ms), new: ratio(|row| row.new_ms), reuse: ratio(|row| row.reuse_ms) })
    }

    /// The ratios of a row among `rows`. `None` if its engine did not measure the reference suite.
    pub fn of_row(row: &Row, rows: &[Row]) -> Option<Self> {
        let reference = rows.iter().find(|other| other.engine == row.engine && other.suite == REFERENCE)?;
        let (row, reference) = (row.measured.as_ref().ok()?, reference.measured.as_ref().ok()?);
        let ratio = |of: fn(&Measured) -> f64| of(row) / of(reference);
        Some(Self {
            bulk: ratio(|row| row.bulk.wall.as_secs_f64()),
            new: ratio(|row| row.new.wall.as_secs_f64()),
            reuse: ratio(|row| row.reuse.wall.as_secs_f64()),
        })
    }
}

/// The suite that others are compared with. Every engine except rustls still supports it, and it was neither fast nor
/// slow.
pub const REFERENCE: &str = "TLS_RSA_WITH_AES_128_CBC_SHA";

/// All rows in the paper's order.
pub const ROWS: [PaperRow; 22] = [
    row("SSL_RSA_WITH_RC4_128_MD5", 3656, 8750, 1829),
    row("SSL_RSA_WITH_RC4_128_SHA", 4578, 8562, 1312),
    row("TLS_RSA_WITH_AES_128_CBC_SHA", 6781, 8578, 1516),
    row("TLS_RSA_WITH_AES_256_CBC_SHA", 7938, 8562, 1312),
    row("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", 7140, 24360, 1312),
    row("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", 7891, 24031, 1313),
    row("SSL_RSA_WITH_3DES_EDE_CBC_SHA", 26469, 8469, 1297),
    row("SSL_DHE_RSA_WITH_3DES_EDE_CBC_SHA", 26734, 24375, 1297),
    row("SSL_RSA_WITH_DES_CBC_SHA", 11359, 8532, 1140),
    row("SSL_DHE_RSA_WITH_DES_CBC_SHA", 11657, 23968, 1110),
    row("SSL_RSA_EXPORT_WITH_RC4_40_MD5", 3625, 10000, 1172),
    row("SSL_RSA_EXPORT_WITH_DES40_CBC_SHA", 11515, 10031, 1281),
    row("SSL_DHE_RSA_EXPORT_WITH_DES40_CBC_SHA", 11500, 16125, 1250),
    row("SSL_RSA_WITH_NULL_MD5", 2203, 8265, 969),
    row("SSL_RSA_WITH_NULL_SHA", 3421, 8438, 1015),
    row("SSL_DH_anon_WITH_RC4_128_MD5", 3469, 16609, 1094),
    row("TLS_DH_anon_WITH_AES_128_CBC_SHA", 7109, 16782, 1328),
    row("TLS_DH_anon_WITH_AES_256_CBC_SHA", 7735, 16735, 1375),
    row("SSL_DH_anon_WITH_3DES_EDE_CBC_SHA", 26485, 16734, 1297),
    row("SSL_DH_anon_WITH_DES_CBC_SHA", 11062, 16641, 1156),
    row("SSL_DH_anon_EXPORT_WITH_RC4_40_MD5", 3265, 8906, 1156),
    row("SSL_DH_anon_EXPORT_WITH_DES40_CBC_SHA", 12594, 9000, 1188),
];

const fn row(name: &'static str, bulk_ms: u32, new_ms: u32, reuse_ms: u32) -> PaperRow {
    PaperRow { name, bulk_ms, new_ms, reuse_ms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn names_of_ssl_become_names_of_tls() {
        assert_eq!(iana("SSL_RSA_WITH_DES_CBC_SHA"), "TLS_RSA_WITH_DES_CBC_SHA");
        assert_eq!(iana("ssl_rsa"), "TLS_rsa");
        assert_eq!(iana("TLS_AES_128_GCM_SHA256"), "TLS_AES_128_GCM_SHA256");
        assert_eq!(iana("ßßß"), "ßßß");
        assert_eq!(iana(""), "");
    }

    #[test]
    fn there_is_a_key_for_every_suite_of_the_paper() {
        for row in ROWS {
            assert!(Key::of_suite(&row.suite()).is_some(), "{}", row.name);
        }
    }

    #[test]
    fn ratios_say_what_the_paper_found() {
        let of = |name: &str| ROWS.iter().find(|row| row.name == name).and_then(Ratios::of_paper);
        assert_eq!(of(REFERENCE), Some(Ratios { bulk: 1.0, new: 1.0, reuse: 1.0 }));
        let triple = of("SSL_DHE_RSA_WITH_3DES_EDE_CBC_SHA");
        assert!(triple.is_some_and(|ratios| ratios.bulk > 3.9 && (2.8..2.9).contains(&ratios.new)));
    }
}
