#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::model::Model;
use super::*;

const UNLIMITED: Limits = Limits { in_progress_max: None, waiting_max: None, wait_max: None };

fn at_once(max: usize) -> Limits {
    Limits { in_progress_max: NonZeroUsize::new(max), ..UNLIMITED }
}

fn rule(pattern: &str, limits: Limits, priority: u8) -> Rule {
    Rule { pattern: pattern.parse().unwrap(), limits, priority }
}

fn queue(rules: &[Rule], all: Limits, one_in: u32) -> Queue {
    Queue::new(QueueSettings { rules: rules.to_vec(), all, priority: 0, one_in: one_in.try_into().unwrap() })
}

fn client(n: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, n).into()
}

fn enter(queue: &mut Queue, path: &str, n: u8, now: Instant) -> Entered {
    queue.enter(Request { host: "example.org", path, client: client(n) }, now)
}

fn id(entered: Entered) -> AdmissionId {
    match entered {
        Entered::Now(id) | Entered::Waiting(id) => id,
        Entered::Refused(_) => panic!("{entered:?}"),
    }
}

/// The order in which requests begin when one after the other leaves. Ends when none waits any more.
fn order_of_turns(queue: &mut Queue, mut in_progress: AdmissionId, who: &[(AdmissionId, u8)], now: Instant) -> Vec<u8> {
    let mut order = Vec::new();
    while let Some(next) = queue.leave(in_progress, now) {
        order.extend(who.iter().filter(|(id, _)| *id == next).map(|(_, n)| *n));
        in_progress = next;
    }
    order
}

#[test]
fn clients_take_turns_and_each_is_served_in_its_order() {
    let (mut queue, now) = (queue(&[], at_once(1), 1), Instant::now());
    let first = id(enter(&mut queue, "/", 9, now));
    let who: Vec<_> = [1, 1, 1, 1, 2, 2, 3].map(|n| (id(enter(&mut queue, "/", n, now)), n)).into();
    assert_eq!(queue.load(), Load { in_progress: 1, waiting: 7 });
    assert_eq!(order_of_turns(&mut queue, first, &who, now), [1, 2, 3, 1, 2, 1, 1]);
    assert_eq!(queue.load(), Load::default());
}

#[test]
fn the_limit_of_all_holds_beside_that_of_each_rule() {
    let rules = [rule("/cgi/*", at_once(2), 0), rule("/big/*", at_once(2), 0)];
    let (mut queue, now) = (queue(&rules, at_once(3), 1), Instant::now());
    let begins = |entered| matches!(entered, Entered::Now(_));
    assert!(begins(enter(&mut queue, "/cgi/a", 1, now)) && begins(enter(&mut queue, "/cgi/b", 1, now)));
    let third = id(enter(&mut queue, "/cgi/c", 1, now));
    assert!(begins(enter(&mut queue, "/big/a", 2, now)), "a request with a free slot does not wait");
    let other = id(enter(&mut queue, "/else", 3, now));
    assert_eq!(queue.load(), Load { in_progress: 3, waiting: 2 });
    let loads: Vec<_> = queue.loads().map(|(pattern, load)| (pattern.map(Pattern::to_string), load)).collect();
    assert_eq!(
        loads,
        [
            (Some("/cgi/*".to_owned()), Load { in_progress: 2, waiting: 1 }),
            (Some("/big/*".to_owned()), Load { in_progress: 1, waiting: 0 }),
            (None, Load { in_progress: 0, waiting: 1 }),
        ]
    );
    assert_eq!(queue.leave(AdmissionId(4), now), Some(other), "the request to /big/a leaves: /cgi/ has no room still");
    assert_eq!(queue.leave(AdmissionId(1), now), Some(third));
}

/// One turn in ten, if it could begin at any time.
#[test]
fn a_lower_priority_gets_one_in_ten() {
    let rules = [rule("/now/*", UNLIMITED, 2)];
    let (mut queue, now) = (queue(&rules, at_once(1), 10), Instant::now());
    let first = id(enter(&mut queue, "/", 9, now));
    let mut who: Vec<_> = (0..5).map(|_| (id(enter(&mut queue, "/", 1, now)), 1)).collect();
    who.extend((0..30).map(|_| (id(enter(&mut queue, "/now/", 2, now)), 2)));
    let order = order_of_turns(&mut queue, first, &who, now);
    let low: Vec<_> = (0..order.len()).filter(|at| order[*at] == 1).collect();
    assert_eq!(low, [9, 19, 29, 33, 34]);
}

#[test]
fn a_request_at_a_full_queue_gets_retry_after() {
    let all = Limits { in_progress_max: NonZeroUsize::new(2), waiting_max: Some(3), wait_max: None };
    let (mut queue, mut now) = (queue(&[], all, 1), Instant::now());
    let first = id(enter(&mut queue, "/", 1, now));
    now += Duration::from_secs(10);
    assert!(queue.leave(first, now).is_none());
    for _ in 0..5 {
        id(enter(&mut queue, "/", 1, now));
    }
    let Entered::Refused(retry_after) = enter(&mut queue, "/", 2, now) else { panic!() };
    assert_eq!(retry_after.duration(), Duration::from_secs(20), "three wait before it, two begin in each 10 s");
}

