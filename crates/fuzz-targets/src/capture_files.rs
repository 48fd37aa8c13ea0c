//! Capture files of arbitrary bytes. The reader uses little memory. It returns the same frames from small pieces, from
//! a truncated file up to its end, and from the file that it writes.

use std::io::{self, Read};

use watari_packets::capture_file::{FRAME_LEN_MAX, Merged, ReadError, Reader, WriteError, Writer};
use watari_packets::{Frame, LinkType, Timestamp};

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Frames are copied only up to this number of bytes in all: a gzip file may unpack to far more.
const KEPT_MAX: usize = 1 << 22;

pub(crate) fn run(input: &[u8]) {
    let Some((first, file)) = input.split_first() else { return };
    let (frames, error) = read(file);
    // With small pieces, the gzip decoder may detect damage earlier or later.
    if !file.starts_with(&GZIP) {
        let again = read(Pieces(file, usize::from(*first).max(1)));
        assert_eq!(frames, again.0);
        assert_eq!(error.map(|error| error.to_string()), again.1.map(|error| error.to_string()));
        check_cut_off(&file[..file.len() * usize::from(*first) / 256], &frames);
    }
    check_written(&frames);
    check_merged(file, &frames);
}

type Owned = (Timestamp, LinkType, u32, Vec<u8>);

fn owned(frame: &Frame<'_>) -> Owned {
    assert!(frame.data.len() <= FRAME_LEN_MAX);
    (frame.time, frame.link, frame.len, frame.data.to_vec())
}

fn read<R: Read>(file: R) -> (Vec<Owned>, Option<ReadError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    let mut kept = 0;
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) if kept + frame.data.len() <= KEPT_MAX => {
                kept += frame.data.len() + 16;
                frames.push(owned(&frame));
            }
            Ok(_) => return (frames, None),
            Err(error) => {
                assert!(matches!(reader.next_frame(), Ok(None)));
                return (frames, Some(error));
            }
        }
    }
}

/// The frames of a truncated file are the first frames of the whole file.
fn check_cut_off(beginning: &[u8], frames: &[Owned]) {
    let (some, _) = read(beginning);
    assert!(frames.starts_with(&some));
}

fn check_written(frames: &[Owned]) {
    let mut written = Vec::new();
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET, FRAME_LEN_MAX).expect("memory takes everything");
    for (time, _, len, data) in frames {
        let frame = Frame { time: *time, link: LinkType::ETHERNET, len: *len, data };
        match writer.write(&frame) {
            Ok(()) => written.push(owned(&frame)),
            Err(error) => assert!(matches!(error, WriteError::Time { .. })),
        }
    }
    let (again, error) = read(&writer.into_inner()[..]);
    assert!(error.is_none());
    assert_eq!(again, written);
}

/// Merges the file with itself: each frame comes twice, and each error.
fn check_merged(file: &[u8], frames: &[Owned]) {
    let (Ok(first), Ok(second)) = (Reader::new(file), Reader::new(file)) else { return };
    let mut merged = Merged::new(vec![first, second]);
    let (mut count, mut errors) = (0, 0);
    while count < 2 * frames.len() {
        match merged.next_frame() {
            Ok(frame) => {
                assert!(frame.is_some());
                count += 1;
            }
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 2);
}

/// Returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(buffer.len());
        self.0.read(&mut buffer[..len])
    }
}
