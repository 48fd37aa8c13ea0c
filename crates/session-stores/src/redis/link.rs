//! The connection to a server, which is made again whenever it is lost.

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

/// Where the connection is, if there is one.
#[derive(Default)]
pub(super) struct Link(Mutex<Option<Connection>>);

/// A connection that commands can be sent on.
#[derive(Clone)]
pub(super) struct Connection {
    commands: MultiplexedConnection,
    received: Received,
    /// Whether it was given up.
    lost: Arc<Notify>,
}

/// Moves bytes for a connection, until that ends.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All that it takes to have a connection may take so long.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long to wait before the next attempt: at first, and twice as long each time, up to ..
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// .. so long.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// After a connection that has lasted so long, attempts begin anew.
const LASTING: Duration = Duration::from_secs(4);

impl Link {
    pub(super) fn connection(&self) -> Option<Connection> {
        self.lock().clone()
    }

    /// Gives this connection up, if it is still the one.
    pub(super) fn lose(&self, connection: &Connection, why: &RedisError) {
        let mut current = self.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.lost, &connection.lost)) {
            *current = None;
            warn!(%why, "the connection to the Redis server is given up");
            connection.lost.notify_one();
        }
    }

    /// Has this connection until it ends or is given up.
    async fn hold(&self, connection: Connection, driver: Driver) {
        let lost = Arc::clone(&connection.lost);
        *self.lock() = Some(connection);
        tokio::select! {
            () = driver => warn!("the Redis server has ended the connection"),
            () = lost.notified() => {}
        }
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Sends commands, and returns their answers, one for each.
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
                // Once: it may be away for long.
                if std::mem::take(&mut was_up) {
                    warn!(server = %settings, %cause, "the Redis server is away");
                }
            }
        }
        pause = if begun.elapsed() > LASTING { PAUSE_MIN } else { pause };
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum NoConnection {
    #[error("it did not answer within {} s", CONNECT_MAX.as_secs())]
    TimedOut,
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Connects, says who we are, and sees that the server answers.
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
    // Calls have limits of their own.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (commands, driver) = MultiplexedConnection::new_with_config(&settings.greeting(), stream, config).await?;
    Ok((commands, received, Box::pin(driver)))
}

/// A server that accepts and says nothing is no server. One on which this user may do only what we need may refuse to play.
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
