//! Downloads that move between good and faulty origins, with every [`Fault`].
//!
//! For any responses, the client gets the beginning of one version of the file, and either all of it or a visible cut.
#![allow(clippy::unwrap_used)]

mod origins;

use bytes::Bytes;
use http::header::RANGE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use watari_handover::{Equality, Refusal, Seam, SeamError, Stays, Transfer, TransferConditions};

use crate::origins::{Fault, Origin, other};

/// After `after` pieces, the download continues at origin `to`, if that is possible.
#[derive(Debug, Clone)]
struct Move {
    after: usize,
    to: usize,
    /// The number of bytes that the present origin is expected to deliver meanwhile.
    ahead: u64,
    /// Whether `to` is asked again, from the position of the client, if the present origin does not deliver them.
    asks_again: bool,
}

/// A client's download: its range, the bytes it has, and their source.
struct Download<'a> {
    origins: &'a mut [Origin],
    request: HeaderMap,
    transfer: Transfer,
    /// `None`: the first origin delivers.
    seam: Option<Seam>,
    pieces: std::vec::IntoIter<Bytes>,
    received: Vec<u8>,
}

impl<'a> Download<'a> {
    fn begin(origins: &'a mut [Origin], request: HeaderMap, conditions: &TransferConditions) -> Result<Self, Stays> {
        let answer = origins[0].answer(&request);
        let transfer = Transfer::of(&Method::GET, &request, answer.status, &answer.headers, conditions)?;
        let pieces = answer.pieces.into_iter();
        Ok(Self { origins, request, transfer, seam: None, pieces, received: Vec::new() })
    }

    /// Gives the client the next piece. Returns `false` if there is none, or none that it may have.
    fn step(&mut self) -> bool {
        let Some(piece) = self.pieces.next() else { return false };
        let given = match &mut self.seam {
            Some(seam) => seam.take(&mut self.transfer, piece).ok(),
            None => self.transfer.delivered(&piece).ok().map(|()| piece),
        };
        let Some(given) = given else {
            self.pieces = Vec::new().into_iter();
            return false;
        };
        self.received.extend_from_slice(&given);
        true
    }

    /// Continues at another origin, after the present one has delivered the bytes up to the seam, or has failed.
    fn go_on(&mut self, to: usize, ahead: u64) -> Result<(), Option<Refusal>> {
        let at = self.transfer.position() + ahead;
        let continuation = self.transfer.continuation(at).map_err(|_| None)?;
        let mut head = self.request.clone();
        continuation.request(&mut head);
        let answer = self.origins[to].answer(&head);
        let seam = continuation.accept(answer.status, &answer.headers).map_err(Some)?;
        while seam.owed(&self.transfer) > 0 && self.step() {}
        self.seam = Some(seam);
        self.pieces = answer.pieces.into_iter();
        Ok(())
    }

    fn run(&mut self, moves: &[Move]) {
        for one in moves {
            for _ in 0..one.after {
                self.step();
            }
            let accepted = self.go_on(one.to, one.ahead).is_ok();
            if accepted && one.asks_again && self.seam.as_ref().is_some_and(|seam| seam.owed(&self.transfer) > 0) {
                let _ = self.go_on(one.to, 0);
            }
        }
        while self.step() {}
    }

    fn is_beginning_of(&self, file: &Bytes) -> bool {
        let start = self.transfer.range().start as usize;
        file[start..].starts_with(&self.received)
    }
}

fn asking(range: Option<&str>) -> HeaderMap {
    range.map(|range| (RANGE, HeaderValue::from_str(range).unwrap())).into_iter().collect()
}

fn file(len: usize) -> Bytes {
    (0..len).map(|index| (index * index % 251) as u8).collect()
}

const TERMS: TransferConditions = TransferConditions { overlap: 16, equality: Equality::Proven };

