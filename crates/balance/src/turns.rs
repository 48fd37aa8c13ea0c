//! Smooth weighted round robin.

use crate::Candidate;

/// The turns of candidates, in proportion to their shares and spread evenly: a candidate never gets two turns in a row
/// if that can be avoided.
///
/// At each turn every candidate earns its share as credit. The candidate with the highest credit is picked, and pays
/// the sum of all shares.
#[derive(Debug)]
pub struct Turns<N> {
    /// In the order of names. Candidates usually come in this order, so the search for a credit begins after the
    /// previous one.
    credits: Vec<(N, i64)>,
}

impl<N> Default for Turns<N> {
    fn default() -> Self {
        Self { credits: Vec::new() }
    }
}

impl<N: Ord + Clone> Turns<N> {
    /// The next of `available`. `None`: it is empty. Candidates with equal shares take turns.
    pub fn next<'a, I>(&mut self, available: I, share: impl Fn(&Candidate<N>) -> u64) -> Option<&'a Candidate<N>>
    where
        I: IntoIterator<Item = &'a Candidate<N>>,
        N: 'a,
    {
        let (mut earned, mut richest) = (0_i64, None::<(i64, &Candidate<N>)>);
        let mut place = 0;
        for candidate in available {
            let share = i64::try_from(share(candidate)).unwrap_or(i64::MAX);
            place = self.place(&candidate.name, place);
            let credit = &mut self.credits[place].1;
            *credit = credit.saturating_add(share);
            earned = earned.saturating_add(share);
            if richest.is_none_or(|(most, _)| *credit > most) {
                richest = Some((*credit, candidate));
            }
            place += 1;
        }
        let (_, picked) = richest?;
        let place = self.place(&picked.name, place);
        let credit = &mut self.credits[place].1;
        *credit = credit.saturating_sub(earned);
        Some(picked)
    }

    /// Removes the candidates for which `kept` returns false.
    pub fn retain(&mut self, kept: impl Fn(&N) -> bool) {
        self.credits.retain(|(name, _)| kept(name));
    }

    /// The index of the credit of `name`, probably `guess`. A new candidate starts with 0.
    fn place(&mut self, name: &N, guess: usize) -> usize {
        if self.credits.get(guess).is_some_and(|(known, _)| known == name) {
            return guess;
        }
        self.credits.binary_search_by(|(known, _)| known.cmp(name)).unwrap_or_else(|place| {
            self.credits.insert(place, (name.clone(), 0));
            place
        })
    }
}
