//! Entries that show whether they are what was written, and a directory for stores.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use watari_cache::{Content, Entry, Key, StoredResponse, Terms};
use watari_cache_store::{DISK_BYTES_MIN, DiskConfig, Metrics, OpenError, Store, StoreConfig};

/// Less than any entry takes.
pub(crate) const NO_MEMORY: usize = 1;

/// A store, and its metrics.
pub(crate) struct Opened {
    pub(crate) store: Store,
    registry: Registry,
}

impl Opened {
    pub(crate) async fn new(memory_bytes_max: usize, directory: &Path) -> Self {
        Self::with(memory_bytes_max, directory, DISK_BYTES_MIN).await.unwrap()
    }

    pub(crate) async fn with(memory_bytes_max: usize, directory: &Path, bytes_max: u64) -> Result<Self, OpenError> {
        let disk = DiskConfig { directory: directory.to_owned(), bytes_max };
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let store = Store::open(StoreConfig { memory_bytes_max, disk: Some(disk) }, metrics).await?;
        Ok(Self { store, registry })
    }

    pub(crate) async fn in_memory(memory_bytes_max: usize) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let store = Store::open(StoreConfig { memory_bytes_max, disk: None }, metrics).await.unwrap();
        Self { store, registry }
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let line = lines.into_iter().find(|line| line.starts_with(&format!("watari_cache_{name}")));
        line.unwrap_or_else(|| panic!("{name} in {text}")).split_once(' ').unwrap().1.parse().unwrap()
    }

    /// Waits until all writes are done.
    pub(crate) async fn flushed(&self) {
        until("the queue is empty", || self.store.usage().disk.is_some_and(|disk| disk.queued_bytes == 0)).await;
    }

    /// The versions of the entries with these numbers.
    pub(crate) async fn versions(&self, numbers: impl Iterator<Item = u64>) -> Vec<Option<u64>> {
        let mut versions = Vec::new();
        for number in numbers {
            versions.push(self.store.get(&key(number)).await.map(|entry| version(number, &entry)));
        }
        versions
    }
}

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn key(number: u64) -> Key {
    let mut key = [0; 16];
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&spread.to_le_bytes());
    key[8..].copy_from_slice(&spread.rotate_left(32).to_le_bytes());
    Key(key)
}

/// An entry with content of this length, which its number and version decide.
pub(crate) fn entry(number: u64, version: u64, len: usize) -> Arc<Entry> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    headers.insert("date", HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    headers.insert("etag", HeaderValue::try_from(format!("\"{version}\"")).unwrap());
    Arc::new(Entry::Response(StoredResponse {
        url: format!("example.org/{number}").into(),
        status: StatusCode::OK,
        headers,
        terms: Terms {
            received_ms: version,
            initial_age_ms: 0,
            lifetime_ms: 60_000,
            stale_while_revalidate_ms: 0,
            stale_if_error_ms: 0,
            is_always_validated: false,
            is_never_stale: false,
        },
        content: Content::Inline(content(number, version, len).into()),
        groups: Vec::new(),
        shared: None,
        purges: 0.into(),
    }))
}

/// The version of an entry. Panics if anything is not as it was written.
pub(crate) fn version(number: u64, found: &Entry) -> u64 {
    let Entry::Response(response) = found else { panic!("not a response") };
    let version = response.terms.received_ms;
    let wanted = entry(number, version, response.content.len() as usize);
    assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
    version
}

fn content(number: u64, version: u64, len: usize) -> Vec<u8> {
    let mut state = number << 32 | version | 1 << 63;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}
