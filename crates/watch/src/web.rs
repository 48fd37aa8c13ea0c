//! The page: the [`Board`] for people with a browser.
//!
//! ```text
//!   Board ── once a second ──▶ tick: its JSON, as shared bytes ──▶ GET /api/live: one event each second to each viewer
//!     │                                                     └────▶ GET /api/board: the latest of them
//!     └────────── request for one server ───────────────────────▶ GET /api/course: the stored seconds
//! ```
//!
//! # Invariants
//!
//! 1. The board is encoded as JSON once a second, for any number of viewers.
//! 2. The server stores nothing for a viewer except the bytes on their way. A slow reader gets the latest tick next,
//!    and misses those between. The endpoint closes the connection of a viewer that reads nothing (`LIMITS`).
//! 3. The page loads scripts and styles only from this server (`CONTENT_SECURITY_POLICY`), and treats the text of
//!    sensors as text.
//! 4. The server answers only requests for its own names (`host`). So a script of another site cannot read the board
//!    through DNS rebinding.

mod assets;
mod host;
mod live;
#[cfg(all(test, feature = "page"))]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY as CSP, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watari_http_endpoint::{Endpoint, Handler, Limits};

use crate::board::{Board, CourseView};

/// The data of the page.
#[derive(Debug, Clone)]
pub struct Site {
    /// For requests for the past of single servers.
    pub board: Arc<Mutex<Board>>,
    /// The latest [`tick`]; a new one is sent each second.
    pub ticks: watch::Receiver<Bytes>,
    /// Host names that the server answers to, in addition to `localhost` and addresses.
    pub names: Vec<String>,
}

/// Whether this build has the files of the page (feature `page`).
pub const HAS_PAGE: bool = cfg!(feature = "page");

const LIMITS: Limits = Limits {
    connections_max: 256,
    head_timeout: Duration::from_secs(10),
    buffer_max: 64 << 10,
    keep_alive: true,
    // A live stream lasts.
    connection_timeout: None,
    write_timeout: Some(Duration::from_secs(20)),
};
/// The interval of comments on a live stream without events.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// The resources that the page may load.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const JSON: &str = "application/json";

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// The board as JSON, which each viewer gets once a second. It is encoded once for all of them.
pub fn tick(board: &Mutex<Board>) -> Bytes {
    let board = board.lock().unwrap_or_else(PoisonError::into_inner);
    Bytes::from(serde_json::to_vec(&board.view()).expect("plain values"))
}

/// Serves the page until `shutdown` is cancelled. Must be called in a tokio runtime.
pub fn serve(listener: TcpListener, site: Site, shutdown: CancellationToken) -> io::Result<()> {
    let page = Page { site, comment_interval: COMMENT_INTERVAL, shutdown: shutdown.clone() };
    Endpoint::new("viewers of the page", LIMITS, page, shutdown).listen_std(listener).map(drop)
}

struct Page {
    site: Site,
    comment_interval: Duration,
    /// Ends live streams.
    shutdown: CancellationToken,
}

impl Handler for Page {
    type Body = Body;

    fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        guarded(self.resource(request))
    }
}

impl Page {
    fn resource(&self, request: &Request<Incoming>) -> Response<Body> {
        if !self.is_for_us(request) {
            return text(
                StatusCode::MISDIRECTED_REQUEST,
                "the page is not served under this host name; --page-host adds one\n",
            );
        }
        let Some(resource) = Resource::find(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "not found; the page is at /\n");
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match resource {
            Resource::Asset(asset) => asset.respond(request).map(Either::Left),
            Resource::Board => json(self.site.ticks.borrow().clone()),
            Resource::Course => self.course(request.uri().query().unwrap_or_default()),
            Resource::Live if request.method() == Method::HEAD => live::head(Either::Left(Full::default())),
            Resource::Live => live::respond(self.site.ticks.clone(), self.comment_interval, self.shutdown.clone()),
        }
    }

    /// Whether the request is for a name of this server, in `Host` and in an absolute target (RFC 9112, section 3.2.2).
    fn is_for_us(&self, request: &Request<Incoming>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = hosts.next().and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let is_ours = |host: &Authority| host::is_ours(host, &self.site.names);
        hosts.next().is_none() && host.as_ref().is_some_and(is_ours) && request.uri().authority().is_none_or(is_ours)
    }

    fn course(&self, query: &str) -> Response<Body> {
        let Some((sensor, server)) = parse_query(query) else {
            return text(StatusCode::BAD_REQUEST, "expected ?sensor=NAME&server=ADDRESS:PORT\n");
        };
        let board = self.site.board.lock().unwrap_or_else(PoisonError::into_inner);
        let course = board.course(&sensor, &server);
        drop(board);
        course.map_or_else(|| text(StatusCode::NOT_FOUND, "no such server is watched\n"), |course| written(&course))
    }
}

/// A resource of the page.
enum Resource {
    Asset(&'static assets::Asset),
    Board,
    Course,
    Live,
}

impl Resource {
    fn find(path: &str) -> Option<Self> {
        match path {
            "/api/board" => Some(Self::Board),
            "/api/course" => Some(Self::Course),
            "/api/live" => Some(Self::Live),
            path => assets::find(path).map(Self::Asset),
        }
    }
}

/// The sensor and the server of a query.
fn parse_query(query: &str) -> Option<(String, SocketAddr)> {
    let (mut sensor, mut server) = (None, None);
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "sensor" => sensor = Some(value.into_owned()),
            "server" => server = value.parse().ok(),
            _ => {}
        }
    }
    Some((sensor?, server?))
}

fn written(course: &CourseView) -> Response<Body> {
    json(serde_json::to_vec(course).expect("plain values").into())
}

fn json(body: Bytes) -> Response<Body> {
    content(JSON, body)
}

fn text(status: StatusCode, sentence: &'static str) -> Response<Body> {
    let mut response = content("text/plain; charset=utf-8", Bytes::from_static(sentence.as_bytes()));
    *response.status_mut() = status;
    response
}

fn content(content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds headers that restrict how browsers use the response.
fn guarded(mut response: Response<Body>) -> Response<Body> {
    const GUARDS: [(HeaderName, HeaderValue); 4] = [
        (CSP, CONTENT_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ];
    response.headers_mut().extend(GUARDS);
    response
}
