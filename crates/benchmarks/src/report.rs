//! The table of what came of it.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::Scale;
use crate::measure::Samples;

/// From here on the file belongs to people.
const NOTES: &str = "## Notes\n";

const MIB: f64 = 1_048_576.0;

/// All comparisons of a run.
pub(crate) struct Report {
    machine: Vec<(&'static str, String)>,
    scale: Scale,
    rows: Vec<Row>,
    /// What is not a comparison, with its title.
    tables: Vec<(&'static str, String)>,
}

/// One comparison.
pub(crate) struct Row {
    what: String,
    unit: Unit,
    ours: Samples,
    peer: &'static str,
    theirs: Samples,
    target: Target,
}

enum Target {
    None,
    /// The most that our median may be of the peer's.
    Ratio(f64),
    /// The most that our median may be, in seconds or as a count.
    Limit(f64),
}

/// A ratio to nothing is none.
fn shown(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

/// How seconds for each unit of work are shown, or a number of things, or a part of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    SecondsPerGib,
    Microseconds,
    Nanoseconds,
    Seconds,
    Bytes,
    Mebibytes,
    Count,
    Percent,
}

impl Row {
    /// Our cost against a peer's, in CPU seconds, with the most that their ratio should be.
    pub(crate) fn against(
        what: String,
        unit: Unit,
        ours: Samples,
        peer: &'static str,
        theirs: Samples,
        target: Option<f64>,
    ) -> Self {
        Self { what, unit, ours, peer, theirs, target: target.map_or(Target::None, Target::Ratio) }
    }

    /// A time, in seconds, or a count, with a limit of its own; what it is beside is for orientation.
    pub(crate) fn limited(
        what: String,
        unit: Unit,
        ours: Samples,
        peer: &'static str,
        theirs: Samples,
        limit: f64,
    ) -> Self {
        Self { what, unit, ours, peer, theirs, target: Target::Limit(limit) }
    }

    fn ratio(&self) -> f64 {
        self.ours.median() / self.theirs.median()
    }

    /// By how much the target is missed. `None`: it is met, or there is none.
    fn shortfall(&self) -> Option<String> {
        let (value, target) = match self.target {
            Target::None => return None,
            Target::Ratio(target) => (self.ratio(), target),
            Target::Limit(target) => (self.ours.median(), target),
        };
        (value > target).then(|| match target {
            0.0 => format!("{} instead of none", self.unit.show(value)),
            _ => format!("{:.0} % above the target", (value / target - 1.0) * 100.0),
        })
    }

    fn target(&self) -> String {
        match self.target {
            Target::None => "-".to_owned(),
            Target::Ratio(target) => format!("{target:.2}"),
            Target::Limit(target) => self.unit.show(target),
        }
    }

    fn verdict(&self) -> &'static str {
        match (&self.target, self.shortfall()) {
            (Target::None, _) => "",
            (_, None) => "met",
            (_, Some(_)) => "**short**",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} |",
            self.what,
            self.unit.show_samples(&self.ours),
            self.peer,
            self.unit.show_samples(&self.theirs),
            shown(self.ratio()),
            self.target(),
            self.verdict()
        )
    }
}

impl Unit {
    fn show(self, seconds: f64) -> String {
        match self {
            Self::SecondsPerGib => format!("{seconds:.2} s/GiB"),
            Self::Microseconds => format!("{:.0} us", seconds * 1e6),
            Self::Nanoseconds => format!("{:.0} ns", seconds * 1e9),
            Self::Seconds => format!("{seconds:.2} s"),
            Self::Bytes => format!("{:.1} KiB", seconds / 1024.0),
            Self::Mebibytes => format!("{:.1} MiB", seconds / MIB),
            Self::Count => format!("{seconds:.0}"),
            Self::Percent => format!("{:.1} %", seconds * 100.0),
        }
    }

