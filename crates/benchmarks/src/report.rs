//! The report: a section for each part, with a table of comparisons and other tables.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::Scale;
use crate::measure::Samples;

/// The heading of the section that people write. The program keeps it.
const NOTES: &str = "## Notes\n";

const MIB: f64 = 1_048_576.0;

pub(crate) struct Report {
    /// The peers and their versions.
    peers: Vec<(&'static str, String)>,
    scale: Scale,
    sections: Vec<Section>,
}

/// The figures of one part. A later run can replace them.
struct Section {
    /// The name and the title of the part.
    name: String,
    title: String,
    /// When and where it was measured.
    measured: String,
    rows: Vec<Row>,
    /// Tables that are not comparisons, with their titles.
    tables: Vec<(&'static str, String)>,
    /// Whether the part ended with an error.
    has_failed: bool,
}

/// One comparison: a row of the table.
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
    /// The largest ratio of our median to the peer's.
    Ratio(f64),
    /// The largest median of ours, in the unit of the samples.
    Limit(f64),
}

/// A ratio to a peer's median of 0 is shown as `-`.
fn shown(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

/// The unit in which the report shows samples. Samples of time are in seconds, those of memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    SecondsPerGib,
    Microseconds,
    Nanoseconds,
    Seconds,
    /// Single bytes.
    Octets,
    Bytes,
    Mebibytes,
    Count,
    Percent,
}

impl Row {
    /// Compares our cost with a peer's. `target` is the largest ratio.
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

    /// Compares a figure with a limit of its own. The peer's figure is only for orientation.
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
            _ => format!("{:.0} % above", (value / target - 1.0) * 100.0),
        })
    }

    fn target(&self) -> String {
        match self.target {
            Target::None => "-".to_owned(),
            Target::Ratio(target) => format!("{target:.2}"),
            Target::Limit(target) => self.unit.show(target),
        }
    }

    fn verdict(&self) -> String {
        match (&self.target, self.shortfall()) {
            (Target::None, _) => String::new(),
            (_, None) => "met".to_owned(),
            (_, Some(shortfall)) => format!("**missed**: {shortfall}"),
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
            Self::Octets => format!("{seconds:.0} B"),
            Self::Bytes => format!("{:.1} KiB", seconds / 1024.0),
            Self::Mebibytes => format!("{:.1} MiB", seconds / MIB),
            Self::Count => format!("{seconds:.0}"),
            Self::Percent => format!("{:.1} %", seconds * 100.0),
        }
    }

    /// The median, with the least and the most in parentheses.
    fn show_samples(self, samples: &Samples) -> String {
        let (min, max) = (samples.min(), samples.max());
        let spread = match self {
            Self::SecondsPerGib | Self::Seconds => format!("{min:.2}-{max:.2}"),
            Self::Microseconds => format!("{:.0}-{:.0}", min * 1e6, max * 1e6),
            Self::Nanoseconds => format!("{:.0}-{:.0}", min * 1e9, max * 1e9),
            Self::Bytes => format!("{:.1}-{:.1}", min / 1024.0, max / 1024.0),
            Self::Mebibytes => format!("{:.1}-{:.1}", min / MIB, max / MIB),
            Self::Octets | Self::Count => format!("{min:.0}-{max:.0}"),
            Self::Percent => format!("{:.1}-{:.1}", min * 100.0, max * 100.0),
        };
        format!("{} ({spread})", self.show(samples.median()))
    }
}

impl Report {
    pub(crate) fn new(peers: Vec<(&'static str, String)>, scale: Scale) -> Self {
        Self { peers, scale, sections: Vec::new() }
    }

    /// Begins the section of a part. `measured` says when and where.
    pub(crate) fn begin(&mut self, name: String, title: String, measured: String) {
        let (rows, tables) = (Vec::new(), Vec::new());
        self.sections.push(Section { name, title, measured, rows, tables, has_failed: false });
    }

    /// The section that was begun last.
    fn section(&mut self) -> &mut Section {
        self.sections.last_mut().expect("a part has begun")
    }

    /// Adds a comparison, and prints it at once, because a run takes an hour.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.section().rows.push(row);
    }

