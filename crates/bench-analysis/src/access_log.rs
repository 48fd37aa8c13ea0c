//! Access logs in the common and the combined format, as Apache and nginx write them.
//!
//! ```text
//! 192.0.2.7 - - [22/Nov/2026:14:05:59 +0900] "GET /index.html HTTP/1.1" 200 4096 "-" "curl/8.5"
//! client        time                          request                   status bytes  (ignored)
//! ```
//!
//! Clients of the server control parts of its log. So the length of a line is bounded, and a bad line is counted and
//! skipped.

use std::fmt;
use std::io::{self, BufRead, Read};

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

/// One logged request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// The client's address, or its name if the server resolves names.
    pub client: &'a str,
    /// When the server logged the request, in the server's own time zone. A leap second counts as the second before it.
    pub time: OffsetDateTime,
    /// The request line, with the log's escapes. It may be `-` or arbitrary text if the client did not send HTTP.
    pub request: &'a str,
    /// The response's status; 0 if the server sent none.
    pub status: u16,
    /// Bytes of the body that were sent, as both servers count by default.
    pub bytes: u64,
}

impl<'a> LogLine<'a> {
    /// Parses a line without its line end.
    pub fn parse(line: &'a str) -> Result<Self, LineError> {
        // The user's name, between client and time, may contain any bytes but this separator.
        let (who, rest) = line.split_once(" [").ok_or(LineError::NoTime)?;
        let (time, rest) = rest.split_once("] \"").ok_or(LineError::NoRequest)?;
        let (request, rest) = rest.split_at(end_of_quoted(rest).ok_or(LineError::NoRequest)?);
        let client = who.split(' ').next().filter(|client| !client.is_empty()).ok_or(LineError::NoClient)?;
        let mut fields = rest.strip_prefix('"').unwrap_or(rest).split_ascii_whitespace();
        let status = fields.next().and_then(status).ok_or(LineError::Status)?;
        let bytes = fields.next().and_then(bytes).ok_or(LineError::Bytes)?;
        Ok(Self { client, time: log_time(time).ok_or(LineError::BadTime)?, request, status, bytes })
    }

    /// The method and the target; `None` if the client did not send an HTTP request line.
    pub fn method_and_target(&self) -> Option<(&'a str, &'a str)> {
        let mut parts = self.request.split(' ');
        let (method, target) = (parts.next()?, parts.next()?);
        let is_http = parts.next().is_none_or(|version| version.starts_with("HTTP/")) && parts.next().is_none();
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
        (is_http && is_method && !target.is_empty()).then_some((method, target))
    }
}

/// Reads a whole log and passes each line to `each`. Lines that do not parse, or that `each` refuses, are counted as
/// bad.
///
/// `name` names the log in [`BadLine`]. Bytes that are not UTF-8 are replaced.
pub fn read_log(
    name: &str,
    mut source: impl BufRead,
    mut each: impl FnMut(&LogLine<'_>) -> Result<(), LineError>,
) -> io::Result<LogCount> {
    let mut count = LogCount::default();
    let mut buffer = Vec::new();
    while let Some(line) = next_line(&mut source, &mut buffer)? {
        let done = line.and_then(|line| each(&LogLine::parse(&String::from_utf8_lossy(line))?));
        count.enter(name, done);
    }
    Ok(count)
}

/// The result of reading logs: counts of lines, and the first errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCount {
    /// Lines that parsed and that the reader accepted.
    pub good: u64,
    /// All other lines.
    pub bad: u64,
    /// The first bad lines, at most 3.
    pub first_bad: Vec<BadLine>,
}

impl LogCount {
    fn enter(&mut self, name: &str, done: Result<(), LineError>) {
        match done {
            Ok(()) => self.good += 1,
            Err(error) => {
                self.bad += 1;
                if self.first_bad.len() < BAD_SHOWN {
                    self.first_bad.push(BadLine { name: name.to_owned(), line: self.good + self.bad, error });
                }
            }
        }
    }
}

/// A bad line with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The log's name, as given to [`read_log`].
    pub name: String,
    /// Line number, from 1.
    pub line: u64,
    pub error: LineError,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.name, self.line, self.error)
    }
}

/// Why a line is bad. The log is at fault, not the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No text before the first space.
    #[error("no client at the beginning")]
    NoClient,
    /// No field in brackets.
    #[error("no time in brackets, so this is neither the common nor the combined format")]
    NoTime,
    /// No field in quotation marks after the time.
    #[error("no request in quotation marks after the time")]
    NoRequest,
    /// Not of the form `22/Nov/2026:14:05:59 +0900`, or not a valid date or time.
    #[error("the time is not like 22/Nov/2026:14:05:59 +0900")]
    BadTime,
    /// Not three digits, nor `-`.
    #[error("no status of three digits after the request")]
    Status,
    /// Neither a number nor `-`.
    #[error("no number of bytes after the status")]
    Bytes,
    /// Over [`LINE_BYTES_MAX`].
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The reader needs an address, but the server logged a name.
    #[error("the client is not an IP address")]
    NotAnAddress,
    /// The reader needs the method and target, but the client did not send HTTP.
    #[error("the request is not HTTP")]
    NotHttp,
    /// The reader keeps figures for each day, and has reached its limit of days.
    #[error("the log covers too many days")]
    TooManyDays,
}

