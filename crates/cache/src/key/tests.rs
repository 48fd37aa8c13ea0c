#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |&(name, value): &(&str, &str)| -> (HeaderName, HeaderValue) {
        (name.parse().unwrap(), value.parse().unwrap())
    };
    fields.iter().map(field).collect()
}

fn key(rules: &KeyRules, host: &str, target: &str, fields: &[(&str, &str)]) -> Key {
    Key::of(rules, b"policy", host, &target.parse().unwrap(), &headers(fields))
}

/// RFC 9111, section 2: the key has at least the target.
#[test]
fn by_default_the_whole_target_counts() {
    let rules = KeyRules::default();
    let first = key(&rules, "a.example", "/p?q=1", &[("cookie", "a=1")]);
    assert_eq!(key(&rules, "A.Example", "/p?q=1", &[("cookie", "a=2")]), first);
    for (host, target) in [
        ("b.example", "/p?q=1"),
        ("a.example:8443", "/p?q=1"),
        ("a.example", "/P?q=1"),
        ("a.example", "/p?q=2"),
        ("a.example", "/p?Q=1"),
        ("a.example", "/p"),
        ("a.example", "/p?"),
        ("a.example", "/p/?q=1"),
        ("a.example", "/%70?q=1"),
        ("a.example", "/p;q=1"),
    ] {
        assert_ne!(key(&rules, host, target, &[]), first, "{host}{target}");
    }
    let target = "/p?q=1".parse().unwrap();
    assert_ne!(Key::of(&rules, b"other", "a.example", &target, &HeaderMap::new()), first);
}

/// A field that a server could take for one that counts is never left out.
#[test]
fn selected_fields_of_the_query() {
    let only = QueryRule::Only(vec!["a".to_owned(), "b_c".to_owned()]);
    let except = QueryRule::Except(vec!["utm".to_owned()]);
    for (rule, query, expected) in [
        (&QueryRule::Whole, "x=1&a=2", "x=1&a=2"),
        (&only, "x=1&a=2&y&b_c=3", "a=2&b_c=3"),
        (&only, "b_c=3&a=2", "b_c=3&a=2"),
        (&only, "a", "a"),
        (&only, "a=1&a=2", "a=1&a=2"),
        (&only, "A=1", "A=1"),
        (&only, "%61=1", "%61=1"),
        (&only, "x=1;a=2", "x=1;a=2"),
        (&only, "b.c=1", "b.c=1"),
        (&only, "b+c=1", "b+c=1"),
        (&only, "a[]=1", "a[]=1"),
        (&only, "x=1&&y=2", ""),
        (&except, "utm=1&x=2", "x=2"),
        (&except, "UTM=1&utm_x=3", "UTM=1&utm_x=3"),
        (&except, "utm=1;x=2", "utm=1;x=2"),
        (&except, "utm", ""),
    ] {
        assert_eq!(rule.select(query), expected, "{query}");
    }
}

#[test]
fn selected_fields_and_cookies() {
    let rules = KeyRules {
        headers: vec![HeaderName::from_static("x-device")],
        cookies: vec!["tier".to_owned()],
        ..KeyRules::default()
    };
    let first = key(&rules, "h", "/", &[("x-device", "m"), ("cookie", "a=1; tier=2")]);
    assert_eq!(key(&rules, "h", "/", &[("x-device", "m"), ("cookie", "tier=2 ; b=3")]), first);
    for fields in [
        &[("x-device", "d"), ("cookie", "tier=2")][..],
        &[("cookie", "tier=2")],
        &[("x-device", ""), ("cookie", "tier=2")],
        &[("x-device", "m")],
        &[("x-device", "m"), ("cookie", "tier=")],
        &[("x-device", "m"), ("cookie", "tier=2; tier=3")],
        &[("x-device", "m"), ("cookie", "Tier=2")],
    ] {
        assert_ne!(key(&rules, "h", "/", fields), first, "{fields:?}");
    }
}

