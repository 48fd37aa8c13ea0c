//! Whether files are still as they were.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// How some files are, as far as can be told without reading them.
///
/// Links are followed, so another file behind the same name is another one, whichever link in its path was switched
/// and whether it was renamed into place or written in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// A file: which it is, and when it changed last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamps {
    /// Of a file that cannot be looked at, only that is known.
    pub(super) fn of(files: impl Iterator<Item = PathBuf>) -> Self {
        let stamp = |file: PathBuf| {
            let stamp = fs::metadata(&file).ok().map(|metadata| Stamp {
                file: (metadata.dev(), metadata.ino()),
                len: metadata.len(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            });
            (file, stamp)
        };
        let mut stamps: Vec<_> = files.map(stamp).collect();
        stamps.sort_by(|(a, _), (b, _)| a.cmp(b));
        stamps.dedup_by(|(a, _), (b, _)| a == b);
        Self(stamps)
    }

    /// The files that were otherwise in `before`, of those that both know.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let is_other = |(file, stamp): &&(PathBuf, Option<Stamp>)| {
            before.0.iter().any(|(other, old)| other == file && old != stamp)
        };
        self.0.iter().filter(is_other).map(|(file, _)| file.display().to_string()).collect()
    }
}
