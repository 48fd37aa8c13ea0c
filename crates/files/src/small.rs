//! Small files in memory.
//!
//! A file is stored when it is read, if it has not changed for a while. It is served while its path leads to the same
//! inode with the same length and times. The kernel checks every step of the path, as for a file that is opened. The kernel sets `ctime` at each change of an inode, and no program can set it
//! back. Kernels store the time of the last tick, so a file that has changed within [`SETTLED_AFTER`] is not stored: it
//! could change again without another time.
//!
//! Two kinds of changes leave the times as they are: those by a memory mapping, and those that a network file system has
//! not heard of. So no file is served from here for longer than [`AGE_MAX`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::conditions::SETTLED_AFTER;
use crate::response::{Content, Description, Source};
use crate::root::{Identity, Root};

/// The longest file that is stored, in bytes.
pub(crate) const LEN_MAX: u64 = 16 * 1024;

/// The bytes of all stored files.
const TOTAL_LEN_MAX: u64 = 8 << 20;

/// The number of files that the cache is laid out for.
const FILES: usize = 1024;

/// What a stored file takes beside its content, in bytes: at least this counts.
const OVERHEAD_LEN: u64 = 512;

/// The longest path of a URI that is a key, in bytes.
const PATH_LEN_MAX: usize = 1024;

/// How long a file is served without being read again.
const AGE_MAX: Duration = Duration::from_mins(1);

/// The small files that were served last.
#[derive(Debug)]
pub(crate) struct SmallFiles {
    /// By the path of the URI, as clients sent it.
    files: Cache<Box<str>, Arc<SmallFile>, ByLen>,
}

#[derive(Debug)]
struct SmallFile {
    /// Relative to the root.
    path: Vec<u8>,
    identity: Identity,
    content: Bytes,
    description: Arc<Description>,
    until: Instant,
}

#[derive(Debug, Clone)]
struct ByLen;

impl Weighter<Box<str>, Arc<SmallFile>> for ByLen {
    fn weight(&self, uri_path: &Box<str>, file: &Arc<SmallFile>) -> u64 {
        OVERHEAD_LEN + 2 * uri_path.len() as u64 + file.content.len() as u64
    }
}

impl SmallFiles {
    pub(crate) fn new() -> Self {
        Self { files: Cache::with_weighter(FILES, TOTAL_LEN_MAX, ByLen) }
    }

    /// The file at this path of a URI, if it is stored and has not changed.
    pub(crate) fn find(&self, uri_path: &str, root: &Root, now: Instant) -> Option<Content> {
        let file = self.files.get(uri_path)?;
        if now >= file.until || root.identity(&file.path).ok() != Some(file.identity) {
            self.files.remove(uri_path);
            return None;
        }
        Some(Content { source: Source::Memory(file.content.clone()), description: file.description.clone() })
    }

