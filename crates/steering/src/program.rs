//! The program that decides about each packet.
//!
//! ```text
//! a TCP packet to one of the addresses, or an ICMP error about one from them
//!   | its connection changes machines, between this one and another ----------------> the other, or dropped if it
//!   |                                                                                  came from there
//!   | not SYN, and a socket of this machine has the connection ---------------------> this machine
//!   v
//! slot of the client's address and port -> first, next, after_next, fallback
//!   | first is another dispatcher, from which the packet did not come --------------> first
//!   | SYN --------------------------------------------------------------------------> this machine, or dropped if the
//!   |                                                                                 time limit is over
//!   | next is another dispatcher, from which the packet did not come ---------------> next
//!   | next is the dispatcher from which it came, and there is another after it -----> after_next
//!   | this dispatcher is sure, and so were all that passed the packet on -----------> this machine, which sends RST
//!   v
//! dropped: the client repeats it
//! ```
//!
//! * `first` is the primary, and none at the primary itself. `next` is the dispatcher that comes after this one in the
//!   order of a second chance, `after_next` the one after that.
//! * The process renews its time limit. After it, this machine accepts no connections, and `fallback`, the dispatcher that
//!   is primary without this one, stands for a primary that is this machine.
//! * A dispatcher that passes a packet on decrements its TTL. If the dispatchers agree, a packet meets each of them once
//!   at most. While they do not agree yet, the TTL ends a circle.
//! * A dispatcher that is not sure ([`Members::is_sure`](crate::Members::is_sure)), or whose time limit is over, reduces
//!   the TTL to [`DOUBTFUL_TTL`]. The last one of the order does not answer a packet with a lower TTL: another dispatcher
//!   may have its connection.

use std::net::IpAddr;

use crate::assembler::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::assembler::Width::{W8, W16, W32, W64};
use crate::assembler::{Assembler, If, Instruction, Label, Op, Reg};
use crate::table::{FACTORS, SLOTS};

/// A link-layer address.
pub type Mac = [u8; 6];

/// The descriptors of the program's maps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maps {
    pub(crate) addresses: i32,
    pub(crate) flows: i32,
    pub(crate) control: i32,
    pub(crate) table: i32,
    pub(crate) counters: i32,
}

/// The length of a key of `addresses`: an IPv6 address, or an IPv4 address in one.
pub(crate) const ADDRESS_LEN: usize = 16;
/// The length of the element of `control`: the time limit, the position of the valid table in `table`, and whether this
/// dispatcher is sure of it, 8 bytes each.
pub(crate) const CONTROL_LEN: usize = 24;
const UNTIL: i16 = 0;
const VALID: i16 = 8;
const SURE: i16 = 16;
/// The length of an element of `table`: `first`, `next`, `after_next` and `fallback`, 8 bytes each: a link-layer address,
/// or zeros.
pub(crate) const ENTRY_LEN: usize = 32;
const FIRST: i16 = 0;
const NEXT: i16 = 8;
const AFTER_NEXT: i16 = 16;
const FALLBACK: i16 = 24;
/// The length of a key of `flows`: the addresses of the client and the server and their ports, as long as for IPv6.
pub(crate) const FLOW_LEN: usize = 36;
/// The length of an element of `flows`: a link-layer address and zeros.
pub(crate) const MAC_LEN: usize = 8;
/// Positions in `counters`: packets that went to their primary, and those that got a second chance.
pub(crate) const TO_PRIMARY: i32 = 0;
pub(crate) const SECOND_CHANCE: i32 = 1;
pub(crate) const COUNTERS: u32 = 2;

// enum bpf_func_id
const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT: i32 = 23;
const SKB_PULL_DATA: i32 = 39;
const SK_RELEASE: i32 = 86;
const SKC_LOOKUP_TCP: i32 = 99;
const TCP_CHECK_SYNCOOKIE: i32 = 100;
const KTIME_GET_BOOT_NS: i32 = 125;

// struct __sk_buff
const SKB_PROTOCOL: i16 = 16;
const SKB_IFINDEX: i16 = 40;
const SKB_DATA: i16 = 76;
const SKB_DATA_END: i16 = 80;