/// The longest line that is read. Both servers accept request lines and fields of 8 KiB by default, and write an
/// escaped byte as four bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// How many bad lines are kept for the report.
const BAD_SHOWN: usize = 3;

/// Reads the next line into `buffer`, without its line end; `None` at the end of the log. Skips lines that are too
/// long.
fn next_line<'a>(
    source: &mut impl BufRead,
    buffer: &'a mut Vec<u8>,
) -> io::Result<Option<Result<&'a [u8], LineError>>> {
    buffer.clear();
    if source.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', buffer)? == 0 {
        return Ok(None);
    }
    if let Some(line) = buffer.strip_suffix(b"\n") {
        return Ok(Some(Ok(line.strip_suffix(b"\r").unwrap_or(line))));
    }
    if buffer.len() > LINE_BYTES_MAX {
        source.skip_until(b'\n')?;
        return Ok(Some(Err(LineError::TooLong)));
    }
    Ok(Some(Ok(buffer)))
}

/// The position of the first quotation mark without a backslash before it.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}

fn status(field: &str) -> Option<u16> {
    match field {
        "-" => Some(0),
        _ if field.len() == 3 => digits(field),
        _ => None,
    }
}

fn bytes(field: &str) -> Option<u64> {
    if field == "-" { Some(0) } else { digits(field) }
}

/// `22/Nov/2026:14:05:59 +0900`
fn log_time(text: &str) -> Option<OffsetDateTime> {
    let (local, offset) = text.split_once(' ')?;
    let (date, clock) = local.split_once(':')?;
    Some(PrimitiveDateTime::new(log_date(date)?, log_clock(clock)?).assume_offset(log_offset(offset)?))
}

/// `22/Nov/2026`
fn log_date(text: &str) -> Option<Date> {
    let mut parts = text.split('/');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)?;
    let month = Month::try_from(u8::try_from(month + 1).ok()?).ok()?;
    Date::from_calendar_date(digits(year)?, month, digits(day)?).ok().filter(|_| parts.next().is_none())
}

/// `14:05:59`; `23:59:60` is a leap second.
fn log_clock(text: &str) -> Option<Time> {
    let mut parts = text.split(':');
    let (hour, minute, second): (_, _, u8) = (parts.next()?, parts.next()?, digits(parts.next()?)?);
    let second = if second == 60 { 59 } else { second };
    Time::from_hms(digits(hour)?, digits(minute)?, second).ok().filter(|_| parts.next().is_none())
}

/// `+0900`, `-0330`
fn log_offset(text: &str) -> Option<UtcOffset> {
    let (sign, hours_minutes) = text.split_at_checked(1)?;
    let (hours, minutes) = hours_minutes.split_at_checked(2)?;
    let (hours, minutes): (i8, i8) = (digits(hours)?, digits(minutes)?);
    match sign {
        "+" => UtcOffset::from_hms(hours, minutes, 0).ok(),
        "-" => UtcOffset::from_hms(-hours, -minutes, 0).ok(),
        _ => None,
    }
}

