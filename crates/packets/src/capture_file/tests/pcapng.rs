//! `draft-ietf-opsawg-pcapng`.

use super::*;

/// Type, length, body, length (section 3.1).
pub(super) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = word(order, body.len() as u32 + 12);
    [&word(order, kind)[..], &len, body, &len].concat()
}

pub(super) fn section(order: Order) -> Vec<u8> {
    let version = [half(order, 1), half(order, 0)].concat();
    block(order, 0x0a0d_0d0a, &[&word(order, 0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
}

pub(super) fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = [&half(order, code)[..], &half(order, value.len() as u16), value].concat();
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

pub(super) fn interface(order: Order, link: u16, snap_len: u32, options: &[u8]) -> Vec<u8> {
    block(order, 1, &[&half(order, link)[..], &[0; 2], &word(order, snap_len), options].concat())
}

pub(super) fn enhanced(order: Order, interface: u32, units: u64, len: u32, data: &[u8], options: &[u8]) -> Vec<u8> {
    let header = all_words(order, &[interface, (units >> 32) as u32, units as u32, data.len() as u32, len]);
    block(order, 6, &[&header, &with_padding(data)[..], options].concat())
}

pub(super) fn simple(order: Order, len: u32, data: &[u8]) -> Vec<u8> {
    block(order, 3, &[&word(order, len)[..], &with_padding(data)].concat())
}

fn with_padding(data: &[u8]) -> Vec<u8> {
    let mut padded_data = data.to_vec();
    padded_data.resize(data.len().next_multiple_of(4), 0xee);
    padded_data
}

/// The first section in big endian, with two interfaces; the second in little endian, with one. All types of blocks.
pub(super) fn two_sections() -> Vec<u8> {
    let (big, little) = (Order::Big, Order::Little);
    let nanoseconds = [option(big, 2, b"eth0"), option(big, 9, &[9]), option(big, 0, &[])].concat();
    let old = [&half(little, 0)[..], &half(little, 9), &all_words(little, &[0, 4000, 2, 2]), b"pb\0\0"].concat();
    [
        section(big),
        interface(big, 1, 0, &[]),
        interface(big, 113, 96, &nanoseconds),
        // Name resolution, and an unknown block.
        block(big, 4, &[0; 8]),
        enhanced(big, 1, 1_800_000_000_123_456_789, 100, b"cooked", &option(big, 1, b"a comment")),
        block(big, 0x8000_0001, &[1; 40]),
        enhanced(big, 0, 1_800_000_000_123_456, 8, b"ethernet", &[]),
        simple(big, 7, b"untimed"),
        section(little),
        interface(little, 101, 3, &[option(little, 9, &[3]), option(little, 14, &1000i64.to_le_bytes())].concat()),
        simple(little, 90, b"cut"),
        block(little, 2, &old),
        enhanced(little, 0, 5000, 0, b"", &[]),
        // Statistics.
        block(little, 5, &[0; 12]),
    ]
    .concat()
}

#[test]
fn blocks_of_two_sections() {
    let frame = |time, link, len, data: &[u8]| Owned { time, link, len, data: data.to_vec() };
    let s = 1_000_000_000;
    let frames = [
        frame(1_800_000_000_123_456_789, LinkType::LINUX_SLL, 100, b"cooked"),
        frame(1_800_000_000_123_456_000, LinkType::ETHERNET, 8, b"ethernet"),
        frame(1_800_000_000_123_456_000, LinkType::ETHERNET, 7, b"untimed"),
        frame(1_800_000_000_123_456_000, LinkType::RAW, 90, b"cut"),
        frame(1004 * s, LinkType::RAW, 2, b"pb"),
        frame(1005 * s, LinkType::RAW, 0, b""),
    ];
    assert_eq!(read_all(&two_sections()[..]), frames);
    assert_eq!(read_all(&packed(&two_sections())[..]), frames);
}

/// The caller counts frames of unknown link types.
#[test]
fn frames_of_unknown_link_types_come_too() {
    let little = Order::Little;
    let file = [section(little), interface(little, 105, 0, &[]), enhanced(little, 0, 0, 1, b"?", &[])].concat();
    assert_eq!(read_all(&file[..])[0].link, LinkType(105));
}

#[test]
fn long_blocks_are_read_past_in_little_memory() {
    let little = Order::Little;
    let file = [
        section(little),
        interface(little, 1, 0, &option(little, 2, &vec![b'a'; 65_535])),
        block(little, 10, &vec![0; 3_000_000]),
        enhanced(little, 0, 1, 3, b"end", &vec![0; 1_000_000]),
        simple(little, 1, b"!"),
    ]
    .concat();
    let mut reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().data, b"end");
    assert_eq!(reader.next_frame().unwrap().unwrap().data, b"!");
    assert!(reader.next_frame().unwrap().is_none());
    assert_eq!(reader.input.capacity(), 65_536);
}
