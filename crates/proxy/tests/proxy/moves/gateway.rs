//! Origins with HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use watari_proxy::{OriginAddress, PoolConfig};

use crate::common::{Fixture, client};

/// An HTTP/2 server for an HTTP/1.1 origin. The origin's failures become stream resets. It ends with its runtime.
pub(crate) async fn gateway(behind: OriginAddress) -> OriginAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let fixture = Arc::new(Fixture::of(PoolConfig { handover: None, ..PoolConfig::plain("behind", [behind]) }));
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let fixture = Arc::clone(&fixture);
            let service = service_fn(move |request| {
                let fixture = Arc::clone(&fixture);
                async move { Ok::<_, Infallible>(fixture.proxy.respond(request, &client()).await) }
            });
            connections
                .spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}
