//! The client of the administration socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Answer, Question, Topic, VERSION};

/// The longest answer, in bytes: 100,000 connections take some 30 million.
const ANSWER_LEN_MAX: usize = 256 << 20;
const EXCHANGE_MAX: Duration = Duration::from_mins(2);

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("no node answers on {}: {cause} (check that it runs, and that this is its admin socket)", socket.display())]
    Connect { socket: PathBuf, cause: io::Error },
    #[error("the exchange with the node on {} failed: {cause}", socket.display())]
    Exchange { socket: PathBuf, cause: io::Error },
    #[error("the node on {} did not answer in time", .0.display())]
    Timeout(PathBuf),
    #[error("the node on {} sent an invalid answer", .0.display())]
    Garbled(PathBuf),
    #[error("the node refused: {0}")]
    Refused(String),
}

/// Sends a question to the node that listens on `socket`.
pub(crate) async fn ask(socket: &Path, topic: Topic) -> Result<Answer, AskError> {
    let question = Question { version: VERSION, topic };
    let exchange = timeout(EXCHANGE_MAX, exchange(socket, &question));
    let bytes = exchange.await.map_err(|_| AskError::Timeout(socket.to_owned()))??;
    match serde_json::from_slice(&bytes) {
        Ok(Answer::Error(sentence)) => Err(AskError::Refused(sentence)),
        Ok(answer) if answers(&answer, &question.topic) => Ok(answer),
        _ => Err(AskError::Garbled(socket.to_owned())),
    }
}

fn answers(answer: &Answer, topic: &Topic) -> bool {
    matches!(
        (topic, answer),
        (Topic::Status, Answer::Status(_))
            | (Topic::Nodes, Answer::Nodes(_))
            | (Topic::Connections, Answer::Connections(_))
            | (Topic::Sessions, Answer::Sessions(_))
            | (Topic::Origins, Answer::Origins(_))
            | (Topic::Cache, Answer::Cache(_))
            | (Topic::Addresses, Answer::Addresses(_))
            | (Topic::Reload, Answer::Reloaded(_))
            | (Topic::Upgrade { .. }, Answer::Upgraded(_))
            | (
                Topic::Move { .. }
                    | Topic::Drain { .. }
                    | Topic::Undrain { .. }
                    | Topic::Evict { .. }
                    | Topic::Admit { .. }
                    | Topic::RotateKeys
                    | Topic::DrainOrigin { .. }
                    | Topic::MoveTransfer { .. }
                    | Topic::Purge { .. }
                    | Topic::Switch { .. },
                Answer::Done
            )
    )
}

async fn exchange(socket: &Path, question: &Question) -> Result<Vec<u8>, AskError> {
    let failed = |cause| AskError::Exchange { socket: socket.to_owned(), cause };
    let connected = UnixStream::connect(socket).await;
    let mut stream = connected.map_err(|cause| AskError::Connect { socket: socket.to_owned(), cause })?;
    let mut line = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_LEN_MAX as u64 + 1).read_to_end(&mut answer).await.map_err(failed)?;
    if answer.len() > ANSWER_LEN_MAX {
        return Err(AskError::Garbled(socket.to_owned()));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn without_a_node_there_is_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask(&dir.path().join("none.sock"), Topic::Status).await.unwrap_err();
        assert!(matches!(error, AskError::Connect { .. }));
        assert!(error.to_string().contains("none.sock: No such file"), "{error}");
    }

    #[tokio::test]
    async fn an_answer_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let answers: [&[u8]; 3] = [b"", b"{\"nodes\":1}\n", b"{\"nodes\":[]}\n"];
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
                stream.write_all(answer).await.unwrap();
            }
        });
        for _ in answers {
            assert!(matches!(
                ask(&path, Topic::Connections).await,
                Err(AskError::Garbled(_) | AskError::Exchange { .. })
            ));
        }
    }
}
