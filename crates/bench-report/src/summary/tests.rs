#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::sample::RequestSample;
use watari_bench_engine::test_samples::{connection, request, tally};

use super::*;

#[test]
fn the_json_has_what_checks_rely_on() {
    let json = serde_json::to_value(summary()).unwrap();
    for part in [&json, &json["by_family"]["ipv4"], &json["by_family"]["ipv6"], &json["by_tls"]["full"]] {
        assert!(part["requests"].is_u64(), "{part}");
        for number in ["seconds", "requests_per_s", "bytes_per_s"] {
            assert!(part[number].is_number(), "{number}");
        }
        for times in ["tr_ms", "tc_ms", "latency_ms"] {
            for figure in ["mean", "min", "p50", "p90", "p99", "p999", "max"] {
                assert!(part[times][figure].is_f64(), "{times}.{figure}");
            }
        }
        for kind in EndingKind::ALL {
            assert!(part["endings"][kind.name()].is_u64(), "{kind:?}");
        }
        assert!(part["tls"]["full"].is_u64() && part["tls"]["resumed"].is_u64());
    }
}

#[test]
fn the_figures_are_those_of_the_run() {
    let json = serde_json::to_value(summary()).unwrap();
    assert_eq!(json["requests"], 5);
    assert_eq!(json["requests_per_s"], 1.5, "only what ended NORMAL counts");
    assert_eq!(json["bytes_per_s"], 2_500.0);
    assert_eq!((&json["failures"], &json["failed"], &json["error_statuses"]), (&json!(0.4), &json!(2), &json!(0)));
    assert_eq!(json["unfinished"], 2);
    assert_eq!((&json["flows"]["done"], &json["flows"]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(json["flows"]["duration_ms"]["mean"], 300.0);
    assert_eq!(json["status"], json!({"200": 5}));
    assert_eq!(json["by_family"]["ipv6"]["requests"], 1);
    assert_eq!(json["by_class"]["image"]["requests"], 2);
    assert_eq!(json["tls"]["suites"], json!({"TLS_AES_128_GCM_SHA256": 2}));
    assert_eq!(json["connections"]["endings"]["RESET"], 1);
    assert_eq!(json["series"]["points"][0]["started"], 5);
    assert_eq!(json["by_tls"]["resumed"]["latency_ms"]["count"], 0);
    assert_eq!(json["by_tls"]["resumed"]["latency_ms"]["p99"], 0.0);
}

#[test]
fn a_status_that_is_none_of_success_is_a_failure_and_ends_normal() {
    let mut tally = tally();
    let sample = request(0, Family::Ipv4, None, EndingKind::Normal);
    tally.request(&sample);
    tally.request(&RequestSample { status: Some(404), error_status: true, ..sample });
    let summary = Summary::new(Run::default(), Duration::from_secs(1), &tally);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!((&json["endings"]["NORMAL"], &json["requests"]), (&json!(2), &json!(2)));
    assert_eq!((&json["failures"], &json["failed"], &json["error_statuses"]), (&json!(0.5), &json!(1), &json!(1)));
    assert_eq!((&json["requests_per_s"], &json["status"]), (&json!(1.0), &json!({"200": 1, "404": 1})));
    assert_eq!(json["series"]["points"][0]["error_statuses"], 1);
    let text = summary.to_string();
    let first: Vec<_> = text.lines().take(3).collect();
    let expected = [
        "2 requests in 1.00 s: 1.0/s succeeded, 2.0 KiB/s of bodies",
        "status: 200 1, 404 1",
        "failed: 1 (50.000%): status 1",
    ];
    assert_eq!(first, expected);
}

#[test]
fn it_reads_what_it_writes() {
    let summary = summary();
    let json = serde_json::to_vec_pretty(&summary).unwrap();
    assert_eq!(Summary::read(json.as_slice()).unwrap(), summary);
    let histogram = summary.histograms.latency.unwrap().decode::<u64>().unwrap();
    assert_eq!(histogram.len(), summary.total.latency_ms.count);
}

#[test]
fn another_form_is_refused() {
    let mut json = serde_json::to_value(summary()).unwrap();
    json["format"] = Value::from(FORMAT + 1);
    let error = Summary::read(json.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "is a summary in format 3, but this version of Watari reads format 2");
    assert!(Summary::read(&b"{}"[..]).unwrap_err().to_string().starts_with("is not a summary"));
}

#[test]
fn an_endless_file_is_refused() {
    assert!(matches!(Summary::read(std::io::repeat(b' ')), Err(ReadError::TooLarge)));
}

#[test]
fn people_read_it_in_columns() {
    let expected = "\
5 requests in 2.00 s: 1.5/s succeeded, 2.4 KiB/s of bodies
status: 200 5
failed: 2 (40.000%): RESET 1, TIMEOUT 1
1 flows completed, and 1 failed
2 more requests were in progress when the run was cancelled, and are not counted
1 x TLS handshake: it is too late

ending   requests    share  in phase (by side)
NORMAL          3  60.000%
RESET           1  20.000%  response (server) 1
TIMEOUT         1  20.000%  response (server) 1

times in ms                count     mean      min      p50      p90      p99    p99.9      max
latency                        3  400.000  400.000  400.000  400.000  400.000  400.000  400.000
  wait for the first byte      5  200.000  200.000  200.000  200.000  200.000  200.000  200.000
  transfer                     3  100.000  100.000  100.000  100.000  100.000  100.000  100.000
requests that failed           2  400.000  400.000  400.000  400.000  400.000  400.000  400.000
connect                        2   10.000   10.000   10.000   10.000   10.000   10.000   10.000
TLS handshake                  2   20.000   20.000   20.000   20.000   20.000   20.000   20.000
Tr, connect to request         2   35.000   35.000   35.000   35.000   35.000   35.000   35.000
Tc, connect to close           1   90.000   90.000   90.000   90.000   90.000   90.000   90.000
connections that failed        1   90.000   90.000   90.000   90.000   90.000   90.000   90.000
whole flow                     1  300.000  300.000  300.000  300.000  300.000  300.000  300.000
began late by                  1    0.050    0.050    0.050    0.050    0.050    0.050    0.050

of these      requests  NORMAL  failed  success/s  latency p50      p99      max  Tr mean  Tc mean
IPv4                 4       2       2        1.0      400.000  400.000  400.000   35.000   90.000
IPv6                 1       1       0        0.5      400.000  400.000  400.000        -        -
no TLS               1       1       0        0.5      400.000  400.000  400.000        -        -
TLS, full            4       2       2        1.0      400.000  400.000  400.000   35.000   90.000
TLS, resumed         0       0       0        0.0            -        -        -   35.000        -
image                2       1       1        0.5      400.000  400.000  400.000        -        -
page                 3       2       1        1.0      400.000  400.000  400.000   35.000   90.000

TLS handshakes: 1 full, 1 resumed
  version: TLSv1.3 2
  suite: TLS_AES_128_GCM_SHA256 2
  group: X25519MLKEM768 2
  server's key: ECDSA P-256 2
connections: 2 opened, 2.3 KiB read, 200 B written
  RESET 1: close (server) 1
";
    assert_eq!(summary().to_string(), expected);
}

#[test]
fn the_run_is_described() {
    let run = Run::of_this_process(vec!["watari".into()], SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
    assert_eq!(run.started, "1970-01-01T00:00:01Z");
    assert!(run.machine.starts_with("Linux ") && run.machine.ends_with(" processors"), "{}", run.machine);
}

/// Five requests in 2 s (one RESET, one TIMEOUT), two connections, two unfinished requests.
pub(crate) fn summary() -> Summary {
    let mut tally = tally();
    let full = Some(HandshakeKind::Full);
    tally.request(&request(0, Family::Ipv4, None, EndingKind::Normal));
    tally.request(&request(0, Family::Ipv4, full, EndingKind::Normal));
    tally.request(&request(0, Family::Ipv4, full, EndingKind::Reset));
    tally.request(&request(1, Family::Ipv4, full, EndingKind::Timeout));
    tally.request(&request(1, Family::Ipv6, full, EndingKind::Normal));
    tally.connection(&connection(full, EndingKind::Normal));
    tally.connection(&connection(Some(HandshakeKind::Resumed), EndingKind::Reset));
    tally.unfinished(2);
    tally.flow(Some(Duration::from_millis(300)));
    tally.flow(None);
    tally.lag(Duration::from_micros(50));
    let run = Run { command: vec!["watari".into(), "bench".into()], ..Run::default() };
    Summary::new(run, Duration::from_secs(2), &tally).because([("TLS handshake: it is too late".to_owned(), 1)].into())
}
