//! What servers are in, minute by minute.

use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::{Flags, Segment, Timestamp};

use super::script::{events, script};
use crate::{Change, Connections, Counting, Learner, Profile, Reason, ServerState, Settings, States, Tally, Window};

/// What clients meet for a while: of ten connections each second, how many end how.
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

    /// Steps of a connection; those of the server are `sa`, `+n` and what begins with `!`.
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
    // Between the limit and the margin below it, it stays.
    play.run(Mix { aborted: 9, delivered: 31, ..GOOD });
    assert_eq!(play.states().len(), 2, "{:?}", play.changes.last());
    play.run(GOOD);
    assert_eq!(play.states()[2..], [(ServerState::Normal, Reason::WithinLimits)]);
    // Nobody comes.
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
fn what_answers_nobody_is_stopped() {
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
        // Up again; and without clients it is idle.
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
        // What it takes has to last for two seconds.
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
    // 0.32 + 3 x 0.0163, which is less than 5 points; of timeouts there were none.
    assert!(profile.aborts.is_some_and(|limit| (limit - 0.37).abs() < 1e-9), "{profile:?}");
    assert!(profile.timeouts.is_some_and(|limit| (limit - 0.05).abs() < 1e-9), "{profile:?}");
    learner.add(&block(62), 10);
    let aborts = learner.profile(Profile::lab()).and_then(|profile| profile.aborts);
    // 0.395 + 3 x 0.1307
    assert!(aborts.is_some_and(|limit| (limit - 0.787).abs() < 1e-3), "{aborts:?}");
}

/// X is what the server closed, or what a client closed by a FIN that had got it; Y what a client cut off; Z is out of time.
#[test]
fn what_counts_as_what() {
    const GET: &str = "C{GET / HTTP/1.1\\r\\n\\r\\n}";
    const OK: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello}";
    const PART: &str = "S{HTTP/1.1 200 OK\\r\\nContent-Length: 900\\r\\n\\r\\nhello}";
    // What follows the handshake; what it counts as in the paper, and by what was delivered.
    let cases = [
        ("GET OK Ca Sf Cf Sa", "X", "X"),
        ("GET OK Ca Cf Sf Ca", "X", "X"),
        ("GET OK Ca ~3 Cf Sf Ca", "X", "X"),
        ("GET OK Ca GET OK Ca Cf Sf Ca", "X", "X"),
        ("GET OK Ca ~3 Cr", "Y", "X"),
        ("GET OK Ca GET Cf Sf Ca", "Y", "Y"),
        ("GET PART Ca Cf Sf Ca", "Y", "Y"),
        ("GET PART Ca ~3 Cf Sf Ca", "Y", "Y"),
        ("GET PART Ca Sf Cf Sa", "X", "-"),
        ("GET Cf Sf Ca", "Y", "Y"),
        ("GET OK Sr", "-", "-"),
        ("GET OK Ca ~900 GET ~900 Ca", "Z", "Z"),
        ("Cf Sf Ca", "Y", "-"),
        // Nobody sees the end of an answer.
        ("C+90 S+900 Ca Sf Cf Sa", "X", "X"),
        ("C+90 S+900 Ca Cf Sf Ca", "X", "X"),
        ("C+90 S+900 Ca ~3 Cf Sf Ca", "X", "X"),
        ("C+90 S+900 Ca ~3 Cr", "Y", "Y"),
        ("C+90 S+900 S+900 Cf^901 S+900 CR", "Y", "Y"),
        ("C+90 S+900 Caw ~3 Cfw Sf Ca", "Y", "Y"),
        ("C+90 S+900 Caw ~3 Ca S+900 Ca Cf Sf Ca", "X", "X"),
        ("C+90 S+900 Caw ~3 Crw", "Y", "Y"),
        ("C+90 Cf Sa S+900 Ca Sf Ca", "X", "X"),
    ];
    for (text, paper, delivered) in cases {
        let script = script(&format!("Cs Ssa Ca {}", text.replace("GET", GET).replace("OK", OK).replace("PART", PART)));
        for (counting, expected) in [(Counting::Paper, paper), (Counting::Delivered, delivered)] {
            let mut all = Tally::default();
            for event in &events(&script) {
                all += Tally::of(event, counting).1;
            }
            let said = match (all.s_normal, all.client_abort, all.timeout) {
                (1, 0, 0) => "X",
                (0, 1, 0) => "Y",
                (0, 0, 1) => "Z",
                (0, 0, 0) => "-",
                other => panic!("{text}: {other:?}"),
            };
            assert_eq!(said, expected, "{counting:?}: {text}");
        }
    }
}

#[test]
fn a_window_says_shares() {
    let mut window = Window::new(&[Duration::from_secs(10)]);
    window.add(Timestamp(0), &Tally { s_normal: 6, client_abort: 3, timeout: 1, failed: 5, ..Tally::default() });
    let Some(shares) = window.total(0).shares() else { panic!("there is something") };
    assert_eq!((shares.s_normal, shares.client_abort, shares.timeout), (0.6, 0.3, 0.1));
    assert_eq!(Tally::default().shares(), None);
}
