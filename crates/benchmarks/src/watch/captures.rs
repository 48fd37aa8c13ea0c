//! Generated captures. Their content is known, and the same on each machine.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use watari_packets::build::ethernet;
use watari_packets::capture_file::Writer;
use watari_packets::{Flags, Frame, LinkType, Segment, Timestamp};

use crate::failure::{Failure, doing, planning};
use crate::site::Site;

pub(super) struct Capture {
    pub(super) path: PathBuf,
    pub(super) packets: u64,
    pub(super) connections: u64,
}

/// Octets of each packet in a capture: enough to determine states.
const SNAP_LEN: usize = 96;
/// Packets of a connection with one request, which the server closes.
pub(super) const PACKETS_OF_SHORT: u64 = 10;
/// Concurrent long connections.
const LONG_FLOWS: u64 = 50;
const REQUEST_LEN: u32 = 120;
const SEGMENT_LEN: u32 = 1448;
/// Octets of each packet in captures with HTTP heads: as many as `watari watch live` captures by default.
const SNAP_LEN_OF_HEADS: usize = 600;
const REQUESTS_OF_KEPT: u64 = 100;
const KEPT_CONTENT_LEN: usize = 1024;
const KEPT_REQUEST: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: www.example\r\nUser-Agent: wrk/4.1.0\r\nAccept: */*\r\n\r\n";
const KEPT_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Tue, 24 Nov 2026 03:00:00 GMT\r\n\
    Content-Type: text/html\r\nContent-Length: 1024\r\nLast-Modified: Mon, 23 Nov 2026 03:00:00 GMT\r\n\
    Connection: keep-alive\r\nETag: \"6563a1-400\"\r\nAccept-Ranges: bytes\r\n\r\n";
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

/// Downloads that send in turn, with an acknowledgment for every other segment.
pub(super) fn long_flows(site: &Site, packets: u64) -> Result<Capture, Failure> {
    let mut out = Out::create(site, "long.pcap")?;
    let mut flows: Vec<_> = (0..LONG_FLOWS).map(CapturedConnection::new).collect();
    for flow in &mut flows {
        flow.open(&mut out)?;
        flow.ask(&mut out)?;
    }
    while out.packets < packets {
        for flow in &mut flows {
            flow.server_sends(&mut out, Flags::ACK, SEGMENT_LEN)?;
            flow.server_sends(&mut out, Flags::ACK, SEGMENT_LEN)?;
            flow.client_sends(&mut out, Flags::ACK, 0)?;
        }
    }
    for flow in &mut flows {
        flow.close(&mut out)?;
    }
    out.finish(LONG_FLOWS)
}

/// `count` connections with one request each, 20 of them concurrent.
pub(super) fn short_connections(site: &Site, name: &str, count: u64) -> Result<Capture, Failure> {
    let mut out = Out::create(site, name)?;
    for first in (0..count).step_by(20) {
        let mut flows: Vec<_> = (first..(first + 20).min(count)).map(CapturedConnection::new).collect();
        for flow in &mut flows {
            flow.open(&mut out)?;
        }
        for flow in &mut flows {
            flow.ask(&mut out)?;
            flow.server_sends(&mut out, Flags::ACK, SEGMENT_LEN)?;
            flow.server_sends(&mut out, Flags::ACK.with(Flags::PSH), 800)?;
            flow.client_sends(&mut out, Flags::ACK, 0)?;
        }
        for flow in &mut flows {
            flow.close(&mut out)?;
        }
    }
    out.finish(count)
}

/// Keep-alive connections of HTTP/1 in clear text with [`REQUESTS_OF_KEPT`] requests each, 50 of them concurrent. The
/// monitor reads the heads.
pub(super) fn kept_connections(site: &Site, packets: u64) -> Result<Capture, Failure> {
    let mut out = Out::create_with(site, "kept.pcap", SNAP_LEN_OF_HEADS)?;
    let answer = [KEPT_ANSWER, &[b'x'; KEPT_CONTENT_LEN]].concat();
    let mut connections = 0;
    while out.packets < packets {
        let mut flows: Vec<_> = (connections..connections + LONG_FLOWS).map(CapturedConnection::new).collect();
        connections += LONG_FLOWS;
        for flow in &mut flows {
            flow.open(&mut out)?;
        }
        for _ in 0..REQUESTS_OF_KEPT {
            for flow in &mut flows {
                flow.client_says(&mut out, KEPT_REQUEST)?;
            }
            for flow in &mut flows {
                flow.server_says(&mut out, &answer)?;
            }
            for flow in &mut flows {
                flow.client_sends(&mut out, Flags::ACK, 0)?;
            }
        }
        for flow in &mut flows {
            flow.close(&mut out)?;
        }
    }
    out.finish(connections)
}

/// `count` connections that have got a response and stay open.
pub(super) fn open_connections(site: &Site, name: &str, count: u64) -> Result<Capture, Failure> {
    let mut out = Out::create(site, name)?;
    for number in 0..count {
        let mut flow = CapturedConnection::new(number);
        flow.open(&mut out)?;
        flow.ask(&mut out)?;
        flow.server_sends(&mut out, Flags::ACK.with(Flags::PSH), SEGMENT_LEN)?;
        flow.client_sends(&mut out, Flags::ACK, 0)?;
    }
    out.finish(count)
}

struct Out {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    packets: u64,
    time: Timestamp,
}

impl Out {
    fn create(site: &Site, name: &str) -> Result<Self, Failure> {
        Self::create_with(site, name, SNAP_LEN)
    }

    fn create_with(site: &Site, name: &str, snap_len: usize) -> Result<Self, Failure> {
        let path = site.path(name);
        let file = File::create(&path).map_err(doing(format!("making {}", path.display())))?;
        let writer = Writer::new(BufWriter::new(file), LinkType::ETHERNET, snap_len).map_err(planning)?;
        Ok(Self { path, writer, packets: 0, time: Timestamp(1_700_000_000_000_000_000) })
    }

    fn write(&mut self, segment: &Segment<'_>) -> Result<(), Failure> {
        // 100,000 packets a second.
        self.time.0 += 10_000;
        self.packets += 1;
        let octets = ethernet(&Segment { time: self.time, ..*segment });
        let len = octets.len() as u32;
        let frame = Frame { time: self.time, link: LinkType::ETHERNET, len, data: &octets };
        self.writer.write(&frame).map_err(planning)
    }

    fn finish(self, connections: u64) -> Result<Capture, Failure> {
        let written = self.writer.into_inner().flush();
        written.map_err(doing(format!("writing {}", self.path.display())))?;
        Ok(Capture { path: self.path, packets: self.packets, connections })
    }
}

/// A connection, with the next sequence number of each end.
struct CapturedConnection {
    client: SocketAddr,
    client_next: u32,
    server_next: u32,
}

impl CapturedConnection {
    /// The connection with this number. Each client address has 50,000 connections.
    fn new(number: u64) -> Self {
        let (host, port) = (number / 50_000, 10_000 + number % 50_000);
        let client = SocketAddr::from(([10, 1, (host >> 8) as u8, host as u8], port as u16));
        Self { client, client_next: number as u32, server_next: !number as u32 }
    }

    fn open(&mut self, out: &mut Out) -> Result<(), Failure> {
        self.client_sends(out, Flags::SYN, 0)?;
        self.server_sends(out, Flags::SYN.with(Flags::ACK), 0)?;
        self.client_sends(out, Flags::ACK, 0)
    }

    fn ask(&mut self, out: &mut Out) -> Result<(), Failure> {
        self.client_sends(out, Flags::ACK.with(Flags::PSH), REQUEST_LEN)
    }

    fn close(&mut self, out: &mut Out) -> Result<(), Failure> {
        self.server_sends(out, Flags::ACK.with(Flags::FIN), 0)?;
        self.client_sends(out, Flags::ACK.with(Flags::FIN), 0)?;
        self.server_sends(out, Flags::ACK, 0)
    }

    fn client_sends(&mut self, out: &mut Out, flags: Flags, len: u32) -> Result<(), Failure> {
        let (sequence, acknowledgment) = (self.client_next, self.server_next);
        self.client_next = sequence.wrapping_add(taken(flags, len));
        out.write(&segment(self.client, SERVER.into(), sequence, acknowledgment, flags, len))
    }

    fn client_says(&mut self, out: &mut Out, data: &[u8]) -> Result<(), Failure> {
        let (sequence, acknowledgment, len) = (self.client_next, self.server_next, data.len() as u32);
        self.client_next = sequence.wrapping_add(len);
        let segment = segment(self.client, SERVER.into(), sequence, acknowledgment, Flags::ACK.with(Flags::PSH), len);
        out.write(&Segment { data, ..segment })
    }

    fn server_says(&mut self, out: &mut Out, data: &[u8]) -> Result<(), Failure> {
        let (sequence, acknowledgment, len) = (self.server_next, self.client_next, data.len() as u32);
        self.server_next = sequence.wrapping_add(len);
        let segment = segment(SERVER.into(), self.client, sequence, acknowledgment, Flags::ACK.with(Flags::PSH), len);
        out.write(&Segment { data, ..segment })
    }

    fn server_sends(&mut self, out: &mut Out, flags: Flags, len: u32) -> Result<(), Failure> {
        let (sequence, acknowledgment) = (self.server_next, self.client_next);
        self.server_next = sequence.wrapping_add(taken(flags, len));
        out.write(&segment(SERVER.into(), self.client, sequence, acknowledgment, flags, len))
    }
}

/// Sequence numbers that a segment takes. SYN and FIN take one each.
fn taken(flags: Flags, len: u32) -> u32 {
    len + u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN))
}

fn segment(
    source: SocketAddr,
    destination: SocketAddr,
    sequence: u32,
    acknowledgment: u32,
    flags: Flags,
    len: u32,
) -> Segment<'static> {
    let time = Timestamp(0);
    Segment { time, source, destination, sequence, acknowledgment, flags, window: 502, len, data: &[] }
}
