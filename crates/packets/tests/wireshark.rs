//! Wireshark's programs and this crate read each other's files, and read the same in them.
//!
//! On a machine without them (Debian's `tshark`, which `scripts/deps test` installs) the tests print that they are
//! skipped.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use watari_packets::build::{Builder, Gre};
use watari_packets::capture_file::{FRAME_LEN_MAX, Merged, Reader, Writer};
use watari_packets::{Decoded, Decoder, Flags, Frame, LinkType, Other, Reassembly, Segment, Timestamp};

/// A packet in the same format for both: time, addresses, numbers, flags, window, length.
type Line = String;

/// All link types, and all headers around a segment.
#[test]
fn tshark_reads_the_same_segments() {
    let Some(tools) = Tools::find("tshark_reads_the_same_segments") else { return };
    for (link, frames) in recipes() {
        // A Prism header has 144 octets.
        let short = if link == LinkType::IEEE802_11_PRISM { 260 } else { 200 };
        for snap_len in [FRAME_LEN_MAX, short] {
            let file = tools.write(link, &frames, snap_len);
            let ours: Vec<_> = decoded(File::open(&file).unwrap());
            assert_eq!(ours.len(), frames.len(), "{link:?}: all are segments");
            assert_eq!(tools.tshark(&file), ours, "{link:?}, snapped at {snap_len}");
        }
    }
}

/// Fragments that split the header, in both orders; tshark puts whole packets together.
#[test]
fn tshark_puts_the_same_headers_together() {
    let Some(tools) = Tools::find("tshark_puts_the_same_headers_together") else { return };
    let data = [7; 100];
    let outer = ip_pair("203.0.113.1", "203.0.113.2");
    let mut frames = Vec::new();
    for (number, (version, len, offsets)) in (1..).zip([
        (4, 0, &[8][..]),
        (4, 100, &[16]),
        (4, 0, &[8, 16, 24]),
        (6, 0, &[8]),
        (6, 100, &[24]),
        (6, 4, &[8, 16, 24]),
    ]) {
        let segment = segment(number, version, &data[..len]);
        let (source, destination) = (segment.source.ip(), segment.destination.ip());
        let tcp = Builder::tcp(&segment, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let fragments = |identification| tcp.fragments(source, destination, identification, offsets).into_iter();
        let number = number as u16;
        frames.extend(fragments(number).map(Builder::ethernet));
        frames.extend(fragments(100 + number).rev().map(|packet| packet.vlan(0x8100).ethernet()));
        frames.extend(
            fragments(200 + number).map(|packet| packet.ethernet().gre(Gre::default()).ip(outer.0, outer.1).ethernet()),
        );
    }
    let frames: Vec<_> = frames.into_iter().map(Builder::finish).collect();
    let file = tools.write(LinkType::ETHERNET, &frames, FRAME_LEN_MAX);
    let ours = decoded(File::open(&file).unwrap());
    assert_eq!(ours.len(), 18, "all are segments");
    let theirs = tools.fields(&file, &FIELDS);
    let theirs: Vec<_> = theirs.iter().filter(|fields| fields.split('\t').any(is_flags)).collect();
    assert_eq!(theirs.into_iter().map(|fields| line_of_fields(fields)).collect::<Vec<_>>(), ours);
}

/// Checksums are valid for tshark, and invalid for both once a bit is wrong.
#[test]
fn tshark_finds_the_same_checksums_wrong() {
    let Some(tools) = Tools::find("tshark_finds_the_same_checksums_wrong") else { return };
    for (link, mut frames) in recipes() {
        // The last octets are data, in frames without padding.
        for frame in frames.iter_mut().skip(1).step_by(2).filter(|frame| frame.len() > 90) {
            *frame.last_mut().unwrap() ^= 1;
        }
        let file = tools.write(link, &frames, FRAME_LEN_MAX);
        let decoder = Decoder { verify_checksums: true, ..Decoder::default() };
        let mut reader = Reader::new(File::open(&file).unwrap()).unwrap();
        let mut ours = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            ours.push(if matches!(decoder.decode(&frame), Decoded::Segment(_)) { "1" } else { "0" });
        }
        assert!(ours.contains(&"0") && ours.contains(&"1"), "{link:?}: some are good, some are not");
        assert_eq!(tools.fields(&file, &["tcp.checksum.status"]), ours, "{link:?}");
    }
}

