//! Faults of origins, and the required results.

use std::time::Duration;

use crate::fault::{Fault, Moment};
use crate::origin::{Manners, Origin};
use crate::resource::Resource;

/// A fault of origins while a transfer has to continue.
///
/// ```text
///   client <-- proxy <-- first   begins the transfer, and fails within it
///                   <-- second   gets the request for the rest, and misbehaves
///                   <-- third    (if the test has one) is correct
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name in messages.
    pub name: &'static str,
    /// The fault, as a sentence about the second origin, or about both.
    pub does: &'static str,
    /// The required result.
    pub verdict: Verdict,
    first: &'static [(Moment, Fault)],
    second: &'static [(Moment, Fault)],
}

/// The required result for a client whose transfer was to continue at the second origin.
///
/// In each case, the client gets the bytes of the first origin, up to the end of what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The second origin's bytes are correct as far as they go. The client gets all bytes, from a third origin if
    /// necessary.
    Continues,
    /// No byte of the second origin may be used, if some bytes at least are repeated and compared. The client gets all
    /// bytes if there is a third origin. Otherwise it detects that the response is incomplete.
    Refused,
    /// The transfer cannot continue at any origin. The client detects that the response is incomplete.
    Incomplete,
    /// The fault cannot be detected. The client gets wrong bytes.
    Undetectable,
}

/// The two origins of a [`Case`].
#[derive(Debug)]
pub struct Stage {
    /// The transfer begins here, and fails.
    pub first: Origin,
    /// The transfer has to continue here.
    pub second: Origin,
}

impl Case {
    /// Starts the two origins with copies of a resource. Each transfer of the first one fails by `failure`, for
    /// instance `Fault::Death { after: 100_000 }`.
    pub fn stage(&self, resource: &Resource, failure: Fault) -> Stage {
        let mut faults = self.first.to_vec();
        faults.push((Moment::Transfer, failure));
        let start = |faults: Vec<_>| Origin::start_with(resource.clone(), Manners { faults, ..Manners::default() });
        Stage { first: start(faults), second: start(self.second.to_vec()) }
    }
}

const fn second(name: &'static str, does: &'static str, faults: &'static [(Moment, Fault)], verdict: Verdict) -> Case {
    Case { name, does, verdict, first: &[], second: faults }
}

const fn both(name: &'static str, does: &'static str, faults: &'static [(Moment, Fault)], verdict: Verdict) -> Case {
    Case { name, does, verdict, first: faults, second: faults }
}

