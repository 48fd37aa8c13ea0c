#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What purges match.
#[derive(Debug, Clone)]
struct Sample {
    host: &'static str,
    url: &'static str,
    groups: Vec<Box<str>>,
}

const URLS: [(&str, &str); 6] = [
    ("a.test", "a.test/"),
    ("a.test", "a.test/x"),
    ("a.test", "a.test/x?y=1"),
    ("a.test", "a.test/x\u{e4}"),
    ("b.test", "b.test/x"),
    ("b.test", "b.test/y"),
];
const GROUPS: [&str; 3] = ["g", "h", "h i"];

fn sample() -> impl Strategy<Value = Sample> {
    (0..URLS.len(), prop::sample::subsequence(&GROUPS[..], 0..=2)).prop_map(|(url, groups)| {
        let (host, url) = URLS[url];
        Sample { host, url, groups: groups.into_iter().map(Into::into).collect() }
    })
}

fn purge() -> impl Strategy<Value = Purge> {
    let url = (0..URLS.len()).prop_map(|url| URLS[url].1);
    let group = (0..GROUPS.len()).prop_map(|group| GROUPS[group]);
    let prefix = url.clone().prop_flat_map(|url| {
        (0..=url.len()).prop_map(move |len| Purge::Prefix(url[..url.floor_char_boundary(len)].into()))
    });
    prop_oneof![
        1 => Just(Purge::Everything),
        8 => url.prop_map(|url| Purge::Url(url.into())),
        8 => prefix,
        4 => group.clone().prop_map(|group| Purge::Group(group.into())),
        4 => (prop_oneof![Just("a.test"), Just("b.test")], group)
            .prop_map(|(host, group)| Purge::HostGroup(format!("{host} {group}").into())),
    ]
}

/// The specification of a match.
fn matches(purge: &Purge, sample: &Sample) -> bool {
    match purge {
        Purge::Everything => true,
        Purge::Url(url) => **url == *sample.url,
        Purge::Prefix(prefix) => sample.url.starts_with(&**prefix),
        Purge::Group(group) => sample.groups.contains(group),
        Purge::HostGroup(text) => {
            let (host, group) = text.split_once(' ').unwrap();
            host == sample.host && sample.groups.iter().any(|other| **other == *group)
        }
    }
}

fn affects(purges: &Purges, since: u64, sample: &Sample) -> bool {
    purges.affects(since, sample.url, sample.host, &sample.groups)
}

fn url(text: &str) -> Purge {
    Purge::Url(text.into())
}

fn id(incarnation: u64, number: u64) -> PurgeId {
    PurgeId { incarnation, number }
}

/// Sends all that `from` knows to `to`. Returns whether anything was new.
fn exchange(from: &Purges, to: &mut Purges) -> bool {
    let before = to.sequence();
    to.merge(from.generation(), from.folded(), from.since(0).map(|(id, purge)| (id, purge.clone())));
    to.sequence() > before
}

fn with_limits(incarnation: u64, limits: Limits) -> Purges {
    Purges { limits, ..Purges::new(incarnation) }
}

proptest! {
    /// Without folding, a purge reaches exactly the earlier entries that it matches.
    #[test]
    fn a_purge_reaches_what_it_matches_and_nothing_else(
        before in vec(purge(), 0..12),
        sample in sample(),
        after in vec(purge(), 0..12),
    ) {
        let mut purges = Purges::new(1);
        for purge in &before {
            if *purge != Purge::Everything {
                purges.order(purge.clone());
            }
        }
        let since = purges.sequence();
        prop_assert!(!affects(&purges, since, &sample));
        for (number, purge) in (1..).zip(&after) {
            purges.learn(id(2, number), purge.clone());
        }
        let expected = after.iter().any(|purge| matches(purge, &sample));
        prop_assert_eq!(affects(&purges, since, &sample), expected);
        let restored = Purges::decode(&purges.encode(), 3).unwrap();
        prop_assert_eq!(affects(&restored, since, &sample), expected);
    }

    #[test]
    fn a_matching_prefix_is_found_among_others(
        prefixes in vec("[ab\u{e4}]{0,5}", 0..30),
        url in "[ab\u{e4}]{0,8}",
        since in 0..30u64,
    ) {
        let mut index = Index::default();
        for (number, prefix) in (1..).zip(&prefixes) {
            index.insert(&Purge::Prefix(prefix.as_str().into()), number);
        }
        let last = prefixes.iter().rposition(|prefix| url.starts_with(prefix.as_str()));
        prop_assert_eq!(index.affects(since, &url, "", &[]), last.is_some_and(|last| last as u64 + 1 > since));
    }
}

