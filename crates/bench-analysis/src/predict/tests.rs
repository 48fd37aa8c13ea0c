#![allow(clippy::unwrap_used)]
#![allow(clippy::float_cmp, clippy::cast_precision_loss, reason = "the numbers are whole, and small")]

use proptest::prelude::*;

use super::profile::Profile;
use super::*;

fn sizing(capacity: f64, growth: f64, headroom: f64, redundancy: u32) -> Sizing {
    Sizing {
        capacity: Stated::new(capacity, "--capacity"),
        growth: Stated::new(growth, "--growth"),
        headroom: Stated::new(headroom, "default"),
        redundancy: Stated::new(redundancy, "default"),
        peak: Stated::new(Window::Second, "default"),
    }
}

fn demand(second: f64) -> Demand {
    Demand {
        requests_per_s: Busiest { hour: second / 4.0, minute: second / 2.0, second },
        bytes_per_s: Some(second * 1000.0),
        handshake_share: Some(0.05),
        assumptions: vec![Assumption::new("visits a day", 100, "day.toml")],
    }
}

fn servers_for(second: f64, sizing: &Sizing) -> u64 {
    Prediction::new(&demand(second), sizing).unwrap().servers
}

#[test]
fn a_prediction_by_hand() {
    // 800 x 1.5 = 1200; 500 x 0.7 = 350; 1200 / 350 = 3.4, so 4, and 1 spare.
    let prediction = Prediction::new(&demand(800.0), &sizing(500.0, 1.5, 0.3, 1)).unwrap();
    assert_eq!((prediction.peak_per_s, prediction.usable_per_s), (1200.0, 350.0));
    assert_eq!((prediction.serving, prediction.spare, prediction.servers), (4, 1, 5));
    assert_eq!(prediction.requests_per_s, Busiest { hour: 300.0, minute: 600.0, second: 1200.0 });
    assert_eq!((prediction.bytes_per_s, prediction.handshakes_per_s), (Some(1_200_000.0), Some(60.0)));
}

#[test]
fn the_peak_may_be_a_longer_stretch() {
    let by_minute = Sizing { peak: Stated::new(Window::Minute, "--peak"), ..sizing(500.0, 1.5, 0.3, 1) };
    let prediction = Prediction::new(&demand(800.0), &by_minute).unwrap();
    assert_eq!((prediction.peak_per_s, prediction.serving, prediction.handshakes_per_s), (600.0, 2, Some(30.0)));
}

#[test]
fn servers_that_are_just_enough_are_enough() {
    assert_eq!(servers_for(700.0, &sizing(1000.0, 1.0, 0.3, 0)), 1);
    assert_eq!(servers_for(700.1, &sizing(1000.0, 1.0, 0.3, 0)), 2);
    // In binary, 3 x 1.1 is a little more than 3.3.
    assert_eq!(servers_for(3.0, &sizing(3.3, 1.1, 0.0, 0)), 1);
    assert_eq!(servers_for(0.0, &sizing(1000.0, 1.0, 0.3, 1)), 2);
}

#[test]
fn every_assumption_is_told_with_its_source() {
    let text = Prediction::new(&demand(800.0), &sizing(500.0, 1.5, 0.3, 1)).unwrap().to_string();
    let expected = "\
Predicted load
  busiest hour            300.0 requests/s
  busiest minute          600.0 requests/s
  busiest second         1200.0 requests/s
  busiest minute          1.200 MB/s
  at the peak              60.0 full TLS handshakes/s

Servers: 5
  4 for 1200.0 requests/s at 350.0 each, 1 spare

Assumptions
  visits a day                 100                                                                 (day.toml)
  one server takes             500.0 requests/s                                                    (--capacity)
  growth                       x 1.5                                                               (--growth)
  each server keeps free       30 %                                                                (default)
  servers that may be missing  1                                                                   (default)
  the servers must take        the busiest second                                                  (default)
  several servers take         in proportion to their number: nothing behind them is a bottleneck  (model)
  requests of the capacity     cost a server as much as those of the site                          (model)
";
    assert_eq!(text, expected);
}

#[test]
fn sizing_of_which_nothing_follows_is_refused() {
    let refused = |sizing| Prediction::new(&demand(1.0), &sizing).unwrap_err();
    assert_eq!(refused(sizing(0.0, 1.0, 0.3, 1)), SizingError::Capacity(0.0));
    assert_eq!(refused(sizing(1.0, -1.0, 0.3, 1)), SizingError::Growth(-1.0));
    assert_eq!(refused(sizing(1.0, f64::INFINITY, 0.3, 1)), SizingError::Growth(f64::INFINITY));
    assert_eq!(refused(sizing(1.0, 1.0, 1.0, 1)), SizingError::Headroom(1.0));
}

