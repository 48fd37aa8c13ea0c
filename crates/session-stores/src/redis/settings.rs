//! Address of a server, and credentials.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::redis::RedisConnectionInfo;
use url::Url;
use zeroize::Zeroizing;

pub use tls::RedisTls;

mod tls;

/// Settings of the connection to a Redis server.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// A host name or an IP address.
    pub host: String,
    pub port: u16,
    /// The number of the database.
    pub database: u32,
    /// `None`: the server requires no authentication.
    pub credentials: Option<RedisCredentials>,
    /// `None`: no TLS.
    pub tls: Option<RedisTls>,
    /// The timeout of each call.
    pub timeout: Duration,
}

/// A user and a password. The user needs permission for three commands on our keys (`~watari:session:* +set +mget
/// +getdel`).
#[derive(Clone)]
pub struct RedisCredentials {
    /// `None`: the user `default`.
    username: Option<String>,
    password: Zeroizing<String>,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadRedisSettings {
    /// The address is not a valid URL of a Redis server.
    #[error("{url}: {why} (expected redis://HOST:PORT/DATABASE, or rediss:// for TLS)")]
    Url {
        /// The configured URL, without a password.
        url: String,
        why: &'static str,
    },
    /// A file cannot be read.
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    /// All users of the machine may read a file with a password or key.
    #[error("{} is readable by all users: chmod 600 it", .0.display())]
    Exposed(PathBuf),
    /// The content of a file is not valid.
    #[error("{}: {why}", path.display())]
    Content { path: PathBuf, why: String },
    /// The system has no certificates of authorities, and none were configured.
    #[error("the system has no certificates of authorities: {0}")]
    NoAuthorities(String),
    /// Certificate and key do not match, or are not usable.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The default timeout of a call.
const TIMEOUT: Duration = Duration::from_millis(250);
/// Longer than any password, in bytes.
const FILE_LEN_MAX: u64 = 64 * 1024;
const PORT: u16 = 6379;

impl RedisSettings {
    /// The server at `url`: `redis://HOST:PORT/DATABASE`. The port defaults to 6379, and the database to 0. `rediss://`
    /// means TLS, with `authorities` and `client` as in [`RedisTls::load`]. A password in `url` is an error, because
    /// addresses are shown and logged.
    pub fn from_url(
        url: &str,
        authorities: Option<&Path>,
        client: Option<(&Path, &Path)>,
    ) -> Result<Self, BadRedisSettings> {
        let parsed = Url::parse(url).map_err(|_| bad(url, "not a URL"))?;
        let tls = match parsed.scheme() {
            "redis" => None,
            "rediss" => Some(RedisTls::load(authorities, client)?),
            _ => return Err(bad(url, "the scheme is not redis or rediss")),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad(
                "the Redis server's URL",
                "a user or password is not allowed: set username and password_file",
            ));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad(url, "a query or fragment is not allowed"));
        }
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or_else(|| bad(url, "the host is missing"))?;
        let database = match parsed.path().trim_start_matches('/') {
            "" => 0,
            number => number.parse().map_err(|_| bad(url, "the database is not a number"))?,
        };
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: parsed.port().unwrap_or(PORT),
            database,
            credentials: None,
            tls,
            timeout: TIMEOUT,
        })
    }

    /// The authentication and the database number, which are sent first.
    pub(super) fn greeting(&self) -> RedisConnectionInfo {
        let info = RedisConnectionInfo::default().set_db(self.database.into()).set_skip_set_lib_name();
        let Some(RedisCredentials { username, password }) = &self.credentials else { return info };
        let info = info.set_password(password.as_str());
        match username {
            Some(username) => info.set_username(username),
            None => info,
        }
    }
}

impl RedisCredentials {
    /// Reads the password from the first line of a file that other users cannot read. `username` of `None`: the user
    /// `default`.
    pub fn load(username: Option<String>, path: &Path) -> Result<Self, BadRedisSettings> {
        let content = read_secret(path)?;
        let bad = |why: &str| BadRedisSettings::Content { path: path.to_owned(), why: why.to_owned() };
        let text = std::str::from_utf8(&content).map_err(|_| bad("the password is not UTF-8"))?;
        let password =
            text.lines().next().filter(|line| !line.is_empty()).ok_or_else(|| bad("the first line has no password"))?;
        Ok(Self { username, password: Zeroizing::new(password.to_owned()) })
    }
}

fn bad(url: &str, why: &'static str) -> BadRedisSettings {
    BadRedisSettings::Url { url: url.to_owned(), why }
}

/// Reads a file that other users must not be able to read.
fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, BadRedisSettings> {
    let at = |cause| BadRedisSettings::File { path: path.to_owned(), cause };
    let file = File::open(path).map_err(at)?;
    if file.metadata().map_err(at)?.permissions().mode() & 0o007 != 0 {
        return Err(BadRedisSettings::Exposed(path.to_owned()));
    }
    // Allocates the maximum size, so that the buffer never moves and leaves a copy behind.
    let mut content = Zeroizing::new(Vec::with_capacity(FILE_LEN_MAX as usize + 1));
    read_limited(path, file, &mut content)?;
    Ok(content)
}

fn read(path: &Path) -> Result<Vec<u8>, BadRedisSettings> {
    let file = File::open(path).map_err(|cause| BadRedisSettings::File { path: path.to_owned(), cause })?;
    let mut content = Vec::new();
    read_limited(path, file, &mut content)?;
    Ok(content)
}

fn read_limited(path: &Path, file: File, content: &mut Vec<u8>) -> Result<(), BadRedisSettings> {
    let read = file.take(FILE_LEN_MAX + 1).read_to_end(content);
    let len = read.map_err(|cause| BadRedisSettings::File { path: path.to_owned(), cause })?;
    if len as u64 > FILE_LEN_MAX {
        return Err(BadRedisSettings::Content { path: path.to_owned(), why: "too large: more than 64 KiB".to_owned() });
    }
    Ok(())
}

/// The address, as it is logged.
impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{host}:{}/{}", self.port, self.database)
    }
}

impl fmt::Debug for RedisCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
