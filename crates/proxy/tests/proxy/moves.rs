//! Random files move at random moments between random origins, good and faulty ones. The client gets the file, or a
//! visible cut.
//!
//! `make moves` tries many more seeds.

mod gateway;
mod plan;

use std::cell::Cell;
use std::env;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::Response;
use http_body_util::{BodyExt, Empty};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime;
use tokio::time::timeout;
use watari_body::Body;
use watari_proxy::{Handover, HttpVersion, Limits, OriginAddress, PoolConfig, Transport};
use watari_test_origins::{Content, Origin};

use self::plan::{NUMBER, Plan};
use crate::common::download::transfers;
use crate::common::{Fixture, client};

/// Longer than all timeouts together.
const WAIT_MAX: Duration = Duration::from_mins(1);

#[test]
fn what_is_delivered_is_the_file_or_visibly_incomplete() {
    let (cases, seed) = (variable("MOVES_CASES", 64), variable("MOVES_SEED", 1));
    println!("MOVES_SEED={seed} MOVES_CASES={cases}");
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: cases.try_into().unwrap(),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seeds));
    let (complete, moved) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&Plan::any(), |plan| {
        let outcome = carry_out(&plan)?;
        complete.set(complete.get() + u64::from(outcome.complete));
        moved.set(moved.get() + u64::from(outcome.moves > 0));
        Ok(())
    });
    if let Err(TestError::Fail(reason, plan)) = result {
        panic!("{reason}: {plan:#?}");
    }
    result.unwrap();
    println!("of {cases} transfers {} were complete, and {} moved", complete.get(), moved.get());
    assert!(complete.get() > cases / 4 && moved.get() > cases / 4, "too little happens for this to say anything");
}

fn variable(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// The result of a transfer.
struct Outcome {
    complete: bool,
    moves: u32,
}

fn carry_out(plan: &Plan) -> Result<Outcome, TestCaseError> {
    let origins = plan.start();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = fixture(plan, &origins).await;
        let response = fixture.proxy.respond(request(plan), &client()).await;
        judge(plan, &fixture, response).await
    })
}

/// A pool with short timeouts.
async fn fixture(plan: &Plan, origins: &[Origin]) -> Fixture {
    let mut addresses: Vec<OriginAddress> = Vec::new();
    for origin in origins {
        let address = origin.url().parse().unwrap();
        addresses.push(if plan.http2 { gateway::gateway(address).await } else { address });
    }
    let soon = Duration::from_millis(400);
    let limits = Limits { response_timeout: soon, body_timeout: soon, ..Limits::default() };
    let mut handover = Handover { length_min: 0, ..Handover::default() };
    handover.governor.stalled = Some(Duration::from_millis(100));
    let version = if plan.http2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
    let transport = Transport { version, ..Transport::default() };
    Fixture::of(PoolConfig { limits, transport, handover: Some(handover), ..PoolConfig::plain("pool", addresses) })
}

fn request(plan: &Plan) -> Request<Empty<Bytes>> {
    let mut request = Request::get("/file").header("host", "example.org");
    if let Some((first, last)) = plan.range {
        let last = last.map(|last| last.to_string()).unwrap_or_default();
        request = request.header("range", format!("bytes={first}-{last}"));
    }
    request.body(Empty::new()).unwrap()
}

/// Receives the response, and gives orders meanwhile.
async fn judge(plan: &Plan, fixture: &Fixture, response: Response<Body>) -> Result<Outcome, TestCaseError> {
    let first = plan.range.map_or(0, |(first, _)| first);
    let end = plan.range.and_then(|(_, last)| last).map_or(plan.len, |last| last + 1);
    if response.headers().get(NUMBER).is_none_or(|number| number != "0") {
        // The first origin failed before its response arrived. The responses of the others to a range are not
        // predictable.
        return Ok(Outcome { complete: false, moves: 0 });
    }
    let content = plan.content();
    let versions = vec![content.clone().altered(0..plan.len), content];
    let mut received = Received { plan, versions, position: first, orders: 0, moves: 0 };
    let complete = received.all(fixture, response.into_body()).await?;
    if complete && received.position != end {
        return Err(TestCaseError::fail(format!("it ends at {} instead of {end}", received.position)));
    }
    Ok(Outcome { complete, moves: received.moves })
}

struct Received<'a> {
    plan: &'a Plan,
    /// The possible contents. While no bytes can be compared, other bytes with equal tags cannot be detected. Then the
    /// content is those other bytes.
    versions: Vec<Content>,
    position: u64,
    orders: usize,
    moves: u32,
}

impl Received<'_> {
    /// Whether the body ended without an error.
    async fn all(&mut self, fixture: &Fixture, mut body: Body) -> Result<bool, TestCaseError> {
        loop {
            let frame = timeout(WAIT_MAX, body.frame()).await.map_err(|_| TestCaseError::fail("it does not end"))?;
            self.moves = transfers(fixture).first().map_or(0, |transfer| transfer.moves);
            let Some(frame) = frame else { return Ok(true) };
            let Ok(frame) = frame else { return Ok(false) };
            let piece = frame.into_data().unwrap_or_default();
            self.versions.retain(|version| version.difference(self.position, &piece).is_none());
            if self.versions.is_empty() {
                return Err(TestCaseError::fail(format!("a byte from {} on is another one", self.position)));
            }
            self.position += piece.len() as u64;
            self.order(fixture);
        }
    }

    /// Gives the orders that are due. Orders that cannot be executed have no effect.
    fn order(&mut self, fixture: &Fixture) {
        let mut due: Vec<_> = self.plan.orders.iter().collect();
        due.sort_by_key(|(at, _)| *at);
        let Some((_, to)) = due.get(self.orders).filter(|(at, _)| *at <= self.position) else { return };
        self.orders += 1;
        let status = fixture.proxy.status().remove(0);
        if let [transfer] = &status.transfers[..] {
            fixture.proxy.move_transfer(transfer.id, Some(&to.get(&status.origins).address)).ok();
        }
    }
}