#[test]
fn capinfos_counts_the_same_frames() {
    let Some(tools) = Tools::find("capinfos_counts_the_same_frames") else { return };
    let (link, frames) = recipes().remove(0);
    let file = tools.write(link, &frames, 96);
    let said = tools.run("capinfos", &["-M", "-c", "-l", "-d"], &[&file]);
    assert!(said.contains(&format!("Number of packets:   {}", frames.len())), "{said}");
    assert!(said.contains("Packet size limit:   file hdr: 96 bytes"), "{said}");
    let octets: usize = frames.iter().map(Vec::len).sum();
    assert!(said.contains(&format!("Data size:           {octets} bytes")), "{said}");
}

/// The same frames in other formats, and truncated.
#[test]
fn what_editcap_writes_is_read() {
    let Some(tools) = Tools::find("what_editcap_writes_is_read") else { return };
    for (link, frames) in recipes() {
        let file = tools.write(link, &frames, FRAME_LEN_MAX);
        let nanoseconds = contents(Reader::new(File::open(&file).unwrap()).unwrap());
        let microseconds: Vec<_> =
            nanoseconds.iter().map(|(time, frame)| (Timestamp(time.0 / 1000 * 1000), frame.clone())).collect();
        for (format, expected) in [("pcapng", &nanoseconds), ("nsecpcap", &nanoseconds), ("pcap", &microseconds)] {
            let other = tools.dir.path().join(format);
            tools.run("editcap", &["-F", format], &[&file, &other]);
            assert_eq!(&contents(Reader::new(File::open(&other).unwrap()).unwrap()), expected, "{format} of {link:?}");
            tools.run("editcap", &["-F", format, "-s", "60"], &[&file, &other]);
            let snapped = contents(Reader::new(File::open(&other).unwrap()).unwrap());
            for ((_, snapped), (_, whole)) in snapped.iter().zip(expected) {
                assert_eq!(snapped.data, whole.data[..whole.data.len().min(60)]);
                assert_eq!(snapped.len, whole.len);
            }
        }
    }
}

/// Several interfaces with link types of their own, through a pipe.
#[test]
fn mergecap_merges_as_we_do() {
    let Some(tools) = Tools::find("mergecap_merges_as_we_do") else { return };
    let files: Vec<_> = recipes().iter().map(|(link, frames)| tools.write(*link, frames, 96)).collect();
    let mut merging = tools.command("mergecap", &["-F", "pcapng", "-w", "-"], &files);
    let mut child = merging.stdout(Stdio::piped()).spawn().unwrap();
    let theirs = contents(Reader::new(child.stdout.take().unwrap()).unwrap());
    assert!(child.wait().unwrap().success());
    let mut merged = Merged::new(files.iter().map(|file| Reader::new(File::open(file).unwrap()).unwrap()).collect());
    let mut ours = Vec::new();
    while let Some(frame) = merged.next_frame().unwrap() {
        ours.push((frame.time, Content::of(&frame)));
    }
    assert_eq!(ours, theirs);
}

