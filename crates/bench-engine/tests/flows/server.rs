//! An HTTP/1.1 server, plain or over TLS. It responds as a test says, and records its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Method and target.
    pub(crate) line: String,
    /// Header fields as received.
    pub(crate) fields: Vec<String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let matching = |field: &&String| field.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.fields.iter().find(matching).and_then(|field| field.split_once(':')).map(|(_, value)| value.trim())
    }
}

/// The server. It ends with the test's process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
}

/// Status, header fields (each with its line end) and body. With the field `x-last`, the server closes the connection
/// afterwards.
pub(crate) type Answer = (u16, String, String);

impl Server {
    pub(crate) fn plain(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(None, answer)
    }

    pub(crate) fn tls(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Some(config()), answer)
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn start(tls: Option<Arc<ServerConfig>>, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked): (_, Arc<Mutex<_>>) = (listener.local_addr().unwrap(), Arc::default());
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, answer, tls) = (Arc::clone(&log), Arc::clone(&answer), tls.clone());
                thread::spawn(move || match tls {
                    None => serve(stream, &log, &*answer),
                    Some(config) => {
                        serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &log, &*answer);
                    }
                });
            }
        });
        Self { address, asked }
    }
}

/// Serves a connection until the client closes it or requests its close.
fn serve(stream: impl Read + Write, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream) {
        let (status, fields, body) = answer(&asked);
        // Closes on request of the client, or without an announcement, like a server whose timeout expired.
        let close = asked.field("connection") == Some("close") || fields.contains("x-last");
        log.lock().unwrap().push(asked);
        let response = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{fields}\r\n{body}", body.len());
        if stream.get_mut().write_all(response.as_bytes()).is_err() || stream.get_mut().flush().is_err() || close {
            return;
        }
    }
}

fn read(stream: &mut impl BufRead) -> Option<Asked> {
    let mut lines = stream.by_ref().lines().map_while(Result::ok);
    let line = lines.next()?;
    let fields = lines.take_while(|line| !line.is_empty()).collect();
    let mut asked = Asked { line, fields, ..Asked::default() };
    let length: u64 = asked.field("content-length").map_or(0, |length| length.parse().unwrap());
    stream.take(length).read_to_string(&mut asked.body).unwrap();
    Some(asked)
}

fn config() -> Arc<ServerConfig> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![pair.cert.der().clone()], key).unwrap())
}
