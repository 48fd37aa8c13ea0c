//! Detects that a server has finished the work of the previous load, so that the next measurement does not include it.
//!
//! A load that is cut off leaves work behind: requests that the server has read, or connections that it has yet to
//! accept. Only the server's responses show when that work is done. The generator sends single requests, one after the
//! other, each on a fresh connection. The server is idle again when their latency is about that of the unloaded server,
//! with the same status. The status matters, because a busy server may refuse at once.

use std::collections::BTreeSet;

use serde::Serialize;
use watari_bench_report::summary::{EndingCount, PartSummary};

/// How the server answered single requests before any load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Unloaded {
    /// Median time from `connect` to the last byte of the response, in milliseconds; `None` if no request succeeded.
    pub(super) latency_ms: Option<f64>,
    /// The statuses of the responses.
    pub(super) statuses: BTreeSet<String>,
    /// How the requests ended.
    pub(super) endings_at: Vec<EndingCount>,
}

impl Unloaded {
    /// `total` counts the single requests that were sent before any load.
    pub(super) fn new(total: PartSummary) -> Self {
        Self {
            latency_ms: latency_ms(&total),
            statuses: total.status.into_keys().collect(),
            endings_at: total.endings_at,
        }
    }

    /// The conditions under which this server counts as idle; `None` if it did not answer.
    pub(super) fn watch(&self) -> Option<Watch> {
        let statuses = self.statuses.clone();
        self.latency_ms.map(|ms| Watch { latency_ms_max: TIMES_MAX * ms + SLACK_MS, statuses, in_a_row: 0 })
    }
}

/// Waits for a server to be idle: [`IN_A_ROW`] successive single requests with the usual latency and status. One
/// request is not enough, because a server need not serve its waiting work in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Watch {
    latency_ms_max: f64,
    statuses: BTreeSet<String>,
    in_a_row: u32,
}

impl Watch {
    /// Enters the result of the next single request; true if the server is idle.
    pub(super) fn enter(&mut self, total: &PartSummary) -> bool {
        let quick = latency_ms(total).is_some_and(|ms| ms <= self.latency_ms_max);
        let as_ever = total.status.keys().all(|status| self.statuses.contains(status));
        self.in_a_row = if quick && as_ever { self.in_a_row + 1 } else { 0 };
        self.in_a_row >= IN_A_ROW
    }
}

fn latency_ms(total: &PartSummary) -> Option<f64> {
    (total.endings.normal > 0).then_some(total.latency_ms.p50)
}

/// How many successive single requests decide.
pub(super) const IN_A_ROW: u32 = 3;
/// The latency of an idle server is at most this factor times its latency before any load, ...
const TIMES_MAX: f64 = 2.0;
/// ... plus this slack: one or two scheduler time slices, which exceed the factor if the server answers at once.
const SLACK_MS: f64 = 10.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use watari_bench_report::summary::{EndingCounts, Milliseconds};

    use super::*;

    fn answered(ms: f64) -> PartSummary {
        let status = [("200".to_owned(), 1)].into();
        let latency_ms = Milliseconds { p50: ms, ..Milliseconds::default() };
        PartSummary {
            latency_ms,
            status,
            endings: EndingCounts { normal: 1, ..EndingCounts::default() },
            ..PartSummary::default()
        }
    }

    #[test]
    fn a_server_is_idle_after_a_row_of_quick_answers() {
        let mut watch = Unloaded::new(answered(20.0)).watch().unwrap();
        let entered = [20.0, 50.0, 50.1, 20.0, 20.0, 20.0].map(|ms| watch.enter(&answered(ms)));
        assert_eq!(entered, [false, false, false, false, false, true]);
    }

    #[test]
    fn a_server_that_says_that_it_is_busy_is_not_idle() {
        let mut watch = Unloaded::new(answered(20.0)).watch().unwrap();
        let busy = PartSummary { status: [("503".to_owned(), 1)].into(), ..answered(1.0) };
        assert!((0..9).all(|_| !watch.enter(&busy)));
    }

    #[test]
    fn no_answer_breaks_the_row() {
        let mut watch = Unloaded::new(answered(0.0)).watch().unwrap();
        assert!(!watch.enter(&answered(1.0)) && !watch.enter(&answered(1.0)));
        assert!(!watch.enter(&PartSummary::default()));
        assert!(!watch.enter(&answered(1.0)));
    }

    #[test]
    fn what_does_not_answer_is_never_idle() {
        let unanswered = Unloaded::new(PartSummary::default());
        assert_eq!((unanswered.latency_ms, unanswered.watch()), (None, None));
    }
}
