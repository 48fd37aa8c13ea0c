use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UdpSocket, UnixDatagram};
use watari_endings::ServerState::{Normal, Saturated, Stopped};
use watari_watch::alerting::SyslogAddress;

use super::{change, counts, in_time, started, syslog, until};

#[tokio::test]
async fn a_unix_socket_gets_a_datagram_each() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let notifier = started(&[syslog(SyslogAddress::Unix(path.clone()))]);
    notifier.notify("west", &change(Stopped, 1));
    until("no receiver is there", || counts(&notifier).failed >= 2).await;
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut buffer = vec![0; 65_536];
    let len = in_time(socket.recv(&mut buffer)).await.unwrap();
    let text = std::str::from_utf8(&buffer[..len]).unwrap();
    assert!(text.starts_with("<26>1 20"), "{text}");
    assert!(text.contains(r#" [watari@32473 sensor="west" server="192.0.2.1:443" state="stopped" status="firing""#));
    notifier.notify("west", &change(Normal, 2));
    let len = in_time(socket.recv(&mut buffer)).await.unwrap();
    assert!(std::str::from_utf8(&buffer[..len]).unwrap().starts_with("<29>1 20"));
}

#[tokio::test]
async fn udp_gets_a_datagram_each() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let notifier = started(&[syslog(SyslogAddress::Udp(address))]);
    notifier.notify("west", &change(Saturated, 1));
    let mut buffer = vec![0; 65_536];
    let len = in_time(socket.recv(&mut buffer)).await.unwrap();
    assert!(std::str::from_utf8(&buffer[..len]).unwrap().starts_with("<28>1 20"));
    until("the notice is delivered", || counts(&notifier).delivered == 1).await;
}

#[tokio::test]
async fn tcp_gets_messages_that_say_how_long_they_are() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let notifier = started(&[syslog(SyslogAddress::Tcp(address))]);
    notifier.notify("west", &change(Stopped, 1));
    // Closed before the message arrives.
    drop(in_time(listener.accept()).await.unwrap());
    // Reset before the message is read.
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    in_time(socket.peek(&mut [0])).await.unwrap();
    drop(socket);
    let (mut socket, _) = in_time(listener.accept()).await.unwrap();
    let mut text = String::new();
    in_time(socket.read_to_string(&mut text)).await.unwrap();
    drop(socket);
    let (len, message) = text.split_once(' ').unwrap();
    assert_eq!(len.parse(), Ok(message.len()));
    assert!(message.starts_with("<26>1 20"), "{message}");
    until("the notice is delivered", || counts(&notifier).delivered == 1).await;
    assert_eq!(counts(&notifier).failed, 2);
}