    /// The median, and the spread.
    fn show_samples(self, samples: &Samples) -> String {
        let (min, max) = (samples.min(), samples.max());
        let spread = match self {
            Self::SecondsPerGib | Self::Seconds => format!("{min:.2}-{max:.2}"),
            Self::Microseconds => format!("{:.0}-{:.0}", min * 1e6, max * 1e6),
            Self::Nanoseconds => format!("{:.0}-{:.0}", min * 1e9, max * 1e9),
            Self::Bytes => format!("{:.1}-{:.1}", min / 1024.0, max / 1024.0),
            Self::Mebibytes => format!("{:.1}-{:.1}", min / MIB, max / MIB),
            Self::Count => format!("{min:.0}-{max:.0}"),
            Self::Percent => format!("{:.1}-{:.1}", min * 100.0, max * 100.0),
        };
        format!("{} ({spread})", self.show(samples.median()))
    }
}

impl Report {
    pub(crate) fn new(machine: Vec<(&'static str, String)>, scale: Scale) -> Self {
        Self { machine, scale, rows: Vec::new(), tables: Vec::new() }
    }

    /// Adds a comparison, and shows it at once: a run takes minutes.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.rows.push(row);
    }

    /// A table in Markdown, which comes behind the comparisons.
    pub(crate) fn add_table(&mut self, title: &'static str, table: String) {
        self.tables.push((title, table));
    }

    /// Writes the report to `path`; what is there from the notes on is kept.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let before = match fs::read_to_string(path) {
            Ok(before) => before,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let notes = before.find(NOTES).map_or(NOTES, |at| &before[at..]);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(path, format!("{self}\n{notes}"))
    }

    fn shortfalls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<_> = self.rows.iter().filter_map(|row| Some((row, row.shortfall()?))).collect();
        if short.is_empty() {
            return writeln!(f, "Nothing that was measured.");
        }
        for (row, shortfall) in short {
            writeln!(f, "* {}, against {}: {shortfall}.", row.what, row.peer)?;
        }
        Ok(())
    }
}

const HEAD: &str = "\
# Benchmarks

`make bench` writes this file, as far as the notes; it installs nginx and HAProxy of Debian where they are missing. `scripts/bench
--quick` only checks that everything runs, `scripts/bench --only PART` prints one part.

Everything runs on one machine, in a network namespace of its own, the clients too. A figure is the CPU time, user and
system, of the processes named, for one unit of work: their medians over interleaved rounds (A B C A B C ..), with the least and the most
in parentheses. A ratio is of medians; a target is the most it should be. What the clients use is not counted. They are loads of
`watari bench`, and for connections that are idle a client that can wait. They offer TLS 1.3 with TLS_AES_128_GCM_SHA256 and X25519 alone,
resume no session unless it says so, and check certificate, status and length of every answer, and the content of small ones: a request or a connection
that ends otherwise than NORMAL ends the benchmark.

* A *connection* is a full handshake, one GET of 1 KiB, and the end, which comes from the server. A *keep-alive request* is a GET of 1 KiB.
* *agent*, *dispatcher*: the process alone, where both do the work together; *both*: their sum, beside nginx alone and `HAProxy` in
  front of it. The relays in front of nginx carry the same TLS bytes as the dispatcher.
* Every server has the number of workers that it chooses by itself; all send with the same congestion control.
* *Forwarded*: the servers are proxies in front of one nginx, to which they keep connections and say whose request it is (`X-Forwarded-*`). *Time for N MiB* is that of one client, in front
  of a dispatcher and an agent or at that nginx, over HTTPS.
* A *handover*: a download of 4 s from two origins that send 100 MB/s each, or 10 MB/s over a way of 30 ms there and back, goes on at the other
  in the middle, by order or because its origin closed the connection. *Extra time* is by how much longer it took from the first quarter
  on than the one without a handover in the same round; the *worst second* is the one in which the least came.
* A *move* comes right after the handshake, to an agent without a private key. Its *pause* is from the request to the first byte of the
  answer: of connections one after the other, or *at a rate*, begun when their time has come, however long those before them take.
  Medians and percentiles are taken of each round, and their medians over the rounds.
