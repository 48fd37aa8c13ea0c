//! The behavior of a server, by raw requests.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use watari_test_origins::Content;
use watari_test_origins::raw::{self, Answer};
use watari_test_origins::real::Docroot;

use crate::moves::moves;

/// The facts about a server, from two instances with their own copies of the same files.
pub(crate) struct Facts {
    accept_ranges: String,
    etag: &'static str,
    fresh_etag: &'static str,
    last_modified: bool,
    head_is_the_same: bool,
    closed_range: bool,
    if_range_tag: Precondition,
    if_range_date: Precondition,
    if_match: Precondition,
    coding: &'static str,
    copies: Copies,
    copies_of_whole_seconds: Copies,
    copies_of_other_times: Copies,
    moves: &'static str,
}

impl Facts {
    /// The first server has the [`originals`], the second the [`copies`].
    pub(crate) fn find(first: SocketAddr, second: SocketAddr) -> Self {
        // The first request, for which a cache has to fetch the file. It is repeated later, when the cache may have the
        // file.
        let cold = range(first, &[]);
        let (whole, fresh) = (get(first, "same.txt", &[]), get(first, "fresh.txt", &[]));
        let head = raw::ask(first, "HEAD", "/same.txt", &IDENTITY).unwrap();
        let (tag, date) = (whole.field("etag"), whole.field("last-modified"));
        let compare = |name| Copies::compare(&get(first, name, &[]), &get(second, name, &[]));
        Self {
            accept_ranges: whole.field("accept-ranges").unwrap_or("none").to_owned(),
            etag: strength(&whole),
            fresh_etag: strength(&fresh),
            last_modified: date.is_some(),
            head_is_the_same: ALIKE.iter().all(|name| head.field(name) == whole.field(name)) && head.body.is_empty(),
            closed_range: [cold, range(first, &[])].iter().all(|part| is_part(part) && is_of(part, &whole)),
            if_range_tag: tag.map_or(Precondition::Absent, |tag| if_range(first, tag, "\"another\"")),
            if_range_date: date.map_or(Precondition::Absent, |date| if_range(first, date, ANOTHER_DATE)),
            if_match: tag.map_or(Precondition::Absent, |tag| if_match(first, tag)),
            coding: coding(first, &whole),
            copies: compare("same.txt"),
            copies_of_whole_seconds: compare("whole.txt"),
            copies_of_other_times: compare("other.txt"),
            moves: moves(first, second, "/same.txt", &content()).err().unwrap_or("yes"),
        }
    }

    /// The cells of the server's line in the table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let yes = |fact| if fact { "yes" } else { "no" };
        let cells = [
            &self.accept_ranges,
            self.etag,
            self.fresh_etag,
            yes(self.last_modified),
            yes(self.head_is_the_same),
            yes(self.closed_range),
            self.if_range_tag.cell(),
            self.if_range_date.cell(),
            self.if_match.cell(),
            self.coding,
            self.copies.cell(),
            self.copies_of_whole_seconds.cell(),
            self.copies_of_other_times.cell(),
            self.moves,
        ];
        cells.map(str::to_owned).to_vec()
    }
}

/// Whether the condition of a request makes a difference.
#[derive(PartialEq, Eq)]
enum Precondition {
    /// There is no validator for a condition.
    Absent,
    Honoured,
    Ignored,
    /// The correct validator fails like a wrong one.
    NeverTrue,
}

impl Precondition {
    fn of(when_true: bool, when_false: bool) -> Self {
        match (when_true, when_false) {
            (true, false) => Self::Honoured,
            (true, true) => Self::Ignored,
            (false, _) => Self::NeverTrue,
        }
    }

    fn cell(&self) -> &'static str {
        match self {
            Self::Absent => "-",
            Self::Honoured => "honoured",
            Self::Ignored => "ignored",
            Self::NeverTrue => "never true",
        }
    }
}

/// Whether two servers' validators of a file and its copy agree.
#[derive(PartialEq, Eq)]
enum Copies {
    /// They send no validators.
    Unknown,
    Same,
    Different,
}

