//! Decisions are compared with those of `http-cache-semantics`, over generated requests and responses. Each difference
//! has one of the reasons of [`Reason`].
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, Request, Response, request, response};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use watari_cache::{KeyRules, Lifetimes, Received, RequestDirectives, Reuse, Rules, judge, reuse};

/// A response, the request that it answered, and a later request for the same target.
#[derive(Debug, Clone)]
struct Case {
    first: Vec<(&'static str, String)>,
    status: u16,
    response: Vec<(&'static str, String)>,
    second: Vec<(&'static str, String)>,
    seconds: u64,
}

/// Whether the second request can be answered without the origin.
type Answered = bool;

/// Why our decision differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// The crate stores responses with `Set-Cookie`. We never do.
    SetCookie,
    /// The crate compares names of directives by case, and so overlooks `Private` (RFC 9111, section 5.2).
    Case,
    /// For the crate, malformed numbers are unknown, or zero. For us they make a response stale, and a request strict
    /// (RFC 9111, section 4.2.1).
    Malformed,
    /// The crate does not know `must-understand` (RFC 9111, section 5.2.2.3).
    MustUnderstand,
    /// The crate does not know fields that are withheld, and takes `private="a"` for `private` (RFC 9111, section
    /// 5.2.2.7).
    Qualified,
    /// Repeated directives: the crate adds `must-revalidate`, and takes the first value. We take the strictest one (RFC
    /// 9111, section 4.2.1).
    Repeated,
    /// We store errors only with an explicit lifetime. The crate uses heuristics for some.
    HeuristicError,
    /// Statuses: the crate stores 13 ones. We store all that do not depend on the client.
    Status,
    /// The crate has no stale-while-revalidate (RFC 5861).
    StaleWhileRevalidate,
    /// For the crate, `immutable` is a lifetime of a day. RFC 8246 has no such lifetime.
    Immutable,
    /// The crate does not know `CDN-Cache-Control` (RFC 9213).
    Targeted,
    /// The crate has no longest heuristic lifetime, and we have one of a day.
    HeuristicMax,
    /// The crate parses the dates of mail, not those of HTTP: it takes other zones, and not the two obsolete formats
    /// (RFC 9110, section 5.6.7).
    Dates,
    /// For the crate, stale responses are allowed after `max-stale` without regard to `max-age` (RFC 9111, section
    /// 5.2.1.1), to `s-maxage`, and to `no-cache`.
    MaxStale,
    /// The crate looks at `Pragma` of requests with `Cache-Control`, too (RFC 9111, section 5.4).
    Pragma,
    /// The crate does not add the age that `Date` shows (RFC 9111, section 4.2.3).
    ApparentAge,
    /// For the crate, `proxy-revalidate` makes a response stale at once (RFC 9111, section 5.2.2.8).
    ProxyRevalidate,
}

const REASONS: usize = Reason::ProxyRevalidate as usize + 1;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)
}

