//! Sends one POST on a connection of its own. Servers seldom change their state, and a kept connection would reach its
//! idle timeout meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use watari_client_tls::{ClientTls, Verifier, roots_of, system_roots};
use zeroize::Zeroizing;

use super::config::HttpTarget;
use super::delivery::{DeliveryError, excerpt};

/// An HTTP client for one server.
pub(super) struct Client {
    url: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token_file: Option<PathBuf>,
}

/// A request to a server cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file of certificates cannot be read.
    #[error("the certificates {}: {source}", .path.display())]
    Certificates { path: PathBuf, source: pem::Error },
    /// A certificate is invalid.
    #[error("the certificates {}: {source}", .path.display())]
    Certificate {
        /// The path of its file.
        path: PathBuf,
        source: rustls::Error,
    },
    /// The system has no trusted authorities.
    #[error("there are no CA certificates in {0}")]
    NoAuthorities(String),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The host in the URL is neither a name nor an address.
    #[error("the host of the URL: {0}")]
    Host(#[from] InvalidDnsNameError),
}

/// The most bytes of an answer for the log.
const BODY_LEN_MAX: usize = 4096;
/// The longest accepted `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
const TOKEN_LEN_MAX: u64 = 16 << 10;

impl Client {
    pub(super) fn new(target: &HttpTarget) -> Result<Self, ClientError> {
        let host = target.url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let is_tls = target.url.scheme_str() == Some("https");
        let port = target.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let tls = if is_tls {
            let name = ServerName::try_from(host.clone())?;
            Some((TlsConnector::from(Arc::new(tls_config(target.ca_file.as_ref())?)), name))
        } else {
            None
        };
        Ok(Self { url: target.url.clone(), host, port, tls, token_file: target.token_file.clone() })
    }

    /// Returns when the server has answered that it accepted the notice.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<(), DeliveryError> {
        let request = self.request(body).await?;
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(DeliveryError::Connect)?;
        match &self.tls {
            None => exchange(socket, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await.map_err(DeliveryError::Tls)?;
                exchange(stream, request).await
            }
        }
    }

    async fn request(&self, body: Vec<u8>) -> Result<Request<Full<Bytes>>, DeliveryError> {
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = http::Method::POST;
        // Both are parts of a URL that was parsed before.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(authority) {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("Watari"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(path) = &self.token_file {
            headers.insert(header::AUTHORIZATION, authorization(path).await?);
        }
        Ok(request)
    }
}

impl std::fmt::Debug for Client {
    /// Leaves out the URL, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("host", &self.host).finish_non_exhaustive()
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(), DeliveryError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with this function, however it returns.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let response = sender.send_request(request).await?;
    if response.status().is_success() {
        return Ok(());
    }
    Err(refusal(response).await)
}

async fn refusal(response: Response<Incoming>) -> DeliveryError {
    let status = response.status();
    let retry_after = retry_after(response.headers(), SystemTime::now());
    DeliveryError::Status { status, retry_after, body: excerpt(&beginning(response.into_body()).await) }
}

/// The first bytes of an answer, up to the limit.
async fn beginning(mut body: Incoming) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < BODY_LEN_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    read.truncate(BODY_LEN_MAX);
    read
}

/// RFC 9110, section 10.2.3: seconds or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

async fn authorization(path: &PathBuf) -> Result<HeaderValue, DeliveryError> {
    let named = |source| DeliveryError::Token { path: path.clone(), source };
    let token = Zeroizing::new(read_token(path).await.map_err(named)?);
    let line = Zeroizing::new(format!("Bearer {}", token.trim()));
    let mut value = HeaderValue::from_str(&line).map_err(|_| DeliveryError::BadToken(path.clone()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read_token(path: &PathBuf) -> io::Result<String> {
    use tokio::io::AsyncReadExt as _;
    let mut token = String::new();
    tokio::fs::File::open(path).await?.take(TOKEN_LEN_MAX).read_to_string(&mut token).await?;
    Ok(token)
}

fn tls_config(ca_file: Option<&PathBuf>) -> Result<ClientConfig, ClientError> {
    let roots = match ca_file {
        Some(path) => roots_in(path)?,
        None => system_roots().map_err(|_| ClientError::NoAuthorities("this system".to_owned()))?,
    };
    let alpn = vec![b"http/1.1".to_vec()];
    Ok(ClientTls { alpn, ..ClientTls::verified_by(Verifier::Roots(roots)) }.into_config()?)
}

fn roots_in(path: &PathBuf) -> Result<RootCertStore, ClientError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|source| ClientError::Certificates { path: path.clone(), source })?;
    let roots = roots_of(found).map_err(|source| ClientError::Certificate { path: path.clone(), source })?;
    if roots.is_empty() { Err(ClientError::NoAuthorities(path.display().to_string())) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn retry_after_is_parsed() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let wait = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(wait("120"), Some(Duration::from_mins(2)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_mins(1)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:40:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("99999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!((wait("soon"), wait("-1")), (None, None));
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
