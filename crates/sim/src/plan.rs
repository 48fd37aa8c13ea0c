//! What a seed makes of a run.

mod clients;

use std::time::Duration;

use watari_handover::{Equality, TransferConditions};

use self::clients::{Focus, habits, share_sessions};
use crate::agent::{Mode, Sharing};
use crate::client::Habits;
use crate::network::{Disturbance, Links, NodeId};
use crate::origin::OriginHabits;
use crate::random::Random;

/// The plan of a run.
pub(crate) struct Plan {
    pub(crate) agents: usize,
    pub(crate) sessions: Sharing,
    pub(crate) origins: Vec<OriginHabits>,
    /// The conditions under which responses continue at another origin.
    pub(crate) conditions: TransferConditions,
    /// When each client connects, and its habits.
    pub(crate) clients: Vec<(Duration, Habits)>,
    pub(crate) links: Links,
    pub(crate) disturbances: Vec<(Duration, Disturbance)>,
    /// No agent or dispatcher crashes, no client leaves, and one origin is good: every client has to get everything that
    /// this origin can continue.
    pub(crate) is_harmless: bool,
    /// An origin may fail in the middle of a response.
    pub(crate) origins_fail: bool,
}

/// Memory for two sessions or three, in bytes.
const FEW_SESSIONS_LEN: usize = 1000;

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed_0000_0000_0000);
        let random = &mut random;
        let is_harmless = random.one_in(2);
        let agents = random.within(2..5) as usize;
        let focus = Focus::ALL[random.below(Focus::ALL.len() as u64) as usize];
        let (count, last_ms) = if focus == Focus::Sessions { (6..16, 8000) } else { (1..7, 4000) };
        let mut clients: Vec<_> =
            (0..random.within(count)).map(|_| (random.millis(0..last_ms), habits(random, focus))).collect();
        share_sessions(random, focus, &mut clients);
        let are_calm = is_harmless && random.one_in(2);
        let links = links(random, are_calm);
        let origins = (0..random.within(1..4)).map(|number| origin(random, number == 0 && is_harmless)).collect();
        let overlap = [0, 16, 4096][random.below(3) as usize];
        let conditions = TransferConditions { overlap, equality: Equality::Proven };
        let sessions = sharing(random);
        for (_, habits) in &mut clients {
            habits.resumes_surely = are_calm && sessions.memory_len > FEW_SESSIONS_LEN;
        }
        let mut plan = Self {
            sessions,
            agents,
            origins,
            conditions,
            clients,
            links,
            disturbances: Vec::new(),
            is_harmless,
            origins_fail: false,
        };
        let has_streams = focus == Focus::Streams;
        let end_ms = if has_streams { random.within(3000..12_000) } else { random.within(500..8000) };
        let moves = if has_streams { random.within(100..500) } else { random.within(5..300) };
        // Some runs have fast links and many moves.
        let is_busy = random.one_in(4);
        let moves = if is_busy { 10 * moves } else { moves };
        plan.links.delay_ms_max = if is_busy { 3 } else { plan.links.delay_ms_max };
        plan.add_origin_faults(random, end_ms);
        plan.origins_fail = !plan.disturbances.is_empty() || plan.origins.iter().any(|origin| origin.cuts > 0);
        let moves = (0..moves).map(|_| (random.millis(0..end_ms), Disturbance::Move));
        plan.disturbances.extend(moves);
        if random.one_in(2) {
            let agent = |random: &mut Random| random.within(1..agents as u64 + 1) as NodeId;
            let drains =
                (0..random.within(1..5)).map(|_| (random.millis(0..end_ms), Disturbance::Drain(agent(random))));
            plan.disturbances.extend(drains);
        }
        if random.one_in(2) {
            let upgrades = (0..random.within(1..5)).map(|_| (random.millis(0..end_ms), Disturbance::Upgrade));
            plan.disturbances.extend(upgrades);
        }
        if !are_calm {
            plan.add_pauses(random, end_ms);
        }
        if !is_harmless {
            plan.add_faults(random, end_ms);
            if focus == Focus::Sessions {
                plan.crash_in_handshakes(random);
            }
        }
        plan
    }

    /// Nodes that stall and links that are cut for less time than a decision may take.
    fn add_pauses(&mut self, random: &mut Random, end_ms: u64) {
        for _ in 0..random.below(4) {
            let (node, at) = (random.below(self.agents as u64 + 1) as NodeId, random.millis(0..end_ms));
            self.disturbances.push((at, Disturbance::Stall(node, at + random.millis(1..1000))));
        }
        for _ in 0..random.below(4) {
            let at = random.millis(0..end_ms);
            self.disturbances.push((at, partition(random, self.agents, at + Duration::from_secs(1))));
        }
    }

    /// The first origin is good if the run is harmless.
    fn add_origin_faults(&mut self, random: &mut Random, end_ms: u64) {
        let first_bad = u64::from(self.is_harmless);
        let end = self.origins.len() as u64;
        for _ in 0..random.below(4) {
            if first_bad == end {
                return;
            }
            let (node, at) = (1 + self.agents + random.within(first_bad..end) as NodeId, random.millis(0..end_ms));
            if random.one_in(2) {
                self.disturbances.push((at, Disturbance::Crash(node)));
                self.disturbances.push((at + random.millis(1..3000), Disturbance::Restart(node)));
            } else {
                self.disturbances.push((at, Disturbance::Stall(node, at + random.millis(1..5000))));
            }
        }
    }

    /// Agents crash when a client has just connected.
    fn crash_in_handshakes(&mut self, random: &mut Random) {
        for (connects, _) in &self.clients {
            if random.one_in(3) {
                let (node, at) = (random.within(1..self.agents as u64 + 1), *connects + random.millis(0..40));
                self.disturbances.push((at, Disturbance::Crash(node as NodeId)));
                self.disturbances.push((at + random.millis(1..500), Disturbance::Restart(node as NodeId)));
            }
        }
    }

    fn add_faults(&mut self, random: &mut Random, end_ms: u64) {
        for _ in 0..random.below(4) {
            // The dispatcher seldom.
            let nodes = if random.one_in(6) { 0..1 } else { 1..self.agents as u64 + 1 };
            let (node, at) = (random.within(nodes) as NodeId, random.millis(0..end_ms));
            self.disturbances.push((at, Disturbance::Crash(node)));
            self.disturbances.push((at + random.millis(1..3000), Disturbance::Restart(node)));
        }
        for _ in 0..random.below(3) {
            let (node, at) = (random.below(self.agents as u64 + 1) as NodeId, random.millis(0..end_ms));
            self.disturbances.push((at, Disturbance::Stall(node, at + random.millis(1..15_000))));
        }
        for _ in 0..random.below(3) {
            let at = random.millis(0..end_ms);
            let until = at + random.millis(1..15_000);
            self.disturbances.push((at, partition(random, self.agents, until)));
        }
        for client in 0..self.clients.len() {
            if random.one_in(4) {
                self.disturbances.push((random.millis(0..end_ms), Disturbance::Vanish(client)));
            }
        }
    }
}

