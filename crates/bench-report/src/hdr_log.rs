//! `--hdr`: the times of a run as a log of histograms for the tools of `HdrHistogram` (`HistogramLogProcessor`,
//! `HistogramLogAnalyzer` and others).
//!
//! Lines without a tag are the latency of each interval, to two significant digits. Lines with a tag (`latency`, `tr`,
//! `tc`, ..) are those of the whole run, to three. Values are in nanoseconds. The column `Interval_Max` is in
//! milliseconds.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriter, IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use watari_bench_engine::tally::{Series, Tally, Times};

/// Writes the log of a run that began at `started` and took `elapsed`.
pub fn write(mut out: impl Write, tally: &Tally, started: SystemTime, elapsed: Duration) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Histogram log format version 1.3]").with_start_time(started).with_base_time(started);
    builder.with_max_value_divisor(1e6);
    let mut log = builder.begin_log_with(&mut out, &mut serializer)?;
    intervals(&mut log, tally.series())?;
    whole_run(&mut log, tally, elapsed)?;
    out.flush()
}

type Log<'a, 'b, W> = IntervalLogWriter<'a, 'b, W, V2DeflateSerializer>;

fn intervals<W: Write>(log: &mut Log<'_, '_, W>, series: &Series) -> io::Result<()> {
    for (index, point) in (0_u32..).zip(series.points()) {
        if let Some(latency) = point.histogram() {
            log.write_histogram(latency, series.interval() * index, series.interval(), None).map_err(io_error)?;
        }
    }
    Ok(())
}

fn whole_run<W: Write>(log: &mut Log<'_, '_, W>, tally: &Tally, elapsed: Duration) -> io::Result<()> {
    let total = tally.total();
    let connections = &total.connections;
    let all: [(&str, &Times); 10] = [
        ("latency", &total.latency),
        ("failed", &total.failed),
        ("wait", &total.wait),
        ("transfer", &total.transfer),
        ("connect", &connections.connect),
        ("handshake", &connections.handshake),
        ("write", &connections.write),
        ("tr", &connections.tr),
        ("tc", &connections.tc),
        ("schedule_error", tally.lags()),
    ];
    for (name, times) in all {
        if let Some(histogram) = times.histogram() {
            log.write_histogram(histogram, Duration::ZERO, elapsed, Tag::new(name)).map_err(io_error)?;
        }
    }
    Ok(())
}

fn io_error<E: std::error::Error + Send + Sync + 'static>(error: IntervalLogWriterError<E>) -> io::Error {
    match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use watari_bench_engine::ending::EndingKind;
    use watari_bench_engine::histogram::Encoded;
    use watari_bench_engine::sample::Family;
    use watari_bench_engine::test_samples::{connection, request, tally};

    use super::*;

    #[test]
    fn a_reader_of_such_logs_finds_every_histogram() {
        let mut tally = tally();
        tally.request(&request(0, Family::Ipv4, None, EndingKind::Normal));
        tally.connection(&connection(None, EndingKind::Normal));
        let mut log = Vec::new();
        write(&mut log, &tally, SystemTime::UNIX_EPOCH + Duration::from_secs(7), Duration::from_secs(2)).unwrap();
        assert!(
            log.starts_with(b"#[Histogram log format version 1.3]\n#[StartTime: 7.000 "),
            "{}",
            String::from_utf8_lossy(&log)
        );
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let encoded = Encoded::from(interval.encoded_histogram().to_owned());
                let count = encoded.decode::<u64>().unwrap().len();
                found.push((interval.tag().map(|tag| tag.as_str()), interval.duration().as_secs(), count));
            }
        }
        let tags = ["latency", "wait", "transfer", "connect", "write", "tr", "tc"];
        let expected: Vec<_> = std::iter::once((None, 1, 1)).chain(tags.map(|tag| (Some(tag), 2, 1))).collect();
        assert_eq!(found, expected);
    }
}
