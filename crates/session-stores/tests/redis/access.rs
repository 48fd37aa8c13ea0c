//! Permissions, and calls without a connection.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use watari_session_stores::{RedisCredentials, RedisError};
use watari_test_origins::LoopbackAddresses;

use super::*;
use crate::server::Server;
use crate::wait::until;

/// All permissions that a node needs.
const USER: &str =
    "user default off\nuser watari on >geheim resetchannels ~watari:session:* -@all +set +mget +getdel\n";

fn credentials(dir: &Path, username: &str, password: &str) -> RedisCredentials {
    let path = dir.join("password");
    fs::write(&path, password).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    RedisCredentials::load(Some(username.to_owned()), &path).unwrap()
}

#[tokio::test]
async fn a_user_needs_three_commands() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start_with(|_| USER.to_owned()).await);
    let credentials = Some(credentials(dir.path(), "watari", "geheim\n"));
    let redis = connected(RedisSettings { credentials, ..settings_with_long_timeout(&server.url()) }).await;
    redis.put(&[entry(1)], NOW).await.unwrap();
    assert_eq!(redis.get(&[key(1)], NOW).await.unwrap(), [entry(1)]);
    assert_eq!(redis.take(&key(1), NOW).await.unwrap(), Some(entry(1)));
}

#[tokio::test]
async fn a_user_without_permission_is_refused() {
    let more = USER.replace("+getdel", "");
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start_with(|_| more).await);
    let credentials = Some(credentials(dir.path(), "watari", "geheim"));
    let redis = connected(RedisSettings { credentials, ..settings_with_long_timeout(&server.url()) }).await;
    let error = redis.take(&key(1), NOW).await.unwrap_err();
    assert!(matches!(&error, RedisError::Refused(why) if why.contains("getdel")), "{error}");
}

/// With these settings, connecting fails.
pub(crate) async fn is_turned_away(settings: RedisSettings) {
    let redis = Redis::connect(settings);
    until("it has tried again", async || redis.counters().failed_attempts >= 2).await;
    assert_eq!(redis.get(&[key(1)], NOW).await, Err(RedisError::Away));
    assert_eq!((redis.counters().connections, redis.counters().away), (0, 1));
}

#[tokio::test]
async fn a_wrong_password_opens_nothing() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start_with(|_| USER.to_owned()).await);
    let settings = settings_with_long_timeout(&server.url());
    is_turned_away(settings.clone()).await;
    for (username, password) in [("watari", "Geheim"), ("somebody", "geheim")] {
        let credentials = Some(credentials(dir.path(), username, password));
        is_turned_away(RedisSettings { credentials, ..settings.clone() }).await;
    }
}

#[tokio::test]
async fn a_server_may_come_later() {
    let address = LoopbackAddresses::draw().take();
    is_turned_away(settings_with_long_timeout(&format!("redis://{address}"))).await;
    is_turned_away(settings_with_long_timeout("redis://no-such-host.invalid")).await;
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let mut server = Server::start().await;
    let redis = connected(settings_with_long_timeout(&server.url())).await;
    for round in 1..=3 {
        redis.put(&[entry(1)], NOW).await.unwrap();
        server.kill();
        // The first calls may detect the loss. Later ones fail at once.
        until("it is away", async || redis.get(&[key(1)], NOW).await == Err(RedisError::Away)).await;
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(redis.put(&[entry(1)], NOW).await, Err(RedisError::Away));
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "each waits");
        server.start_again().await;
        until("it is back", async || redis.put(&[entry(2)], NOW).await.is_ok()).await;
        assert_eq!(redis.get(&[key(1), key(2)], NOW).await.unwrap(), [entry(2)]);
        assert_eq!(redis.counters().connections, 1 + round);
    }
}
