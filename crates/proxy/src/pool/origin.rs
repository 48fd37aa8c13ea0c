//! One origin: its address, its health, its connections, and its responses.

use std::io;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use http::{Request, Response, StatusCode, Version};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use watari_balance::{Candidate, ResponseAverage};
use watari_body::BoxedRequest;
use watari_handover::governor::{Availability, OriginId, OriginView};

use crate::exchange::address::OriginAddress;
use crate::exchange::client::Client;
use crate::exchange::error::ExchangeError;
use crate::exchange::failure::{BadSwitch, Failure};
use crate::exchange::fields::{self, BadLength};
use crate::exchange::limits::Limits;
use crate::observe::metrics::{Metrics, OriginMetrics};
use crate::observe::progress::bytes_min;
use crate::pool::health::{Name, OriginHealth};
use crate::pool::resolve::{Addresses, Resolution};
use crate::pool::response_body::ResponseBody;
use crate::transport::connect::{Connected, Connector, InvalidTransport, Transport};
use crate::transport::connections::{Connection, Connections, Lease, Stream};
use crate::transport::content::ResponseContent;
use crate::transport::http1::{Exchange, Http1};
use crate::transport::request;
use crate::transport::tunnel::Tunnel;
use crate::transport::upgrade::Upgrade;
use crate::transport::upload::Upload;

/// An origin of a pool.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    pub address: OriginAddress,
    /// Its share of the load in relation to others: 1 to [`watari_balance::WEIGHT_MAX`].
    pub weight: u32,
}

impl From<OriginAddress> for OriginConfig {
    fn from(address: OriginAddress) -> Self {
        Self { address, weight: 1 }
    }
}

/// The outcome of a request to an origin.
#[expect(clippy::large_enum_variant, reason = "nearly all values are responses")]
pub(crate) enum Outcome {
    /// The head of the response has arrived.
    Answered(Response<ResponseBody>),
    /// The origin has not seen the request. Another one may get it.
    Untouched(Failure),
    /// The origin may have acted on the request.
    Failed(Failure),
}

/// An origin and the connections to it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) address: OriginAddress,
    limits: Arc<Limits>,
    metrics: OriginMetrics,
    addresses: Arc<Addresses>,
    connector: Connector,
    connections: Arc<Connections>,
    weight: u32,
    pub(super) health_of: Arc<OriginHealth>,
    draining: AtomicBool,
    /// Whether a connection for the next request is being made.
    preparing: AtomicBool,
    load: Mutex<Load>,
}

/// The load of an origin, measured by the requests to it.
#[derive(Debug, Default)]
struct Load {
    response: ResponseAverage,
    /// The bytes of bodies, and when they were last counted.
    counted: Option<(u64, Instant)>,
    /// Bytes per second.
    rate: u64,
}

impl Origin {
    pub(super) fn new(
        config: OriginConfig,
        health_of: Arc<OriginHealth>,
        transport: &Transport,
        resolution: Resolution,
        limits: &Arc<Limits>,
        metrics: &Metrics,
    ) -> Result<Self, InvalidTransport> {
        let OriginConfig { address, weight } = config;
        Ok(Self {
            metrics: metrics.of_origin(&address),
            addresses: Arc::new(Addresses::new(&address, resolution, Instant::now())),
            connector: Connector::new(&address, transport)?,
            address,
            weight,
            health_of,
            limits: Arc::clone(limits),
            connections: Arc::new(Connections::new(limits)),
            draining: AtomicBool::new(false),
            preparing: AtomicBool::new(false),
            load: Mutex::default(),
        })
    }

    /// Requests go to origins of a lower rank first. A draining origin ranks before one that is down.
    pub(crate) fn rank(&self, now: Instant) -> (bool, bool) {
        (!self.health_of.is_up(now.into_std()), self.is_draining())
    }

    /// The state of this origin for the selection of an origin.
    pub(super) fn candidate(&self, now: Instant) -> Candidate<Name> {
        Candidate {
            weight: self.weight,
            slow_start: self.health_of.slow_start(now.into_std()),
            connections: self.connections.in_flight(),
            response: self.response(now),
            ..Candidate::new(self.health_of.name.clone())
        }
    }

    /// Whether it is being drained.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Begins or ends draining. A draining origin gets no new requests while there are others, and transfers that can
    /// continue elsewhere do so.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// The average time until it responds.
    pub(crate) fn response(&self, now: Instant) -> Duration {
        self.load().response.at(now.into_std())
    }

