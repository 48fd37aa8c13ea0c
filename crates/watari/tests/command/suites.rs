//! `watari bench suites`

use serde_json::Value;

use crate::support::{command, watari};

/// Little work and few suites, because the test checks only the form of the output.
const LITTLE: [&str; 6] = ["bench", "suites", "--bulk", "100kB", "--connections", "3"];

fn arguments<'a>(further: &[&'a str]) -> Vec<&'a str> {
    [&LITTLE, further].concat()
}

#[test]
fn json_has_a_row_for_each_suite_of_each_engine() {
    let dir = tempfile::tempdir().unwrap();
    let out =
        watari(dir.path(), &arguments(&["--suite", "tls_aes_128_gcm_sha256", "--suite", "SSL_RSA_WITH_DES", "--json"]));
    let rows: Value = serde_json::from_str(&out.done()).unwrap();
    let of = |row: &Value| (row["engine"].as_str().unwrap().to_owned(), row["suite"].as_str().unwrap().to_owned());
    let named: Vec<_> = rows.as_array().unwrap().iter().map(of).collect();
    let expected = [
        ("rustls", "TLS_AES_128_GCM_SHA256"),
        ("openssl", "TLS_AES_128_GCM_SHA256"),
        ("jsse", "TLS_AES_128_GCM_SHA256"),
        ("jsse", "TLS_RSA_WITH_DES_CBC_SHA"),
    ];
    assert_eq!(named, expected.map(|(engine, suite)| (engine.to_owned(), suite.to_owned())));
    for row in rows.as_array().unwrap() {
        for key in ["bulk_s", "new_s", "reuse_s"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
        for key in ["bulk_cpu", "new_cpu", "reuse_cpu"] {
            assert!(row[key]["client_s"].as_f64().unwrap() > 0.0, "{key}: {row}");
            assert!(row[key]["server_s"].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
        assert_eq!(
            (&row["reused"], &row["key"], &row["error"]),
            (&3.into(), &"RSA-2048".into(), &Value::Null),
            "{row}"
        );
    }
}

#[test]
fn a_missing_engine_is_reported_and_fails_only_if_it_was_requested() {
    let dir = tempfile::tempdir().unwrap();
    let without_java = |further: &[&str]| {
        let arguments = arguments(further);
        command(dir.path(), &arguments).env("PATH", dir.path()).env_remove("JAVA_HOME").output().unwrap()
    };
    let missing = "java was found neither in JAVA_HOME nor in PATH";

    let others = without_java(&["--suite", "TLS_AES_128_GCM_SHA256", "--json"]);
    assert_eq!(others.status.code(), Some(0));
    assert_eq!(String::from_utf8(others.stderr).unwrap(), format!("watari: without jsse: {missing}\n"));
    let rows: Value = serde_json::from_slice(&others.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);

    let asked = without_java(&["--engine", "jsse"]);
    assert_eq!(asked.status.code(), Some(1));
    assert_eq!(String::from_utf8(asked.stderr).unwrap(), format!("watari: jsse is not available: {missing}\n"));
}

#[test]
fn the_table_stands_beside_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    let out = watari(dir.path(), &arguments(&["--engine", "openssl", "--suite", "RSA_WITH_AES_128_CBC_SHA"])).done();
    let beside = out.lines().find(|line| line.starts_with("TLS_RSA_WITH_AES_128_CBC_SHA "));
    assert!(beside.is_some_and(|line| line.contains("6781") && line.ends_with(" 3")), "{out}");
    assert!(out.contains("\nopenssl: OpenSSL "), "{out}");
}

#[test]
fn unknown_suites_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = watari(dir.path(), &arguments(&["--engine", "rustls", "--suite", "KRB5"])).refused(1);
    assert_eq!(refused, "watari: no available engine offers a suite whose name contains KRB5");
    let wrong: [&[&str]; 3] = [&["--engine", "gnutls"], &["--bulk", "much"], &["--connections", "0"]];
    for further in wrong {
        let ended = watari(dir.path(), &arguments(further));
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{further:?}");
    }
}
