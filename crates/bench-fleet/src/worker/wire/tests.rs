#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tokio::io::duplex;

use super::*;

async fn greeted_with(greeting: &[u8]) -> TalkError {
    let (mut from, _to_us) = (greeting, Vec::<u8>::new());
    greet(&mut from, &mut tokio::io::sink()).await.unwrap_err()
}

#[tokio::test]
async fn another_version_is_told_from_another_program() {
    let greeting = |version: u16| [&MAGIC[..], &version.to_be_bytes()].concat();
    assert!(
        matches!(greeted_with(&greeting(VERSION + 1)).await, TalkError::Version { theirs } if theirs == VERSION + 1)
    );
    assert!(matches!(greeted_with(b"HTTP/1.1 400 Bad Request").await, TalkError::Foreign));
    assert!(matches!(greeted_with(b"wb").await, TalkError::Closed));
    let same = greeting(VERSION);
    greet(&mut &same[..], &mut tokio::io::sink()).await.unwrap();
}

#[tokio::test]
async fn messages_follow_each_other() {
    let (mut ours, mut theirs) = duplex(64);
    send(&mut ours, &Order::Ping).await.unwrap();
    send(&mut ours, &Order::Start { after_ns: 7 }).await.unwrap();
    drop(ours);
    assert_eq!(receive::<Order>(&mut theirs).await.unwrap(), Order::Ping);
    assert_eq!(receive::<Order>(&mut theirs).await.unwrap(), Order::Start { after_ns: 7 });
    assert!(matches!(receive::<Order>(&mut theirs).await, Err(TalkError::Closed)));
}

#[tokio::test]
async fn a_length_is_not_believed() {
    let announced = |len: u32, body: &[u8]| [&len.to_be_bytes()[..], body].concat();
    let found = receive::<Order>(&mut &announced(u32::MAX, b"")[..]).await;
    assert!(matches!(found, Err(TalkError::TooLong(_))));
    // The largest announced length, with hardly any bytes.
    let found = receive::<Order>(&mut &announced(LEN_MAX as u32, b"123")[..]).await;
    assert!(matches!(found, Err(TalkError::Closed)));
    let found = receive::<Order>(&mut &announced(2, &[1, 1])[..]).await;
    assert!(matches!(found, Err(TalkError::Trailing(1))));
}

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Order::Job(job)) = postcard::from_bytes::<Order>(&bytes) {
            let _ = job.into_plan();
        }
        let _ = postcard::from_bytes::<Report>(&bytes);
    }
}