/// A download from an honest origin continues, after 200 of 1000 bytes, at one with this fault. Returns the number of
/// bytes that the client has when the faulty origin ends, or the refusal.
fn fares(fault: Fault) -> Result<usize, Option<Refusal>> {
    let file = file(1000);
    let mut origins = [Fault::None, fault, Fault::None].map(|fault| Origin::new(file.clone(), fault, 50));
    let _ = origins[1].answer(&HeaderMap::new());
    let mut download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
    (0..4).for_each(|_| assert!(download.step()));
    let moved = download.go_on(1, 0);
    if moved.is_ok() {
        while download.step() {}
    }
    let received = download.received.len();
    let _ = download.go_on(2, 0);
    while download.step() {}
    assert!(download.transfer.is_complete() && download.is_beginning_of(&file), "{fault:?}");
    moved.map(|()| received)
}

#[test]
fn every_fault_is_found_and_the_next_origin_goes_on() {
    let refused = |refusal| Err(Some(refusal));
    for fault in Fault::ALL {
        let expected = match fault {
            Fault::None | Fault::RefusesOpenRanges | Fault::Drip => Ok(1000),
            Fault::IgnoresRanges | Fault::Replaced | Fault::WeakTag => refused(Refusal::Whole),
            Fault::RangeFromStart | Fault::RangeLate | Fault::NoRange => refused(Refusal::Range),
            Fault::OtherTotal | Fault::UnknownTotal => refused(Refusal::Total),
            Fault::IgnoresIfRange => refused(Refusal::Validator),
            Fault::NoTag | Fault::TwoTags => refused(Refusal::MissingValidator),
            Fault::OtherLength => refused(Refusal::Length),
            Fault::Multipart => refused(Refusal::Multipart),
            Fault::NotSatisfiable => refused(Refusal::NotSatisfiable),
            Fault::Gzip => refused(Refusal::Coded),
            Fault::Redirects => refused(Refusal::Redirect),
            Fault::Unauthorized => refused(Refusal::Unauthorized),
            Fault::Down => refused(Refusal::Status(StatusCode::SERVICE_UNAVAILABLE)),
            Fault::SameTag | Fault::Silent => Ok(200),
            Fault::TooShort => Ok(999),
            // The last piece is refused as a whole: 16 repeated bytes and 800 more are 16 pieces and 16 bytes.
            Fault::TooLong => Ok(984),
            // 16 of them are repeated.
            Fault::ResetAfter(100) => Ok(284),
            Fault::ResetAfter(_) => unreachable!("not in the list"),
        };
        assert_eq!(fares(fault), expected, "{fault:?}");
    }
}

#[test]
fn a_probe_tells_beforehand() {
    let file = file(1000);
    for (fault, expected) in [
        (Fault::None, Ok(())),
        (Fault::RefusesOpenRanges, Ok(())),
        (Fault::IgnoresRanges, Err(Refusal::Whole)),
        (Fault::OtherTotal, Err(Refusal::Total)),
        (Fault::IgnoresIfRange, Err(Refusal::Validator)),
        (Fault::NoTag, Err(Refusal::MissingValidator)),
        (Fault::Gzip, Err(Refusal::Coded)),
        (Fault::NotSatisfiable, Err(Refusal::NotSatisfiable)),
    ] {
        let mut origins = [Fault::None, fault].map(|fault| Origin::new(file.clone(), fault, 50));
        let download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
        let probe = download.transfer.probe().unwrap();
        let mut head = download.request.clone();
        probe.request(&mut head);
        let answer = download.origins[1].answer(&head);
        assert_eq!(probe.accept(answer.status, &answer.headers).map(drop), expected, "{fault:?}");
    }
}

#[test]
fn a_reset_at_any_byte_is_mended() {
    let file = file(300);
    for (count, piece_len) in (0..=300).flat_map(|count| [(count, 1), (count, 16), (count, 64)]) {
        let faults = [Fault::ResetAfter(count), Fault::ResetAfter(17), Fault::None];
        let mut origins = faults.map(|fault| Origin::new(file.clone(), fault, piece_len));
        let mut download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
        while download.step() {}
        assert_eq!(download.received, file[..count]);
        download.run(&[
            Move { after: 0, to: 1, ahead: 0, asks_again: false },
            Move { after: 400, to: 2, ahead: 0, asks_again: false },
        ]);
        assert!(download.transfer.is_complete());
        assert_eq!(download.received, file);
    }
}

