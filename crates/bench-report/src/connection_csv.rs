//! `--csv`: a line for each connection.
//!
//! A separate thread writes the lines while the run goes on. Its queue is bounded. If the disk does not keep up, the
//! threads of the load wait: no line is lost, memory stays bounded, and in an open loop the delay shows as schedule
//! error.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::sample::{ConnectionSample, Family, HandshakeKind};

/// A CSV file with a line for each connection. All threads of a load share it.
#[derive(Debug)]
pub struct ConnectionCsv {
    /// `None` after [`ConnectionCsv::finish`].
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    batch: Batch,
    batches: SyncSender<Batch>,
    writer: JoinHandle<Result<u64, csv::Error>>,
}

impl ConnectionCsv {
    /// Starts the thread that writes to `out`. `classes` are the names that [`ConnectionSample::class`] is an index
    /// into.
    pub fn new(out: impl Write + Send + 'static, classes: Arc<[String]>) -> Self {
        let (batches, received) = sync_channel(BATCHES_MAX);
        let writer = thread::spawn(move || write(csv::Writer::from_writer(out), &classes, &received));
        Self { open: Mutex::new(Some(Open { batch: Vec::new(), batches, writer })) }
    }

    /// Waits until all lines are written, and returns their number. Call it once.
    pub fn finish(&self) -> Result<u64, CsvError> {
        let Some(mut open) = self.lock().take() else { return Ok(0) };
        open.send();
        drop(open.batches);
        Ok(open.writer.join().expect("writing does not panic")?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLog for ConnectionCsv {
    /// Adds a line. Blocks while the disk does not keep up. Does nothing after [`ConnectionCsv::finish`].
    fn ended(&self, sample: &ConnectionSample) {
        if let Some(open) = &mut *self.lock() {
            open.batch.push(sample.clone());
            if open.batch.len() >= BATCH_ROWS {
                open.send();
            }
        }
    }
}

impl Open {
    fn send(&mut self) {
        // This fails after a write error, which `finish` returns.
        let _ = self.batches.send(std::mem::take(&mut self.batch));
    }
}

/// The file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the connections' CSV: {0}")]
pub struct CsvError(#[from] csv::Error);

type Batch = Vec<ConnectionSample>;

fn write(mut out: csv::Writer<impl Write>, classes: &[String], batches: &Receiver<Batch>) -> Result<u64, csv::Error> {
    let mut rows = 0;
    for sample in batches.iter().flatten() {
        out.serialize(Row::new(&sample, classes))?;
        rows += 1;
    }
    out.flush()?;
    Ok(rows)
}

/// A line. Times are seconds since the start of the run. A field is empty if the connection did not get that far.
#[derive(Serialize)]
struct Row<'a> {
    class: &'a str,
    family: &'a str,
    local: Option<String>,
    remote: String,
    opened_s: String,
    connected_s: Option<String>,
    secured_s: Option<String>,
    written_s: Option<String>,
    first_byte_s: Option<String>,
    last_byte_s: Option<String>,
    closed_s: String,
    tr_s: Option<String>,
    tc_s: String,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    ending: &'a str,
    phase: &'a str,
    side: &'a str,
    handshake: Option<&'a str>,
    version: Option<&'a str>,
    suite: Option<&'a str>,
    group: Option<&'a str>,
    key: Option<&'a str>,
    alpn: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(sample: &'a ConnectionSample, classes: &'a [String]) -> Self {
        let tls = sample.tls.as_deref();
        Self {
            class: &classes[sample.class],
            family: family(sample.family),
            local: sample.local.map(|address| address.to_string()),
            remote: sample.remote.to_string(),
            opened_s: seconds(sample.opened),
            connected_s: sample.connected.map(seconds),
            secured_s: sample.secured.map(seconds),
            written_s: sample.written.map(seconds),
            first_byte_s: sample.first_byte.map(seconds),
            last_byte_s: sample.last_byte.map(seconds),
            closed_s: seconds(sample.closed),
            tr_s: sample.tr().map(seconds),
            tc_s: seconds(sample.tc()),
            requests: sample.requests,
            bytes_read: sample.bytes_read,
            bytes_written: sample.bytes_written,
            ending: sample.ending.kind.name(),
            phase: sample.ending.phase.name(),
            side: sample.ending.side.name(),
            handshake: tls.map(|seen| handshake(seen.kind)),
            version: tls.map(|seen| seen.version),
            suite: tls.map(|seen| seen.suite.as_str()),
            group: tls.and_then(|seen| seen.group.as_deref()),
            key: tls.and_then(|seen| seen.key.as_deref()),
            alpn: tls.and_then(|seen| seen.alpn.as_deref()),
        }
    }
}

fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

fn handshake(kind: HandshakeKind) -> &'static str {
    match kind {
        HandshakeKind::Full => "full",
        HandshakeKind::Resumed => "resumed",
    }
}

/// With all nanoseconds, which a floating-point number would lose.
fn seconds(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

const BATCH_ROWS: usize = 256;
const BATCHES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, File};
    use std::io;

    use watari_bench_engine::ending::EndingKind;
    use watari_bench_engine::test_samples::connection;

    use super::*;

    #[test]
    fn every_connection_of_every_thread_has_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connections.csv");
        let csv = &ConnectionCsv::new(File::create(&path).unwrap(), classes());
        thread::scope(|scope| [1_000, 20_000].map(|count| scope.spawn(move || add(csv, count))).map(drop));
        assert_eq!(csv.finish().unwrap(), 21_000);
        assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 21_001);
    }

    #[test]
    fn a_line_says_all_that_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connections.csv");
        let csv = ConnectionCsv::new(File::create(&path).unwrap(), classes());
        csv.ended(&connection(Some(HandshakeKind::Resumed), EndingKind::Reset));
        csv.ended(&ConnectionSample { written: None, ..connection(None, EndingKind::Normal) });
        csv.finish().unwrap();
        let expected = "\
class,family,local,remote,opened_s,connected_s,secured_s,written_s,first_byte_s,last_byte_s,closed_s,tr_s,tc_s,requests,bytes_read,\
bytes_written,ending,phase,side,handshake,version,suite,group,key,alpn
\"a, b\",ipv4,,127.0.0.1:443,1.000000000,1.010000000,1.030000000,1.035000000,1.060000000,1.070000000,1.090000000,0.035000000,\
0.090000000,1,1200,100,RESET,close,server,resumed,TLSv1.3,TLS_AES_128_GCM_SHA256,X25519MLKEM768,ECDSA P-256,
\"a, b\",ipv4,,127.0.0.1:443,1.000000000,1.010000000,,,1.060000000,1.070000000,1.090000000,,0.090000000,1,1200,100,NORMAL,close,\
server,,,,,,
";
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn a_full_disk_is_reported_and_stops_no_run() {
        let csv = ConnectionCsv::new(Full, classes());
        add(&csv, 40_000);
        assert!(csv.finish().unwrap_err().to_string().starts_with("cannot write the connections' CSV: "));
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn add(csv: &ConnectionCsv, count: u16) {
        let sample = connection(None, EndingKind::Normal);
        (0..count).for_each(|_| csv.ended(&sample));
    }

    fn classes() -> Arc<[String]> {
        ["a, b".to_owned()].into()
    }
}
