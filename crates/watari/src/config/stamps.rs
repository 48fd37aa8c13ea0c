//! Detects changed files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The metadata of some files, which shows changes without reading them.
///
/// Symbolic links are followed. So a change shows whichever link of the path was switched, and whether a new file was
/// renamed into place or the old one was written in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// The identity of a file, its length, and the times of its last changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamps {
    /// `None` for a file whose metadata cannot be read.
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

    /// The files whose stamps differ in `before`. A file must be in both.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let is_other = |(file, stamp): &&(PathBuf, Option<Stamp>)| {
            before.0.iter().any(|(other, old)| other == file && old != stamp)
        };
        self.0.iter().filter(is_other).map(|(file, _)| file.display().to_string()).collect()
    }
}
