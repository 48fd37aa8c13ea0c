//! A client that builds its records itself: ends, alerts, keys, limits.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{RawClient, connections, pattern};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;
use watari_record::{AlertDescription, CipherSuite, FRAGMENT_LEN_MAX, OpenError, Opened, SealError};
use watari_stream::{OUTPUT_LEN_MAX, ReadEnd, TlsStream};

const TLS13: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;
const TLS12: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;

/// Far longer than any step takes. The clock is paused in these tests, so only a hang reaches it.
const HANG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_read_gives_no_more_than_asked_and_keeps_the_rest() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let records = [client.seal(b"one two"), client.seal(b"three")].concat();
    client.send(&records).await;
    let mut word = [0; 3];
    server.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"one");

    let parts = server.into_parts();
    assert_eq!(parts.opened, b" two");
    assert_eq!(parts.unopened, records[records.len() - (5 + 5 + 1 + 16)..]);
    assert_eq!(parts.received, records.len() as u64);
    assert_eq!((parts.unsent, parts.sent), (vec![], 0));
}

#[tokio::test]
async fn lines_are_read_where_they_were_opened() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let records = [client.seal(b"first\nsec"), client.seal(b"ond\n")].concat();
    client.send(&records).await;
    let mut lines = String::new();
    server.read_line(&mut lines).await.unwrap();
    server.read_line(&mut lines).await.unwrap();
    assert_eq!(lines, "first\nsecond\n");
}

#[tokio::test]
async fn an_end_without_close_notify_is_an_error_and_stays_one() {
    for suite in [TLS13, TLS12] {
        let (mut client, mut server) = RawClient::connect(suite, 1000);
        let record = client.seal(b"data");
        client.send(&record).await;
        client.send(&record[..7]).await;
        drop(client);
        let mut received = Vec::new();
        for _ in 0..2 {
            let error = server.read_to_end(&mut received).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
        assert_eq!(received, b"data");
        assert_eq!(server.read_end(), Some(ReadEnd::Truncated));
    }
}

#[tokio::test]
async fn a_close_notify_is_a_clean_end() {
    let (mut client, mut server) = RawClient::connect(TLS12, 1000);
    let mut records = client.seal(b"data");
    client.connection.seal_close_notify(&mut records).unwrap();
    client.send(&records).await;
    let mut received = Vec::new();
    assert_eq!(server.read_end(), None);
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!((&received[..], server.read_end()), (&b"data"[..], Some(ReadEnd::CloseNotify)));
    server.write_all(b"reply").await.unwrap();
    server.flush().await.unwrap();
    assert_eq!(client.receive().await.1, b"reply");
}

#[tokio::test]
async fn a_clean_end_moves_with_the_connection() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let mut records = client.seal(b"data");
    client.connection.seal_close_notify(&mut records).unwrap();
    client.send(&records).await;
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 1);
    let mut server = TlsStream::from_parts(server.into_parts());
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"ata");
    let mut server = TlsStream::from_parts(server.into_parts());
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(server.read_end(), Some(ReadEnd::CloseNotify));
}

#[tokio::test]
async fn garbage_is_answered_by_an_alert() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let record = client.seal(b"data");
    client.send(&record).await;
    client.send(b"GET / HTTP/1.1\r\n").await;
    let mut received = Vec::new();
    for _ in 0..2 {
        let error = server.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let source = error.get_ref().and_then(|end| end.source()).unwrap();
        assert!(matches!(source.downcast_ref(), Some(OpenError::PeerMisbehaved(_))), "{source:?}");
    }
    assert_eq!(received, b"data");
    assert!(matches!(server.read_end(), Some(ReadEnd::Failed(_))));
    let alert = Opened::FatalAlert(AlertDescription::UNEXPECTED_MESSAGE);
    assert_eq!(client.receive().await.0, alert);
    assert_eq!(server.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    server.shutdown().await.unwrap();
    assert_eq!(server.into_parts().unsent, []);
}

