use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;
use watari_endings::ServerState::{Idle, Normal, Saturated, Stopped};
use watari_watch::alerting::{HttpTarget, Notifier, Receiver, StartError, Target};

use super::receiver::{Answer, HttpReceiver, Port};
use super::{change, counts, http, receiver, started, until, webhook};

fn delivered(status: &str, starts_at_s: u64) -> (String, String) {
    (status.to_owned(), format!("1970-01-01T00:00:{starts_at_s:02}Z"))
}

#[tokio::test]
async fn a_webhook_gets_the_format_of_alertmanager() {
    let mut server = HttpReceiver::new(&[]).await;
    let notifier = started(&[webhook(&server.url())]);
    notifier.notify("west", &change(Stopped, 1));
    let asked = server.asked().await;
    assert_eq!(asked.path, "/hook?key=1");
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!(asked.headers["host"], server.address.to_string());
    let body = asked.body;
    assert_eq!((&body["version"], &body["receiver"], &body["status"]), (&"4".into(), &"hook".into(), &"firing".into()));
    assert_eq!(body["alerts"][0]["labels"]["alertname"], "WatariServerStopped");
    assert_eq!(body["alerts"][0]["startsAt"], "1970-01-01T00:00:01Z");
    notifier.notify("west", &change(Normal, 5));
    let body = server.asked().await.body;
    assert_eq!(body["status"], "resolved");
    assert_eq!(body["alerts"][0]["endsAt"], "1970-01-01T00:00:05Z");
    until("both were taken", || counts(&notifier).delivered == 2).await;
    assert_eq!((counts(&notifier).failed, counts(&notifier).waiting, notifier.counts().firing), (0, 0, 0));
    notifier.stop().await;
}

#[tokio::test]
async fn a_failed_notice_is_sent_again() {
    let answers = [
        Answer::Status(500, None),
        Answer::Cut,
        Answer::Status(503, None),
        Answer::Status(404, None),
        Answer::Status(302, None),
        Answer::Status(429, Some("0")),
    ];
    let mut server = HttpReceiver::new(&answers).await;
    let notifier = started(&[webhook(&server.url())]);
    notifier.notify("west", &change(Saturated, 1));
    for _ in 0..=answers.len() {
        assert_eq!(server.delivered().await, delivered("firing", 1));
    }
    until("it was taken", || counts(&notifier).delivered == 1).await;
    assert_eq!((counts(&notifier).failed, counts(&notifier).waiting), (6, 0));
}

