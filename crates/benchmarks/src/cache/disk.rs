//! Entries in the directory of a cache: the memory that an agent needs for them, and the time of its start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::sleep;
use watari_cache::{Content, Entry, Key, StoredResponse, Terms};
use watari_cache_store::{DiskConfig, Metrics, Store, StoreConfig};

use crate::Scale;
use crate::cache::origin::Origin;
use crate::cache::{is_hit_of_agent, proxy, wait_for_hit};
use crate::clients::Clients;
use crate::connection::Opener;
use crate::failure::{Failure, doing};
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::Watari;
use crate::site::{SMALL, Site};

/// Target: the most memory for an entry, in bytes.
const ENTRY_TARGET: f64 = 200.0;
/// Target: the longest start, in seconds.
const START_TARGET: f64 = 5.0;

/// The part of the directory that has the entries.
const ENTRIES: &str = "entries";
/// Length of an entry's content, in bytes.
const CONTENT_LEN: usize = 500;
/// Room for an entry on the disk: more than one block of 4 KiB takes, because the store reuses the oldest part.
const ENTRY_LEN_MAX: u64 = 6 << 10;
/// The least size of a directory, in MiB.
const DIRECTORY_MIB_MIN: u64 = 64;
/// Entries that are written before the disk has to catch up.
const BATCH: u64 = 1000;
const POLL: Duration = Duration::from_millis(1);
/// Memory of an agent for stored responses, of which it needs none here.
const MEMORY_MIB: u64 = 16;

/// A directory with entries.
struct Directory {
    name: String,
    entries: u64,
    mib: u64,
}

/// Starts agents with many entries, and with a tenth of them.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let opener = Opener::coming_from(vec![IpAddr::from(Ipv4Addr::LOCALHOST)], site)?;
    let origin = Origin::start(site, |_| None)?;
    let address = origin.address;
    let counts = [scale.cached, scale.cached / 10];
    eprintln!("{} entries on a disk ..", scale.cached);
    let directories = counts.map(|entries| Directory::fill(site, &clients, &opener, address, entries));
    let [all, tenth] = directories;
    let [all, tenth] = [all?, tenth?];
    // From now on, an agent is ready when the store of its directory is open and has the small file.
    drop(origin);
    let outcomes = interleaved(scale.rounds.min(3), &[&all, &tenth], |directory| {
        let begun = Instant::now();
        let watari = Watari::forwarding(site, &clients, directory.proxy(site, address))?;
        let took = begun.elapsed().as_secs_f64();
        Ok(vec![watari.server.steady_memory()?[1] as f64, took])
    })?;
    let of = |directory: usize, at: usize| Samples::of(&outcomes[directory], |figures| figures[at]);
    let additional = (all.entries - tenth.entries) as f64;
    let memories = outcomes[0].iter().zip(&outcomes[1]).map(|(all, tenth)| (all[0] - tenth[0]) / additional);
    let what = format!("{} small entries on a disk", all.entries);
    let memory = Samples::new(memories.collect());
    let tenth = Samples::of(&outcomes[1], |figures| figures[0] / tenth.entries as f64);
    let peer = "a tenth of the entries";
    report.add(Row::limited(format!("{what}: memory of each"), Unit::Octets, memory, peer, tenth, ENTRY_TARGET));
    report.add(Row::limited(format!("{what}: start"), Unit::Seconds, of(0, 1), peer, of(1, 1), START_TARGET));
    Ok(())
}

impl Directory {
    /// Fills the directory: an agent with the small file, and this process with all else.
    fn fill(
        site: &Site,
        clients: &Clients,
        opener: &Opener,
        origin: SocketAddr,
        entries: u64,
    ) -> Result<Self, Failure> {
        let mib = ((entries * ENTRY_LEN_MAX) >> 20).max(DIRECTORY_MIB_MIN);
        let directory = Self { name: format!("cache-{entries}"), entries, mib };
        let watari = Watari::forwarding(site, clients, directory.proxy(site, origin))?;
        wait_for_hit(opener, &watari.server, SMALL, is_hit_of_agent)?;
        drop(watari);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(doing("starting a runtime"))?;
        runtime.block_on(write(&site.path(&directory.name).join(ENTRIES), entries, mib << 20))?;
        Ok(directory)
    }

    /// The text of `[agent.proxy]`.
    fn proxy(&self, site: &Site, origin: SocketAddr) -> String {
        proxy(origin, "true", MEMORY_MIB)
            + &format!("directory = \"{}\"\ndirectory_mib = {}\n", site.path(&self.name).display(), self.mib)
    }
}

async fn write(directory: &Path, entries: u64, bytes_max: u64) -> Result<(), Failure> {
    let disk = DiskConfig { directory: directory.to_owned(), bytes_max };
    // Memory has none of them.
    let config = StoreConfig { memory_bytes_max: 1, disk: Some(disk) };
    let store = Store::open(config, Metrics::default()).await;
    let store = store.map_err(|error| doing("opening a store")(std::io::Error::other(error)))?;
    for number in 0..entries {
        store.insert(key(number), entry(number));
        if number % BATCH == 0 {
            while store.usage().disk.is_some_and(|disk| disk.queued_bytes > 0) {
                sleep(POLL).await;
            }
        }
    }
    store.close().await;
    Ok(())
}

/// Spreads the numbers.
fn key(number: u64) -> Key {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&spread.to_le_bytes());
    key[8..].copy_from_slice(&spread.rotate_left(32).to_le_bytes());
    Key(key)
}

fn entry(number: u64) -> Arc<Entry> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    headers.insert("date", HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    headers.insert("etag", HeaderValue::from_static("\"1\""));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let terms = Terms {
        received_ms: now.as_millis() as u64,
        initial_age_ms: 0,
        lifetime_ms: 3_600_000,
        stale_while_revalidate_ms: 0,
        stale_if_error_ms: 0,
        is_always_validated: false,
        is_never_stale: false,
    };
    Arc::new(Entry::Response(StoredResponse {
        url: format!("example.org/{number}").into(),
        status: StatusCode::OK,
        headers,
        terms,
        content: Content::Inline(vec![0; CONTENT_LEN].into()),
        groups: Vec::new(),
        shared: None,
        purges: 0.into(),
    }))
}
