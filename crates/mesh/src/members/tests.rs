#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::now::AHEAD_MAX_S;
use super::*;

const FORGET_AFTER: Duration = Duration::from_hours(1);
const UNIX_S: u64 = 1_700_000_000;

pub(super) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(super) fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// Node `own`, open to others, and the time at which it starts.
fn begin(own: &str) -> (Members, Now) {
    let now = Now { instant: Instant::now() + 2 * FORGET_AFTER, unix_s: UNIX_S };
    (Members::new(name(own), Some((address(1), None)), FORGET_AFTER, now), now)
}

fn later(now: Now, by: Duration) -> Now {
    Now { instant: now.instant + by, unix_s: now.unix_s + by.as_secs() }
}

fn member(node: &str, port: u16) -> Member {
    Member { name: name(node), since: 1, mesh: address(port), legs: None, unlinked_s: 0 }
}

fn verdict(node: &str, at: u64, evicted: bool) -> Verdict {
    Verdict { name: name(node), at, evicted, keys_by: None }
}

fn message(verdicts: Vec<Verdict>, members: Vec<Member>) -> MembersMessage {
    MembersMessage { verdicts, members }
}

fn peer(node: &str, port: u16) -> Peer {
    Peer { name: name(node), address: address(port) }
}

fn names(members: &Members, now: Now) -> Vec<String> {
    members.all(now).members.iter().map(|member| member.name.to_string()).collect()
}

/// A statement about one of a few nodes, so that several are about the same node.
fn any_member() -> impl Strategy<Value = Member> {
    ("[a-e]", 0..4u64, 1..4u16, option::of(1..3u16)).prop_map(|(node, since, port, legs)| Member {
        since,
        legs: legs.map(address),
        ..member(&node, port)
    })
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    ("[a-e]", 0..4u64, any::<bool>(), option::of("[a-b]")).prop_map(|(node, at, evicted, keys_by)| Verdict {
        keys_by: keys_by.map(|agent| name(&agent)),
        ..verdict(&node, at, evicted)
    })
}

proptest! {
    #[test]
    fn whatever_the_order_and_the_grouping_the_same_is_known(
        members in vec(any_member(), 0..12),
        verdicts in vec(any_verdict(), 0..8),
        order in vec(any::<prop::sample::Index>(), 0..40),
        pieces in vec(1..5usize, 1..4),
    ) {
        let (mut at_once, now) = begin("z");
        at_once.merge(message(verdicts.clone(), members.clone()), now);
        // Some messages are repeated, the order is arbitrary, and all occur at least once.
        let single: Vec<MembersMessage> = members.into_iter().map(|member| message(vec![], vec![member]))
            .chain(verdicts.into_iter().map(|verdict| message(vec![verdict], vec![]))).collect();
        let mut queue: Vec<MembersMessage> = order.iter().filter(|_| !single.is_empty())
            .map(|index| index.get(&single).clone()).chain(single.iter().rev().cloned()).collect();
        let (mut piecemeal, mut pieces) = (begin("z").0, pieces.into_iter().cycle());
        while !queue.is_empty() {
            let piece = queue.split_off(queue.len().saturating_sub(pieces.next().unwrap()));
            let verdicts = piece.iter().flat_map(|message| message.verdicts.clone()).collect();
            let members = piece.into_iter().flat_map(|message| message.members).collect();
            piecemeal.merge(message(verdicts, members), now);
        }
        prop_assert_eq!(piecemeal.all(now), at_once.all(now));
        prop_assert_eq!(piecemeal.evicted().collect::<Vec<_>>(), at_once.evicted().collect::<Vec<_>>());
        // A node that gets everything from another node ends up with the same.
        let mut second = begin("y").0;
        second.merge(at_once.all(now), now);
        let known = |members: &Members| members.peers().filter(|(name, _)| name.as_str() < "f")
            .map(|(name, known)| (name.clone(), known.statement)).collect::<Vec<_>>();
        prop_assert_eq!(known(&second), known(&at_once));
    }

    #[test]
    fn peers_are_what_the_changes_say(steps in vec((vec(any_verdict(), 0..3), vec(any_member(), 0..3)), 0..20)) {
        let (mut members, now) = begin("a");
        let mut peers = BTreeMap::new();
        for (verdicts, said) in steps {
            for change in members.merge(message(verdicts, said), now).changes {
                match change {
                    Change::Peer(peer) => drop(peers.insert(peer.name, peer.address)),
                    Change::Gone(name) => prop_assert!(peers.remove(&name).is_some()),
                    Change::Evicted(verdict) => drop(peers.remove(&verdict.name)),
                }
            }
            let expected = members.peers().filter_map(|(name, known)| Some((name.clone(), known.address()?)));
            prop_assert_eq!(&peers, &expected.collect::<BTreeMap<_, _>>());
            prop_assert!(!peers.contains_key(&name("a")));
        }
    }
}

