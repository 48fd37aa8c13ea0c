//! How soon somebody answers.

use std::time::{Duration, Instant};

/// After this long, what was seen counts for 1/e of what it did.
const MEMORY: Duration = Duration::from_secs(10);

/// The average of response times, in which the latest count most.
///
/// Without new ones it falls: who was slow is tried again after a while, and if it still is, the average says
/// so again.
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
    /// Takes a response time that was seen at `now`.
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

    /// As [`Self::observe`], but a response time above the average becomes the average at once, so that whoever gets slow
    /// is avoided after one slow answer, and has to be quick for a while to be trusted again ("Peak EWMA").
    pub fn observe_peak(&mut self, now: Instant, response: Duration) {
        if response > self.at(now) {
            self.seen = Some(Seen { average: response, last: now });
        } else {
            self.observe(now, response);
        }
    }

    /// The average as it counts at `now`; zero where nothing was seen.
    pub fn at(&self, now: Instant) -> Duration {
        self.seen.as_ref().map_or(Duration::ZERO, |seen| seen.average.mul_f64(fading(seen.last, now)))
    }
}

/// What counts at `now` of what was seen at `then`: 1 at first, less and less.
fn fading(then: Instant, now: Instant) -> f64 {
    (-now.saturating_duration_since(then).as_secs_f64() / MEMORY.as_secs_f64()).exp()
}
