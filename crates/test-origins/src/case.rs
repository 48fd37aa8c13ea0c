//! The ways in which origins are wrong, and what is due.

use std::time::Duration;

use crate::origin::{Manners, Origin};
use crate::resource::Resource;

/// One way in which origins are wrong when a transfer is to go on.
///
/// ```text
///   client <-- proxy <-- first   begins the transfer, and fails on the way
///                   <-- second   is asked for the rest, and misbehaves
///                   <-- third    (if the test has one) is as it should be
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// For messages.
    pub name: &'static str,
    /// What is wrong, as a sentence about the second origin, or about both.
    pub does: &'static str,
    /// What is due.
    pub verdict: Verdict,
    first: &'static [(Moment, Fault)],
    second: &'static [(Moment, Fault)],
}

/// What a client must see of a transfer that was to go on at the second origin.
///
/// Whatever the case: what the client gets is what the first origin has, up to where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// What the second sends is right as far as it goes. The client gets all of it, with a third origin at the latest.
    Continues,
    /// Not a byte of the second may be used, if some bytes at least are repeated and compared. The client gets all if
    /// there is a third, and else sees that it did not.
    Refused,
    /// The transfer cannot move, whoever is there. The client sees that it is incomplete.
    Incomplete,
    /// The second lies, and nobody can know. The client gets wrong bytes.
    Undetectable,
}

/// Which requests a [`Fault`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// All, HEAD and [probes](crate::Asked::is_probe) among them.
    Always,
    /// Each GET that is no probe.
    Transfer,
    /// Each GET for everything.
    Whole,
    /// Each GET for a range that is no probe.
    Ranged,
}

/// What may be wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 200 and everything.
    Everything,
    /// `Accept-Ranges: none`, and everything.
    NoRanges,
    /// Everything, if the range is open (`bytes=5-`).
    NoOpenRanges,
    /// Another range than was asked for, and it says so: so many bytes later (earlier, if negative) at its ends.
    OtherRange {
        /// Of the first byte.
        first: i64,
        /// Of the last byte.
        last: i64,
    },
    /// Another range than it says: one byte too early.
    Shifted,
    /// `Content-Range: items 5-9/10`.
    OtherUnit,
    /// 206 without a `Content-Range`.
    NoContentRange,
    /// `Content-Range` with a total of one more.
    OtherTotal,
    /// `Content-Range` with the total `*`.
    UnknownTotal,
    /// `multipart/byteranges`, with one part.
    Multipart,
    /// 416.
    Unsatisfiable,
    /// Other validators.
    OtherValidators,
    /// A weak tag, and no date.
    WeakTag,
    /// No validator.
    NoValidators,
    /// The same validators over other bytes.
    OtherBytes,
    /// The same validators over other bytes, of which only the first that is asked for is another one.
    OtherFirstByte,
    /// The same validators over other bytes, of which only the last that is asked for is another one.
    OtherLastByte,
    /// Somebody put other bytes there, with validators of their own: so many more of them, or fewer.
    Replaced {
        /// By how much the new ones are more, in bytes.
        longer: i64,
    },
    /// `Content-Encoding: gzip`, unasked.
    Gzip,
    /// Chunks instead of a length.
    Chunked,
    /// A FIN after half of the body.
    Short,
    /// More bytes than were announced.
    Long,
    /// Another answer: this status, with a short text; redirects lead to `/elsewhere`.
    Status(u16),
    /// Something that is no HTTP.
    Garbage,
    /// Field after field, without end.
    EndlessHead,
    /// Early hints before the answer.
    Interim,
    /// Two lengths that differ.
    TwoLengths,
    /// A length, and chunks.
    LengthAndChunks,
    /// A field that goes on in the next line (RFC 9112, section 5.2).
    FoldedField,
    /// So many bytes of the body at a time.
    Drip {
        /// How many, in bytes.
        bytes: usize,
        /// How often.
        every: Duration,
    },
    /// After so many bytes of the body, one byte at a time.
    Crawl {
        /// Offset in the body, in bytes.
        after: u64,
        /// The time between two bytes.
        every: Duration,
    },
    /// Nothing more after so many bytes of the body; the connection stays.
    Stall {
        /// How many, in bytes.
        after: u64,
    },
    /// A FIN after so many bytes of the body.
    Fin {
        /// How many, in bytes.
        after: u64,
    },
    /// A RST after so many bytes of the body. Should the other side take none for seconds, some of them are lost with
    /// it.
    Reset {
        /// How many, in bytes.
        after: u64,
    },
    /// The same, and all connections end, and no more are taken.
    Death {
        /// After how many bytes of this body.
        after: u64,
    },
    /// No connection is taken, whatever the moment.
    Refuses,
}

/// The two origins of a [`Case`].
#[derive(Debug)]
pub struct Stage {
    /// Where the transfer begins, and fails.
    pub first: Origin,
    /// Where it is to go on.
    pub second: Origin,
}

