#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

#[test]
fn addresses_are_read() {
    for (url, host, port, database) in [
        ("redis://cache", "cache", 6379, 0),
        ("redis://cache:1234/", "cache", 1234, 0),
        ("redis://10.0.0.1/7", "10.0.0.1", 6379, 7),
        ("redis://[::1]:1/15", "::1", 1, 15),
    ] {
        let settings = RedisSettings::from_url(url, None, None).unwrap();
        assert_eq!((settings.host.as_str(), settings.port, settings.database), (host, port, database), "{url}");
        assert!(settings.tls.is_none());
        assert_eq!(
            RedisSettings::from_url(&settings.to_string(), None, None).unwrap().to_string(),
            settings.to_string()
        );
    }
}

#[test]
fn what_is_no_address_is_refused() {
    for url in [
        "",
        "cache:6379",
        "http://cache",
        "redis://",
        "redis:///1",
        "redis://cache/x",
        "redis://cache/1?a",
        "redis://c:99999",
    ] {
        let error = RedisSettings::from_url(url, None, None).unwrap_err();
        assert!(matches!(error, BadRedisSettings::Url { .. }), "{url}: {error}");
    }
}

#[test]
fn a_password_in_an_address_is_refused_and_not_shown() {
    for url in ["redis://user:geheim@cache", "redis://:geheim@cache/1"] {
        let error = RedisSettings::from_url(url, None, None).unwrap_err();
        assert!(error.to_string().contains("username and password_file") && !error.to_string().contains("geheim"));
    }
}

#[test]
fn password_files_have_one_line_and_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let load = |content: &[u8], mode| {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        RedisCredentials::load(Some("watari".to_owned()), &path)
    };
    let credentials = load(b"geheim\n", 0o600).unwrap();
    assert_eq!(credentials.password.as_str(), "geheim");
    assert!(!format!("{credentials:?}").contains("geheim"));
    assert!(matches!(load(b"geheim\n", 0o644), Err(BadRedisSettings::Exposed(_))));
    assert!(matches!(load(b"\n", 0o600), Err(BadRedisSettings::Content { .. })));
    assert!(matches!(load(&[0xff], 0o600), Err(BadRedisSettings::Content { .. })));
    assert!(matches!(load(&vec![b'a'; 70_000], 0o600), Err(BadRedisSettings::Content { .. })));
    assert!(matches!(
        RedisCredentials::load(None, dir.path()),
        Err(BadRedisSettings::Exposed(_) | BadRedisSettings::File { .. })
    ));
}
