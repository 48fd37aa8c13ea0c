//! Compares the results with those of tshark and tcptrace.
//!
//! Both separate connections as `watari watch` does: a SYN with another number begins another connection. They differ
//! by definition in these points, which this file corrects:
//!
//! 1. tshark counts octets of retransmissions and of probes, and marks both ([`AGAIN`]).
//! 2. tshark reports the completeness of a connection (`tcp.completeness`) up to a packet, unless it reads twice.
//! 3. Both take the sender of the first packet for the client. With `BACKSCATTER` that is the server; tshark sees no
//!    SYN then.
//! 4. tcptrace sometimes takes the two directions between ends with the same address for two connections. It gets a
//!    copy in which servers have an address of their own.
//! 5. tcptrace shows only a part of addresses, so ports identify its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use watari_packets::{Decoded, Decoder, Frame, LinkType};

use crate::capture::{Captured, frames, write};
use crate::namespace::{program, run};
use crate::rows::Row;

/// tshark agrees on the number of connections. For each it agrees on the octets, the handshake, and the side that
/// closed or reset it first.
pub(crate) fn tshark_agrees(capture: &Path, rows: &[Row]) {
    let mut streams = streams(capture);
    let mut wrong = Vec::new();
    for row in rows {
        let ends = ends(row.client, row.server);
        let of_ends = streams.get_mut(&ends).filter(|streams| !streams.is_empty());
        let Some(stream) = of_ends.map(|streams| streams.remove(0)) else {
            wrong.push((row, None));
            continue;
        };
        if !stream.agrees(row) {
            wrong.push((row, Some(stream)));
        }
    }
    streams.retain(|ends, streams| !streams.is_empty() && !ends.iter().any(|end| end.port() == MARK_PORT));
    assert!(wrong.is_empty() && streams.is_empty(), "differ: {wrong:#?}\ntshark only: {streams:#?}");
    println!("tshark agrees on {} connections", rows.len());
}

/// tcptrace agrees on the number of connections. For each it agrees on the octets, and the sides that sent a FIN or a
/// RST.
pub(crate) fn tcptrace_agrees(dir: &Path, capture: &Path, rows: &[Row]) {
    let mut traced = traced(dir, &servers_apart(capture, rows));
    let mut wrong = Vec::new();
    for row in rows {
        let key = [(row.client.is_ipv6(), row.client.port()), (row.client.is_ipv6(), row.server.port())];
        let of_ends = traced.get_mut(&sorted(key)).filter(|traced| !traced.is_empty());
        match of_ends.map(|traced| traced.remove(0)) {
            Some(traced) if traced.agrees(row) => {}
            traced => wrong.push((row, traced)),
        }
    }
    traced.retain(|ends, traced| !traced.is_empty() && !ends.iter().any(|(_, port)| *port == MARK_PORT));
    assert!(wrong.is_empty() && traced.is_empty(), "differ: {wrong:#?}\ntcptrace only: {traced:#?}");
    println!("tcptrace agrees on {} connections", rows.len());
}

/// The port of the connection that marks the end of a capture.
const MARK_PORT: u16 = 9;

/// tshark's data of a connection.
#[derive(Debug, Default)]
struct Stream {
    /// Octets of data by sender, each counted once.
    octets: BTreeMap<SocketAddr, u64>,
    /// The sender of the first FIN or RST, and whether it was a FIN.
    closed: Option<(SocketAddr, bool)>,
    /// `tcp.completeness`: the parts of the connection that were captured.
    completeness: u8,
}

const HAS_SYN: u8 = 1;
const HAS_HANDSHAKE: u8 = 7;
const HAS_DATA: u8 = 8;

impl Stream {
    fn agrees(&self, row: &Row) -> bool {
        let octets = |end| self.octets.get(&end).copied().unwrap_or_default();
        let has = |bits| self.completeness & bits == bits;
        let is_backscatter = row.ending == "BACKSCATTER";
        (row.bytes_to_client, row.bytes_to_server) == (octets(row.server), octets(row.client))
            && has(HAS_SYN) != is_backscatter
            && has(HAS_HANDSHAKE) == (row.phase != "before_handshake")
            && has(HAS_DATA) == (row.bytes_to_client + row.bytes_to_server > 0)
            && (is_backscatter || self.closed == closed(row))
    }
}

/// The side that ended it, and whether by a FIN.
fn closed(row: &Row) -> Option<(SocketAddr, bool)> {
    let end = match row.closed_by.as_deref()? {
        "client" => row.client,
        _ => row.server,
    };
    Some((end, row.ending.ends_with("NORMAL")))
}

const FIELDS: [&str; 10] = [
    "tcp.stream",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.flags",
    "tcp.len",
    "tcp.completeness",
];

/// tshark's marks of data that were sent before.
const AGAIN: [&str; 4] = [
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.keep_alive",
];

