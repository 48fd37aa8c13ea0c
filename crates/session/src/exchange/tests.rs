#![allow(clippy::unwrap_used)]

mod gets;
mod puts;
mod simulation;
mod spends;

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use proptest::collection::vec;
use proptest::prelude::*;
use watari_values::SecretBytes;

use super::*;

const START: Now = Now { ms: 10_000, unix_s: 500_000 };
/// The nodes of the cluster in these tests.
const NODES: usize = 6;

fn after(ms: u64) -> Now {
    Now { ms: START.ms + ms, unix_s: START.unix_s + ms / 1000 }
}

fn name(number: usize) -> NodeName {
    NodeName::new(&format!("a-{number}")).unwrap()
}

fn names(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<NodeName> {
    numbers.into_iter().map(name).collect()
}

/// The node of this number, linked with all others.
fn node(number: usize, placement: Placement) -> Exchange {
    let mut exchange = Exchange::new(name(number), placement, Store::new(1 << 20));
    assert_eq!(exchange.set_members(START, &names(0..NODES)), []);
    exchange
}

fn owner(number: usize) -> Exchange {
    node(number, Placement::Owner)
}

/// A key for which these nodes rank first.
fn key<const N: usize>(first: [usize; N]) -> SessionKey {
    keys(first).next().unwrap()
}

/// Any number of such keys.
fn keys<const N: usize>(first: [usize; N]) -> impl Iterator<Item = SessionKey> {
    let mut ranks = Ranks::new(name(0));
    ranks.set_members(&names(0..NODES));
    (0..u64::MAX).map(digested).filter(move |key| ranks.first(key, N) == first.map(name))
}

fn digested(number: u64) -> SessionKey {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, &number.to_be_bytes()).as_ref());
    SessionKey(key)
}

fn secret() -> SecretBytes {
    SecretBytes::new(vec![7; 100])
}

/// A session of the first node that expires in an hour.
fn session(key: SessionKey) -> (SessionKey, Session) {
    (key, session_of(0))
}

fn session_of(issuer: usize) -> Session {
    Session { secret: secret(), expires: START.unix_s + 3600, issuer: name(issuer) }
}

fn sent(key: SessionKey) -> SentSession {
    SentSession { key, secret: secret(), expires_in_s: 3600, issuer: name(0) }
}

fn found(key: SessionKey, source: Source) -> FoundSession {
    FoundSession { key, session: session_of(0), source }
}

/// The receivers of all messages in `actions`.
fn receivers(actions: &[Action]) -> Vec<NodeName> {
    let to = actions.iter().filter_map(|action| match action {
        Action::Send(to, _) | Action::SendSoon(to, _) => Some(to.clone()),
        _ => None,
    });
    to.collect()
}

/// The number of the last request that is sent to this node.
fn request_to(number: usize, actions: &[Action]) -> u64 {
    let mut requests = actions.iter().filter_map(|action| match action {
        Action::Send(to, Message::Request(request, _)) | Action::SendSoon(to, Message::Request(request, _))
            if *to == name(number) =>
        {
            Some(*request)
        }
        _ => None,
    });
    requests.next_back().unwrap()
}

fn stored(request: u64) -> Message {
    Message::Answer(request, Answer::Stored)
}

fn put(request: u64, sessions: Vec<SentSession>) -> Message {
    Message::Request(request, Request::Put(sessions))
}

fn get(request: u64, keys: Vec<SessionKey>) -> Message {
    Message::Request(request, Request::Get(keys))
}

fn answer(request: u64, sessions: Vec<SentSession>) -> Message {
    Message::Answer(request, Answer::Found(sessions))
}

fn spend(request: u64, key: SessionKey) -> Message {
    Message::Request(request, Request::Spend(key))
}

fn spent(request: u64, granted: bool) -> Message {
    Message::Answer(request, Answer::Spent { granted })
}

#[test]
fn messages_of_other_nodes_are_ignored() {
    let mut exchange = owner(0);
    let put = put(1, vec![sent(key([0, 1]))]);
    assert_eq!(exchange.on_message(START, &name(9), put.clone()), []);
    assert!(exchange.store().is_empty());
    assert_eq!(exchange.on_message(START, &name(1), put), [Action::Send(name(1), stored(1))]);
    assert_eq!(exchange.store().len(), 1);
}

#[test]
fn only_what_is_kept_is_acknowledged() {
    let mut exchange = Exchange::new(name(0), Placement::Owner, Store::new(10));
    exchange.set_members(START, &names(0..NODES));
    assert_eq!(exchange.on_message(START, &name(1), put(1, vec![sent(key([0, 1]))])), []);
}

