//! The issuer approves one use of a session.

use super::*;

/// Node 0 established the session and node 1 found it: the actions of node 1 after node 0's verdict.
fn asked(issuer: &mut Exchange, asker: &mut Exchange, key: SessionKey) -> Vec<Action> {
    let (_, asks) = asker.spend(START, &found(key, Source::Pulled));
    let request = request_to(0, &asks);
    assert_eq!(asks, [Action::Send(name(0), spend(request, key))]);
    let answers = issuer.on_message(START, &name(1), spend(request, key));
    let [Action::Send(to, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*to, name(1));
    asker.on_message(START, &name(0), answer.clone())
}

fn verdicts(actions: &[Action]) -> Vec<Verdict> {
    let verdicts = actions.iter().filter_map(|action| match action {
        Action::Spent(_, verdict) => Some(*verdict),
        _ => None,
    });
    verdicts.collect()
}

#[test]
fn one_use_is_approved_for_any_node() {
    let (mut issuer, mut asker, key) = (owner(0), owner(1), key([0, 1]));
    issuer.put(START, vec![session(key)]);
    assert_eq!(verdicts(&asked(&mut issuer, &mut asker, key)), [Verdict::Granted]);
    assert_eq!(verdicts(&asked(&mut issuer, &mut asker, key)), [Verdict::Denied]);
    let (_, here) = issuer.spend(START, &found(key, Source::Own));
    assert_eq!(verdicts(&here), [Verdict::Denied]);
}

#[test]
fn the_establishing_node_approves_its_own_use() {
    let (mut issuer, key) = (owner(0), key([0, 1]));
    issuer.put(START, vec![session(key)]);
    let mut spend = || verdicts(&issuer.spend(START, &found(key, Source::Own)).1);
    assert_eq!((spend(), spend()), (vec![Verdict::Granted], vec![Verdict::Denied]));
}

/// It may have approved a use before the restart.
#[test]
fn what_was_restored_is_not_approved() {
    let (mut issuer, mut asker, key) = (owner(0), owner(1), key([0, 1]));
    issuer.restore(START, key, session_of(0));
    assert_eq!(verdicts(&asked(&mut issuer, &mut asker, key)), [Verdict::Denied]);
    assert_eq!(issuer.store().len(), 1);
}

#[test]
fn what_others_send_is_not_approved() {
    let (mut issuer, key) = (owner(0), key([0, 1]));
    issuer.put(START, vec![session(key)]);
    issuer.on_message(START, &name(1), put(1, vec![sent(key)]));
    assert_eq!(verdicts(&issuer.spend(START, &found(key, Source::Here)).1), [Verdict::Denied]);
}

#[test]
fn a_silent_node_is_not_asked_again_to_approve() {
    let mut asker = owner(1);
    let (id, asks) = asker.spend(START, &found(key([0, 1]), Source::Pulled));
    assert_eq!(asker.on_timer(after(499)), []);
    assert_eq!(asker.on_timer(after(500)), [Action::Spent(id, Verdict::Unreachable)]);
    let late = spent(request_to(0, &asks), true);
    assert_eq!(asker.on_message(after(501), &name(0), late), []);
    assert_eq!(asker.next_timer(), None);
}

#[test]
fn a_node_without_a_link_cannot_approve() {
    let mut asker = owner(1);
    let (id, _) = asker.spend(START, &found(key([0, 1]), Source::Pulled));
    let left = asker.set_members(START, &names(1..NODES));
    assert_eq!(left, [Action::Spent(id, Verdict::Unreachable)]);
    let (id, actions) = asker.spend(START, &found(key([0, 1]), Source::Pulled));
    assert_eq!(actions, [Action::Spent(id, Verdict::Unreachable)]);
}

#[test]
fn only_the_asked_node_can_approve() {
    let mut asker = owner(1);
    let (_, asks) = asker.spend(START, &found(key([0, 1]), Source::Pulled));
    let request = request_to(0, &asks);
    assert_eq!(asker.on_message(START, &name(2), spent(request, true)), []);
    assert_eq!(verdicts(&asker.on_message(START, &name(0), spent(request, false))), [Verdict::Denied]);
    assert_eq!(asker.on_message(START, &name(0), spent(request, true)), []);
}