/// tshark's streams by their ends, in the order in which they began.
fn streams(capture: &Path) -> BTreeMap<[SocketAddr; 2], Vec<Stream>> {
    let mut command = program("tshark");
    command.args(["-2", "-T", "fields", "-E", "occurrence=f", "-r"]).arg(capture);
    for field in FIELDS.iter().chain(&AGAIN) {
        command.args(["-e", field]);
    }
    let mut streams: BTreeMap<u64, ([SocketAddr; 2], Stream)> = BTreeMap::new();
    for line in run(&mut command).lines().filter(|line| !line.starts_with('\t')) {
        let fields: Vec<_> = line.split('\t').collect();
        let end = |v4: usize, port: usize| {
            let ip = if fields[v4].is_empty() { fields[v4 + 2] } else { fields[v4] };
            SocketAddr::new(ip.parse().unwrap(), fields[port].parse().unwrap())
        };
        let (source, destination) = (end(1, 5), end(2, 6));
        let (_, stream) =
            streams.entry(fields[0].parse().unwrap()).or_insert_with(|| (ends(source, destination), Stream::default()));
        let flags = u16::from_str_radix(fields[7].trim_start_matches("0x"), 16).unwrap();
        if flags & 5 != 0 {
            stream.closed.get_or_insert((source, flags & 1 != 0));
        }
        if fields[10..].iter().all(|again| again.is_empty()) {
            *stream.octets.entry(source).or_default() += fields[8].parse::<u64>().unwrap();
        }
        stream.completeness |= fields[9].parse::<u8>().unwrap();
    }
    let mut by_ends: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (ends, stream) in streams.into_values() {
        by_ends.entry(ends).or_default().push(stream);
    }
    by_ends
}

/// tcptrace's data of a connection: of each end, by its port.
#[derive(Debug)]
struct Traced(BTreeMap<u16, Sent>);

#[derive(Debug)]
struct Sent {
    octets: u64,
    fins: u64,
    resets: u64,
}

impl Traced {
    fn agrees(&self, row: &Row) -> bool {
        let (client, server) = (&self.0[&row.client.port()], &self.0[&row.server.port()]);
        let closer = match row.closed_by.as_deref() {
            Some("client") => client,
            Some(_) => server,
            None => return client.fins + server.fins == 0,
        };
        let closed_so =
            if row.ending.ends_with("NORMAL") { closer.fins > 0 } else { closer.fins == 0 && closer.resets > 0 };
        (row.bytes_to_client, row.bytes_to_server) == (server.octets, client.octets) && closed_so
    }
}

/// The frames of a capture, with another last octet in the addresses of servers.
fn servers_apart(capture: &Path, rows: &[Row]) -> Vec<Captured> {
    let servers: BTreeSet<_> = rows.iter().map(|row| row.server).collect();
    let mut all = frames(capture);
    for Captured { time, len, data } in &mut all {
        let frame = Frame { time: *time, link: LinkType::ETHERNET, len: *len, data };
        let Decoded::Segment(segment) = Decoder::default().decode(&frame) else { continue };
        let [source, destination] = if segment.source.is_ipv6() { [37, 53] } else { [29, 33] };
        let is_server = [segment.source, segment.destination].map(|end| servers.contains(&end));
        for (at, is_server) in [source, destination].into_iter().zip(is_server) {
            data[at] ^= u8::from(is_server) << 7;
        }
    }
    all
}

/// tcptrace's connections by family (true: IPv6) and ports, in the order in which they began. It reads pcap.
fn traced(dir: &Path, frames: &[Captured]) -> BTreeMap<[(bool, u16); 2], Vec<Traced>> {
    let [apart, file] = ["apart.pcap", "tcptrace.pcap"].map(|name| dir.join(name));
    write(&apart, frames);
    run(program("editcap").args(["-F", "pcap"]).args([&apart, &file]));
    let said = run(program("tcptrace").args(["-n", "-l", "--csv"]).arg(file));
    let mut lines = said.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let mut traced: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in lines {
        let values: Vec<_> = line.split(',').map(str::trim).collect();
        let value =
            |name: &str| values[names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name}"))];
        let port = |name: &str| value(name).parse::<u16>().unwrap();
        let is_ipv6 = value("host_a").parse::<IpAddr>().map_or(true, |ip| ip.is_ipv6());
        let sent = |way: &str| Sent {
            octets: value(&format!("unique_bytes_sent_{way}")).parse().unwrap(),
            fins: value(&format!("SYN/FIN_pkts_sent_{way}")).split_once('/').unwrap().1.parse().unwrap(),
            resets: value(&format!("resets_sent_{way}")).parse().unwrap(),
        };
        let ends = [(port("port_a"), sent("a2b")), (port("port_b"), sent("b2a"))];
        let key = sorted([(is_ipv6, ends[0].0), (is_ipv6, ends[1].0)]);
        traced.entry(key).or_default().push(Traced(ends.into()));
    }
    traced
}

fn ends(one: SocketAddr, other: SocketAddr) -> [SocketAddr; 2] {
    sorted([one, other])
}

fn sorted<T: Ord>(mut two: [T; 2]) -> [T; 2] {
    two.sort();
    two
}
