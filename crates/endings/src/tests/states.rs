//! States of servers, minute by minute.

use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::{Flags, Segment, Timestamp};

use super::script::{events, script};
use crate::{
    Change, Connections, Lately, Learner, Profile, Reason, Server, ServerState, Settings, States, Tally, Window,
};

/// A mix of connections for some seconds: of ten each second, how many end in which way.
#[derive(Debug, Clone, Copy, Default)]
struct Mix {
    seconds: u64,
    delivered: u16,
    aborted: u16,
    refused: u16,
    silent: u16,
    hung: u16,
}

struct Play {
    connections: Connections,
    states: States,
    changes: Vec<Change>,
    port: u16,
    now: u64,
}

impl Play {
    fn new(profile: Profile) -> Self {
        let connections = Connections::new(Settings::default());
        Self { connections, states: States::new(profile, 4), changes: Vec::new(), port: 0, now: 1_000 }
    }

    fn run(&mut self, mix: Mix) {
        for _ in 0..mix.seconds {
            self.now += 1;
            for (count, script) in [
                (mix.delivered, "s|sa|a|100|+900|a|!f|f"),
                (mix.aborted, "s|sa|a|100|+900|r0"),
                (mix.refused, "s|!r"),
                (mix.silent, "s"),
                (mix.hung, "s|sa|a|100"),
            ] {
                for _ in 0..count {
                    self.connect(script);
                }
            }
            self.drain();
        }
    }

    /// Steps of a connection. Steps of the server are `sa`, `+n` and those that begin with `!`.
    fn connect(&mut self, script: &str) {
        self.port = self.port.wrapping_add(1);
        let client = SocketAddr::from(([10, 1, 0, 1], self.port));
        let server = SocketAddr::from(([10, 0, 0, 2], 80));
        let (mut next, mut time) = ([1, 1_u32], self.now * 1_000_000_000 + 100_000_000);
        for step in script.split('|') {
            time += 1_000;
            let is_server = step == "sa" || step.starts_with('+') || step.starts_with('!');
            let len = step.trim_start_matches('+').parse().unwrap_or(0);
            let flags = match step {
                "s" => Flags::SYN,
                "sa" => Flags::SYN.with(Flags::ACK),
                "f" | "!f" => Flags::FIN.with(Flags::ACK),
                "!r" | "r0" => Flags::RST.with(Flags::ACK),
                _ => Flags::ACK,
            };
            let (me, peer) = (usize::from(is_server), usize::from(!is_server));
            let is_syn = flags.contains(Flags::SYN);
            let (source, destination) = if is_server { (server, client) } else { (client, server) };
            let acknowledgment = if step == "r0" { next[peer] - 400 } else { next[peer] };
            let sequence = if is_syn { 0 } else { next[me] };
            let time = Timestamp(time);
            self.connections.observe(&Segment {
                time,
                source,
                destination,
                sequence,
                acknowledgment,
                flags,
                window: 9,
                len,
                data: &[],
            });
            next[me] += len + u32::from(flags.contains(Flags::FIN));
        }
    }

    fn drain(&mut self) {
        let now = Timestamp(self.now * 1_000_000_000 + 990_000_000);
        self.connections.advance(now);
        while let Some(event) = self.connections.poll_event() {
            self.states.handle(&event);
        }
        self.states.advance(now);
        self.changes.extend(std::iter::from_fn(|| self.states.poll()));
    }

    fn states(&self) -> Vec<(ServerState, Reason)> {
        self.changes.iter().map(|change| (change.verdict.state, change.verdict.evidence.reason)).collect()
    }
}

const GOOD: Mix = Mix { seconds: 120, delivered: 10, aborted: 0, refused: 0, silent: 0, hung: 0 };

