//! `watari ctl` with a test in the role of the node.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Ended, watari};

/// Runs `watari ctl` with `arguments`, and sends `answer` to its question. Returns the question, too.
pub(crate) fn ctl(arguments: &[&str], answer: &Value) -> (Value, Ended) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    thread::scope(|scope| {
        let node = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            writeln!(stream, "{answer}").unwrap();
            serde_json::from_str(&question).unwrap()
        });
        let ended = watari(dir.path(), &[&["ctl", "--admin", "s"], arguments].concat());
        (node.join().unwrap(), ended)
    })
}

fn connections() -> Value {
    json!([
        {
            "id": "00000000000000ff-1", "client": "192.0.2.1:1000", "version": "TLS 1.3",
            "suite": "TLS_AES_128_GCM_SHA256", "alpn": "h2", "handshake_node": "a1", "node": "a2", "moves": 1,
            "resumed": false, "stays": "http2"
        },
        {
            "id": "00000000000000ff-20", "client": "[2001:db8::1]:2", "version": null, "suite": null, "alpn": null,
            "handshake_node": "a1", "node": "a1", "moves": 0, "resumed": null,
            "stays": null
        },
    ])
}

#[test]
fn connections_are_a_table() {
    let (question, ended) = ctl(&["connections"], &json!({ "connections": connections() }));
    assert_eq!(question, json!({"version": 1, "topic": "connections"}));
    let expected = "\
id                   client           version  suite                   alpn  handshake_node  node  moves  resumed  stays
00000000000000ff-1   192.0.2.1:1000   TLS 1.3  TLS_AES_128_GCM_SHA256  h2    a1              a2        1  no       http2
00000000000000ff-20  [2001:db8::1]:2  -        -                       -     a1              a1        0  -        -
";
    assert_eq!(ended.done(), expected);
}

#[test]
fn json_is_what_the_node_said() {
    let (_, ended) = ctl(&["--json", "connections"], &json!({ "connections": connections() }));
    let shown: Value = serde_json::from_str(&ended.done()).unwrap();
    assert_eq!(shown, connections());
}

fn origins() -> Value {
    json!([
        {
            "name": "app",
            "origins": [{
                "url": "http://192.0.2.1:80", "available": true, "draining": false, "requests": 3, "response_us": 812,
                "bytes_per_s": 5000
            }],
            "queue": [
                {"pattern": null, "in_progress": 12, "waiting": 7},
                {"pattern": "/cgi-bin/*", "in_progress": 2, "waiting": 7},
            ],
            "resources": [], "transfers": []
        },
    ])
}

