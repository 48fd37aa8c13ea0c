//! Syslog: RFC 5424, in Unix datagrams or UDP (RFC 5426), or over TCP (RFC 6587).

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, lookup_host};
use tokio::time::timeout;
use watari_packets::Timestamp;

use super::config::{Facility, SyslogAddress};
use super::delivery::DeliveryError;
use super::notice::{Notice, Trouble, rfc3339};

/// The message format of RFC 5424, section 6.
pub(super) fn message(notice: &Notice, facility: Facility, now: Timestamp) -> Vec<u8> {
    let node = rustix::system::uname();
    let host = node.nodename().to_str().ok().filter(|name| is_print_us_ascii(name)).unwrap_or("-");
    let priority = facility as u8 * 8 + severity(notice);
    // At most six digits of a second (section 6.2.3).
    let time = rfc3339(Timestamp(now.0 / 1000 * 1000));
    let (pid, alert) = (process::id(), notice.key.trouble.alert_name());
    let data = structured_data(notice);
    let text = format!("{}: {}", notice.summary(), notice.description());
    // UTF-8 text that is not only ASCII begins with a BOM (section 6.4).
    let bom = if text.is_ascii() { "" } else { "\u{feff}" };
    format!("<{priority}>1 {time} {host} watari {pid} {alert} {data} {bom}{text}").into_bytes()
}

/// Returns when the system has accepted the message. With TCP, when the server has closed, or has sent nothing for
/// `grace`.
pub(super) async fn send(address: &SyslogAddress, message: &[u8], grace: Duration) -> Result<(), DeliveryError> {
    match address {
        SyslogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound().map_err(DeliveryError::Connect)?;
            socket.connect(path).map_err(DeliveryError::Connect)?;
            socket.send(message).await.map_err(DeliveryError::Send)?;
        }
        SyslogAddress::Udp(place) => {
            let socket = udp(place).await.map_err(DeliveryError::Connect)?;
            socket.send(message).await.map_err(DeliveryError::Send)?;
        }
        SyslogAddress::Tcp(place) => {
            let socket = TcpStream::connect(place).await.map_err(DeliveryError::Connect)?;
            send_counted(socket, message, grace).await.map_err(DeliveryError::Send)?;
        }
    }
    Ok(())
}

/// Section 6.2.1, table 2.
fn severity(notice: &Notice) -> u8 {
    match (&notice.over, notice.key.trouble) {
        (Some(_), _) => 5,
        (None, Trouble::Saturated) => 4,
        (None, Trouble::Stopped) => 2,
    }
}

fn structured_data(notice: &Notice) -> String {
    let key = &notice.key;
    let mut data = format!("[{SD_ID}");
    let server = key.server.to_string();
    let since = rfc3339(notice.episode.since);
    let values = [
        ("sensor", key.sensor.as_str()),
        ("server", &server),
        ("state", key.trouble.as_str()),
        ("status", notice.status()),
        ("since", &since),
    ];
    for (name, value) in values {
        let _ = write!(data, " {name}=\"{}\"", escaped(value));
    }
    data.push(']');
    data
}

/// Section 6.3.3.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for char in value.chars() {
        if matches!(char, '"' | '\\' | ']') {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

/// Section 6.2.4: the valid characters of a host name.
fn is_print_us_ascii(name: &str) -> bool {
    (1..=255).contains(&name.len()) && name.bytes().all(|octet| octet.is_ascii_graphic())
}

async fn udp(place: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(place).await? {
        match connected(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// RFC 6587, section 3.4.1. The protocol has no acknowledgment. A server that got the message closes after the client.
/// If it was gone, it closes first, or its system resets the connection. So the client waits for the server's close.
async fn send_counted(mut socket: TcpStream, message: &[u8], grace: Duration) -> io::Result<()> {
    let mut frame = format!("{} ", message.len()).into_bytes();
    frame.extend_from_slice(message);
    socket.write_all(&frame).await?;
    socket.shutdown().await?;
    let mut octets = [0; 64];
    match timeout(grace, socket.read(&mut octets)).await {
        Ok(Ok(0)) => closed_after_us(&socket),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

/// If the server closed last, the connection has ended on this side, and has no peer address any more.
fn closed_after_us(socket: &TcpStream) -> io::Result<()> {
    match (socket.take_error()?, socket.peer_addr()) {
        (Some(error), _) => Err(error),
        (None, Ok(_)) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it closed before it got the message")),
        (None, Err(_)) => Ok(()),
    }
}

/// The private enterprise number for examples (RFC 5612), because this project has none.
const SD_ID: &str = "watari@32473";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::alerting::notice::{Episode, Key, Over};

    fn notice(trouble: Trouble, over: Option<Over>) -> Notice {
        let key = Key::new("we]s\"t\\", "192.0.2.1:443".parse().unwrap(), trouble);
        let since = Timestamp(1_700_000_000_000_000_000);
        Notice { key, episode: Episode { since, reason: "aborts".to_owned(), because: "many".to_owned() }, over }
    }

    fn text(notice: &Notice, facility: Facility) -> String {
        String::from_utf8(message(notice, facility, Timestamp(1_700_000_001_123_456_789))).unwrap()
    }

    #[test]
    fn a_message_is_as_rfc_5424_has_it() {
        let text = text(&notice(Trouble::Stopped, None), Facility::Local0);
        let (head, rest) = text.split_once(" watari ").unwrap();
        assert!(head.starts_with("<130>1 2023-11-14T22:13:21.123456Z "), "{head}");
        let data = r#"[watari@32473 sensor="we\]s\"t\\" server="192.0.2.1:443" state="stopped" status="firing" since="2023-11-14T22:13:20Z"]"#;
        let expected = format!("{} WatariServerStopped {data} 192.0.2.1:443 is stopped", process::id());
        assert!(rest.starts_with(&expected), "{rest}");
    }

    #[test]
    fn a_priority_says_how_bad_it_is() {
        let priority = |notice: &Notice| text(notice, Facility::Daemon).split_once('>').unwrap().0.to_owned();
        assert_eq!(priority(&notice(Trouble::Stopped, None)), "<26");
        assert_eq!(priority(&notice(Trouble::Saturated, None)), "<28");
        let over = Over { at: Timestamp(1_700_000_009_000_000_000), because: String::new() };
        assert_eq!(priority(&notice(Trouble::Stopped, Some(over))), "<29");
    }

    #[test]
    fn what_is_not_ascii_says_so() {
        let mut notice = notice(Trouble::Stopped, None);
        assert!(!text(&notice, Facility::Daemon).contains('\u{feff}'));
        notice.key.sensor = "渡り".to_owned();
        assert!(text(&notice, Facility::Daemon).contains("] \u{feff}192.0.2.1:443"));
    }
}
