#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use watari_endings::Profile;
use watari_packets::Timestamp;

use super::*;
use crate::report::Report;

const FIRST_S: u64 = 1_000_000;

/// A board after a minute with `[x, y, z, unanswered]` of each server each second.
fn board(servers: &[(&str, [u8; 4], [u32; 4])]) -> Board {
    let mut board = Board::new(Profile::lab());
    for second in FIRST_S..FIRST_S + 60 {
        let at = Timestamp(second * 1_000_000_000);
        for (sensor, address, [s_normal, client_abort, timeout, unanswered]) in servers {
            let (s_normal, client_abort, timeout, unanswered) = (*s_normal, *client_abort, *timeout, *unanswered);
            let opened = s_normal + client_abort + timeout;
            let mut tally =
                Tally { opened, answered: s_normal, s_normal, client_abort, timeout, unanswered, ..Tally::default() };
            // Within 5 to 10 ms.
            (tally.responses.0[6], tally.response_max_us) = (s_normal, 10_000);
            tally.endings[Ending::SNormal as usize] = s_normal;
            tally.endings[Ending::CReset as usize] = client_abort;
            tally.endings[Ending::Timeout as usize] = timeout;
            let server = SocketAddr::from((*address, 80));
            let report = Report { at, tallies: vec![(server, second, tally)], health: Health::default() };
            assert!(board.take(sensor, 0, &report));
        }
        board.advance(at);
    }
    board
}

fn drawn(board: &Board, choice: &Choice, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let view = View::new("watari watch live -i lo", board, choice);
    terminal.draw(|frame| frame.render_widget(&view, frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_worst_server_is_first_and_says_why() {
    let good = ("a", [10, 0, 0, 1], [10, 1, 0, 0]);
    let bad = ("a\x1b[2J", [10, 0, 0, 2], [4, 5, 1, 0]);
    let down = ("a", [10, 0, 0, 3], [0, 0, 0, 7]);
    let board = board(&[good, bad, down]);
    let mut choice = Choice::default();
    let text = drawn(&board, &choice, 120, 30);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0], "watari watch live -i lo  0 dropped  13:47:39 UTC  3 servers  0 packets  q: quit, arrows: select",
        "{text}"
    );
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(2), "10.0.0.3:80 a STOPPED 00:00:59 0 0.0 - - - - - 7.0");
    assert_eq!(words(3), "10.0.0.2:80 a\u{fffd}[2J SATURATED 00:00:59 0 4.0 7.5 10.0 40.0 50.0 10.0 0.0");
    assert_eq!(words(4), "10.0.0.1:80 a normal 00:00:59 0 10.0 7.5 10.0 90.9 9.1 0.0 0.0");
    let beside = |text: &str| {
        let words = text.lines().skip(6).map(|line| line.chars().skip(60).collect::<String>());
        words
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let stopped =
        "10.0.0.3:80 (a) STOPPED since 1970-01-12 13:46:40 UTC, for 00:00:59: 100.0 % of attempts and requests got no";
    assert!(beside(&text).starts_with(stopped), "{text}");
    assert!(beside(&text).contains("no connection ended, so no X, Y and Z"), "{text}");
    choice.go(&board, true);
    choice.go(&board, true);
    choice.go(&board, true);
    let text = drawn(&board, &choice, 120, 30);
    assert!(
        beside(&text).contains("for 00:00:59: all shares were within their limits last 60 s: X 90.9 % delivered, "),
        "{text}"
    );
    assert!(text.contains("endings, last 60 s: S_NORMAL 600, C_RESET 60"), "{text}");
    choice.go(&board, false);
    assert!(beside(&drawn(&board, &choice, 120, 30)).contains("for 00:00:59: 60.0 % of ended connections"));
}

#[test]
fn the_cloud_is_where_its_shares_are() {
    let aborts = drawn(&board(&[("a", [10, 0, 0, 1], [0, 20, 0, 0])]), &Choice::default(), 100, 30);
    let timeouts = drawn(&board(&[("a", [10, 0, 0, 1], [0, 0, 20, 0])]), &Choice::default(), 100, 30);
    let place = |text: &str| {
        let found = text.lines().enumerate().find_map(|(y, line)| Some((line.chars().position(|c| c == '◆')?, y)));
        found.unwrap()
    };
    let ((abort_x, abort_y), (timeout_x, timeout_y)) = (place(&aborts), place(&timeouts));
    assert!(abort_x > timeout_x && abort_y > timeout_y, "{aborts}\n{timeouts}");
    for corner in ["Z timeouts", "X delivered", "Y client aborts"] {
        assert!(aborts.contains(corner), "{aborts}");
    }
}

#[test]
fn any_size_can_be_drawn() {
    let some = board(&[("a", [10, 0, 0, 1], [10, 1, 0, 0])]);
    for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 4), (10, 100)] {
        drawn(&some, &Choice::default(), width, height);
        drawn(&Board::new(Profile::site()), &Choice::default(), width, height);
    }
    assert!(drawn(&Board::new(Profile::site()), &Choice::default(), 80, 10).contains("No server has been seen yet."));
}

