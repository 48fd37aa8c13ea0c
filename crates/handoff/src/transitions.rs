//! Tables of all transitions, for tests that compare them with files.

use std::fmt::{Debug, Write};

/// Renders the actions of `machine` in each of `states` for each of `events`: a line for every event with an effect,
/// and one line for all others.
pub(crate) fn table<M: Clone + PartialEq, E, A: Debug>(
    states: &[(&str, M)],
    events: &[(&str, E)],
    handle: impl Fn(&mut M, &E, &mut Vec<A>),
    label: impl Fn(&M) -> String,
) -> String {
    let mut text = String::new();
    for (name, machine) in states {
        let _ = writeln!(text, "{name}: {}", label(machine));
        let mut ignored = Vec::new();
        for (event_name, event) in events {
            let (mut next, mut actions) = (machine.clone(), Vec::new());
            handle(&mut next, event, &mut actions);
            if next == *machine && actions.is_empty() {
                ignored.push(*event_name);
                continue;
            }
            let _ = writeln!(text, "  {event_name:<30} => {}", label(&next));
            for action in actions {
                let _ = writeln!(text, "  {:<30}    {action:?}", "");
            }
        }
        let _ = writeln!(text, "  ignored: {}\n", ignored.join("; "));
    }
    text
}

/// Asserts that `actual` equals `pinned`, the content of the file.
pub(crate) fn assert_pinned(actual: &str, pinned: &str) {
    if actual != pinned {
        let same = actual.lines().zip(pinned.lines()).take_while(|(actual, pinned)| actual == pinned).count();
        let [now, before] = [actual, pinned].map(|text| text.lines().nth(same).unwrap_or("(nothing)"));
        panic!("line {}: `{before}` is now `{now}`; if that is meant, the file has to say:\n{actual}", same + 1);
    }
}
