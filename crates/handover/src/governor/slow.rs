//! Moves transfers that would be faster elsewhere.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::governor::look::Look;
use crate::governor::settings::Slow;
use crate::governor::track::Window;
use crate::governor::views::{Availability, Cause, OriginId, TransferView};

/// The number of windows in a row in which a transfer must be slow. A single one may be an accident.
const WINDOWS: u32 = 2;

/// The time when each origin last got a transfer that was slow elsewhere. It gets the next one after a window, when
/// rates show the effect.
#[derive(Debug, Default)]
pub(crate) struct SlowLooks {
    arrivals: HashMap<OriginId, Instant>,
}

impl SlowLooks {
    /// Orders transfers away for which a window has ended that was slow again.
    pub(crate) fn look(&mut self, look: &mut Look<'_>, slow: &Slow) {
        self.arrivals.retain(|_, at| look.now.saturating_duration_since(*at) < slow.window);
        let ended: Vec<_> = look.transfers.iter().filter_map(|view| Some((view, ended(look, view)?))).collect();
        if ended.is_empty() {
            return;
        }
        let usual = Usual::of(look);
        for (view, window) in ended {
            let better = usual.better(look, view, slow, window);
            let Some(track) = look.tracks.get_mut(&view.id) else { continue };
            track.pace.slow = if better.is_some() { track.pace.slow.saturating_add(1) } else { 0 };
            if let Some(to) = better.filter(|to| track.pace.slow >= WINDOWS && !self.arrivals.contains_key(to))
                && look.is_settled(view)
                && look.order(view, to, Cause::Slow)
            {
                self.arrivals.insert(to, look.now);
            }
        }
    }
}

/// The window of this transfer that ends now.
fn ended(look: &Look<'_>, view: &TransferView) -> Option<Window> {
    look.tracks[&view.id].pace.last.filter(|window| window.ended == look.now)
}

/// Median rates of transfers at each origin: of all, and of each client.
struct Usual {
    of_all: HashMap<OriginId, f64>,
    of_client: HashMap<(OriginId, IpAddr), f64>,
}

impl Usual {
    fn of(look: &Look<'_>) -> Self {
        let mut of_all: HashMap<_, Vec<f64>> = HashMap::new();
        let mut of_client: HashMap<_, Vec<f64>> = HashMap::new();
        for view in look.transfers {
            if let Some(window) = look.tracks[&view.id].pace.last {
                of_all.entry(view.origin).or_default().push(window.rate);
                of_client.entry((view.origin, view.client)).or_default().push(window.rate);
            }
        }
        Self { of_all: medians(of_all), of_client: medians(of_client) }
    }

    /// The origin at which the transfer's expected rate is enough above that of this window.
    fn better(&self, look: &Look<'_>, view: &TransferView, slow: &Slow, window: Window) -> Option<OriginId> {
        if window.waiting < slow.waiting_min {
            return None;
        }
        let up = look.origins.iter().filter(|origin| origin.availability == Availability::Up).map(|origin| origin.id);
        let possible = up.filter(|to| look.may_go(view, *to));
        let expected = possible.filter_map(|to| Some((to, self.at(to, view.client)?)));
        let (to, rate) = expected.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (rate * slow.share > window.rate && rate >= window.rate * look.damping.gain_min).then_some(to)
    }

    fn at(&self, origin: OriginId, client: IpAddr) -> Option<f64> {
        self.of_client.get(&(origin, client)).or_else(|| self.of_all.get(&origin)).copied()
    }
}

fn medians<K: Eq + std::hash::Hash>(rates: HashMap<K, Vec<f64>>) -> HashMap<K, f64> {
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    rates.into_iter().map(|(key, rates)| (key, median(rates))).collect()
}