#[tokio::test]
async fn a_fatal_alert_is_an_error() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let mut alert = Vec::new();
    client.connection.seal_alert(AlertDescription(42), &mut alert).unwrap();
    client.send(&alert).await;
    let error = server.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert_eq!(server.read_end(), Some(ReadEnd::PeerAlert(AlertDescription(42))));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_new_keys_is_answered_while_reading_only() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    let request = client.key_update_request();
    client.send(&request).await;
    let reader = tokio::spawn(async move { server.read(&mut [0; 10]).await.unwrap() });
    let (answer, _) = timeout(HANG, client.receive()).await.unwrap();
    assert_eq!(answer, Opened::KeyUpdate);
    let record = client.seal(b"data");
    client.send(&record).await;
    assert_eq!(reader.await.unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn reading_does_not_wait_for_what_cannot_be_sent() {
    let (mut client, mut server) = RawClient::connect(TLS13, 200);
    server.write_all(&pattern(1000)).await.unwrap();
    assert!(poll_once(|cx| Pin::new(&mut server).poll_flush(cx)).is_pending());
    let records = [client.key_update_request(), client.seal(b"data")].concat();
    client.send(&records).await;
    let mut received = [0; 4];
    timeout(HANG, server.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"data");

    let (flushed, received) = tokio::join!(server.flush(), async {
        let received = client.receive_data(1000).await;
        (received, client.receive().await.0)
    });
    flushed.unwrap();
    assert_eq!(received, (pattern(1000), Opened::KeyUpdate));
}

#[tokio::test]
async fn what_waits_to_be_sent_is_bounded() {
    let (mut client, mut server) = RawClient::connect(TLS13, 100);
    let data = pattern(500_000);
    let mut taken = 0;
    while let Poll::Ready(sealed) = poll_once(|cx| Pin::new(&mut server).poll_write(cx, &data[taken..])) {
        taken += sealed.unwrap();
    }
    assert!(taken >= OUTPUT_LEN_MAX);
    let parts = server.into_parts();
    assert!(parts.unsent.len() <= OUTPUT_LEN_MAX + FRAGMENT_LEN_MAX + 200, "{}", parts.unsent.len());
    assert_eq!(parts.sent, 100, "what the pipe holds");

    let mut server = TlsStream::from_parts(parts);
    let (written, received) = tokio::join!(
        async {
            server.write_all(&data[taken..]).await.unwrap();
            server.flush().await
        },
        client.receive_data(data.len())
    );
    written.unwrap();
    assert_eq!(received, data);
}

#[tokio::test]
async fn a_peer_that_asks_and_never_reads_fills_no_memory() {
    let (mut client, mut server) = RawClient::connect(TLS13, 100);
    let mut received = [0; 1];
    for _ in 0..5000 {
        let records = [client.key_update_request(), client.seal(b"x")].concat();
        client.send(&records).await;
        server.read_exact(&mut received).await.unwrap();
    }
    let unsent = server.into_parts().unsent.len();
    assert!((OUTPUT_LEN_MAX..OUTPUT_LEN_MAX + 100).contains(&unsent), "{unsent}");
}

/// A reader that sends answers must not replace the writer as the task that `io` wakes.
#[tokio::test(start_paused = true)]
async fn a_waiting_writer_is_woken_although_a_reader_answers() {
    let (mut client, server) = RawClient::connect(TLS13, 100);
    let (mut reader, mut writer) = tokio::io::split(server);
    let writer = tokio::spawn(async move {
        writer.write_all(&pattern(1000)).await.unwrap();
        writer.flush().await.unwrap();
    });
    let reader = tokio::spawn(async move { reader.read(&mut [0; 10]).await.unwrap() });
    tokio::task::yield_now().await;
    let request = client.key_update_request();
    client.send(&request).await;
    tokio::task::yield_now().await;
    assert_eq!(timeout(HANG, client.receive_data(1000)).await.unwrap(), pattern(1000));
    assert_eq!(timeout(HANG, client.receive()).await.unwrap().0, Opened::KeyUpdate);
    timeout(HANG, writer).await.unwrap().unwrap();
    let record = client.seal(b"data");
    client.send(&record).await;
    assert_eq!(reader.await.unwrap(), 4);
}

#[tokio::test]
async fn an_exhausted_key_ends_the_stream_by_an_alert() {
    let suite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    let (client, server) = connections(suite, suite.aead().records_max() - 1);
    let (client_io, server_io) = duplex(1000);
    let mut client = RawClient { io: client_io, connection: client };
    let mut server: TlsStream<DuplexStream> = TlsStream::new(server_io, server);
    assert!(server.connection().close_due());
    server.write_all(b"last").await.unwrap();
    let error = server.write(b"more").await.unwrap_err();
    assert_eq!(error.downcast::<SealError>().unwrap(), SealError::Exhausted);
    assert_eq!(client.receive().await.1, b"last");
    assert_eq!(client.receive().await.0, Opened::FatalAlert(AlertDescription::INTERNAL_ERROR));
}

#[tokio::test]
async fn keys_are_changed_when_asked() {
    let (mut client, mut server) = RawClient::connect(TLS13, 1000);
    server.update_keys(true).unwrap();
    server.write_all(b"data").await.unwrap();
    server.flush().await.unwrap();
    assert_eq!(client.receive().await.0, Opened::KeyUpdate);
    assert_eq!(client.receive().await.1, b"data");
}

#[tokio::test]
async fn an_io_that_takes_nothing_is_an_error() {
    let (_, connection) = connections(TLS13, 0);
    let mut server = TlsStream::new(Stuck, connection);
    server.write_all(b"data").await.unwrap();
    assert_eq!(server.flush().await.unwrap_err().kind(), ErrorKind::WriteZero);
}

fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes no bytes and yields none.
struct Stuck;

impl AsyncRead for Stuck {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
