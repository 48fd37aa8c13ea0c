//! Smooth weighted round robin.

use crate::Candidate;

/// Whose turn it is. One of twice the share has twice the turns, and they are spread: never two in a row where that can
/// be helped.
///
/// At each turn every candidate earns its share, and the richest is picked and pays what all have earned together.
#[derive(Debug)]
pub struct Turns<N> {
    /// By name, in order. What a candidate has is looked for behind what the one before it has: candidates mostly come
    /// in the same order.
    credits: Vec<(N, i64)>,
}

impl<N> Default for Turns<N> {
    fn default() -> Self {
        Self { credits: Vec::new() }
    }
}

impl<N: Ord + Clone> Turns<N> {
    /// The next of `available`; `None` if there is none. Where all have the same share, each in its turn.
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

    /// Forgets those that are not to be kept.
    pub fn retain(&mut self, kept: impl Fn(&N) -> bool) {
        self.credits.retain(|(name, _)| kept(name));
    }

    /// Where the credit of `name` stands, which is probably at `guess`. One that is not known yet has none.
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
