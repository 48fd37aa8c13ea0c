//! The content of the origins.

use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::random::Random;

/// Lengths of the files: at the limits of records (2^14 bytes) and buffers, and some that take many of both.
const LENGTHS: [usize; 9] = [1, 1_000, 16_383, 16_384, 16_385, 65_537, 250_000, 1_000_000, 3_000_000];

const INDEX: &str = "\
<!doctype html>
<title>Watari</title>
<p>One agent did the TLS handshake, and most likely another one sent this page.
";

/// A file of the site.
#[derive(Clone)]
pub(super) struct SiteFile {
    /// The path as in a URL.
    pub(super) path: String,
    pub(super) bytes: Bytes,
}

/// Writes the site's files to `dir`.
pub(super) fn write(dir: &Path) -> io::Result<Vec<SiteFile>> {
    fs::create_dir(dir)?;
    fs::write(dir.join("index.html"), INDEX)?;
    let files = LENGTHS.iter().map(|len| {
        let name = format!("{len}.bin");
        let bytes = Random::new(*len as u64).bytes(*len);
        fs::write(dir.join(&name), &bytes)?;
        Ok(SiteFile { path: format!("/{name}"), bytes: bytes.into() })
    });
    files.collect()
}
