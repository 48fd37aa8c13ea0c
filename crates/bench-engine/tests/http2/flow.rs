//! Flows over HTTP/2: the next request contains values of a response.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use watari_bench_engine::flow::Flow;
use watari_bench_engine::plan::{Plan, Stop, Work};
use watari_bench_engine::site::Site;

use crate::run::{all, plan, run, shown};
use crate::server::{Reply, Server};

const FLOW: &str = r#"
[[step]]
name = "first"
uri = "/first"
take.place = { header = "x-path" }
take.token = { regex = 'token=(\w+)' }

[[step]]
name = "second"
uri = "${place}?${token}"
"#;

#[test]
fn a_flow_takes_from_headers_and_bodies() {
    let server = Server::plain(|_, _, request| match request.uri().to_string() {
        uri if uri.ends_with("/first") => Reply::With(200, Bytes::from_static(b"token=abc")),
        uri if uri.ends_with("/taken?abc") => Reply::With(200, Bytes::new()),
        _ => Reply::With(404, Bytes::new()),
    });
    let url = format!("http://{}/", server.address);
    let flow = Arc::new(Flow::parse(Path::new("flow.toml"), FLOW, &url.parse().unwrap(), 1).unwrap());
    let work = Work::Flow { flow, site: Arc::new(Site::resolve(&url).unwrap().0), seed: 1 };
    let plan = plan(server.address, false, "- / 0\n", 2, 3, 1);
    let ran = run(Plan { work, stop: Stop { requests: Some(10), after: None }, ..plan });
    assert_eq!(shown(&ran.total.endings), all("NORMAL (response, server)", 20));
    // Each user has a connection of its own.
    assert_eq!(server.asked(), [2; 10]);
}