* *Memory* is what a process has taken, apart from its files, for each connection that has had one answer and is idle.
* A *drain*: a server whose connections are all idle but for four at a time, on which there is a request every 5 ms, is told to end and
  replaced: an agent by two others, `HAProxy` and nginx by a new process. Afterwards there is a request on every connection.
* A *lookup* asks a store for one session of 300 bytes by its key, drawn at random: in memory, or in the database file, which the system holds
  in memory as far as it can. Beside it are keys that are not there.
* A *resumed connection*: clients come again and again for 1 KiB, and resume all but their first connection; nginx's workers share keys of tickets.
  *Three agents* take turns, so that every session comes from elsewhere; their CPU is added up.
* *Load generators* ask one nginx for the file of 1 KiB, with one thread each and 50 connections (new TLS connections: h2load opens all at once).
  Here it is the CPU time of the generator that counts, for each request. A *schedule error* is how much later than due a request of the
  open loop begins, at half of the rate that the closed loop reached before.
* *watch* reads captures that are made for it, cut to 96 octets: downloads of 50 connections, and connections with one request of ten packets
  each. Keep-alive HTTP is 100 requests a connection with answers of 1 KiB, in clear, cut to 600 octets: watari reads their heads, tcptrace does not. A connection's memory is the difference of ten times as many and the tenth, when all has been read and more may come. Live, it listens
  to the loopback interface while wrk asks nginx for 1 KiB with 50 connections, both on the two cores that it needs, too.
";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scale {
            rounds,
            bulk_bytes,
            connections,
            requests,
            pauses,
            record_bytes,
            idle: _,
            sessions: _,
            download_s: _,
            generator_s: _,
            packets: _,
        } = self.scale;
        writeln!(f, "{HEAD}")?;
        writeln!(
            f,
            "{rounds} rounds, each of {} MiB of files, {connections} connections, {requests} requests, {pauses} pauses, {} MiB of records.\n",
            bulk_bytes >> 20,
            record_bytes >> 20
        )?;
        writeln!(f, "| | |\n| --- | --- |")?;
        for (name, value) in &self.machine {
            writeln!(f, "| {name} | {value} |")?;
        }
        writeln!(
            f,
            "\n## Figures\n\n| what | Watari | beside | | ratio | target | |\n| --- | --- | --- | --- | --- | --- | --- |"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for (title, table) in &self.tables {
            write!(f, "\n## {title}\n\n{table}")?;
        }
        writeln!(f, "\n## Short of the target\n")?;
        self.shortfalls(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn report() -> Report {
        let mut report = Report::new(vec![("kernel", "6.1".to_owned())], Scale::QUICK);
        let row = |ours: f64, target| {
            let (ours, theirs) = (Samples::new(vec![ours]), Samples::new(vec![1e-3, 2e-3, 3e-3]));
            Row::against(format!("work {ours:?}"), Unit::Microseconds, ours, "peer", theirs, target)
        };
        report.rows = vec![row(0.001, Some(0.5)), row(0.003, Some(1.2)), row(0.004, None)];
        report
    }

    #[test]
    fn what_is_above_its_target_is_listed() {
        let text = report().to_string();
        assert!(text.contains("| 1000 us (1000-1000) | peer | 2000 us (1000-3000) | 0.50 | 0.50 | met |"), "{text}");
        assert!(text.contains("| 1.50 | 1.20 | **short** |"), "{text}");
        assert!(text.contains("| 2.00 | - |  |"), "{text}");
        let (_, short) = text.split_once("## Short of the target").unwrap();
        assert_eq!(short.matches("* work").count(), 1);
        assert!(short.contains("against peer: 25 % above"), "{short}");
    }

    #[test]
    fn the_notes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docs/benchmarks.md");
        report().write(&path).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.ends_with(NOTES));
        fs::write(&path, first + "\nWhy.\n").unwrap();
        report().write(&path).unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert!(second.ends_with("## Notes\n\nWhy.\n"));
        assert_eq!(second.matches("# Benchmarks").count(), 1);
    }
}
