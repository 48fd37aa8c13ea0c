use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use watari_endings::ServerState::{Normal, Stopped};
use watari_watch::alerting::Notifier;

use super::receiver::{Answer, HttpReceiver, Port};
use super::{change, counts, until, webhook};

fn delivered(status: &str, starts_at_s: u64) -> (String, String) {
    (status.to_owned(), format!("1970-01-01T00:00:{starts_at_s:02}Z"))
}

fn start(url: &str, journal: &Path) -> Notifier {
    Notifier::start(&[webhook(url)], Some(journal.to_owned())).unwrap()
}

#[tokio::test]
async fn undelivered_notices_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("alerts.json");
    let port = Port::new();
    let notifier = start(&port.url(), &journal);
    notifier.notify("west", &change(Stopped, 1));
    until("no receiver was there", || counts(&notifier).failed >= 1).await;
    notifier.stop().await;

    let notifier = start(&port.url(), &journal);
    assert_eq!((counts(&notifier).waiting, notifier.counts().firing), (1, 1));
    let mut server = port.listen(&[]);
    assert_eq!(server.delivered().await, delivered("firing", 1));
    until("it was taken", || counts(&notifier).delivered == 1).await;
    notifier.stop().await;

    // The receiver was notified. Only the end of the alert is a new notice.
    let notifier = start(&port.url(), &journal);
    notifier.notify("west", &change(Stopped, 5));
    notifier.notify("west", &change(Normal, 9));
    assert_eq!(server.delivered().await, delivered("resolved", 1));
    until("it was taken", || counts(&notifier).delivered == 1).await;
    notifier.stop().await;
    assert_eq!(fs::read_to_string(&journal).unwrap(), r#"{"version":1,"alerts":[]}"#);
}

#[tokio::test]
async fn a_running_delivery_ends_before_the_notifier() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("alerts.json");
    let mut server = HttpReceiver::new(&[]).await;
    let notifier = start(&server.url(), &journal);
    notifier.notify("west", &change(Stopped, 1));
    server.asked().await;
    notifier.stop().await;
    let notifier = start(&server.url(), &journal);
    assert_eq!((counts(&notifier).waiting, notifier.counts().firing), (0, 1));
}

#[tokio::test]
async fn a_damaged_journal_is_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("alerts.json");
    fs::write(&journal, "{").unwrap();
    let notifier = start("http://127.0.0.1:1/", &journal);
    assert_eq!(notifier.counts().firing, 0);
    assert_eq!(fs::read(directory.path().join("alerts.json.damaged")).unwrap(), b"{");
    notifier.stop().await;
}

#[tokio::test]
async fn a_failed_write_of_the_journal_does_not_prevent_notices() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("gone").join("alerts.json");
    fs::create_dir(journal.parent().unwrap()).unwrap();
    let mut server = HttpReceiver::new(&[]).await;
    let notifier = start(&server.url(), &journal);
    fs::remove_dir_all(journal.parent().unwrap()).unwrap();
    notifier.notify("west", &change(Stopped, 1));
    assert_eq!(server.delivered().await, delivered("firing", 1));
    assert!(notifier.counts().journal_failures >= 1);
}

/// An environment variable of the process that is killed.
const JOURNAL: &str = "WATARI_TEST_JOURNAL";
const URL: &str = "WATARI_TEST_URL";

#[tokio::test]
async fn nothing_is_lost_when_we_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("alerts.json");
    let mut server = HttpReceiver::new(&[Answer::Nothing]).await;
    let mut killed = Process::start(&server.url(), &journal);
    assert_eq!(server.delivered().await, delivered("firing", 1));
    killed.kill();

    let notifier = start(&server.url(), &journal);
    assert_eq!(server.delivered().await, delivered("firing", 1));
    until("it was taken", || counts(&notifier).delivered == 1).await;
    notifier.notify("west", &change(Normal, 2));
    assert_eq!(server.delivered().await, delivered("resolved", 1));
}

/// Not a test, but the process that is killed.
#[tokio::test]
async fn a_notifier_to_be_killed() {
    let (Some(journal), Ok(url)) = (env::var_os(JOURNAL), env::var(URL)) else { return };
    let notifier = start(&url, &PathBuf::from(journal));
    notifier.notify("west", &change(Stopped, 1));
    until("the test kills this process", || false).await;
}

struct Process(Child);

impl Process {
    fn start(url: &str, journal: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "restarts::a_notifier_to_be_killed"]).env(JOURNAL, journal).env(URL, url);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
