//! Compares the notices of receivers with a simple model, for arbitrary steps.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::alerting::journal;

/// A step.
#[derive(Debug, Clone)]
enum Step {
    /// A server changed its state, or is still in it, for `lasted_s`.
    Is { server: u16, state: ServerState, lasted_s: u64 },
    /// Time passes.
    Pass { seconds: u64 },
    /// A receiver accepts its notice.
    Take { receiver: usize },
    /// The attempt fails. If `arrives`, the receiver got the notice, and the sender does not learn of it.
    Fail { receiver: usize, arrives: bool, retry: Retry },
    /// An attempt begins, and has no result yet.
    Begin { receiver: usize },
    /// The process ends, and another begins with the journal.
    Restart,
}

/// A notice to a receiver: the begin of the episode, and whether it is over.
type Notified = (Timestamp, bool);

const HOLDS_S: [u64; 3] = [0, 10, 60];
const SERVERS: u16 = 2;

/// The notices that one receiver should get of one alert.
#[derive(Debug, Default)]
struct Expected {
    /// The last notice that it got.
    last: Option<Notified>,
    /// The last notice that it has to get.
    last_due: Option<Notified>,
    /// The begins of the episodes that lasted.
    lasted: BTreeSet<Timestamp>,
    /// The current episode: its begin, and when it is due.
    episode: Option<(Timestamp, Timestamp)>,
}

struct Run {
    alerts: Alerts,
    policies: Vec<Policy>,
    now: Timestamp,
    /// Attempts without a result.
    begun: Vec<Option<Delivery>>,
    expected: BTreeMap<(usize, u16, Trouble), Expected>,
    /// The state of each server, when it was reported, and whether that was after the last restart.
    states: BTreeMap<u16, (ServerState, Timestamp, bool)>,
    /// The time of the last restart.
    restarted: Timestamp,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn each_receiver_gets_the_last_lasting_state(steps in prop::collection::vec(step(), 0..60), repeats in any::<bool>()) {
        let mut run = Run::new(repeats);
        for step in &steps {
            run.step(step)?;
        }
        run.finish()?;
    }
}

fn step() -> impl Strategy<Value = Step> {
    use ServerState::{Idle, Normal};
    let states = vec![Idle, Normal, ServerState::Saturated, ServerState::Stopped];
    let retries = vec![Retry::Later(None), Retry::Later(Some(Duration::from_mins(2))), Retry::Slowly];
    let receiver = || 0..HOLDS_S.len();
    prop_oneof![
        4 => (0..SERVERS, prop::sample::select(states), 0_u64..20)
            .prop_map(|(server, state, lasted_s)| Step::Is { server, state, lasted_s }),
        4 => prop_oneof![1_u64..30, 30_u64..1_000].prop_map(|seconds| Step::Pass { seconds }),
        3 => receiver().prop_map(|receiver| Step::Take { receiver }),
        2 => (receiver(), any::<bool>(), prop::sample::select(retries))
            .prop_map(|(receiver, arrives, retry)| Step::Fail { receiver, arrives, retry }),
        2 => receiver().prop_map(|receiver| Step::Begin { receiver }),
        1 => Just(Step::Restart),
    ]
}

impl Run {
    fn new(repeats: bool) -> Self {
        let repeat = repeats.then_some(Duration::from_secs(90));
        let policies: Vec<Policy> =
            HOLDS_S.iter().map(|hold_s| Policy { name: hold_s.to_string(), repeat, ..policy(*hold_s) }).collect();
        let keys = (0..HOLDS_S.len()).flat_map(|receiver| {
            (0..SERVERS).flat_map(move |server| Trouble::ALL.map(|trouble| (receiver, server, trouble)))
        });
        Self {
            alerts: Alerts::new(policies.clone()),
            policies,
            now: at(0),
            begun: vec![None; HOLDS_S.len()],
            expected: keys.map(|key| (key, Expected::default())).collect(),
            states: BTreeMap::new(),
            restarted: at(0),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Is { server, state, lasted_s } => self.is(server, state, lasted_s),
            Step::Pass { seconds } => self.pass(Duration::from_secs(seconds)),
            Step::Begin { receiver } => self.begin(receiver),
            Step::Take { receiver } => {
                self.begin(receiver);
                if let Some(delivery) = self.begun[receiver].take() {
                    self.arrives(&delivery)?;
                    self.alerts.delivered(&delivery, self.now);
                }
            }
            Step::Fail { receiver, arrives, retry } => {
                self.begin(receiver);
                if let Some(delivery) = self.begun[receiver].take() {
                    if arrives {
                        self.arrives(&delivery)?;
                    }
                    self.alerts.failed(&delivery, retry, self.now, 0x8000_0000);
                }
            }
            Step::Restart => self.restart(),
        }
        Ok(())
    }