#[test]
fn a_get_is_answered_with_the_stored_sessions_that_have_not_expired() {
    let mut exchange = owner(0);
    let (kept, expired, unknown) = (key([0, 1]), key([0, 2]), key([0, 3]));
    exchange.put(START, vec![session(kept), (expired, Session { expires: START.unix_s + 1, ..session_of(0) })]);
    let left = SentSession { expires_in_s: 3590, ..sent(kept) };
    let actions = exchange.on_message(after(10_000), &name(4), get(5, vec![unknown, kept, expired]));
    assert_eq!(actions, [Action::Send(name(4), answer(5, vec![left]))]);
}

#[test]
fn messages_beyond_the_bounds_are_ignored() {
    let mut exchange = owner(0);
    let many = vec![sent(key([0, 1])); SESSIONS_MAX + 1];
    assert_eq!(exchange.on_message(START, &name(1), put(1, many)), []);
    let long = SentSession { secret: SecretBytes::new(vec![1; SESSION_LEN_MAX + 1]), ..sent(key([0, 1])) };
    assert_eq!(exchange.on_message(START, &name(1), put(1, vec![long])), []);
    assert!(exchange.store().is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Hear(usize, Message),
    Put(Vec<u64>),
    Get(Vec<u64>),
    Spend(u64, usize),
    Members(Vec<usize>),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Numbers that were used, and others.
    let request =
        || prop_oneof![(1..8_u64, 1..8_u64).prop_map(|(id, serial)| pending::request(id, serial)), any::<u64>()];
    let numbers = || vec(0..10_u64, 0..20);
    let kept = || {
        let kept = (0..10_u64, any::<u32>());
        vec(kept.prop_map(|(number, expires_in_s)| SentSession { expires_in_s, ..sent(digested(number)) }), 0..20)
    };
    let message = prop_oneof![
        (request(), kept()).prop_map(|(request, sessions)| put(request, sessions)),
        request().prop_map(stored),
        (request(), numbers()).prop_map(|(request, numbers)| get(request, numbers.into_iter().map(digested).collect())),
        (request(), kept()).prop_map(|(request, sessions)| answer(request, sessions)),
        (request(), 0..10_u64).prop_map(|(request, number)| spend(request, digested(number))),
        (1..8_u64, any::<bool>()).prop_map(|(request, granted)| spent(request, granted)),
    ];
    let step = prop_oneof![
        4 => (0..NODES, message).prop_map(|(from, message)| Step::Hear(from, message)),
        2 => numbers().prop_map(Step::Put),
        2 => numbers().prop_map(Step::Get),
        2 => (0..10_u64, 0..NODES).prop_map(|(number, issuer)| Step::Spend(number, issuer)),
        1 => vec(0..NODES, 0..NODES).prop_map(Step::Members),
        2 => (0..400_u64).prop_map(Step::Pass),
    ];
    vec(step, 0..60)
}

proptest! {
    /// For any messages, each put, get and spend ends exactly once, and in time.
    #[test]
    fn nothing_panics_and_everything_ends_once(steps in steps(), push: bool) {
        let mut exchange = node(0, if push { Placement::Push } else { Placement::Owner });
        let (mut now, mut open, mut ended) = (START, BTreeSet::new(), Vec::new());
        for step in steps {
            let sessions = |numbers: &[u64]| numbers.iter().map(|number| session(digested(*number))).collect();
            let actions = match step {
                Step::Hear(from, message) => exchange.on_message(now, &name(from), message),
                Step::Put(numbers) => {
                    let (PutId(id), actions) = exchange.put(now, sessions(&numbers));
                    open.insert(('p', id));
                    actions
                }
                Step::Get(numbers) => {
                    let (GetId(id), actions) = exchange.get(now, numbers.into_iter().map(digested).collect());
                    open.insert(('g', id));
                    actions
                }
                Step::Spend(number, issuer) => {
                    let of_issuer = FoundSession { session: session_of(issuer), ..found(digested(number), Source::Here) };
                    let (SpendId(id), actions) = exchange.spend(now, &of_issuer);
                    open.insert(('s', id));
                    actions
                }
                Step::Members(members) => exchange.set_members(now, &names(members)),
                Step::Pass(ms) => {
                    now.ms += ms;
                    exchange.on_timer(now)
                }
            };
            ended.extend(ends(&actions));
        }
        while let Some(ms) = exchange.next_timer() {
            prop_assert!(ms <= now.ms + 3000, "no pause is so long");
            now.ms = now.ms.max(ms);
            ended.extend(ends(&exchange.on_timer(now)));
        }
        prop_assert_eq!(ended.len(), open.len());
        prop_assert_eq!(ended.into_iter().collect::<BTreeSet<_>>(), open);
    }
}

/// The puts, gets and spends that have ended.
fn ends(actions: &[Action]) -> Vec<(char, u64)> {
    let ends = actions.iter().filter_map(|action| match action {
        Action::Send(..) | Action::SendSoon(..) => None,
        Action::Stored(PutId(id)) => Some(('p', *id)),
        Action::Found(GetId(id), ..) => Some(('g', *id)),
        Action::Spent(SpendId(id), _) => Some(('s', *id)),
    });
    ends.collect()
}