#[tokio::test]
async fn a_receiver_that_wants_a_pause_gets_it() {
    let mut server = HttpReceiver::new(&[Answer::Status(429, Some("1"))]).await;
    let notifier = started(&[webhook(&server.url())]);
    notifier.notify("west", &change(Saturated, 1));
    let first = server.asked().await.at;
    let second = server.asked().await.at;
    assert!(second - first >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_asked_again() {
    let mut server = HttpReceiver::new(&[Answer::Nothing]).await;
    let notifier = started(&[Receiver { timeout: Duration::from_millis(200), ..webhook(&server.url()) }]);
    notifier.notify("west", &change(Stopped, 1));
    assert_eq!(server.delivered().await, delivered("firing", 1));
    assert_eq!(server.delivered().await, delivered("firing", 1));
}

#[tokio::test]
async fn a_receiver_that_stands_still_holds_up_no_other() {
    let mut stands = HttpReceiver::new(&[Answer::Nothing]).await;
    let mut goes = HttpReceiver::new(&[]).await;
    let other = Receiver {
        policy: super::receiver("other", Target::Webhook(http("http://a/"))).policy,
        ..webhook(&goes.url())
    };
    let notifier = started(&[webhook(&stands.url()), other]);
    notifier.notify("west", &change(Stopped, 1));
    stands.asked().await;
    notifier.notify("west", &change(Normal, 2));
    assert_eq!([goes.delivered().await, goes.delivered().await], [delivered("firing", 1), delivered("resolved", 1)]);
    assert_eq!(counts(&notifier).delivered, 0);
}

#[tokio::test]
async fn a_receiver_that_was_away_learns_what_is_last() {
    let port = Port::new();
    let notifier = started(&[webhook(&port.url())]);
    notifier.notify("west", &change(Stopped, 1));
    until("no receiver was there", || counts(&notifier).failed >= 2).await;
    let mut server = port.listen(&[]);
    assert_eq!(server.delivered().await, delivered("firing", 1));
    until("it was taken", || counts(&notifier).delivered == 1).await;
    drop(server);

    notifier.notify("west", &change(Normal, 2));
    let failed = counts(&notifier).failed;
    until("it is away", || counts(&notifier).failed > failed).await;
    notifier.notify("west", &change(Stopped, 3));
    notifier.notify("west", &change(Idle, 4));
    let mut server = port.listen(&[]);
    assert_eq!(server.delivered().await, delivered("resolved", 3));
    until("it was taken", || counts(&notifier).waiting == 0).await;
    assert!(!server.has_been_asked());
}

#[tokio::test]
async fn alertmanager_gets_repeated_notices() {
    let mut server = HttpReceiver::new(&[]).await;
    let target = Target::Alertmanager(http(&format!("http://{}", server.address)));
    let mut receiver = receiver("alertmanager", target);
    receiver.policy.repeat = Some(Duration::from_millis(20));
    let notifier = started(&[receiver]);
    notifier.notify("west", &change(Stopped, 1));
    for _ in 0..3 {
        let asked = server.asked().await;
        assert_eq!(asked.path, "/api/v2/alerts");
        let alert = &asked.body[0];
        assert_eq!(
            (&alert["startsAt"], &alert["labels"]["state"]),
            (&"1970-01-01T00:00:01Z".into(), &"stopped".into())
        );
        assert!(alert["endsAt"].as_str().unwrap() > "2000");
    }
    notifier.notify("west", &change(Normal, 2));
    while server.asked().await.body[0]["endsAt"] != "1970-01-01T00:00:02Z" {}
    until("it is over", || counts(&notifier).waiting == 0).await;
    assert!(!server.has_been_asked());
}

#[tokio::test]
async fn a_state_that_does_not_last_causes_no_notice() {
    let mut server = HttpReceiver::new(&[]).await;
    let mut receiver = webhook(&server.url());
    receiver.policy.hold = Duration::from_millis(300);
    let notifier = started(&[receiver]);
    notifier.notify("west", &change(Saturated, 1));
    notifier.notify("west", &change(Stopped, 2));
    assert_eq!(server.delivered().await, delivered("firing", 2));
    until("it was taken", || counts(&notifier).delivered == 1).await;
    assert_eq!(notifier.counts().firing, 1);
}

/// A certificate authority, and a server with a certificate of it.
fn authority() -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = builder.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_webhook_with_tls_proves_who_it_is_and_so_do_we() {
    let directory = tempfile::tempdir().unwrap();
    let (ca_file, token_file) = (directory.path().join("ca.pem"), directory.path().join("token"));
    let (ca, tls) = authority();
    let mut server = HttpReceiver::with_tls(tls).await;
    let target = HttpTarget {
        ca_file: Some(ca_file.clone()),
        token_file: Some(token_file.clone()),
        ..http(&format!("https://{}/", server.address))
    };
    std::fs::write(&ca_file, ca).unwrap();
    let notifier = started(&[receiver("hook", Target::Webhook(target.clone()))]);
    notifier.notify("west", &change(Stopped, 1));
    until("there is no token", || counts(&notifier).failed > 0).await;
    std::fs::write(&token_file, "secret\n").unwrap();
    assert_eq!(server.asked().await.headers["authorization"], "Bearer secret");
    std::fs::write(&token_file, "another").unwrap();
    notifier.notify("west", &change(Normal, 2));
    assert_eq!(server.asked().await.headers["authorization"], "Bearer another");

    let (other_ca, _) = authority();
    std::fs::write(&ca_file, other_ca).unwrap();
    let notifier = started(&[receiver("hook", Target::Webhook(target))]);
    notifier.notify("west", &change(Stopped, 1));
    until("the certificate is of another authority", || counts(&notifier).failed > 1).await;
    assert!(!server.has_been_asked());
}

#[tokio::test]
async fn what_can_never_work_is_said_at_once() {
    let start = |ca_file: &str| {
        let target = HttpTarget { ca_file: Some(ca_file.into()), ..http("https://127.0.0.1/") };
        Notifier::start(&[receiver("hook", Target::Webhook(target))], None).unwrap_err().to_string()
    };
    let missing = start("/nowhere/ca.pem");
    assert!(missing.starts_with("the [[receiver]] hook: the certificates /nowhere/ca.pem: "), "{missing}");
    let empty = start("/dev/null");
    assert_eq!(empty, "the [[receiver]] hook: there are no CA certificates in /dev/null");
    let journal = Notifier::start(&[], Some("/nowhere/alerts.json".into()));
    assert!(matches!(journal, Err(StartError::Journal { .. })));
}
