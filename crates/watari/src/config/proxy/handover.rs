//! `[agent.proxy.pool.handover]`: how transfers continue from another origin.

use std::num::{NonZeroU32, NonZeroUsize};

use watari_proxy::{Damping, Equality, Governor, Handover, Metric, Slow, TransferConditions, Unequal};
use watari_values::setting::Span;

use crate::config::raw::{HandoverMode, RawHandover, RawMetric};

impl RawHandover {
    /// The settings of the file, with defaults. `None`: transfers end with their origin.
    pub(super) fn handover(&self) -> Option<Handover> {
        let usual = Handover::default();
        (self.mode != HandoverMode::Off).then(|| Handover {
            conditions: self.conditions(usual.conditions),
            length_min: self.length_min_bytes.unwrap_or(usual.length_min),
            governor: self.governor(usual.governor),
        })
    }

    fn conditions(&self, usual: TransferConditions) -> TransferConditions {
        let declared = |bytes: NonZeroUsize| Equality::Declared { compared_min: bytes.get() };
        TransferConditions {
            overlap: self.overlap_bytes.unwrap_or(usual.overlap),
            equality: self.equal_by_bytes.map_or(usual.equality, declared),
        }
    }

    fn governor(&self, usual: Governor) -> Governor {
        let balanced = self.mode == HandoverMode::Balanced;
        Governor {
            stalled: self.stalled.map(Span::get).or(usual.stalled),
            rate_min: usual.rate_min,
            slow: usual.slow.filter(|_| balanced).map(|slow| self.slow(slow)),
            unequal: usual.unequal.filter(|_| balanced).map(|unequal| self.unequal(unequal)),
            damping: self.damping(usual.damping),
        }
    }

    fn slow(&self, usual: Slow) -> Slow {
        Slow { share: self.slow_share.map_or(usual.share, |share| share.0), ..usual }
    }

    fn unequal(&self, usual: Unequal) -> Unequal {
        Unequal {
            metric: match self.metric {
                None => usual.metric,
                Some(RawMetric::Connections) => Metric::Connections,
                Some(RawMetric::Response) => Metric::Response,
                Some(RawMetric::Rate) => Metric::Rate,
            },
            high: self.unequal_above.map_or(usual.high, |high| high.0),
            low: self.unequal_until.map_or(usual.low, |low| low.0),
            ..usual
        }
    }

    fn damping(&self, usual: Damping) -> Damping {
        Damping {
            stay_min: self.stay_min.map_or(usual.stay_min, Span::get),
            gain_min: self.gain_min.map_or(usual.gain_min, |gain| gain.0),
            remaining_min: self.remaining_min_bytes.unwrap_or(usual.remaining_min),
            moves_max: self.moves_max.unwrap_or(usual.moves_max),
            moves_per_s: self.moves_per_s.map_or(usual.moves_per_s, NonZeroU32::get),
            origin_moves_per_s: self.origin_moves_per_s.map_or(usual.origin_moves_per_s, NonZeroU32::get),
            ..usual
        }
    }
}
