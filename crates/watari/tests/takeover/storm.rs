//! The experiment of the paper on standby servers (its figure 2), 20 times shorter: what a switch costs the next node.
//!
//! Users come at a constant rate. Each sends three requests, by connections of their own, and waits between them for 5,
//! 10, 30 or 60 s in equal shares. Users come for 90 s. There is a planned switch after 30 s, and the node that is active
//! then is killed 30 s later. All these times are divided by [`SHORTER`].
//!
//! The test prints the CPU time of both nodes. It asserts only how many handshakes are full, which does not depend on the
//! speed of the machine. `scripts/bench --only storm` draws the curve under a higher load.

use std::fmt;
use std::fs;
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rcgen::PKCS_RSA_SHA256;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, until};
use crate::pair::Pair;
use crate::standby::until_standby;
use crate::visitor::{Kind, Seen, Visitor};

const SHORTER: u32 = 20;
const ARRIVALS: Duration = scaled(90);
const SWITCH: Duration = scaled(30);
/// From the end of the switch to the kill, so that visits lie between them also where a switch takes long.
const KILL: Duration = scaled(30);
const WAITS: [Duration; 4] = [scaled(5), scaled(10), scaled(30), scaled(60)];
const REQUESTS: usize = 3;
/// Arrivals in a second.
const RATE: u32 = 40;
/// The unit of the printed table.
const UNIT: Duration = Duration::from_millis(500);
/// How long a user waits after a connection that failed.
const AGAIN: Duration = Duration::from_millis(20);

#[test]
fn shared_sessions_resume_behind_a_switch() {
    if !is_inside("storm::shared_sessions_resume_behind_a_switch") {
        return;
    }
    let run = Run::make("mode = \"push\"\ndatabase = \"NAME.redb\"");
    for visit in run.undisturbed() {
        assert_eq!(visit.seen, if visit.number == 0 { Seen::Full } else { Seen::Resumed }, "{visit:?}\n{run}");
    }
    assert!(run.crossings().count() > 0, "{run}");
}

/// The control: agents share no sessions.
#[test]
fn private_sessions_do_not_resume_behind_a_switch() {
    if !is_inside("storm::private_sessions_do_not_resume_behind_a_switch") {
        return;
    }
    let run = Run::make("mode = \"private\"");
    for visit in run.undisturbed() {
        let is_full = visit.number == 0 || run.crosses(visit);
        // A visit within a switch goes to either node.
        if is_full || !run.touches(visit) {
            assert_eq!(visit.seen, if is_full { Seen::Full } else { Seen::Resumed }, "{visit:?}\n{run}");
        }
    }
    assert!(run.crossings().count() > 0, "{run}");
}

/// What happened in a run. All times count from its begin.
struct Run {
    visits: Vec<Visit>,
    /// When the switch and the kill began, and when the next node answered.
    changes: [(Duration, Duration); 2],
    /// CPU time of d1 and d2 in each unit.
    cpu: Vec<[Duration; 2]>,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
struct Visit {
    /// Of the user, from 0 on.
    number: usize,
    seen: Seen,
    /// Whether a connection failed before, in this visit or an earlier one. It may have cost a ticket of the session, or
    /// given one.
    is_disturbed: bool,
    /// The end of the user's visit before.
    since: Duration,
    begun: Duration,
    ended: Duration,
}

impl Run {
    fn make(sessions: &'static str) -> Self {
        let pair = Pair { key: &PKCS_RSA_SHA256, ..Pair::new(sessions) };
        let lab = Lab::start(&Plan { pair: Some(pair), ..PLAN });
        let (visits, begun, users) = (Mutex::default(), Instant::now(), RATE * ARRIVALS.as_millis() as u32 / 1000);
        let is_over = Mutex::new(false);
        let (changes, cpu) = thread::scope(|scope| {
            let cpu = scope.spawn(|| record_cpu(&lab, begun, || *is_over.lock().unwrap()));
            let users: Vec<_> = (0..users)
                .map(|user| {
                    let (lab, visits) = (&lab, &visits);
                    scope.spawn(move || visit(lab, begun, user, visits))
                })
                .collect();
            let change = |at: Duration, next: &str, change: &dyn Fn()| {
                sleep(at.saturating_sub(begun.elapsed()));
                let since = begun.elapsed();
                change();
                lab.until_owner(next);
                (since, begun.elapsed())
            };
            let switched = change(SWITCH, "d2", &|| {
                until("the switch is possible", || lab.ctl("d1", &["switch", "d2"]).status.success());
            });
            until_standby(&lab, "d1", "d2");
            let killed = change(switched.1 + KILL, "d1", &|| lab.kill("d2"));
            for user in users {
                user.join().unwrap();
            }
            *is_over.lock().unwrap() = true;
            ([switched, killed], cpu.join().unwrap())
        });
        lab.end();
        let run = Self { visits: visits.into_inner().unwrap(), changes, cpu };
        println!("{sessions}\n{run}");
        run
    }

