//! The metrics of a node, read as Prometheus reads them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout: a stopped node does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// All samples of a node at one moment.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) fn read(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, page)) if head.starts_with("HTTP/1.1 200 ") => Ok(Self(page.to_owned())),
            _ => Err(io::Error::other(answer)),
        }
    }

    /// The sum of the samples of `name` that have a label with this value; of all samples if `label` is empty.
    pub(crate) fn sum(&self, name: &str, label: &str) -> i64 {
        let wanted = format!("=\"{label}\"");
        let of_name = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let samples = of_name.filter(|rest| rest.starts_with([' ', '{']));
        let chosen = samples.filter(|rest| label.is_empty() || rest.contains(&wanted));
        chosen.map(|rest| rest.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum()
    }
}
