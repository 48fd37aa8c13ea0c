//! The command line of each generator, and the number of requests in its output.

use std::env;
use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::kind::{CONNECTIONS, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    Watari,
    Wrk,
    Ab,
    H2load,
    Oha,
}

impl Generator {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Watari => "watari bench",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::H2load => "h2load",
            Self::Oha => "oha",
        }
    }

    /// The program to run. `watari` is the one in the directory of this program, built together with it.
    pub(super) fn program(self) -> io::Result<PathBuf> {
        match self {
            Self::Watari => Ok(env::current_exe()?.with_file_name("watari")),
            peer => Ok(peer.name().into()),
        }
    }

    /// The arguments for about `seconds` of work. Generators that take only a number of requests get the number that a
    /// machine of today does in that time.
    pub(super) fn arguments(self, kind: Kind, url: &str, seconds: u64) -> Vec<String> {
        let requests = seconds * requests_per_s(kind);
        let text = match self {
            Self::Watari => format!("bench http {url} -n {requests} --json {}", ours(kind)),
            Self::Wrk => format!("-t1 -c{CONNECTIONS} -d{seconds}s {url}"),
            Self::Ab => {
                format!("-q -n {requests} -c {CONNECTIONS} {} {url}", if kind == Kind::KeepAlive { "-k" } else { "" })
            }
            Self::H2load => format!("-t1 -n {requests} {} {url}", h2load(kind, requests)),
            Self::Oha => {
                let close = if kind == Kind::PerConnection { "--disable-keepalive" } else { "" };
                format!("--no-tui --insecure --output-format json -n {requests} -c {CONNECTIONS} {close} {url}")
            }
        };
        let mut arguments: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        if self == Self::Wrk && kind == Kind::PerConnection {
            arguments.extend(["-H".to_owned(), "Connection: close".to_owned()]);
        }
        arguments
    }

    /// The number of answered requests in the output. `None` if the output reports failures.
    pub(super) fn requests(self, output: &str) -> Option<u64> {
        match self {
            Self::Watari => {
                let json: Value = serde_json::from_str(output).ok()?;
                let normal = json["endings"]["NORMAL"].as_u64()?;
                (json["requests"].as_u64()? == normal).then_some(normal)
            }
            Self::Wrk if output.contains("Socket errors") || output.contains("Non-2xx") => None,
            Self::Wrk => number_before(output, " requests in "),
            Self::Ab if number_behind(output, "Failed requests:") != Some(0) => None,
            Self::Ab => number_behind(output, "Complete requests:"),
            Self::H2load if number_before(output, " failed,") != Some(0) => None,
            Self::H2load => number_before(output, " succeeded,"),
            Self::Oha => {
                let json: Value = serde_json::from_str(output).ok()?;
                json["statusCodeDistribution"]["200"]
                    .as_u64()
                    .filter(|_| json["errorDistribution"] == Value::Object(Map::default()))
            }
        }
    }
}

/// The approximate rate of one core, in requests per second.
fn requests_per_s(kind: Kind) -> u64 {
    match kind {
        Kind::PerConnection => 16_000,
        Kind::Handshake => 1_500,
        Kind::KeepAlive | Kind::Streams => 80_000,
    }
}

fn ours(kind: Kind) -> String {
    match kind {
        Kind::KeepAlive => format!("-c {CONNECTIONS}"),
        Kind::PerConnection => format!("-c {CONNECTIONS} --requests-per-connection 1"),
        // The groups that h2load's OpenSSL offers first.
        Kind::Handshake => format!("-c {CONNECTIONS} --requests-per-connection 1 --group x25519 --group secp256r1"),
        Kind::Streams => "-c 10 --http2 --streams 10".to_owned(),
    }
}

fn h2load(kind: Kind, requests: u64) -> String {
    match kind {
        Kind::Handshake => format!("--h1 -m 1 -c {requests}"),
        Kind::Streams => "-c 10 -m 10".to_owned(),
        Kind::KeepAlive | Kind::PerConnection => format!("--h1 -m 1 -c {CONNECTIONS}"),
    }
}

fn number_before(output: &str, what: &str) -> Option<u64> {
    output.split_once(what)?.0.rsplit(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

fn number_behind(output: &str, what: &str) -> Option<u64> {
    output.split_once(what)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_requests_are_counted() {
        let wrk = "  2 threads\n  85034 requests in 2.03s, 100MB read\n";
        assert_eq!(Generator::Wrk.requests(wrk), Some(85_034));
        assert_eq!(Generator::Wrk.requests(&format!("{wrk}  Socket errors: connect 0, read 1\n")), None);
        let ab = "Complete requests:      400\nFailed requests:        0\n";
        assert_eq!(Generator::Ab.requests(ab), Some(400));
        assert_eq!(Generator::Ab.requests(&ab.replace("        0", "        1")), None);
        let h2load = "requests: 40 total, 40 started, 40 done, 40 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(Generator::H2load.requests(h2load), Some(40));
        assert_eq!(Generator::H2load.requests(&h2load.replace("0 failed", "1 failed")), None);
        let oha = r#"{"statusCodeDistribution": {"200": 30}, "errorDistribution": {}}"#;
        assert_eq!(Generator::Oha.requests(oha), Some(30));
        assert_eq!(
            Generator::Oha.requests(r#"{"statusCodeDistribution": {"200": 30}, "errorDistribution": {"x": 1}}"#),
            None
        );
        let watari = r#"{"requests": 30, "endings": {"NORMAL": 30}}"#;
        assert_eq!(Generator::Watari.requests(watari), Some(30));
        assert_eq!(Generator::Watari.requests(r#"{"requests": 31, "endings": {"NORMAL": 30}}"#), None);
    }
}