    fn undisturbed(&self) -> impl Iterator<Item = &Visit> {
        self.visits.iter().filter(|visit| !visit.is_disturbed)
    }

    /// Whether the visit was after a change of the node, and the user's visit before it was before the change.
    fn crosses(&self, visit: &Visit) -> bool {
        // A user who was away for both changes is at the first node again.
        let is_between = |&&(since, until): &&(Duration, Duration)| visit.since < since && until < visit.begun;
        visit.number > 0 && !self.touches(visit) && self.changes.iter().filter(is_between).count() == 1
    }

    /// Whether the visit, or the user's visit before it, may have been within a change of the node.
    fn touches(&self, visit: &Visit) -> bool {
        let is_within = |at: Duration, &(since, until): &(Duration, Duration)| since <= at && at <= until;
        self.changes.iter().any(|change| {
            is_within(visit.since, change)
                || is_within(visit.begun, change)
                || is_within(visit.ended, change)
                || (visit.begun < change.0 && change.1 < visit.ended)
        })
    }

    fn crossings(&self) -> impl Iterator<Item = &Visit> {
        self.undisturbed().filter(|visit| self.crosses(visit))
    }
}

/// A user's visits. Each goes on until it is answered.
fn visit(lab: &Lab, begun: Instant, user: u32, visits: &Mutex<Vec<Visit>>) {
    sleep((ARRIVALS * user / (RATE * ARRIVALS.as_millis() as u32 / 1000)).saturating_sub(begun.elapsed()));
    let visitor = Visitor::new(lab, Kind::ALL[user as usize % Kind::ALL.len()]);
    let (mut is_disturbed, mut since) = (false, Duration::ZERO);
    for number in 0..REQUESTS {
        let start = begun.elapsed();
        let mut seen = None;
        until("the request is answered", || {
            seen = visitor.visit().ok();
            if seen.is_none() {
                is_disturbed = true;
                sleep(AGAIN);
            }
            seen.is_some()
        });
        let ended = begun.elapsed();
        let seen = seen.unwrap();
        visits.lock().unwrap().push(Visit { number, seen, is_disturbed, since, begun: start, ended });
        since = ended;
        sleep(WAITS[(user as usize / Kind::ALL.len() + number) % WAITS.len()]);
    }
}

/// The CPU time of both nodes in each unit. A node that is gone takes none.
fn record_cpu(lab: &Lab, begun: Instant, is_over: impl Fn() -> bool) -> Vec<[Duration; 2]> {
    let now =
        || ["d1", "d2"].map(|name| lab.pid(name).map_or(Duration::ZERO, |pid| cpu_of(pid.as_raw_nonzero().get())));
    let (mut cpu, mut before) = (Vec::new(), now());
    while !is_over() {
        sleep((UNIT * (cpu.len() as u32 + 1)).saturating_sub(begun.elapsed()));
        let used = now();
        cpu.push([0, 1].map(|node| used[node].saturating_sub(before[node])));
        before = used;
    }
    cpu
}

/// The CPU time of a process: the sum of its threads.
fn cpu_of(pid: i32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

const fn scaled(seconds: u32) -> Duration {
    Duration::from_millis(seconds as u64 * 1000 / SHORTER as u64)
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [switched, killed] = self.changes;
        writeln!(f, "switch {switched:?}, kill {killed:?}, {} crossings", self.crossings().count())?;
        writeln!(f, "    s   full  resumed  d1 CPU  d2 CPU")?;
        for (unit, [d1, d2]) in self.cpu.iter().enumerate() {
            let count = |seen| {
                let is_in =
                    |visit: &&Visit| visit.seen == seen && visit.ended.as_millis() / UNIT.as_millis() == unit as u128;
                self.visits.iter().filter(is_in).count()
            };
            let [d1, d2] = [d1, d2].map(|used| format!("{:.0} %", used.as_secs_f64() / UNIT.as_secs_f64() * 100.0));
            let (full, resumed) = (count(Seen::Full), count(Seen::Resumed));
            writeln!(f, "{:5.1}  {full:5}  {resumed:7}  {d1:>6}  {d2:>6}", (UNIT * unit as u32).as_secs_f64())?;
        }
        Ok(())
    }
}