/// Frames of each link type, around segments that are all different.
fn recipes() -> Vec<(LinkType, Vec<Vec<u8>>)> {
    let data: Vec<u8> = (0..=255).collect();
    let mut number = 0;
    let mut packet = |version, len: usize| {
        number += 1;
        let segment = segment(number, version, &data[..len]);
        let options: &[u8] = if number % 2 == 0 { &[] } else { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] };
        Builder::tcp(&segment, options).ip(segment.source.ip(), segment.destination.ip())
    };
    let v4 = ip_pair("203.0.113.1", "203.0.113.2");
    let v6 = ip_pair("2001:db8:2::1", "2001:db8:2::2");
    let key = Gre { key: Some(9), ..Gre::default() };
    let all = Gre { checksum: true, key: Some(9), sequence: Some(1) };
    let ethernet = vec![
        packet(4, 0).ethernet(),
        packet(4, 100).ethernet(),
        packet(6, 0).ethernet(),
        packet(6, 100).ethernet(),
        packet(4, 3).vlan(0x8100).ethernet(),
        packet(6, 100).vlan(0x8100).vlan(0x88a8).ethernet(),
        packet(4, 10).vlan(0x8100).vlan(0x8100).vlan(0x8100).ethernet(),
        packet(4, 100).ip(v4.0, v4.1).ethernet(),
        packet(6, 10).ip(v4.0, v4.1).ethernet(),
        packet(6, 100).ip(v6.0, v6.1).ethernet(),
        packet(4, 10).ip(v6.0, v6.1).ethernet(),
        packet(4, 100).gre(Gre::default()).ip(v4.0, v4.1).ethernet(),
        packet(6, 10).gre(key).ip(v6.0, v6.1).ethernet(),
        packet(4, 100).ethernet().gre(all).ip(v4.0, v4.1).ethernet(),
        packet(4, 100).mpls(&[16, 17]).ethernet(),
        packet(6, 10).mpls(&[18]).vlan(0x8100).ethernet(),
        packet(4, 3).pppoe().ethernet(),
        packet(6, 100).pppoe().vlan(0x8100).ethernet(),
        packet(4, 100).pppoe_compressed().ethernet(),
        packet(6, 3).pppoe_compressed().ethernet(),
        packet(4, 20).ethernet().erspan(false).ip(v4.0, v4.1).ethernet(),
        packet(6, 20).ethernet().erspan(true).ip(v4.0, v4.1).ethernet(),
        packet(4, 20).geneve(8).ip(v4.0, v4.1).ethernet(),
        packet(6, 20).ethernet().geneve(0).ip(v6.0, v6.1).ethernet(),
        packet(4, 1).ethernet().vxlan(4789).ip(v4.0, v4.1).ethernet(),
        packet(6, 100).vlan(0x8100).ethernet().vxlan(4789).ip(v6.0, v6.1).vlan(0x8100).ethernet(),
        packet(4, 10).gre(key).ip(v4.0, v4.1).ethernet().vxlan(4789).ip(v4.0, v4.1).ip(v6.0, v6.1).ethernet(),
    ];
    let mut both = || [packet(4, 0), packet(6, 100), packet(4, 100), packet(6, 1)];
    let finished = |frames: Vec<Builder>| frames.into_iter().map(Builder::finish).collect();
    vec![
        (LinkType::ETHERNET, finished(ethernet)),
        (LinkType::RAW, finished(both().to_vec())),
        (LinkType::LOOP, finished(both().map(Builder::loopback).to_vec())),
        (LinkType::NULL, finished(both().map(Builder::loopback).to_vec())),
        (LinkType::PPP, finished(both().map(|packet| packet.ppp(false)).to_vec())),
        (LinkType::PPP_HDLC, finished(both().map(|packet| packet.ppp(true)).to_vec())),
        (LinkType::PPP_ETHER, both().map(|packet| packet.pppoe().finish()).to_vec()),
        (LinkType::C_HDLC, finished(both().map(Builder::cisco_hdlc).to_vec())),
        (LinkType::FDDI, finished(both().map(Builder::fddi).to_vec())),
        (LinkType::IEEE802_11, finished(both().map(|packet| packet.wireless(false)).to_vec())),
        (LinkType::IEEE802_11_RADIOTAP, finished(both().map(|packet| packet.wireless(true).radiotap()).to_vec())),
        (LinkType::IEEE802_11_PRISM, finished(both().map(|packet| packet.wireless(true).prism()).to_vec())),
        (LinkType::IEEE802_11_AVS, finished(both().map(|packet| packet.wireless(false).avs()).to_vec())),
        (LinkType::NFLOG, finished(both().map(Builder::nflog).to_vec())),
        (LinkType::LINUX_SLL, finished(both().map(Builder::cooked).to_vec())),
        (LinkType::LINUX_SLL2, finished(both().map(Builder::cooked_2).to_vec())),
    ]
}

fn segment(number: u32, version: u8, data: &[u8]) -> Segment<'_> {
    let (source, destination) =
        if version == 4 { ip_pair("192.0.2.1", "198.51.100.2") } else { ip_pair("2001:db8::1", "2001:db8::2") };
    Segment {
        time: Timestamp(0),
        source: SocketAddr::new(source, 50_000 + number as u16),
        destination: SocketAddr::new(destination, 8443),
        sequence: 0xffff_ff00u32.wrapping_add(100 * number),
        acknowledgment: 1_000_000 * number,
        flags: Flags(0x10 | number as u8 & 0x0b),
        window: 100 + number as u16,
        len: data.len() as u32,
        data,
    }
}

fn ip_pair(source: &str, destination: &str) -> (IpAddr, IpAddr) {
    (source.parse().unwrap(), destination.parse().unwrap())
}

fn decoded<R: Read>(file: R) -> Vec<Line> {
    let (mut reader, decoder) = (Reader::new(file).unwrap(), Decoder::default());
    let mut reassembly = Reassembly::default();
    let mut lines = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        let content = match decoder.decode(&frame) {
            Decoded::Other(Other::Fragment) => reassembly.complete(&decoder, &frame),
            other => other,
        };
        if let Decoded::Segment(segment) = content {
            lines.push(line(&segment));
        }
    }
    lines
}

