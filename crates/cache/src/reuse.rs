//! When a stored response may be used again (RFC 9111, section 4).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::directives::RequestDirectives;

/// What decides about the reuse of a stored response. Times are in milliseconds, so that a hit needs no parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// When the response had arrived, since the Unix epoch.
    pub received_ms: u64,
    /// Its age then (`corrected_initial_age`; RFC 9111, section 4.2.3).
    pub initial_age_ms: u64,
    /// How long it is fresh.
    pub lifetime_ms: u64,
    /// How long it may be used after that while it is validated (RFC 5861, section 3).
    pub stale_while_revalidate_ms: u64,
    /// How long it may be used after that if the origin fails (RFC 5861, section 4).
    pub stale_if_error_ms: u64,
    /// `no-cache`: each use needs a validation.
    pub is_always_validated: bool,
    /// `must-revalidate`, `proxy-revalidate`, `s-maxage`: never used when stale.
    pub is_never_stale: bool,
}

/// Whether a stored response may be used for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    Fresh {
        age: Duration,
    },
    /// It may be used, and is validated meanwhile.
    StaleWhileRevalidate {
        age: Duration,
    },
    /// It may be used because the client accepts a stale response (`max-stale`).
    AcceptedStale {
        age: Duration,
    },
    /// It has to be validated.
    Validate,
}

impl Terms {
    /// The age at this time (RFC 9111, section 4.2.3). A clock that runs backwards makes it no younger than on arrival.
    pub fn age(&self, now: SystemTime) -> Duration {
        Duration::from_millis(self.age_ms(now))
    }

    /// How long the response stays fresh, in whole seconds: the `ttl` of `Cache-Status`. Negative: for how long it has
    /// been stale.
    pub fn ttl_s(&self, now: SystemTime) -> i64 {
        let (lifetime, age) = (i128::from(self.lifetime_ms), i128::from(self.age_ms(now)));
        i64::try_from((lifetime - age).div_euclid(1000)).unwrap_or(i64::MAX)
    }

    fn age_ms(&self, now: SystemTime) -> u64 {
        let resident = unix_ms(now).saturating_sub(self.received_ms);
        self.initial_age_ms.saturating_add(resident)
    }
}