#[test]
fn a_repeated_statement_is_news_once() {
    let (mut members, now) = begin("a");
    let all = message(vec![verdict("c", 5, true)], vec![member("b", 2), member("c", 3)]);
    let first = members.merge(all.clone(), now);
    assert_eq!(first.news, all);
    assert_eq!(first.changes, [Change::Evicted(verdict("c", 5, true)), Change::Peer(peer("b", 2))]);
    let again = members.merge(all, now);
    assert!(again.news.is_empty() && again.changes.is_empty());
}

#[test]
fn eviction_hides_a_node_until_it_is_admitted() {
    let (mut members, now) = begin("a");
    members.configure(vec![peer("b", 2), peer("a", 9)], now);
    let eviction = members.evict(&name("b"), Some(name("a")), now).unwrap();
    let expected = Verdict { keys_by: Some(name("a")), ..verdict("b", UNIX_S, true) };
    assert_eq!(eviction.changes, [Change::Evicted(expected.clone())]);
    assert_eq!(eviction.news.verdicts, [expected]);
    // A new statement, and an admission of the same second, do not override the eviction.
    let message = message(vec![verdict("b", UNIX_S, false)], vec![member("b", 3)]);
    assert!(members.merge(message, now).changes.is_empty());
    assert_eq!((names(&members, now), members.is_evicted(&name("b"))), (vec!["a".to_owned()], true));
    let admission = members.admit(&name("b"), now).unwrap();
    assert_eq!(admission.changes, [Change::Peer(peer("b", 3))]);
    assert_eq!(admission.news.verdicts, [verdict("b", UNIX_S + 1, false)]);
    // An order by a clock that is behind still counts.
    let early = Now { unix_s: UNIX_S - 100, ..now };
    assert_eq!(
        members.evict(&name("b"), None, early).unwrap().changes,
        [Change::Evicted(verdict("b", UNIX_S + 1, true))]
    );
    assert_eq!(members.evict(&name("a"), None, now).unwrap_err(), OrderError::Own);
    assert!(members.admit(&name("x"), now).unwrap().news.is_empty());
}

/// Nodes with only configured peers obey verdicts, and send no statements about themselves.
#[test]
fn a_node_that_does_not_learn_knows_its_configured_peers() {
    let now = begin("a").1;
    let mut members = Members::new(name("a"), None, FORGET_AFTER, now);
    members.configure(vec![peer("b", 2)], now);
    assert!(members.all(now).is_empty());
    let outcome = members.merge(message(vec![verdict("b", 1, true)], vec![member("c", 3)]), now);
    assert_eq!(outcome.changes, [Change::Evicted(verdict("b", 1, true))]);
    assert_eq!(members.all(now), message(vec![verdict("b", 1, true)], vec![]));
    assert_eq!(members.configure(vec![peer("c", 3)], now).changes, [Change::Peer(peer("c", 3))]);
}

#[test]
fn a_learned_node_without_a_link_from_any_node_is_forgotten() {
    let (mut members, now) = begin("a");
    members.configure(vec![peer("b", 2)], now);
    let unlinked_s = 600;
    members.merge(message(vec![], vec![member("c", 3), Member { unlinked_s, ..member("d", 4) }, member("e", 5)]), now);
    members.linked(&name("e"), true, now);
    let at = later(now, Duration::from_mins(50));
    assert_eq!(members.forget(at).changes, [Change::Gone(name("d"))]);
    let last_linked = members.all(at).members.iter().map(|member| member.unlinked_s).collect::<Vec<_>>();
    assert_eq!(last_linked, [0, 3000, 0], "of a, c and e");
    // Another node has had a link to it in the meantime.
    members.merge(message(vec![], vec![Member { unlinked_s: 5, ..member("c", 3) }]), at);
    assert!(members.forget(later(now, FORGET_AFTER)).changes.is_empty());
    members.linked(&name("e"), false, at);
    let changes = members.forget(later(at, FORGET_AFTER)).changes;
    assert_eq!(changes, [Change::Gone(name("c")), Change::Gone(name("e"))]);
    assert_eq!(members.source(&name("b")), Some(Source::Configured));
    // A report does not bring back a node that was removed everywhere.
    let old = Member { unlinked_s: 3600, ..member("c", 3) };
    assert!(members.merge(message(vec![], vec![old]), at).changes.is_empty());
}

