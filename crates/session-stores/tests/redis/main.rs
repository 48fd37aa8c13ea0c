//! Sessions at real Redis servers, and at some that only look like one.

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
use watari_wire::SessionKey;

/// The time, in seconds of Unix time, as far as these tests know.
const NOW: u64 = 1_000_000;

/// Connects, and waits for that.
async fn connected(settings: RedisSettings) -> Redis {
    let redis = Redis::connect(settings);
    wait::until("there is a connection", async || redis.is_connected()).await;
    redis
}

/// Settings for a machine that may be slow.
fn patient(url: &str) -> RedisSettings {
    RedisSettings { timeout: Duration::from_secs(20), ..RedisSettings::from_url(url, None, None).unwrap() }
}

fn key(number: u8) -> SessionKey {
    SessionKey([number; 32])
}

/// By what a server knows it.
fn name(number: u8) -> String {
    format!("watari:session:{}", format!("{number:02x}").repeat(32))
}

fn entry(number: u8) -> Entry {
    Entry { key: key(number), value: vec![number; 300], expires: NOW + 100 }
}
