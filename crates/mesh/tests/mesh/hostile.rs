//! Peers with a link that send messages they must not send.

use watari_mesh::LinkError;
use watari_wire::frame::{FRAME_LEN_MAX, Frame, FrameError};
use watari_wire::{Hello, LinkMessage, VERSION_MAX};

use crate::support::*;

/// Agent `e`, and a raw dispatcher `d` with a link to it.
async fn agent_and_raw_dispatcher() -> (Node, RawPeer) {
    let cluster = Cluster::new(&["d", "e"]);
    let mut agent = cluster.node("e", &[("d", nowhere())]).await;
    let raw = RawPeer::link(&cluster.identity("d"), "e", agent.address, 1).await;
    agent.up("d").await;
    (agent, raw)
}

#[tokio::test]
async fn what_the_role_does_not_allow_is_not_delivered() {
    let (mut agent, mut raw) = agent_and_raw_dispatcher().await;
    raw.send(&ship()).await;
    raw.send(&freeze(1)).await;
    assert_eq!(agent.message("d").await, freeze(1));
    assert_eq!(agent.metric("messages_dropped_total{reason=\"forbidden\"}"), 1);
    assert_eq!(agent.metric("messages_received_total{kind=\"ship\"}"), 0);
}

#[tokio::test]
async fn what_is_unknown_is_answered_and_the_link_goes_on() {
    let (mut agent, mut raw) = agent_and_raw_dispatcher().await;
    raw.write(&[0, 0, 0, 4, VERSION_MAX, 99, 1, 2]).await;
    raw.write(&[0, 0, 0, 2, VERSION_MAX + 1, 16]).await;
    raw.send(&freeze(1)).await;
    for (version, kind) in [(VERSION_MAX, 99), (VERSION_MAX + 1, 16)] {
        assert_eq!(raw.next_frame().await, Some(Frame::Link(LinkMessage::Unsupported { version, kind })));
    }
    assert_eq!(agent.message("d").await, freeze(1));
    assert_eq!(agent.metric("messages_dropped_total{reason=\"unknown\"}"), 2);
    // A received `Unsupported` is counted, and has no other effect.
    raw.send_link(&LinkMessage::Unsupported { version: 1, kind: 16 }).await;
    raw.send(&freeze(2)).await;
    assert_eq!(agent.message("d").await, freeze(2));
    assert_eq!(agent.metric("messages_dropped_total{reason=\"unsupported\"}"), 1);
}

#[tokio::test]
async fn what_is_no_frame_ends_the_link() {
    type Expected = fn(&FrameError) -> bool;
    let too_long = u32::try_from(FRAME_LEN_MAX).unwrap().to_be_bytes();
    let cases: [(&[u8], Expected); 4] = [
        (&too_long, |error| matches!(error, FrameError::TooLong { .. })),
        (&[0, 0, 0, 0], |error| matches!(error, FrameError::TooShort { .. })),
        (&[0, 0, 0, 3, VERSION_MAX, 19, 0xff], |error| matches!(error, FrameError::Body { kind: 19, .. })),
        (&[0, 0, 0, 3, 0, 2, 0], |error| matches!(error, FrameError::TrailingBytes { kind: 2, extra: 1 })),
    ];
    for (bytes, expected) in cases {
        let (mut agent, mut raw) = agent_and_raw_dispatcher().await;
        // Messages before it are still delivered.
        raw.send(&freeze(1)).await;
        raw.write(bytes).await;
        assert_eq!(agent.message("d").await, freeze(1));
        match agent.down("d").await {
            LinkError::Frame(error) => assert!(expected(&error), "{error:?}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(raw.next_frame().await, None);
        assert_eq!(agent.metric("links_ended_total{reason=\"bad_frame\"}"), 1);
        assert_eq!(agent.metric("links_up"), 0);
    }
}

#[tokio::test]
async fn a_second_hello_ends_the_link() {
    let (mut agent, mut raw) = agent_and_raw_dispatcher().await;
    raw.send_link(&LinkMessage::Hello(Hello::new(name("d"), &roles("d"), 2))).await;
    assert!(matches!(agent.down("d").await, LinkError::SecondHello));
}

#[tokio::test]
async fn a_link_that_breaks_off_is_reported() {
    let (mut agent, raw) = agent_and_raw_dispatcher().await;
    drop(raw);
    assert!(matches!(agent.down("d").await, LinkError::Io(_)));
}
