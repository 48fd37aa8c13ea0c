//! BPF programs and maps, by bpf(2). Requires `CAP_BPF` (or `CAP_SYS_ADMIN`) and `CAP_NET_ADMIN`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

/// `BPF_PROG_TYPE_SCHED_CLS`: a program at the ingress or egress of an interface.
const SCHED_CLS: u32 = 3;
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
/// The length of the verifier's log.
const LOG_LEN: usize = 256 << 10;
/// What a program may write beyond its packet in a test run.
const SLACK_LEN: usize = 256;

/// The kind of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// `BPF_MAP_TYPE_HASH`
    Hash = 1,
    /// `BPF_MAP_TYPE_ARRAY`: keys are indexes (`u32`), and all elements exist, as zeros.
    Array = 2,
}

/// A map that programs and this process share. Its keys have `KEY` bytes, its values `VALUE`.
#[derive(Debug)]
pub struct Map<const KEY: usize, const VALUE: usize>(OwnedFd);

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// The kernel refuses a program.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses a BPF program: {cause}{log}")]
pub struct ProgramRefused {
    pub cause: io::Error,
    /// What the verifier says, from a line break on.
    log: String,
}

/// What a program has done with a packet in a test run.
#[derive(Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The value that the program has returned.
    pub verdict: u32,
    pub packet: Vec<u8>,
}

/// `union bpf_attr` of the commands with elements of maps.
#[repr(C)]
struct ElementAttr {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `union bpf_attr` of `BPF_MAP_CREATE`, in its first version.
#[repr(C)]
struct MapAttr {
    kind: u32,
    key_len: u32,
    value_len: u32,
    len_max: u32,
    flags: u32,
}

/// `union bpf_attr` of `BPF_PROG_LOAD`, in its first version.
#[repr(C)]
struct ProgramAttr {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
}

/// `union bpf_attr` of `BPF_PROG_TEST_RUN`, in its first version.
#[repr(C)]
struct TestAttr {
    program: u32,
    verdict: u32,
    in_len: u32,
    out_len: u32,
    in_packet: u64,
    out_packet: u64,
    repeat: u32,
    duration: u32,
}

impl<const KEY: usize, const VALUE: usize> Map<KEY, VALUE> {
    /// Creates a map with at most `len_max` elements.
    pub fn create(kind: MapKind, len_max: u32) -> io::Result<Self> {
        let mut attr = MapAttr { kind: kind as u32, key_len: KEY as u32, value_len: VALUE as u32, len_max, flags: 0 };
        call(MAP_CREATE, &mut attr).map(|fd| Self(owned(fd)))
    }

    /// The number of the map's descriptor, for the instructions of programs.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds an element, or replaces its value.
    pub fn put(&self, key: &[u8; KEY], value: &[u8; VALUE]) -> io::Result<()> {
        self.with_element(MAP_UPDATE_ELEM, key, pointer(value)).map(drop)
    }

    /// The value of an element.
    pub fn get(&self, key: &[u8; KEY]) -> io::Result<[u8; VALUE]> {
        let mut value = [0; VALUE];
        self.with_element(MAP_LOOKUP_ELEM, key, pointer_mut(&mut value))?;
        Ok(value)
    }

    /// Removes an element that exists.
    pub fn remove(&self, key: &[u8; KEY]) -> io::Result<()> {
        self.with_element(MAP_DELETE_ELEM, key, 0).map(drop)
    }

    fn with_element(&self, command: libc::c_int, key: &[u8; KEY], value: u64) -> io::Result<libc::c_long> {
        let map = self.number().cast_unsigned();
        call(command, &mut ElementAttr { map, padding: 0, key: pointer(key), value, flags: 0 })
    }
}

impl Program {
    /// Loads a program for packets at an interface (`BPF_PROG_TYPE_SCHED_CLS`), of encoded instructions.
    pub fn load(instructions: &[[u8; 8]]) -> Result<Self, ProgramRefused> {
        const LICENSE: &[u8; 13] = b"Dual MIT/GPL\0";
        let mut attr = ProgramAttr {
            kind: SCHED_CLS,
            count: instructions.len() as u32,
            instructions: pointer(instructions.as_flattened()),
            license: pointer(LICENSE),
            log_level: 0,
            log_len: 0,
            log: 0,
        };
        let refused = match call(PROG_LOAD, &mut attr) {
            Ok(fd) => return Ok(Self(owned(fd))),
            Err(refused) => refused,
        };
        // Again, for the reason. The log is off at first, because a log that does not fit is an error.
        let mut log = vec![0; LOG_LEN];
        (attr.log_level, attr.log_len, attr.log) = (1, log.len() as u32, pointer_mut(&mut log));
        let _ = call(PROG_LOAD, &mut attr).map(owned);
        let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
        let log = String::from_utf8_lossy(text).trim_end().to_owned();
        let log = if log.is_empty() { log } else { format!("\n{log}") };
        Err(ProgramRefused { cause: refused, log })
    }

    /// The number of the program's descriptor, for messages to the kernel.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Runs the program on a packet, with its Ethernet header. No packet is received or sent.
    pub fn test(&self, packet: &[u8]) -> io::Result<TestRun> {
        let mut out = vec![0; packet.len() + SLACK_LEN];
        let mut attr = TestAttr {
            program: self.number().cast_unsigned(),
            verdict: 0,
            in_len: packet.len() as u32,
            out_len: out.len() as u32,
            in_packet: pointer(packet),
            out_packet: pointer_mut(&mut out),
            repeat: 1,
            duration: 0,
        };
        call(PROG_TEST_RUN, &mut attr)?;
        out.truncate(attr.out_len as usize);
        Ok(TestRun { verdict: attr.verdict, packet: out })
    }
}

/// The address of bytes that the kernel reads.
fn pointer(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// The address of bytes that the kernel writes.
fn pointer_mut(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

#[expect(unsafe_code, reason = "the kernel has just made the descriptor for this process")]
fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: bpf(2) returned it as a new descriptor, which nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// The attributes of a command of bpf(2), which begin as the kernel's union for it does.
///
/// Pointers in them are those of `pointer` and `pointer_mut`, to memory that lives beyond the call, of the lengths
/// that the attributes or the map name. Only this module makes such values.
trait Attr {}

impl Attr for ElementAttr {}
impl Attr for MapAttr {}
impl Attr for ProgramAttr {}
impl Attr for TestAttr {}

#[expect(unsafe_code, reason = "no crate has bpf(2) without an ELF file and a compiler for it")]
fn call(command: libc::c_int, attr: &mut impl Attr) -> io::Result<libc::c_long> {
    loop {
        // SAFETY: `attr` is the union of the command, as long as its size says, and its pointers are valid (`Attr`).
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of_val(attr)) };
        let error = match result {
            0.. => return Ok(result),
            _ => io::Error::last_os_error(),
        };
        // The verifier stops for a signal.
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
    }
}