impl Case {
    pub const ALL: &[Case] = {
        use Fault as F;
        use Moment::{Always, Ranged, Transfer, Whole};
        use Verdict::{Continues, Incomplete, Refused, Undetectable};
        const MOMENT: Duration = Duration::from_millis(5);
        const SOME: u64 = 10_000;
        const STEP: Duration = Duration::from_millis(50);
        &[
            second("good", "does nothing wrong", &[], Continues),
            // Another part than requested.
            second("everything", "sends everything", &[(Ranged, F::Everything)], Refused),
            second("no ranges", "supports no ranges, and announces it", &[(Always, F::NoRanges)], Refused),
            second("no open ranges", "refuses only open ranges", &[(Always, F::NoOpenRanges)], Continues),
            second("early", "begins a byte early", &[(Ranged, F::OtherRange { first: -1, last: 0 })], Refused),
            second("late", "begins a byte late", &[(Ranged, F::OtherRange { first: 1, last: 0 })], Refused),
            second("ends early", "ends a byte early", &[(Ranged, F::OtherRange { first: 0, last: -1 })], Refused),
            second("ends late", "ends a byte late", &[(Ranged, F::OtherRange { first: 0, last: 1 })], Refused),
            second("shifted", "sends another range than it says", &[(Ranged, F::Shifted)], Refused),
            second("other unit", "sends a range of items", &[(Ranged, F::OtherUnit)], Refused),
            second("no Content-Range", "sends no Content-Range", &[(Ranged, F::NoContentRange)], Refused),
            second("other total", "announces one byte more", &[(Ranged, F::OtherTotal)], Refused),
            second("unknown total", "announces no total length", &[(Ranged, F::UnknownTotal)], Refused),
            second("multipart", "sends one part of many", &[(Ranged, F::Multipart)], Refused),
            second("416", "has no such range", &[(Ranged, F::Unsatisfiable)], Refused),
            // Another content.
            second("other validators", "sends it with other validators", &[(Ranged, F::OtherValidators)], Refused),
            second("weak", "sends it with a weak tag", &[(Ranged, F::WeakTag)], Refused),
            second("no validators", "sends it without validators", &[(Ranged, F::NoValidators)], Refused),
            second("replaced", "has another file of the same length", &[(Ranged, F::Replaced { longer: 0 })], Refused),
            second("longer", "has a longer file", &[(Ranged, F::Replaced { longer: 7 })], Refused),
            second("shorter", "has a shorter file", &[(Ranged, F::Replaced { longer: -7 })], Refused),
            second("other bytes", "has other bytes, all of them", &[(Ranged, F::OtherBytes)], Refused),
            second("other first byte", "has another byte first", &[(Ranged, F::OtherFirstByte)], Refused),
            second("other last byte", "has another byte at the end", &[(Ranged, F::OtherLastByte)], Undetectable),
            second("gzip", "compresses in spite of identity", &[(Ranged, F::Gzip)], Refused),
            // Another length than announced.
            second("short", "closes after half of it", &[(Ranged, F::Short)], Continues),
            second("long", "sends more than it announced", &[(Ranged, F::Long)], Continues),
            second("long in chunks", "sends more than a range", &[(Ranged, F::Chunked), (Ranged, F::Long)], Continues),
            // Another answer.
            second("301", "redirects permanently", &[(Ranged, F::Status(301))], Refused),
            second("302", "redirects", &[(Ranged, F::Status(302))], Refused),
            second("307", "redirects temporarily", &[(Ranged, F::Status(307))], Refused),
            second("401", "requires authentication", &[(Ranged, F::Status(401))], Refused),
            second("403", "denies access", &[(Ranged, F::Status(403))], Refused),
            second("404", "has no such file", &[(Ranged, F::Status(404))], Refused),
            second("500", "fails", &[(Ranged, F::Status(500))], Refused),
            second("503", "is overloaded", &[(Ranged, F::Status(503))], Refused),
            // No answer.
            second("garbage", "sends garbage", &[(Ranged, F::Garbage)], Refused),
            second("endless head", "sends field after field", &[(Ranged, F::EndlessHead)], Refused),
            second("interim", "sends early hints before", &[(Ranged, F::Interim)], Continues),
            second("two lengths", "announces two lengths", &[(Ranged, F::TwoLengths)], Refused),
            second("length and chunks", "announces a length, and chunks", &[(Ranged, F::LengthAndChunks)], Refused),
            second("folded", "folds a field", &[(Ranged, F::FoldedField)], Refused),
            second("refuses", "accepts no connection", &[(Always, F::Refuses)], Refused),
            // Slow answers.
            second("drip", "sends slowly", &[(Transfer, F::Drip { bytes: 8192, every: MOMENT })], Continues),
            second("stall", "stops in the middle", &[(Ranged, F::Stall { after: SOME })], Continues),
            second("stall at once", "sends its head alone", &[(Ranged, F::Stall { after: 0 })], Continues),
            second("crawl", "goes on byte by byte", &[(Ranged, F::Crawl { after: SOME, every: STEP })], Continues),
            second("crawl at once", "sends byte by byte", &[(Ranged, F::Crawl { after: 0, every: STEP })], Continues),
            second("fin", "closes in the middle", &[(Ranged, F::Fin { after: SOME })], Continues),
            second("fin at once", "closes after its head", &[(Ranged, F::Fin { after: 0 })], Continues),
            second("reset", "resets in the middle", &[(Ranged, F::Reset { after: SOME })], Continues),
            second("reset at once", "resets after its head", &[(Ranged, F::Reset { after: 0 })], Continues),
            // Transfers that can never continue.
            both("no validators anywhere", "sends none, as the first", &[(Always, F::NoValidators)], Incomplete),
            Case {
                name: "weak anywhere",
                does: "has other bytes under the weak tag of the first",
                verdict: Incomplete,
                first: &[(Always, F::WeakTag)],
                second: &[(Always, F::WeakTag), (Always, F::OtherBytes)],
            },
            both("gzip anywhere", "compresses, as the first", &[(Always, F::Gzip)], Incomplete),
            both("chunks anywhere", "announces no length, as the first", &[(Whole, F::Chunked)], Incomplete),
            both("no ranges anywhere", "supports no ranges, as the first", &[(Always, F::NoRanges)], Incomplete),
        ]
    };
}