/// The titles of the shown columns, with their begin and end in cells.
fn heads(line: &str) -> Vec<(&'static str, usize, usize)> {
    const HEADS: [&str; 12] =
        ["server", "sensor", "state", "since", "open", "ans/s", "p50 ms", "p99 ms", "X %", "Y %", "Z %", "unans/s"];
    let mut rest = line.to_owned();
    let mut found = Vec::new();
    for head in HEADS {
        // `ans/s` is also a part of another title.
        if let Some(at) = rest.find(head).filter(|at| *at == 0 || line.as_bytes()[at - 1] == b' ') {
            found.push((head, at, at + head.len()));
            rest.replace_range(at..at + head.len(), &"_".repeat(head.len()));
        }
    }
    assert!(rest.replace(['_', ' '], "").is_empty(), "a part of a head in {line:?}");
    found
}

/// The cells of a row, with their begin and end.
fn cells(line: &str) -> Vec<(String, usize, usize)> {
    let line: Vec<char> = line.chars().collect();
    let mut found = Vec::new();
    for (at, word) in line.chunk_by(|a, b| (*a == ' ') == (*b == ' ')).scan(0, |at, word| {
        *at += word.len();
        Some((*at - word.len(), word))
    }) {
        if word[0] != ' ' {
            found.push((word.iter().collect(), at, at + word.len()));
        }
    }
    found
}

#[test]
fn at_any_width_what_is_shown_is_whole() {
    let several = [
        ("here", [203, 0, 113, 250], [123_456, 789, 1, 0]),
        ("a-sensor-of-some-length", [10, 0, 0, 2], [4, 5, 1, 33]),
        ("here", [10, 0, 0, 3], [0, 0, 0, 70_000]),
    ];
    let one = [("here", [10, 0, 0, 1], [10, 1, 0, 0]), ("here", [10, 0, 0, 2], [0, 0, 0, 7])];
    for servers in [&several[..], &one] {
        let board = board(servers);
        let list = |text: &str| -> Vec<String> {
            let first = text.lines().position(|line| line.starts_with("server")).unwrap();
            text.lines().skip(first).take(servers.len() + 1).map(str::to_owned).collect()
        };
        let all = list(&drawn(&board, &Choice::default(), 300, 60));
        let all_heads: Vec<_> = heads(&all[0]).into_iter().map(|(head, ..)| head).collect();
        assert_eq!(all_heads.len(), 12);
        // Numbers beside the diagram, and below the list.
        let numbers = |text: &str| -> std::collections::BTreeSet<String> {
            let words = text.split_whitespace().filter(|word| word.contains(|c: char| c.is_ascii_digit()));
            words.map(str::to_owned).collect()
        };
        let known: std::collections::BTreeSet<_> = [(300, 60), (99, 60), (59, 60)]
            .iter()
            .flat_map(|(w, h)| numbers(&drawn(&board, &Choice::default(), *w, *h)))
            .collect();
        let mut shown = 0;
        for width in 20..=200 {
            for height in [12, 24, 50] {
                let text = drawn(&board, &Choice::default(), width, height);
                let lines = list(&text);
                let columns = heads(&lines[0]);
                assert_eq!(columns[0].0, "server");
                for (line, all) in lines[1..].iter().zip(&all[1..]).filter(|(line, _)| !line.is_empty()) {
                    let (cells, all) = (cells(line), self::cells(all));
                    assert_eq!(cells.len(), columns.len(), "{width}: {text}");
                    for ((cell, from, to), (head, head_from, head_to)) in cells.iter().zip(&columns) {
                        let at = all_heads.iter().position(|it| it == head).unwrap();
                        assert_eq!(*cell, all[at].0, "{width}: {text}");
                        let is_text = ["server", "sensor", "state"].contains(head);
                        assert!(if is_text { from == head_from } else { to == head_to }, "{width}: {text}");
                    }
                }
                shown = shown.max(columns.len());
                let unknown: Vec<_> = numbers(&text).difference(&known).cloned().collect();
                assert!(unknown.is_empty(), "{width}x{height}: {unknown:?}\n{text}");
            }
        }
        assert_eq!(shown, 12);
    }
}

#[test]
fn narrow_lists_keep_what_says_most() {
    let board = board(&[("here", [192, 0, 2, 1], [10, 1, 0, 0])]);
    let columns = |width| {
        let text = drawn(&board, &Choice::default(), width, 24);
        let line = text.lines().find(|line| line.starts_with("server")).unwrap().to_owned();
        heads(&line).into_iter().map(|(head, ..)| head).collect::<Vec<_>>().join(",")
    };
    assert_eq!(columns(60), "server,state,open,ans/s,X %,Y %,Z %");
    assert_eq!(columns(80), "server,state,since,open,ans/s,p99 ms,X %,Y %,Z %,unans/s");
    assert_eq!(columns(120), "server,sensor,state,since,open,ans/s,p50 ms,p99 ms,X %,Y %,Z %,unans/s");
}
