//! Notices as JSON, in the formats of Alertmanager.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use watari_packets::Timestamp;

use super::notice::{Notice, rfc3339};

/// The webhook of Alertmanager, version 4 (`webhook.Message` and `template.Data` there), with one alert in a group of
/// its own.
pub(super) fn webhook(notice: &Notice, receiver: &str, external_url: &str) -> Vec<u8> {
    let labels = notice.labels();
    let group_labels: BTreeMap<_, _> =
        GROUPED_BY.iter().filter_map(|name| Some((*name, labels.get(name)?.clone()))).collect();
    let message = Webhook {
        version: "4",
        group_key: group_key(&group_labels),
        truncated_alerts: 0,
        status: notice.status(),
        receiver,
        group_labels,
        common_labels: labels,
        common_annotations: notice.annotations(),
        external_url,
        alerts: [Alert::new(notice, external_url)],
    };
    serde_json::to_vec(&message).expect("plain values")
}

/// The body for Alertmanager's `/api/v2/alerts` (`postableAlerts` there). An active alert ends by itself unless it is
/// repeated after `repeat`. As with Prometheus, some of the repeats may be lost.
pub(super) fn alertmanager(notice: &Notice, external_url: &str, now: Timestamp, repeat: Option<Duration>) -> Vec<u8> {
    let ends_at = match &notice.over {
        Some(over) => Some(over.at),
        None => repeat.map(|repeat| now + repeat * REPEATS_LOST_MAX),
    };
    let alert = PostableAlert {
        labels: notice.labels(),
        annotations: notice.annotations(),
        starts_at: rfc3339(notice.episode.since),
        ends_at: ends_at.map(rfc3339),
        generator_url: Some(external_url).filter(|url| !url.is_empty()),
    };
    serde_json::to_vec(&[alert]).expect("plain values")
}

/// One alert, as in the webhook.
pub(super) fn alert(notice: &Notice) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Alert::new(notice, "")).expect("plain values");
    line.push(b'\n');
    line
}

/// The labels that identify an alert.
const GROUPED_BY: [&str; 3] = ["alertname", "sensor", "server"];
/// As in Prometheus' `sendAlerts`.
const REPEATS_LOST_MAX: u32 = 4;
/// The zero of Go's time: the end of an active alert.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Webhook<'a> {
    version: &'static str,
    group_key: String,
    truncated_alerts: u64,
    status: &'static str,
    receiver: &'a str,
    group_labels: BTreeMap<&'static str, String>,
    common_labels: BTreeMap<&'static str, String>,
    common_annotations: BTreeMap<&'static str, String>,
    #[serde(rename = "externalURL")]
    external_url: &'a str,
    alerts: [Alert<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Alert<'a> {
    status: &'static str,
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: &'a str,
    fingerprint: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PostableAlert<'a> {
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
    #[serde(rename = "generatorURL", skip_serializing_if = "Option::is_none")]
    generator_url: Option<&'a str>,
}

impl<'a> Alert<'a> {
    fn new(notice: &Notice, external_url: &'a str) -> Self {
        Self {
            status: notice.status(),
            labels: notice.labels(),
            annotations: notice.annotations(),
            starts_at: rfc3339(notice.episode.since),
            ends_at: notice.over.as_ref().map_or_else(|| NEVER.to_owned(), |over| rfc3339(over.at)),
            generator_url: external_url,
            fingerprint: notice.fingerprint(),
        }
    }
}

/// As Alertmanager writes it: the route, which is empty here, and the labels.
fn group_key(labels: &BTreeMap<&'static str, String>) -> String {
    let label = |(name, value): (&&str, &String)| format!("{name}={value:?}");
    let labels: Vec<String> = labels.iter().map(label).collect();
    format!("{{}}:{{{}}}", labels.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::alerting::notice::{Episode, Key, Over, Trouble};

    fn notice(over: Option<Over>) -> Notice {
        let key = Key::new("west \"1\"", "192.0.2.1:443".parse().unwrap(), Trouble::Saturated);
        let since = Timestamp(1_700_000_000_000_000_000);
        Notice { key, episode: Episode { since, reason: "aborts".to_owned(), because: "many".to_owned() }, over }
    }

    fn over() -> Over {
        Over { at: Timestamp(1_700_000_060_000_000_000), because: "It is normal now".to_owned() }
    }

    #[test]
    fn a_webhook_is_as_alertmanager_sends_it() {
        let labels = json!({
            "alertname": "WatariServerSaturated", "sensor": "west \"1\"", "server": "192.0.2.1:443",
            "severity": "warning", "state": "saturated",
        });
        let annotations = json!({
            "summary": "192.0.2.1:443 is saturated, as sensor west \"1\" sees it", "description": "many (aborts)",
        });
        let fingerprint = notice(None).fingerprint();
        let expected = json!({
            "version": "4",
            "groupKey": r#"{}:{alertname="WatariServerSaturated", sensor="west \"1\"", server="192.0.2.1:443"}"#,
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "pager",
            "groupLabels":
                {"alertname": "WatariServerSaturated", "sensor": "west \"1\"", "server": "192.0.2.1:443"},
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": "https://watch.example/",
            "alerts": [{
                "status": "firing", "labels": labels, "annotations": annotations,
                "startsAt": "2023-11-14T22:13:20Z", "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://watch.example/", "fingerprint": fingerprint,
            }],
        });
        let firing: Value = serde_json::from_slice(&webhook(&notice(None), "pager", "https://watch.example/")).unwrap();
        assert_eq!(firing, expected);
        let resolved: Value = serde_json::from_slice(&webhook(&notice(Some(over())), "pager", "")).unwrap();
        assert_eq!((&resolved["status"], &resolved["alerts"][0]["status"]), (&json!("resolved"), &json!("resolved")));
        assert_eq!(resolved["alerts"][0]["endsAt"], "2023-11-14T22:14:20Z");
    }

    #[test]
    fn an_alert_for_alertmanager_has_an_end() {
        let now = Timestamp(1_700_000_010_000_000_000);
        let rendered = |notice: &Notice| -> Value {
            serde_json::from_slice(&alertmanager(notice, "", now, Some(Duration::from_mins(1)))).unwrap()
        };
        let firing = &rendered(&notice(None))[0];
        assert_eq!(
            (&firing["startsAt"], &firing["endsAt"]),
            (&json!("2023-11-14T22:13:20Z"), &json!("2023-11-14T22:17:30Z"))
        );
        assert_eq!(firing.get("generatorURL"), None);
        assert_eq!(rendered(&notice(Some(over())))[0]["endsAt"], "2023-11-14T22:14:20Z");
    }
}