impl Copies {
    /// Compares the tags, or else the dates.
    fn compare(first: &Answer, second: &Answer) -> Self {
        let validator = |answer: &Answer| answer.field("etag").or(answer.field("last-modified")).map(str::to_owned);
        match (validator(first), validator(second)) {
            (None, _) | (_, None) => Self::Unknown,
            (first, second) if first == second => Self::Same,
            _ => Self::Different,
        }
    }

    fn cell(&self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::Same => "same",
            Self::Different => "different",
        }
    }
}

/// A directory with one file.
pub(crate) fn root_of(name: &str, content: &Content) -> Docroot {
    let root = Docroot::new().unwrap();
    root.put(name, content, modified()).unwrap();
    root
}

/// The original files.
pub(crate) fn originals() -> Docroot {
    let root = Docroot::new().unwrap();
    for name in ["same.txt", "whole.txt", "other.txt"] {
        root.put(name, &content(), modified()).unwrap();
    }
    // This time is still in the future when the server is asked.
    root.put("fresh.txt", &content(), SystemTime::now() + Duration::from_mins(10)).unwrap();
    root
}

/// Copies of the files: one with the same time, one with its seconds only, and one of another day.
pub(crate) fn copies() -> Docroot {
    let root = Docroot::new().unwrap();
    root.put("same.txt", &content(), modified()).unwrap();
    root.put("whole.txt", &content(), whole_second()).unwrap();
    root.put("other.txt", &content(), modified() + Duration::from_hours(24)).unwrap();
    root
}

fn modified() -> SystemTime {
    whole_second() + Duration::from_nanos(123_456_789)
}

/// 1 November 2026, 06:00:00.
fn whole_second() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(498_198)
}

/// Content that every compressing server compresses.
pub(crate) fn content() -> Content {
    Content::given("All work and no play makes Jack a dull boy.\n".repeat(7000))
}

fn get(address: SocketAddr, name: &str, fields: &[(&str, &str)]) -> Answer {
    let fields = [&IDENTITY, fields].concat();
    raw::ask(address, "GET", &format!("/{name}"), &fields).unwrap()
}

fn range(address: SocketAddr, fields: &[(&str, &str)]) -> Answer {
    let fields = [&[("Range", "bytes=1000-250000")], fields].concat();
    get(address, "same.txt", &fields)
}

/// Whether it is the answer to [`range`].
fn is_part(answer: &Answer) -> bool {
    let said = format!("bytes 1000-250000/{}", content().len());
    answer.status == 206 && answer.field("content-range") == Some(&said) && answer.body == content().at(1000, 249_001)
}

/// Whether the `Content-Range` of a part fits the whole.
fn is_of(part: &Answer, whole: &Answer) -> bool {
    ["etag", "last-modified"].iter().all(|name| part.field(name) == whole.field(name))
}

fn if_range(address: SocketAddr, validator: &str, another: &str) -> Precondition {
    let is_met = |validator| is_part(&range(address, &[("If-Range", validator)]));
    Precondition::of(is_met(validator), is_met(another))
}

fn if_match(address: SocketAddr, tag: &str) -> Precondition {
    let is_met = |tag| get(address, "same.txt", &[("If-Match", tag)]).status == 200;
    Precondition::of(is_met(tag), is_met("\"another\""))
}

fn strength(answer: &Answer) -> &'static str {
    match answer.field("etag") {
        None => "none",
        Some(tag) if tag.starts_with("W/") => "weak",
        Some(_) => "strong",
    }
}

/// The coding of a compressing server.
fn coding(address: SocketAddr, identity: &Answer) -> &'static str {
    let asked = raw::ask(address, "GET", "/same.txt", &[("Accept-Encoding", "gzip")]).unwrap();
    match (identity.field("content-encoding"), asked.field("content-encoding")) {
        (None, None) => "never",
        (None, Some(_)) => "when asked",
        (Some(_), _) => "always",
    }
}

const IDENTITY: [(&str, &str); 1] = [("Accept-Encoding", "identity")];

/// The fields that HEAD should send as GET does.
const ALIKE: [&str; 4] = ["etag", "last-modified", "content-length", "accept-ranges"];

const ANOTHER_DATE: &str = "Sat, 31 Oct 2026 06:00:00 GMT";
