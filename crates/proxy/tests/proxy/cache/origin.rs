//! An origin that counts its requests. Each request goes to a function, on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use watari_proxy::OriginAddress;

pub(super) struct CountingOrigin {
    pub(super) address: OriginAddress,
    requests: Arc<AtomicUsize>,
}

/// A request: its head in lower case, and its number from 1 on.
pub(super) struct Asked {
    pub(super) head: String,
    pub(super) number: usize,
    pub(super) socket: TcpStream,
}

impl CountingOrigin {
    /// `answer` writes the response.
    pub(super) async fn start<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::<AtomicUsize>::default();
        let (count, answer) = (requests.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (count, answer) = (count.clone(), answer.clone());
                tokio::spawn(async move {
                    let Some(head) = read_head(&mut socket).await else { return };
                    let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                    answer(Asked { head, number, socket }).await;
                });
            }
        });
        Self { address, requests }
    }

    /// Always answers with this head and content. `N` in both stands for the number of the request.
    pub(super) async fn fixed(head: &'static str, content: &'static str) -> Self {
        Self::start(move |asked| async move {
            let number = asked.number.to_string();
            asked.answer(&head.replace('N', &number), content.replace('N', &number).as_bytes()).await;
        })
        .await
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Asked {
    /// A response with a length. `head` is the status line without the version, and fields.
    pub(super) async fn answer(mut self, head: &str, content: &[u8]) {
        let len = content.len();
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
        let _ = self.socket.write_all(head.as_bytes()).await;
        let _ = self.socket.write_all(content).await;
        let _ = self.socket.shutdown().await;
    }

    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let begin = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(begin.as_str()))
    }

    /// First and last byte of `Range`, in content of this length.
    pub(super) fn range(&self, len: u64) -> Option<(u64, u64)> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let last = last.parse().unwrap_or(u64::MAX).min(len - 1);
        Some((first.parse().ok()?, last))
    }

    /// The answer of a server that supports ranges, for content with a strong validator.
    pub(super) async fn answer_range(self, etag: &str, fields: &str, content: &[u8]) {
        let len = content.len() as u64;
        let has_version = self.field("if-range").is_none_or(|tag| tag == etag);
        match self.range(len).filter(|_| has_version) {
            Some((first, last)) => {
                let head = format!(
                    "206 Partial Content\r\nETag: {etag}\r\nContent-Range: bytes {first}-{last}/{len}\r\n{fields}"
                );
                self.answer(head.trim_end(), &content[first as usize..=last as usize]).await;
            }
            None => self.answer(format!("200 OK\r\nETag: {etag}\r\n{fields}").trim_end(), content).await,
        }
    }
}

async fn read_head(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).to_ascii_lowercase())
}