    /// Adds a table in Markdown, which comes after the comparisons.
    pub(crate) fn add_table(&mut self, title: &'static str, table: String) {
        self.section().tables.push((title, table));
    }

    /// The part has ended with an error: some or all of its figures are missing.
    pub(crate) fn note_failure(&mut self) {
        self.section().has_failed = true;
    }

    /// Whether no part ended with an error.
    pub(crate) fn is_complete(&self) -> bool {
        self.sections.iter().all(|section| !section.has_failed)
    }

    /// Writes the report to `path`. Keeps the notes of a file that is there already.
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

    /// Replaces the sections of the measured parts in a report. All else stays.
    pub(crate) fn write_sections(&self, path: &Path) -> io::Result<()> {
        let mut text = fs::read_to_string(path)?;
        for section in &self.sections {
            let Some(from) = text.find(&section.heading()) else {
                let what = format!("{} has no section of the part {}", path.display(), section.name);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            let len = text[from + 1..].find("\n## ").map_or(text.len() - from, |len| len + 2);
            text.replace_range(from..from + len, &format!("{section}\n"));
        }
        fs::write(path, text)
    }
}

impl Section {
    fn heading(&self) -> String {
        format!("## {} (`{}`)\n", self.title, self.name)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.heading(), self.measured)?;
        if self.has_failed {
            writeln!(f, "\n**The part ended with an error. Some of its figures are missing.**")?;
        }
        if !self.rows.is_empty() {
            writeln!(f, "\n| measurement | Watari | peer | figure of the peer | ratio | target | result |")?;
            writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        }
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for (title, table) in &self.tables {
            write!(f, "\n### {title}\n\n{table}")?;
        }
        Ok(())
    }
}

const HEAD: &str = "\
# Benchmarks

`make bench` writes this file up to the section Notes. It installs Debian's nginx, HAProxy, Varnish and keepalived
if they are missing.

* `scripts/bench --quick` only checks that everything runs.
* `scripts/bench --only PART` measures one part and prints it. With `--out FILE`, it replaces the section of that part.
  So a section says when and where it was measured.

## Method

* All processes, including the clients, run on one machine, in a network namespace of their own.
* A figure is the CPU time (user and system) of the named processes for one unit of work, unless its label names
  something else. The CPU time of the clients does not count.
* Each figure is the median over interleaved rounds (A B C A B C ..). Parentheses have the least and the most.
* A ratio is the ratio of two medians. A target is the largest permitted ratio, or the largest permitted figure.
* Clients are loads of `watari bench`. Connections that have to stay idle belong to a client of the benchmark itself.
* Clients offer only TLS 1.3 with TLS_AES_128_GCM_SHA256 and X25519. They resume no session unless the label says so.
* Clients check the certificate, the status and the length of every response, and the content of small responses.
* A part of the benchmark ends at the first request or connection that does not end with NORMAL.
* Each server chooses its number of workers by itself. All servers send with the same congestion control.

## Labels

Files and relays:

* A *connection* is a full handshake, one GET of 1 KiB, and the close. The server closes it.
* A *keep-alive request* is a GET of 1 KiB.
* *agent* and *dispatcher* each name the figure of that process alone, while both work together.
* *agent + dispatcher* is the sum of the two. Its peer is the sum of nginx alone and `HAProxy` in front of nginx.
* The relays in front of nginx carry the same TLS bytes as the dispatcher.
* *over HTTP/2*: clients have one request at a time on each connection, as over HTTP/1.1.
* *system with bbr*: the servers that use the system's congestion control get BBR. Watari sets cubic for itself.

Forwarding:

* *forwarded*: the servers are proxies in front of one nginx. They keep connections to it, and send `X-Forwarded-*`.
* *time to download N MiB* is the time of one client over HTTPS. It connects to a dispatcher and an agent in front of
  that nginx, or to that nginx.

Cache:

* A *hit* is a response from a cache. The caches have all files in their store, and their origin has ended: a miss would
  end the benchmark. Watari and Varnish store in memory, nginx in files that the system caches.
* *HAProxy + Varnish*: `HAProxy` terminates TLS and forwards to Varnish over keep-alive connections. The figure is the sum
  of both.