fn line(segment: &Segment<'_>) -> Line {
    let Segment { time, source, destination, sequence, acknowledgment, flags, window, len, .. } = segment;
    [
        format!("{}.{:09}", time.0 / 1_000_000_000, time.0 % 1_000_000_000),
        format!("{source} {destination}"),
        format!("{sequence} {acknowledgment} 0x{:04x} {window} {len}", flags.0),
    ]
    .join(" ")
}

/// Whether this is `tcp.flags`, which only frames with a segment have.
fn is_flags(field: &str) -> bool {
    field.starts_with("0x")
}

/// The line of a packet from tshark's fields.
fn line_of_fields(fields: &str) -> Line {
    let fields: Vec<_> = fields.split('\t').collect();
    let [
        time,
        protocols,
        source_v4,
        destination_v4,
        source_v6,
        destination_v6,
        source_port,
        destination_port,
        rest @ ..,
    ] = &fields[..]
    else {
        panic!("tshark says {fields:?}");
    };
    // A tunnel has addresses, too, perhaps of the other version.
    let before_tcp = protocols.split(':').take_while(|protocol| *protocol != "tcp");
    let ends = match before_tcp.filter(|protocol| protocol.starts_with("ip")).last() {
        Some("ip") => format!("{source_v4}:{source_port} {destination_v4}:{destination_port}"),
        _ => format!("[{source_v6}]:{source_port} [{destination_v6}]:{destination_port}"),
    };
    format!("{time} {ends} {}", rest.join(" "))
}

const FIELDS: [&str; 13] = [
    "frame.time_epoch",
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.len",
];

/// The part of a frame that does not depend on its file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    link: LinkType,
    len: u32,
    data: Vec<u8>,
}

impl Content {
    fn of(frame: &Frame<'_>) -> Self {
        // Wireshark writes both with the number of the first.
        let link = if frame.link == LinkType::PPP_HDLC { LinkType::PPP } else { frame.link };
        Self { link, len: frame.len, data: frame.data.to_vec() }
    }
}

fn contents<R: Read>(mut reader: Reader<R>) -> Vec<(Timestamp, Content)> {
    let mut contents = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        contents.push((frame.time, Content::of(&frame)));
    }
    contents
}

/// Wireshark's programs, and a directory for their files.
struct Tools {
    dir: TempDir,
}

impl Tools {
    fn find(test: &str) -> Option<Self> {
        let runs =
            |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
        match ["tshark", "capinfos", "editcap", "mergecap"].into_iter().find(|tool| !runs(tool)) {
            None => Some(Self { dir: tempfile::tempdir().unwrap() }),
            Some(missing) => {
                // The test harness captures the output of `eprintln!` in tests that pass.
                let mut terminal = io::stderr();
                writeln!(terminal, "SKIPPED: {test}: there is no {missing} (Debian's package tshark)").unwrap();
                None
            }
        }
    }

    /// A capture of these frames, each more than a second after the last one. Times differ between captures.
    fn write(&self, link: LinkType, frames: &[Vec<u8>], snap_len: usize) -> PathBuf {
        let path = self.dir.path().join(format!("{}-{snap_len}.pcap", link.0));
        let mut writer = Writer::new(Vec::new(), link, snap_len).unwrap();
        for (number, data) in (1..).zip(frames) {
            let time = Timestamp(1_800_000_000_000_000_000 + number * 1_000_000_789 + u64::from(link.0) * 1000);
            writer.write(&Frame { time, link, len: data.len() as u32, data }).unwrap();
        }
        fs::write(&path, writer.into_inner()).unwrap();
        path
    }

    fn tshark(&self, file: &Path) -> Vec<Line> {
        self.fields(file, &FIELDS).iter().map(|fields| line_of_fields(fields)).collect()
    }

    /// A line for each packet, with the last (innermost) value of each field.
    fn fields(&self, file: &Path, fields: &[&str]) -> Vec<Line> {
        let checksums = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
        let fields = fields.iter().flat_map(|field| ["-e", field]);
        let args: Vec<_> =
            ["-n", "-T", "fields", "-E", "occurrence=l"].into_iter().chain(checksums).chain(fields).collect();
        self.run("tshark", &[&args[..], &["-r"]].concat(), &[file]).lines().map(Line::from).collect()
    }

    fn run(&self, tool: &str, args: &[&str], files: &[&Path]) -> String {
        let output = self.command(tool, args, files).output().unwrap();
        assert!(output.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn command<P: AsRef<Path>>(&self, tool: &str, args: &[&str], files: &[P]) -> Command {
        let mut command = Command::new(tool);
        command.current_dir(self.dir.path()).args(args).args(files.iter().map(AsRef::as_ref)).stderr(Stdio::piped());
        command
    }
}
