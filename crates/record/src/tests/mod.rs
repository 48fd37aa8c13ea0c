//! Both ends of a connection, and a peer that violates the protocol.

#![allow(clippy::unwrap_used)]

mod limits;
mod misbehaviour;
mod moves;
mod vectors;

use std::io::IoSlice;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::keys::derive_traffic_key;
use crate::{
    CipherSuite, Connection, ContentType, Direction, DirectionSecret, OpenError, Opened, Secrets, Side, Version,
};

const TLS13: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;
const TLS12: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;

/// One end of a connection, with a repeated seed byte as its secrets. The other end has the other seed.
fn connection(suite: CipherSuite, side: Side, tx_sequence: u64, rx_sequence: u64) -> Connection {
    let (tx_seed, rx_seed) = match side {
        Side::Client => (0xc1, 0x5e),
        Side::Server => (0x5e, 0xc1),
    };
    let tx = Direction { sequence: tx_sequence, secret: secret(suite, tx_seed) };
    let rx = Direction { sequence: rx_sequence, secret: secret(suite, rx_seed) };
    Connection::new(Secrets { side, suite, tx, rx }).unwrap()
}

fn secret(suite: CipherSuite, seed: u8) -> DirectionSecret {
    match suite.version() {
        Version::Tls13 => DirectionSecret::Tls13(Zeroizing::new(vec![seed; suite.hash().output_len()])),
        Version::Tls12 => DirectionSecret::Tls12 {
            key: Zeroizing::new(vec![seed; suite.aead().key_len()]),
            iv: Zeroizing::new([seed ^ 0xff; 12]),
        },
    }
}

/// A server, and a client that violates the protocol.
struct Rig {
    client: Connection,
    server: Connection,
}

impl Rig {
    fn new(suite: CipherSuite) -> Self {
        Self { client: connection(suite, Side::Client, 0, 0), server: connection(suite, Side::Server, 0, 0) }
    }

    /// The server's result for a record of any type and content.
    fn client_sends(&mut self, content_type: ContentType, content: &[u8]) -> Result<Opened, OpenError> {
        let mut record = Vec::new();
        self.client.tx.seal(content_type, content.len(), |out| out.extend_from_slice(content), &mut record);
        self.server.open(&mut record)
    }

    fn client_sends_data(&mut self, data: &[u8]) -> Result<Opened, OpenError> {
        self.client_sends(ContentType::ApplicationData, data)
    }

    /// The server's own answers, opened by the client.
    fn answers(&mut self) -> Vec<Opened> {
        let mut records = Vec::new();
        self.server.seal_answers(&mut records).unwrap();
        open_all(&mut self.client, &mut records)
    }
}

fn seal(connection: &mut Connection, data: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    assert_eq!(connection.seal(&[IoSlice::new(data)], usize::MAX, &mut records), Ok(data.len()));
    records
}

fn open_all(connection: &mut Connection, mut records: &mut [u8]) -> Vec<Opened> {
    let mut opened = Vec::new();
    while !records.is_empty() {
        let header = connection.header(records).unwrap().expect("whole records");
        let (record, rest) = records.split_at_mut(header.record_len());
        opened.push(connection.open(record).unwrap());
        records = rest;
    }
    opened
}

/// The client's first TLS 1.3 record, with `inner` as its whole `TLSInnerPlaintext`.
fn tls13_record(inner: &[u8]) -> Vec<u8> {
    let traffic_key = derive_traffic_key(TLS13, &[0xc1; 32]).unwrap();
    let key = LessSafeKey::new(UnboundKey::new(TLS13.aead().algorithm(), &traffic_key.key).unwrap());
    let [len_high, len_low] = ((inner.len() + 16) as u16).to_be_bytes();
    let header = [23, 3, 3, len_high, len_low];
    let mut sealed = inner.to_vec();
    let nonce = Nonce::assume_unique_for_key(*traffic_key.iv);
    key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
    [&header[..], &sealed].concat()
}
