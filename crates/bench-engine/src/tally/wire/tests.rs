#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::tests::any_request;
use super::*;
use crate::sample::{HandshakeKind, TlsSeen};
use crate::test_samples::{connection, tally};

/// Encodes and decodes a tally.
fn sent(tally: &Tally) -> Tally {
    let bytes = postcard::to_allocvec(&WireTally::of(tally)).unwrap();
    postcard::from_bytes::<WireTally>(&bytes).unwrap().into_tally(Arc::clone(tally.classes())).unwrap()
}

fn refused(spoil: impl FnOnce(&mut WireTally)) -> &'static str {
    let mut tally = tally();
    tally.connection(&connection(Some(HandshakeKind::Full), EndingKind::Normal));
    tally.lag(Duration::from_millis(3));
    tally.flow(Some(Duration::from_secs(2)));
    tally.flow(None);
    let mut wire = WireTally::of(&tally);
    spoil(&mut wire);
    wire.into_tally(Arc::clone(tally.classes())).unwrap_err().0
}

fn lag(wire: &mut WireTally) -> &mut WireSome {
    wire.lag.0.as_mut().unwrap()
}

#[test]
fn what_no_tally_can_be_is_refused() {
    assert_eq!(refused(|wire| wire.parts[0].0 = 99), "a part has an unknown class");
    assert_eq!(refused(|wire| wire.parts = vec![wire.parts[0].clone(); 13]), "it has too many parts");
    assert_eq!(refused(|wire| wire.parts[0].1.requests = 1), "its endings do not add up to their total");
    assert_eq!(refused(|wire| wire.parts[0].1.connections.opened = 0), "its endings do not add up to their total");
    assert_eq!(refused(|wire| wire.parts[0].1.connections.endings.0[0].0 = 8), "it has an unknown ending");
    assert_eq!(refused(|wire| wire.parts[0].1.body_bytes = u64::MAX), "a count is too large");
    let seen = connection(Some(HandshakeKind::Full), EndingKind::Normal).tls.unwrap();
    let unknown = WireSeen::of(&TlsSeen { version: "SSLv3", ..TlsSeen::clone(&seen) });
    let version = |wire: &mut WireTally| wire.parts[0].1.connections.tls[0].0 = unknown;
    assert_eq!(refused(version), "a handshake has an unknown TLS version");
    assert_eq!(refused(|wire| wire.doublings = 64), "its series is too long");
    assert_eq!(refused(|wire| wire.points = vec![wire.points[0].clone(); 601]), "its series is too long");
    assert_eq!(refused(|wire| wire.points[0].latency = Some(vec![1].into())), "a histogram cannot be decoded");
    assert_eq!(refused(|wire| lag(wire).histogram.truncate(9)), "a histogram cannot be decoded");
    for spoil in [
        |lag: &mut WireSome| lag.sum_ns = u128::MAX,
        |lag: &mut WireSome| lag.max_ns = u64::MAX,
        |lag: &mut WireSome| lag.min_ns += 1,
    ] {
        assert_eq!(refused(|wire| spoil(lag(wire))), "its times are inconsistent");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_tally_arrives_as_it_was(samples in prop::collection::vec((any_request(), 0..3_usize), 0..60), resumed: bool) {
        let kind = if resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
        let (mut alone, mut there) = (tally(), tally());
        let mut machines = [tally(), tally(), tally()];
        for (sample, machine) in &samples {
            for tally in [&mut alone, &mut machines[*machine]] {
                tally.request(sample);
                tally.lag(sample.started);
                tally.connection(&connection(Some(kind), sample.ending.kind));
                tally.unfinished(1);
            }
        }
        for machine in &machines {
            prop_assert_eq!(&sent(machine), machine);
            there.merge(&sent(machine));
        }
        prop_assert_eq!(there, alone);
    }

    #[test]
    fn hostile_bytes_do_no_harm(samples in prop::collection::vec(any_request(), 1..5), at: prop::sample::Index, with: u8) {
        let mut tally = tally();
        for sample in samples {
            tally.request(&sample);
        }
        let mut bytes = postcard::to_allocvec(&WireTally::of(&tally)).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = with;
        let found = postcard::from_bytes::<WireTally>(&bytes).ok();
        if let Some(Ok(found)) = found.map(|wire| wire.into_tally(Arc::clone(tally.classes()))) {
            tally.merge(&found);
            let total = tally.total();
            prop_assert!(total.endings.failed() <= total.requests);
            let _ = (total.latency.mean(), total.latency.quantile(0.5));
        }
    }
}
