//! The server of the administration socket, in the node.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Answer, Question, Topic, VERSION};

/// The longest question, in bytes. The longest known one purges a URL of 8 KiB.
const QUESTION_LEN_MAX: u64 = 16 * 1024;
/// The limit for a whole exchange. An upgrade takes longest: a process starts, and gets all connections.
const EXCHANGE_MAX: Duration = Duration::from_mins(2);
/// Exchanges at the same time. Others wait in the socket's backlog.
const EXCHANGES_MAX: usize = 16;
const BACKLOG: i32 = 64;

/// A listening administration socket. Its file is removed when this value is dropped.
pub(crate) struct Server {
    listener: UnixListener,
    file: SocketFile,
}

/// Another handle of an administration socket, for a successor of this process.
pub(crate) struct Handle {
    pub(crate) listener: OwnedFd,
    pub(crate) path: PathBuf,
    is_of_another: Arc<AtomicBool>,
}

impl Handle {
    /// The successor has the socket. This process does not remove its file.
    pub(crate) fn passed_on(&self) {
        self.is_of_another.store(true, Ordering::Relaxed);
    }
}

/// The node cannot make the socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("another process listens on the admin socket {}", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    #[error(
        "cannot make the admin socket {}: there is no directory {}; make it (systemd: RuntimeDirectory=watari), or set admin in [node]",
        path.display(), directory.display()
    )]
    NoDirectory { path: PathBuf, directory: PathBuf },
    #[error("cannot make the admin socket {}: {cause} (admin in [node])", path.display())]
    System { path: PathBuf, cause: io::Error },
}

/// Refuses a path whose directory does not exist.
pub(crate) fn require_directory(path: &Path) -> Result<(), BindError> {
    let missing = |directory: &Path| BindError::NoDirectory { path: path.to_owned(), directory: directory.to_owned() };
    missing_directory(path).map_or(Ok(()), |directory| Err(missing(directory)))
}

/// The directory of `path`, if it does not exist.
pub(crate) fn missing_directory(path: &Path) -> Option<&Path> {
    path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir())
}

/// Removes the file of the socket when it is dropped.
struct SocketFile {
    path: PathBuf,
    /// Another process has the socket: the predecessor of this one, or its successor.
    is_of_another: Arc<AtomicBool>,
}

impl Server {
    /// Listens on the socket of this process's predecessor, whose file is at `path`. The file is the predecessor's until
    /// [`Server::own`]. Must be called in a tokio runtime.
    pub(crate) fn inherit(listener: OwnedFd, path: &Path) -> Result<Self, BindError> {
        let listener = UnixListener::from_std(listener.into());
        let listener = listener.map_err(|cause| BindError::System { path: path.to_owned(), cause })?;
        let is_of_another = Arc::new(AtomicBool::new(true));
        Ok(Self { listener, file: SocketFile { path: path.to_owned(), is_of_another } })
    }

    /// The file of the socket is this process's.
    pub(crate) fn own(&self) {
        self.file.is_of_another.store(false, Ordering::Relaxed);
    }

    /// Another handle of the socket.
    pub(crate) fn handle(&self) -> io::Result<Handle> {
        let listener = self.listener.as_fd().try_clone_to_owned()?;
        let SocketFile { path, is_of_another } = &self.file;
        Ok(Handle { listener, path: path.clone(), is_of_another: is_of_another.clone() })
    }

    /// Listens on `path`, for this user alone, and replaces a socket left by a process that has ended. Must be called
    /// in a tokio runtime.
    pub(crate) fn bind(path: &Path) -> Result<Self, BindError> {
        let system = |cause| BindError::System { path: path.to_owned(), cause };
        require_directory(path)?;
        remove_stale(path)?;
        let socket = private_socket(path).map_err(system)?;
        let file = SocketFile { path: path.to_owned(), is_of_another: Arc::default() };
        let listener = UnixListener::from_std(socket.into()).map_err(system)?;
        Ok(Self { listener, file })
    }

