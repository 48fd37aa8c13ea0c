//! Every suite of every engine, with little work.

#![allow(clippy::unwrap_used)]

use super::*;

const LITTLE: Work = Work { bulk_bytes: 1_000_000, connections: 5 };

fn report(engine: EngineName, only: &[&str]) -> Report {
    let only = only.iter().map(|part| (*part).to_owned()).collect();
    measure(&Plan { engines: vec![engine], only, work: LITTLE }, &mut |_| ()).unwrap()
}

/// Asserts that every suite works, and that every session was reused.
fn every_suite_works(engine: EngineName) -> Vec<Row> {
    let rows = report(engine, &[]).rows;
    for row in &rows {
        let measured = row.measured.as_ref().unwrap_or_else(|why| panic!("{}: {why}", row.suite));
        assert_eq!(measured.reused, LITTLE.connections, "{}", row.suite);
        let is_tls13 = !row.suite.contains("_WITH_");
        assert_eq!(measured.version == "TLSv1.3", is_tls13, "{}", row.suite);
        for cost in [measured.bulk, measured.new, measured.reuse] {
            assert!(!cost.wall.is_zero() && !cost.client_cpu.is_zero() && !cost.server_cpu.is_zero(), "{}", row.suite);
        }
    }
    rows
}

fn offers_of_the_paper(rows: &[Row]) -> Vec<&'static str> {
    paper::ROWS.iter().filter(|of| rows.iter().any(|row| row.suite == of.suite())).map(|of| of.name).collect()
}

#[test]
fn every_suite_of_rustls_works() {
    let rows = every_suite_works(EngineName::Rustls);
    assert_eq!(rows.len(), 9);
    assert_eq!(offers_of_the_paper(&rows), [""; 0]);
}

#[cfg(feature = "openssl")]
#[test]
fn every_suite_of_openssl_works() {
    let rows = every_suite_works(EngineName::OpenSsl);
    let of_the_paper = offers_of_the_paper(&rows);
    let is_weak = of_the_paper.contains(&"SSL_RSA_WITH_RC4_128_MD5");
    assert_eq!(of_the_paper.len(), if is_weak { 14 } else { 8 }, "{of_the_paper:?}");
    assert_eq!(is_weak, cfg!(feature = "openssl-weak"));
}

#[test]
fn every_suite_of_jsse_works() {
    let rows = every_suite_works(EngineName::Jsse);
    assert_eq!(offers_of_the_paper(&rows).len(), paper::ROWS.len());
}