/// Milliseconds since the Unix epoch.
pub fn unix_ms(time: SystemTime) -> u64 {
    whole_ms(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a stored response may be used for a request with these directives.
pub fn reuse(terms: &Terms, request: &RequestDirectives, now: SystemTime) -> Reuse {
    let age_ms = terms.age_ms(now);
    let age = Duration::from_millis(age_ms);
    if terms.is_always_validated || request.no_cache || request.max_age.is_some_and(|max_age| age > max_age) {
        return Reuse::Validate;
    }
    if age_ms < terms.lifetime_ms {
        let remaining_ms = terms.lifetime_ms - age_ms;
        let is_fresh_enough = request.min_fresh.is_none_or(|min_fresh| whole_ms(min_fresh) <= remaining_ms);
        return if is_fresh_enough { Reuse::Fresh { age } } else { Reuse::Validate };
    }
    if terms.is_never_stale || request.min_fresh.is_some() {
        return Reuse::Validate;
    }
    let staleness_ms = age_ms - terms.lifetime_ms;
    if request.max_stale.is_some_and(|max_stale| staleness_ms <= whole_ms(max_stale)) {
        return if staleness_ms <= terms.stale_while_revalidate_ms {
            Reuse::StaleWhileRevalidate { age }
        } else {
            Reuse::AcceptedStale { age }
        };
    }
    // A client that states `max-age` without `max-stale` wants no stale response (RFC 9111, section 5.2.1.1).
    let is_refused = request.max_age.is_some() || request.max_stale.is_some();
    if !is_refused && terms.stale_while_revalidate_ms > 0 && staleness_ms <= terms.stale_while_revalidate_ms {
        return Reuse::StaleWhileRevalidate { age };
    }
    Reuse::Validate
}

/// Whether a stored response may be used after its validation has failed: no answer, or 500, 502, 503, 504.
///
/// A request with `no-cache` needs a successful validation (RFC 9111, section 4).
pub fn may_answer_stale(terms: &Terms, request: &RequestDirectives, now: SystemTime) -> bool {
    if terms.is_always_validated || request.no_cache {
        return false;
    }
    let age_ms = terms.age_ms(now);
    if age_ms < terms.lifetime_ms {
        return true;
    }
    let requested_ms = request.stale_if_error.map_or(0, whole_ms);
    let allowed_ms = terms.stale_if_error_ms.max(requested_ms);
    !terms.is_never_stale && allowed_ms > 0 && age_ms - terms.lifetime_ms <= allowed_ms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRESH_60: Terms = Terms {
        received_ms: 1_000_000,
        initial_age_ms: 0,
        lifetime_ms: 60_000,
        stale_while_revalidate_ms: 0,
        stale_if_error_ms: 0,
        is_always_validated: false,
        is_never_stale: false,
    };
    const NONE: RequestDirectives = RequestDirectives {
        no_cache: false,
        no_store: false,
        only_if_cached: false,
        max_age: None,
        min_fresh: None,
        max_stale: None,
        stale_if_error: None,
    };

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(FRESH_60.received_ms) + Duration::from_secs(seconds)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The first letter of the result.
    fn result(terms: &Terms, request: &RequestDirectives, now: u64) -> char {
        match reuse(terms, request, at(now)) {
            Reuse::Fresh { .. } => 'F',
            Reuse::StaleWhileRevalidate { .. } => 'W',
            Reuse::AcceptedStale { .. } => 'A',
            Reuse::Validate => 'V',
        }
    }

    /// RFC 9111, sections 4.2 and 4.2.4; RFC 5861, section 3.
    #[test]
    fn terms_of_the_response() {
        let swr = Terms { stale_while_revalidate_ms: 10_000, ..FRESH_60 };
        for (name, terms, now, expected) in [
            ("fresh", FRESH_60, 59, 'F'),
            ("as old as its lifetime", FRESH_60, 60, 'V'),
            ("an initial age", Terms { initial_age_ms: 50_000, ..FRESH_60 }, 9, 'F'),
            ("an initial age", Terms { initial_age_ms: 50_000, ..FRESH_60 }, 10, 'V'),
            ("an absurd age", Terms { initial_age_ms: u64::MAX, ..FRESH_60 }, 10, 'V'),
            ("no-cache", Terms { is_always_validated: true, ..FRESH_60 }, 1, 'V'),
            ("no-cache, stale-while-revalidate", Terms { is_always_validated: true, ..swr }, 61, 'V'),
            ("stale-while-revalidate, fresh", swr, 59, 'F'),
            ("stale-while-revalidate, at its end", swr, 70, 'W'),
            ("stale-while-revalidate, too late", swr, 71, 'V'),
            ("stale-while-revalidate, must-revalidate", Terms { is_never_stale: true, ..swr }, 61, 'V'),
            ("must-revalidate, fresh", Terms { is_never_stale: true, ..FRESH_60 }, 59, 'F'),
        ] {
            assert_eq!(result(&terms, &NONE, now), expected, "{name} at {now} s");
        }
    }

    /// RFC 9111, section 5.2.1.
    #[test]
    fn directives_of_the_request() {
        let swr = Terms { stale_while_revalidate_ms: 10_000, ..FRESH_60 };
        let strict = Terms { is_never_stale: true, ..FRESH_60 };
        for (name, terms, request, now, expected) in [
            ("no-cache", FRESH_60, RequestDirectives { no_cache: true, ..NONE }, 0, 'V'),
            ("no-store", FRESH_60, RequestDirectives { no_store: true, ..NONE }, 1, 'F'),
            ("max-age=0", FRESH_60, RequestDirectives { max_age: Some(seconds(0)), ..NONE }, 1, 'V'),
            ("max-age=5", FRESH_60, RequestDirectives { max_age: Some(seconds(5)), ..NONE }, 5, 'F'),
            ("max-age=5", FRESH_60, RequestDirectives { max_age: Some(seconds(5)), ..NONE }, 6, 'V'),
            ("max-age=65", swr, RequestDirectives { max_age: Some(seconds(65)), ..NONE }, 62, 'V'),
            ("min-fresh=10", FRESH_60, RequestDirectives { min_fresh: Some(seconds(10)), ..NONE }, 50, 'F'),
            ("min-fresh=10", FRESH_60, RequestDirectives { min_fresh: Some(seconds(10)), ..NONE }, 51, 'V'),
            ("min-fresh=0", swr, RequestDirectives { min_fresh: Some(seconds(0)), ..NONE }, 61, 'V'),
            ("max-stale=5", FRESH_60, RequestDirectives { max_stale: Some(seconds(5)), ..NONE }, 65, 'A'),
            ("max-stale=5", FRESH_60, RequestDirectives { max_stale: Some(seconds(5)), ..NONE }, 66, 'V'),
            ("max-stale", FRESH_60, RequestDirectives { max_stale: Some(Duration::MAX), ..NONE }, 1_000_000, 'A'),
            ("max-stale", strict, RequestDirectives { max_stale: Some(Duration::MAX), ..NONE }, 61, 'V'),
            ("max-stale", swr, RequestDirectives { max_stale: Some(Duration::MAX), ..NONE }, 61, 'W'),
            ("max-stale=5", swr, RequestDirectives { max_stale: Some(seconds(5)), ..NONE }, 66, 'V'),
        ] {
            assert_eq!(result(&terms, &request, now), expected, "{name} at {now} s");
        }
    }

    /// RFC 5861, section 4; RFC 9111, section 4.2.4.
    #[test]
    fn responses_after_errors() {
        let sie = Terms { stale_if_error_ms: 10_000, ..FRESH_60 };
        for (name, terms, request, now, expected) in [
            ("fresh", FRESH_60, NONE, 59, true),
            ("stale", FRESH_60, NONE, 60, false),
            ("stale-if-error", sie, NONE, 70, true),
            ("stale-if-error, too late", sie, NONE, 71, false),
            ("no-cache", Terms { is_always_validated: true, ..sie }, NONE, 1, false),
            ("must-revalidate", Terms { is_never_stale: true, ..sie }, NONE, 61, false),
            ("must-revalidate, fresh", Terms { is_never_stale: true, ..sie }, NONE, 59, true),
            ("no-cache of the client", sie, RequestDirectives { no_cache: true, ..NONE }, 1, false),
            (
                "stale-if-error of the client",
                FRESH_60,
                RequestDirectives { stale_if_error: Some(seconds(9)), ..NONE },
                69,
                true,
            ),
            (
                "stale-if-error of the client",
                FRESH_60,
                RequestDirectives { stale_if_error: Some(seconds(9)), ..NONE },
                70,
                false,
            ),
        ] {
            assert_eq!(may_answer_stale(&terms, &request, at(now)), expected, "{name} at {now} s");
        }
    }

    #[test]
    fn time_to_live() {
        for (now, expected) in [(0, 60), (59, 1), (60, 0), (61, -1)] {
            assert_eq!(FRESH_60.ttl_s(at(now)), expected, "{now}");
        }
        assert_eq!(Terms { initial_age_ms: 1, ..FRESH_60 }.ttl_s(at(60)), -1);
        Terms { initial_age_ms: u64::MAX, lifetime_ms: 0, ..FRESH_60 }.ttl_s(at(0));
    }

    fn any_terms() -> impl Strategy<Value = Terms> {
        let number = || prop_oneof![0..100_000u64, any::<u64>()];
        (number(), number(), number(), number(), number(), any::<bool>(), any::<bool>()).prop_map(
            |(received_ms, initial_age_ms, lifetime_ms, swr, sie, is_always_validated, is_never_stale)| Terms {
                received_ms,
                initial_age_ms,
                lifetime_ms,
                stale_while_revalidate_ms: swr,
                stale_if_error_ms: sie,
                is_always_validated,
                is_never_stale,
            },
        )
    }

    fn any_request() -> impl Strategy<Value = RequestDirectives> {
        let time = || prop::option::of(prop_oneof![(0..200u64).prop_map(Duration::from_secs), Just(Duration::MAX)]);
        (any::<bool>(), time(), time(), time(), time()).prop_map(
            |(no_cache, max_age, min_fresh, max_stale, stale_if_error)| RequestDirectives {
                no_cache,
                max_age,
                min_fresh,
                max_stale,
                stale_if_error,
                ..NONE
            },
        )
    }

    proptest! {
        #[test]
        fn age_never_decreases(terms in any_terms(), now in 0..1u64 << 40, more in 0..1u64 << 40) {
            let [earlier, later] = [now, now + more].map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
            prop_assert!(terms.age(earlier) <= terms.age(later));
            prop_assert!(terms.age(earlier) >= Duration::from_millis(terms.initial_age_ms));
        }

        /// A response is fresh, or a stale one is permitted explicitly.
        #[test]
        fn reuse_needs_freshness_or_a_permission(terms in any_terms(), request in any_request(), now in 0..200_000u64) {
            let now = UNIX_EPOCH + Duration::from_millis(now);
            let (age, lifetime) = (terms.age(now), Duration::from_millis(terms.lifetime_ms));
            let result = reuse(&terms, &request, now);
            match result {
                Reuse::Fresh { .. } => prop_assert!(age < lifetime),
                Reuse::StaleWhileRevalidate { .. } => {
                    let window = Duration::from_millis(terms.stale_while_revalidate_ms);
                    prop_assert!(age <= lifetime.saturating_add(window));
                    prop_assert!(age >= lifetime && !terms.is_never_stale);
                }
                Reuse::AcceptedStale { .. } => {
                    prop_assert!(request.max_stale.is_some() && age >= lifetime && !terms.is_never_stale);
                }
                Reuse::Validate => {}
            }
            if request.no_cache || terms.is_always_validated {
                prop_assert_eq!(result, Reuse::Validate);
                prop_assert!(!may_answer_stale(&terms, &request, now));
            }
        }
    }
}
