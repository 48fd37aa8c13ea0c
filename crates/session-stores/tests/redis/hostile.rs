//! Servers that are slow, broken or compromised.

use std::time::Instant;

use watari_session_stores::RedisError;

use super::*;
use crate::access::is_turned_away;
use crate::fake::{Fake, Manners};
use crate::wait::until;

/// Longer than any of these tests needs, but limited.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_server_that_says_nothing_is_none() {
    let fake = Fake::start(Manners::Mute).await;
    is_turned_away(settings_with_long_timeout(&fake.url())).await;
}

#[tokio::test]
async fn only_the_first_waits_for_a_server_that_stops_answering() {
    let fake = Fake::start(Manners::Deaf).await;
    let wait = Duration::from_millis(250);
    let redis = connected(RedisSettings { timeout: wait, ..settings_with_long_timeout(&fake.url()) }).await;
    let begun = Instant::now();
    assert_eq!(redis.get(&[key(1)], NOW).await, Err(RedisError::TimedOut(wait)));
    assert!(begun.elapsed() >= wait);
    // No other task has run since: there is no new connection yet.
    assert_eq!(redis.get(&[key(1)], NOW).await, Err(RedisError::Away));
    let counters = redis.counters();
    assert_eq!((counters.timed_out, counters.away), (1, 1));
    until("it has tried again", async || redis.counters().connections >= 2).await;
}

#[tokio::test]
async fn all_waiting_calls_fail_when_a_server_closes() {
    let fake = Fake::start(Manners::HangUp).await;
    let redis = connected(RedisSettings { timeout: LONG, ..settings_with_long_timeout(&fake.url()) }).await;
    let (keys, entries) = ([key(1)], [entry(1)]);
    let (one, other) = tokio::join!(redis.get(&keys, NOW), redis.put(&entries, NOW));
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(matches!(error, RedisError::Lost(_) | RedisError::Away), "{error}");
    }
}

/// Invalid responses to MGET with one key.
fn garbage() -> Vec<Vec<u8>> {
    let text: [&[u8]; 18] = [
        b"\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$-7\r\n",
        b"+OK\r\n",
        b":12\r\n",
        b"$3\r\nabc\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$-1\r\n$-1\r\n",
        b"*1\r\n:7\r\n",
        b"*1\r\n*1\r\n*0\r\n",
        b"*99999999999999999999999999\r\n",
        b"*-9223372036854775808\r\n",
        b"=-1\r\n\r\n",
        b"%-1\r\n",
        b"|1\r\n+a\r\n+b\r\n+c\r\n",
        b"~1\r\n+\xff\r\n",
        b">1\r\n:1\r\n",
    ];
    let mut garbage: Vec<Vec<u8>> = text.map(<[u8]>::to_vec).into();
    garbage.push(b"*1\r\n".repeat(200));
    garbage
}

#[tokio::test]
async fn garbage_is_an_error_and_nothing_worse() {
    for bytes in garbage() {
        let fake = Fake::start(Manners::Say(bytes.clone())).await;
        // An incomplete response could become complete, so the node waits.
        let settings = RedisSettings { timeout: Duration::from_secs(2), ..settings_with_long_timeout(&fake.url()) };
        let redis = connected(settings).await;
        let got = redis.get(&[key(1)], NOW).await;
        let error = got.expect_err(&String::from_utf8_lossy(&bytes));
        assert!(!matches!(error, RedisError::Refused(_)), "{error}");
        assert!(!redis.is_connected(), "the next answer may be the rest of this one");
    }
}

#[tokio::test]
async fn a_server_cannot_send_without_end() {
    let beginnings: [&[u8]; 5] =
        [b"+", b"$500000000\r\n", b"*1\r\n$9223372036854775807\r\n", b"-", b"*9223372036854775807\r\n+"];
    for bytes in beginnings {
        let fake = Fake::start(Manners::Endless(bytes.to_vec())).await;
        let redis = connected(RedisSettings { timeout: LONG, ..settings_with_long_timeout(&fake.url()) }).await;
        let error = redis.get(&[key(1)], NOW).await.unwrap_err();
        assert!(matches!(error, RedisError::Lost(_)), "{error}");
        // Some more fits into the buffers of the sockets.
        assert!(fake.sent() < 40 << 20, "{} bytes", fake.sent());
    }
}

#[tokio::test]
async fn an_error_is_a_refusal_whatever_it_says() {
    for bytes in [&b"-ERR no\r\n"[..], b"-MOVED 1 10.0.0.1:6379\r\n", b"-\r\n", b"-WHATEVER\r\n"] {
        let fake = Fake::start(Manners::Say(bytes.to_vec())).await;
        let redis = connected(settings_with_long_timeout(&fake.url())).await;
        let error = redis.get(&[key(1)], NOW).await.unwrap_err();
        assert!(matches!(error, RedisError::Refused(_)), "{error}");
        assert!(redis.is_connected());
    }
}
