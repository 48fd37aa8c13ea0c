//! gRPC through agents, with an independent library: each kind of call, to HTTP/2 origins with and without TLS.

mod client;
mod codec;
mod origin;

use std::time::Duration;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};

use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::{WAIT_MAX, until};
use crate::harness::{Cluster, Content, Plan};
use client::{Client, text};
use origin::Origin;

/// Routes lead to the origins by these service names.
const SERVICES: [&str; 2] = ["test.Plain", "test.Tls"];

/// The length of a message, in bytes, that is larger than the windows of streams and connections.
const LARGE: u64 = 5_000_000;

/// A cluster before two origins.
struct Site {
    cluster: Cluster,
    origin: Origin,
    runtime: tokio::runtime::Runtime,
}

impl Site {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let origin = runtime.block_on(Origin::start());
        let [without_tls, with_tls] = SERVICES;
        let content = Content::Proxy(format!(
            r#"
            [[agent.proxy.pool]]
            name = "plain"
            origins = ["http://{}"]
            http = "2"
            [[agent.proxy.pool]]
            name = "tls"
            origins = ["https://{}"]
            http = "negotiated"
            tls = {{ ca = "site/ca.pem", server_name = "{SITE}" }}
            [[agent.proxy.route]]
            path = "/{without_tls}"
            pool = "plain"
            [[agent.proxy.route]]
            path = "/{with_tls}"
            pool = "tls"
            "#,
            origin.plain, origin.tls
        ));
        let plan = Plan { content, agents: Some(&["a1"]), ..Plan::default() };
        Self { cluster: Cluster::start(&plan), origin, runtime }
    }

    /// Runs `act` with a client of each service.
    fn with_each<F: Future<Output = ()>>(&self, act: impl Fn(Client) -> F) {
        let _entered = self.runtime.enter();
        for service in SERVICES {
            let client = Client::new(self.cluster.clients.any(), self.cluster.service, service);
            let acting = async { tokio::time::timeout(WAIT_MAX, act(client)).await };
            self.runtime.block_on(acting).unwrap_or_else(|_| panic!("{service} hangs"));
        }
    }
}

fn lines(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("message {number}")).collect()
}

#[test]
fn calls_of_every_kind_are_answered() {
    Site::start().with_each(async |mut client| {
        assert_eq!(client.unary("echo", Request::new(text("hello"))).await.unwrap().into_inner(), "hello");

        let mut answers = client.streamed("count", vec![text("100")]).await.unwrap().into_inner();
        for number in 0..100 {
            assert_eq!(answers.message().await.unwrap().unwrap(), number.to_string());
        }
        assert_eq!(answers.message().await.unwrap(), None);

        let messages = lines(100).into_iter().map(text).collect();
        let mut answers = client.streamed("length", messages).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap(), lines(100).concat().len().to_string());
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

/// No part of the cluster delays a message until another one comes.
#[test]
fn each_message_is_answered_before_the_next_is_sent() {
    Site::start().with_each(async |mut client| {
        let (ask, answers) = client.conversation("echo").await;
        let mut answers = answers.unwrap().into_inner();
        for line in lines(50) {
            ask.send(text(line.as_str())).unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap(), line);
        }
        drop(ask);
        assert_eq!(
            answers.message().await.unwrap(),
            None,
            "the client's end reaches the origin, and its end the client"
        );
    });
}

#[test]
fn a_large_message_arrives_whole() {
    let large = bytes::Bytes::from(pattern(1, 0..LARGE));
    Site::start().with_each(async |mut client| {
        let answer = client.unary("echo", Request::new(large.clone())).await.unwrap();
        assert!(answer.into_inner() == large);
    });
}

#[test]
fn coded_messages_stay_coded() {
    let zeros = bytes::Bytes::from(vec![0; 1_000_000]);
    let site = Site::start();
    site.with_each(async |client| {
        let answer = client.with_gzip().unary("echo", Request::new(zeros.clone())).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
        assert!(answer.into_inner() == zeros);
    });
    let bytes = site.cluster.count_on_agents("watari_proxy_body_bytes_total", "");
    assert!(bytes < 10_000, "{bytes}");
}

#[test]
fn metadata_goes_both_ways() {
    Site::start().with_each(async |mut client| {
        let mut request = Request::new(text("hello"));
        request.metadata_mut().insert("x-asked", MetadataValue::from_static("why?"));
        request.metadata_mut().insert_bin("x-asked-bin", MetadataValue::from_bytes(&[0, 255, 10]));
        let answer = client.unary("echo", request).await.unwrap();
        check_metadata(answer.metadata());
        assert_eq!(answer.metadata().get("content-type").unwrap(), "application/grpc");
    });
}

fn check_metadata(metadata: &MetadataMap) {
    assert_eq!(metadata.get("x-asked").unwrap(), "why?");
    assert_eq!(metadata.get_bin("x-asked-bin").unwrap().to_bytes().unwrap().as_ref(), [0, 255, 10]);
}

/// With messages before the error, and alone ("Trailers-Only").
#[test]
fn errors_arrive_as_they_were_meant() {
    Site::start().with_each(async |mut client| {
        let mut answers = client.streamed("fail", vec![text("")]).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap(), "so far");
        check_failure(&answers.message().await.unwrap_err());

        check_failure(&client.unary("refuse", Request::new(text(""))).await.unwrap_err());
        let unknown = client.unary("nothing", Request::new(text(""))).await.unwrap_err();
        assert_eq!(unknown.code(), Code::Unimplemented);
    });
}

fn check_failure(status: &Status) {
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "no more – 100 % used"));
    assert_eq!(status.details(), [1, 2, 3]);
    assert_eq!(status.metadata().get("x-left").unwrap(), "0");
}

#[test]
fn a_deadline_reaches_the_origin() {
    let site = Site::start();
    site.with_each(async |mut client| {
        let mut request = Request::new(text("hello"));
        request.set_timeout(Duration::from_hours(1));
        let meant = request.metadata().get("grpc-timeout").unwrap().clone();
        let answer = client.unary("echo", request).await.unwrap();
        assert_eq!(answer.metadata().get("x-deadline"), Some(&meant));

        let mut request = Request::new(text("hello"));
        request.set_timeout(Duration::from_millis(100));
        let late = client.unary("sleep", request).await.unwrap_err();
        assert!(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
    });
    until("the origin has given both calls up", || site.origin.given_up() == 2);
}

#[test]
fn a_call_that_is_cancelled_ends_at_the_origin() {
    let site = Site::start();
    site.with_each(async |mut client| {
        let mut answers = client.streamed("wait", vec![text("")]).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap(), "wait");
    });
    until("the origin has given both calls up", || site.origin.given_up() == 2);
    site.with_each(async |mut client| {
        assert_eq!(client.unary("echo", Request::new(text("hello"))).await.unwrap().into_inner(), "hello");
    });
}