/// What happens in a cluster.
#[derive(Debug, Clone)]
enum Step {
    /// A node requests something, and stores the response.
    Request {
        node: usize,
        sample: Sample,
    },
    /// A node orders a purge, and sends it to the nodes of this set that are linked with it.
    Order {
        node: usize,
        purge: Purge,
        to: [bool; NODES],
    },
    Exchange {
        from: usize,
        to: usize,
    },
    /// A node is started again. It has its file.
    Restart {
        node: usize,
    },
    /// A node copies an entry of another node, if that node may give it.
    Copy {
        from: usize,
        to: usize,
    },
}

const NODES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        6 => (node(), sample()).prop_map(|(node, sample)| Step::Request { node, sample }),
        6 => (node(), purge(), any::<[bool; NODES]>()).prop_map(|(node, purge, to)| Step::Order { node, purge, to }),
        3 => (node(), node()).prop_map(|(from, to)| Step::Exchange { from, to }),
        1 => node().prop_map(|node| Step::Restart { node }),
        3 => (node(), node()).prop_map(|(from, to)| Step::Copy { from, to }),
    ]
}

/// A stored response, with the time when the origin was asked.
#[derive(Debug, Clone)]
struct Stored {
    since: u64,
    requested: usize,
    sample: Sample,
}

struct Cluster {
    nodes: Vec<(Purges, Vec<Stored>)>,
    ordered: Vec<(usize, Purge)>,
    now: usize,
    incarnation: u64,
    limits: Limits,
}

impl Cluster {
    fn new(limits: Limits) -> Self {
        let nodes = (0..NODES).map(|node| (with_limits(node as u64, limits), Vec::new())).collect();
        Self { nodes, ordered: Vec::new(), now: 0, incarnation: 100, limits }
    }

    fn step(&mut self, step: Step) {
        self.now += 1;
        match step {
            Step::Request { node, sample } => {
                let (purges, stored) = &mut self.nodes[node];
                stored.push(Stored { since: purges.sequence(), requested: self.now, sample });
            }
            Step::Order { node, purge, to } => {
                self.ordered.push((self.now, purge.clone()));
                let (id, purge) = self.nodes[node].0.order(purge);
                for (to, (other, _)) in to.into_iter().zip(&mut self.nodes) {
                    if to {
                        other.learn(id, purge.clone());
                    }
                }
            }
            Step::Exchange { from, to } => drop(self.exchange(from, to)),
            Step::Restart { node } => {
                self.incarnation += 1;
                let purges = &mut self.nodes[node].0;
                *purges = Purges { limits: self.limits, ..Purges::decode(&purges.encode(), self.incarnation).unwrap() };
            }
            Step::Copy { from, to } => self.copy(from, to),
        }
    }

    fn exchange(&mut self, from: usize, to: usize) -> bool {
        from != to && {
            let [(from, _), (to, _)] = self.nodes.get_disjoint_mut([from, to]).unwrap();
            exchange(from, to)
        }
    }

    /// Of what the other node has, the last entry that it does not refuse.
    fn copy(&mut self, from: usize, to: usize) {
        let (since, latest) = (self.nodes[to].0.sequence(), self.nodes[to].0.latest());
        let (purges, stored) = &self.nodes[from];
        if latest.into_iter().all(|(incarnation, number)| purges.knows_all(id(incarnation, number))) {
            let usable = stored.iter().rev().find(|stored| !affects(purges, stored.since, &stored.sample));
            let copy = usable.map(|stored| Stored { since, ..stored.clone() });
            self.nodes[to].1.extend(copy);
        }
    }

    /// Exchanges between all nodes until none has news.
    fn settle(&mut self) {
        for _ in 0..10 {
            let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
            if !pairs.fold(false, |news, (from, to)| self.exchange(from, to) || news) {
                return;
            }
        }
        panic!("the exchange does not end");
    }

    /// All nodes refuse the entries that were requested before the order of a purge that matches them.
    fn check(&self) {
        for (node, (purges, stored)) in self.nodes.iter().enumerate() {
            for entry in stored {
                let is_purged =
                    |(time, purge): &(usize, Purge)| *time > entry.requested && matches(purge, &entry.sample);
                if let Some(purge) = self.ordered.iter().find(|ordered| is_purged(ordered)) {
                    assert!(affects(purges, entry.since, &entry.sample), "node {node} uses {entry:?} after {purge:?}");
                }
            }
        }
    }

