#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use watari_endings::Profile;

use super::*;
use crate::report::Report;

const FIRST_S: u64 = 1_000_000;

/// For a minute, `[x, y, z, unanswered]` of each server each second.
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
    assert!(lines[0].starts_with("watari watch live -i lo  3 servers, 0 packets, 0 dropped"), "{text}");
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(2), "10.0.0.3:80 a STOPPED 00:00:59 0 0.0 - - - - - 70");
    assert_eq!(words(3), "10.0.0.2:80 a\u{fffd}[2J SATURATED 00:00:59 0 4.0 7.5 10.0 40.0 50.0 10.0 0");
    assert_eq!(words(4), "10.0.0.1:80 a normal 00:00:59 0 10.0 7.5 10.0 90.9 9.1 0.0 0");
    assert!(text.contains("10.0.0.3:80 (a) is STOPPED: 100.0 % of what asked"), "{text}");
    choice.go(&board, true);
    choice.go(&board, true);
    choice.go(&board, true);
    let text = drawn(&board, &choice, 120, 30);
    assert!(text.contains("10.0.0.1:80 (a) is normal: all shares"), "{text}");
    assert!(text.contains("S_NORMAL 600  C_RESET 60"), "{text}");
    choice.go(&board, false);
    assert!(drawn(&board, &choice, 120, 30).contains("is SATURATED: 60.0 %"));
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
    for corner in ["TIMEOUT", "S_NORMAL", "ABORT"] {
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