    /// The state of this origin for the governor of transfers.
    pub(crate) fn view(&self, id: OriginId, now: Instant) -> OriginView {
        let availability = match self.rank(now) {
            (true, _) => Availability::Down,
            (false, true) => Availability::Draining,
            (false, false) => Availability::Up,
        };
        let connections = self.connections.in_flight();
        let rate = self.load().count(self.metrics.body_bytes.get(), now);
        OriginView { id, availability, weight: self.weight, connections, response: self.response(now), rate }
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `request` and waits for the head of its response. `upload` is the progress of its body, if it has one.
    /// After [`Outcome::Untouched`], and if it can be repeated, the request is as before.
    pub(crate) async fn exchange(
        &self,
        request: &mut BoxedRequest,
        upload: Option<&Upload>,
        client: &Client,
    ) -> Outcome {
        let Some(permit) = self.connections.permit() else {
            return Outcome::Untouched(Failure::Saturated(self.address.clone()));
        };
        let now = Instant::now();
        self.follow_name(now);
        let watch = self.health_of.watch(now.into_std());
        let mut outcome = self.attempt(request, upload, client, permit, now).await;
        match &mut outcome {
            Outcome::Answered(response) => {
                let status = response.status();
                response.body_mut().watch(watch, status);
            }
            Outcome::Untouched(failure) | Outcome::Failed(failure) => watch.ended(failure.outcome()),
        }
        outcome
    }

    async fn attempt(
        &self,
        request: &mut BoxedRequest,
        upload: Option<&Upload>,
        client: &Client,
        permit: OwnedSemaphorePermit,
        now: Instant,
    ) -> Outcome {
        let upgrade = request.head.extensions.get::<Upgrade>().cloned();
        // A switched connection cannot be used again, and an idle one may be closed at this moment. So an upgrade gets
        // a new connection.
        let kept = if upgrade.is_none() { self.connections.take(now) } else { None };
        if let Some(connection) = kept {
            match self.send(connection, request, upload, now).await {
                Sent::Answered(response) => return self.answered(response, self.lease(permit), None),
                Sent::Unsent(_) => {}
                // The origin closed the idle connection at the moment of the write.
                Sent::Lost(error) if error.is_reset() && request::is_repeatable(&request.head, upload) => {}
                Sent::Lost(error) => return Outcome::Failed(Failure::of_exchange(&self.address, error)),
                Sent::Failed(failure) => return Outcome::Failed(failure),
            }
        }
        // Boxed: this large future is seldom needed, and would enlarge the future of every request.
        let connection = match Box::pin(self.connect(client, upgrade.is_some())).await {
            Ok(connection) => connection,
            Err(failure) => return Outcome::Untouched(failure),
        };
        match self.send(connection, request, upload, Instant::now()).await {
            Sent::Answered(response) => self.answered(response, self.lease(permit), upgrade),
            Sent::Unsent(error) => Outcome::Untouched(Failure::Closed(self.address.clone(), error)),
            Sent::Lost(error) => Outcome::Failed(Failure::of_exchange(&self.address, error)),
            Sent::Failed(failure) => Outcome::Failed(failure),
        }
    }

    fn lease(&self, permit: OwnedSemaphorePermit) -> Lease {
        Lease::new(&self.connections, self.connector.is_for_all(), permit)
    }

    /// Resolves the origin's name again in the background, if its addresses are older than the interval.
    fn follow_name(&self, now: Instant) {
        if self.addresses.is_due(now) {
            let (addresses, connections) = (Arc::clone(&self.addresses), Arc::clone(&self.connections));
            tokio::spawn(async move { connections.keep_only(addresses.refresh().await) });
        }
    }

    /// Makes a new connection.
    async fn connect(&self, client: &Client, http1_only: bool) -> Result<Connection, Failure> {
        let failed = match timeout(self.limits.connect_timeout, self.open(Some(client), http1_only)).await {
            Ok(Ok(connected)) => {
                return Ok(self.connections.add(connected, self.connector.is_for_all(), Instant::now()));
            }
            Ok(Err(error)) if error.kind() != io::ErrorKind::TimedOut => Failure::Connect(self.address.clone(), error),
            Ok(Err(_)) | Err(_) => Failure::ConnectTimeout(self.address.clone()),
        };
        self.metrics.connect_errors.inc();
        Err(failed)
    }

    /// Makes a new connection. `client` of `None`: for the proxy itself.
    pub(crate) async fn open(&self, client: Option<&Client>, http1_only: bool) -> io::Result<Connected> {
        let socket = self.addresses.connect(self.limits.connect_timeout).await?;
        self.connector.connect(socket, client, http1_only).await
    }

    /// The limits, which include the timeouts of responses.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Closes idle connections, without end: those that are too old, and those that the origin has closed.
    pub(crate) async fn keep_tidy(self: Arc<Self>) {
        loop {
            sleep(self.limits.idle_timeout.max(TIDY_INTERVAL_MIN)).await;
            self.connections.tidy(Instant::now());
        }
    }

    /// Makes a connection in advance for transfers that may have to continue here without delay. If that fails, the
    /// next attempt is after [`PREPARED_AGAIN`].
    pub(crate) fn prepare(self: &Arc<Self>) {
        if !self.connector.is_for_all() || self.connections.has_spare(Instant::now()) {
            return;
        }
        if self.preparing.swap(true, Ordering::Relaxed) {
            return;
        }
        let origin = Arc::clone(self);
        tokio::spawn(async move {
            match timeout(origin.limits.connect_timeout, origin.open(None, false)).await {
                Ok(Ok(connected)) => origin.connections.keep(connected, Instant::now()),
                Ok(Err(_)) | Err(_) => sleep(PREPARED_AGAIN).await,
            }
            origin.preparing.store(false, Ordering::Relaxed);
        });
    }

    async fn send(
        &self,
        connection: Connection,
        request: &mut BoxedRequest,
        upload: Option<&Upload>,
        now: Instant,
    ) -> Sent {
        match connection {
            Connection::Http1(connection) => self.send_http1(connection, request, upload, now).await,
            // Boxed: it would enlarge the future of every request.
            Connection::Http2(stream) => Box::pin(self.send_http2(stream, request, upload, now)).await,
        }
    }

    async fn send_http1(
        &self,
        connection: Http1,
        request: &mut BoxedRequest,
        upload: Option<&Upload>,
        now: Instant,
    ) -> Sent {
        let wanted = upload.filter(|_| request.head.headers.contains_key(EXPECT)).map(Upload::wanted);
        let Ok(mut exchange) = Exchange::new(connection, request, wanted) else {
            return Sent::Failed(Failure::BadRequest("its head cannot be sent"));
        };
        let answer = self.answer(exchange.response(), upload, now).await;
        match answer {
            Ok(Ok(head)) => Sent::Answered(Response::from_parts(head, ResponseContent::Http1(exchange))),
            Ok(Err(error)) if error.is_reset() => match exchange.into_untouched() {
                Some(body) => {
                    request.body = body;
                    Sent::Unsent(error)
                }
                None => Sent::Lost(error),
            },
            Ok(Err(error)) => Sent::Lost(error),
            Err(failure) => Sent::Failed(failure),
        }
    }

    async fn send_http2(
        &self,
        mut stream: Stream,
        request: &mut BoxedRequest,
        upload: Option<&Upload>,
        now: Instant,
    ) -> Sent {
        if let Some(upload) = upload {
            upload.send();
        }
        let head = request::for_http2(&request.head, self.address.is_tls());
        let body = mem::replace(&mut request.body, watari_body::empty());
        let answer = stream.sender.try_send_request(Request::from_parts(head, body));
        match self.answer(answer, upload, now).await {
            Ok(Ok(response)) => {
                Sent::Answered(response.map(|incoming| ResponseContent::Http2 { incoming, _stream: stream }))
            }
            Ok(Err(mut error)) => match error.take_message() {
                Some(unsent) => {
                    request.body = unsent.into_body();
                    Sent::Unsent(ExchangeError::Http2(error.into_error()))
                }
                None => Sent::Lost(ExchangeError::Http2(error.into_error())),
            },
            Err(failure) => Sent::Failed(failure),
        }
    }

    /// Waits for the head of the response, or an error of its exchange. The request is sent at `now`.
    async fn answer<T, E>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
        upload: Option<&Upload>,
        now: Instant,
    ) -> Result<Result<T, E>, Failure> {
        let mut since = now;
        let mut answer = pin!(answer);
        let uploaded_min = bytes_min(self.limits.body_bytes_per_s_min, self.limits.response_timeout);
        let result = loop {
            match timeout_at(since + self.limits.response_timeout, answer.as_mut()).await {
                Ok(result) => break result,
                Err(_) if upload.is_some_and(|upload| upload.has_advanced(uploaded_min)) => since = Instant::now(),
                Err(_) if upload.is_some_and(Upload::is_waiting) => return Err(Failure::UploadStalled),
                Err(_) => return Err(Failure::ResponseTimeout(self.address.clone())),
            }
        };
        if result.is_ok() {
            let answered = Instant::now();
            self.load().response.observe(answered.into_std(), answered - now);
        }
        Ok(result)
    }

