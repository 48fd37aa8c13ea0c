#![allow(clippy::unwrap_used)]

mod cut_off;
mod errors;
mod merged;
mod pcapng;
mod writer;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::order::Order;
use super::*;
use crate::LinkType;

/// A frame that owns its octets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    time: u64,
    link: LinkType,
    len: u32,
    data: Vec<u8>,
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        Frame { time: Timestamp(self.time), link: self.link, len: self.len, data: &self.data }
    }
}

impl From<Frame<'_>> for Owned {
    fn from(Frame { time, link, len, data }: Frame<'_>) -> Self {
        Self { time: time.0, link, len, data: data.to_vec() }
    }
}

fn owned(time: u64, len: u32, data: &[u8]) -> Owned {
    Owned { time, link: LinkType::ETHERNET, len, data: data.to_vec() }
}

/// All frames up to the end, or up to an error.
fn read<R: Read>(file: R) -> (Vec<Owned>, Option<ReadError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => frames.push(frame.into()),
            Ok(None) => return (frames, None),
            Err(error) => {
                assert!(matches!(reader.next_frame(), Ok(None)), "nothing comes after an error");
                return (frames, Some(error));
            }
        }
    }
}

fn read_all<R: Read>(file: R) -> Vec<Owned> {
    let (frames, error) = read(file);
    assert!(error.is_none(), "{error:?}");
    frames
}

fn word(order: Order, value: u32) -> [u8; 4] {
    match order {
        Order::Big => value.to_be_bytes(),
        Order::Little => value.to_le_bytes(),
    }
}

fn half(order: Order, value: u16) -> [u8; 2] {
    match order {
        Order::Big => value.to_be_bytes(),
        Order::Little => value.to_le_bytes(),
    }
}

fn all_words(order: Order, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|value| word(order, *value)).collect()
}

/// Version 2.4, snap length 96.
fn file_header(order: Order, magic: u32, link: u32) -> Vec<u8> {
    let version = [half(order, 2), half(order, 4)].concat();
    [&word(order, magic)[..], &version, &all_words(order, &[0, 0, 96, link])].concat()
}

/// Two frames: one of 3 octets, and one of 1500, of which 5 were captured.
fn pcap(order: Order, magic: u32) -> Vec<u8> {
    let more: &[u8] = if magic == 0xa1b2_cd34 { &[0, 0, 0, 2, 8, 0, 0, 0] } else { &[] };
    [
        &file_header(order, magic, 1)[..],
        &all_words(order, &[1_800_000_000, 999_999, 3, 3]),
        more,
        b"one",
        &all_words(order, &[1_800_000_001, 7, 5, 1500]),
        more,
        b"begin",
    ]
    .concat()
}

fn packed(octets: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(octets).unwrap();
    encoder.finish().unwrap()
}

/// Returns at most this many octets at a time, as a pipe may.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(buffer.len());
        self.0.read(&mut buffer[..len])
    }
}

/// Before version 2.3 the length on the wire came first. In 2.3 the greater one is the length on the wire.
#[test]
fn lengths_of_old_pcap_stand_the_other_way_round() {
    let frames = [owned(1_800_000_000_999_999_000, 3, b"one"), owned(1_800_000_001_000_007_000, 1500, b"begin")];
    for (minor, is_swapped) in [(0, true), (1, true), (2, true), (3, true), (3, false), (4, false)] {
        let mut file = pcap(Order::Big, 0xa1b2_c3d4);
        file[6..8].copy_from_slice(&half(Order::Big, minor));
        if is_swapped {
            // Behind the first frame: seconds, fraction, and then the lengths.
            let lengths = 24 + 16 + 3 + 8;
            file[lengths..lengths + 8].rotate_left(4);
        }
        assert_eq!(read_all(&file[..]), frames, "2.{minor}, {is_swapped}");
    }
}

/// `draft-ietf-opsawg-pcap`, section 4.
#[test]
fn pcap_in_either_order_and_of_each_kind() {
    for order in [Order::Big, Order::Little] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1), (0xa1b2_cd34, 1000)] {
            let frames = [
                owned(1_800_000_000_000_000_000 + 999_999 * unit, 3, b"one"),
                owned(1_800_000_001_000_000_000 + 7 * unit, 1500, b"begin"),
            ];
            assert_eq!(read_all(&pcap(order, magic)[..]), frames, "{magic:x} {order:?}");
        }
    }
}

/// Section 4: the upper half of the field has the presence and the length of a frame check sequence.
#[test]
fn only_half_of_the_link_type_is_the_link_type() {
    let file = file_header(Order::Little, 0xa1b2_c3d4, 0x2400_0071);
    let reader = Reader::new(&file[..]).unwrap();
    assert!(matches!(&reader.format, Format::Pcap(_)));
    let file = [&file[..], &[0; 16]].concat();
    assert_eq!(read_all(&file[..])[0].link, LinkType::LINUX_SLL);
}

/// RFC 1952, section 2.2: a file has one member or more.
#[test]
fn gzip_is_told_by_its_magic() {
    let file = pcap(Order::Little, 0xa1b2_3c4d);
    let frames = read_all(&file[..]);
    assert_eq!(read_all(&packed(&file)[..]), frames);
    let (front, back) = file.split_at(30);
    assert_eq!(read_all(&[packed(front), packed(back)].concat()[..]), frames);
    assert_eq!(read_all(Pieces(&packed(&file), 1)), frames);
}

#[test]
fn pieces_of_any_length_are_the_same_file() {
    for file in [pcap(Order::Big, 0xa1b2_cd34), pcapng::two_sections()] {
        let frames = read_all(&file[..]);
        for len in 1..40 {
            assert_eq!(read_all(Pieces(&file, len)), frames, "{len} octets at a time");
        }
    }
}

/// A reader returns a frame of a capture in progress as soon as it was written.
#[test]
fn nothing_is_read_behind_a_frame_before_it_is_wanted() {
    struct Live<'a>(&'a [u8]);
    impl Read for Live<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "would wait");
            self.0.read(buffer)
        }
    }
    for file in [pcap(Order::Little, 0xa1b2_c3d4), pcapng::two_sections()] {
        let count = read_all(&file[..]).len();
        let mut reader = Reader::new(Live(&file)).unwrap();
        for _ in 0..count {
            assert!(reader.next_frame().unwrap().is_some());
        }
    }
}

#[test]
fn the_longest_frames_are_read_and_nothing_longer_is_kept() {
    let data = vec![7; FRAME_LEN_MAX];
    let long = |captured: u32, data: &[u8]| {
        let header = all_words(Order::Little, &[0, 0, captured, captured]);
        [&file_header(Order::Little, 0xa1b2_c3d4, 1)[..], &header, data].concat()
    };
    let file = long(FRAME_LEN_MAX as u32, &data);
    let mut reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().data, data);
    assert_eq!(reader.input.capacity(), FRAME_LEN_MAX);

    let (_, error) = read(&long(FRAME_LEN_MAX as u32 + 1, &data)[..]);
    assert!(matches!(error, Some(ReadError::FrameTooLong { offset: 24, len: 262_145 })), "{error:?}");
}