#[test]
fn a_day_in_the_lab() {
    let mut play = Play::new(Profile::lab());
    play.run(GOOD);
    play.run(Mix { aborted: 2, delivered: 8, ..GOOD });
    assert_eq!(play.states(), [(ServerState::Normal, Reason::WithinLimits)], "20 % are normal");
    play.run(Mix { aborted: 4, delivered: 6, ..GOOD });
    assert_eq!(play.states()[1..], [(ServerState::Saturated, Reason::AbortsAndTimeouts)]);
    // Between the limit and the margin below it, the state stays.
    play.run(Mix { aborted: 9, delivered: 31, ..GOOD });
    assert_eq!(play.states().len(), 2, "{:?}", play.changes.last());
    play.run(GOOD);
    assert_eq!(play.states()[2..], [(ServerState::Normal, Reason::WithinLimits)]);
    // No client connects.
    play.run(Mix { seconds: 100, ..Mix::default() });
    assert_eq!(play.states()[3..], [(ServerState::Idle, Reason::NoClients)]);
}

#[test]
fn at_the_site_a_third_may_leave() {
    let mut play = Play::new(Profile { span: Duration::from_mins(1), ..Profile::site() });
    play.run(Mix { aborted: 3, delivered: 7, ..GOOD });
    assert_eq!(play.states(), [(ServerState::Normal, Reason::WithinLimits)]);
    play.run(Mix { aborted: 5, delivered: 5, ..GOOD });
    assert_eq!(play.states()[1..], [(ServerState::Saturated, Reason::Aborts)]);
}

#[test]
fn a_server_that_answers_no_client_is_stopped() {
    let down = [
        Mix { silent: 10, ..Mix::default() },
        Mix { refused: 10, ..Mix::default() },
        Mix { hung: 10, ..Mix::default() },
    ];
    for mix in down {
        let mut play = Play::new(Profile::lab());
        play.run(GOOD);
        let from = play.now;
        play.run(Mix { seconds: 60, ..mix });
        assert_eq!(play.states()[1..], [(ServerState::Stopped, Reason::Unanswered)], "{mix:?}");
        let noticed_after = play.changes[1].verdict.at.0 / 1_000_000_000 - from;
        assert!(noticed_after <= 25, "{mix:?}: {noticed_after} s");
        // The server runs again; and without clients it is idle.
        play.run(GOOD);
        assert_eq!(
            play.states().last(),
            Some(&(ServerState::Normal, Reason::WithinLimits)),
            "{:?}",
            play.changes.last()
        );
        play.run(Mix { seconds: 20, ..mix });
        play.run(Mix { seconds: 100, ..Mix::default() });
        assert_eq!(play.states().last(), Some(&(ServerState::Idle, Reason::NoClients)));
    }
}

/// A stop is detected late: a request counts as unanswered after ten seconds.
#[test]
fn what_hangs_is_stopped_since_the_first_request_without_an_answer() {
    let mut entries = Vec::new();
    for profile in [Profile::lab(), Profile { span: Duration::from_mins(2), ..Profile::site() }] {
        for mix in [
            Mix { hung: 10, ..Mix::default() },
            Mix { refused: 10, ..Mix::default() },
            Mix { silent: 10, ..Mix::default() },
        ] {
            let mut play = Play::new(profile);
            play.run(GOOD);
            let first = play.now + 1;
            play.run(Mix { seconds: 60, ..mix });
            let verdict = play.changes[1].verdict;
            assert_eq!(verdict.state, ServerState::Stopped);
            let late_s = (verdict.since.0 / 1_000_000_000).abs_diff(first);
            assert!(late_s <= 1, "{mix:?}: {late_s} s");
            // Nothing was delivered since.
            let server = SocketAddr::from(([10, 0, 0, 2], 80));
            let Some(server) = play.states.server(&server) else { panic!("it is watched") };
            for lately in [Lately::Span, Lately::StoppedSpan, Lately::ShortSpan] {
                assert_eq!(server.shares(lately), None, "{mix:?}");
            }
            assert_eq!(verdict.evidence.shares, None);
            // The evidence at the change differs from the current one.
            let now = server.evidence().map(|evidence| evidence.value);
            assert_eq!(now, Some(1.0), "{mix:?}: {verdict:?}");
            entries.push(verdict.evidence.value);
        }
    }
    assert!(entries.iter().any(|value| *value < 0.9), "{entries:?}");
}

