//! Invalid files and their errors.

use super::pcapng::{block, enhanced, interface, option, section, simple};
use super::*;

const LITTLE: Order = Order::Little;

fn pcap_of_version(major: u16, minor: u16) -> Vec<u8> {
    let mut file = file_header(LITTLE, 0xa1b2_c3d4, 1);
    file[4..8].copy_from_slice(&[major.to_le_bytes(), minor.to_le_bytes()].concat());
    file
}

fn in_section(blocks: &[&[u8]]) -> Vec<u8> {
    [&section(LITTLE)[..], &blocks.concat()].concat()
}

fn patched(mut octets: Vec<u8>, at: usize, others: &[u8]) -> Vec<u8> {
    octets[at..at + others.len()].copy_from_slice(others);
    octets
}

#[test]
fn each_fault_has_its_error() {
    let frames = |len: u32| [&file_header(LITTLE, 0xa1b2_c3d4, 1)[..], &all_words(LITTLE, &[0, 0, len, 1])].concat();
    let ethernet = interface(LITTLE, 1, 0, &[]);
    let one = enhanced(LITTLE, 0, 0, 4, b"four", &[]);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            b"GET / HTTP/1.1".to_vec(),
            "the file begins with [47, 45, 54, 20], which is neither pcap nor pcapng, nor gzip of one of them",
        ),
        (pcap_of_version(2, 5), "version 2.5 at byte 4, where 2.0 to 2.4 was expected"),
        (pcap_of_version(543, 0), "version 543.0 at byte 4, where 2.0 to 2.4 was expected"),
        (
            file_header(LITTLE, 0xa1b2_c3d4, 147),
            "at byte 20: unsupported link type 147 (https://www.tcpdump.org/linktypes.html), supported: Ethernet (1), \
             raw IP (12, 14, 101, 228, 229), loopback (0, 108), Linux cooked captures (113, 276), PPP (9, 50, 51), \
             Cisco HDLC (104), FDDI (10), IEEE 802.11 (105, 119, 127, 163) and NFLOG (239)",
        ),
        (frames(300_000), "a frame of 300000 captured bytes at byte 24, where at most 262144 were expected"),
        (
            patched(section(LITTLE), 8, &[1, 2, 3, 4]),
            "[01, 02, 03, 04] at byte 8, where the byte-order magic 1a2b3c4d was expected",
        ),
        (patched(section(LITTLE), 12, &[2]), "version 2.0 at byte 12, where 1.0 was expected"),
        (patched(section(LITTLE), 4, &[24]), "a block of 24 bytes at byte 0, where 28 or more were expected"),
        (
            patched(section(LITTLE), 24, &[32]),
            "a block ends with the length 32 at byte 24, where 28 was expected, as at \
             its beginning",
        ),
        (
            in_section(&[&[1, 0, 0, 0, 13, 0, 0, 0]]),
            "a block of 13 bytes at byte 28, where 12 or more, in multiples of 4, were expected",
        ),
        (
            in_section(&[&[9, 0, 0, 0, 8, 0, 0, 0]]),
            "a block of 8 bytes at byte 28, where 12 or more, in multiples of 4, were expected",
        ),
        (in_section(&[&block(LITTLE, 1, &[0; 4])]), "a block of 16 bytes at byte 28, where 20 or more were expected"),
        (
            in_section(&[&interface(LITTLE, 1, 0, &[2, 0, 9, 0, 1, 1, 1, 1])]),
            "a block of 28 bytes at byte 28, where 36 or more were expected",
        ),
        (
            in_section(&[&interface(LITTLE, 1, 0, &option(LITTLE, 9, &[20]))]),
            "a time resolution of 0x14 at byte 48, where at least 10^-19 or 2^-63 was expected",
        ),
        (
            in_section(&[&simple(LITTLE, 1, b"!")]),
            "a frame at byte 28 has interface 0 (from 0), but its section describes only 0",
        ),
        (
            in_section(&[&ethernet, &enhanced(LITTLE, 7, 0, 1, b"!", &[])]),
            "a frame at byte 48 has interface 7 (from 0), but its section describes only 1",
        ),
        (
            in_section(&[&ethernet, &patched(one.clone(), 20, &[9])]),
            "a block of 36 bytes at byte 48, where 41 or more were expected",
        ),
        (
            in_section(&[&ethernet, &patched(one, 20, &[0xff; 4])]),
            "a frame of 4294967295 captured bytes at byte 48, where at most 262144 were expected",
        ),
        // Interfaces belong to their section.
        (
            [in_section(&[&ethernet]), in_section(&[&simple(LITTLE, 1, b"!")])].concat(),
            "a frame at byte 76 has interface 0 (from 0), but its section describes only 0",
        ),
    ];
    for (file, said) in cases {
        let (_, error) = read(&file[..]);
        assert_eq!(error.expect(said).to_string(), said);
    }
}

#[test]
fn a_section_has_so_many_interfaces_at_most() {
    let file = in_section(&[&interface(LITTLE, 1, 0, &[]).repeat(65_537)]);
    let (_, error) = read(&file[..]);
    let offset = 28 + 20 * 65_536;
    assert!(matches!(error, Some(ReadError::Interfaces { offset: at, limit: 65_536 }) if at == offset), "{error:?}");
}

#[test]
fn damaged_gzip_is_told_from_its_end() {
    let file = pcap(LITTLE, 0xa1b2_c3d4);
    let mut damaged = packed(&file);
    let len = damaged.len();
    damaged[len - 6] ^= 1;
    let (frames, error) = read(&damaged[..]);
    assert_eq!(frames, read_all(&file[..]), "the checksum comes last");
    assert!(matches!(error, Some(ReadError::Gzip { offset, .. }) if offset == file.len() as u64), "{error:?}");
}

#[test]
fn errors_of_reading_are_passed_on() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::ErrorKind::ConnectionReset.into()),
                read => Ok(read),
            }
        }
    }
    let file = pcap(LITTLE, 0xa1b2_c3d4);
    let (frames, error) = read(Broken(&file));
    assert_eq!(frames.len(), 2);
    assert!(matches!(error, Some(ReadError::Io { offset, .. }) if offset == file.len() as u64), "{error:?}");
    let (_, error) = read(Broken(&[]));
    assert!(matches!(error, Some(ReadError::Io { offset: 0, .. })), "{error:?}");
}

#[test]
fn interrupted_reads_are_repeated() {
    struct Interrupted<'a>(&'a [u8], bool);
    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(buffer) }
        }
    }
    let file = pcap(LITTLE, 0xa1b2_c3d4);
    assert_eq!(read_all(Interrupted(&file, false)), read_all(&file[..]));
    assert_eq!(read_all(Interrupted(&packed(&file), false)), read_all(&file[..]));
}
