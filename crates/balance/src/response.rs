//! Average response times.

use std::time::{Duration, Instant};

/// The time after which a response time counts with 1/e of its weight.
const MEMORY: Duration = Duration::from_secs(10);

/// A moving average of response times, in which recent ones count most.
///
/// Without new response times it falls. So a slow candidate is tried again after a while. If it is still slow, its
/// average rises again.
#[derive(Debug, Default)]
pub struct ResponseAverage {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    average: Duration,
    last: Instant,
}

impl ResponseAverage {
    /// Adds a response time measured at `now`.
    pub fn observe(&mut self, now: Instant, response: Duration) {
        let average = match &self.seen {
            Some(seen) => {
                let kept = fading(seen.last, now);
                seen.average.mul_f64(kept) + response.mul_f64(1.0 - kept)
            }
            None => response,
        };
        self.seen = Some(Seen { average, last: now });
    }

    /// Like [`Self::observe`], but a response time above the average replaces it at once ("Peak EWMA"). So a candidate
    /// that becomes slow is avoided after one slow answer, and returns only after quick answers for a while.
    pub fn observe_peak(&mut self, now: Instant, response: Duration) {
        if response > self.at(now) {
            self.seen = Some(Seen { average: response, last: now });
        } else {
            self.observe(now, response);
        }
    }

    /// The average at `now`. Zero without any response time.
    pub fn at(&self, now: Instant) -> Duration {
        self.seen.as_ref().map_or(Duration::ZERO, |seen| seen.average.mul_f64(fading(seen.last, now)))
    }
}

/// The weight at `now` of an observation at `then`: 1 at first, then falling.
fn fading(then: Instant, now: Instant) -> f64 {
    (-now.saturating_duration_since(then).as_secs_f64() / MEMORY.as_secs_f64()).exp()
}