/// While some requests are answered, the stop is dated to when most got no answer.
#[test]
fn what_answers_few_is_stopped_since_most_get_nothing() {
    let mut play = Play::new(Profile::lab());
    play.run(GOOD);
    // Long before, a few requests get no answer.
    play.run(Mix { seconds: 1, hung: 1, delivered: 9, ..Mix::default() });
    play.run(Mix { seconds: 20, ..GOOD });
    let first = play.now + 1;
    play.run(Mix { seconds: 60, refused: 8, delivered: 2, ..Mix::default() });
    let since_s = play.changes[1].verdict.since.0 / 1_000_000_000;
    assert_eq!(play.states()[1], (ServerState::Stopped, Reason::Unanswered));
    assert!((first..first + 20).contains(&since_s), "{since_s} of {first}");
    let server = SocketAddr::from(([10, 0, 0, 2], 80));
    let shares = play.states.server(&server).and_then(|server| server.shares(Lately::ShortSpan));
    assert!(shares.is_some_and(|shares| shares.s_normal > 0.99), "what it delivers is all that ends");
}

/// A night without requests does not move the date of the stop.
#[test]
fn what_hangs_after_a_silence_is_stopped_since_then() {
    let mut play = Play::new(Profile { span: Duration::from_mins(20), ..Profile::lab() });
    play.run(GOOD);
    play.run(Mix { seconds: 300, ..Mix::default() });
    let first = play.now + 1;
    play.run(Mix { seconds: 60, hung: 2, ..Mix::default() });
    let Some(verdict) = play.changes.iter().map(|change| change.verdict).find(|it| it.state == ServerState::Stopped)
    else {
        panic!("{:?}", play.states())
    };
    let since_s = verdict.since.0 / 1_000_000_000;
    assert!(since_s.abs_diff(first) <= 1, "{since_s} of {first}");
}

/// A stopped server without clients: earlier deliveries are no evidence that it works.
#[test]
fn what_was_stopped_is_not_normal_until_it_delivers() {
    for profile in [Profile::lab(), Profile::site()] {
        let mut play = Play::new(profile);
        play.run(GOOD);
        play.run(Mix { seconds: 40, refused: 5, ..Mix::default() });
        play.run(Mix { seconds: 200, ..Mix::default() });
        play.run(Mix { seconds: 1, refused: 1, ..Mix::default() });
        play.run(Mix { seconds: 1_300, ..Mix::default() });
        let states: Vec<_> = play.states().into_iter().map(|(state, _)| state).collect();
        assert_eq!(states, [ServerState::Normal, ServerState::Stopped, ServerState::Idle]);
        play.run(GOOD);
        assert_eq!(play.states().last(), Some(&(ServerState::Normal, Reason::WithinLimits)));
    }
}

#[test]
fn a_server_that_few_fail_to_reach_is_not_stopped() {
    let mut play = Play::new(Profile::lab());
    play.run(Mix { silent: 2, delivered: 8, ..GOOD });
    assert_eq!(play.states(), [(ServerState::Normal, Reason::WithinLimits)]);
}

#[test]
fn what_ends_a_silence_was_not_there_in_it() {
    let server = SocketAddr::from(([10, 0, 0, 2], 80));
    let mut states = States::new(Profile::lab(), 4);
    for second in 1_000..1_004 {
        let at = Timestamp(second * 1_000_000_000);
        states.add(server, at, &Tally { opened: 9, unanswered: 9, ..Tally::default() });
        states.advance(at);
        // The condition has to last for two seconds.
        assert_eq!(states.poll().is_some(), second == 1_002, "{second}");
    }
}