    /// Answers questions until `shutdown` is cancelled.
    pub(crate) async fn serve<F, A>(self, answer: F, shutdown: CancellationToken)
    where
        F: Fn(Topic) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send,
    {
        let answer = Arc::new(answer);
        let exchanges = Arc::new(Semaphore::new(EXCHANGES_MAX));
        loop {
            let permit = Arc::clone(&exchanges).acquire_owned().await;
            let stream = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match stream {
                Ok((stream, _)) => {
                    let answer = Arc::clone(&answer);
                    tokio::spawn(async move {
                        let _permit = permit;
                        // A client that leaves early or is too slow does no harm.
                        let _ = timeout(EXCHANGE_MAX, exchange(stream, &*answer)).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the admin socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // The last order may be the cause of the shutdown, and its answer is on its way. Each exchange has a limit.
        drop(self.listener);
        let _ = exchanges.acquire_many(EXCHANGES_MAX as u32).await;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_of_another.load(Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

async fn exchange<A>(mut stream: UnixStream, answer: &(impl Fn(Topic) -> A + Sync)) -> io::Result<()>
where
    A: Future<Output = Answer> + Send,
{
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    let read = BufReader::new(reader.take(QUESTION_LEN_MAX)).read_line(&mut line).await;
    let answer = match read {
        Ok(_) => respond(&line, answer).await,
        Err(error) => Answer::Error(format!("cannot read the question: {error}")),
    };
    // Aside, because an answer may have megabytes.
    let bytes = spawn_blocking(move || serde_json::to_vec(&answer)).await.map_err(io::Error::other)??;
    writer.write_all(&bytes).await?;
    writer.write_all(b"\n").await?;
    writer.shutdown().await
}

async fn respond<A: Future<Output = Answer>>(line: &str, answer: &impl Fn(Topic) -> A) -> Answer {
    if !line.ends_with('\n') {
        return Answer::Error(format!("a question is one line of at most {QUESTION_LEN_MAX} bytes"));
    }
    match serde_json::from_str::<Question>(line) {
        Ok(question) if question.version == VERSION => answer(question.topic).await,
        Ok(question) => Answer::Error(format!(
            "this node supports version {VERSION} of the admin protocol, not {}",
            question.version
        )),
        Err(error) => Answer::Error(format!("this node does not support the question: {error}")),
    }
}

/// Removes a socket on which no process listens any more.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let system = |cause| BindError::System { path: path.to_owned(), cause };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(BindError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(system),
        Err(error) => Err(system(error)),
        Ok(_) => Err(BindError::InUse(path.to_owned())),
    }
}

/// The file gets the mode of the socket that is bound to it (unix(7)). So other users cannot connect at any moment.
fn private_socket(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    rustix::fs::fchmod(socket.as_fd(), Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener as StdUnixListener;

    use tokio::io::AsyncReadExt;
    use watari_values::NodeName;

    use super::*;
    use crate::admin::{AskError, ask};

    async fn nodes(topic: Topic) -> Answer {
        match topic {
            Topic::Nodes => Answer::Nodes(Vec::new()),
            Topic::Drain { node } if node.as_str() == "a1" => Answer::Done,
            other => Answer::Error(format!("no {other:?} here")),
        }
    }

    struct Running {
        dir: tempfile::TempDir,
        shutdown: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    impl Running {
        fn start() -> Self {
            let (dir, shutdown) = (tempfile::tempdir().unwrap(), CancellationToken::new());
            let server = Server::bind(&dir.path().join("admin.sock")).unwrap();
            let task = tokio::spawn(server.serve(nodes, shutdown.clone()));
            Self { dir, shutdown, task }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("admin.sock")
        }

        async fn request(&self, line: &[u8]) -> Answer {
            let mut stream = UnixStream::connect(self.path()).await.unwrap();
            stream.write_all(line).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer.last(), Some(&b'\n'));
            serde_json::from_slice(&answer).unwrap()
        }
    }

    #[tokio::test]
    async fn questions_are_answered() {
        let running = Running::start();
        assert_eq!(ask(&running.path(), Topic::Nodes).await.unwrap(), Answer::Nodes(Vec::new()));
        let refused = ask(&running.path(), Topic::Status).await.unwrap_err();
        assert!(matches!(refused, AskError::Refused(sentence) if sentence == "no Status here"));
        let drain = |name| Topic::Drain { node: NodeName::new(name).unwrap() };
        assert_eq!(ask(&running.path(), drain("a1")).await.unwrap(), Answer::Done);
        let refused = ask(&running.path(), drain("a2")).await.unwrap_err();
        assert!(matches!(refused, AskError::Refused(sentence) if sentence == "no Drain { node: a2 } here"));
    }

    #[tokio::test]
    async fn what_is_no_question_is_answered_with_an_error() {
        let running = Running::start();
        let long = vec![b'x'; QUESTION_LEN_MAX as usize + 1];
        let cases: [(&[u8], &str); 10] = [
            (b"\n", "does not support the question"),
            (b"{\"version\":1,\"topic\":\"moon\"}\n", "unknown variant `moon`"),
            (b"{\"version\":1,\"topic\":\"nodes\",\"x\":1}\n", "unknown field `x`"),
            (b"{\"version\":1,\"topic\":\"drain\"}\n", "expected struct variant"),
            (b"{\"version\":1,\"topic\":{\"drain\":{\"node\":\"A1\"}}}\n", "a node name is"),
            (b"{\"version\":1,\"topic\":{\"drain\":{\"node\":\"a1\",\"x\":1}}}\n", "unknown field `x`"),
            (b"{\"version\":1,\"topic\":{\"move\":{\"connection\":\"1\",\"node\":\"a1\"}}}\n", "a connection id is"),
            (b"{\"version\":2,\"topic\":\"nodes\"}\n", "supports version 1"),
            (b"\xff\n", "cannot read the question"),
            (&long[..QUESTION_LEN_MAX as usize], "one line of at most"),
        ];
        for (line, expected) in cases {
            match running.request(line).await {
                Answer::Error(sentence) => assert!(sentence.contains(expected), "{sentence}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
        let running = Running::start();
        let path = running.path();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        running.shutdown.cancel();
        running.task.await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_of_a_dead_process_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(Server::bind(&path).is_ok());
    }

    #[tokio::test]
    async fn what_is_in_use_or_no_socket_stays() {
        let running = Running::start();
        assert!(matches!(Server::bind(&running.path()), Err(BindError::InUse(_))));
        assert_eq!(ask(&running.path(), Topic::Nodes).await.unwrap(), Answer::Nodes(Vec::new()));
        let file = running.dir.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(matches!(Server::bind(&file), Err(BindError::NoSocket(_))));
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
