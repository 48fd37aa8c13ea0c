//! The connection to a server. It is made again when it is lost.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Pipeline, RedisError as ClientError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::counters::Counters;
use super::stream::{Bounded, Received};
use super::{RedisError, RedisSettings};

/// The connection, if there is one.
#[derive(Default)]
pub(super) struct Link(Mutex<Option<Connection>>);

/// A connection for commands.
#[derive(Clone)]
pub(super) struct Connection {
    commands: MultiplexedConnection,
    received: Received,
    /// Notified when the connection is to be closed.
    lost: Arc<Notify>,
}

/// Moves bytes for a connection until it ends.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The timeout of all steps to connect.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// The first pause before the next attempt. Each pause is twice as long as the one before, up to ..
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// .. this limit.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// After a connection that lasted this long, pauses begin again with the shortest.
const LASTING: Duration = Duration::from_secs(4);

impl Link {
    pub(super) fn connection(&self) -> Option<Connection> {
        self.lock().clone()
    }

    /// Closes this connection, if it is still the current one.
    pub(super) fn lose(&self, connection: &Connection, why: &RedisError) {
        let mut current = self.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.lost, &connection.lost)) {
            *current = None;
            warn!(%why, "closed the connection to the Redis server");
            connection.lost.notify_one();
        }
    }

    /// Publishes this connection until it ends or is closed by [`Self::lose`].
    async fn hold(&self, connection: Connection, driver: Driver) {
        let lost = Arc::clone(&connection.lost);
        *self.lock() = Some(connection);
        tokio::select! {
            () = driver => warn!("the Redis server closed the connection"),
            () = lost.notified() => {}
        }
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Sends commands, and returns one response for each.
    pub(super) async fn send(&mut self, commands: &Pipeline) -> Result<Vec<Value>, ClientError> {
        let answers = self.commands.send_packed_commands(commands, 0, commands.len()).await?;
        self.received.reset();
        Ok(answers)
    }
}

/// Keeps a connection for as long as it is polled.
pub(super) async fn keep(settings: Arc<RedisSettings>, link: Arc<Link>, counters: Arc<Counters>) {
    let (mut pause, mut was_up) = (PAUSE_MIN, true);
    loop {
        let begun = Instant::now();
        match timeout(CONNECT_MAX, connect(&settings)).await.unwrap_or(Err(NoConnection::TimedOut)) {
            Ok((connection, driver)) => {
                info!(server = %settings, "connected to the Redis server");
                counters.connected();
                link.hold(connection, driver).await;
                was_up = true;
            }
            Err(cause) => {
                counters.not_connected();
                // Logs only the first failure, because the server may be away for long.
                if std::mem::take(&mut was_up) {
                    warn!(server = %settings, %cause, "no connection to the Redis server");
                }
            }
        }
        pause = if begun.elapsed() > LASTING { PAUSE_MIN } else { pause };
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
enum NoConnection {
    #[error("it did not answer within {} s", CONNECT_MAX.as_secs())]
    TimedOut,
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Connects, authenticates, and checks that the server responds.
async fn connect(settings: &RedisSettings) -> Result<(Connection, Driver), NoConnection> {
    let stream = TcpStream::connect((settings.host.as_str(), settings.port)).await?;
    stream.set_nodelay(true)?;
    let (commands, received, mut driver) = match &settings.tls {
        Some(tls) => greet(settings, tls.connect(&settings.host, stream).await?).await?,
        None => greet(settings, stream).await?,
    };
    let mut connection = Connection { commands, received, lost: Arc::default() };
    tokio::select! {
        () = &mut driver => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
        alive = prove(&mut connection) => alive?,
    }
    Ok((connection, driver))
}

async fn greet<S>(settings: &RedisSettings, stream: S) -> Result<(MultiplexedConnection, Received, Driver), ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let received = Received::default();
    let stream = Bounded::new(stream, received.clone());
    // Each call has its own timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (commands, driver) = MultiplexedConnection::new_with_config(&settings.greeting(), stream, config).await?;
    Ok((commands, received, Box::pin(driver)))
}

/// Checks that the server responds to PING. A user with only the permissions that we need may be denied PING, which is
/// accepted.
async fn prove(connection: &mut Connection) -> Result<(), ClientError> {
    let mut ping = Pipeline::new();
    ping.cmd("PING");
    for answer in connection.send(&ping).await? {
        match answer {
            Value::ServerError(error) if error.code() != "NOPERM" => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
