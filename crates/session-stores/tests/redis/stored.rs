//! The contents of a server, and their expiry.

use std::sync::Arc;

use redis::AsyncCommands;
use watari_session_stores::{RedisError, VALUE_MAX};

use super::*;
use crate::server::Server;

#[tokio::test]
async fn what_was_put_is_found_by_all_nodes() {
    let server = Server::start().await;
    let (one, other) = (
        connected(settings_with_long_timeout(&server.url())).await,
        connected(settings_with_long_timeout(&server.url())).await,
    );
    one.put(&[entry(1), entry(2)], NOW).await.unwrap();
    assert_eq!(other.get(&[key(2), key(3), key(1)], NOW).await.unwrap(), [entry(2), entry(1)]);
    let newer = Entry { value: vec![0xff; VALUE_MAX], ..entry(1) };
    other.put(std::slice::from_ref(&newer), NOW).await.unwrap();
    assert_eq!(one.get(&[key(1)], NOW).await.unwrap(), [newer]);
    assert_eq!(one.get(&[], NOW).await.unwrap(), []);
}

#[tokio::test]
async fn what_has_expired_is_not_found_and_leaves() {
    let server = Server::start().await;
    let redis = connected(settings_with_long_timeout(&server.url())).await;
    let past = Entry { expires: NOW, ..entry(2) };
    redis.put(&[entry(1), past], NOW).await.unwrap();
    assert_eq!(redis.get(&[key(1)], NOW + 99).await.unwrap(), [entry(1)]);
    assert_eq!(redis.get(&[key(1)], NOW + 100).await.unwrap(), []);
    let mut admin = server.admin().await;
    let names: Vec<String> = admin.keys("*").await.unwrap();
    assert_eq!(names, [name(1)]);
    let left: u64 = admin.ttl(name(1)).await.unwrap();
    assert!((1..=100).contains(&left), "{left} s");
    assert_eq!(redis.take(&key(1), NOW + 100).await.unwrap(), None);
}

#[tokio::test]
async fn one_of_concurrent_takes_gets_the_entry() {
    let server = Server::start().await;
    let nodes = [
        connected(settings_with_long_timeout(&server.url())).await,
        connected(settings_with_long_timeout(&server.url())).await,
    ]
    .map(Arc::new);
    for number in 0..20 {
        nodes[0].put(&[entry(number)], NOW).await.unwrap();
        let takes = (0..10).map(|at| {
            let node = Arc::clone(&nodes[at % 2]);
            tokio::spawn(async move { node.take(&key(number), NOW).await.unwrap() })
        });
        let mut got = Vec::new();
        for take in takes.collect::<Vec<_>>() {
            got.extend(take.await.unwrap());
        }
        assert_eq!(got, [entry(number)]);
    }
}

#[tokio::test]
async fn each_database_is_one_of_its_own() {
    let server = Server::start().await;
    let (one, other) = (
        connected(settings_with_long_timeout(&server.url())).await,
        connected(settings_with_long_timeout(&format!("{}/5", server.url()))).await,
    );
    one.put(&[entry(1)], NOW).await.unwrap();
    assert_eq!(other.get(&[key(1)], NOW).await.unwrap(), []);
}

#[tokio::test]
async fn values_of_others_are_none() {
    let server = Server::start().await;
    let redis = connected(settings_with_long_timeout(&server.url())).await;
    let mut admin = server.admin().await;
    let () = admin.set(name(1), "what somebody has written").await.unwrap();
    let () = admin.set(name(2), vec![1; 9 + VALUE_MAX + 1]).await.unwrap();
    let () = admin.rpush(name(3), "a list").await.unwrap();
    redis.put(&[entry(4)], NOW).await.unwrap();
    let keys = [1, 2, 3, 4].map(key);
    assert_eq!(redis.get(&keys, NOW).await.unwrap(), [entry(4)]);
    assert_eq!(redis.take(&key(1), NOW).await.unwrap(), None);
    assert_eq!(redis.counters().foreign, 3);
    let error = redis.take(&key(3), NOW).await.unwrap_err();
    assert!(matches!(error, RedisError::Refused(_)), "{error}");
    assert!(redis.is_connected(), "that is no reason to go");
}

#[tokio::test]
async fn a_server_without_room_refuses() {
    let server = Server::start_with(|_| "maxmemory 1\nmaxmemory-policy noeviction\n".to_owned()).await;
    let redis = connected(settings_with_long_timeout(&server.url())).await;
    let error = redis.put(&[entry(1)], NOW).await.unwrap_err();
    assert!(matches!(error, RedisError::Refused(_)), "{error}");
    assert_eq!((redis.get(&[key(1)], NOW).await.unwrap(), redis.counters().refused), (vec![], 1));
}
