//! The page of `watari watch` in a real Chromium, with reports from the tests.

#![allow(clippy::unwrap_used)]

mod browser;
mod feed;
mod look;

use std::time::Instant;

use browser::{Browser, LONG};
use feed::{Feed, Second};
use watari_watch::board::Link;

const NORMAL: Second = Second::Ended(7, 2, 0);
const FRONT: &str = "192.0.2.10:443";
const BACK: &str = "[2001:db8::7]:80";

/// A browser at a page with two servers, each seen by a sensor, for some seconds.
fn looking() -> Option<(Browser, Feed)> {
    let browser = Browser::launch()?;
    let mut feed = Feed::new();
    feed.pass_many(20, &[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    Some(show(browser, feed))
}

fn show(mut browser: Browser, feed: Feed) -> (Browser, Feed) {
    browser.open(&feed.url());
    browser.wait("document.querySelector('.clock')");
    (browser, feed)
}

/// The row of a server.
fn row(server: &str) -> String {
    format!("tr[data-key^='{server} ']")
}

fn panel(server: &str) -> String {
    format!(".panel[data-key^='{server} ']")
}

#[test]
fn states_change_as_they_change() {
    let Some((mut browser, mut feed)) = looking() else { return };
    assert_eq!(browser.count("tbody tr"), 2);
    browser.wait_text(&row(FRONT), "normal");
    browser.wait_text(&row(BACK), "inside");
    browser.wait_text(&row(FRONT), "77.8 %");
    browser.wait_text(&row(FRONT), "198 ms");
    browser.wait_text(&row(FRONT), "75.0 %");
    browser.wait_text(".panel .because", "all shares were within their limits");
    let before = browser.text(".clock");
    feed.pass_many(15, &[("outside", FRONT, Second::Refused(9)), ("inside", BACK, NORMAL)]);
    browser.wait_text(&row(FRONT), "stopped");
    browser.wait_text(&row(BACK), "normal");
    assert_ne!(browser.text(".clock"), before);
    // The worst is first now.
    assert!(browser.text("tbody tr").contains(FRONT));
    browser.eval(&format!("document.querySelector(\"{}\").click()", row(FRONT)));
    browser.wait_text(".panel .because", "got no answer");
    browser.wait_text(".strip", "normal");
    browser.wait_text(".strip", "stopped");
    feed.pass_many(70, &[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    browser.wait_text(".panel .because", "all shares were within their limits");
    browser.is_content();
}

#[test]
fn the_cloud_has_a_point_for_each_second_in_which_connections_ended() {
    let Some(browser) = Browser::launch() else { return };
    let mut feed = Feed::new();
    for _ in 0..10 {
        feed.pass(&[("s", FRONT, Second::Ended(6, 3, 1))]);
        feed.pass(&[("s", FRONT, Second::Quiet)]);
    }
    let (mut browser, mut feed) = show(browser, feed);
    browser.wait("document.querySelectorAll('.dots circle').length === 10");
    feed.pass(&[("s", FRONT, Second::Ended(0, 0, 4))]);
    browser.wait("document.querySelectorAll('.dots circle').length === 11");
    // The points of timeouts are at the top, in the middle.
    let newest = browser.eval("(([x]) => [x.cx.baseVal.value, x.cy.baseVal.value, x.getAttribute('class')])([...document.querySelectorAll('.dots circle')].slice(-1))");
    assert_eq!(newest, serde_json::json!([0, -200, "age0"]));
    // Points beyond the span are gone, and old ones are pale.
    let opacity = |age: u32| format!("Number(getComputedStyle(document.querySelector('.dots .age{age}')).fillOpacity)");
    feed.pass_many(30, &[("s", FRONT, Second::Ended(6, 3, 1))]);
    browser.wait("document.querySelectorAll('.dots circle').length === 41");
    let paler = format!("{} < {} / 2", opacity(6), opacity(0));
    browser.wait(&paler);
    feed.pass_many(feed::SPAN_S, &[("s", FRONT, Second::Ended(1, 0, 0))]);
    browser.wait("document.querySelectorAll('.dots circle').length <= 61");
    // The limits of the profile are drawn, and the corners have names.
    assert_eq!(browser.count(".cloud path.limit"), 2);
    for name in ["X delivered", "Y client aborts", "Z timeouts", "Y > 40 %", "Z > 10 %"] {
        assert!(browser.eval("document.querySelector('.cloud svg').textContent").as_str().unwrap().contains(name));
    }
    browser.wait_text(".cloud figcaption", "delivered");
    for width in [1280, 360] {
        browser.resize(width, 800);
        browser.wait(&format!("({})().length === 0", look::COVERED));
    }
    browser.is_content();
}

#[test]
fn charts_draw_what_they_say() {
    let Some((mut browser, mut feed)) = looking() else { return };
    browser.prefer("light");
    feed.pass_many(12, &[("outside", FRONT, Second::Ended(6, 2, 1)), ("inside", BACK, Second::Ended(6, 2, 1))]);
    browser.wait("document.querySelectorAll('.chart canvas').length === 4");
    for part in ["S_NORMAL 6/s", "C_RESET 2/s", "TIMEOUT 1/s"] {
        browser.wait_text(".chart .legend", part);
    }
    for part in ["p50 19 ms", "p99 198 ms"] {
        browser.wait(&format!("document.querySelectorAll('.chart .legend')[2].innerText.includes('{part}')"));
    }
    // The legends of a panel have the same values as its facts.
    let facts =
        "Object.fromEntries([...document.querySelectorAll('.facts div')].map((it) => it.innerText.split('\\n')))";
    let facts = browser.eval(facts);
    assert_eq!([&facts["p50"], &facts["p99"], &facts["Requests"], &facts["New"]], ["19 ms", "198 ms", "9/s", "9/s"]);
    for part in ["opened 9/s", "answered 9/s"] {
        browser.wait(&format!("document.querySelectorAll('.chart .legend')[1].innerText.includes('{part}')"));
    }
    // Stacked areas are drawn in the colors of the legend.
    for ending in ["S_NORMAL", "C_RESET"] {
        browser.wait(&format!("({})('{ending}') > 20", look::PIXELS));
    }
    browser.is_content();
}

#[test]
fn the_keyboard_is_enough() {
    let Some((mut browser, _feed)) = looking() else { return };
    browser.press("/");
    browser.wait("document.activeElement.type === 'search'");
    browser.press("n");
    browser.press("7");
    browser.wait_text(".list", "No server matches");
    browser.press("Escape");
    browser.wait("document.querySelectorAll('tbody tr').length === 2");
    // On through the headings to the list, of which one row can be reached.
    browser.eval("document.querySelector('thead th:last-child button').focus()");
    browser.press("Tab");
    browser.wait("document.activeElement.matches('tbody tr')");
    assert_eq!(browser.count("tbody tr[tabindex='0']"), 1);
    assert_ne!(browser.eval("getComputedStyle(document.activeElement).outlineStyle"), "none");
    browser.press("Home");
    browser.press("Enter");
    let first = browser.eval("document.activeElement.dataset.key");
    browser.wait("document.querySelectorAll('.panel').length === 1");
    browser.wait(&format!("document.querySelector('.panel').dataset.key === {first}"));
    browser.press("ArrowDown");
    assert_ne!(browser.eval("document.activeElement.dataset.key"), first);
    browser.press(" ");
    browser.wait("document.querySelectorAll('.panel').length === 2");
    assert_eq!(browser.count("tr[aria-selected='true']"), 2);
    // The selection is in the URL.
    browser.wait("location.hash.split('&').length === 2");
    browser.press("Escape");
    browser.wait("document.querySelectorAll('.panel').length === 0");
    browser.wait_text("main", "Select a server");
    browser.wait("location.hash === ''");
    browser.press("ArrowUp");
    assert_eq!(browser.eval("document.activeElement.dataset.key"), first);
    browser.is_content();
}

#[test]
fn who_reads_by_keyboard_keeps_the_place_when_the_order_changes() {
    let Some((mut browser, mut feed)) = looking() else { return };
    browser.wait("document.querySelectorAll('tbody tr').length === 2");
    browser.eval("document.querySelector('tbody tr:last-child').focus()");
    let last = browser.eval("document.activeElement.dataset.key").as_str().unwrap().to_owned();
    let (server, sensor) = last.split_once(' ').unwrap();
    feed.pass_many(15, &[(sensor, server, Second::Refused(9))]);
    browser.wait(&format!("document.querySelector('tbody tr:first-child').dataset.key === '{last}'"));
    browser.wait(&format!("document.activeElement.dataset.key === '{last}'"));
    browser.is_content();
}

#[test]
fn two_servers_stand_beside_each_other_and_on_a_phone_below_each_other() {
    let Some((mut browser, mut feed)) = looking() else { return };
    for server in [FRONT, BACK] {
        browser.eval(&format!("document.querySelector(\"{} input:not(:checked)\")?.click()", row(server)));
    }
    browser.wait("document.querySelectorAll('.panel').length === 2");
    browser.wait("[...document.querySelectorAll('.panel')].every((panel) => panel.querySelectorAll('circle[data-t]').length === 20)");
    for part in [".panel", ".cloud", ".timeline", ".chart:last-child"] {
        browser.wait(&format!("({})('{part}')", look::ARE_IN_LINE));
    }
    feed.pass(&[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    browser.resize(360, 800);
    browser.wait(look::HAS_NO_OVERFLOW);
    let boxes =
        format!("document.querySelector(\"{} input\"), document.querySelector(\"{} .server\")", row(BACK), row(BACK));
    browser.wait(&format!("(([a, b]) => a.right <= b.left)([{boxes}].map((it) => it.getBoundingClientRect()))"));
    browser.wait("(([a, b]) => a.right <= 360 && b.right <= 360 && a.bottom <= b.top)([...document.querySelectorAll('.panel')].map((it) => it.getBoundingClientRect()))");
    browser.wait(&format!("({})().length === 0", look::CUT_OFF));
    browser
        .wait("[...document.querySelectorAll('.plot canvas')].every((it) => it.getBoundingClientRect().right <= 360)");
    browser.eval(&format!("document.querySelector(\"{} .close\").click()", panel(FRONT)));
    browser.wait("document.querySelectorAll('.panel').length === 1");
    browser.is_content();
}

#[test]
fn a_link_shows_the_two_sides_of_a_cache_beside_each_other() {
    let Some(browser) = Browser::launch() else { return };
    let (mut browser, mut feed) = (browser, Feed::new());
    let other = "198.51.100.23:8443";
    feed.pass_many(20, &[("outside", FRONT, NORMAL), ("behind the cache", BACK, NORMAL), ("outside", other, NORMAL)]);
    let part = |server, sensor: &str| format!("{server} {sensor}").replace(' ', "%20");
    let link = format!("{}#{}&{}", feed.url(), part(BACK, "behind the cache"), part(FRONT, "outside"));
    browser.open(&link);
    let shown = "JSON.stringify([...document.querySelectorAll('.panel')].map((it) => it.dataset.key))";
    browser.wait(&format!("{shown} === '[\"{BACK} behind the cache\",\"{FRONT} outside\"]'"));
    // Each has its past and its verdict, and its diagram at the height of the other's.
    browser.wait(
        "[...document.querySelectorAll('.panel')].every((it) => it.querySelectorAll('.dots circle').length === 20)",
    );
    for part in [".because", ".cloud", ".timeline", ".chart:last-child"] {
        browser.wait(&format!("({})('{part}')", look::ARE_IN_LINE));
    }
    // Both continue.
    feed.pass(&[("outside", FRONT, NORMAL), ("behind the cache", BACK, NORMAL)]);
    browser.wait(
        "[...document.querySelectorAll('.panel')].every((it) => it.querySelectorAll('.dots circle').length === 21)",
    );
    // Another URL, while the page is open.
    browser.open(&format!("{}#{}&{}", feed.url(), part(FRONT, "outside"), part(other, "outside")));
    browser.wait(&format!("{shown} === '[\"{FRONT} outside\",\"{other} outside\"]'"));
    browser
        .wait("[...document.querySelectorAll('.panel')].every((it) => it.querySelectorAll('.dots circle').length > 0)");
    browser.is_content();
}

#[test]
fn a_sensor_that_is_away_is_seen_to_be_away() {
    let Some((mut browser, mut feed)) = looking() else { return };
    let there = Link { is_connected: true, clock_offset_ns: Some(2_345_000_000), lost: 0, refused: 0 };
    feed.link("outside", there);
    feed.pass(&[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    browser.wait(&format!("document.querySelector(\"{}\")", row(FRONT)));
    browser.eval(&format!("document.querySelector(\"{} input:not(:checked)\")?.click()", row(FRONT)));
    browser.eval("document.querySelector('.sensors').open = true");
    browser.wait_text(".sensors", "its clock is 2.3 s ahead");
    assert_eq!(browser.count(".away, .silent, .then"), 0);
    let reported = browser.text(".clock");

    feed.link("outside", Link { is_connected: false, lost: 7, refused: 2, ..there });
    feed.pass_many(5, &[("inside", BACK, NORMAL)]);
    let then = format!("last report at {reported}");
    browser.wait_text(".away", "A sensor is disconnected");
    browser.wait_text(".away", &format!("outside, {then}"));
    // At once, and not only after a timeout: its server was normal then.
    browser.wait_text(&row(FRONT), &format!("normal at {reported}"));
    browser.wait_text(&row(FRONT), &format!("disconnected, {then}"));
    browser.wait_text(&panel(FRONT), &format!("State at {reported}: its sensor is disconnected"));
    browser.wait(&format!("document.querySelector(\"{}\").matches('.old')", panel(FRONT)));
    browser.wait_text(".sensors", &format!("outside disconnected, {then}"));
    browser.wait_text(".sensors", "7 server seconds lost while disconnected");
    browser.wait_text(".sensors", "2 server seconds refused");
    // The state since then is left open.
    let end = format!(
        "(([part, strip]) => strip.right - part.right)([\"{0} .strip li:last-child\", \"{0} .strip\"].map((it) => document.querySelector(it).getBoundingClientRect()))",
        panel(FRONT)
    );
    browser.wait(&format!("{end} > 10"));
    // Nor does the page show a rate of 0.
    browser.wait_text(&format!("{} .legend", panel(FRONT)), "S_NORMAL 7/s");
    // The other one is unchanged.
    assert_eq!(browser.count(&format!("{0} .silent, {0} .then", row(BACK))), 0);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.wait(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        let faded = browser.eval(&format!("({})(4.5)", look::PALE));
        assert_eq!(faded, serde_json::json!([]), "{scheme}");
    }
    browser.resize(360, 800);
    browser.wait(look::HAS_NO_OVERFLOW);
    browser.wait(&format!("({})().length === 0", look::CUT_OFF));

    feed.link("outside", Link { lost: 7, refused: 2, ..there });
    feed.pass(&[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    browser.wait("document.querySelectorAll('.away, .silent, .then').length === 0");
    browser.is_content();
}

#[test]
fn a_sensor_that_has_said_nothing_yet_is_connected() {
    let Some(browser) = Browser::launch() else { return };
    let mut feed = Feed::new();
    feed.link("new", Link { is_connected: true, ..Link::default() });
    feed.pass(&[]);
    let (mut browser, mut feed) = show(browser, feed);
    browser.wait_text("main", "No server is watched yet");
    browser.eval("document.querySelector('.sensors').open = true");
    browser.wait_text(".sensors", "new no report yet");
    feed.link("new", Link::default());
    feed.pass(&[]);
    browser.wait_text("main", "No sensor is connected");
    browser.wait_text(".away", "new, no report yet");
    browser.is_content();
}

#[test]
fn dark_and_light_can_be_read() {
    let Some((mut browser, mut feed)) = looking() else { return };
    feed.pass_many(15, &[("outside", FRONT, Second::Refused(9)), ("inside", BACK, Second::Ended(3, 3, 3))]);
    browser.wait_text("tbody", "stopped");
    browser.wait_text("tbody", "saturated");
    for server in [FRONT, BACK] {
        browser.eval(&format!("document.querySelector(\"{} input:not(:checked)\")?.click()", row(server)));
    }
    browser.wait("document.querySelectorAll('.panel .strip li').length >= 4");
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.wait(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        let pale = browser.eval(&format!("({})(4.5)", look::PALE));
        assert_eq!(pale, serde_json::json!([]), "{scheme}");
        assert!(browser.eval(&format!("({})(0).length", look::PALE)) == 0);
        assert!(browser.eval(&format!("({})(22).length", look::PALE)).as_u64().unwrap() > 30, "nothing was measured");
        grounds.push(
            browser.eval("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"),
        );
    }
    browser.resize(360, 800);
    browser.wait(look::HAS_NO_OVERFLOW);
    assert_ne!(grounds[0][0], grounds[1][0]);
    assert_ne!(grounds[0][1], grounds[1][1]);
    browser.is_content();
}

#[test]
fn a_page_whose_server_is_away_says_so_and_recovers() {
    let Some((mut browser, mut feed)) = looking() else { return };
    browser.wait("document.querySelectorAll('.dots circle').length === 20");
    let clock = browser.text(".clock");
    feed.leave();
    browser.wait_text(".link", "no data since");
    browser.wait_text(".link", &clock);
    assert_eq!(browser.count(".panel.old"), 1);
    feed.pass_many(10, &[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    feed.arrive();
    // The seconds while the server was away are there, too.
    browser.wait("document.querySelectorAll('.dots circle').length === 30");
    // A repeated board is not news.
    browser.wait_text(".link", "no data since");
    let begun = Instant::now();
    // The page is live only as long as there is news.
    while browser.count(".link.live") == 0 {
        assert!(begun.elapsed() < LONG, "it does not come back");
        feed.pass(&[("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)]);
    }
    let other = browser.complaints(|complaint| complaint.contains("\"network\"") && complaint.contains("net::ERR_"));
    assert_eq!(other, Vec::<String>::new());
}

#[test]
fn what_sensors_are_called_is_text() {
    let Some(browser) = Browser::launch() else { return };
    let mut feed = Feed::new();
    let hostile = "<img src=x onerror=alert(1)>\" ' & \u{202e} <script>document.title = 'mine'</script>";
    let long = "long".repeat(100);
    feed.pass_many(12, &[(hostile, FRONT, NORMAL), (&long, BACK, NORMAL)]);
    let (mut browser, _feed) = show(browser, feed);
    browser.wait_text("tbody", "<img src=x onerror=alert(1)>");
    browser.wait_text(".panel, .panel + .panel", "normal");
    assert_eq!(browser.count("img"), 0);
    browser.eval("document.querySelectorAll('tbody input:not(:checked)').forEach((it) => it.click())");
    browser.wait("document.querySelectorAll('.panel').length === 2");
    browser.wait("[...document.querySelectorAll('.panel')].every((panel) => panel.querySelectorAll('circle[data-t]').length === 12)");
    assert_eq!(browser.eval("document.title"), "watari watch");
    browser.wait("location.hash.split('&').length === 2");
    // After a reload, the page shows the same.
    let hash = browser.eval("location.hash");
    browser.reload();
    browser.wait("document.querySelectorAll('.panel').length === 2");
    assert_eq!(browser.eval("location.hash"), hash);
    for width in [1280, 360] {
        browser.resize(width, 800);
        browser.wait(look::HAS_NO_OVERFLOW);
    }
    browser.is_content();
}

#[test]
fn silence_has_words() {
    let Some(browser) = Browser::launch() else { return };
    let (mut browser, mut feed) = show(browser, Feed::new());
    browser.wait_text("main", "No sensor has sent a report yet");
    feed.pass(&[("s", FRONT, Second::Refused(2))]);
    browser.wait_text(&row(FRONT), "idle");
    browser.wait_text(".panel", "too little has happened to decide");
    feed.pass_many(15, &[("s", FRONT, NORMAL)]);
    browser.wait_text(&row(FRONT), "normal");
    // No clients connect any more. Its sensor reports other servers.
    feed.pass_many(feed::SPAN_S + 5, &[("s", BACK, NORMAL)]);
    browser.wait("document.querySelectorAll('tbody tr').length === 1");
    browser.wait_text(&panel(FRONT), "it is not watched now");
    // Silence of a sensor is not silence of its servers.
    feed.pass_many(12, &[("other", FRONT, NORMAL)]);
    browser.wait_text(&row(BACK), "silent, last report at");
    // The page may have requested it just when the server was dropped.
    let is_expected = |complaint: &str| complaint.contains("/api/course?") && complaint.contains("404");
    assert_eq!(browser.complaints(is_expected), Vec::<String>::new());
}

/// A browser opens six connections to a server, and a stream takes one of them.
#[test]
fn many_tabs_share_one_stream() {
    let Some((mut browser, mut feed)) = looking() else { return };
    let second = [("outside", FRONT, NORMAL), ("inside", BACK, NORMAL)];
    let mut tabs = Vec::new();
    for _ in 1..8 {
        tabs.push(browser.open_tab());
        browser.open(&feed.url());
        browser.wait("document.querySelector('.clock')");
        // Requests besides the stream are answered, too.
        browser.wait("document.querySelectorAll('.dots circle').length >= 20");
    }
    let first = tabs[0].clone();
    let mut see_all = |browser: &mut Browser, tabs: &mut Vec<String>| {
        feed.pass(&second);
        let news = browser.eval("fetch('/api/board').then((it) => it.json()).then((it) => it.now * 1000)");
        for tab in tabs.iter_mut() {
            browser.wait(&format!("Date.parse(document.querySelector('.clock')?.dateTime) === {news}"));
            browser.wait("document.querySelector('.link.live')");
            *tab = browser.turn_to(std::mem::take(tab));
        }
        browser.wait(&format!("Date.parse(document.querySelector('.clock')?.dateTime) === {news}"));
    };
    for _ in 0..3 {
        see_all(&mut browser, &mut tabs);
    }
    // The first tab, the leader, closes. Another one becomes the leader.
    if let Some(at) = tabs.iter().position(|tab| *tab == first) {
        let current = browser.turn_to(tabs.remove(at));
        browser.close_tab();
        browser.turn_to(current);
    } else {
        browser.close_tab();
        browser.turn_to(tabs.remove(0));
    }
    for _ in 0..3 {
        see_all(&mut browser, &mut tabs);
    }
    browser.is_content();
}

/// `cargo test --package watari-watch --features page --test page -- --ignored` writes pictures, and prints where.
#[test]
#[ignore = "looks at nothing itself: it is for people"]
fn pictures() {
    let Some(browser) = Browser::launch() else { return };
    let mut feed = Feed::over(300);
    for second in 0..300_u32 {
        let (mut dice, mut other) = (dice(second), dice(second ^ 0xfff));
        let mut story = |load, begins: u32| match second.wrapping_sub(begins) {
            0..60 => Second::Ended(dice(load / 2), dice(load / 2), dice(load / 5)),
            90..130 => Second::Refused(dice(load / 2)),
            _ => Second::Ended(dice(load), dice(load / 3), dice(load / 30)),
        };
        let front = story(40, 90);
        let back = Second::Ended(other(12), other(4), other(1));
        let third = if second < 299 { Second::Ended(other(3), other(1), 0) } else { Second::Quiet };
        feed.pass(&[("outside", FRONT, front), ("inside", BACK, back), ("inside", "198.51.100.23:8443", third)]);
    }
    let (mut browser, mut feed) = show(browser, feed);
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let pictures = [("one", 1280, 1), ("two", 1440, 2), ("phone", 360, 1), ("away", 1440, 2), ("away-phone", 360, 1)];
    for (name, width, servers) in pictures {
        if name == "away" {
            feed.link("outside", Link { clock_offset_ns: Some(-45_000_000), lost: 12, ..Link::default() });
            feed.pass_many(40, &[("inside", BACK, Second::Ended(12, 4, 1))]);
            browser.eval("document.querySelector('.sensors').open = true");
            browser.wait("document.querySelector('.away')");
        }
        browser.resize(width, 900);
        let shown = if servers == 1 { &[FRONT][..] } else { &[FRONT, BACK] };
        browser.eval("document.querySelectorAll('tbody input:checked').forEach((it) => it.click())");
        browser.wait("document.querySelectorAll('.panel').length === 0");
        for server in shown {
            browser.eval(&format!("document.querySelector(\"{} input\").click()", row(server)));
        }
        browser.wait(&format!("document.querySelectorAll('.panel').length === {servers}"));
        browser.wait("[...document.querySelectorAll('.panel')].every((it) => it.querySelectorAll('circle[data-t]').length > 100)");
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            let path = directory.join(format!("page-{name}-{scheme}.png"));
            std::fs::write(&path, browser.picture()).unwrap();
            println!("{}", path.display());
        }
    }
}

/// Pseudorandom numbers around a mean, the same each time.
fn dice(seed: u32) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    move |mean| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (mean * (50 + (state >> 16) % 101)).div_ceil(100).saturating_sub(u32::from(mean < 3 && state & 0x8000 == 0))
    }
}
