//! What a seed makes of a run.

use std::time::Duration;

use watari_handover::{Equality, TransferConditions};

use crate::agent::{Mode, Sharing};
use crate::client::{Ask, Habits, Offer};
use crate::network::{Disturbance, Links, NodeId};
use crate::origin::OriginHabits;
use crate::random::Random;
use crate::resource::{Kind, Resource};

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

/// What most clients of a run ask for. Faults of one part are rare in a run that contains all parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Focus {
    Files,
    Origins,
    /// Tunnels and streams of events.
    Streams,
    /// Short connections, of few clients.
    Sessions,
    All,
}

impl Focus {
    const ALL: [Self; 5] = [Self::Files, Self::Origins, Self::Streams, Self::Sessions, Self::All];

    fn is_file(self, random: &mut Random) -> bool {
        match self {
            Self::Files | Self::Sessions => true,
            Self::Origins => random.one_in(6),
            Self::Streams => random.one_in(3),
            Self::All => random.one_in(2),
        }
    }

    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Streams => &[Kind::Events],
            _ => &[Kind::Same, Kind::Same, Kind::Versions, Kind::Versions, Kind::Weak, Kind::Chunked, Kind::Events],
        }
    }

    fn has_tunnel(self, random: &mut Random) -> bool {
        match self {
            Self::Files | Self::Origins | Self::Sessions => false,
            Self::Streams => !random.one_in(3),
            Self::All => random.one_in(4),
        }
    }
}

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
        let links = Links {
            are_calm,
            lost: if are_calm { 0 } else { [0, 3, 10][random.below(3) as usize] },
            repeated: if are_calm { 0 } else { [0, 3, 10][random.below(3) as usize] },
            delay_ms_max: random.within(1..300),
        };
        let origins = (0..random.within(1..4)).map(|number| origin(random, number == 0 && is_harmless)).collect();
        let overlap = [0, 16, 4096][random.below(3) as usize];
        let conditions = TransferConditions { overlap, equality: Equality::Proven };
        let ways = [Mode::Tickets, Mode::Push, Mode::Owner];
        let memory_len = if random.one_in(3) { FEW_SESSIONS_LEN } else { 1 << 20 };
        let sessions = Sharing { mode: ways[random.below(ways.len() as u64) as usize], memory_len };
        for (_, habits) in &mut clients {
            habits.resumes_surely = are_calm && memory_len > FEW_SESSIONS_LEN;
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

fn habits(random: &mut Random, focus: Focus) -> Habits {
    let has_tunnel = focus.has_tunnel(random);
    let before = match focus {
        Focus::Sessions => 1,
        _ if has_tunnel => random.below(3),
        _ => random.within(1..8),
    };
    let mut requests: Vec<_> = (0..before).map(|_| ask(random, focus)).collect();
    if has_tunnel {
        let (kind, len) = (Kind::Tunnel, random.within(1..700_000));
        requests.push(Ask { resource: Resource { kind, file: random.below(1 << 32), len }, is_upload: false });
    }
    let is_slow = !random.one_in(3);
    let reads =
        if is_slow { (random.within(500..8000) as usize, random.millis(1..10)) } else { (16_384, Duration::ZERO) };
    let stall = random.one_in(2).then(|| (random.below(500_000), random.millis(1..5000)));
    Habits {
        requests,
        pipelines: random.one_in(3),
        half_closes: random.one_in(4),
        updates_keys: random.one_in(4),
        person: 0,
        resumes_surely: false,
        offer: Offer { suite: Offer::SUITES[random.below(Offer::SUITES.len() as u64) as usize] },
        reads,
        stall,
        pause: if random.one_in(2) { Duration::ZERO } else { random.millis(0..300) },
    }
}

/// The lengths of large files: longer than a rest that moves as bytes.
const LENS: [u64; 3] = [280_000, 400_000, 900_000];

/// In half of the runs, some connections are of one client.
fn share_sessions(random: &mut Random, focus: Focus, clients: &mut [(Duration, Habits)]) {
    let len = clients.len() as u64;
    let persons = if focus != Focus::Sessions && random.one_in(2) { len } else { 1 + len / 4 };
    let offers: Vec<_> = clients.iter().map(|(_, habits)| habits.offer).collect();
    for (client, (_, habits)) in clients.iter_mut().enumerate() {
        habits.person = if persons == len { client } else { random.below(persons) as usize };
        habits.offer = offers[habits.person];
    }
}

fn ask(random: &mut Random, focus: Focus) -> Ask {
    let file = random.below(1 << 32);
    // Files of equal lengths are confused most easily.
    let is_short = focus == Focus::Sessions || random.one_in(3);
    let len = if is_short { random.within(1..3000) } else { LENS[random.below(LENS.len() as u64) as usize] };
    let is_upload = random.one_in(4);
    let kinds = focus.kinds();
    let is_file = is_upload || focus.is_file(random);
    let kind = if is_file { Kind::File } else { kinds[random.below(kinds.len() as u64) as usize] };
    Ask { resource: Resource { kind, file, len }, is_upload }
}

fn origin(random: &mut Random, is_good: bool) -> OriginHabits {
    let pause_ms_max = [0, 2, 10][random.below(3) as usize];
    if is_good {
        return OriginHabits { cuts: 0, pause_ms_max, ignores_ranges: false };
    }
    OriginHabits { cuts: [0, 3, 10][random.below(3) as usize], pause_ms_max, ignores_ranges: random.one_in(5) }
}
