use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use watari_endings::ServerState::{Normal, Stopped};
use watari_watch::alerting::{Receiver, Target};

use super::{SERVER, change, counts, receiver, shell, started, until};

#[tokio::test]
async fn a_command_gets_the_alert() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    let script = r#"cat > "$1/$WATARI_STATUS.json"; env | grep ^WATARI_ > "$1/$WATARI_STATUS.env"; echo done"#;
    let notifier = started(&[shell(script, &[directory.path().to_str().unwrap()])]);
    notifier.notify("west 'n' $(north)", &change(Stopped, 1));
    until("it ran", || counts(&notifier).delivered == 1).await;
    let alert: Value = serde_json::from_slice(&fs::read(of("firing.json")).unwrap()).unwrap();
    assert_eq!((&alert["status"], &alert["labels"]["server"]), (&"firing".into(), &SERVER.into()));
    let environment = fs::read_to_string(of("firing.env")).unwrap();
    let expected = [
        "WATARI_STATUS=firing",
        "WATARI_STATE=stopped",
        "WATARI_SERVER=192.0.2.1:443",
        "WATARI_SENSOR=west 'n' $(north)",
        "WATARI_SEVERITY=critical",
        "WATARI_STARTS_AT=1970-01-01T00:00:01Z",
        "WATARI_ENDS_AT=",
        "WATARI_DESCRIPTION=60.0 % of attempts and requests got no answer, limit 50.0 %, in 30 s (unanswered)",
    ];
    for line in expected {
        assert!(environment.lines().any(|it| it == line), "{line} is not in {environment}");
    }
    notifier.notify("west 'n' $(north)", &change(Normal, 9));
    until("it ran again", || counts(&notifier).delivered == 2).await;
    let environment = fs::read_to_string(of("resolved.env")).unwrap();
    assert!(environment.lines().any(|line| line == "WATARI_ENDS_AT=1970-01-01T00:00:09Z"));
}

#[tokio::test]
async fn a_command_that_fails_is_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("now");
    // The program does not read its input, and writes a lot.
    let script = r#"head -c 1000000 /dev/zero; test -e "$1""#;
    let notifier = started(&[shell(script, &[file.to_str().unwrap()])]);
    notifier.notify("west", &change(Stopped, 1));
    until("it failed", || counts(&notifier).failed >= 2).await;
    fs::write(&file, "").unwrap();
    until("it ran well", || counts(&notifier).delivered == 1).await;
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = r#"sleep 1000 & echo $! > "$1.new"; mv "$1.new" "$1"; wait"#;
    let hanging = Receiver { timeout: Duration::from_millis(300), ..shell(script, &[file.to_str().unwrap()]) };
    let notifier = started(&[hanging]);
    notifier.notify("west", &change(Stopped, 1));
    until("it runs", || file.exists()).await;
    let process = fs::read_to_string(&file).unwrap();
    until("it was killed", || has_ended(&process)).await;
    until("that was seen", || counts(&notifier).failed >= 1).await;
}

#[tokio::test]
async fn a_command_ends_with_its_notifier() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = r#"sleep 1000 & echo $! > "$1.new"; mv "$1.new" "$1"; wait"#;
    let notifier = started(&[shell(script, &[file.to_str().unwrap()])]);
    notifier.notify("west", &change(Stopped, 1));
    until("it runs", || file.exists()).await;
    let process = fs::read_to_string(&file).unwrap();
    drop(notifier);
    until("it was killed", || has_ended(&process)).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_holds_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let notifier = started(&[shell(r#"sleep 1000 & echo $! > "$1""#, &[file.to_str().unwrap()])]);
    notifier.notify("west", &change(Stopped, 1));
    until("it ran", || counts(&notifier).delivered == 1).await;
    let process = fs::read_to_string(&file).unwrap();
    assert!(!has_ended(&process), "a service that the command started goes on");
    assert!(std::process::Command::new("kill").arg(process.trim()).status().unwrap().success());
}

#[tokio::test]
async fn a_command_that_is_not_there_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let program: PathBuf = directory.path().join("page");
    let notifier = started(&[receiver("command", Target::Command { program: program.clone(), args: Vec::new() })]);
    notifier.notify("west", &change(Stopped, 1));
    until("it is not there", || counts(&notifier).failed >= 2).await;
    std::os::unix::fs::symlink("/bin/true", &program).unwrap();
    until("it is there", || counts(&notifier).delivered == 1).await;
}

/// A zombie has ended, too: its parent may never reap it.
fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.trim()).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}
