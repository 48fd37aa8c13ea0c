//! What the clients of a run ask for.

use std::time::Duration;

use crate::client::{Ask, Habits, Offer};
use crate::random::Random;
use crate::resource::{Kind, Resource};

/// What most clients of a run ask for. Faults of one part are rare in a run that contains all parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Files,
    Origins,
    /// Tunnels and streams of events.
    Streams,
    /// Short connections, of few clients.
    Sessions,
    All,
}

impl Focus {
    pub(super) const ALL: [Self; 5] = [Self::Files, Self::Origins, Self::Streams, Self::Sessions, Self::All];

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

pub(super) fn habits(random: &mut Random, focus: Focus) -> Habits {
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
pub(super) fn share_sessions(random: &mut Random, focus: Focus, clients: &mut [(Duration, Habits)]) {
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
