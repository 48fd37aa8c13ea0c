//! Origins whose names resolve to other addresses later.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use watari_proxy::{PoolConfig, Resolution, Resolver, Resolving};

use crate::common::{Fixture, ok};

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Returns the addresses that were last set, and counts its calls.
#[derive(Debug, Default)]
struct FixedNames(Mutex<(Vec<IpAddr>, usize)>);

impl FixedNames {
    fn set(&self, addresses: &[Ipv4Addr]) {
        self.0.lock().unwrap().0 = addresses.iter().copied().map(IpAddr::V4).collect();
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Resolver for FixedNames {
    fn resolve(&self, host: &str) -> Resolving {
        assert_eq!(host, "origin.test");
        let mut names = self.0.lock().unwrap();
        names.1 += 1;
        let found = names.0.clone();
        Box::pin(async move { if found.is_empty() { Err(io::Error::other("no answer")) } else { Ok(found) } })
    }
}

const A: Ipv4Addr = Ipv4Addr::LOCALHOST;
const B: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// An address without a listener.
const UNUSED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Responds to every request on any of its connections with `name`.
fn serve(listener: TcpListener, name: &'static str, keep: bool) {
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while socket.read(&mut request).await.is_ok_and(|len| len > 0) {
                    let crate::common::Act::Answer(answer) = ok(name) else { unreachable!() };
                    if socket.write_all(&answer).await.is_err() || !keep {
                        return;
                    }
                }
            });
        }
    });
}

/// Two listeners at the same port of different addresses.
async fn listeners() -> (TcpListener, TcpListener) {
    loop {
        let a = TcpListener::bind((A, 0)).await.unwrap();
        if let Ok(b) = TcpListener::bind((B, a.local_addr().unwrap().port())).await {
            return (a, b);
        }
    }
}

/// Origins at both addresses, and a proxy to the name of both.
async fn stage(interval: Duration, keep: bool) -> (Arc<FixedNames>, Fixture) {
    let (a, b) = listeners().await;
    let address = format!("http://origin.test:{}", a.local_addr().unwrap().port()).parse().unwrap();
    serve(a, "a", keep);
    serve(b, "b", keep);
    let names = Arc::<FixedNames>::default();
    let resolver = Arc::clone(&names) as Arc<dyn Resolver>;
    let pool = PoolConfig { resolution: Resolution { resolver, interval }, ..PoolConfig::plain("pool", [address]) };
    (names, Fixture::of(pool))
}

async fn get(fixture: &Fixture) -> String {
    fixture.get().await.1.unwrap()
}

#[tokio::test]
async fn connections_go_to_all_addresses_in_turn() {
    let (names, fixture) = stage(Duration::from_hours(1), false).await;
    names.set(&[B, A, B]);
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(get(&fixture).await);
    }
    assert_eq!(answers, ["a", "b", "a", "b"]);
    assert_eq!(names.asked(), 1);
}

#[tokio::test]
async fn where_one_address_does_not_answer_the_next_does() {
    let (names, fixture) = stage(Duration::from_hours(1), false).await;
    names.set(&[UNUSED, B]);
    for _ in 0..4 {
        assert_eq!(get(&fixture).await, "b");
    }
}

#[tokio::test]
async fn a_kept_connection_to_an_address_that_is_gone_is_not_used() {
    let (names, fixture) = stage(Duration::from_millis(5), true).await;
    names.set(&[A]);
    assert_eq!(get(&fixture).await, "a");
    names.set(&[B]);
    let deadline = Instant::now() + WAIT_MAX;
    while get(&fixture).await != "b" {
        assert!(Instant::now() < deadline, "it is never looked up again");
        sleep(Duration::from_millis(2)).await;
    }
    names.set(&[]);
    let asked = names.asked();
    while names.asked() < asked + 2 {
        assert_eq!(get(&fixture).await, "b", "what was known before is used while there is no answer");
        assert!(Instant::now() < deadline, "it is never looked up again");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_name_without_addresses_is_a_bad_gateway() {
    let (_, fixture) = stage(Duration::from_hours(1), true).await;
    assert_eq!(fixture.get().await.0, 502);
}
