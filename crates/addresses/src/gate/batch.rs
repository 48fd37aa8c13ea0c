//! Batches of `nf_tables` messages: `linux/netfilter/nf_tables.h`, and nfnetlink's framing of a transaction.
//!
//! Only what [`Gate`](super::Gate) needs. Numbers of attributes are those of the header, named where they are used.

/// A protocol family of `nf_tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// All frames of an interface.
    Netdev = 5,
}

/// The kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NewTable = 0,
    DelTable = 2,
    NewChain = 3,
    NewRule = 6,
    NewSet = 9,
    NewElement = 12,
    DelElement = 14,
}

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// The attribute has attributes in it.
const NESTED: u16 = 0x8000;
/// `NFTA_LIST_ELEM`
const LIST_ELEMENT: u16 = 1;

/// A transaction: all messages take effect, or none.
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The number of the last message. Numbers start behind `first`.
    last: u32,
    first: u32,
}

impl Batch {
    /// An empty batch, whose messages have the numbers behind `first`.
    pub(super) fn new(first: u32) -> Self {
        let mut batch = Self { bytes: Vec::with_capacity(1024), last: first, first };
        batch.framing(BATCH_BEGIN, first);
        batch
    }

    /// Adds a message, with the attributes that `attributes` writes. The kernel acknowledges it.
    pub(super) fn push(&mut self, family: Family, kind: Kind, attributes: impl FnOnce(&mut Attributes<'_>)) {
        self.last += 1;
        let start = self.bytes.len();
        let further = match kind {
            Kind::DelTable | Kind::DelElement => 0,
            // Otherwise the rule would become the first one of its chain.
            Kind::NewRule => CREATE | APPEND,
            Kind::NewTable | Kind::NewChain | Kind::NewSet | Kind::NewElement => CREATE,
        };
        let flags = REQUEST | ACK | further;
        self.header(SUBSYSTEM << 8 | kind as u16, flags, self.last, family as u8, 0);
        attributes(&mut Attributes(&mut self.bytes));
        self.end(start);
    }

    /// The bytes to send, and the numbers of the messages that the kernel answers.
    pub(super) fn finish(mut self) -> (Vec<u8>, std::ops::RangeInclusive<u32>) {
        self.framing(BATCH_END, self.last + 1);
        (self.bytes, self.first + 1..=self.last)
    }

    fn framing(&mut self, kind: u16, number: u32) {
        let start = self.bytes.len();
        self.header(kind, REQUEST, number, 0, SUBSYSTEM);
        self.end(start);
    }

    /// `nlmsghdr` and `nfgenmsg`. The length follows in `end`.
    fn header(&mut self, kind: u16, flags: u16, number: u32, family: u8, resource: u16) {
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&[family, 0]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
    }

    fn end(&mut self, start: usize) {
        let len = u32::try_from(self.bytes.len() - start).expect("a batch is short");
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

/// Writes attributes: length, kind, value, and padding to four bytes.
pub(super) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len() + 4).expect("an attribute is short");
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.pad();
    }

    /// A string with a zero at its end.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// `nf_tables` has numbers in network byte order.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn nested(&mut self, kind: u16, value: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.0.len();
        self.bytes(kind | NESTED, &[]);
        value(&mut Attributes(self.0));
        let len = u16::try_from(self.0.len() - start).expect("an attribute is short");
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// An element of a list.
    pub(super) fn element(&mut self, value: impl FnOnce(&mut Attributes<'_>)) {
        self.nested(LIST_ELEMENT, value);
    }

    /// `NFTA_DATA_VALUE` in `kind`.
    pub(super) fn data(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |data| data.bytes(1, value));
    }

    fn pad(&mut self) {
        let len = self.0.len().next_multiple_of(4);
        self.0.resize(len, 0);
    }
}
