//! The record layer, in memory: ours and rustls', each as the server of a connection with a rustls client.

use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, ServerConnection};
use watari_handshake::{Certificate, Handshake, ServerOptions};
use watari_record::{CipherSuite, Connection, FRAGMENT_LEN_MAX, Opened};
use watari_sys::thread_cpu_time;

use crate::Scale;
use crate::failure::{Failure, doing, tls};
use crate::measure::{Samples, interleaved};
use crate::offer;
use crate::report::{Report, Row, Unit};
use crate::site::{Key, Site};

/// Bytes that are sealed or opened at a time: as many as a busy server reads or writes at once.
const PIECE_LEN: usize = 64 * 1024;
/// Pieces between two readings of the clock, each of which is a system call.
const PIECES: usize = 16;

/// Targets: the largest ratio of our CPU time to that of rustls.
const SEAL_TARGET: f64 = 0.95;
const OPEN_TARGET: f64 = 0.65;

const SUITES: [(CipherSuite, &str); 2] = [
    (CipherSuite::TLS_AES_128_GCM_SHA256, "AES-128-GCM"),
    (CipherSuite::TLS_CHACHA20_POLY1305_SHA256, "ChaCha20-Poly1305"),
];

#[derive(Clone, Copy)]
enum Layer {
    Ours,
    Rustls,
}

/// Measures each suite with full records and with small ones. Only full records of AES-128-GCM have a target.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    for (suite, name) in SUITES {
        for record_len in [FRAGMENT_LEN_MAX, 1024] {
            eprintln!("records of {record_len} bytes, {name} ..");
            let costs = interleaved(scale.rounds, &[Layer::Ours, Layer::Rustls], |layer| {
                cost(site, *layer, suite, record_len, scale.record_bytes)
            })?;
            let has_target = suite == SUITES[0].0 && record_len == FRAGMENT_LEN_MAX;
            for (at, verb, target) in [(0, "seal", SEAL_TARGET), (1, "open", OPEN_TARGET)] {
                let [ours, theirs] = [0, 1].map(|layer: usize| Samples::of(&costs[layer], |costs| costs[at]));
                let what = format!("{verb} records of {record_len} bytes, {name}");
                report.add(Row::against(
                    what,
                    Unit::SecondsPerGib,
                    ours,
                    "rustls",
                    theirs,
                    has_target.then_some(target),
                ));
            }
        }
    }
    Ok(())
}

/// CPU seconds per GiB for sealing and for opening.
fn cost(site: &Site, layer: Layer, offered: CipherSuite, record_len: usize, bytes: u64) -> Result<Vec<f64>, Failure> {
    let mut client = client(site, offered)?;
    Ok(match layer {
        Layer::Ours => both_ways(&mut Ours::new(site, &mut client)?, &mut client, record_len, bytes),
        Layer::Rustls => both_ways(&mut Rustls::new(site, &mut client)?, &mut client, record_len, bytes),
    }
    .map_err(doing("records in memory"))?
    .to_vec())
}