/// `struct bpf_sock`
const SOCK_STATE: i16 = 72;
/// `BPF_TCP_LISTEN`
const LISTEN: i32 = 10;
/// `BPF_F_CURRENT_NETNS`
const CURRENT_NAMESPACE: i32 = -1;

/// `TC_ACT_UNSPEC`: other filters decide, and without them the packet stays here.
pub(crate) const HERE: i32 = -1;
/// `TC_ACT_SHOT`
pub(crate) const DROP: i32 = 2;
/// `TC_ACT_REDIRECT`, which `bpf_redirect` returns.
#[cfg(test)]
pub(crate) const PASSED_ON: i32 = 7;

const ETHERNET: i16 = 14;
const TCP: i32 = 6;
const TCP_LEN: i16 = 20;
/// RFC 9293, section 3.1.
const TCP_FLAGS: i16 = 13;
const SYN: i32 = 0x02;
const ACK: i32 = 0x10;
/// The header of an ICMP error, in front of the packet that it is about.
const ICMP_LEN: i16 = 8;
/// Source and destination ports, in front of anything else in TCP.
const PORTS_LEN: i16 = 4;

/// The TTL of a packet that a dispatcher in doubt has passed on is lower.
pub(crate) const DOUBTFUL_TTL: u8 = 16;

/// On the stack: `struct bpf_sock_tuple`, which is also a key of `flows`: the addresses of the client and the server, and
/// their ports.
const TUPLE: i16 = -40;
const TUPLE_END: i16 = -4;
/// On the stack: a key of `addresses`.
const ADDRESS: i16 = -56;
/// On the stack: an index.
const INDEX: i16 = -60;
/// On the stack: whether the time limit is over.
const IS_LATE: i16 = -72;
/// On the stack: whether this dispatcher is sure, and the time limit is not over.
const IS_SURE: i16 = -80;
/// On the stack: the position of the valid table.
const POSITION: i16 = -88;
/// On the stack: 0 if the packet has a SYN cookie of this machine.
const COOKIE: i16 = -96;

/// What differs between IPv4 and IPv6.
struct Version {
    ethertype: i32,
    header_len: i16,
    address_len: i16,
    /// In the IP header.
    source: i16,
    destination: i16,
    protocol: i16,
    ttl: i16,
    icmp: i32,
    /// The types of ICMP errors about which a connection has to know.
    errors: &'static [i32],
}

/// RFC 791, RFC 792: destination unreachable, time exceeded, parameter problem.
const V4: Version = Version {
    ethertype: 0x0800,
    header_len: 20,
    address_len: 4,
    source: 12,
    destination: 16,
    protocol: 9,
    ttl: 8,
    icmp: 1,
    errors: &[3, 11, 12],
};

/// RFC 8200, RFC 4443: destination unreachable, packet too big, time exceeded, parameter problem.
const V6: Version = Version {
    ethertype: 0x86dd,
    header_len: 40,
    address_len: 16,
    source: 8,
    destination: 24,
    protocol: 6,
    ttl: 7,
    icmp: 58,
    errors: &[1, 2, 3, 4],
};

/// A key of `addresses`: an IPv4 address is in an IPv6 address.
pub(crate) fn key(address: IpAddr) -> [u8; ADDRESS_LEN] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The program for an interface with this link-layer address.
pub(crate) fn program(maps: Maps, own: Mac) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let here = code.label();
    let versions = [V4, V6].map(|version| (code.label(), version));
    // R6: the packet's description. R7: its bytes. R9: 1 for a SYN.
    code.alu(Op::Move, R6, R1);
    code.load(W32, R2, R6, SKB_PROTOCOL);
    code.big_endian(R2, 16);
    for (label, version) in &versions {
        code.jump_if(R2, If::Equal, version.ethertype, *label);
    }
    code.place(here);
    verdict(&mut code, HERE);
    for (label, version) in versions {
        code.place(label);
        Generator { code: &mut code, maps, own, version, here }.generate();
    }
    code.finish()
}

fn verdict(code: &mut Assembler, verdict: i32) {
    code.alu(Op::Move, R0, verdict);
    code.exit();
}

