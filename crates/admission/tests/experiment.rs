//! The cache server in front of a CGI (Nakayama 2003, section 5; table 5.3). Each client asks again as soon as it has
//! its response, and the origin gets at most ten requests at a time.
//!
//! The origin of this simulation works on all its requests at once. Up to ten requests do not slow each other down. It
//! finishes 12.8 requests per second in all, the rate that follows from the figures measured in the paper. The work of
//! a request is random.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the values are some thousands, and not negative"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::Ipv4Addr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::{Duration, Instant};

use watari_admission::{AdmissionId, Entered, Limits, Queue, QueueSettings, Request};

/// Requests of average size that the origin finishes per second under full load.
const SERVED_PER_S: f64 = 12.8;
/// Requests that the origin works on without slowing each other down.
const AT_ONCE: usize = 10;
/// Requests of each client.
const REQUESTS_EACH: usize = 10;

/// Clients, and the mean time of a request in seconds, with the queue (table 5.3).
const PAPER: [(usize, f64); 5] = [(100, 8.45), (300, 23.5), (500, 39.0), (700, 54.8), (900, 70.0)];

struct Seen {
    /// Mean time from a client's request to its response, in seconds. The first request of each client does not count:
    /// not all clients had begun by then.
    mean_s: f64,
    /// The most requests that the origin had at the same time.
    in_progress_max: usize,
    /// Requests that began at the origin in each full second.
    arrivals: Vec<usize>,
    answered: usize,
}

#[test]
fn the_origin_sees_ten_requests_at_most_and_all_are_served() {
    println!(
        "clients  mean Tc (paper)      at the origin: most at once, arrivals/s in the first second, then mean, most"
    );
    for (clients, paper_s) in PAPER {
        let seen = run(clients, Some(10));
        report(clients, paper_s, &seen);
        assert_eq!(seen.in_progress_max, 10);
        assert_eq!(seen.answered, clients * REQUESTS_EACH, "without a limit no request is refused");
        assert!((seen.mean_s / paper_s - 1.0).abs() < 0.1, "{} s, in the paper {paper_s} s", seen.mean_s);
        assert!(seen.arrivals[0] <= 30 && seen.arrivals.iter().all(|arrivals| *arrivals <= 35), "{:?}", seen.arrivals);
    }
}

#[test]
fn without_the_queue_the_origin_sees_all_at_once() {
    let seen = run(500, None);
    report(500, 35.5, &seen);
    assert_eq!((seen.in_progress_max, seen.answered), (500, 5000));
    assert!(seen.arrivals[0] >= 500, "this is the spike that the queue spares the origin");
}

fn report(clients: usize, paper_s: f64, seen: &Seen) {
    let later = &seen.arrivals[1..];
    println!(
        "{clients:7}  {:5.2} s ({paper_s:5.2} s)  {:33} {:31} {:10.1} {:5}",
        seen.mean_s,
        seen.in_progress_max,
        seen.arrivals[0],
        mean(later.iter().map(|arrivals| *arrivals as f64)),
        later.iter().max().unwrap(),
    );
}

fn run(clients: usize, in_progress_max: Option<usize>) -> Seen {
    let all = Limits { in_progress_max: in_progress_max.and_then(NonZeroUsize::new), ..Limits::default() };
    let settings = QueueSettings { rules: Vec::new(), all, priority: 0, one_in: NonZeroU32::MIN };
    let mut experiment = Experiment::new(Queue::new(settings));
    for client in 0..clients {
        experiment.ask(client);
    }
    while experiment.step() {}
    experiment.seen()
}

/// Time advances from one response to the next.
struct Experiment {
    queue: Queue,
    begin: Instant,
    now_s: f64,
    origin: Origin,
    /// The client of each request, and when it asked, in seconds.
    asked: BTreeMap<AdmissionId, (usize, f64)>,
    answers: BTreeMap<usize, usize>,
    times_s: Vec<f64>,
    arrivals_s: Vec<f64>,
    in_progress_max: usize,
}

impl Experiment {
    fn new(queue: Queue) -> Self {
        Self {
            queue,
            begin: Instant::now(),
            now_s: 0.0,
            origin: Origin::default(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            times_s: Vec::new(),
            arrivals_s: Vec::new(),
            in_progress_max: 0,
        }
    }

    fn ask(&mut self, client: usize) {
        let address = Ipv4Addr::from(0x0a00_0000 + u32::try_from(client).unwrap()).into();
        match self.queue.enter(Request { host: "origin", path: "/cgi", client: address }, self.now()) {
            Entered::Now(ticket) => {
                self.asked.insert(ticket, (client, self.now_s));
                self.begins(ticket);
            }
            Entered::Waiting(ticket) => drop(self.asked.insert(ticket, (client, self.now_s))),
            Entered::Refused(_) => {}
        }
    }

    fn begins(&mut self, ticket: AdmissionId) {
        self.arrivals_s.push(self.now_s);
        self.origin.begin(ticket);
        self.in_progress_max = self.in_progress_max.max(self.origin.working.len());
    }

    /// Finishes the origin's next request. Returns whether it had one.
    fn step(&mut self) -> bool {
        let Some((took_s, ticket)) = self.origin.finish() else { return false };
        self.now_s += took_s;
        let (client, since_s) = self.asked.remove(&ticket).unwrap();
        if let Some(begun) = self.queue.leave(ticket, self.now()) {
            self.begins(begun);
        }
        let answers = self.answers.entry(client).or_default();
        if *answers > 0 {
            self.times_s.push(self.now_s - since_s);
        }
        *answers += 1;
        if *answers < REQUESTS_EACH {
            self.ask(client);
        }
        true
    }

    fn now(&self) -> Instant {
        self.begin + Duration::from_secs_f64(self.now_s)
    }

    fn seen(self) -> Seen {
        let in_second = |second: usize| self.arrivals_s.iter().filter(|at_s| **at_s as usize == second).count();
        // Without the last seconds, in which clients run out of requests.
        let seconds = (self.arrivals_s.last().unwrap() * 0.9) as usize;
        Seen {
            mean_s: mean(self.times_s.iter().copied()),
            in_progress_max: self.in_progress_max,
            arrivals: (0..seconds).map(in_second).collect(),
            answered: self.answers.values().sum(),
        }
    }
}

/// A processor that all requests share.
#[derive(Default)]
struct Origin {
    /// The work done on each request that was present from the beginning, in millionths of an average request.
    done: u64,
    /// When a request is finished, on the scale of `done`. The earliest is on top.
    working: BinaryHeap<Reverse<(u64, AdmissionId)>>,
    drawn: u64,
}

impl Origin {
    /// The work of a request is between half and one and a half times the average.
    fn begin(&mut self, ticket: AdmissionId) {
        self.drawn = self.drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.working.push(Reverse((self.done + 500_000 + (self.drawn >> 32) % 1_000_000, ticket)));
    }

    /// The next request that finishes, and after how many seconds.
    fn finish(&mut self) -> Option<(f64, AdmissionId)> {
        let each_per_s = SERVED_PER_S / self.working.len().max(AT_ONCE) as f64;
        let Reverse((finished, ticket)) = self.working.pop()?;
        let took_s = (finished - self.done) as f64 / 1e6 / each_per_s;
        self.done = finished;
        Some((took_s, ticket))
    }
}

fn mean(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    numbers.clone().sum::<f64>() / numbers.count() as f64
}