#[test]
fn limits_are_learned_from_a_normal_time() {
    let mut learner = Learner::default();
    let block = |client_abort: u32| Tally { s_normal: 100 - client_abort, client_abort, ..Tally::default() };
    learner.add(&block(30), 10);
    learner.add(&block(32), 10);
    assert_eq!(learner.profile(Profile::site()), None);
    learner.add(&block(34), 10);
    learner.add(&Tally { client_abort: 3, ..Tally::default() }, 10);
    let Some(profile) = learner.profile(Profile::lab()) else { panic!("three blocks are enough") };
    // 0.32 + 3 × 0.0163 is less than 5 points above the mean; there were no timeouts.
    assert!(profile.aborts.is_some_and(|limit| (limit - 0.37).abs() < 1e-9), "{profile:?}");
    assert!(profile.timeouts.is_some_and(|limit| (limit - 0.05).abs() < 1e-9), "{profile:?}");
    learner.add(&block(62), 10);
    let aborts = learner.profile(Profile::lab()).and_then(|profile| profile.aborts);
    // 0.395 + 3 x 0.1307
    assert!(aborts.is_some_and(|limit| (limit - 0.787).abs() < 1e-3), "{aborts:?}");
}

/// X is delivered, whichever side closed then. Y is cut off by a client, Z is timed out, F is cut off by the server. A
/// connection without a request counts as none of them.
#[test]
fn what_counts_as_what() {
    const GET: &str = "C{GET / HTTP/1.1\\r\\n\\r\\n}";
    const OK: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello}";
    const PART: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 900\\r\\n\\r\\nhello}";
    const HELLO: &str = "C{\u{16}\u{3}\u{1}\0\u{5}\u{1}\0\0\u{1}\0}";
    const ALERT: &str = "S{\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}}";
    let cases = [
        ("GET OK Ca Sf Cf Sa", "X"),
        ("GET OK Ca Cf Sf Ca", "X"),
        ("GET OK Ca ~3 Cf Sf Ca", "X"),
        ("GET OK Ca GET OK Ca Cf Sf Ca", "X"),
        ("GET OK Ca ~3 Cr", "X"),
        ("GET OK Ca ~3 Sr", "X"),
        ("GET OK Ca GET Cf Sf Ca", "Y"),
        ("GET PART Ca Cf Sf Ca", "Y"),
        ("GET PART Ca ~3 Cf Sf Ca", "Y"),
        ("GET PART Ca Cr", "Y"),
        ("GET Cf Sf Ca", "Y"),
        ("GET PART Ca Sf Cf Sa", "F"),
        ("GET PART Ca Sr", "F"),
        ("GET OK Sr", "F"),
        ("GET S{HTTP/1.1 200 Ok\\r\\n\\r\\nhello} Ca Sf Cf Sa", "X"),
        ("GET S{HTTP/1.1 200 Ok\\r\\n\\r\\nhello} Ca Sr", "F"),
        ("GET Ca Sf Cf Sa", "F"),
        ("GET OK Ca ~900 GET ~900 Ca", "Z"),
        // The second request crossed the server's FIN: clients send it again.
        ("GET OK Ca ~3 Sf GET Sr", "X"),
        // No request was sent.
        ("Cf Sf Ca", "-"),
        ("Cr", "-"),
        ("~9 Sf Cf Sa", "-"),
        ("~9 Sr", "-"),
        // The server closes right after the accept, or breaks off the handshake.
        ("Sf Cf Sa", "F"),
        ("Sr", "F"),
        ("HELLO Sa ALERT Ca Cf Sf Ca", "F"),
        ("HELLO Sa ALERT Sf Ca Cf Sa", "F"),
        ("HELLO Sa Sf Ca Cf Sa", "F"),
        ("HELLO Sa ~3 Cf Sf Ca", "Y"),
        // The client rejects the server, or speaks TLS to a server without TLS.
        ("HELLO Sa C{\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{30}} Sf Ca Cf Sa", "-"),
        ("HELLO Sa C{\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{30}} Cr", "-"),
        ("HELLO S{HTTP/1.1 400 Bad Request\\r\\n\\r\\n} Sf Ca Cf Sa", "-"),
        // The end of the answer is not visible.
        ("C+90 S+900 Ca Sf Cf Sa", "X"),
        ("C+90 S+900 Ca Cf Sf Ca", "X"),
        ("C+90 S+900 Ca ~3 Cf Sf Ca", "X"),
        ("C+90 S+900 Ca Cr", "X"),
        ("C+90 S+900 Ca ~3 Cr", "Y"),
        ("C+90 S+900 Ca Sr", "F"),
        ("C+90 S+900 Ca ~3 Sr", "X"),
        ("C+90 S+900 S+900 Cf^901 S+900 CR", "Y"),
        ("C+90 S+900 Caw ~3 Cfw Sf Ca", "Y"),
        ("C+90 S+900 Caw ~3 Ca S+900 Ca Cf Sf Ca", "X"),
        ("C+90 S+900 Caw ~3 Crw", "Y"),
        ("C+90 Cf Sa S+900 Ca Sf Ca", "X"),
        // One direction only.
        ("C+90 -S+900 Ca Cf -Sf Ca", "X"),
        ("C+90 -S+900 Ca -Sf Cf -Sa", "X"),
        ("C+90 -Sa Cf -Sf Ca", "Y"),
    ];
    for (text, expected) in cases {
        let text = text.replace("GET", GET).replace("OK", OK).replace("PART", PART);
        let text = text.replace("HELLO", HELLO).replace("ALERT", ALERT);
        let mut all = Tally::default();
        for (_, tally) in events(&script(&format!("Cs Ssa Ca {text}"))).iter().filter_map(Tally::of) {
            all += tally;
        }
        let said = match (all.s_normal, all.client_abort, all.timeout, all.failed) {
            (1, 0, 0, 0) => "X",
            (0, 1, 0, 0) => "Y",
            (0, 0, 1, 0) => "Z",
            (0, 0, 0, 1) => "F",
            (0, 0, 0, 0) => "-",
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(said, expected, "{text}");
    }
}