/// One end of a connection.
trait End {
    /// Seals each of `fragments` as one record.
    fn seal<'a>(&mut self, fragments: impl Iterator<Item = &'a [u8]>) -> io::Result<()>;
    /// Opens the records in `bytes`, and returns the length of their content.
    fn open(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

fn both_ways(end: &mut impl End, client: &mut ClientConnection, record_len: usize, bytes: u64) -> io::Result<[f64; 2]> {
    let plaintext: Vec<u8> = (0..PIECE_LEN).map(|at| (at % 251) as u8).collect();
    let batches = bytes.div_ceil((PIECES * PIECE_LEN) as u64);
    let (mut sealing, mut opening) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..batches {
        let pieces: Vec<Vec<u8>> =
            (0..PIECES).map(|_| sealed_by(client, &plaintext, record_len)).collect::<Result<_, _>>()?;
        let begun = thread_cpu_time();
        for _ in 0..PIECES {
            end.seal(plaintext.chunks(record_len))?;
        }
        let sealed = thread_cpu_time();
        for piece in &pieces {
            if end.open(piece)? != PIECE_LEN {
                return Err(io::Error::other("what was opened is not what was sealed"));
            }
        }
        sealing += sealed.saturating_sub(begun);
        opening += thread_cpu_time().saturating_sub(sealed);
    }
    let gib = (batches * (PIECES * PIECE_LEN) as u64) as f64 / (1_u64 << 30) as f64;
    Ok([sealing, opening].map(|time| time.as_secs_f64() / gib))
}

fn sealed_by(client: &mut ClientConnection, plaintext: &[u8], record_len: usize) -> io::Result<Vec<u8>> {
    let mut records = Vec::with_capacity(2 * plaintext.len());
    for fragment in plaintext.chunks(record_len) {
        client.writer().write_all(fragment)?;
        client.write_tls(&mut records)?;
    }
    Ok(records)
}

/// Our record layer, as `watari-stream` uses it. It opens records in the buffer that received them, and seals records
/// into the buffer that is sent.
struct Ours {
    connection: Connection,
    received: Vec<u8>,
    sealed: Vec<u8>,
}

impl Ours {
    fn new(site: &Site, client: &mut ClientConnection) -> Result<Self, Failure> {
        let (chain, key) = site.certificate(Key::P256);
        let read = |path| fs::read(path).map_err(doing("reading a certificate"));
        let certificate = Certificate::from_pem(&read(chain)?, &read(key)?).map_err(tls("reading a certificate"))?;
        let options = ServerOptions { certificates: vec![certificate], ..ServerOptions::default() };
        let server = watari_handshake::ServerConfig::new(&options).map_err(tls("configuring a server"))?;
        let mut handshake = Handshake::new(&server, &Arc::default());
        let mut input = Vec::new();
        loop {
            send(client, &mut input)?;
            let progress = handshake.receive(&input).map_err(|failed| tls("shaking hands")(failed.cause))?;
            input.drain(..progress.consumed);
            deliver(client, &progress.output)?;
            if let Some(established) = progress.established {
                let connection = Connection::new(established.secrets).map_err(tls("going on after a handshake"))?;
                return Ok(Self { connection, received: Vec::new(), sealed: Vec::new() });
            }
        }
    }
}

impl End for Ours {
    fn seal<'a>(&mut self, fragments: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        self.sealed.clear();
        for fragment in fragments {
            let seal = self.connection.seal(&[IoSlice::new(fragment)], usize::MAX, &mut self.sealed);
            seal.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn open(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // This copy stands for the one of a read from a socket.
        self.received.clear();
        self.received.extend_from_slice(bytes);
        let (mut rest, mut opened) = (&mut self.received[..], 0);
        while let Some(header) = self.connection.header(rest).map_err(io::Error::other)? {
            let (record, behind) = rest.split_at_mut(header.record_len());
            if let Opened::Data(data) = self.connection.open(record).map_err(io::Error::other)? {
                opened += data.len();
            }
            rest = behind;
        }
        Ok(opened)
    }
}

/// rustls as most programs use it, tokio-rustls among them.
struct Rustls {
    connection: ServerConnection,
    plaintext: Vec<u8>,
}

impl Rustls {
    fn new(site: &Site, client: &mut ClientConnection) -> Result<Self, Failure> {
        let (chain, key) = site.certificate(Key::P256);
        let chain = CertificateDer::from_pem_file(chain).map_err(tls("reading a certificate"))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(tls("reading a key"))?;
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![chain], key);
        let mut config = config.map_err(tls("configuring a server"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut connection = ServerConnection::new(Arc::new(config)).map_err(tls("beginning a handshake"))?;
        connection.set_buffer_limit(None);
        let mut bytes = Vec::new();
        while connection.is_handshaking() || connection.wants_write() {
            bytes.clear();
            send(client, &mut bytes)?;
            let mut left = &bytes[..];
            while !left.is_empty() {
                connection.read_tls(&mut left).map_err(doing("a handshake in memory"))?;
                connection.process_new_packets().map_err(tls("shaking hands"))?;
            }
            let mut answer = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut answer).map_err(doing("a handshake in memory"))?;
            }
            deliver(client, &answer)?;
        }
        Ok(Self { connection, plaintext: vec![0; PIECE_LEN] })
    }
}

impl End for Rustls {
    fn seal<'a>(&mut self, fragments: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        for fragment in fragments {
            self.connection.writer().write_all(fragment)?;
        }
        while self.connection.wants_write() {
            self.connection.write_tls(&mut io::sink())?;
        }
        Ok(())
    }

    fn open(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let mut opened = 0;
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes)?;
            let state = self.connection.process_new_packets().map_err(io::Error::other)?;
            let ready = state.plaintext_bytes_to_read();
            self.connection.reader().read_exact(&mut self.plaintext[..ready])?;
            opened += ready;
        }
        Ok(opened)
    }
}

fn client(site: &Site, offered: CipherSuite) -> Result<ClientConnection, Failure> {
    let name = ServerName::try_from(Key::P256.host()).map_err(tls("naming a server"))?;
    let config = Arc::new(offer::config(site, offered)?);
    let mut client = ClientConnection::new(config, name).map_err(tls("beginning a handshake"))?;
    client.set_buffer_limit(None);
    Ok(client)
}

/// Appends the bytes that the client has to send.
fn send(client: &mut ClientConnection, bytes: &mut Vec<u8>) -> Result<(), Failure> {
    while client.wants_write() {
        client.write_tls(bytes).map_err(doing("a handshake in memory"))?;
    }
    Ok(())
}

fn deliver(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).map_err(doing("a handshake in memory"))?;
        client.process_new_packets().map_err(tls("shaking hands"))?;
    }
    Ok(())
}
