//! Which frames a collector gets: a filter of a packet socket, in classic BPF (`linux/filter.h`).

use std::collections::BTreeSet;

use socket2::SockFilter;

/// Instructions of a filter, at most (`BPF_MAXINSNS`).
const LEN_MAX: usize = 4096;

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
/// At the offset in the index register.
const LOAD_HALF_INDEXED: u16 = 0x48;
/// The length of an IPv4 header into the index register.
const LOAD_HEADER_LEN: u16 = 0xb1;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;
const ALL: u32 = u32::MAX;
const NOTHING: u32 = 0;
const TCP: u32 = 6;

/// Passes TCP packets from these ports, over IPv4 and IPv6. If there are too many ports, it passes all TCP packets.
pub(super) fn of_ports(ports: impl IntoIterator<Item = u16>) -> Vec<SockFilter> {
    let ports: BTreeSet<u16> = ports.into_iter().collect();
    // Jumps skip as many instructions: if the condition holds, and if not.
    let mut program: Vec<_> = [
        (LOAD_HALF, 0, 0, 12),
        (JUMP_IF_EQUAL, 1, 0, 0x0800),
        (JUMP_IF_EQUAL, 8, 7, 0x86dd),
        (LOAD_BYTE, 0, 0, 23),
        (JUMP_IF_EQUAL, 0, 5, TCP),
        (LOAD_HALF, 0, 0, 20),
        (JUMP_IF_ANY, 3, 0, 0x1fff),
        (LOAD_HEADER_LEN, 0, 0, 14),
        (LOAD_HALF_INDEXED, 0, 0, 14),
        (JUMP, 0, 0, 5),
        (RETURN, 0, 0, NOTHING),
        (LOAD_BYTE, 0, 0, 20),
        (JUMP_IF_EQUAL, 1, 0, TCP),
        (RETURN, 0, 0, NOTHING),
        (LOAD_HALF, 0, 0, 54),
    ]
    .into();
    if program.len() + 2 * ports.len() < LEN_MAX {
        for port in ports {
            program.extend([(JUMP_IF_EQUAL, 0, 1, u32::from(port)), (RETURN, 0, 0, ALL)]);
        }
        program.push((RETURN, 0, 0, NOTHING));
    } else {
        program.push((RETURN, 0, 0, ALL));
    }
    program.into_iter().map(|(code, yes, no, value)| SockFilter::new(code, yes, no, value)).collect()
}
