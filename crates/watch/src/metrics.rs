//! Prometheus metrics of a board. They are read from the board at each scrape.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use watari_endings::{Ending, Histogram, Lately, ServerState};

use crate::board::{Board, Entry, Link, SensorHealth};

/// The metrics of a board.
#[derive(Debug)]
pub struct BoardMetrics(pub Arc<Mutex<Board>>);

/// A gauge of each server.
struct OfServer {
    name: &'static str,
    help: &'static str,
    value: fn(&Entry<'_>) -> Option<f64>,
}

/// A counter of each server.
struct CountOfServer {
    name: &'static str,
    help: &'static str,
    value: fn(&Entry<'_>) -> u64,
}

/// A counter of each sensor.
struct CountOfSensor {
    name: &'static str,
    help: &'static str,
    value: fn(&SensorHealth) -> u64,
}

/// A gauge of each sensor on another machine.
struct OfLink {
    name: &'static str,
    help: &'static str,
    value: fn(&Link) -> Option<f64>,
}

/// A counter of each sensor on another machine.
struct CountOfLink {
    name: &'static str,
    help: &'static str,
    value: fn(&Link) -> u64,
}

const GAUGES: [OfServer; 2] = [
    OfServer {
        name: "connections_open",
        help: "Open connections at the end of the last complete second, one to two seconds ago",
        value: |it| Some(it.open.into()),
    },
    OfServer {
        name: "unanswered_share",
        help: "Share of connection attempts and requests without an answer, over the stopped_span_s of the profile",
        value: |it| it.server.total(Lately::StoppedSpan).unanswered_share(),
    },
];

const COUNTS: [CountOfServer; 7] = [
    CountOfServer { name: "connections_opened", help: "Opened connections", value: |it| it.totals.opened },
    CountOfServer { name: "requests_answered", help: "Requests that got an answer", value: |it| it.totals.answered },
    CountOfServer {
        name: "requests_unanswered",
        help: "Connection attempts and requests without an answer, or not in time",
        value: |it| it.totals.unanswered,
    },
    CountOfServer {
        name: "connections_evicted",
        help: "Connections, half open or seen from one side only, that were evicted to make room for others",
        value: |it| it.totals.evicted,
    },
    CountOfServer { name: "tls_full", help: "Connections with a full handshake", value: |it| it.totals.tls_full },
    CountOfServer {
        name: "tls_resumed",
        help: "Connections with a resumed session",
        value: |it| it.totals.tls_resumed,
    },
    CountOfServer {
        name: "bytes_to_clients",
        help: "Octets of data to clients, of ended connections",
        value: |it| it.totals.bytes_to_client,
    },
];

const SENSOR_COUNTS: [CountOfSensor; 7] = [
    CountOfSensor { name: "packets", help: "Captured packets", value: |it| it.health.frames.all() },
    CountOfSensor {
        name: "packets_dropped",
        help: "Packets dropped because the sensor did not read them in time",
        value: |it| it.health.dropped,
    },
    CountOfSensor {
        name: "packets_dropped_by_interface",
        help: "Packets that the network interface lost",
        value: |it| it.health.dropped_by_interface,
    },
    CountOfSensor {
        name: "packets_stray",
        help: "Segments that belong to no connection",
        value: |it| it.health.counts.stray,
    },
    CountOfSensor {
        name: "packets_untracked",
        help: "Packets of connections that are not tracked, because there are too many",
        value: |it| it.health.counts.untracked,
    },
    CountOfSensor {
        name: "server_seconds_unreported",
        help: "Server seconds left out of reports, because there were too many servers",
        value: |it| it.health.uncounted,
    },
    CountOfSensor {
        name: "server_events_unwatched",
        help: "Events at servers that are not watched, because there are too many",
        value: |it| it.unwatched,
    },
];

#[expect(clippy::cast_precision_loss, reason = "a rough offset")]
const LINKS: [OfLink; 2] = [
    OfLink {
        name: "sensor_connected",
        help: "Whether a sensor on another machine is connected: 1, else 0",
        value: |link| Some(f64::from(u8::from(link.is_connected))),
    },
    OfLink {
        name: "sensor_clock_offset_seconds",
        help: "How far a sensor's clock is ahead of the judge's, in seconds",
        value: |link| Some(link.clock_offset_ns? as f64 / 1e9),
    },
];

const LINK_COUNTS: [CountOfLink; 2] = [
    CountOfLink {
        name: "sensor_server_seconds_lost",
        help: "Server seconds that a sensor dropped while it was disconnected",
        value: |link| link.lost,
    },
    CountOfLink {
        name: "sensor_server_seconds_refused",
        help: "Server seconds that the judge refused because of impossible times",
        value: |link| link.refused,
    },
];

impl Collector for BoardMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries: Vec<_> = board.entries().collect();
        encode_states(&entries, &mut encoder)?;
        encode_shares(&entries, &mut encoder)?;
        encode_endings(&entries, &mut encoder)?;
        encode_responses(&entries, &mut encoder)?;
        for OfServer { name, help, value } in &GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for entry in &entries {
                if let Some(value) = value(entry) {
                    ConstGauge::new(value).encode(metric.encode_family(&labels(entry))?)?;
                }
            }
        }
        for CountOfServer { name, help, value } in &COUNTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for entry in &entries {
                ConstCounter::new(value(entry)).encode(metric.encode_family(&labels(entry))?)?;
            }
        }
        for CountOfSensor { name, help, value } in &SENSOR_COUNTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (sensor, listens) in board.sensors() {
                ConstCounter::new(value(&listens)).encode(metric.encode_family(&[("sensor", sensor)])?)?;
            }
        }
        let help = "Capture threads so far behind the others that the board does not wait for them";
        let mut metric = encoder.encode_descriptor("threads_hanging", help, None, MetricType::Gauge)?;
        for (sensor, listens) in board.sensors() {
            ConstGauge::new(listens.hanging as u64).encode(metric.encode_family(&[("sensor", sensor)])?)?;
        }
        encode_links(&board, &mut encoder)
    }
}

