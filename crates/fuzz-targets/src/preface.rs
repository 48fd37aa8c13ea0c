//! Arbitrary bytes at the port for legs. None of them authenticates a dispatcher.

use arbitrary::Arbitrary;
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes};
use watari_wire::LegKey;
use watari_wire::leg::{Kind, LegSigner, LegVerifier, PREFACE_LEN_MAX, Preface};

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    connection: (u64, u64),
    epoch: u32,
    kind: AnyKind,
    client: std::net::SocketAddr,
    server: std::net::SocketAddr,
    /// The position of a changed byte in a valid preface, and the change.
    forged: (u16, u8),
    behind: &'a [u8],
    /// Bytes of a peer without the key.
    raw: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum AnyKind {
    New(bool),
    Commit(u64, u64),
    Continue(u32, u64, u64),
}

pub(crate) fn run(input: Input<'_>) {
    let name = |name| NodeName::new(name).expect("a letter is a name");
    let key = LegKey { id: 7, key: SecretBytes::new(vec![9; 32]), handshakes: true };
    let signer = LegSigner::new(name("d"), &name("a"), &key);
    let mut verifier = LegVerifier::new(name("a"));
    verifier.rotate(&name("d"), &key);

    let raw = verifier.verify(input.raw);
    assert!(!matches!(raw, Ok(Some(_))), "without the key no preface is accepted");
    assert!(!matches!(raw, Ok(None)) || input.raw.len() < PREFACE_LEN_MAX, "the wait for a preface has an end");

    let preface = Preface {
        kind: match input.kind {
            AnyKind::New(moves) => Kind::New { bulk: moves.then(|| name("b")) },
            AnyKind::Commit(rx_offset, tail_offset) => Kind::Commit { rx_offset, tail_offset },
            AnyKind::Continue(change, rx_offset, tx_offset) => Kind::Continue { change, rx_offset, tx_offset },
        },
        connection: ConnectionId { boot: input.connection.0, number: input.connection.1 },
        epoch: Epoch(input.epoch),
        client: input.client,
        server: input.server,
    };
    let good = signer.sign(&preface);
    let (at, change) = input.forged;
    if change != 0 {
        let mut forged = good.clone();
        let at = usize::from(at) % forged.len();
        forged[at] ^= change;
        assert!(!matches!(verifier.verify(&forged), Ok(Some(_))), "the byte at {at} is not covered");
    }
    for len in [0, usize::from(at) % good.len(), good.len() - 1] {
        assert_eq!(verifier.verify(&good[..len]), Ok(None));
    }
    let received = [&good, input.behind].concat();
    let accepted = verifier.verify(&received).expect("a good preface").expect("a whole one");
    assert_eq!((accepted.len, accepted.dispatcher), (good.len(), name("d")));
    assert_eq!((accepted.preface.kind, accepted.preface.connection), (preface.kind, preface.connection));
    assert!(verifier.verify(&received).is_err(), "a preface is good once");
}