#[test]
fn a_reload_keeps_introduced_nodes() {
    let (mut members, now) = begin("a");
    members.configure(vec![peer("b", 2), peer("c", 3)], now);
    // A node's own statement takes precedence over the configuration.
    assert_eq!(members.merge(message(vec![], vec![member("b", 8)]), now).changes, [Change::Peer(peer("b", 8))]);
    assert_eq!(
        members.configure(vec![peer("d", 4)], now).changes,
        [Change::Gone(name("c")), Change::Peer(peer("d", 4))]
    );
    let sources = ["b", "c", "d"].map(|node| members.source(&name(node)));
    assert_eq!(sources, [Some(Source::Learned), None, Some(Source::Configured)]);
    assert_eq!((members.count(Source::Learned), members.count(Source::Configured)), (1, 1));
}

/// A node receives a statement with an address that it had before, or never had.
#[test]
fn a_node_corrects_what_is_said_of_it() {
    let (mut members, now) = begin("a");
    let own = |since, port| Member { since, ..member("a", port) };
    assert!(members.merge(message(vec![], vec![own(UNIX_S - 1, 9)]), now).news.is_empty());
    let news = members.merge(message(vec![], vec![own(UNIX_S + 7, 9)]), now).news;
    assert_eq!(news.members, [own(UNIX_S + 8, 1)]);
    // A correct statement does not need a new one with a greater `since`.
    assert_eq!(members.merge(message(vec![], vec![own(UNIX_S + 9, 1)]), now).news.members, [own(UNIX_S + 9, 1)]);
}

#[test]
fn what_cannot_be_is_passed_over() {
    let (mut members, now) = begin("a");
    let at = |mesh: &str| Member { mesh: mesh.parse().unwrap(), ..member("b", 1) };
    let mut bad: Vec<_> =
        ["0.0.0.0:1", "[::]:1", "192.0.2.1:0", "224.0.0.1:1", "[ff02::1]:1", "255.255.255.255:1", "[::ffff:0.0.0.0]:1"]
            .into_iter()
            .map(at)
            .collect();
    bad.push(Member { legs: Some("0.0.0.0:1".parse().unwrap()), ..member("b", 2) });
    bad.push(Member { since: UNIX_S + AHEAD_MAX_S + 1, ..member("b", 2) });
    bad.push(Member { unlinked_s: u32::MAX, ..member("b", 2) });
    let outcome = members.merge(message(vec![verdict("c", UNIX_S + AHEAD_MAX_S + 1, true)], bad), now);
    assert!(outcome.news.is_empty() && outcome.changes.is_empty());
    let close = Member { since: UNIX_S + AHEAD_MAX_S, ..member("b", 2) };
    assert_eq!(members.merge(message(vec![], vec![close]), now).changes, [Change::Peer(peer("b", 2))]);
}

#[test]
fn there_is_room_for_so_many() {
    let (mut members, now) = begin("a");
    let many = |prefix: &str, unlinked_s| -> Vec<Member> {
        (0..MembersMessage::MAX)
            .map(|number| Member { unlinked_s, ..member(&format!("{prefix}{number}"), 2) })
            .collect()
    };
    members.merge(message(vec![], many("x", 1)), now);
    members.linked(&name("x0"), true, now);
    assert_eq!((members.all(now).members.len(), members.known.len()), (MembersMessage::MAX, OTHERS_MAX));
    // A node with a later link replaces one with an earlier link, but not one with a link now.
    let outcome = members.merge(message(vec![], many("y", 0)), now);
    assert!(outcome.changes.iter().filter(|change| matches!(change, Change::Gone(_))).count() == OTHERS_MAX - 1);
    assert_eq!((members.known.len(), members.source(&name("x0"))), (OTHERS_MAX, Some(Source::Learned)));
    assert!(members.merge(message(vec![], many("z", 0)), now).changes.is_empty());

    let evictions = (0..MembersMessage::MAX).map(|number| verdict(&format!("v{number}"), 1, number > 0));
    members.merge(message(evictions.collect(), vec![]), now);
    members.evict(&name("w"), None, now).unwrap();
    assert_eq!(members.evict(&name("v0"), None, now).unwrap_err(), OrderError::TooMany);
    assert_eq!(members.evicted().count(), MembersMessage::MAX);
}

#[test]
fn linked_peers_get_all_members_in_turn() {
    let (mut members, now) = begin("a");
    assert_eq!(members.next_in_turn(), None);
    members.merge(message(vec![], ["b", "c", "d"].map(|node| member(node, 2)).to_vec()), now);
    for node in ["b", "d"] {
        members.linked(&name(node), true, now);
    }
    let turns: Vec<_> = (0..4).map(|_| members.next_in_turn().unwrap().to_string()).collect();
    assert_eq!(turns, ["b", "d", "b", "d"]);
}
