//! Captures of a namespace's loopback interface, and their frames.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use watari_packets::capture_file::{Reader, Writer};
use watari_packets::{Decoded, Decoder, Frame, LinkType, Timestamp};

use crate::namespace::{POLL, Running, WAIT_MAX};

/// An address without a listener in a test's namespace. A connection to it marks the end of a capture.
const MARK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// A running dumpcap.
pub(crate) struct Capture {
    dumpcap: Running,
    says: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Captures the packets that pass `filter`, to a pcapng file. The capture has begun when this returns.
    pub(crate) fn start(file: &Path, filter: &str) -> Self {
        // The buffer, in MiB, holds packets while dumpcap gets no CPU time.
        let mut dumpcap = Command::new("dumpcap")
            .args(["-q", "-i", "lo", "-B", "64", "-f", filter, "-w"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(dumpcap.stderr.take().unwrap());
        let mut line = String::new();
        // dumpcap prints the name of its file once it is connected to the interface.
        while !line.starts_with("File:") {
            line.clear();
            assert!(says.read_line(&mut line).unwrap() > 0, "dumpcap ended");
        }
        Self { dumpcap: Running(dumpcap), says, file: file.to_owned() }
    }

    /// Ends the capture when all packets sent so far are in the file. None may be lost. The last connection is the
    /// mark, to a port that refuses it.
    pub(crate) fn stop(mut self) {
        assert!(TcpStream::connect(MARK).is_err(), "somebody listens at {MARK}");
        let deadline = Instant::now() + WAIT_MAX;
        while !has_mark(&self.file) {
            assert!(Instant::now() < deadline, "the capture is not written");
            thread::sleep(POLL);
        }
        kill_process(Pid::from_child(&self.dumpcap.0), Signal::TERM).unwrap();
        let mut said = String::new();
        self.says.read_to_string(&mut said).unwrap();
        self.dumpcap.0.wait().unwrap();
        assert!(said.contains("(pcap:0/dumpcap:0/"), "packets were lost: {said}");
    }
}

/// Whether this is the server of the last connection of a capture.
pub(crate) fn is_mark(server: SocketAddr) -> bool {
    server == MARK
}

/// Whether the answer to the mark is in the file. The last frame may be incomplete.
fn has_mark(file: &Path) -> bool {
    let Ok(mut reader) = Reader::new(File::open(file).unwrap()) else { return false };
    let decoder = Decoder::default();
    while let Ok(Some(frame)) = reader.next_frame() {
        if let Decoded::Segment(segment) = decoder.decode(&frame)
            && segment.source == MARK
        {
            return true;
        }
    }
    false
}

/// A frame that owns its octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) time: Timestamp,
    pub(crate) len: u32,
    pub(crate) data: Vec<u8>,
}

/// All frames of an Ethernet capture.
pub(crate) fn frames(file: &Path) -> Vec<Captured> {
    let mut reader = Reader::new(File::open(file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        assert_eq!(frame.link, LinkType::ETHERNET);
        frames.push(Captured { time: frame.time, len: frame.len, data: frame.data.to_vec() });
    }
    frames
}

/// Writes frames as a capture of their own.
pub(crate) fn write(file: &Path, frames: &[Captured]) {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET, 1 << 18).unwrap();
    for Captured { time, len, data } in frames {
        writer.write(&Frame { time: *time, link: LinkType::ETHERNET, len: *len, data }).unwrap();
    }
    fs::write(file, writer.into_inner()).unwrap();
}