/// The average durations under the limit of all and under that of a rule are kept.
#[test]
fn other_settings_do_not_change_how_long_requests_take() {
    let full_at = |max| Limits { waiting_max: Some(0), ..at_once(max) };
    for (one, all, path) in [(full_at(1), UNLIMITED, "/one"), (UNLIMITED, full_at(1), "/")] {
        let settings = QueueSettings { rules: vec![rule("/one", one, 0)], all, priority: 0, one_in: NonZeroU32::MIN };
        let (mut queue, mut now) = (Queue::new(settings.clone()), Instant::now());
        let first = id(enter(&mut queue, path, 1, now));
        now += Duration::from_secs(10);
        queue.leave(first, now);
        assert!(queue.reconfigure(settings, now).is_empty());
        id(enter(&mut queue, path, 1, now));
        let Entered::Refused(retry_after) = enter(&mut queue, path, 1, now) else { panic!() };
        assert_eq!(retry_after.seconds(), 10);
    }
}

#[test]
fn a_request_expires_at_its_maximum_wait() {
    let wait = |seconds| Limits { wait_max: Some(Duration::from_secs(seconds)), ..UNLIMITED };
    let rules = [rule("/short", wait(2), 0)];
    let all = Limits { in_progress_max: NonZeroUsize::new(1), ..wait(5) };
    let (mut queue, now) = (queue(&rules, all, 1), Instant::now());
    let first = id(enter(&mut queue, "/", 1, now));
    let long = id(enter(&mut queue, "/", 1, now));
    let short = id(enter(&mut queue, "/short", 1, now));
    let later = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(queue.next_deadline(), Some(later(2)));
    assert!(queue.expire(now).is_empty());
    let expired = queue.expire(later(2));
    assert_eq!(expired.iter().map(|expired| expired.id).collect::<Vec<_>>(), [short]);
    assert_eq!(queue.next_deadline(), Some(later(5)));
    assert_eq!(queue.leave(first, later(4)), Some(long));
    assert_eq!(queue.next_deadline(), None);
    assert!(queue.expire(later(9)).is_empty(), "it has begun in time");
    assert!(queue.leave(short, now).is_none(), "it was given back already");
    assert_eq!(queue.load(), Load { in_progress: 1, waiting: 0 });
}

#[test]
fn a_request_that_leaves_frees_its_queue_slot() {
    let all = Limits { in_progress_max: NonZeroUsize::new(1), waiting_max: Some(1), wait_max: None };
    let (mut queue, now) = (queue(&[], all, 1), Instant::now());
    id(enter(&mut queue, "/", 1, now));
    let waits = id(enter(&mut queue, "/", 2, now));
    assert!(matches!(enter(&mut queue, "/", 3, now), Entered::Refused(_)));
    assert!(queue.leave(waits, now).is_none());
    assert!(matches!(enter(&mut queue, "/", 3, now), Entered::Waiting(_)));
}

#[derive(Debug, Clone)]
enum Step {
    Enter {
        path: usize,
        client: u8,
    },
    /// A request in the queue, whether it waits or not.
    Leave(prop::sample::Index),
    LeaveAgain(prop::sample::Index),
    Pass {
        ms: u64,
    },
    Reconfigure(QueueSettings),
}

/// Sequences with `reconfigurations` for about 13 other steps.
fn steps(reconfigurations: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_usize, 0..4_u8).prop_map(|(path, client)| Step::Enter { path, client }),
        5 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => any::<prop::sample::Index>().prop_map(Step::LeaveAgain),
        1 => (0..1500_u64).prop_map(|ms| Step::Pass { ms }),
        reconfigurations => settings().prop_map(Step::Reconfigure),
    ];
    vec(step, 1..150)
}

fn limits() -> impl Strategy<Value = Limits> {
    (option::of(1..4_usize), option::weighted(0.3, 0..6_usize), option::weighted(0.3, 0..3_u64)).prop_map(
        |(in_progress_max, waiting_max, wait_max_s)| Limits {
            in_progress_max: in_progress_max.and_then(NonZeroUsize::new),
            waiting_max,
            wait_max: wait_max_s.map(Duration::from_secs),
        },
    )
}

fn settings() -> impl Strategy<Value = QueueSettings> {
    let rules = vec((limits(), 0..3_u8), 0..4);
    (rules, limits(), 0..3_u8, 1..5_u32).prop_map(|(rules, all, priority, one_in)| QueueSettings {
        rules: PATHS.iter().zip(rules).map(|(path, (limits, priority))| rule(path, limits, priority)).collect(),
        all,
        priority,
        one_in: one_in.try_into().unwrap(),
    })
}

const PATHS: [&str; 4] = ["/a", "/b", "/c", "/d"];

