//! Expressions of rules: `NFTA_EXPR_*` and the attributes of each expression in `linux/netfilter/nf_tables.h`.

use super::batch::{Attributes, Batch, Family, Kind};

/// The link-layer header (`NFT_PAYLOAD_LL_HEADER`), at which an offset starts.
pub(super) const LINK: u32 = 0;
pub(super) const NETWORK: u32 = 1;
pub(super) const TRANSPORT: u32 = 2;

/// `NFT_REG32_00`: the first of the registers of four bytes. `Register(1)` is the same memory.
const FIRST_WORD: u32 = 8;
/// The register of 16 bytes that short values use.
pub(super) const SHORT: Register = Register(1);

const PROTOCOL_TCP: u8 = 6;

/// A verdict that ends a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// `NF_DROP`
    Drop = 0,
    /// `NF_ACCEPT`
    Accept = 1,
}

/// The number of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register(u32);

impl Register {
    /// The register of the four bytes that follow `words` others.
    pub(super) fn word(words: u32) -> Self {
        Self(FIRST_WORD + words)
    }
}

/// Adds a rule to the end of a chain.
pub(super) fn rule(
    batch: &mut Batch,
    family: Family,
    table: &str,
    chain: &str,
    write: impl FnOnce(&mut Expressions<'_, '_>),
) {
    batch.push(family, Kind::NewRule, |rule| {
        rule.text(1, table);
        rule.text(2, chain);
        rule.nested(4, |list| write(&mut Expressions(list)));
    });
}

/// Writes the expressions of a rule. The rule ends at the first that does not match.
pub(super) struct Expressions<'a, 'b>(&'a mut Attributes<'b>);

impl Expressions<'_, '_> {
    /// Matches an Ethernet type.
    pub(super) fn is_protocol(&mut self, ethertype: u16) {
        const PROTOCOL: u32 = 1;
        self.meta(PROTOCOL, SHORT);
        self.is_equal(&ethertype.to_be_bytes());
    }

    /// Matches TCP segments, but not later fragments.
    pub(super) fn is_tcp(&mut self) {
        const L4PROTO: u32 = 16;
        self.meta(L4PROTO, SHORT);
        self.is_equal(&[PROTOCOL_TCP]);
    }

    /// Matches a byte of the packet.
    pub(super) fn is_byte(&mut self, base: u32, offset: u32, value: u8) {
        self.load(SHORT, base, offset, 1);
        self.is_equal(&[value]);
    }

    /// Matches a byte of the packet that has this value under a mask.
    pub(super) fn is_masked(&mut self, base: u32, offset: u32, mask: u8, value: u8) {
        self.load(SHORT, base, offset, 1);
        self.push("bitwise", |bitwise| {
            bitwise.number(1, SHORT.0);
            bitwise.number(2, SHORT.0);
            bitwise.number(3, 1);
            bitwise.data(4, &[mask]);
            bitwise.data(5, &[0]);
        });
        self.is_equal(&[value]);
    }

    /// Loads bytes of the packet, with zeros up to a multiple of four bytes.
    pub(super) fn load(&mut self, to: Register, base: u32, offset: u32, len: u32) {
        self.push("payload", |payload| {
            payload.number(1, to.0);
            payload.number(2, base);
            payload.number(3, offset);
            payload.number(4, len);
        });
    }

    /// Writes bytes of the packet.
    pub(super) fn store(&mut self, from: Register, base: u32, offset: u32, len: u32) {
        self.push("payload", |payload| {
            payload.number(5, from.0);
            payload.number(2, base);
            payload.number(3, offset);
            payload.number(4, len);
        });
    }

    /// Loads a constant.
    pub(super) fn set(&mut self, to: Register, value: &[u8]) {
        self.push("immediate", |immediate| {
            immediate.number(1, to.0);
            immediate.data(2, value);
        });
    }

    /// Matches if the set has the key.
    pub(super) fn is_in(&mut self, set: &str, key: Register) {
        self.lookup(set, key, |_| ());
    }

    /// Matches if the set does not have the key.
    pub(super) fn is_not_in(&mut self, set: &str, key: Register) {
        self.lookup(set, key, |lookup| lookup.number(5, 1));
    }

    /// Matches if the map has the key, and loads the value.
    pub(super) fn map(&mut self, map: &str, key: Register, value: Register) {
        self.lookup(map, key, |lookup| lookup.number(3, value.0));
    }

    /// Ends the chain.
    pub(super) fn verdict(&mut self, verdict: Verdict) {
        self.push("immediate", |immediate| {
            // The register of the verdict
            immediate.number(1, 0);
            immediate.nested(2, |data| data.nested(2, |code| code.number(1, verdict as u32)));
        });
    }

    /// Sends the packet out of the interface on which it arrived, and ends all processing.
    pub(super) fn send_back(&mut self, scratch: Register) {
        const INCOMING_INTERFACE: u32 = 4;
        self.meta(INCOMING_INTERFACE, scratch);
        self.push("fwd", |forward| forward.number(1, scratch.0));
    }

    fn meta(&mut self, key: u32, to: Register) {
        self.push("meta", |meta| {
            meta.number(1, to.0);
            meta.number(2, key);
        });
    }

    fn is_equal(&mut self, value: &[u8]) {
        self.push("cmp", |cmp| {
            cmp.number(1, SHORT.0);
            cmp.number(2, 0);
            cmp.data(3, value);
        });
    }

    fn lookup(&mut self, set: &str, key: Register, further: impl FnOnce(&mut Attributes<'_>)) {
        self.push("lookup", |lookup| {
            lookup.text(1, set);
            lookup.number(2, key.0);
            further(lookup);
        });
    }

    fn push(&mut self, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
        self.0.element(|expression| {
            expression.text(1, name);
            expression.nested(2, data);
        });
    }
}
