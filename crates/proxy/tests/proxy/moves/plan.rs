//! The events of one case.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use watari_test_origins::{Content, Fault, Manners, Moment, Origin, Resource};

/// A file, its origins, the client's request, and the moves.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    seed: u64,
    /// The length of the file, in bytes.
    pub(crate) len: u64,
    /// The requested range: from the first byte to the last, or to the end.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// The faults of the origins. The first one responds first, and is honest.
    pub(crate) origins: Vec<Vec<(Moment, Fault)>>,
    /// The orders: after how many received bytes, and to which origin.
    pub(crate) orders: Vec<(u64, prop::sample::Index)>,
    /// Whether the proxy uses HTTP/2 with the origins.
    pub(crate) http2: bool,
}

impl Plan {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        (1..LEN_MAX).prop_flat_map(|len| {
            let range = prop::option::weighted(0.3, (0..len, prop::option::of(0..len)));
            let range = range.prop_map(|range| range.filter(|(first, last)| last.is_none_or(|last| *first <= last)));
            let origins = (first(len), vec(other(len), 0..4)).prop_map(|(first, others)| {
                let mut origins = vec![first];
                origins.extend(others);
                origins
            });
            let orders = vec((0..len, any::<prop::sample::Index>()), 0..4);
            (any::<u64>(), range, origins, orders, any::<bool>()).prop_map(
                move |(seed, range, origins, orders, http2)| Self { seed, len, range, origins, orders, http2 },
            )
        })
    }

    pub(crate) fn content(&self) -> Content {
        Content::generated(self.seed, self.len)
    }

    /// Starts the origins. Each one sends its number.
    pub(crate) fn start(&self) -> Vec<Origin> {
        let start = |(number, faults): (usize, &Vec<_>)| {
            let fields = vec![(NUMBER.to_owned(), number.to_string())];
            let resource = Resource { fields, ..Resource::new(self.content()) };
            Origin::start_with(resource, Manners { faults: faults.clone(), ..Manners::default() })
        };
        self.origins.iter().enumerate().map(start).collect()
    }
}

/// The field with the number of an origin, from 0.
pub(crate) const NUMBER: &str = "x-origin";

/// Longer than the content of all buffers on the way.
const LEN_MAX: u64 = 1 << 20;

/// Often the first origin fails, at any byte.
fn first(len: u64) -> impl Strategy<Value = Vec<(Moment, Fault)>> {
    prop_oneof![
        1 => Just(Vec::new()),
        4 => failure(len).prop_map(|fault| vec![(Moment::Transfer, fault)]),
        1 => failure(len).prop_map(|fault| vec![(Moment::Whole, fault)]),
        1 => Just(vec![DRIP]),
    ]
}

fn other(len: u64) -> impl Strategy<Value = Vec<(Moment, Fault)>> {
    let lie = || prop::sample::select(LIES).prop_map(|fault| (Moment::Ranged, fault));
    let failure = || failure(len).prop_map(|fault| (Moment::Transfer, fault));
    prop_oneof![
        3 => Just(Vec::new()),
        3 => failure().prop_map(|failure| vec![failure]),
        3 => lie().prop_map(|lie| vec![lie]),
        1 => (lie(), failure()).prop_map(|(lie, failure)| vec![lie, failure]),
        1 => Just(vec![DRIP]),
        1 => Just(vec![(Moment::Always, Fault::Refuses)]),
    ]
}

fn failure(len: u64) -> impl Strategy<Value = Fault> {
    (1..=len, 0..7).prop_map(|(after, kind)| match kind {
        0 | 1 => Fault::Reset { after },
        2 | 3 => Fault::Fin { after },
        4 => Fault::Death { after },
        5 => Fault::Crawl { after, every: Duration::from_millis(20) },
        _ => Fault::Stall { after },
    })
}

const DRIP: (Moment, Fault) = (Moment::Transfer, Fault::Drip { bytes: 16_384, every: Duration::from_millis(1) });

/// All faults that can be detected. A single different byte can be detected only if it is repeated.
const LIES: &[Fault] = &[
    Fault::Everything,
    Fault::NoRanges,
    Fault::NoOpenRanges,
    Fault::OtherRange { first: -1, last: 0 },
    Fault::OtherRange { first: 1, last: 0 },
    Fault::OtherRange { first: 0, last: -1 },
    Fault::OtherRange { first: 0, last: 1 },
    Fault::OtherRange { first: -1, last: -1 },
    Fault::Shifted,
    Fault::OtherUnit,
    Fault::NoContentRange,
    Fault::OtherTotal,
    Fault::UnknownTotal,
    Fault::Multipart,
    Fault::Unsatisfiable,
    Fault::OtherValidators,
    Fault::WeakTag,
    Fault::NoValidators,
    Fault::OtherBytes,
    Fault::Replaced { longer: 0 },
    Fault::Replaced { longer: 7 },
    Fault::Replaced { longer: -7 },
    Fault::Gzip,
    Fault::Chunked,
    Fault::Short,
    Fault::Long,
    Fault::Status(200),
    Fault::Status(302),
    Fault::Status(401),
    Fault::Status(404),
    Fault::Status(503),
    Fault::Garbage,
    Fault::EndlessHead,
    Fault::Interim,
    Fault::TwoLengths,
    Fault::LengthAndChunks,
    Fault::FoldedField,
];