    /// In the end all sensors report the states of their servers, and all receivers accept their notices.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        for (server, (state, ..)) in self.states.clone() {
            self.is(server, state, 0);
        }
        for _ in 0..100 {
            for receiver in 0..HOLDS_S.len() {
                self.step(&Step::Take { receiver })?;
            }
            self.pass(Duration::from_secs(10));
        }
        self.pass(Duration::from_mins(15));
        for receiver in (0..HOLDS_S.len()).cycle().take(60) {
            self.step(&Step::Take { receiver })?;
        }
        for (key, expected) in &self.expected {
            prop_assert_eq!(expected.last, expected.last_due, "{:?}", key);
        }
        Ok(())
    }

    fn is(&mut self, number: u16, state: ServerState, lasted_s: u64) {
        self.pass(Duration::from_secs(1));
        let said = self.states.insert(number, (state, self.now, true)).map_or(Timestamp(0), |(_, said, _)| said);
        // A state begins after the previous one.
        let since = Timestamp((self.now.0 - lasted_s * S).max(said.0 + 1));
        self.alerts.change("west", &change(number, state, since, self.now), self.now);
        for ((receiver, server, trouble), expected) in &mut self.expected {
            if *server == number {
                let due = since + Duration::from_secs(HOLDS_S[*receiver]);
                expected.is((Trouble::of(state) == Some(*trouble)).then_some((since, due)));
            }
        }
        self.look();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.alerts.advance(self.now);
        self.look();
    }

    /// An episode that lasts is due once it is confirmed. Without confirmation for too long, it is over.
    fn look(&mut self) {
        for ((_, server, _), expected) in &mut self.expected {
            let is_known = self.states.get(server).is_some_and(|(.., is_known)| *is_known);
            if !is_known && self.now >= self.restarted + UNCONFIRMED {
                expected.is(None);
            }
            if let Some((since, _)) = expected.episode.filter(|(_, due)| is_known && *due <= self.now) {
                expected.lasted.insert(since);
                expected.last_due = Some((since, false));
            }
        }
    }

    fn begin(&mut self, receiver: usize) {
        if self.begun[receiver].is_none() {
            self.begun[receiver] = self.alerts.next(receiver, self.now);
        }
    }

    fn arrives(&mut self, delivery: &Delivery) -> Result<(), TestCaseError> {
        let Notice { key, episode, over } = &delivery.notice;
        let expected = self.expected.get_mut(&(delivery.receiver, key.server.port(), key.trouble)).unwrap();
        let notified = (episode.since, over.is_some());
        prop_assert!(expected.lasted.contains(&episode.since), "{:?} did not last", delivery);
        prop_assert!(expected.last.is_none_or(|last| last <= notified), "{:?} after {:?}", delivery, expected.last);
        expected.last = Some(notified);
        Ok(())
    }

    /// Attempts without a result may have arrived or not. They count as not arrived.
    fn restart(&mut self) {
        let content = journal::encode(&self.alerts);
        self.alerts = journal::decode(&content, &self.policies, self.now).unwrap();
        self.begun.fill(None);
        self.restarted = self.now;
        for (.., is_known) in self.states.values_mut() {
            *is_known = false;
        }
    }
}

impl Expected {
    fn is(&mut self, episode: Option<(Timestamp, Timestamp)>) {
        match (self.episode, episode) {
            (Some((since, _)), None) => {
                if self.last_due == Some((since, false)) {
                    self.last_due = Some((since, true));
                }
                self.episode = None;
            }
            (None, Some(_)) => self.episode = episode,
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
