//! The order of nodes for a session.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use watari_values::{NodeName, SessionKey};

/// All linked nodes and this one, in an order for each session. The order comes from rendezvous hashing: a node that
/// joins or leaves does not change the order of any two others.
///
/// The hash is part of the cluster's protocol. All nodes must compute the same.
pub(super) struct Ranks {
    me: NodeName,
    nodes: Vec<Ranked>,
}

struct Ranked {
    name: NodeName,
    hash: u64,
}

impl Ranks {
    /// This node alone.
    pub(super) fn new(me: NodeName) -> Self {
        let nodes = vec![Ranked::new(me.clone())];
        Self { me, nodes }
    }

    /// Replaces the members, and returns those that have left.
    pub(super) fn set_members(&mut self, members: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
        let known: BTreeSet<NodeName> = self.members().cloned().collect();
        self.nodes.retain(|node| node.name == self.me || members.contains(&node.name));
        let new = members.iter().filter(|name| **name != self.me && !known.contains(name));
        self.nodes.extend(new.cloned().map(Ranked::new));
        known.difference(members).cloned().collect()
    }

    pub(super) fn me(&self) -> &NodeName {
        &self.me
    }

    /// All nodes but this one.
    pub(super) fn members(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().map(|node| &node.name).filter(|name| **name != self.me)
    }

    pub(super) fn is_member(&self, name: &NodeName) -> bool {
        self.members().any(|member| member == name)
    }

    /// The first `count` nodes for this key, which may include this one.
    pub(super) fn first(&self, key: &SessionKey, count: usize) -> Vec<NodeName> {
        let mut ranked: Vec<_> = self.nodes.iter().map(|node| (Reverse(node.score(key)), &node.name)).collect();
        if count < ranked.len() {
            ranked.select_nth_unstable(count);
            ranked.truncate(count);
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, name)| name.clone()).collect()
    }
}

/// The first of `owners`, which are sorted by rank, that is not `node`.
pub(super) fn first_other<'a>(owners: &'a [NodeName], node: &NodeName) -> Option<&'a NodeName> {
    owners.iter().find(|owner| *owner != node)
}

impl Ranked {
    fn new(name: NodeName) -> Self {
        let digest = digest(&SHA256, name.as_str().as_bytes());
        let hash = digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        Self { name, hash }
    }

    /// Keys are digests, and so is the value that stands for the name. A mixer (that of `SplitMix64`) is enough to
    /// derive an order from both.
    fn score(&self, key: &SessionKey) -> u64 {
        let key = key.0.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        let mut mixed = key ^ self.hash;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn ranks(nodes: u16) -> Ranks {
        let mut ranks = Ranks::new(name(0));
        ranks.set_members(&(1..nodes).map(name).collect());
        ranks
    }

    fn name(number: u16) -> NodeName {
        NodeName::new(&format!("a-{number}")).unwrap()
    }

    fn key(number: u16) -> SessionKey {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, &number.to_be_bytes()).as_ref());
        SessionKey(key)
    }

    /// Nodes of different builds must compute the same order: a change of this order splits running clusters.
    #[test]
    fn the_order_is_pinned() {
        let first: Vec<_> = (0..4).map(|number| ranks(5).first(&key(number), 3)).collect();
        let expected = [[3, 4, 1], [4, 2, 0], [4, 2, 1], [0, 1, 3]];
        assert_eq!(first, expected.map(|numbers| numbers.map(name).to_vec()));
    }

    #[test]
    fn all_nodes_agree_and_share_alike() {
        let mut other = Ranks::new(name(7));
        other.set_members(&(0..10).map(name).collect());
        let mut shares = [0_u32; 10];
        for number in 0..10_000 {
            let first = ranks(10).first(&key(number), 2);
            assert_eq!(first, other.first(&key(number), 2));
            for owner in first {
                let at = (0..10).find(|number| name(*number) == owner).unwrap();
                shares[usize::from(at)] += 1;
            }
        }
        assert!(shares.iter().all(|share| (1_800..2_200).contains(share)), "{shares:?}");
    }

    #[test]
    fn a_member_that_joins_or_leaves_does_not_reorder_others() {
        let (before, after) = (ranks(6), ranks(7));
        for number in 0..200 {
            let mut order = after.first(&key(number), 7);
            order.retain(|node| *node != name(6));
            assert_eq!(order, before.first(&key(number), 6));
            assert_eq!(before.first(&key(number), 9), order);
        }
    }

    #[test]
    fn members_are_the_others() {
        let mut ranks = ranks(3);
        assert!(ranks.is_member(&name(1)) && !ranks.is_member(&name(0)) && !ranks.is_member(&name(3)));
        let left = ranks.set_members(&BTreeSet::from([name(0), name(2), name(3)]));
        assert_eq!(left, BTreeSet::from([name(1)]));
        assert_eq!(ranks.members().cloned().collect::<BTreeSet<_>>(), BTreeSet::from([name(2), name(3)]));
        assert_eq!(ranks.set_members(&BTreeSet::new()).len(), 2);
        assert_eq!(ranks.first(&key(1), 2), [name(0)]);
    }
}
