//! Sessions at real Redis servers, and at fake ones.

#![allow(clippy::unwrap_used)]

mod access;
mod fake;
mod hostile;
mod server;
mod stored;
mod tls;
mod wait;

use std::time::Duration;

use watari_session_stores::{Entry, Redis, RedisSettings};
use watari_values::SessionKey;

/// The time in these tests, in seconds of Unix time.
const NOW: u64 = 1_000_000;

/// Connects, and waits until the connection is made.
async fn connected(settings: RedisSettings) -> Redis {
    let redis = Redis::connect(settings);
    wait::until("there is a connection", async || redis.is_connected()).await;
    redis
}

/// Settings for a slow machine.
fn settings_with_long_timeout(url: &str) -> RedisSettings {
    RedisSettings { timeout: Duration::from_secs(20), ..RedisSettings::from_url(url, None, None).unwrap() }
}

fn key(number: u8) -> SessionKey {
    SessionKey([number; 32])
}

/// The name of the key at the server.
fn name(number: u8) -> String {
    format!("watari:session:{}", format!("{number:02x}").repeat(32))
}

fn entry(number: u8) -> Entry {
    Entry { key: key(number), value: vec![number; 300], expires: NOW + 100 }
}