/// A day with a tenth of its 2.4 million requests in one hour: 66.7 a second.
const DAY: &str = "\
visits_per_day = 20_000
pages_per_visit = 6
requests_per_page = 20
hourly_shares = [10, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
bytes_per_request = 1000
handshakes_per_visit = 6
";

fn profile_demand(text: &str, quantile: f64) -> Demand {
    Profile::parse("day.toml", text).unwrap().demand(&Stated::new(quantile, "default"))
}

#[test]
fn a_profile_by_hand() {
    let demand = profile_demand(DAY, 0.99);
    // 12,000 pages in the busiest hour: 3.33 a second. 12,255 with probability 0.99 (2.33 deviations of 109.5). A
    // second stays at 14 pages with probability 0.9999985, all 3,600 with 0.995; at 13 with 0.9999937, all with 0.977.
    assert!((demand.requests_per_s.hour - 12_255.0 * 20.0 / 3600.0).abs() < 0.02, "{demand:?}");
    assert_eq!(demand.requests_per_s.second, 14.0 * 20.0);
    // A minute has 200 on average. The fullest of 60 is at 3.58 deviations of 14.14.
    assert!((demand.requests_per_s.minute - 253.0 * 20.0 / 60.0).abs() < 1.0, "{demand:?}");
    assert_eq!(demand.bytes_per_s, Some(1000.0 * demand.requests_per_s.minute));
    assert_eq!(demand.handshake_share, Some(0.05));
}

#[test]
fn hours_may_be_stated_as_requests() {
    let hours = "requests_per_hour = [1200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\npeak_factor = 200\n";
    let pages = format!("{hours}requests_per_page = 20\n");
    assert_eq!(profile_demand(&pages, 0.99).requests_per_s, profile_demand(DAY, 0.99).requests_per_s);
    assert!(profile_demand(hours, 0.99).requests_per_s.second < 280.0, "single requests pile up less");
}

#[test]
fn faults_of_a_profile_are_told_with_their_line() {
    let cases = [
        ("visits_per_day = 5\npages_per_visit = \"x\"\n", "day.toml:2: "),
        ("visits_per_day = 5\n\npages = 6\n", "day.toml:3: unknown field `pages`"),
        ("visits_per_day = 5\npages_per_visit = -1\n", "day.toml:2: not a number over 0"),
        ("requests_per_hour = [1, 2]\n", "day.toml:1: 24 numbers are needed, one for each hour of a day, not 2"),
        ("visits_per_day = 5\n", "day.toml: either visits_per_day, pages_per_visit and hourly_shares are stated"),
        (&DAY.replace("20_000", "1e12"), "day.toml: an hour has too many requests"),
        (&DAY.replace("10, 9", "inf, 9"), "day.toml:4: the numbers of the hours are 0 or more, and not all 0"),
        (
            &DAY.replace("handshakes_per_visit = 6", "handshakes_per_visit = 121"),
            "day.toml: a visit has more full handshakes",
        ),
    ];
    for (text, expected) in cases {
        match Profile::parse("day.toml", text) {
            Err(error) => assert!(error.to_string().starts_with(expected), "{error}"),
            Ok(profile) => panic!("{text} gives {profile:?}"),
        }
    }
}

proptest! {
    #[test]
    fn more_load_never_needs_fewer_servers(
        load in 0.0_f64..1e6, more in 0.0_f64..1e6, capacity in 0.1_f64..1e5, growth in 0.1_f64..10.0, headroom in 0.0_f64..0.9,
    ) {
        let sizing = sizing(capacity, growth, headroom, 1);
        prop_assert!(servers_for(load, &sizing) <= servers_for(load + more, &sizing));
    }

    #[test]
    fn more_capacity_and_less_headroom_never_need_more_servers(
        load in 0.0_f64..1e6, capacity in 0.1_f64..1e5, more in 0.0_f64..1e5, headroom in 0.0_f64..0.9, less in 0.0_f64..1.0,
    ) {
        let needed = servers_for(load, &sizing(capacity, 1.0, headroom, 1));
        prop_assert!(servers_for(load, &sizing(capacity + more, 1.0, headroom * less, 1)) <= needed);
    }

    #[test]
    fn the_servers_take_the_load_and_one_fewer_would_not(load in 1.0_f64..1e6, capacity in 0.1_f64..1e5, headroom in 0.0_f64..0.9) {
        let prediction = Prediction::new(&demand(load), &sizing(capacity, 1.0, headroom, 0)).unwrap();
        let taken = |servers: u64| servers as f64 * prediction.usable_per_s;
        prop_assert!(taken(prediction.servers) >= load * (1.0 - 1e-9));
        prop_assert!(prediction.servers == 1 || taken(prediction.servers - 1) < load);
    }

    #[test]
    fn shorter_stretches_are_busier_and_surer_ones_too(
        visits in 1.0_f64..1e6, pages in 1_u32..20, requests in 1_u32..50, quantile in 0.5_f64..0.999, surer in 0.0_f64..1.0,
    ) {
        let text = DAY.replace("20_000", &format!("{visits:.1}")).replace("requests_per_page = 20", &format!("requests_per_page = {requests}"));
        let text = text.replace("pages_per_visit = 6", &format!("pages_per_visit = {pages}")).replace("handshakes_per_visit = 6\n", "");
        let busiest = |quantile| profile_demand(&text, quantile).requests_per_s;
        let (sure, surer) = (busiest(quantile), busiest(quantile + (0.9999 - quantile) * surer));
        prop_assert!(sure.hour <= sure.minute && sure.minute <= sure.second);
        prop_assert!(sure.hour <= surer.hour && sure.minute <= surer.minute && sure.second <= surer.second);
    }
}