impl Case {
    /// Starts the two origins with copies of a resource. The first fails every transfer by `failure`, for instance
    /// `Fault::Death { after: 100_000 }`.
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
    /// All of them.
    pub const ALL: &[Case] = {
        use Fault as F;
        use Moment::{Always, Ranged, Transfer, Whole};
        use Verdict::{Continues, Incomplete, Refused, Undetectable};
        const MOMENT: Duration = Duration::from_millis(5);
        const SOME: u64 = 10_000;
        const STEP: Duration = Duration::from_millis(50);
        &[
            second("good", "does nothing wrong", &[], Continues),
            // Another part than was asked for.
            second("everything", "sends everything", &[(Ranged, F::Everything)], Refused),
            second("no ranges", "knows no ranges, and says so", &[(Always, F::NoRanges)], Refused),
            second("no open ranges", "refuses open ranges alone", &[(Always, F::NoOpenRanges)], Continues),
            second("early", "begins a byte early", &[(Ranged, F::OtherRange { first: -1, last: 0 })], Refused),
            second("late", "begins a byte late", &[(Ranged, F::OtherRange { first: 1, last: 0 })], Refused),
            second("ends early", "ends a byte early", &[(Ranged, F::OtherRange { first: 0, last: -1 })], Refused),
            second("ends late", "ends a byte late", &[(Ranged, F::OtherRange { first: 0, last: 1 })], Refused),
            second("shifted", "sends another range than it says", &[(Ranged, F::Shifted)], Refused),
            second("other unit", "counts items", &[(Ranged, F::OtherUnit)], Refused),
            second("no Content-Range", "does not say what it sends", &[(Ranged, F::NoContentRange)], Refused),
            second("other total", "says that there is a byte more", &[(Ranged, F::OtherTotal)], Refused),
            second("unknown total", "does not say how much there is", &[(Ranged, F::UnknownTotal)], Refused),
            second("multipart", "sends one part of many", &[(Ranged, F::Multipart)], Refused),
            second("416", "has no such range", &[(Ranged, F::Unsatisfiable)], Refused),
            // Another thing than was asked for.
            second("other validators", "sends it with other validators", &[(Ranged, F::OtherValidators)], Refused),
            second("weak", "sends it with a weak tag", &[(Ranged, F::WeakTag)], Refused),
            second("no validators", "sends it without validators", &[(Ranged, F::NoValidators)], Refused),
            second("replaced", "has got another file of that length", &[(Ranged, F::Replaced { longer: 0 })], Refused),
            second("longer", "has got a longer file", &[(Ranged, F::Replaced { longer: 7 })], Refused),
            second("shorter", "has got a shorter file", &[(Ranged, F::Replaced { longer: -7 })], Refused),
            second("other bytes", "has other bytes, all of them", &[(Ranged, F::OtherBytes)], Refused),
            second("other first byte", "has another byte first", &[(Ranged, F::OtherFirstByte)], Refused),
            second("other last byte", "has another byte at the end", &[(Ranged, F::OtherLastByte)], Undetectable),
            second("gzip", "compresses, though identity was asked for", &[(Ranged, F::Gzip)], Refused),
            // Another length than was announced.
            second("short", "closes after half of it", &[(Ranged, F::Short)], Continues),
            second("long", "sends more than it announced", &[(Ranged, F::Long)], Continues),
            second("long in chunks", "sends more than a range", &[(Ranged, F::Chunked), (Ranged, F::Long)], Continues),
            // Another answer.
            second("301", "moved", &[(Ranged, F::Status(301))], Refused),
            second("302", "redirects", &[(Ranged, F::Status(302))], Refused),
            second("307", "redirects for now", &[(Ranged, F::Status(307))], Refused),
            second("401", "asks who it is", &[(Ranged, F::Status(401))], Refused),
            second("403", "forbids it", &[(Ranged, F::Status(403))], Refused),
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
            second("refuses", "takes no connection", &[(Always, F::Refuses)], Refused),
            // In its own time.
            second("drip", "takes its time", &[(Transfer, F::Drip { bytes: 8192, every: MOMENT })], Continues),
            second("stall", "stops in the middle", &[(Ranged, F::Stall { after: SOME })], Continues),
            second("stall at once", "sends its head alone", &[(Ranged, F::Stall { after: 0 })], Continues),
            second("crawl", "goes on byte by byte", &[(Ranged, F::Crawl { after: SOME, every: STEP })], Continues),
            second("crawl at once", "sends byte by byte", &[(Ranged, F::Crawl { after: 0, every: STEP })], Continues),
            second("fin", "closes in the middle", &[(Ranged, F::Fin { after: SOME })], Continues),
            second("fin at once", "closes after its head", &[(Ranged, F::Fin { after: 0 })], Continues),
            second("reset", "resets in the middle", &[(Ranged, F::Reset { after: SOME })], Continues),
            second("reset at once", "resets after its head", &[(Ranged, F::Reset { after: 0 })], Continues),
            // What was never movable.
            both("no validators anywhere", "has none, as the first", &[(Always, F::NoValidators)], Incomplete),
            Case {
                name: "weak anywhere",
                does: "has other bytes under the weak tag of the first",
                verdict: Incomplete,
                first: &[(Always, F::WeakTag)],
                second: &[(Always, F::WeakTag), (Always, F::OtherBytes)],
            },
            both("gzip anywhere", "compresses, as the first", &[(Always, F::Gzip)], Incomplete),
            both("chunks anywhere", "does not say how long it is, as the first", &[(Whole, F::Chunked)], Incomplete),
            both("no ranges anywhere", "knows no ranges, as the first", &[(Always, F::NoRanges)], Incomplete),
        ]
    };
}