/// A server that closes a connection that was idle before the capture has refused no client.
#[test]
fn what_was_not_seen_is_no_failure() {
    for text in ["Sf Ca Cf Sa", "Sf Ca", "Sr", "Ca Sf Ca Cf Sa"] {
        let events = events(&script(&format!("-Cs -Ssa -Ca -C+90 -S+900 -Ca {text}")));
        assert!(events.iter().filter_map(Tally::of).all(|(_, tally)| tally.failed == 0), "{text}");
    }
}

/// Unanswered SYNs and requests, except of clients that left before they were overdue.
#[test]
fn clients_without_an_answer_are_counted() {
    let cases = [
        ("Cs Sr", 1),
        ("Cs ~99 Ca", 1),
        ("Cs Ssa Ca C+90 Sa Cf Sf Ca", 0),
        ("Cs Ssa Ca C+90 Sa Cr", 0),
        ("Cs Ssa Ca C+90 Sa ~20 Cf Sf Ca", 1),
        ("Cs Ssa Ca C+90 Sa Sf Cf Sa", 1),
        ("Cs Ssa Ca C+90 Sr", 1),
        ("Cs Ssa Ca C+90 S+9 Ca Cf Sf Ca", 0),
        ("Cs Ssa Ca C{\u{16}\u{3}\u{1}\0\u{5}\u{1}\0\0\u{1}\0} Sa Cf Sf Ca", 0),
        ("Cs Ssa Ca Cf Sf Ca", 0),
        ("Cs Ssa Ca Sf Cf Sa", 0),
    ];
    for (text, expected) in cases {
        let mut all = Tally::default();
        for (_, tally) in events(&script(text)).iter().filter_map(Tally::of) {
            all += tally;
        }
        assert_eq!(all.unanswered, expected, "{text}");
    }
}