    fn answered(&self, response: Response<ResponseContent>, lease: Lease, upgrade: Option<Upgrade>) -> Outcome {
        if response.status().is_informational() {
            return self.switched(response, lease, upgrade).map_or_else(Outcome::Failed, Outcome::Answered);
        }
        if upgrade.is_some_and(|upgrade| !upgrade.is_refused_by(response.status())) {
            return Outcome::Failed(Failure::NotSwitched(self.address.clone()));
        }
        let (mut head, content) = response.into_parts();
        if head.version == Version::HTTP_2 {
            match fields::settle_length(&mut head.headers) {
                Ok(()) => {}
                Err(BadLength::Differ) => return Outcome::Failed(Failure::TwoLengths(self.address.clone())),
                Err(BadLength::Invalid) => return Outcome::Failed(Failure::BadLength(self.address.clone())),
            }
        }
        self.metrics.count_answer(head.status);
        fields::remove_hop_by_hop(&mut head.headers);
        if head.status == StatusCode::NO_CONTENT {
            // A response without content must not have a length (RFC 9110, section 8.6).
            head.headers.remove(CONTENT_LENGTH);
        }
        head.version = Version::HTTP_11;
        let body = ResponseBody::new(content, lease, &self.limits, self.metrics.of_body());
        Outcome::Answered(Response::from_parts(head, body))
    }
}

