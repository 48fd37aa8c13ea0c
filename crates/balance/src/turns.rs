//! Smooth weighted round robin.

use std::collections::BTreeMap;

use watari_wire::NodeName;

use crate::Candidate;

/// Whose turn it is. An agent of twice the share has twice the turns, and they are spread: never two in a row where
/// that can be helped.
///
/// At each turn every candidate earns its share, and the richest is picked and pays what all have earned together.
#[derive(Debug, Default)]
pub struct Turns {
    credits: BTreeMap<NodeName, i64>,
}

impl Turns {
    /// The next of `available`; `None` if there is none. Where all have the same share, each in its turn.
    pub fn next<'a, I>(&mut self, available: I, share: impl Fn(&Candidate) -> u64) -> Option<&'a Candidate>
    where
        I: IntoIterator<Item = &'a Candidate>,
    {
        let (mut earned, mut richest) = (0_i64, None::<(i64, &Candidate)>);
        for agent in available {
            let share = i64::try_from(share(agent)).unwrap_or(i64::MAX);
            let credit = self.credit(&agent.name);
            *credit = credit.saturating_add(share);
            earned = earned.saturating_add(share);
            if richest.is_none_or(|(most, _)| *credit > most) {
                richest = Some((*credit, agent));
            }
        }
        let (_, picked) = richest?;
        let credit = self.credit(&picked.name);
        *credit = credit.saturating_sub(earned);
        Some(picked)
    }

    /// Forgets the agents that are not to be kept.
    pub fn retain(&mut self, kept: impl Fn(&NodeName) -> bool) {
        self.credits.retain(|name, _| kept(name));
    }

    fn credit(&mut self, name: &NodeName) -> &mut i64 {
        if !self.credits.contains_key(name) {
            self.credits.insert(name.clone(), 0);
        }
        self.credits.get_mut(name).expect("it is there by now")
    }
}
