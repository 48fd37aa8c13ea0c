//! A file of the ticket keys, so that they survive a restart.
//!
//! The file is as secret as its content: with it, all current tickets can be opened. It always has the current keys and
//! no others, so it opens nothing that has expired. But a disk may keep the blocks of replaced files. A file system in
//! memory does not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use watari_session::TicketSeed;
use watari_wire::frame::{self, FRAME_LEN_MAX, Frame};
use watari_wire::{AgentToAgent, Message};
use zeroize::Zeroizing;

use super::wire::{ticket_seeds_from_wire, ticket_seeds_to_wire};

/// A file with the seeds of `Ring::share`, in the frame format of the mesh.
#[derive(Debug)]
pub(super) struct KeysFile {
    path: PathBuf,
    /// The digest of the file's content.
    written: Mutex<Option<[u8; 32]>>,
}

impl KeysFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, written: Mutex::default() }
    }

    /// Reads the seeds. Returns none if the file does not exist.
    pub(super) fn read(&self) -> io::Result<Vec<TicketSeed>> {
        self.named(match File::open(&self.path) {
            Ok(file) => read(file),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        })
    }

    /// Replaces the content of the file with `seeds`, atomically. Does nothing if they are unchanged.
    pub(super) fn write(&self, seeds: Vec<TicketSeed>) -> io::Result<()> {
        let mut content = Zeroizing::new(Vec::new());
        frame::encode(&AgentToAgent::TicketSeeds(ticket_seeds_to_wire(seeds)).into(), &mut content)
            .map_err(io::Error::other)?;
        let digest = sha256(&content);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != Some(digest) {
            self.named(self.replace(&content))?;
            *written = Some(digest);
        }
        Ok(())
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let replaced =
            file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, &self.path));
        // A part of the keys is of no use, and may be all that the disk has room for.
        replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }

    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

fn read(file: File) -> io::Result<Vec<TicketSeed>> {
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let sentence = format!("users other than its owner can read or change it (mode {mode:04o}): chmod 600 it");
        return Err(io::Error::new(ErrorKind::PermissionDenied, sentence));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(FRAME_LEN_MAX + 1));
    file.take(FRAME_LEN_MAX as u64 + 1).read_to_end(&mut content)?;
    match frame::decode(&content) {
        Ok(Some((Frame::Message(Message::AgentToAgent(AgentToAgent::TicketSeeds(seeds))), len)))
            if len == content.len() =>
        {
            Ok(ticket_seeds_from_wire(seeds))
        }
        _ => Err(io::Error::new(
            ErrorKind::InvalidData,
            "not a file of ticket keys: remove it, and the agent makes new keys",
        )),
    }
}

fn sha256(content: &[u8]) -> [u8; 32] {
    let mut written = [0; 32];
    written.copy_from_slice(digest(&SHA256, content).as_ref());
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use watari_session::EpochSecret;
    use watari_values::SecretBytes;

    use super::*;

    fn seed(id: u8) -> TicketSeed {
        let state = EpochSecret { epoch: 5, secret: SecretBytes::new(vec![id; 32]) };
        TicketSeed { id: [id; 8], made: 300, state: Some(state), keys: Vec::new() }
    }

    fn in_a_directory() -> (tempfile::TempDir, KeysFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = KeysFile::new(dir.path().join("ticket.keys"));
        (dir, file)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (_dir, file) = in_a_directory();
        assert_eq!(file.read().unwrap(), []);
        for seeds in [vec![seed(1)], vec![seed(1), seed(2)], vec![]] {
            file.write(seeds.clone()).unwrap();
            assert_eq!(file.read().unwrap(), seeds);
        }
        assert_eq!(file.path.metadata().unwrap().mode() & 0o777, 0o600);
    }

    /// An interrupted write leaves a temporary file behind, and the old keys.
    #[test]
    fn a_write_that_was_cut_off_does_no_harm() {
        let (dir, file) = in_a_directory();
        file.write(vec![seed(1)]).unwrap();
        fs::write(dir.path().join("ticket.keys.new"), b"cut").unwrap();
        assert_eq!(file.read().unwrap(), [seed(1)]);
        file.write(vec![seed(2)]).unwrap();
        assert_eq!(file.read().unwrap(), [seed(2)]);
    }

    /// The path is relative to the node's working directory.
    #[test]
    fn a_name_alone_will_do() {
        let name = format!("watari-test-{}.keys", std::process::id());
        let file = KeysFile::new(PathBuf::from(&name));
        let written = file.write(vec![seed(1)]);
        fs::remove_file(&name).unwrap();
        written.unwrap();
    }

    #[test]
    fn what_is_the_same_is_not_written_again() {
        let (_dir, file) = in_a_directory();
        file.write(vec![seed(1)]).unwrap();
        let inode = || file.path.metadata().unwrap().ino();
        let before = inode();
        file.write(vec![seed(1)]).unwrap();
        assert_eq!(inode(), before);
    }

    #[test]
    fn a_file_that_is_damaged_or_open_to_others_is_refused() {
        let (_dir, file) = in_a_directory();
        file.write(vec![seed(1)]).unwrap();
        let whole = fs::read(&file.path).unwrap();
        let longer = [&whole[..], b"x"].concat();
        for content in [&whole[..whole.len() - 1], &longer, b""] {
            fs::write(&file.path, content).unwrap();
            let error = file.read().unwrap_err();
            assert!(error.to_string().ends_with("remove it, and the agent makes new keys"), "{error}");
        }
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.starts_with(&file.path.display().to_string()) && error.ends_with("chmod 600 it"), "{error}");
    }
}
