//! Makes lists from a server's log.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use http::{Method, Uri};
use watari_bench_engine::list::{Ask, Line};
use watari_bench_engine::round::Round;

use super::{HEADING, MakeError, TlsShare};
use crate::access_log::{LineError, LogCount, LogLine, read_log};

/// The parameters of a list from a log. Each logged request becomes a line, in the log's order.
///
/// A log does not contain the body of a POST, header fields, and whether the client used TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromLog {
    /// The source addresses of the lines.
    pub clients: Clients,
    /// The share of lines with TLS.
    pub tls: TlsShare,
}

/// The source addresses of a list from a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// The logged client's address, which this machine must have. Lines with a client's name are not usable.
    AsLogged,
    /// Any source (`-`).
    Any,
}

impl FromLog {
    /// Reads a log and writes a list. `name` names the log in errors. Returns the counts of usable and bad lines.
    pub fn write(self, name: &str, log: impl BufRead, out: &mut impl Write) -> Result<LogCount, MakeError> {
        let tls = Round::new(&self.tls.weights())?;
        let mut turn = 0;
        // A write error must not appear as a read error of the log, so it is kept aside.
        let mut written = writeln!(out, "{HEADING}");
        let each = |logged: &LogLine<'_>| {
            let line = self.line(logged, tls.nth(turn) == 1)?;
            turn += 1;
            if written.is_ok() {
                written = writeln!(out, "{line}");
            }
            Ok(())
        };
        let count = read_log(name, log, each).map_err(|error| MakeError::Log { file: name.to_owned(), error })?;
        written.map_err(MakeError::Write)?;
        of_use(name, count)
    }

    /// Like [`FromLog::write`], from a file.
    pub fn write_of_file(self, log: &Path, out: &mut impl Write) -> Result<LogCount, MakeError> {
        let name = log.display().to_string();
        let file = File::open(log).map_err(|error| MakeError::Log { file: name.clone(), error })?;
        self.write(&name, BufReader::new(file), out)
    }

    fn line(self, logged: &LogLine<'_>, tls: bool) -> Result<Line, LineError> {
        let source = match self.clients {
            Clients::Any => None,
            Clients::AsLogged => Some(logged.client.parse().map_err(|_| LineError::NotAnAddress)?),
        };
        Ok(Line { source, ask: ask(logged, tls).ok_or(LineError::NotHttp)? })
    }
}

fn of_use(name: &str, count: LogCount) -> Result<LogCount, MakeError> {
    match count.first_bad.first() {
        _ if count.good > 0 => Ok(count),
        Some(first) => Err(MakeError::NothingOfUse { first: first.clone() }),
        None => Err(MakeError::Empty { file: name.to_owned() }),
    }
}

/// The logged request, if it can be repeated.
fn ask(logged: &LogLine<'_>, tls: bool) -> Option<Ask> {
    let (method, target) = logged.method_and_target()?;
    let target = unescape(target)?;
    // Bytes that were not UTF-8 are lost.
    if target.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    let ask = Ask::parse_without_tls(&path_of(target)?, tls).ok()?;
    let method = method.parse().ok().filter(|method| *method != Method::CONNECT)?;
    Some(Ask { method, ..ask })
}

/// The path and query of a target. The target of a request to a proxy also names a host.
fn path_of(target: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if target.starts_with('/') {
        return Some(target);
    }
    let uri: Uri = target.parse().ok().filter(|uri: &Uri| uri.scheme().is_some())?;
    Some(Cow::Owned(uri.path_and_query()?.to_string()))
}

/// Replaces the escapes that servers write into logs (`\"`, `\\`, `\xHH`, `\t` and others) by percent-encoding.
fn unescape(target: &str) -> Option<Cow<'_, str>> {
    let Some((plain, mut escaped)) = target.split_once('\\') else { return Some(Cow::Borrowed(target)) };
    let mut encoded = plain.to_owned();
    loop {
        let (byte, behind) = escaped_byte(escaped)?;
        write!(encoded, "%{byte:02X}").ok()?;
        let Some((plain, next)) = behind.split_once('\\') else {
            encoded.push_str(behind);
            return Some(Cow::Owned(encoded));
        };
        encoded.push_str(plain);
        escaped = next;
    }
}