/// RFC 9111, section 4.1.
#[test]
fn variants() {
    let vary = Vary::of(&headers(&[("vary", "Accept-Encoding, Foo")])).unwrap();
    let base = key(&KeyRules::default(), "h", "/", &[]);
    let variant = |fields: &[(&str, &str)]| base.variant(&vary, &headers(fields));
    let first = variant(&[("accept-encoding", "gzip, br"), ("foo", "1, 2"), ("other", "2")]);
    assert_eq!(variant(&[("foo", "1"), ("foo", "2"), ("accept-encoding", "GZIP,br"), ("other", "3")]), first);
    for fields in [
        &[("accept-encoding", "gzip, br"), ("foo", "1")][..],
        &[("accept-encoding", "br, gzip"), ("foo", "1, 2")],
        &[("accept-encoding", "gzip, br")],
        &[("accept-encoding", "gzip, br"), ("foo", "")],
        &[("accept-encoding", "1, 2"), ("foo", "gzip, br")],
        &[],
    ] {
        assert_ne!(variant(fields), first, "{fields:?}");
    }
    let other = key(&KeyRules::default(), "h", "/other", &[]);
    assert_ne!(base.variant(&vary, &HeaderMap::new()), other.variant(&vary, &HeaderMap::new()));
    assert_ne!(base.variant(&Vary::default(), &HeaderMap::new()), base);
}

#[test]
fn pieces() {
    let keys = [(1, 0), (1, 1), (2, 0)].map(|(id, index)| Key::piece(ObjectId([id; 16]), index));
    assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
}

/// What a key has to distinguish. The values are such that parts look like others, where they have no lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    policy: String,
    host: String,
    path: String,
    query: Option<String>,
    fields: [Option<String>; 2],
    cookies: [Vec<String>; 2],
}

const FIELDS: [&str; 2] = ["x", "y"];
const COOKIES: [&str; 2] = ["c", "d"];

fn parts() -> impl Strategy<Value = Parts> {
    let field = || prop::option::of("[xy]{0,1}");
    let cookies = || prop::collection::vec("[cd]{0,1}", 0..3);
    let target = ("[ab/]{0,2}", prop::option::of("[ab&=]{0,2}"));
    ("[ab]{0,2}", "[ab]{0,2}", target, [field(), field()], [cookies(), cookies()])
        .prop_map(|(policy, host, (path, query), fields, cookies)| Parts { policy, host, path, query, fields, cookies })
}

fn key_of_parts(parts: &Parts) -> Key {
    let rules = KeyRules {
        headers: FIELDS.map(HeaderName::from_static).into(),
        cookies: COOKIES.map(str::to_owned).into(),
        ..KeyRules::default()
    };
    let query = parts.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("/{}{query}", parts.path).parse().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in FIELDS.into_iter().zip(&parts.fields) {
        headers.extend(value.iter().map(|value| (HeaderName::from_static(name), value.parse().unwrap())));
    }
    for (name, values) in COOKIES.into_iter().zip(&parts.cookies) {
        for value in values {
            headers.append(COOKIE, format!("{name}={value}").parse().unwrap());
        }
    }
    Key::of(&rules, parts.policy.as_bytes(), &parts.host, &target, &headers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn different_requests_have_different_keys(base in parts(), others in prop::collection::vec(parts(), 100)) {
        let mut known: HashMap<Key, Parts> = HashMap::new();
        for other in others {
            let Parts { policy, host, path, query, fields, cookies } = other.clone();
            let replaced = [
                Parts { policy, host, ..base.clone() },
                Parts { path, query, ..base.clone() },
                Parts { fields, ..base.clone() },
                Parts { cookies, ..base.clone() },
                other,
            ];
            for parts in replaced {
                let earlier = known.insert(key_of_parts(&parts), parts.clone());
                prop_assert!(earlier.is_none_or(|earlier| earlier == parts));
            }
        }
    }
}

#[test]
fn purges_are_compared_with_the_part_of_the_query_that_counts() {
    let target = |rule, target: &str| {
        let rules = KeyRules { query: rule, ..KeyRules::default() };
        rules.target(&target.parse().unwrap()).into_owned()
    };
    let except = || QueryRule::Except(vec!["utm".to_owned()]);
    assert_eq!(target(QueryRule::Whole, "/a?utm=1&b=2"), "/a?utm=1&b=2");
    assert_eq!(target(except(), "/a?utm=1&b=2"), "/a?b=2");
    assert_eq!(target(except(), "/a?utm=1"), "/a");
    assert_eq!(target(except(), "/a"), "/a");
}