#[test]
fn an_origin_that_contradicts_the_operator_is_found() {
    let file = file(1000);
    let declared = TransferConditions { overlap: 16, equality: Equality::Declared { compared_min: 8 } };
    for (fault, moved) in [(Fault::NoTag, true), (Fault::WeakTag, false), (Fault::IgnoresIfRange, false)] {
        let mut origins = [Fault::NoTag, fault].map(|fault| Origin::new(file.clone(), fault, 50));
        let mut download = Download::begin(&mut origins, asking(None), &declared).unwrap();
        assert!(download.step());
        download.go_on(1, 0).unwrap();
        while download.step() {}
        assert_eq!(download.transfer.is_complete(), moved, "{fault:?}");
        assert!(download.is_beginning_of(&file));
    }
}

#[test]
fn the_present_origin_ends_before_the_seam() {
    let file = file(1000);
    let mut origins = [Fault::ResetAfter(110), Fault::None].map(|fault| Origin::new(file.clone(), fault, 50));
    let mut download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
    download.run(&[Move { after: 2, to: 1, ahead: 20, asks_again: false }]);
    assert_eq!(download.received, file, "the overlap reaches to where it ended");

    let mut download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
    download.run(&[Move { after: 2, to: 1, ahead: 800, asks_again: true }]);
    assert_eq!(download.received, file, "it is asked again from where the first one stopped");

    let mut download = Download::begin(&mut origins, asking(None), &TERMS).unwrap();
    download.go_on(1, 900).unwrap();
    let piece = download.pieces.next().unwrap();
    let seam = download.seam.as_mut().unwrap();
    assert_eq!(seam.take(&mut download.transfer, piece), Err(SeamError::Gap));
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::None),
        2 => (0..3000usize).prop_map(Fault::ResetAfter),
        5 => prop::sample::select(&Fault::ALL[..]),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (0..12usize, 0..6usize, prop_oneof![Just(0u64), 0..600u64], any::<bool>());
    let one = one.prop_map(|(after, to, ahead, asks_again)| Move { after, to, ahead, asks_again });
    prop::collection::vec(one, 0..12)
}

/// A file and six origins of it.
fn worlds(faults: impl Strategy<Value = Fault>) -> impl Strategy<Value = (Bytes, Vec<Origin>)> {
    let file = prop::collection::vec(any::<u8>(), 1..3000).prop_map(Bytes::from);
    (file, prop::collection::vec((faults, 1..700usize), 6)).prop_map(|(file, origins)| {
        let origin = |(fault, piece_len)| Origin::new(file.clone(), fault, piece_len);
        (file.clone(), origins.into_iter().map(origin).collect())
    })
}

fn ranges() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        (0..3000usize).prop_map(|first| Some(format!("bytes={first}-"))),
        (0..3000usize, 0..3000usize).prop_map(|(first, more)| Some(format!("bytes={first}-{}", first + more))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_client_gets_one_version_or_a_visible_cut(
        (file, mut origins) in worlds(faults()), range in ranges(), moves in moves(), overlap in 1..100usize,
        declared in prop::option::of(1..100usize),
    ) {
        let equality = declared.map_or(Equality::Proven, |compared_min| Equality::Declared { compared_min });
        let request = asking(range.as_deref());
        let Ok(mut download) = Download::begin(&mut origins, request, &TransferConditions { overlap, equality }) else {
            return Ok(());
        };
        download.run(&moves);
        prop_assert!(download.is_beginning_of(&file) || download.is_beginning_of(&other(&file)));
        let (promised, received) = (download.transfer.range(), download.received.len() as u64);
        prop_assert_eq!(download.transfer.position(), promised.start + received);
        prop_assert_eq!(download.transfer.is_complete(), promised.start + received == promised.end);
    }

    #[test]
    fn an_honest_origin_ends_what_others_begin(
        (file, mut origins) in worlds((0..3000usize).prop_map(Fault::ResetAfter)),
        moves in moves(),
        overlap in 0..100usize,
    ) {
        origins.push(Origin::new(file.clone(), Fault::None, 100));
        let conditions = TransferConditions { overlap, equality: Equality::Proven };
        let mut download = Download::begin(&mut origins, asking(None), &conditions).unwrap();
        download.run(&moves);
        download.run(&[Move { after: 0, to: 6, ahead: 0, asks_again: false }]);
        prop_assert!(download.transfer.is_complete());
        prop_assert_eq!(download.received, file);
    }
}