/// The byte that the text after a backslash means, and the rest of the text.
fn escaped_byte(text: &str) -> Option<(u8, &str)> {
    let byte = match text.bytes().next()? {
        b'x' => return Some((u8::from_str_radix(text.get(1..3)?, 16).ok()?, text.get(3..)?)),
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'b' => 0x08,
        b'f' => 0x0c,
        byte @ (b'"' | b'\\') => byte,
        _ => return None,
    };
    Some((byte, &text[1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use watari_bench_engine::list::AccessList;

    use super::*;

    const END: &str = r#"HTTP/1.1" 200 1"#;

    fn line(client: &str, request: &str) -> String {
        format!(r#"{client} - - [22/Nov/2026:14:05:59 +0900] "{request} {END}"#)
    }

    fn made(log: &str, clients: Clients, tls: &str) -> (String, LogCount) {
        let mut list = Vec::new();
        let from_log = FromLog { clients, tls: tls.parse().unwrap() };
        let count = from_log.write("a.log", log.as_bytes(), &mut list).unwrap();
        (String::from_utf8(list).unwrap(), count)
    }

    #[test]
    fn a_log_becomes_a_list() {
        let log = [
            line("192.0.2.7", "GET /index.html"),
            line("2001:db8::1", "POST /a?b=c"),
            line("192.0.2.7", r#"GET /\"\xe3\\"#),
            line("192.0.2.7", "GET http://example.org/proxied?x"),
        ];
        let (list, count) = made(&log.join("\n"), Clients::AsLogged, "0");
        assert_eq!(
            list,
            "# source URI TLS\n\
             192.0.2.7 /index.html 0\n\
             2001:db8::1 /a?b=c 0 method=POST\n\
             192.0.2.7 /%22%E3%5C 0\n\
             192.0.2.7 /proxied?x 0\n"
        );
        assert_eq!((count.good, count.bad), (4, 0));
    }

    #[test]
    fn clients_and_tls_are_as_wanted() {
        let log = [line("host.example", "GET /a"), line("192.0.2.7", "GET /b")].join("\n");
        let (list, _) = made(&log, Clients::Any, "50%");
        assert_eq!(list, "# source URI TLS\n- /a 0\n- /b 1\n");
        let (list, count) = made(&log, Clients::AsLogged, "1");
        assert_eq!(list, "# source URI TLS\n192.0.2.7 /b 1\n");
        assert_eq!(count.first_bad[0].to_string(), "a.log:1: the client is not an IP address");
    }

    #[test]
    fn what_cannot_be_asked_for_again_is_counted() {
        let log = ["GET /a", "CONNECT a:1", "OPTIONS *", r"GET /\q", "GET a.html", "GET /a#b", "GET //\u{fffd}"];
        let log: Vec<_> = log.iter().map(|request| line("::1", request)).collect();
        let (list, count) = made(&log.join("\n"), Clients::Any, "0");
        assert_eq!((list.lines().count(), count.good, count.bad), (2, 1, 6));
    }

    #[test]
    fn a_log_without_a_line_of_use_is_an_error() {
        let error = |log: &str| {
            let from_log = FromLog { clients: Clients::AsLogged, tls: "0".parse().unwrap() };
            from_log.write("a.log", log.as_bytes(), &mut Vec::new()).unwrap_err().to_string()
        };
        assert_eq!(error(""), "a.log has no lines");
        let log = format!("{}\nbad", line("host.example", "GET /"));
        assert_eq!(error(&log), "a.log:1: the client is not an IP address; no other line is usable either");
    }

    #[test]
    fn a_list_that_cannot_be_written_is_an_error() {
        let from_log = FromLog { clients: Clients::Any, tls: "0".parse().unwrap() };
        let log = line("::1", "GET /");
        let error = from_log.write("a.log", log.as_bytes(), &mut [0_u8; 20].as_mut_slice()).unwrap_err();
        assert!(matches!(error, MakeError::Write(_)), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_made_can_be_read(targets in prop::collection::vec("/[ -~é]{0,9}", 1..9)) {
            let log: Vec<_> = targets.iter().map(|target| line("::1", &format!("GET {target}"))).collect();
            let mut list = Vec::new();
            let from_log = FromLog { clients: Clients::AsLogged, tls: "0.5".parse().unwrap() };
            if let Ok(count) = from_log.write("a.log", log.join("\n").as_bytes(), &mut list) {
                let text = String::from_utf8(list).unwrap();
                let list = AccessList::parse("a.list", &text, |_| unreachable!()).unwrap();
                prop_assert_eq!(list.entries().len() as u64, count.good);
            }
        }
    }
}
