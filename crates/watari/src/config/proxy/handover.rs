//! `[agent.proxy.pool.handover]`: how transfers continue from another origin.

use std::num::{NonZeroU32, NonZeroUsize};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watari_proxy::{Damping, Equality, Governor, Handover, Metric, Slow, TransferConditions, Unequal};
use watari_values::duration;
use watari_values::setting::Span;

/// How downloads continue from another origin.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHandover {
    /// When downloads move.
    #[serde(default)]
    mode: Mode,
    /// Bytes that the other origin sends again, for comparison.
    #[schemars(extend("default" = TransferConditions::default().overlap))]
    overlap_bytes: Option<usize>,
    /// The least length of a response that can move, in bytes. Shorter ones end with their origin.
    #[schemars(extend("default" = Handover::default().length_min))]
    length_min_bytes: Option<u64>,
    /// Origins count as equal, whatever their validators are, if this many bytes are equal. Without it, validators have
    /// to prove that they are equal.
    equal_by_bytes: Option<NonZeroUsize>,
    /// The time after which a download leaves an origin that sends nothing, or less than `body_bytes_per_s_min` in
    /// `[agent.proxy.pool.limits]`.
    #[schemars(extend("default" = Governor::default().stalled.map(duration::text)))]
    stalled: Option<Span>,
    /// A share of the rate that other downloads get. A download with less leaves its origin.
    #[schemars(extend("default" = Slow::default().share))]
    slow_share: Option<Ratio>,
    /// The load that is balanced between origins.
    #[schemars(extend("default" = RawMetric::from(Unequal::default().metric)))]
    metric: Option<RawMetric>,
    /// Downloads begin to leave an origin whose load exceeds that of the least loaded origin by this factor.
    #[schemars(extend("default" = Unequal::default().high))]
    unequal_above: Option<Ratio>,
    /// Downloads leave that origin until its load exceeds that of the least loaded origin by no more than this factor.
    #[schemars(extend("default" = Unequal::default().low))]
    unequal_until: Option<Ratio>,
    /// The least time at an origin before a download moves because of load or speed.
    #[schemars(extend("default" = duration::text(Damping::default().stay_min)))]
    stay_min: Option<Span>,
    /// The least factor in speed that such a move has to gain.
    #[schemars(extend("default" = Damping::default().gain_min))]
    gain_min: Option<Ratio>,
    /// The least rest of a download that moves because of load or speed, in bytes.
    #[schemars(extend("default" = Damping::default().remaining_min))]
    remaining_min_bytes: Option<u64>,
    /// The most moves of one download because of load or speed.
    #[schemars(extend("default" = Damping::default().moves_max))]
    moves_max: Option<u32>,
    /// The most downloads that move in a second. Those whose origin failed do not count.
    #[schemars(extend("default" = Damping::default().moves_per_s))]
    moves_per_s: Option<NonZeroU32>,
    /// The most downloads that move to or from one origin in a second. Those whose origin failed do not count.
    #[schemars(extend("default" = Damping::default().origin_moves_per_s))]
    origin_moves_per_s: Option<NonZeroU32>,
}

/// When transfers move.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Never.
    Off,
    /// If their origin fails, stalls or is drained, or if an operator orders it.
    Needed,
    /// Also if their origin is slow, or has more load than others.
    #[default]
    Balanced,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RawMetric {
    /// Requests in progress, divided by the weight.
    Connections,
    /// The time until the origin responds.
    Response,
    /// Bytes per second, divided by the weight. It suits origins that are far from their limits.
    Rate,
}

impl From<Metric> for RawMetric {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::Connections => Self::Connections,
            Metric::Response => Self::Response,
            Metric::Rate => Self::Rate,
        }
    }
}

/// A number above 0.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "f64")]
#[schemars(inline, with = "f64", extend("exclusiveMinimum" = 0))]
struct Ratio(f64);

impl TryFrom<f64> for Ratio {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        if ratio.is_finite() && ratio > 0.0 { Ok(Self(ratio)) } else { Err(format!("{ratio} is not above 0")) }
    }
}

impl RawHandover {
    /// The settings of the file, with defaults. `None`: transfers end with their origin.
    pub(super) fn handover(&self) -> Option<Handover> {
        let usual = Handover::default();
        (self.mode != Mode::Off).then(|| Handover {
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
        let balanced = self.mode == Mode::Balanced;
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
