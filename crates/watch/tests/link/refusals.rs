//! Connections that sensors and judges refuse. Both sides report the reason.

use std::net::TcpListener as StdTcpListener;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};
use watari_link::{decode, encode};
use watari_watch::link::wire::{FromJudge, FromSensor, Taken};
use watari_watch::link::{ListenError, Listening, Reporter, StartError};

use crate::support::{
    NOW_S, Watching, all_taken, anywhere, cluster, identity, new_judge, options, report, start, trouble, wait_until,
};

const GREETING: &[u8] = b"wwatch\x00\x03";

#[tokio::test]
async fn each_begins_with_its_own_certificate_only() {
    let dir = cluster();
    let listener = StdTcpListener::bind(anywhere()).unwrap();
    let refused = Listening::on(listener, identity(dir.path(), "s1"), new_judge().0);
    assert!(matches!(refused, Err(ListenError::Role(node)) if node.as_str() == "s1"));
    let refused = Reporter::start("127.0.0.1:1".to_owned(), identity(dir.path(), "j1"), options());
    assert!(matches!(refused, Err(StartError::Role(node)) if node.as_str() == "j1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_sensors_of_the_cluster_are_accepted() {
    let (dir, other) = (cluster(), cluster());
    let watching = Watching::start(dir.path());
    // An agent that sends messages of a sensor.
    let mut stream = connect(&watching, &identity_config(dir.path(), "a1")).await;
    greet(&mut stream).await;
    assert_eq!(why(&mut stream).await, "the certificate of a1 does not allow the role sensor");
    watching.refusal("the certificate of a1 does not allow the role sensor").await;
    // A sensor of another authority.
    let foreign = start(other.path(), "s1", watching.address);
    trouble(&foreign, "TLS: ").await;
    watching.refusal("TLS: ").await;
    // A connection without TLS.
    let mut tcp = TcpStream::connect(watching.address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = tcp.read_to_end(&mut Vec::new()).await;
    assert_eq!(watching.judge.counts().welcomed, 0);
    assert!(watching.sensor("s1").is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_sent_only_to_a_judge() {
    let dir = cluster();
    let (address, _) = pretend(dir.path(), "s2", Vec::new()).await;
    trouble(&start(dir.path(), "s1", address), "its certificate does not allow the role judge").await;
}

/// More than may wait, from the sensor's address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_keep_no_sensor_out() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(watching.address).await.unwrap());
    }
    let reporter = start(dir.path(), "s1", watching.address);
    reporter.report(0, &report(NOW_S - 1, 3));
    all_taken(&reporter).await;
    assert_eq!(watching.judge.counts().welcomed, 1);
    wait_until("silent connections are closed", || watching.judge.counts().crowded > 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_survives_what_sensors_say() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let hello = encode(&FromSensor::Hello { run: 1, taken: Taken::default() }).unwrap();
    let beat = encode(&FromSensor::Beat { clock_offset_ns: None }).unwrap();
    let cases: [(&[&[u8]], &str); 7] = [
        (&[b"garbage!"], "does not speak the protocol of watari watch"),
        (&[b"wwatch\xff\xff"], "it speaks version 65535 of the protocol, and this program version 3"),
        (&[GREETING, b"\xff\xff\xff\xff"], "a message of 4294967295 bytes is too long"),
        (&[GREETING, b"\x00\x00\x00\x03\xff\xff\xff"], "a message cannot be read"),
        (&[GREETING, b"\x00\x00\x00\x06\x01\x00\x00\x00\x00\x00"], "a message cannot be read"),
        (&[GREETING, &beat], "it sent Beat in the wrong state of the protocol"),
        (&[GREETING, &hello, &hello], "it sent Hello in the wrong state of the protocol"),
    ];
    for (said, expected) in cases {
        let mut stream = connect(&watching, &identity_config(dir.path(), "s1")).await;
        write(&mut stream, &said.concat()).await;
        stream.read_exact(&mut [0; GREETING.len()]).await.unwrap();
        let reported = why(&mut stream).await;
        assert!(reported.contains(expected), "{reported}");
        watching.refusal(expected).await;
    }
    let reporter = start(dir.path(), "s1", watching.address);
    reporter.report(0, &report(NOW_S, 1));
    all_taken(&reporter).await;
    assert_eq!(watching.judge.counts().refused, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sensor_survives_what_judges_say() {
    let dir = cluster();
    let welcome = encode(&FromJudge::Welcome { run: 1, taken: Taken::default() }).unwrap();
    let false_welcome =
        encode(&FromJudge::Welcome { run: 1, taken: Taken { number: 9, reported: 0, missed: 0 } }).unwrap();
    let refused = encode(&FromJudge::Refused { why: "no\nroom".to_owned() }).unwrap();
    let cases: [(&[&[u8]], &str); 7] = [
        (&[b"garbage!"], "does not speak the protocol of watari watch"),
        (&[b"wwatch\x00\x01"], "it speaks version 1 of the protocol, and this program version 3"),
        (&[GREETING, b"\xff\xff\xff\xff"], "a message of 4294967295 bytes is too long"),
        (&[GREETING, b"\x00\x00\x00\x03\xff\xff\xff"], "a message cannot be read"),
        (&[GREETING, &false_welcome], "it acknowledged report 9, which was not sent"),
        (&[GREETING, &refused], "it refused the connection: no\\nroom"),
        (&[GREETING, &welcome, &welcome], "it sent Welcome in the wrong state of the protocol"),
    ];
    for (said, expected) in cases {
        let (address, _) = pretend(dir.path(), "j1", said.concat()).await;
        let reporter = start(dir.path(), "s1", address);
        trouble(&reporter, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reason_is_news_once_and_the_next_attempt_may_do() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    watching.stop().await;
    let reporter = start(dir.path(), "s1", watching.address);
    trouble(&reporter, "cannot connect").await;
    let watching = Watching::start_at(dir.path(), watching.address, new_judge());
    wait_until("it is there", || reporter.counts().is_connected).await;
    assert_eq!(watching.judge.counts().welcomed, 1);
}

fn identity_config(dir: &Path, name: &str) -> Arc<ClientConfig> {
    Arc::clone(identity(dir, name).client_config_for_any())
}

async fn connect(watching: &Watching, config: &Arc<ClientConfig>) -> client::TlsStream<TcpStream> {
    let tcp = TcpStream::connect(watching.address).await.unwrap();
    let name = ServerName::try_from("j1").unwrap();
    TlsConnector::from(Arc::clone(config)).connect(name, tcp).await.unwrap()
}

/// A peer that sends `said` on each connection, and then only reads.
async fn pretend(dir: &Path, name: &str, said: Vec<u8>) -> (std::net::SocketAddr, tokio::task::AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(identity(dir, name).server_config()));
    let pretending = tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(tcp).await else { continue };
            if stream.write_all(&said).await.is_ok() && stream.flush().await.is_ok() {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    });
    (address, pretending.abort_handle())
}

pub(crate) async fn greet(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    write(stream, GREETING).await;
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(greeting, GREETING);
}

pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

/// The reason of the refusal, after any other messages.
async fn why(stream: &mut (impl AsyncRead + Unpin)) -> String {
    loop {
        let len = stream.read_u32().await.unwrap();
        let mut message = vec![0; len as usize];
        stream.read_exact(&mut message).await.unwrap();
        if let FromJudge::Refused { why } = decode(&message).unwrap() {
            return why;
        }
    }
}