fn partition(random: &mut Random, agents: usize, until: Duration) -> Disturbance {
    let [a, b] = [0, 1].map(|_| random.below(agents as u64 + 1) as NodeId);
    Disturbance::Partition(a, b, until)
}

fn origin(random: &mut Random, is_good: bool) -> OriginHabits {
    let pause_ms_max = [0, 2, 10][random.below(3) as usize];
    if is_good {
        return OriginHabits { cuts: 0, pause_ms_max, ignores_ranges: false };
    }
    OriginHabits { cuts: [0, 3, 10][random.below(3) as usize], pause_ms_max, ignores_ranges: random.one_in(5) }
}

fn links(random: &mut Random, are_calm: bool) -> Links {
    Links {
        are_calm,
        lost: if are_calm { 0 } else { [0, 3, 10][random.below(3) as usize] },
        repeated: if are_calm { 0 } else { [0, 3, 10][random.below(3) as usize] },
        delay_ms_max: random.within(1..300),
    }
}

fn sharing(random: &mut Random) -> Sharing {
    let memory_len = if random.one_in(3) { FEW_SESSIONS_LEN } else { 1 << 20 };
    let modes = [Mode::Tickets, Mode::Push, Mode::Owner];
    Sharing { mode: modes[random.below(modes.len() as u64) as usize], memory_len }
}
