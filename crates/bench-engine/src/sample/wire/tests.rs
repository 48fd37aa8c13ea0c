#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::ending::EndingKind;
use crate::test_samples::connection;

fn samples() -> Vec<ConnectionSample> {
    let resumed = connection(Some(HandshakeKind::Resumed), EndingKind::Reset);
    let local = Some("[::1]:54321".parse().unwrap());
    let other = ConnectionSample {
        local,
        remote: "[::1]:443".parse().unwrap(),
        family: Family::Ipv6,
        tls: None,
        ..resumed.clone()
    };
    let refused = ConnectionSample { connected: None, written: None, ..connection(None, EndingKind::Refused) };
    vec![connection(Some(HandshakeKind::Full), EndingKind::Normal), resumed.clone(), other, refused, resumed]
}

fn sent(samples: &[ConnectionSample]) -> Result<Vec<ConnectionSample>, BadSamples> {
    let bytes = postcard::to_allocvec(&WireSamples::of(samples).unwrap()).unwrap();
    postcard::from_bytes::<WireSamples>(&bytes).unwrap().into_samples(2)
}

fn refused(spoil: impl FnOnce(&mut Encoded)) -> &'static str {
    let mut encoded = Encoded::of(&samples());
    spoil(&mut encoded);
    encoded.into_samples(2).unwrap_err().0
}

#[test]
fn samples_arrive_as_they_were() {
    let received = sent(&samples()).unwrap();
    assert_eq!(format!("{received:?}"), format!("{:?}", samples()));
    // Equal results are sent once, and stored once.
    assert_eq!(Encoded::of(&samples()).seen.len(), 2);
    assert!(Arc::ptr_eq(received[1].tls.as_ref().unwrap(), received[4].tls.as_ref().unwrap()));
    let many = vec![samples().remove(1); SAMPLES_MAX];
    assert_eq!(sent(&many).unwrap().len(), SAMPLES_MAX);
}

#[test]
fn what_no_connection_can_be_is_refused() {
    assert_eq!(refused(|sent| sent.samples[1].class = 2), "a sample has an unknown class");
    assert_eq!(refused(|sent| sent.samples[0].tls = Some(2)), "a sample refers to a missing handshake");
    for ending in [(8, 0, 0), (0, 6, 0), (0, 0, 2)] {
        assert_eq!(refused(|sent| sent.samples[0].ending = ending), "a sample has an unknown ending");
    }
    let unfit = "the times of a sample are inconsistent";
    assert_eq!(refused(|sent| sent.samples[0].opened = Duration::MAX), unfit);
    assert_eq!(refused(|sent| sent.samples[0].closed = Duration::MAX), unfit);
    assert_eq!(refused(|sent| sent.samples[0].written = Some(Duration::ZERO)), unfit);
    assert_eq!(refused(|sent| sent.samples[0].last_byte = Some(TIME_MAX)), unfit);
    assert_eq!(refused(|sent| sent.seen[0].version = "TLSv1.4".to_owned()), "a handshake has an unknown TLS version");
    assert_eq!(
        refused(|sent| sent.seen[0].key = Some("k".repeat(NAME_BYTES_MAX + 1))),
        "a handshake has a name that is too long"
    );
}

#[test]
fn too_many_are_refused_before_there_is_room_for_them() {
    let many = "there are too many in one message";
    let one_more = vec![samples().remove(3); SAMPLES_MAX + 1];
    assert_eq!(sent(&one_more).unwrap_err().0, many);
    assert_eq!(WireSamples(ByteBuf::from(vec![0; BYTES_MAX + 1])).into_samples(2).unwrap_err().0, many);
}

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(at: prop::sample::Index, with: u8) {
        let mut bytes = WireSamples::of(&samples()).unwrap().0;
        let at = at.index(bytes.len());
        bytes[at] = with;
        for sample in WireSamples(bytes).into_samples(2).into_iter().flatten() {
            prop_assert!(sample.class < 2 && sample.tc() <= TIME_MAX);
        }
    }
}