/// Each transition between states, as in the diagram of [`crate::judge`].
#[test]
fn what_leads_to_what() {
    use ServerState::{Idle, Normal, Saturated, Stopped};

    let profile = Profile::lab();
    let tally = Tally::default();
    let good = Tally { opened: 20, answered: 20, s_normal: 20, ..tally };
    let some = Tally { s_normal: 78, client_abort: 22, ..good };
    let bad = Tally { s_normal: 12, client_abort: 8, ..good };
    let failing = Tally { s_normal: 16, failed: 4, ..good };
    let dead = Tally { opened: 9, unanswered: 9, ..tally };
    let left = Tally { opened: 20, client_abort: 20, ..tally };
    let cut = Tally { opened: 2, answered: 2, failed: 2, ..tally };
    let few = Tally { opened: 2, answered: 1, unanswered: 2, s_normal: 1, ..tally };
    // The counts of the span and of the last seconds, and the next state for each state in their order. `None`:
    // unchanged.
    let cases: [(Tally, Tally, [Option<ServerState>; 4]); 10] = [
        (tally, tally, [Some(Idle); 4]),
        (good, good, [Some(Normal); 4]),
        (bad, bad, [Some(Saturated); 4]),
        (failing, failing, [Some(Saturated); 4]),
        (dead, dead, [Some(Stopped); 4]),
        (left, left, [Some(Saturated); 4]),
        // Within the margin.
        (some, some, [Some(Normal), Some(Normal), Some(Saturated), Some(Normal)]),
        // No client sends requests any more.
        (good, tally, [Some(Idle), Some(Normal), Some(Normal), Some(Idle)]),
        // Too little for a decision, but the server answers.
        (few, few, [Some(Normal), None, None, Some(Stopped)]),
        (cut, cut, [None; 4]),
    ];
    for (long, short, expected) in cases {
        for (state, expected) in ServerState::ALL.into_iter().zip(expected) {
            let said = profile.judge(state, &long, &short).map(|(state, _)| state);
            assert_eq!(said, expected, "{state:?}: {long:?}, {short:?}");
        }
    }
}

/// Counts from a sensor may have any value.
#[test]
fn numbers_may_be_any() {
    let profile = Profile::lab();
    for max in [1, 2, u32::MAX - 1, u32::MAX] {
        let tally = Tally {
            opened: max,
            answered: max,
            unanswered: u32::MAX,
            s_normal: max,
            client_abort: max,
            timeout: max,
            failed: max,
            evicted: max,
            endings: [max; 9],
            ..Tally::default()
        };
        assert!(profile.judge(ServerState::Normal, &tally, &tally).is_some());
        assert!(tally.closed() >= max);
    }
}

/// A port scan leaves room for servers.
#[test]
fn what_never_answered_gives_way() {
    let address = |host: u32| SocketAddr::from((host.to_be_bytes(), 443));
    let at = |second: u64| Timestamp(second * 1_000_000_000);
    let mut states = States::new(Profile::lab(), 8);
    let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
    for second in 1_000..1_010 {
        for server in 1..4 {
            states.add(address(server), at(second), &good);
        }
        // One server exists that answers nothing.
        states.add(address(4), at(second), &Tally { opened: 9, unanswered: 9, ..Tally::default() });
        states.advance(at(second));
    }
    for port in 100..1_000 {
        states.add(address(port), at(1_010), &Tally { opened: 1, unanswered: 1, ..Tally::default() });
    }
    states.add(address(5), at(1_010), &good);
    let watched = |states: &States, server| states.server(&address(server)).map(Server::state);
    for server in 1..4 {
        assert_eq!(watched(&states, server), Some(ServerState::Normal));
    }
    assert_eq!(watched(&states, 4), Some(ServerState::Stopped));
    assert_eq!(watched(&states, 5), Some(ServerState::Idle));
    assert_eq!((states.servers().count(), states.unwatched()), (8, 900 - 4 + 1));
    // Live servers are not removed to make room.
    for server in 6..12 {
        states.add(address(server), at(1_010), &good);
    }
    assert_eq!((states.servers().count(), states.unwatched()), (8, 900 - 4 + 6 + 1));
    assert_eq!(watched(&states, 9), None);
}

#[test]
fn a_window_says_shares() {
    let mut window = Window::new(&[Duration::from_secs(10)]);
    window.add(Timestamp(0), &Tally { s_normal: 6, client_abort: 3, timeout: 1, failed: 5, ..Tally::default() });
    let Some(shares) = window.total(0).shares() else { panic!("there is something") };
    assert_eq!((shares.s_normal, shares.client_abort, shares.timeout), (0.6, 0.3, 0.1));
    assert_eq!(Tally::default().shares(), None);
}
