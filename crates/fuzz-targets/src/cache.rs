//! A request, a response to it, and a 304, as text. What the cache stores keeps its invariants: nothing private, no
//! cookie, no field of a connection. A fresh response is younger than its lifetime. An answer states its length.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, request, response};
use watari_cache::{
    CacheStatus, Content, Key, KeyRules, Lifetimes, Received, RequestDirectives, ResponseDirectives, Reuse, Rules,
    Selected, StoredResponse, answer, groups, invalidated, invalidated_groups, judge, may_answer_stale, reuse,
    stored_fields, updated, updated_by_head, validation_request,
};

const CONTENT: &[u8] = b"0123456789";

/// Three heads with a NUL between: `GET /path`, `200` and `304`, with lines of fields below them.
pub(crate) fn run(text: &[u8]) {
    let mut heads = text.split(|&byte| byte == 0);
    let mut next = || heads.next().and_then(head);
    let (Some((line, fields)), Some((status, response))) = (next(), next()) else {
        return;
    };
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let Ok(request) = Request::builder().method(method).uri(target).body(()) else {
        return;
    };
    let mut request = request.into_parts().0;
    request.headers = fields;
    let response = with_status(status, response);
    invalidated("h.example", &request, &response);
    invalidated_groups(&response.headers);
    if let Some(stored) = stored(&request, &response) {
        check_uses(&stored, &request, next().map(|(status, fields)| with_status(status, fields)));
    }
}

/// The first line and the fields of a head. Lines that are no fields are left out.
fn head(text: &[u8]) -> Option<(&str, HeaderMap)> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let mut fields = HeaderMap::new();
    for line in lines.take(100) {
        let at = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (HeaderName::from_bytes(&line[..at]), HeaderValue::from_bytes(line[at + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    Some((first, fields))
}

fn with_status(status: &str, headers: HeaderMap) -> response::Parts {
    let mut response = Response::new(()).into_parts().0;
    response.status = StatusCode::from_bytes(status.as_bytes()).unwrap_or_default();
    response.headers = headers;
    response
}

fn rules() -> Rules {
    Rules {
        key: KeyRules::default(),
        lifetimes: Lifetimes { default: Some(Duration::from_mins(1)), ..Lifetimes::default() },
        object_bytes_max: 1000,
        whole_on_range: true,
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)
}

fn received() -> Received {
    Received { requested: now(), responded: now() }
}

fn stored(request: &request::Parts, response: &response::Parts) -> Option<StoredResponse> {
    let target = request.uri.path_and_query()?;
    let key = Key::of(&rules().key, b"policy", "h.example", target, &request.headers);
    let (terms, vary) = judge(request, response, received(), &rules()).ok()?;
    assert_ne!(key.variant(&vary, &request.headers), key);
    let directives = ResponseDirectives::of(&response.headers);
    assert!(!directives.private && (!directives.no_store || directives.must_understand));
    assert!(!response.headers.contains_key(SET_COOKIE) || directives.withheld.contains(&SET_COOKIE));
    assert_eq!(request.method, Method::GET);
    let stored = StoredResponse {
        url: "h.example/".into(),
        status: if response.status == 206 { StatusCode::OK } else { response.status },
        headers: stored_fields(&response.headers, now()),
        terms,
        content: Content::Inline(Bytes::from_static(CONTENT)),
        groups: groups(&response.headers),
        shared: None,
        purges: AtomicU64::new(0),
    };
    check_stored(&stored);
    Some(stored)
}

fn check_stored(stored: &StoredResponse) {
    assert!(stored.headers.contains_key(DATE));
    assert!(!stored.headers.contains_key(CONNECTION) && !stored.headers.contains_key(SET_COOKIE));
}

fn check_uses(stored: &StoredResponse, request: &request::Parts, not_modified: Option<response::Parts>) {
    let directives = RequestDirectives::of(&request.headers);
    for seconds in [0, 1, 59, 60, 3600] {
        let later = now() + Duration::from_secs(seconds);
        may_answer_stale(&stored.terms, &directives, later);
        if let Reuse::Fresh { age } = reuse(&stored.terms, &directives, later) {
            assert!(age < Duration::from_millis(stored.terms.lifetime_ms));
            check_answer(stored, request, age);
        }
    }
    check_answer(stored, request, Duration::MAX);
    let mut validation = request.clone();
    validation_request(&mut validation, stored, &rules());
    if let Some(not_modified) = not_modified {
        updated_by_head(stored, &validation, &not_modified, received(), &rules());
        if let Some(updated) = updated(stored, &validation, &not_modified, received(), &rules()) {
            check_stored(&updated);
            check_answer(&updated, request, Duration::ZERO);
        }
    }
}

fn check_answer(stored: &StoredResponse, request: &request::Parts, age: Duration) {
    let answer = answer(stored, request, age, &CacheStatus::default());
    let part_len = |part: &std::ops::Range<u64>| {
        assert!(part.start <= part.end && part.end <= CONTENT.len() as u64);
        part.end - part.start
    };
    let len = match &answer.selected {
        Selected::Nothing => 0,
        Selected::Part(part) => part_len(part),
        Selected::Parts(parts, end) => {
            parts.iter().map(|(text, part)| text.len() as u64 + part_len(part)).sum::<u64>() + end.len() as u64
        }
    };
    if let Some(stated) = answer.head.headers.get(CONTENT_LENGTH) {
        assert_eq!(stated.to_str().ok(), Some(&*len.to_string()));
    }
}
