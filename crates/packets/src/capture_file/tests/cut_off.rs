//! Files that end too early, from a capture that was killed, or that still runs.

use super::*;

/// At each length, all whole frames are returned. Then the file ends, or the error has the offset of its end.
fn check(file: &[u8], ends: &[usize]) {
    let frames = read_all(file);
    for len in 0..file.len() {
        let (read, error) = read(&file[..len]);
        assert_eq!(read, frames[..read.len()], "of {len} octets");
        match error {
            None => assert!(ends.contains(&len), "{len} octets are no whole file"),
            Some(ReadError::CutOff { offset, missing, within }) => {
                assert_eq!(offset, len as u64);
                assert!(!ends.contains(&len) && missing > 0, "{within} of {len} octets");
            }
            Some(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn pcap_at_each_length() {
    check(&pcap(Order::Little, 0xa1b2_3c4d), &[24, 24 + 16 + 3]);
    check(&pcap(Order::Little, 0xa1b2_cd34), &[24, 24 + 24 + 3]);
}

#[test]
fn pcapng_at_each_length() {
    let file = pcapng::two_sections();
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < file.len() {
        let len: [u8; 4] = *file[at + 4..].first_chunk().unwrap();
        at += u32::from_be_bytes(len).min(u32::from_le_bytes(len)) as usize;
        ends.push(at);
    }
    check(&file, &ends);
}

/// The frame is complete before its block is.
#[test]
fn a_frame_is_read_before_what_follows_it() {
    let little = Order::Little;
    let front = [pcapng::section(little), pcapng::interface(little, 1, 0, &[])].concat();
    let file = [&front[..], &pcapng::enhanced(little, 0, 1, 5, b"frame", &[])].concat();
    let (frames, error) = read(&file[..front.len() + 28 + 5]);
    assert_eq!(frames, [owned(1000, 5, b"frame")]);
    assert!(matches!(error, Some(ReadError::CutOff { within: Part::Block, missing: 3, .. })), "{error:?}");
}

#[test]
fn gzip_has_an_end_of_its_own() {
    let file = pcap(Order::Little, 0xa1b2_3c4d);
    let (frames, packed) = (read_all(&file[..]), packed(&file));
    for len in 2..packed.len() {
        let (read, error) = read(&packed[..len]);
        assert_eq!(read, frames[..read.len()]);
        assert!(matches!(error, Some(ReadError::CutOff { within: Part::Gzip, .. })), "{len}: {error:?}");
    }
    let (read, _) = read(&packed[..packed.len() - 8]);
    assert_eq!(read, frames, "all but the checksum is there");
}

/// Also in a block that is skipped in steps.
#[test]
fn all_that_is_missing_of_a_long_block_is_counted() {
    let little = Order::Little;
    let front = pcapng::section(little);
    let file = [&front[..], &pcapng::block(little, 10, &vec![0; 3_000_000])].concat();
    let (_, error) = read(&file[..front.len() + 8 + 100_000]);
    assert!(matches!(error, Some(ReadError::CutOff { missing: 2_900_000, within: Part::Block, .. })), "{error:?}");
}

#[test]
fn what_is_missing_is_said() {
    let file = pcap(Order::Little, 0xa1b2_c3d4);
    let cases = [
        (0, "the file ends at byte 0, 4 bytes before the end of its magic number"),
        (3, "the file ends at byte 3, 1 bytes before the end of its magic number"),
        (20, "the file ends at byte 20, 4 bytes before the end of its header"),
        (30, "the file ends at byte 30, 10 bytes before the end of a frame's header"),
        (62, "the file ends at byte 62, 2 bytes before the end of a frame"),
    ];
    for (len, said) in cases {
        assert_eq!(read(&file[..len]).1.unwrap().to_string(), said);
    }
}