    fn bounds(&self) {
        for (purges, _) in &self.nodes {
            assert!(purges.remembered.len() <= self.limits.purges && purges.text_len <= self.limits.text_len);
            assert!(purges.folded.len() <= self.limits.incarnations);
            assert_eq!(purges.remembered.len(), purges.numbers.len());
            let texts: usize = purges.since(0).map(|(_, purge)| purge.text().len()).sum();
            assert_eq!(purges.text_len, texts);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// In any order, with losses, restarts, copies between nodes, and limits that are reached all the time or never.
    #[test]
    fn no_node_uses_what_was_purged(
        limits in (1..8usize, 10..100usize, NODES..6).prop_map(|(purges, text_len, incarnations)| {
            Limits { purges, text_len, incarnations }
        }),
        is_limited in any::<bool>(),
        steps in vec(step(), 0..60),
    ) {
        let mut cluster = Cluster::new(if is_limited { limits } else { LIMITS });
        for step in steps {
            cluster.step(step);
            cluster.bounds();
        }
        cluster.settle();
        cluster.check();
        cluster.bounds();
    }

    #[test]
    fn damaged_files_are_refused(
        orders in vec(purge(), 0..6),
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
    ) {
        let mut purges = Purges::new(1);
        for purge in orders {
            purges.order(purge);
        }
        let bytes = purges.encode();
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= change;
        prop_assert!(Purges::decode(&damaged, 2).is_none());
        prop_assert!(Purges::decode(&bytes[..at.index(bytes.len())], 2).is_none());
        prop_assert!(Purges::decode(&[&bytes[..], &[change]].concat(), 2).is_none());
    }

    /// The checksum does not protect the decoder: any content can have the right one.
    #[test]
    fn any_content_is_decoded_without_panic(mut body in vec(any::<u8>(), 0..200)) {
        body.splice(..0, *b"wpurges\x01");
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &body);
        body.extend_from_slice(&sum.as_ref()[..16]);
        if let Some(mut purges) = Purges::decode(&body, 2) {
            purges.order(Purge::Everything);
        }
    }
}

#[test]
fn an_id_is_new_once() {
    let mut purges = Purges::new(1);
    let (own, _) = purges.order(url("a.test/"));
    assert_eq!(own, id(1, 1));
    assert!(!purges.learn(own, url("a.test/")) && !purges.learn(id(1, 7), Purge::Everything));
    assert!(purges.learn(id(2, 1), url("a.test/")) && !purges.learn(id(2, 1), url("a.test/")));
    assert!(!purges.learn(id(3, 0), Purge::Everything), "numbers begin with 1");
    assert_eq!(purges.sequence(), 2);
    assert_eq!(purges.since(1).map(|(id, _)| id).collect::<Vec<_>>(), [id(2, 1)]);
    assert_eq!(purges.since(u64::MAX).count(), 0);
    assert_eq!(purges.latest(), BTreeMap::from([(1, 1), (2, 1)]));
}

#[test]
fn a_node_that_knows_all_folded_purges_drops_nothing() {
    let limits = Limits { purges: 4, ..LIMITS };
    let (mut a, mut b, mut c) = (with_limits(1, limits), with_limits(2, limits), Purges::new(3));
    for number in 0..5 {
        let (id, purge) = a.order(url(&format!("a.test/{number}")));
        assert!(b.learn(id, purge.clone()));
        if number != 1 {
            assert!(c.learn(id, purge));
        }
    }
    assert_eq!((a.folded_count(), a.folded().collect::<Vec<_>>()), (3, vec![id(1, 3)]));
    assert!(a.affects(2, "a.test/other", "a.test", &[]), "an entry from before the third purge");
    assert!(!a.affects(3, "a.test/other", "a.test", &[]));
    let (of_b, of_c) = (b.sequence(), c.sequence());
    assert!(!exchange(&a, &mut b));
    assert!(!b.affects(of_b, "a.test/1", "a.test", &[]));
    assert!(exchange(&a, &mut c), "it lacks the second");
    assert!(c.affects(of_c, "a.test/other", "a.test", &[]));
    assert!(!exchange(&a, &mut c));
}

#[test]
fn purges_that_come_out_of_order_are_folded_up_to_the_last() {
    let mut purges = with_limits(1, Limits { purges: 1, ..LIMITS });
    purges.learn(id(7, 5), url("a.test/5"));
    purges.learn(id(7, 3), url("a.test/3"));
    assert_eq!((purges.folded_count(), purges.folded().collect::<Vec<_>>()), (2, vec![id(7, 5)]));
    assert!(!purges.learn(id(7, 4), url("a.test/4")), "it was ordered before the fifth");
    assert!(purges.affects(1, "a.test/4", "a.test", &[]));
}

#[test]
fn a_greater_generation_makes_a_node_start_over_once() {
    let (mut a, mut b) = (Purges::new(1), Purges::new(2));
    b.order(url("a.test/"));
    let since = b.sequence();
    assert_eq!(b.merge(3, [], [(id(7, 1), url("a.test/x"))]).len(), 1);
    assert!(b.affects(since, "a.test/other", "a.test", &[]));
    assert_eq!((b.generation(), b.folded().collect::<Vec<_>>()), (3, vec![id(2, 2)]));
    assert!(exchange(&b, &mut a), "the node of the earlier generation starts over, and learns of the order");
    assert_eq!((a.generation(), a.folded().collect::<Vec<_>>()), (3, vec![id(1, 1), id(2, 2)]));
    assert!(exchange(&a, &mut b) && !exchange(&b, &mut a) && !exchange(&a, &mut b));
    let since = a.sequence();
    a.merge(2, [id(8, 1)], [(id(8, 2), url("a.test/x"))]);
    assert!(a.affects(since, "a.test/x", "a.test", &[]), "a late purge counts");
    assert!(!a.affects(since, "a.test/other", "a.test", &[]), "what an earlier generation has folded does not");
}

#[test]
fn an_order_to_purge_everything_replaces_all_others() {
    let mut purges = Purges::new(1);
    purges.learn(id(2, 1), url("a.test/"));
    purges.order(url("b.test/"));
    let (last, _) = purges.order(Purge::Everything);
    assert_eq!(purges.since(0).map(|(id, _)| id).collect::<Vec<_>>(), [last]);
    assert_eq!(purges.folded().collect::<Vec<_>>(), [id(1, 1), id(2, 1)]);
}

#[test]
fn long_texts_are_cut() {
    let long = format!("a.test/{}\u{e4}", "x".repeat(Purge::TEXT_LEN_MAX - 8));
    let mut purges = Purges::new(1);
    let (_, sent) = purges.order(url(&long));
    assert!(matches!(&sent, Purge::Prefix(text) if text.len() == Purge::TEXT_LEN_MAX - 1 && long.starts_with(&**text)));
    assert!(purges.affects(0, &long, "a.test", &[]));
    let fits = &long[..Purge::TEXT_LEN_MAX - 1];
    assert_eq!(purges.order(url(fits)).1, url(fits));
}

#[test]
fn the_limits_hold() {
    let mut purges = Purges::new(0);
    for number in 1..=LIMITS.purges as u64 + 1 {
        purges.learn(id(number, 1), url("a.test/"));
    }
    let last = id(LIMITS.purges as u64 + 1, 1);
    assert!(purges.folded.len() <= LIMITS.incarnations && purges.remembered.is_empty(), "one order stands for all");
    assert_eq!(purges.folded().collect::<Vec<_>>(), [id(0, 1)]);
    assert_eq!(purges.generation(), 1);
    assert!(purges.learn(last, url("a.test/")), "an id that was forgotten is new again");

    let text = "x".repeat(Purge::TEXT_LEN_MAX);
    for number in 1..=300 {
        purges.learn(id(2, number), Purge::Group(text.as_str().into()));
    }
    assert!(purges.text_len <= LIMITS.text_len);
    assert!(Purges::decode(&purges.encode(), 9).is_some());
}

#[test]
fn numbers_after_a_restart_are_greater_than_those_of_all_entries() {
    let mut purges = Purges::new(1);
    let file = purges.encode();
    purges.order(url("a.test/"));
    let of_an_entry = purges.sequence();
    // The file does not have the last purge.
    let mut purges = Purges::decode(&file, 2).unwrap();
    purges.learn(id(3, 1), url("b.test/"));
    assert!(purges.affects(of_an_entry, "b.test/", "b.test", &[]));
}