/// Generates the code for one version of IP.
struct Generator<'a> {
    code: &'a mut Assembler,
    maps: Maps,
    own: Mac,
    version: Version,
    here: Label,
}

impl Generator<'_> {
    const IP: i16 = ETHERNET;

    fn transport(&self) -> i16 {
        Self::IP + self.version.header_len
    }

    fn generate(mut self) {
        let (icmp, known) = (self.code.label(), self.code.label());
        self.pull(self.transport() + TCP_LEN);
        self.code.load(W8, R1, R7, Self::IP + self.version.protocol);
        self.code.jump_if(R1, If::Equal, self.version.icmp, icmp);
        self.code.jump_if(R1, If::NotEqual, TCP, self.here);
        self.check_header(Self::IP);
        self.read_flow(Self::IP, [self.version.source, self.version.destination], [0, 2]);
        // R9 = the packet is a SYN
        self.code.load(W8, R9, R7, self.transport() + TCP_FLAGS);
        self.code.alu(Op::And, R9, SYN | ACK);
        let is_first = self.code.label();
        self.code.jump_if(R9, If::Equal, SYN, is_first);
        self.code.alu(Op::Move, R9, 0);
        self.code.jump(known);
        self.code.place(is_first);
        self.code.alu(Op::Move, R9, 1);
        self.code.jump(known);

        self.code.place(icmp);
        self.read_error();
        self.code.place(known);
        self.is_steered();
        self.read_control();
        let [forward, moves] = [(); 2].map(|()| self.code.label());
        self.is_moving(moves);
        self.has_socket();
        self.find_slot();
        self.choose(forward);
        self.code.place(moves);
        self.follow(forward);
        self.code.place(forward);
        self.forward();
    }

    /// Has the first `len` bytes of the packet in one piece. A shorter packet stays here.
    fn pull(&mut self, len: i16) {
        let code = &mut *self.code;
        code.alu(Op::Move, R1, R6);
        code.alu(Op::Move, R2, i32::from(len));
        code.call(SKB_PULL_DATA);
        code.jump_if(R0, If::NotEqual, 0, self.here);
        code.load(W32, R7, R6, SKB_DATA);
        code.load(W32, R8, R6, SKB_DATA_END);
        code.alu(Op::Move, R1, R7);
        code.alu(Op::Add, R1, i32::from(len));
        code.jump_if(R1, If::Greater, R8, self.here);
    }

    /// An IPv4 header at `ip` with options, or of a fragment, stays here. For IPv6, another header follows then.
    fn check_header(&mut self, ip: i16) {
        const PLAIN: i32 = 0x45;
        const FRAGMENT: i16 = 6;
        /// More fragments, or an offset.
        const IS_FRAGMENT: i32 = 0x3fff;
        if self.version.address_len == V4.address_len {
            self.code.load(W8, R1, R7, ip);
            self.code.jump_if(R1, If::NotEqual, PLAIN, self.here);
            self.code.load(W16, R1, R7, ip + FRAGMENT);
            self.code.big_endian(R1, 16);
            self.code.alu(Op::And, R1, IS_FRAGMENT);
            self.code.jump_if(R1, If::NotEqual, 0, self.here);
        }
    }

    /// Reads the flow of a packet whose IP header is at `ip`. Of addresses and ports, the client's come first.
    fn read_flow(&mut self, ip: i16, addresses: [i16; 2], ports: [i16; 2]) {
        let len = self.version.address_len;
        let mut to = TUPLE;
        for address in addresses {
            for word in (0..len).step_by(4) {
                self.code.load(W32, R1, R7, ip + address + word);
                self.code.store(W32, R10, to, R1);
                to += 4;
            }
        }
        for port in ports {
            self.code.load(W16, R1, R7, ip + self.version.header_len + port);
            self.code.store(W16, R10, to, R1);
            to += 2;
        }
        for rest in (to..TUPLE_END).step_by(4) {
            self.code.store(W32, R10, rest, 0);
        }
    }

    /// Reads the flow out of the packet that an ICMP error is about, which is one from this service to a client.
    fn read_error(&mut self) {
        let (transport, inner) = (self.transport(), self.transport() + ICMP_LEN);
        self.pull(inner + self.version.header_len + PORTS_LEN);
        self.check_header(Self::IP);
        let is_error = self.code.label();
        self.code.load(W8, R1, R7, transport);
        for kind in self.version.errors {
            self.code.jump_if(R1, If::Equal, *kind, is_error);
        }
        self.code.jump(self.here);
        self.code.place(is_error);
        self.check_header(inner);
        self.code.load(W8, R1, R7, inner + self.version.protocol);
        self.code.jump_if(R1, If::NotEqual, TCP, self.here);
        self.read_flow(inner, [self.version.destination, self.version.source], [2, 0]);
        self.code.alu(Op::Move, R9, 0);
    }

    /// Packets of other addresses stay here.
    fn is_steered(&mut self) {
        let len = self.version.address_len;
        if len == V4.address_len {
            let mapped: i32 = i32::from_be(0xffff);
            self.code.store(W64, R10, ADDRESS, 0);
            self.code.store(W32, R10, ADDRESS + 8, mapped);
        }
        for word in (0..len).step_by(4) {
            self.code.load(W32, R1, R10, TUPLE + len + word);
            self.code.store(W32, R10, ADDRESS + 16 - len + word, R1);
        }
        self.look_up(self.maps.addresses, ADDRESS);
    }

    /// R0 = the element with the key on the stack. Without it, the packet stays here.
    fn look_up(&mut self, map: i32, key: i16) {
        self.code.load_map(R1, map);
        self.code.alu(Op::Move, R2, R10);
        self.code.alu(Op::Add, R2, i32::from(key));
        self.code.call(MAP_LOOKUP_ELEM);
        self.code.jump_if(R0, If::Equal, 0, self.here);
    }

    /// Reads what this dispatcher knows.
    fn read_control(&mut self) {
        let in_time = self.code.label();
        self.code.store(W32, R10, INDEX, 0);
        self.look_up(self.maps.control, INDEX);
        self.code.load(W64, R1, R0, SURE);
        self.code.store(W64, R10, IS_SURE, R1);
        self.code.load(W64, R1, R0, VALID);
        self.code.store(W64, R10, POSITION, R1);
        self.code.load(W64, R8, R0, UNTIL);
        self.code.call(KTIME_GET_BOOT_NS);
        self.code.store(W64, R10, IS_LATE, 0);
        self.code.jump_if(R0, If::AtMost, R8, in_time);
        self.code.store(W64, R10, IS_LATE, 1);
        self.code.store(W64, R10, IS_SURE, 0);
        self.code.place(in_time);
    }

    /// R0 = the element of a connection that changes machines.
    fn is_moving(&mut self, moves: Label) {
        self.code.load_map(R1, self.maps.flows);
        self.code.alu(Op::Move, R2, R10);
        self.code.alu(Op::Add, R2, i32::from(TUPLE));
        self.code.call(MAP_LOOKUP_ELEM);
        self.code.jump_if(R0, If::NotEqual, 0, moves);
    }

    /// The connection changes machines, between this one and that in the element R0. A packet that comes from there has
    /// been at both.
    fn follow(&mut self, forward: Label) {
        self.load_mac(R4, R0, 0);
        self.load_mac(R5, R7, 6);
        self.code.alu(Op::Move, R9, SECOND_CHANCE);
        self.code.jump_if(R4, If::NotEqual, R5, forward);
        verdict(self.code, DROP);
    }

    /// A packet stays here if a socket of this machine has its connection. A SYN begins a new one.
    fn has_socket(&mut self) {
        let none = self.code.label();
        self.code.jump_if(R9, If::Equal, 1, none);
        self.code.alu(Op::Move, R1, R6);
        self.code.alu(Op::Move, R2, R10);
        self.code.alu(Op::Add, R2, i32::from(TUPLE));
        self.code.alu(Op::Move, R3, i32::from(2 * self.version.address_len + PORTS_LEN));
        self.code.alu(Op::Move, R4, CURRENT_NAMESPACE);
        self.code.alu(Op::Move, R5, 0);
        self.code.call(SKC_LOOKUP_TCP);
        self.code.jump_if(R0, If::Equal, 0, none);
        // R8 = the socket.
        let listens = self.code.label();
        self.code.alu(Op::Move, R8, R0);
        self.code.load(W32, R1, R8, SOCK_STATE);
        self.code.jump_if(R1, If::Equal, LISTEN, listens);
        self.code.alu(Op::Move, R1, R8);
        self.code.call(SK_RELEASE);
        self.code.jump(self.here);
        // The end of a handshake with a SYN cookie of this machine has only the listener.
        self.code.place(listens);
        self.code.alu(Op::Move, R1, R8);
        self.code.alu(Op::Move, R2, R7);
        self.code.alu(Op::Add, R2, i32::from(Self::IP));
        self.code.alu(Op::Move, R3, i32::from(self.version.header_len));
        self.code.alu(Op::Move, R4, R7);
        self.code.alu(Op::Add, R4, i32::from(self.transport()));
        self.code.alu(Op::Move, R5, i32::from(TCP_LEN));
        self.code.call(TCP_CHECK_SYNCOOKIE);
        self.code.store(W64, R10, COOKIE, R0);
        self.code.alu(Op::Move, R1, R8);
        self.code.call(SK_RELEASE);
        self.code.load(W64, R1, R10, COOKIE);
        self.code.jump_if(R1, If::Equal, 0, self.here);
        self.code.place(none);
    }

    /// R8 = the entry of the slot.
    fn find_slot(&mut self) {
        let len = self.version.address_len;
        // As `Slot::of`.
        if len == V4.address_len {
            self.code.load(W32, R1, R10, TUPLE);
            self.code.big_endian(R1, 32);
        } else {
            self.code.load(W64, R1, R10, TUPLE);
            self.code.big_endian(R1, 64);
            self.mix();
            self.code.load(W64, R2, R10, TUPLE + 8);
            self.code.big_endian(R2, 64);
            self.code.alu(Op::Xor, R1, R2);
        }
        self.mix();
        self.code.load(W16, R2, R10, TUPLE + 2 * len);
        self.code.big_endian(R2, 16);
        self.code.alu(Op::Xor, R1, R2);
        self.mix();
        self.code.alu(Op::And, R1, i32::from(SLOTS) - 1);
        self.code.alu(Op::Move, R8, R1);

        self.code.load(W64, R1, R10, POSITION);
        self.code.alu(Op::Add, R8, R1);
        self.code.store(W32, R10, INDEX, R8);
        self.look_up(self.maps.table, INDEX);
        self.code.alu(Op::Move, R8, R0);
    }

    /// R1 = as `mix` of `Slot::of`.
    fn mix(&mut self) {
        for factor in FACTORS {
            self.code.alu(Op::Move, R2, R1);
            self.code.alu(Op::ShiftRight, R2, 32);
            self.code.alu(Op::Xor, R1, R2);
            self.code.load_number(R2, factor);
            self.code.alu(Op::Mul, R1, R2);
        }
        self.code.alu(Op::Move, R2, R1);
        self.code.alu(Op::ShiftRight, R2, 32);
        self.code.alu(Op::Xor, R1, R2);
    }

    /// Passes the packet on, or has it stay here.
    fn choose(&mut self, forward: Label) {
        let [has_first, is_primary] = [(); 2].map(|()| self.code.label());
        // R5: from where it came. R4: where it goes, or 0.
        self.load_mac(R5, R7, 6);
        self.load_mac(R4, R8, FIRST);
        self.code.jump_if(R4, If::NotEqual, 0, has_first);
        self.code.load(W64, R1, R10, IS_LATE);
        self.code.jump_if(R1, If::Equal, 0, is_primary);
        self.load_mac(R4, R8, FALLBACK);
        self.code.jump_if(R4, If::Equal, 0, is_primary);

        self.code.place(has_first);
        self.code.jump_if(R4, If::Equal, R5, is_primary);
        self.code.alu(Op::Move, R9, TO_PRIMARY);
        self.code.jump(forward);

        // Or the packet came from the primary.
        self.code.place(is_primary);
        let (is_syn, is_late) = (self.code.label(), self.code.label());
        self.code.jump_if(R9, If::NotEqual, 0, is_syn);
        self.load_mac(R4, R8, NEXT);
        let has_next = self.code.label();
        self.code.jump_if(R4, If::NotEqual, R5, has_next);
        self.load_mac(R4, R8, AFTER_NEXT);
        self.code.place(has_next);
        self.code.alu(Op::Move, R9, SECOND_CHANCE);
        self.code.jump_if(R4, If::NotEqual, 0, forward);
        // No dispatcher seems to have the connection.
        let in_doubt = self.code.label();
        self.code.load(W64, R1, R10, IS_SURE);
        self.code.jump_if(R1, If::Equal, 0, in_doubt);
        self.code.load(W8, R1, R7, Self::IP + self.version.ttl);
        self.code.jump_if(R1, If::AtLeast, i32::from(DOUBTFUL_TTL), self.here);
        self.code.place(in_doubt);
        self.code.place(is_late);
        verdict(self.code, DROP);
        self.code.place(is_syn);
        self.code.load(W64, R1, R10, IS_LATE);
        self.code.jump_if(R1, If::NotEqual, 0, is_late);
        self.code.jump(self.here);
    }

    /// `to` = the link-layer address at `from + offset`, in its low 48 bits.
    fn load_mac(&mut self, to: Reg, from: Reg, offset: i16) {
        self.code.load(W32, to, from, offset);
        self.code.alu(Op::ShiftLeft, to, 16);
        self.code.load(W16, R3, from, offset + 4);
        self.code.alu(Op::Or, to, R3);
    }

    /// Sends the packet out of its interface, to the link-layer address in R4. R9: which counter counts it.
    fn forward(&mut self) {
        let [alive, sure] = [(); 2].map(|()| self.code.label());
        let ttl = Self::IP + self.version.ttl;
        // R1: the TTL, R2: the new one.
        self.code.load(W8, R1, R7, ttl);
        self.code.jump_if(R1, If::Greater, 1, alive);
        verdict(self.code, DROP);
        self.code.place(alive);
        self.code.alu(Op::Move, R2, R1);
        self.code.load(W64, R3, R10, IS_SURE);
        self.code.jump_if(R3, If::NotEqual, 0, sure);
        self.code.jump_if(R2, If::AtMost, i32::from(DOUBTFUL_TTL), sure);
        self.code.alu(Op::Move, R2, i32::from(DOUBTFUL_TTL));
        self.code.place(sure);
        self.code.alu(Op::Sub, R2, 1);
        self.code.store(W8, R7, ttl, R2);
        if self.version.address_len == V4.address_len {
            self.correct_checksum();
        }
        self.code.store(W16, R7, 4, R4);
        self.code.alu(Op::ShiftRight, R4, 16);
        self.code.store(W32, R7, 0, R4);
        for (at, pair) in (6..).step_by(2).zip(self.own.chunks_exact(2)) {
            self.code.store(W16, R7, at, i32::from(u16::from_ne_bytes([pair[0], pair[1]])));
        }

        self.code.store(W32, R10, INDEX, R9);
        self.look_up(self.maps.counters, INDEX);
        self.code.alu(Op::Move, R1, 1);
        self.code.add_atomically(R0, 0, R1);
        self.code.load(W32, R1, R6, SKB_IFINDEX);
        self.code.alu(Op::Move, R2, 0);
        self.code.call(REDIRECT);
        self.code.exit();
    }

    /// The TTL was R1 and is R2 (RFC 1624, section 3: it is the high half of a word).
    fn correct_checksum(&mut self) {
        const CHECKSUM: i16 = ETHERNET + 10;
        self.code.alu(Op::Sub, R1, R2);
        self.code.alu(Op::ShiftLeft, R1, 8);
        self.code.load(W16, R2, R7, CHECKSUM);
        self.code.big_endian(R2, 16);
        self.code.alu(Op::Add, R1, R2);
        self.code.alu(Op::Move, R2, R1);
        self.code.alu(Op::ShiftRight, R2, 16);
        self.code.alu(Op::Add, R1, R2);
        self.code.big_endian(R1, 16);
        self.code.store(W16, R7, CHECKSUM, R1);
    }
}

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(FLOW_LEN == (TUPLE_END - TUPLE) as usize);
