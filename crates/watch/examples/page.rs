//! The page with servers that go through all states:
//! `cargo run --package watari-watch --features page --example page [ADDRESS]`.
//!
//! Two sensors see the two sides of a cache, and one of them sees another server too. A minute of the scenario is
//! reported at once.

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use watari_endings::{Ending, Histogram, Profile, Tally};
use watari_packets::Timestamp;
use watari_watch::board::Board;
use watari_watch::report::{Health, Report};
use watari_watch::web::{Site, serve, tick};

/// How long a server stays in a part of the scenario, in seconds.
const PART_S: u64 = 40;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8484".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("http://{}/ shows servers that do not exist; Ctrl-C ends it", listener.local_addr()?);
    let board = Arc::new(Mutex::new(Board::new(profile())));
    let mut second = now_s()?;
    for past in second - 240..second {
        report(&board, past);
    }
    let (ticks, seen) = watch::channel(tick(&board));
    let site = Site { board: Arc::clone(&board), ticks: seen, names: Vec::new() };
    serve(listener, site, CancellationToken::new())?;
    let mut clock = interval(Duration::from_millis(200));
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        clock.tick().await;
        while second < now_s()? {
            report(&board, second);
            second += 1;
            ticks.send_replace(tick(&board));
        }
    }
}

/// The paper's site, with a span in which changes are visible.
fn profile() -> Profile {
    Profile { span: Duration::from_mins(4), stopped_span: Duration::from_secs(10), ..Profile::site() }
}

fn now_s() -> Result<u64, std::time::SystemTimeError> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}

/// The reports of all sensors for a second.
fn report(board: &Mutex<Board>, second: u64) {
    let [front, back, other] = ["192.0.2.10:443", "198.51.100.7:80", "[2001:db8::8]:443"]
        .map(|address| address.parse::<SocketAddr>().expect("an address"));
    let at = Timestamp((second + 1) * 1_000_000_000);
    let mut board = board.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outside = vec![(front, second, happened(second, 0, 60.0)), (other, second, happened(second, 97, 8.0))];
    let inside = vec![(back, second, happened(second, 8, 25.0))];
    for (sensor, tallies) in [("outside", outside), ("inside", inside)] {
        board.take(sensor, 0, &Report { at, tallies, health: Health::default() });
    }
    board.advance(at);
}

/// Normal, saturated in both ways, stopped, and normal again.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn happened(second: u64, shift: u64, load: f64) -> Tally {
    let mut dice = Dice(second.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ shift);
    let (good, aborts, timeouts) = match (second + shift * 3) / PART_S % 6 {
        1 => (0.35, 0.6, 0.05),
        2 => (0.2, 0.3, 0.5),
        4 => return stopped(&mut dice, load, second),
        _ => (0.68, 0.29, 0.03),
    };
    let swing = 0.7 + 0.3 * (second as f64 / 17.0).sin();
    let [s_normal, client_abort, timeout] = [good, aborts, timeouts].map(|share: f64| dice.about(load * swing * share));
    let ended = s_normal + client_abort + timeout;
    let mut tally = Tally {
        opened: (ended + held(second)).saturating_sub(held(second - 1)),
        s_normal,
        client_abort,
        timeout,
        answered: ended,
        unanswered: timeout / 3,
        tls_full: ended / 4,
        tls_resumed: ended - ended / 4,
        tls_handshakes: ended,
        tls_handshake_us: u64::from(ended) * 2_300,
        bytes_to_client: u64::from(ended) * 14_000,
        ..Tally::default()
    };
    for _ in 0..ended {
        let time = Duration::from_micros(dice.about(2_000.0 + 90_000.0 * timeouts).into());
        let time = time * (1 + dice.about(1.0)).pow(2);
        let (responses, response_max_us) = (Histogram::of(time), time.as_micros() as u32);
        tally += Tally { responses, response_max_us, ..Tally::default() };
    }
    let counts = [
        (Ending::SNormal, s_normal),
        (Ending::CNormal, client_abort / 3),
        (Ending::CReset, client_abort - client_abort / 3),
        (Ending::Timeout, timeout),
    ];
    for (ending, count) in counts {
        tally.endings[ending as usize] = count;
    }
    tally
}

/// The number of open requests.
#[expect(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a picture")]
fn held(second: u64) -> u32 {
    (30.0 + 25.0 * (second as f64 / 23.0).sin()) as u32
}

fn stopped(dice: &mut Dice, load: f64, second: u64) -> Tally {
    let knocks = dice.about(load * 0.6);
    let opened = (knocks + held(second)).saturating_sub(held(second - 1));
    let mut tally = Tally { opened, unanswered: knocks, ..Tally::default() };
    tally.endings[Ending::Refused as usize] = knocks / 2;
    tally.endings[Ending::NoAnswer as usize] = knocks - knocks / 2;
    tally
}

/// Pseudorandom numbers, the same each time.
struct Dice(u64);

impl Dice {
    /// A count with about this mean.
    #[expect(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a picture")]
    fn about(&mut self, mean: f64) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.0 >> 40) as f64 / (1_u64 << 24) as f64;
        (mean * (0.55 + 0.9 * unit)).round() as u32
    }
}
