//! Answers the requests of other agents for cached responses.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use watari_body::{Body, BoxedRequest};
use watari_connection::{Connection, Content, Interim, Plaintext, Service};
use watari_http1::Server;
use watari_mesh::{HttpConnection, HttpStream};

use crate::node::date;
use crate::settings::current::CurrentSettings;
use crate::settings::refusal::refusal;
use crate::settings::site::Site;

/// How long an idle connection of another agent stays open: longer than agents keep them.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Serves the connections of other agents, each in a task, until `shutdown`.
pub(crate) async fn serve(
    mut connections: mpsc::Receiver<HttpConnection>,
    settings: Arc<CurrentSettings>,
    shutdown: CancellationToken,
) {
    while let Some(Some(connection)) = shutdown.run_until_cancelled(connections.recv()).await {
        let (settings, shutdown) = (settings.clone(), shutdown.clone());
        tokio::spawn(async move {
            shutdown.run_until_cancelled(serve_agent(connection, settings)).await;
        });
    }
}

async fn serve_agent(HttpConnection { peer, stream }: HttpConnection, settings: Arc<CurrentSettings>) {
    let server = Server::new(settings.limits().http1());
    let mut connection = Connection::new(AgentStream(BufReader::new(stream)), server, AgentService { settings });
    let (mut idle, mut requests) = (pin!(sleep(IDLE_MAX)), 0);
    let ended = poll_fn(|cx| {
        if let Poll::Ready(end) = connection.poll(cx) {
            return Poll::Ready(Some(end));
        }
        if !connection.is_idle() {
            return Poll::Pending;
        }
        if connection.requests() != requests {
            requests = connection.requests();
            idle.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        idle.as_mut().poll(cx).map(|()| None)
    });
    let end = ended.await;
    tracing::debug!(%peer, ?end, "the connection of an agent for cached responses has ended");
}

/// Answers from the cache of the site.
struct AgentService {
    settings: Arc<CurrentSettings>,
}

impl Service for AgentService {
    type Body = Body;
    type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

    fn answer(&mut self, request: Request<Content>, _: &mut Interim) -> Self::Answering {
        let site = self.settings.get().site.clone();
        let request = BoxedRequest::from(request);
        Box::pin(async move {
            match &*site {
                Site::Proxy(proxy) => proxy.respond_to_agent(request).await,
                Site::Files(_) => watari_proxy::refusal_of_owner(),
            }
        })
    }

    fn refuse(&mut self, status: StatusCode, cause: &dyn Display) -> Response<Body> {
        refusal(status, format!("{cause}\n"))
    }

    fn date(&self) -> HeaderValue {
        date::now()
    }
}

/// The stream of another agent.
struct AgentStream(BufReader<HttpStream>);

impl Plaintext for AgentStream {
    /// TLS updates its keys itself.
    fn is_close_due(&self) -> bool {
        false
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncBufRead for AgentStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().0).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        Pin::new(&mut self.0).consume(len);
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
