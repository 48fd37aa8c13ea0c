#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::ending::EndingKind;
use crate::test_samples::{connection, request, tally};

#[test]
fn splits_are_parts_of_the_total() {
    let mut tally = tally();
    tally.request(&request(0, Family::Ipv4, None, EndingKind::Normal));
    tally.request(&request(1, Family::Ipv4, Some(HandshakeKind::Full), EndingKind::Reset));
    tally.request(&request(1, Family::Ipv6, Some(HandshakeKind::Resumed), EndingKind::Timeout));
    tally.request(&request(1, Family::Ipv6, Some(HandshakeKind::Full), EndingKind::Normal));
    let requests = |part: Part| part.requests;
    assert_eq!(requests(tally.total()), 4);
    assert_eq!([Family::Ipv4, Family::Ipv6].map(|family| requests(tally.by_family(family))), [2, 2]);
    assert_eq!(HANDSHAKES.map(|handshake| requests(tally.by_handshake(handshake))), [1, 2, 1]);
    assert_eq!([0, 1].map(|class| requests(tally.by_class(class))), [1, 3]);
}

#[test]
fn failures_neither_flatter_latency_nor_hide() {
    let mut tally = tally();
    for kind in EndingKind::ALL {
        tally.request(&request(0, Family::Ipv4, None, kind));
    }
    let total = tally.total();
    assert_eq!((total.latency.count(), total.failed.count()), (2, 6));
    assert_eq!((total.endings.total(), total.requests), (8, 8));
}

#[test]
fn latency_counts_from_when_a_request_was_due() {
    let mut tally = tally();
    tally.request(&RequestSample { due: ms(50), ..request(0, Family::Ipv4, None, EndingKind::Normal) });
    assert_close(&tally.total().latency, ms(450));
    assert_close(&tally.total().wait, ms(200));
    assert_close(&tally.total().transfer, ms(100));
}

#[test]
fn connections_are_timed_as_the_paper_times_them() {
    let mut tally = tally();
    tally.connection(&connection(Some(HandshakeKind::Full), EndingKind::Normal));
    tally.connection(&connection(Some(HandshakeKind::Resumed), EndingKind::Reset));
    let connections = tally.total().connections;
    assert_close(&connections.connect, ms(10));
    assert_close(&connections.handshake, ms(20));
    assert_close(&connections.write, ms(5));
    assert_close(&connections.tr, ms(35));
    assert_close(&connections.tc, ms(90));
    assert_close(&connections.failed, ms(90));
    assert_eq!((connections.tr.count(), connections.tc.count(), connections.failed.count()), (2, 1, 1));
    assert_eq!(connections.handshakes(HandshakeKind::Full), 1);
    assert_eq!(tally.by_handshake(Some(HandshakeKind::Resumed)).connections.opened, 1);
}

#[test]
fn the_series_has_each_event_in_its_second() {
    let mut tally = tally();
    let begun =
        RequestSample { started: ms(900), ended: ms(2_100), ..request(0, Family::Ipv4, None, EndingKind::Normal) };
    tally.request(&begun);
    tally.connection(&ConnectionSample {
        opened: ms(1_000),
        secured: Some(ms(2_500)),
        ..connection(Some(HandshakeKind::Full), EndingKind::Normal)
    });
    let points = tally.series().points();
    assert_eq!(points.iter().map(|point| point.started).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(points.iter().map(|point| point.ended(EndingKind::Normal)).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(points.iter().map(|point| point.opened).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(points.iter().map(|point| point.full).collect::<Vec<_>>(), [0, 0, 1]);
    let latency = points[2].latency(0.5).unwrap();
    assert!(latency.abs_diff(ms(2_000)) <= ms(20), "{latency:?}");
}

#[test]
fn a_long_run_takes_bounded_memory() {
    let mut tally = tally();
    for second in 0..10_000 {
        let at = Duration::from_secs(second);
        tally.request(&RequestSample { started: at, ended: at, ..request(0, Family::Ipv4, None, EndingKind::Normal) });
    }
    assert_eq!(tally.series().interval(), Duration::from_secs(32));
    assert_eq!(tally.series().points().len(), 313);
    assert_eq!(tally.series().points().iter().map(|point| point.started).sum::<u64>(), 10_000);
}

#[test]
fn even_absurd_times_are_counted() {
    let mut tally = tally();
    let kind = EndingKind::Normal;
    tally.request(&RequestSample {
        started: Duration::MAX,
        ended: Duration::MAX,
        ..request(0, Family::Ipv4, None, kind)
    });
    tally.request(&RequestSample { due: Duration::MAX, ..request(0, Family::Ipv4, None, kind) });
    let mut other = crate::test_samples::tally();
    other.merge(&tally);
    assert_eq!(other.total().latency.count(), 2);
    assert!(other.series().points().len() <= 600);
}

#[test]
#[should_panic(expected = "same classes")]
fn tallies_of_other_runs_are_not_merged() {
    tally().merge(&Tally::new(Arc::new(["other".to_owned()])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn it_does_not_matter_which_thread_counts_what(samples in prop::collection::vec((any_request(), 0..3_usize), 0..60)) {
        let mut alone = tally();
        let mut threads = [tally(), tally(), tally()];
        for (sample, thread) in &samples {
            alone.request(sample);
            threads[*thread].request(sample);
            for tally in [&mut threads[*thread], &mut alone] {
                tally.lag(sample.started);
                tally.flow(sample.written);
            }
        }
        let mut merged = tally();
        for thread in &threads {
            merged.merge(thread);
        }
        prop_assert_eq!(merged, alone);
    }
}

pub(crate) fn any_request() -> impl Strategy<Value = RequestSample> {
    let handshake = prop::sample::select(&HANDSHAKES[..]);
    let (family, kind) =
        (prop::sample::select(&[Family::Ipv4, Family::Ipv6][..]), prop::sample::select(&EndingKind::ALL[..]));
    (0..2_usize, family, handshake, kind, 0..5_000_000_u64, 0..5_000_000_u64).prop_map(
        |(class, family, handshake, kind, start, took)| {
            let started = ms(start);
            RequestSample {
                due: started,
                started,
                ended: started + ms(took),
                error_status: kind == EndingKind::Normal && took % 3 == 0,
                ..request(class, family, handshake, kind)
            }
        },
    )
}

fn assert_close(times: &Times, expected: Duration) {
    let found = times.quantile(1.0).unwrap();
    assert!(found.abs_diff(expected) <= expected / 1_000, "{found:?} is not {expected:?}");
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