/// Applies all steps to a queue and a model. After each step, no request waits that could begin, and `holds` is true.
fn follow(mut settings: QueueSettings, steps: Vec<Step>, holds: impl Fn(&Model) -> bool) -> Result<(), TestCaseError> {
    let (mut queue, mut model) = (Queue::new(settings.clone()), Model::new(settings.clone()));
    let (mut now, mut gone) = (Instant::now(), Vec::new());
    for step in steps {
        match step {
            Step::Enter { path, client: n } => {
                let entered = enter(&mut queue, PATHS[path], n, now);
                prop_assert!(model.enters(path.min(settings.rules.len()), client(n), entered, now), "{entered:?}");
            }
            Step::Leave(index) if !model.ids().is_empty() => {
                let id = *index.get(&model.ids());
                prop_assert_eq!(queue.leave(id, now), model.leaves(id));
                gone.push(id);
            }
            Step::LeaveAgain(index) if !gone.is_empty() => prop_assert!(queue.leave(*index.get(&gone), now).is_none()),
            Step::Leave(_) | Step::LeaveAgain(_) => {}
            Step::Pass { ms } => {
                now += Duration::from_millis(ms);
                let expired: Vec<_> = queue.expire(now).iter().map(|expired| expired.id).collect();
                prop_assert_eq!(&expired, &model.expire(now));
                gone.extend(expired);
            }
            Step::Reconfigure(new) => {
                settings = new;
                prop_assert_eq!(queue.reconfigure(settings.clone(), now), model.reconfigure(settings.clone()));
            }
        }
        prop_assert!(model.conserves_work() && holds(&model));
        agree(&queue, &model)?;
    }
    for id in model.ids() {
        queue.leave(id, now);
    }
    prop_assert!(queue.ids.is_empty() && queue.deadlines.is_empty());
    prop_assert!(queue.lines.is_empty(), "nothing is kept of what was given back");
    Ok(())
}

fn agree(queue: &Queue, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(queue.next_deadline(), model.next_deadline());
    prop_assert_eq!(queue.load(), model.load(None));
    for (rule, (_, load)) in queue.loads().enumerate() {
        prop_assert_eq!(load, model.load(Some(rule)));
    }
    prop_assert_eq!(queue.ids.len(), model.ids().len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The same requests begin, wait, are refused and expire in the same order as in the model, which looks at all
    /// requests at each step. In the model, no limit is exceeded.
    #[test]
    fn it_does_as_the_model_does_and_passes_no_limit(settings in settings(), steps in steps(0)) {
        follow(settings, steps, Model::is_within_limits)?;
    }

    /// After a limit is lowered, the requests in progress may exceed it until they leave.
    #[test]
    fn it_does_as_the_model_does_whatever_is_configured(settings in settings(), steps in steps(1)) {
        follow(settings, steps, |_| true)?;
    }

    /// For any numbers of requests: of the clients that have some left, none is ahead of another by more than one turn.
    #[test]
    fn clients_are_served_evenly(requests in vec(1..20_u8, 2..10), max in 1..5_usize) {
        let (mut queue, now) = (queue(&[], at_once(max), 1), Instant::now());
        let mut in_progress: Vec<_> = (0..max).map(|_| id(enter(&mut queue, "/", 99, now))).collect();
        let mut who = BTreeMap::new();
        for (n, requests) in (0..).zip(&requests) {
            who.extend((0..*requests).map(|_| (id(enter(&mut queue, "/", n, now)), usize::from(n))));
        }
        let mut served = vec![0; requests.len()];
        while let Some(id) = in_progress.pop() {
            if let Some(begun) = queue.leave(id, now) {
                served[who[&begun]] += 1;
                in_progress.insert(0, begun);
            }
            let left = || served.iter().zip(&requests).filter(|(served, all)| served < all).map(|(served, _)| *served);
            prop_assert!(left().max().unwrap_or(0) <= left().min().unwrap_or(0) + 1, "{served:?}");
        }
        prop_assert_eq!(served, requests);
    }

    /// See [`QueueSettings::one_in`].
    #[test]
    fn each_waiting_request_gets_its_turn(priorities in 2..6_u8, one_in in 1..12_u32) {
        let rules: Vec<_> = (1..priorities).map(|n| rule(&format!("/{n}"), UNLIMITED, n)).collect();
        let (mut queue, now) = (queue(&rules, at_once(1), one_in), Instant::now());
        let mut in_progress = id(enter(&mut queue, "/", 1, now));
        let waits = |queue: &mut Queue, n: u8| (id(enter(queue, &format!("/{n}"), 1, now)), n);
        let mut who: BTreeMap<_, _> = (0..priorities).map(|n| waits(&mut queue, n)).collect();
        let mut passed_over = vec![0; usize::from(priorities)];
        for _ in 0..500 {
            in_progress = queue.leave(in_progress, now).unwrap();
            let n = who[&in_progress];
            who.extend([waits(&mut queue, n)]);
            passed_over = passed_over.iter().map(|times| times + 1).collect();
            passed_over[usize::from(n)] = 0;
            let others = u32::from(priorities) - 1;
            prop_assert!(passed_over.iter().all(|times| *times <= one_in - 1 + others), "{passed_over:?}");
        }
    }
}