/// Digits only: Rust's parser would accept a sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"192.0.2.7 - - [22/Nov/2026:14:05:59 +0900] "GET /a?b=c HTTP/1.1" 200 4096"#;

    fn time_of(text: &str) -> Option<i64> {
        log_time(text).map(OffsetDateTime::unix_timestamp)
    }

    fn with_request(request: &str) -> String {
        LINE.replace("GET /a?b=c HTTP/1.1", request)
    }

    #[test]
    fn both_formats_are_read() {
        let combined = format!(r#"{LINE} "http://a.test/ \"x\"" "curl/8.5""#);
        for text in [LINE, &combined] {
            let line = LogLine::parse(text).unwrap();
            assert_eq!((line.client, line.status, line.bytes), ("192.0.2.7", 200, 4096));
            assert_eq!(line.method_and_target(), Some(("GET", "/a?b=c")));
            // 05:05:59 UTC.
            assert_eq!((line.time.unix_timestamp(), line.time.hour()), (1_795_323_959, 14));
        }
    }

    #[test]
    fn odd_lines_are_read() {
        let user = LINE.replace("- - [", "- John Doe [");
        assert_eq!(LogLine::parse(&user).unwrap().client, "192.0.2.7");
        let quoted = with_request(r#"GET /\"a\\ HTTP/1.1"#);
        assert_eq!(LogLine::parse(&quoted).unwrap().method_and_target(), Some(("GET", r#"/\"a\\"#)));
        let nothing_sent = LINE.replace("200 4096", "- -");
        let line = LogLine::parse(&nothing_sent).unwrap();
        assert_eq!((line.status, line.bytes), (0, 0));
    }

    #[test]
    fn what_is_no_http_is_still_a_line() {
        for request in ["-", "", r"\x16\x03\x01\x02", "GET", "GET / HTTP/1.1 x", "GET /a b"] {
            let text = with_request(request);
            let line = LogLine::parse(&text).unwrap();
            assert_eq!((line.request, line.method_and_target()), (request, None));
        }
        let simple = with_request("GET /");
        assert_eq!(LogLine::parse(&simple).unwrap().method_and_target(), Some(("GET", "/")));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let cases = [
            ("", LineError::NoTime),
            (&LINE.replace("192.0.2.7 - -", ""), LineError::NoClient),
            (&LINE.replace('"', ""), LineError::NoRequest),
            (&LINE.replace(r#"1.1""#, r#"1.1\""#), LineError::NoRequest),
            (&LINE.replace("22/Nov", "31/Nov"), LineError::BadTime),
            (&LINE.replace("200 ", "20 "), LineError::Status),
            (&LINE.replace(" 4096", ""), LineError::Bytes),
            (&LINE.replace("4096", "-1"), LineError::Bytes),
        ];
        for (text, error) in cases {
            assert_eq!(LogLine::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn times_count_from_1970_in_any_zone() {
        assert_eq!(time_of("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(time_of("01/Jan/1970:00:00:00 -0330"), Some(12_600));
        // A leap day, the second before a leap second, and the leap second.
        assert_eq!(time_of("29/Feb/2024:00:00:00 +0000"), Some(1_709_164_800));
        assert_eq!(time_of("31/Dec/2016:23:59:59 +0000"), Some(1_483_228_799));
        assert_eq!(time_of("31/Dec/2016:23:59:60 +0000"), Some(1_483_228_799));
        for bad in [
            "29/Feb/2023:00:00:00 +0000",
            "01/jan/2023:00:00:00 +0000",
            "01/Jan/2023:24:00:00 +0000",
            "01/Jan/2023:00:00:61 +0000",
            "01/Jan/2023:00:00:00",
            "01/Jan/2023:00:00:00 0000",
            "01/Jan/2023:00:00:00 +9900",
            "+1/Jan/2023:00:00:00 +0000",
            "01/Jan/2023:00:00:00:00 +0000",
            "01/Jan/2023/4:00:00:00 +0000",
        ] {
            assert_eq!(time_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn bad_lines_are_counted_and_the_first_shown() {
        let too_long = "x".repeat(LINE_BYTES_MAX + 1);
        let log = format!("{LINE}\r\nbad\n{too_long}\n{LINE}\n\n\n{LINE}");
        let mut seen = 0;
        let count = read_log("a.log", log.as_bytes(), |line| {
            seen += 1;
            if seen == 2 && line.bytes == 4096 { Err(LineError::NotHttp) } else { Ok(()) }
        })
        .unwrap();
        assert_eq!((count.good, count.bad), (2, 5));
        let shown: Vec<_> = count.first_bad.iter().map(ToString::to_string).collect();
        let no_time = "no time in brackets, so this is neither the common nor the combined format";
        let expected = [
            format!("a.log:2: {no_time}"),
            "a.log:3: longer than 65536 bytes".into(),
            "a.log:4: the request is not HTTP".into(),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_longest_line_is_read() {
        let line = format!("{LINE} {}", "x".repeat(LINE_BYTES_MAX - LINE.len() - 1));
        for log in [line.clone(), format!("{line}\n{LINE}")] {
            let count = read_log("a.log", log.as_bytes(), |_| Ok(())).unwrap();
            assert_eq!((count.good, count.bad), (log.lines().count() as u64, 0));
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".*") {
            let _ = LogLine::parse(&line);
        }

        #[test]
        fn no_bytes_panic(log in prop::collection::vec(any::<u8>(), 0..300)) {
            let count = read_log("a.log", log.as_slice(), |_| Ok(())).unwrap();
            let lines = log.split_inclusive(|byte| *byte == b'\n').count() as u64;
            prop_assert_eq!(count.good + count.bad, lines);
        }

        #[test]
        fn a_line_reads_as_written(status in 100_u16..1000, bytes in any::<u64>(), path in "/[a-z\\[\\] ]{0,20}") {
            let text = format!(r#"::1 - a b [22/Nov/2026:14:05:59 +0900] "GET {path}" {status} {bytes} "-" "-""#);
            let line = LogLine::parse(&text).unwrap();
            prop_assert_eq!((line.client, line.status, line.bytes), ("::1", status, bytes));
            prop_assert_eq!(line.request, format!("GET {path}"));
        }
    }
}