fn headers(fields: &[(&'static str, String)]) -> http::HeaderMap {
    fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

fn request(fields: &[(&'static str, String)]) -> request::Parts {
    let mut request = Request::builder().uri("http://h.example/a").body(()).unwrap().into_parts().0;
    request.headers = headers(fields);
    request
}

impl Case {
    fn response(&self) -> response::Parts {
        let mut response = Response::builder().status(self.status).body(()).unwrap().into_parts().0;
        response.headers = headers(&self.response);
        response
    }

    fn ours(&self) -> Answered {
        let rules = Rules {
            key: KeyRules::default(),
            lifetimes: Lifetimes::default(),
            object_bytes_max: u64::MAX,
            whole_on_range: true,
        };
        let received = Received { requested: now(), responded: now() };
        let Ok((terms, _)) = judge(&request(&self.first), &self.response(), received, &rules) else {
            return false;
        };
        let directives = RequestDirectives::of(&headers(&self.second));
        reuse(&terms, &directives, now() + Duration::from_secs(self.seconds)) != Reuse::Validate
    }

    fn theirs(&self) -> Answered {
        let options = CacheOptions::default();
        let policy = CachePolicy::new_options(&request(&self.first), &self.response(), now(), options);
        let later = now() + Duration::from_secs(self.seconds);
        policy.is_storable() && matches!(policy.before_request(&request(&self.second), later), BeforeRequest::Fresh(_))
    }

    fn all<'a>(fields: &'a [(&'static str, String)], name: &'a str) -> impl Iterator<Item = &'a str> {
        fields.iter().filter(move |field| field.0 == name).map(|field| field.1.as_str())
    }

    /// The directives of the response, and of the second request.
    fn directives(&self) -> [Vec<&str>; 2] {
        [&self.response, &self.second].map(|fields| {
            let lines = Self::all(fields, "cache-control");
            lines.flat_map(|line| line.split(',')).map(str::trim).filter(|text| !text.is_empty()).collect()
        })
    }

    /// The reason for which our decision may differ. Each is as narrow as its description.
    fn reason(&self, ours: Answered) -> Option<Reason> {
        let [response, second] = self.directives();
        let has = |wanted: &str| response.iter().any(|text| text.split('=').next() == Some(wanted));
        let asks = |wanted: &str| second.iter().any(|text| text.split('=').next() == Some(wanted));
        let all = || response.iter().chain(&second);
        let is_malformed = |text: &&&str| {
            let takes_time =
                ["max-age", "s-maxage", "min-fresh", "max-stale"].iter().find(|name| text.starts_with(*name));
            let value = text.split_once('=').map(|(_, value)| value.trim_matches('"'));
            let is_number =
                value.is_some_and(|value| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()));
            takes_time.is_some() && !is_number && **text != "max-stale"
        };
        let is_explicit = has("max-age") || has("s-maxage") || self.response.iter().any(|(name, _)| *name == "expires");
        let stored_statuses = [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501];
        let has_repeated = [&response, &second].into_iter().any(|directives| {
            let mut names: Vec<_> = directives.iter().map(|text| text.split('=').next()).collect();
            names.sort_unstable();
            names.dedup();
            names.len() < directives.len()
        });
        let reasons = [
            (Reason::SetCookie, !ours && Self::all(&self.response, "set-cookie").next().is_some()),
            (Reason::Case, all().any(|text| text.bytes().any(|byte| byte.is_ascii_uppercase()))),
            (Reason::Malformed, !ours && all().any(|text| is_malformed(&text))),
            (Reason::MustUnderstand, has("must-understand")),
            (Reason::Qualified, response.iter().any(|text| text.contains("=\"a\""))),
            (Reason::Repeated, has_repeated),
            (Reason::HeuristicError, !ours && self.status >= 400 && !is_explicit),
            (Reason::Status, ours && !stored_statuses.contains(&self.status) && is_explicit),
            (Reason::StaleWhileRevalidate, ours && has("stale-while-revalidate")),
            (Reason::Immutable, !ours && has("immutable")),
            (Reason::Targeted, Self::all(&self.response, "cdn-cache-control").next().is_some()),
            (Reason::HeuristicMax, !ours && !is_explicit && self.seconds >= 86_400),
            (Reason::Dates, self.response.iter().any(|(_, value)| value.contains("-20 ") || value.contains("+0000"))),
            (Reason::MaxStale, asks("max-stale")),
            (Reason::Pragma, ours && !second.is_empty() && Self::all(&self.second, "pragma").next().is_some()),
            (Reason::ApparentAge, !ours && Self::all(&self.response, "date").any(|date| date.contains("12:26:00"))),
            (Reason::ProxyRevalidate, ours && has("proxy-revalidate")),
        ];
        reasons.into_iter().find(|(_, applies)| *applies).map(|(reason, _)| reason)
    }
}

fn fields(choices: Vec<(&'static str, Vec<&'static str>)>) -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let choices: Vec<_> = choices
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name, value.to_owned())))
        .collect();
    prop::collection::vec(prop::sample::select(choices), 0..5).prop_map(|mut fields| {
        let all = fields.clone();
        let mut at = 0;
        // The crate reads only the first line of other fields. Our tests beside the code have repeated ones.
        fields.retain(|(name, _)| {
            at += 1;
            *name == "cache-control" || all[..at - 1].iter().all(|(earlier, _)| earlier != name)
        });
        fields
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let response = fields(vec![
        (
            "cache-control",
            vec![
                "max-age=60",
                "max-age=60, public",
                "s-maxage=30",
                "max-age=0",
                "max-age=60, must-revalidate",
                "no-cache",
                "no-store",
                "private",
                "public",
                "max-age=60, s-maxage=0",
                "max-age=x",
                "max-age=\"60\"",
                "Private",
                "private=\"a\"",
                "no-cache=\"a\", max-age=60",
                "max-age=60, stale-while-revalidate=60",
                "immutable",
                "must-understand, no-store, max-age=60",
                "max-age=60, proxy-revalidate",
                "foo, max-age=99999999999",
            ],
        ),
        (
            "expires",
            vec![
                "Sun, 13 Sep 2020 12:27:40 GMT",
                "Sun, 13 Sep 2020 12:00:00 GMT",
                "0",
                "Sunday, 13-Sep-20 12:27:40 GMT",
                "Sun, 13 Sep 2020 12:27:40 +0000",
            ],
        ),
        (
            "date",
            vec!["Sun, 13 Sep 2020 12:26:40 GMT", "Sun, 13 Sep 2020 12:26:00 GMT", "Sun, 13 Sep 2020 12:27:20 GMT"],
        ),
        ("last-modified", vec!["Sun, 13 Sep 2020 12:10:00 GMT", "Wed, 13 Sep 2000 12:10:00 GMT"]),
        ("age", vec!["0", "30", "90", "-5"]),
        ("etag", vec!["\"a\""]),
        ("set-cookie", vec!["a=b"]),
        ("vary", vec!["*", "accept"]),
        ("cdn-cache-control", vec!["max-age=30"]),
        ("pragma", vec!["no-cache"]),
    ]);
    let first = fields(vec![
        ("authorization", vec!["x"]),
        ("cache-control", vec!["no-store", "max-age=0"]),
        ("accept", vec!["a"]),
    ]);
    let second = fields(vec![
        (
            "cache-control",
            vec!["no-cache", "max-age=0", "max-age=20", "min-fresh=20", "max-stale", "max-stale=20", "foo"],
        ),
        ("pragma", vec!["no-cache", "foo"]),
    ]);
    let statuses = vec![200, 200, 200, 203, 204, 299, 301, 302, 308, 400, 404, 410, 500, 501, 503, 599];
    let seconds = prop::sample::select(vec![0, 10, 29, 31, 59, 61, 90, 3_000, 100_000]);
    (first, prop::sample::select(statuses), response, second, seconds).prop_map(
        |(first, status, response, mut second, seconds)| {
            // Whether a variant matches is a matter of keys.
            second.extend(first.iter().filter(|(name, _)| *name == "accept").cloned());
            Case { first, status, response, second, seconds }
        },
    )
}

#[test]
fn each_difference_has_a_reason() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner =
        TestRunner::new_with_rng(Config { cases: 100_000, failure_persistence: None, ..Config::default() }, rng);
    let counts = std::cell::RefCell::new(BTreeMap::new());
    let result = runner.run(&cases(), |case| {
        let (ours, theirs) = (case.ours(), case.theirs());
        if ours != theirs {
            let reason = case.reason(ours);
            prop_assert!(reason.is_some(), "ours: {ours}, theirs: {theirs}");
            *counts.borrow_mut().entry(reason).or_insert(0) += 1;
        } else if ours {
            *counts.borrow_mut().entry(None).or_insert(0) += 1;
        }
        Ok(())
    });
    result.unwrap();
    let counts = counts.into_inner();
    println!("{counts:#?}");
    // The comparison means something: both answer many cases, and each reason occurs.
    assert!(counts[&None] > 1_000);
    assert_eq!(counts.len(), 1 + REASONS);
}