* *an agent with the files* serves the same files itself, without a cache.
* *100000 URLs*: clients request by a Zipf law with the exponent 0.9. The lengths are log-normal around 16 KiB. The
  memory is a tenth of all content. *missed* is the share that the origin has sent, in the second half of the requests.
  One run.
* *one cold content*: all clients request 100 MiB that no cache has. The origin has all requests before it answers, and
  sends 100 MB/s. *time until the last has a byte* counts from its first byte until each client's socket has a byte. Then
  four clients get all of it, and the others leave.
* *small entries on a disk* have a content of 500 bytes. *memory of each* is the additional memory of an agent whose
  directory has ten times as many entries, divided by the additional entries, once it is stable. *start* counts
  from the start of the nodes until a client has a hit from the directory.
* *drain of one of three agents*: the agents share their entries, and clients have got each content once, from one of
  the agents. Then clients request by the Zipf law, and again, and one agent gets SIGTERM at the beginning of that.

Handovers:

* A *handover* moves a download of 4 s to the other of two origins in its middle. The cause is an order (*ordered*), or
  the origin closes the connection (*cut by the origin*).
* The origins send 100 MB/s each, or 10 MB/s through a network with a round trip of 30 ms (*30 ms away*).
* *extra time* compares with the download without a handover in the same round, both from the first quarter on.
* *longest pause* is the longest time without a byte.
* *rate drop* is the share of the average rate that is missing in the second with the fewest bytes.

Moves:

* A *move* comes right after the handshake, to an agent without a private key.
* *additional CPU* is the CPU time of a connection that moves minus that of a connection that stays.
* The *pause* is the time from the request to the first byte of the response. Connections come one after the other, or
  *at a rate*: they begin on schedule, however long the earlier ones take.
* Medians and percentiles are those of a round. A figure is their median over the rounds.
* A *move in mid-response* comes while one client downloads a file of 1 GiB: after each 4 MiB for its CPU time, every
  50 ms for its *longest pause*, which is the longest time without a byte between two orders. A download without moves
  gets the same number of orders, and the dispatcher refuses them.

Memory, bursts and drains:

* *memory* is the anonymous memory that a process has taken for each connection. Each connection has had one response
  and is idle. Files do not count.
* A *burst* opens thousands of connections and closes them. Three bursts go to the same processes. *memory kept* is
  measured after the last.
* A *drain* signals a server to end while others replace it: two agents for an agent, a new process for `HAProxy` and
  nginx. Four connections at a time are in use, with a request every 5 ms. All others are idle. Afterwards, the clients
  send a request on every connection.
* *N downloads*: on so many connections more, clients read a large file slowly. Each compares what it reads before,
  during and after the drain. In a drain of an agent, they come through a second dispatcher, because a process may have
  20,000 files here.
* An *upgrade* replaces a node by a new process of the same host (`watari ctl upgrade`), as `HAProxy` and nginx are
  replaced. Time counts from the order. An old process that has not ended after 10 s counts as 10 s.
  `HAProxy` serves no files here, and has idle connections in place of the downloads.

Takeovers:

* *owner killed*: SIGKILL for all processes of the machine that has the service address. A client tries again and again to
  connect and to get the file of 1 KiB, with 50 ms for each attempt. Each machine is a network namespace.
* *planned switch*: the owner leaves the address by order, with idle connections and slow downloads of a large file that
  compare each byte. Four connections at a time are in use, with a request every 5 ms. Afterwards, the clients send a
  request on every connection. keepalived gets SIGTERM. Its `HAProxy` has idle connections in place of the downloads.
* *keepalived + `HAProxy`* has its defaults, among them an advert each second. `HAProxy` terminates TLS.

Sessions:

* A *resumed connection* gets 1 KiB. Clients connect again and again, and resume all connections but their first.
  nginx's workers share ticket keys.
* *three agents* get connections in turn, so that every session is from another agent. Their CPU times are added up.
* A *lookup* finds one session of 300 bytes by its key, drawn at random. The store is memory, or a database file that
  the system caches as far as it can. An *unknown key* is not in the store.

Load generators:

* *generator*: each generator requests the file of 1 KiB from one nginx, with one thread and 50 connections. With a full
  handshake per request, h2load opens all connections at once.