#[test]
fn waiting_requests_of_origins_are_shown() {
    let (question, ended) = ctl(&["origins"], &json!({ "origins": origins() }));
    assert_eq!(question, json!({"version": 1, "topic": "origins"}));
    let expected = "
pool  pattern     in_progress  waiting
app   all                  12        7
app   /cgi-bin/*            2        7

";
    let shown = ended.done();
    assert!(shown.contains(expected), "{shown}");
    let (_, ended) = ctl(&["--json", "origins"], &json!({ "origins": origins() }));
    assert_eq!(serde_json::from_str::<Value>(&ended.done()).unwrap(), origins());
}

#[test]
fn a_node_has_one_state_and_no_error_of_the_past() {
    let node = |name: &str, up: bool, healthy: bool, error: Option<&str>| {
        json!({
            "name": name, "mesh": "192.0.2.1:1", "member": "configured", "this": false, "up": up, "roles": ["agent"],
            "up_s": up.then_some(7), "available": up && healthy, "healthy": healthy, "connections": 3, "draining": false,
            "last_error": error,
        })
    };
    let nodes = [
        node("a1", true, true, Some("it was refused")),
        node("a2", false, true, Some("it is refused")),
        node("a3", true, false, None),
    ];
    let (_, ended) = ctl(&["nodes"], &json!({ "nodes": nodes }));
    let expected = "\
name  state      roles  member      mesh         up_s  connections  error
a1    up         agent  configured  192.0.2.1:1     7            3  -
a2    down       agent  configured  192.0.2.1:1     -            3  it is refused
a3    unhealthy  agent  configured  192.0.2.1:1     7            3  -
";
    assert_eq!(ended.done(), expected);
}

#[test]
fn refusals_are_one_sentence() {
    let (_, ended) = ctl(&["status"], &json!({"error": "busy"}));
    assert_eq!(ended.refused(1), "watari: the node refused: busy");
    let (_, ended) = ctl(&["status"], &json!({"nodes": []}));
    assert_eq!(ended.refused(1), "watari: the node on s sent an invalid answer");
    let dir = tempfile::tempdir().unwrap();
    let failed = watari(dir.path(), &["ctl", "--admin", "none", "status"]).refused(1);
    assert!(failed.starts_with("watari: no node answers on none: No such file or directory"), "{failed}");
}

#[test]
fn orders_are_sent_as_they_are_written_down() {
    let (question, ended) = ctl(&["undrain", "a1"], &json!("done"));
    assert_eq!(question, json!({"version": 1, "topic": {"undrain": {"node": "a1"}}}));
    assert_eq!(ended.done(), "a1 gets connections of this dispatcher again\n");
    let (_, ended) = ctl(&["--json", "undrain", "a1"], &json!("done"));
    let done: Value = serde_json::from_str(&ended.done()).unwrap();
    assert_eq!(done, json!({"done": "undrain", "node": "a1"}));
    let (question, ended) = ctl(&["keys", "rotate"], &json!("done"));
    assert_eq!(question, json!({"version": 1, "topic": "rotate_keys"}));
    assert!(ended.done().starts_with("ticket keys are rotated"));
    let (question, ended) = ctl(&["move", "00000000000000ff-1", "a2"], &json!({"error": "no"}));
    let order = json!({"move": {"connection": "00000000000000ff-1", "node": "a2"}});
    assert_eq!(question, json!({"version": 1, "topic": order}));
    assert_eq!(ended.refused(1), "watari: the node refused: no");
    let (_, ended) = ctl(&["undrain", "a1"], &json!({"connections": []}));
    assert_eq!(ended.refused(1), "watari: the node on s sent an invalid answer");
}

#[test]
fn a_reload_reports_the_changes() {
    let changes = json!([
        {"key": "agent.limits.requests_max", "old": null, "new": "77"},
        {"key": "peer[a2].mesh", "old": "\"192.0.2.2:1\"", "new": "\"192.0.2.3:1\""},
        {"key": "log.level", "old": "\"debug\"", "new": null},
    ]);
    let reloaded = json!({"changes": changes, "files": ["site.pem"]});
    let (question, ended) = ctl(&["reload"], &json!({ "reloaded": reloaded }));
    assert_eq!(question, json!({"version": 1, "topic": "reload"}));
    let expected = "\
agent.limits.requests_max: (not set) -> 77
peer[a2].mesh: \"192.0.2.2:1\" -> \"192.0.2.3:1\"
log.level: \"debug\" -> (not set)
site.pem: read again
";
    assert_eq!(ended.done(), expected);
    let (_, ended) = ctl(&["--json", "reload"], &json!({ "reloaded": reloaded }));
    assert_eq!(serde_json::from_str::<Value>(&ended.done()).unwrap(), reloaded);
    let (_, ended) = ctl(&["reload"], &json!({"reloaded": {"changes": [], "files": []}}));
    assert_eq!(ended.done(), "no change\n");
    let (_, ended) = ctl(&["reload"], &json!({"error": "a1.toml:3: no"}));
    assert_eq!(ended.refused(1), "watari: the node refused: a1.toml:3: no");
}

#[test]
fn wrong_usage_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 9] = [
        &[],
        &["weather"],
        &["status", "a1"],
        &["move", "00000000000000ff-1"],
        &["move", "ff-1", "a2"],
        &["move", "00000000000000ff-1", "A 2"],
        &["drain"],
        &["drain", "a1", "--grace", "soon"],
        &["undrain", "--grace", "1s", "a1"],
    ];
    for arguments in wrong {
        let ended = watari(dir.path(), &[&["ctl", "--admin", "none"], arguments].concat());
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.error);
    }
}
