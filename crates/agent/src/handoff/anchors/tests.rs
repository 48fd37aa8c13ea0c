#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use watari_values::SecretBytes;
use watari_wire::Message;

use super::*;
use crate::handoff::testing::{Node, name};
use crate::settings::limits::Limits;

/// The agent `a`.
struct Rig {
    node: Node,
    anchors: Arc<Anchors>,
}

impl Rig {
    fn new() -> Self {
        let node = Node::new(Limits::default());
        Self { anchors: Arc::new(Anchors::new(node.peers.clone())), node }
    }

    /// The messages since the last call.
    fn sent(&self) -> Vec<(NodeName, AnchoredMessage)> {
        let anchored = |(to, message)| match message {
            Message::AgentToAgent(AgentToAgent::Anchored(message)) => (to, message),
            other => panic!("unexpected message to {to}: {other:?}"),
        };
        self.node.links.take().into_iter().map(anchored).collect()
    }

    fn receive(&self, from: &str, id: AnchoredId, content: AnchoredContent) {
        self.anchors.on_message(&name(from), &AnchoredMessage { id, to: AnchoredEnd::Anchor, content });
    }
}

fn data(offset: u64, bytes: &[u8]) -> AnchoredContent {
    AnchoredContent::Data { offset, bytes: SecretBytes::new(bytes.to_vec()), is_last: false }
}

fn attach(epoch: u32) -> AnchoredContent {
    AnchoredContent::Attach { epoch: Epoch(epoch), received: 0 }
}

#[tokio::test]
async fn an_anchor_talks_with_the_owner_of_the_highest_epoch_only() {
    let rig = Rig::new();
    let mut stream = rig.anchors.begin();
    let id = stream.export(&[]).id;
    stream.write_all(b"x").await.unwrap();
    assert!(rig.sent().is_empty(), "no owner has attached");
    rig.receive("b", id, data(0, b"bad"));
    rig.receive("b", id, attach(1));
    assert!(rig.sent().iter().all(|(to, _)| *to == name("b")));
    rig.receive("c", id, attach(2));
    rig.receive("b", id, attach(1));
    rig.receive("b", id, data(0, b"late"));
    rig.receive("c", id, data(0, b"good"));
    let sent = rig.sent();
    assert!(sent.iter().all(|(to, _)| *to == name("c")), "{sent:?}");
    assert!(sent.iter().any(|(_, message)| message.content == data(0, b"x")), "the new owner gets all: {sent:?}");
    let mut read = [0; 4];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"good");
}

#[tokio::test]
async fn the_end_of_one_end_is_an_error_at_the_other() {
    let rig = Rig::new();
    let stream = rig.anchors.begin();
    let id = stream.export(&[]).id;
    rig.receive("b", id, attach(1));
    assert_eq!(rig.anchors.len(), 1);
    rig.sent();
    drop(stream);
    let reset = AnchoredMessage { id, to: AnchoredEnd::Owner, content: AnchoredContent::Reset };
    assert_eq!(rig.sent(), [(name("b"), reset.clone())]);
    assert_eq!(rig.anchors.len(), 0);
    // The owner asks again, because the message was lost.
    rig.receive("b", id, attach(1));
    assert_eq!(rig.sent(), [(name("b"), reset)]);
    rig.receive("b", id, AnchoredContent::Reset);
    assert!(rig.sent().is_empty(), "a reset has no answer");

    let mut stream = rig.anchors.begin();
    let id = stream.export(&[]).id;
    rig.receive("b", id, attach(1));
    rig.receive("b", id, AnchoredContent::Reset);
    assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_end_that_is_about_to_move_stands_still() {
    let rig = Rig::new();
    let mut owner = rig.anchors.attach(Epoch(1), &watari_anchor::first_owner(name("b"), AnchoredId(7)));
    owner.write_all(b"one").await.unwrap();
    let state = owner.export(b"two");
    assert_eq!(state.unacknowledged.as_slice(), b"onetwo");
    rig.sent();
    let content = AnchoredContent::Progress { received: 3, consumed: 3, is_question: true, is_answer: false };
    let message = AnchoredMessage { id: AnchoredId(7), to: AnchoredEnd::Owner, content };
    rig.anchors.on_message(&name("b"), &message);
    rig.anchors.tick();
    assert!(rig.sent().is_empty());
    owner.thaw();
    rig.anchors.on_message(&name("b"), &message);
    assert!(!rig.sent().is_empty(), "the move was aborted");
    owner.export(&[]);
    drop(owner);
    assert!(rig.sent().is_empty(), "it has moved");
}

#[tokio::test]
async fn an_end_that_has_moved_does_not_reset_the_stream() {
    let rig = Rig::new();
    let (first, id) = (watari_anchor::first_owner(name("b"), AnchoredId(7)), AnchoredId(7));
    let late = AnchoredMessage { id, to: AnchoredEnd::Owner, content: data(0, b"late") };
    let owner = rig.anchors.attach(Epoch(1), &first);
    owner.export(&[]);
    drop(owner);
    rig.sent();
    rig.anchors.on_message(&name("b"), &late);
    assert!(rig.sent().is_empty(), "the new owner has not attached yet");
    // It comes back, and ends here.
    drop(rig.anchors.attach(Epoch(2), &first));
    rig.sent();
    rig.anchors.on_message(&name("b"), &late);
    assert_eq!(rig.sent().len(), 1, "the end is gone");
    // Both ends forget it in the same time.
    let owner = rig.anchors.attach(Epoch(3), &first);
    owner.export(&[]);
    drop(owner);
    (0..SILENT_TICKS_MAX).for_each(|_| rig.anchors.tick());
    rig.sent();
    rig.anchors.on_message(&name("b"), &late);
    assert_eq!(rig.sent().len(), 1);
}