/// Protocol switches.
impl Origin {
    /// Handles a 101, the only informational response that reaches this point.
    fn switched(
        &self,
        response: Response<ResponseContent>,
        lease: Lease,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let failed = |cause| Failure::BadSwitch(self.address.clone(), cause);
        let upgrade = upgrade.ok_or_else(|| failed(BadSwitch::Unasked))?;
        let (mut head, content) = response.into_parts();
        upgrade.accept(&mut head).map_err(failed)?;
        let switched = content.into_switched().ok_or_else(|| failed(BadSwitch::Early))?;
        self.metrics.count_answer(StatusCode::SWITCHING_PROTOCOLS);
        let mut response = Response::from_parts(head, ResponseBody::none(self.metrics.of_body()));
        Tunnel::new(switched, lease.into_permit()).lay(&mut response);
        Ok(response)
    }
}

/// The outcome of a request on a connection.
enum Sent {
    Answered(Response<ResponseContent>),
    /// The connection was closed before a byte was written.
    Unsent(ExchangeError),
    /// The connection failed after the request was written and before the head of the response arrived.
    Lost(ExchangeError),
    Failed(Failure),
}

impl Load {
    /// The current rate, when `bytes` were received in all.
    fn count(&mut self, bytes: u64, now: Instant) -> u64 {
        let (before, since) = *self.counted.get_or_insert((bytes, now));
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= RATE_WINDOW {
            let rate = u128::from(bytes - before) * 1_000_000 / elapsed.as_micros();
            self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.counted = Some((bytes, now));
        }
        self.rate
    }
}

/// The time over which a rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// The pause after a connection in advance has failed.
const PREPARED_AGAIN: Duration = Duration::from_secs(5);
/// The least interval at which idle connections are looked through.
const TIDY_INTERVAL_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::pool::{self, PoolConfig};

    const WAIT_MAX: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn what_was_prepared_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = PoolConfig::plain("pool", [address]);
        let origin = pool::origins(&config, &Metrics::default()).unwrap().remove(0);

        origin.prepare();
        origin.prepare();
        let (mut socket, _) = timeout(WAIT_MAX, listener.accept()).await.unwrap().unwrap();
        let begun = Instant::now();
        while !origin.connections.has_spare(Instant::now()) {
            assert!(begun.elapsed() < WAIT_MAX);
            tokio::task::yield_now().await;
        }
        origin.prepare();

        let served = tokio::spawn(async move {
            let read = socket.read(&mut [0; 1024]).await.unwrap();
            socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            read
        });
        let mut request = Request::get("/").header("host", "a").body(watari_body::empty()).unwrap().into();
        let client = Client::new("192.0.2.7:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let outcome = origin.exchange(&mut request, None, &client).await;
        assert!(matches!(outcome, Outcome::Answered(response) if response.status() == StatusCode::NO_CONTENT));
        assert!(served.await.unwrap() > 0);
        assert!(timeout(Duration::ZERO, listener.accept()).await.is_err(), "there is another connection");
    }
}
