//! Requests to an origin.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head of a request, in bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// The head of a request, as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The number of its connection, from 1.
    pub connection: usize,
    /// `GET`.
    pub method: String,
    /// `/file?query`.
    pub target: String,
    /// Names in lower case, values as received.
    pub fields: Vec<(String, String)>,
}

impl Asked {
    /// The value of the first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// The first and the last byte of the only requested range (`bytes=5-9`, `bytes=5-`); `None` for a range from the
    /// end.
    pub fn range(&self) -> Option<(u64, Option<u64>)> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
        Some((first.parse().ok()?, last))
    }

    /// Whether the request is for the resource's properties: a HEAD, or its first byte only.
    pub fn is_probe(&self) -> bool {
        self.method == "HEAD" || self.range() == Some((0, Some(0)))
    }

    /// The next head on a connection, and the bytes read behind it; `None` at the end of the connection, or if it is
    /// not a head.
    pub(crate) async fn read(
        socket: &mut (impl AsyncRead + Unpin),
        ahead: &mut Vec<u8>,
        connection: usize,
    ) -> Option<Self> {
        while end_of_head(ahead).is_none() {
            if ahead.len() > HEAD_LEN_MAX || socket.read_buf(ahead).await.ok()? == 0 {
                return None;
            }
        }
        let rest = ahead.split_off(end_of_head(ahead)?);
        let head = String::from_utf8(std::mem::replace(ahead, rest)).ok()?;
        Self::parse(&head, connection)
    }

    fn parse(head: &str, connection: usize) -> Option<Self> {
        let mut lines = head.trim_end().split("\r\n");
        let mut start = lines.next()?.split(' ');
        let (method, target) = (start.next()?.to_owned(), start.next()?.to_owned());
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        Some(Self { connection, method, target, fields: fields.collect::<Option<_>>()? })
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}