/// Metrics of sensors on other machines.
fn encode_links(board: &Board, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for OfLink { name, help, value } in &LINKS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (sensor, link) in board.links() {
            let Some(value) = value(&link) else { continue };
            ConstGauge::new(value).encode(metric.encode_family(&[("sensor", sensor)])?)?;
        }
    }
    for CountOfLink { name, help, value } in &LINK_COUNTS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (sensor, link) in board.links() {
            ConstCounter::new(value(&link)).encode(metric.encode_family(&[("sensor", sensor)])?)?;
        }
    }
    Ok(())
}

/// 1 for the present state of a server, 0 for the others.
fn encode_states(entries: &[Entry<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "The state of a server: 1 for the present state, 0 for all others";
    let mut metric = encoder.encode_descriptor("server_state", help, None, MetricType::Gauge)?;
    for entry in entries {
        for state in ServerState::ALL {
            let [sensor, server] = labels(entry);
            let labels = [sensor, server, ("state", state.as_str().to_owned())];
            let value = i64::from(entry.server.state() == state);
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_shares(entries: &[Entry<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "X (delivered), Y (client aborts) and Z (timeouts) over the profile's span, 0 to 1; for a stopped \
                server, of the connections that ended since it stopped";
    let mut metric = encoder.encode_descriptor("share", help, None, MetricType::Gauge)?;
    for entry in entries {
        let Some(shares) = entry.shares else { continue };
        let all = [("s_normal", shares.s_normal), ("client_abort", shares.client_abort), ("timeout", shares.timeout)];
        for (name, value) in all {
            let [sensor, server] = labels(entry);
            let labels = [sensor, server, ("share", name.to_owned())];
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_endings(entries: &[Entry<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Ended connections, by ending";
    let mut metric = encoder.encode_descriptor("connections_ended", help, None, MetricType::Counter)?;
    for entry in entries {
        for (ending, count) in Ending::ALL.into_iter().zip(entry.totals.endings) {
            let [sensor, server] = labels(entry);
            let labels = [sensor, server, ("ending", ending.as_str().to_owned())];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a sum of times")]
fn encode_responses(entries: &[Entry<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time from a request to the first octet of its answer, in seconds";
    let mut metric = encoder.encode_descriptor("response_seconds", help, None, MetricType::Histogram)?;
    let bounds_s = Histogram::BOUNDS_US.map(|bound| f64::from(bound) / 1e6).into_iter().chain([f64::INFINITY]);
    for entry in entries {
        let buckets: Vec<_> = bounds_s.clone().zip(entry.totals.responses).collect();
        let count = entry.totals.responses.iter().sum();
        let sum_s = entry.totals.response_us as f64 / 1e6;
        metric.encode_family(&labels(entry))?.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
    }
    Ok(())
}

fn labels(entry: &Entry<'_>) -> [(&'static str, String); 2] {
    [("sensor", entry.sensor.to_owned()), ("server", entry.address.to_string())]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::SocketAddr;

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use watari_endings::{Profile, Tally};
    use watari_packets::Timestamp;

    use super::*;
    use crate::report::{Health, Report};

    #[test]
    fn a_board_is_scraped() {
        let mut board = Board::new(Profile::lab());
        for second in 1_000..1_010 {
            let at = Timestamp(second * 1_000_000_000);
            let mut tally = Tally { opened: 6, s_normal: 3, client_abort: 1, answered: 3, ..Tally::default() };
            (tally.endings[0], tally.endings[2], tally.bytes_to_client) = (3, 1, u64::from(u32::MAX));
            (tally.responses.0[3], tally.responses.0[18], tally.response_us) = (2, 1, 60_001_500);
            let server = SocketAddr::from(([10, 0, 0, 2], 80));
            let health = Health { dropped: second, ..Health::default() };
            board.take("front", 0, &Report { at, tallies: vec![(server, second, tally)], health });
            board.advance(at);
        }
        board.link("front").unwrap().is_connected = true;
        let mut registry = Registry::with_prefix("watari_watch");
        registry.register_collector(Box::new(BoardMetrics(Arc::new(Mutex::new(board)))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let of = r#"{sensor="front",server="10.0.0.2:80"}"#;
        for line in [
            r#"watari_watch_server_state{sensor="front",server="10.0.0.2:80",state="normal"} 1"#,
            r#"watari_watch_server_state{sensor="front",server="10.0.0.2:80",state="stopped"} 0"#,
            r#"watari_watch_share{sensor="front",server="10.0.0.2:80",share="client_abort"} 0.25"#,
            r#"watari_watch_connections_ended_total{sensor="front",server="10.0.0.2:80",ending="S_NORMAL"} 30"#,
            &format!("watari_watch_connections_opened_total{of} 60"),
            &format!("watari_watch_connections_open{of} 16.0"),
            &format!("watari_watch_bytes_to_clients_total{of} 42949672950"),
            &format!("watari_watch_response_seconds_sum{of} 600.015"),
            &format!("watari_watch_response_seconds_count{of} 30"),
            r#"watari_watch_response_seconds_bucket{le="0.0005",sensor="front",server="10.0.0.2:80"} 0"#,
            r#"watari_watch_response_seconds_bucket{le="0.001",sensor="front",server="10.0.0.2:80"} 20"#,
            r#"watari_watch_response_seconds_bucket{le="50.0",sensor="front",server="10.0.0.2:80"} 20"#,
            r#"watari_watch_response_seconds_bucket{le="+Inf",sensor="front",server="10.0.0.2:80"} 30"#,
            r#"watari_watch_packets_dropped_total{sensor="front"} 1009"#,
            r#"watari_watch_sensor_connected{sensor="front"} 1.0"#,
            r#"watari_watch_sensor_server_seconds_lost_total{sensor="front"} 0"#,
            r#"watari_watch_threads_hanging{sensor="front"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
