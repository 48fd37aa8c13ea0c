//! Opens files below a directory, and no others.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The attempts to open a path while a concurrent rename keeps the kernel from proving that it stays below the root
/// (`EAGAIN`, openat2(2)).
const ATTEMPTS: u32 = 8;

/// The way in which every path is resolved.
const RESOLVE_BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The root directory. The kernel checks every step of a path, including symbolic links. It refuses a path that leads
/// outside or is absolute (`RESOLVE_BENEATH`, Linux 5.6).
#[derive(Debug, Clone)]
pub(crate) struct Root {
    directory: Arc<OwnedFd>,
}

/// The file or directory at a path.
pub(crate) enum Opened {
    File(OpenFile),
    Directory,
    /// A socket, a pipe or a device.
    Special,
}

/// A regular file, and its status when it was opened.
pub(crate) struct OpenFile {
    pub(crate) file: File,
    /// In bytes.
    pub(crate) length: u64,
    pub(crate) modified: SystemTime,
    pub(crate) identity: Identity,
}

/// An inode, and the times at which it last changed. Equal identities mean equal bytes, if the inode has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    length: i64,
    /// In seconds and nanoseconds.
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether the inode has not changed for this long.
    pub(crate) fn has_settled(&self, now: SystemTime, after: Duration) -> bool {
        let last = self.changed.max(self.modified);
        let age = now.duration_since(time(last.0, last.1));
        age.is_ok_and(|age| age >= after)
    }
}

impl Root {
    /// Opens the directory. Also fails if the kernel has no `openat2`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::openat2(&directory, ".", flags, Mode::empty(), ResolveFlags::BENEATH)?;
        Ok(Self { directory: Arc::new(directory) })
    }

    /// The inode that `path` leads to, relative to the root. Fails if the path is not in the kernel's cache.
    pub(crate) fn identity(&self, path: &[u8]) -> io::Result<Identity> {
        let (flags, how) = (OFlags::PATH | OFlags::CLOEXEC, RESOLVE_BELOW | ResolveFlags::CACHED);
        let inode = rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), how)?;
        Ok(Identity::of(&rustix::fs::fstat(&inode)?))
    }

    /// Opens `path`, relative to the root.
    ///
    /// A path in the kernel's cache is opened at once. Only a path that needs the disk is opened in tokio's blocking
    /// pool.
    pub(crate) async fn open_below(&self, path: Vec<u8>) -> io::Result<Opened> {
        match self.open_resolving(&path, ResolveFlags::CACHED) {
            // Not in the cache. `INVAL`: Linux before 5.12 does not have the flag.
            Err(Errno::AGAIN | Errno::INVAL | Errno::INTR) => {}
            result => return Ok(result?),
        }
        let root = self.clone();
        let opened = tokio::task::spawn_blocking(move || root.open_waiting(&path)).await;
        opened.map_err(io::Error::other)?
    }

    fn open_waiting(&self, path: &[u8]) -> io::Result<Opened> {
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = self.open_resolving(path, ResolveFlags::empty());
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        Ok(result?)
    }

    fn open_resolving(&self, path: &[u8], how: ResolveFlags) -> Result<Opened, Errno> {
        // Without these flags, a pipe would block the open, and a terminal would become the controlling terminal.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), RESOLVE_BELOW | how)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Opened::File(OpenFile {
                file: File::from(file),
                length: u64::try_from(stat.st_size).unwrap_or(0),
                modified: time(stat.st_mtime, stat.st_mtime_nsec),
                identity: Identity::of(&stat),
            }),
            FileType::Directory => Opened::Directory,
            _ => Opened::Special,
        })
    }
}

/// A time before 1970 counts as 1970.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// A root with files of known content, next to a secret that no path may reach.
    struct Tree {
        directory: tempfile::TempDir,
        root: Root,
    }

    fn tree() -> Tree {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path();
        let inside = outside.join("root");
        fs::create_dir_all(inside.join("d")).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::write(inside.join("a"), "inside").unwrap();
        fs::write(inside.join("d/a"), "inside").unwrap();
        symlink("../secret", inside.join("up")).unwrap();
        symlink(outside.join("secret"), inside.join("absolute")).unwrap();
        symlink("../..", inside.join("d/out")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        symlink("d/a", inside.join("within")).unwrap();
        symlink("../a", inside.join("d/sideways")).unwrap();
        let root = Root::open(&inside).unwrap();
        Tree { directory, root }
    }

    /// Opens in both ways, and asserts that they agree.
    fn content(root: &Root, path: &str) -> io::Result<String> {
        let cached = root.open_resolving(path.as_bytes(), ResolveFlags::CACHED);
        let opened = root.open_waiting(path.as_bytes())?;
        if let (Ok(Opened::File(cached)), Opened::File(opened)) = (cached, &opened) {
            assert_eq!(cached.modified, opened.modified);
        }
        let Opened::File(mut opened) = opened else {
            return Ok("no file".into());
        };
        let mut content = String::new();
        opened.file.read_to_string(&mut content)?;
        Ok(content)
    }

    #[test]
    fn files_below_the_root_are_opened() {
        let tree = tree();
        for path in ["a", "d/a", "within", "d/sideways"] {
            assert_eq!(content(&tree.root, path).unwrap(), "inside", "{path}");
        }
        assert_eq!(content(&tree.root, "d").unwrap(), "no file");
    }

    #[test]
    fn what_lies_outside_is_not() {
        let tree = tree();
        for path in
            ["../secret", "d/../../secret", "/etc/passwd", "up", "absolute", "d/out/secret", "magic/etc/passwd", "loop"]
        {
            let error = content(&tree.root, path).unwrap_err();
            let errno = Errno::from_io_error(&error).unwrap();
            assert!([Errno::XDEV, Errno::LOOP].contains(&errno), "{path}: {error}");
        }
    }

    #[test]
    fn special_files_are_told_apart() {
        let tree = tree();
        let pipe = tree.directory.path().join("root/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(tree.root.open_waiting(b"pipe"), Ok(Opened::Special)));
    }

    #[test]
    fn a_root_must_be_a_directory() {
        let tree = tree();
        assert!(Root::open(&tree.directory.path().join("secret")).is_err());
        assert!(Root::open(&tree.directory.path().join("missing")).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_path_reaches_the_secret(steps in prop::collection::vec(
            prop::sample::select(vec!["..", ".", "", "a", "d", "up", "out", "absolute", "magic", "within", "secret", "root"]), 1..8)
        ) {
            thread_local!(static TREE: Tree = tree());
            if let Ok(content) = TREE.with(|tree| content(&tree.root, &steps.join("/"))) {
                prop_assert_ne!(content, "secret");
            }
        }
    }
}
