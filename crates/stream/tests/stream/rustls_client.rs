//! A rustls client as the peer.

use std::io::IoSlice;

use crate::support::{RustlsClient, pattern, rustls_client};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use watari_record::{Connection, Version};
use watari_stream::{Parts, ReadEnd, TlsStream};

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];

#[tokio::test]
async fn data_crosses_in_both_directions() {
    for version in VERSIONS {
        for pipe_len in [50, 1000, 70_000] {
            let (client, server) = rustls_client(version, pipe_len).await;
            let data = pattern(200_000);
            let echo = tokio::spawn(echo(server));
            let mut client = client;
            assert_eq!(exchange(&mut client, &data).await, data);
            assert_eq!(echo.await.unwrap(), Some(ReadEnd::CloseNotify));
        }
    }
}

#[tokio::test]
async fn vectored_writes_are_one_stream() {
    let (mut client, mut server) = rustls_client(Version::Tls13, 100_000).await;
    let data = pattern(40_000);
    let parts = [IoSlice::new(&data[..10]), IoSlice::new(&data[10..20_000]), IoSlice::new(&data[20_000..])];
    assert!(server.is_write_vectored());
    assert_eq!(server.write_vectored(&parts).await.unwrap(), data.len());
    server.flush().await.unwrap();
    let mut received = vec![0; data.len()];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(received, data);
}

#[tokio::test]
async fn shutting_down_ends_what_the_client_reads_and_leaves_the_rest_open() {
    for version in VERSIONS {
        let (mut client, mut server) = rustls_client(version, 1000).await;
        server.write_all(b"last words").await.unwrap();
        server.shutdown().await.unwrap();
        server.shutdown().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"last words");

        client.write_all(b"still there").await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"still there");
        let refused = server.write(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The stream is taken apart and moved between any two reads and writes. The client sees one stream.
    #[test]
    fn moves_in_the_middle_lose_nothing(
        tls13 in any::<bool>(),
        pipe_len in 50..40_000_usize,
        piece_lens in prop::collection::vec(1..50_000_usize, 1..8),
        move_every in 1..5_usize,
    ) {
        let version = if tls13 { Version::Tls13 } else { Version::Tls12 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = rustls_client(version, pipe_len).await;
            let data = pattern(100_000);
            let echo = tokio::spawn(echo_moving(server, piece_lens, move_every));
            assert_eq!(exchange(&mut client, &data).await, data);
            echo.await.unwrap();
        });
    }
}

/// Sends `data` and closes. Returns the peer's answer.
async fn exchange(client: &mut RustlsClient, data: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut received = Vec::new();
    let send = async {
        writer.write_all(data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let (received_len, ()) = tokio::join!(reader.read_to_end(&mut received), send);
    assert_eq!(received_len.unwrap(), received.len());
    received
}

async fn echo(mut server: TlsStream<DuplexStream>) -> Option<ReadEnd> {
    let (mut reader, mut writer) = tokio::io::split(&mut server);
    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    writer.shutdown().await.unwrap();
    server.read_end()
}

/// Echoes with reads of the lengths `piece_lens` in turn. Moves the stream after every `move_every` reads and writes.
async fn echo_moving(mut server: TlsStream<DuplexStream>, piece_lens: Vec<usize>, move_every: usize) {
    for (round, piece_len) in piece_lens.iter().cycle().enumerate() {
        let mut piece = vec![0; *piece_len];
        let read = server.read(&mut piece).await.unwrap();
        if read == 0 {
            break;
        }
        if round % move_every == 0 {
            server = moved(server);
        }
        server.write_all(&piece[..read]).await.unwrap();
        if round % move_every == 0 {
            server = moved(server);
        }
    }
    server.shutdown().await.unwrap();
}

fn moved(stream: TlsStream<DuplexStream>) -> TlsStream<DuplexStream> {
    let parts = stream.into_parts();
    let fenced = parts.connection.fence();
    let connection = Connection::import(fenced.state()).unwrap();
    TlsStream::from_parts(Parts { connection, ..parts })
}
