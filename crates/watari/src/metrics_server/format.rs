//! The formats of a page of metrics.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Text,
}

/// Media types, without parameters.
const OPENMETRICS: &str = "application/openmetrics-text";
const TEXT: &str = "text/plain";

impl Format {
    /// The format that `Accept` prefers (RFC 9110, section 12.5.1): `OpenMetrics` if the field names it and does not
    /// prefer `text/plain`, else text, which all scrapers read.
    pub(super) fn asked(headers: &HeaderMap) -> Self {
        let quality = |wanted: &str| {
            let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let ranges = values.flat_map(|value| value.split(','));
            ranges.filter_map(|range| quality(range, wanted)).max_by(f32::total_cmp).unwrap_or(0.0)
        };
        let openmetrics = quality(OPENMETRICS);
        if openmetrics > 0.0 && openmetrics >= quality(TEXT) { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        })
    }

    /// Converts a page of `OpenMetrics` to this format.
    pub(super) fn page(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Text => to_text(&openmetrics),
        }
    }
}

/// The quality of a media range, from 0 to 1, if it names `wanted`.
fn quality(range: &str, wanted: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(wanted) {
        return None;
    }
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let weight: f32 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
    Some(weight.clamp(0.0, 1.0))
}

/// In the text format, a family has the name of its samples: that of a counter ends in `_total`, that of an info in
/// `_info`. The format has no units and no end mark.
fn to_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn scrapers_get_what_they_ask_for() {
        use Format::{OpenMetrics, Text};
        for (accept, expected) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/plain"], Text),
            (&["text/plain;version=0.0.4"], Text),
            (&["application/json"], Text),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; version=1.0.0; charset=utf-8"], OpenMetrics),
            (&["application/openmetrics-text;q=0"], Text),
            (&["application/openmetrics-text;q=0.3, text/plain;q=0.5"], Text),
            (&["text/plain;q=0.5", "application/openmetrics-text;q=0.75"], OpenMetrics),
            (&["application/openmetrics-text, text/plain, */*"], OpenMetrics),
            // Prometheus 2.42 and 3.
            (
                &[
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ],
                OpenMetrics,
            ),
            (
                &[
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1",
                ],
                OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(Format::asked(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn families_are_named_as_their_samples() {
        let mut registry = Registry::default();
        let requests = Family::<[(&'static str, &'static str); 1], Counter>::default();
        requests.get_or_create(&[("status", "200")]).inc();
        registry.register("requests", "Requests, by status", requests);
        registry.register("open", "Connections", Gauge::<i64>::default());
        registry.register_with_unit("age", "Of a key", Unit::Seconds, Gauge::<i64>::default());
        let delays = Histogram::new([1.0]);
        delays.observe(0.5);
        registry.register("delay_seconds", "Delays", delays);
        registry.register("build", "The program", Info::new([("version", "1")]));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let expected = "\
            # HELP requests_total Requests, by status.\n# TYPE requests_total counter\nrequests_total{status=\"200\"} 1\n\
            # HELP open Connections.\n# TYPE open gauge\nopen 0\n\
            # HELP age_seconds Of a key.\n# TYPE age_seconds gauge\nage_seconds 0\n\
            # HELP delay_seconds Delays.\n# TYPE delay_seconds histogram\ndelay_seconds_sum 0.5\ndelay_seconds_count 1\n\
            delay_seconds_bucket{le=\"1.0\"} 1\ndelay_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP build_info The program.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        assert_eq!(Format::Text.page(page.clone()), expected);
        assert_eq!(Format::OpenMetrics.page(page.clone()), page);
    }
}