    /// Stores a file, if it may be. `path` is relative to the root. The file had this `identity` before it was read.
    pub(crate) fn add(
        &self,
        uri_path: &str,
        path: Vec<u8>,
        identity: Identity,
        content: &Content,
        (now, wall_now): (Instant, SystemTime),
    ) {
        let Source::Memory(bytes) = &content.source else { return };
        if uri_path.len() > PATH_LEN_MAX || !identity.has_settled(wall_now, SETTLED_AFTER) {
            return;
        }
        let (content, description) = (bytes.clone(), content.description.clone());
        let file = SmallFile { path, identity, content, description, until: now + AGE_MAX };
        self.files.insert(uri_path.into(), Arc::new(file));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::buffer::POOLED_LEN_MIN;
    use crate::root::Opened;

    struct Site {
        directory: tempfile::TempDir,
        root: Root,
        small: SmallFiles,
        start: Instant,
    }

    impl Site {
        fn with(name: &str, content: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::open(directory.path()).unwrap();
            let made = Self { directory, root, small: SmallFiles::new(), start: Instant::now() };
            fs::write(made.path(name), content).unwrap();
            made
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Reads a file this long after its inode has changed, and stores it if it may be.
        async fn add(&self, name: &str, later: Duration) {
            let changed = fs::metadata(self.path(name)).unwrap();
            let changed = Duration::new(changed.ctime().unsigned_abs(), changed.ctime_nsec().try_into().unwrap());
            let Opened::File(file) = self.root.open_below(name.into()).await.unwrap() else { panic!("no file") };
            let (identity, wall_now) = (file.identity, UNIX_EPOCH + changed + later);
            let content = crate::content(file, name.as_bytes(), wall_now);
            self.small.add(&format!("/{name}"), name.into(), identity, &content, (self.start, wall_now));
        }

        /// The kernel may drop a path from its cache, or change something beside it during the search. Then the file is
        /// not found.
        async fn add_until_found(&self, name: &str) {
            for _ in 0..1000 {
                self.add(name, LATER).await;
                if self.found(name).is_some() {
                    return;
                }
            }
            panic!("{name} is never found");
        }

        fn found(&self, name: &str) -> Option<Bytes> {
            let content = self.small.find(&format!("/{name}"), &self.root, self.start)?;
            let Source::Memory(bytes) = content.source else { panic!("not in memory") };
            Some(bytes)
        }
    }

    const LATER: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn a_file_is_in_memory_while_it_does_not_change() {
        let site = Site::with("a", "first");
        assert_eq!(site.found("a"), None);
        site.add_until_found("a").await;
        assert_eq!(site.found("a").unwrap(), "first");
        // The same length, and the same modification time.
        let modified = fs::metadata(site.path("a")).unwrap().modified().unwrap();
        fs::write(site.path("a"), "other").unwrap();
        fs::File::options().write(true).open(site.path("a")).unwrap().set_modified(modified).unwrap();
        assert_eq!(site.found("a"), None);
    }

    #[tokio::test]
    async fn a_path_that_leads_elsewhere_is_noticed() {
        let site = Site::with("a", "a");
        for name in ["b", "c", "d", "e"] {
            fs::create_dir(site.path(name)).unwrap();
            fs::write(site.path(name).join("x"), name).unwrap();
        }
        symlink("b", site.path("now")).unwrap();
        let each = ["a", "now/x", "d/x", "e/x"];
        for name in each {
            site.add_until_found(name).await;
        }
        fs::write(site.path("new"), "a").unwrap();
        fs::rename(site.path("new"), site.path("a")).unwrap();
        symlink("c", site.path("next")).unwrap();
        fs::rename(site.path("next"), site.path("now")).unwrap();
        fs::remove_dir_all(site.path("d")).unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::rename(site.path("e"), outside.path().join("e")).unwrap();
        symlink(outside.path().join("e"), site.path("e")).unwrap();
        for name in each {
            assert!(site.found(name).is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn what_may_still_change_unnoticed_is_not_stored() {
        let site = Site::with("a", "a");
        site.add("a", SETTLED_AFTER.saturating_sub(Duration::from_millis(1))).await;
        assert!(site.found("a").is_none());
        let hour_ago = SystemTime::now() - Duration::from_hours(1);
        fs::File::options().write(true).open(site.path("a")).unwrap().set_modified(hour_ago).unwrap();
        site.add("a", Duration::ZERO).await;
        assert!(site.found("a").is_none(), "the inode has just changed");
        site.add_until_found("a").await;
        let late = site.start + AGE_MAX;
        assert!(site.small.find("/a", &site.root, late).is_none(), "it is read again once in a while");
    }

    #[tokio::test]
    async fn long_files_are_not_stored_and_short_ones_within_a_bound() {
        let site = Site::with("long", &"x".repeat(LEN_MAX as usize + 1));
        site.add("long", LATER).await;
        assert!(site.found("long").is_none());
        // A stored file holds no pooled buffer, which is longer.
        assert!(LEN_MAX < POOLED_LEN_MIN as u64);
        let short = "x".repeat(LEN_MAX as usize);
        for number in 0..2 * TOTAL_LEN_MAX / LEN_MAX {
            fs::write(site.path(&number.to_string()), &short).unwrap();
            site.add(&number.to_string(), LATER).await;
        }
        assert!(site.small.files.weight() <= TOTAL_LEN_MAX, "{}", site.small.files.weight());
        assert!(site.small.files.len() as u64 > TOTAL_LEN_MAX / LEN_MAX / 2);
    }
}