* The figure is the CPU time of the generator per request.
* The *schedule error* is the time from the scheduled to the actual start of a request. The rate of the open loop is
  half of the rate that the closed loop reached before.

Watching:

* *watch*: the monitor reads generated captures with 96 octets of each packet. *long connections* are downloads over 50
  connections. *short connections* have one request and ten packets each.
* *keep-alive HTTP* has 100 requests per connection and responses of 1 KiB, in clear text, with 600 octets of each
  packet. `watari watch` reads the HTTP heads, tcptrace does not.
* *memory of a connection* is the difference between a capture and one with a tenth of its connections. The monitor has
  read each capture and waits for more.
* *watched*: wrk requests 1 KiB from nginx over 50 connections, and the monitor captures on the loopback interface. wrk
  and nginx run on the same two cores as the monitor.
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
            users_per_s: _,
            users_shorter: _,
            popular: _,
            crowd: _,
            cached: _,
        } = self.scale;
        writeln!(f, "{HEAD}")?;
        writeln!(
            f,
            "{rounds} rounds. Each has {} MiB of files, {connections} connections, {requests} requests, {pauses} pauses, {} MiB of records.\n",
            bulk_bytes >> 20,
            record_bytes >> 20
        )?;
        writeln!(f, "| peer | version |\n| --- | --- |")?;
        for (name, version) in &self.peers {
            writeln!(f, "| {name} | {version} |")?;
        }
        self.sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn row(ours: f64, target: Option<f64>) -> Row {
        let (ours, theirs) = (Samples::new(vec![ours]), Samples::new(vec![1e-3, 2e-3, 3e-3]));
        Row::against(format!("work {ours:?}"), Unit::Microseconds, ours, "peer", theirs, target)
    }

    /// A report with these parts, each measured at this time.
    fn report(parts: &[&str], measured: &str) -> Report {
        let mut report = Report::new(vec![("nginx", "1.22".to_owned())], Scale::QUICK);
        for part in parts {
            report.begin((*part).to_owned(), format!("The {part}"), measured.to_owned());
            report.add(row(0.001, Some(0.5)));
            report.add(row(0.003, Some(1.2)));
            report.add(row(0.004, None));
            report.add_table("By the second", format!("of {part}\n"));
        }
        report
    }

    #[test]
    fn what_is_above_its_target_is_marked() {
        let text = report(&["cache"], "today").to_string();
        assert!(text.contains("| 1000 us (1000-1000) | peer | 2000 us (1000-3000) | 0.50 | 0.50 | met |"), "{text}");
        assert!(text.contains("| 1.50 | 1.20 | **missed**: 25 % above |"), "{text}");
        assert!(text.contains("| 2.00 | - |  |"), "{text}");
    }

    #[test]
    fn a_part_that_failed_says_so() {
        let mut report = report(&["cache"], "today");
        assert!(report.is_complete() && !report.to_string().contains("ended with an error"));
        report.note_failure();
        assert!(!report.is_complete());
        let text = report.to_string();
        assert!(text.contains("\n## The cache (`cache`)\n\ntoday\n\n**The part ended with an error."), "{text}");
    }

    #[test]
    fn a_part_replaces_its_section_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("benchmarks.md");
        let parts = ["record", "cache", "watch"];
        report(&parts, "yesterday").write(&path).unwrap();
        let before = fs::read_to_string(&path).unwrap();
        for part in parts {
            fs::write(&path, &before).unwrap();
            report(&[part], "today").write_sections(&path).unwrap();
            let heading = format!("## The {part} (`{part}`)\n\n");
            let expected = before.replace(&format!("{heading}yesterday"), &format!("{heading}today"));
            assert_ne!(expected, before);
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
        let error = report(&["moves"], "today").write_sections(&path).unwrap_err();
        assert!(error.to_string().ends_with("has no section of the part moves"), "{error}");
    }

    #[test]
    fn the_notes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docs/benchmarks.md");
        report(&["cache"], "today").write(&path).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.ends_with(NOTES));
        fs::write(&path, first + "\nWhy.\n").unwrap();
        report(&["cache"], "today").write(&path).unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert!(second.ends_with("## Notes\n\nWhy.\n"));
        assert_eq!(second.matches("# Benchmarks").count(), 1);
    }
}
