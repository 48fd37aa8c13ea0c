//! One direction of a connection: the data and closes of one side.

use watari_packets::{Flags, Segment, Timestamp};

use crate::sequence::{FAR, is_before, is_upto, later};

/// How far ahead of the seen data a segment may be to be accepted at once, in octets: what a capture may have lost in a
/// row.
const JUMP_MAX: u32 = 1 << 24;
/// After this many segments in a row that are further away, the half continues from there.
const ODD_MAX: u8 = 3;
/// How far ahead of the seen data a RST may be, in octets: a capture may have lost the data before it.
const UNSEEN_MAX: u32 = 1 << 16;

/// The data that one side sent, in its own sequence numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half {
    /// Sequence number of the first octet of data. Valid if [`Half::is_placed`].
    pub(crate) start: u32,
    /// Sequence number behind the last octet that was seen.
    pub(crate) next: u32,
    /// The highest acknowledgment that this side sent for its peer's data.
    pub(crate) acked: Option<u32>,
    /// Whether the last acknowledgment was one more than the previous, as for a FIN.
    pub(crate) has_stepped: bool,
    pub(crate) fin: Option<Close>,
    pub(crate) reset: Option<Close>,
    /// Octets of data that this side sent, each counted once.
    pub(crate) octets: u64,
    pub(crate) packets: u32,
    /// Segments with data of which none are new.
    pub(crate) retransmits: u32,
    pub(crate) gaps: u32,
    /// Octets of data that were acknowledged and never seen, in gaps that later data followed.
    pub(crate) missed: u32,
    pub(crate) zero_windows: u32,
    /// Time of the last new data.
    pub(crate) data_at: Timestamp,
    /// The latest gap in the seen data, until it is filled: its begin and its end.
    hole: Option<(u32, u32)>,
    pub(crate) syn: Option<u32>,
    pub(crate) syns: u8,
    pub(crate) is_placed: bool,
    /// Segments in a row that do not fit the expected numbers.
    odd: u8,
}

/// A FIN or RST of a side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Close {
    /// The sequence number of the FIN or RST.
    pub(crate) sequence: u32,
    /// Its acknowledgment number.
    pub(crate) acknowledgment: Option<u32>,
    /// The peer's acknowledgment number, as captured by then.
    pub(crate) peer_acked: Option<u32>,
    pub(crate) at: Timestamp,
}

/// How a segment's data relate to the data seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// They continue the stream.
    New,
    /// All of them were seen before.
    Seen,
    /// They fill a gap.
    Late,
}

/// Whether a RST is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// Its number is the one that its receiver expects, or within the data on their way to it.
    Sure,
    /// Its number is behind the seen data, and its receiver may have got more than that.
    Doubtful,
    /// Its receiver ignores it.
    Forged,
}

impl Half {
    pub(crate) const fn new(at: Timestamp) -> Self {
        Self {
            start: 0,
            next: 0,
            acked: None,
            has_stepped: false,
            fin: None,
            reset: None,
            octets: 0,
            packets: 0,
            retransmits: 0,
            gaps: 0,
            missed: 0,
            zero_windows: 0,
            data_at: at,
            hole: None,
            syn: None,
            syns: 0,
            is_placed: false,
            odd: 0,
        }
    }

    /// The first close of this side. A side sends no FIN after its RST, so the FIN came first.
    pub(crate) fn close(&self) -> Option<Close> {
        self.fin.or(self.reset)
    }

    /// Whether its close is a RST.
    pub(crate) const fn is_cut_off(&self) -> bool {
        self.fin.is_none() && self.reset.is_some()
    }

    /// Whether it has acknowledged up to this number.
    pub(crate) fn has_acked(&self, upto: u32) -> bool {
        self.acked.is_some_and(|acked| is_upto(upto, acked))
    }

    /// Whether the data up to this number were neither seen nor acknowledged, so a capture may still have them.
    pub(crate) fn is_behind(&self, upto: u32, peer: &Self) -> bool {
        let fin = u32::from(self.fin.is_some());
        self.packets > 0
            && self.is_placed
            && is_before(self.next.wrapping_add(fin), upto)
            && peer.acked.is_none_or(|acked| is_before(acked, upto))
    }

    /// Whether this number acknowledges its SYN, with any part of the data that came with it (RFC 7413).
    pub(crate) fn may_be_synchronized(&self, upto: u32) -> bool {
        is_upto(self.start, upto) && is_upto(upto, self.next)
    }

    /// Sets the sequence number of the first octet of data.
    fn place(&mut self, start: u32) {
        (self.start, self.next, self.is_placed) = (start, start, true);
    }

    /// Takes its SYN. Earlier data keep their position.
    pub(crate) fn see_syn(&mut self, segment: &Segment<'_>) {
        let start = segment.sequence.wrapping_add(1);
        self.syn = Some(segment.sequence);
        self.syns = self.syns.saturating_add(1);
        if !self.is_placed {
            self.place(start);
        } else if is_before(start, self.start) && self.start.wrapping_sub(start) < JUMP_MAX {
            self.octets += u64::from(self.start.wrapping_sub(start));
            self.start = start;
        }
    }

    /// Whether a server acknowledges a number before the client's SYN: it remembers an earlier connection between the
    /// same ends, and answers a SYN with the number that it expects in that one (RFC 9293, section 3.10.7.4).
    pub(crate) fn knows_other(&self, segment: &Segment<'_>, client: &Self) -> bool {
        let is_before_syn = |syn| !is_before(syn, segment.acknowledgment);
        !self.is_placed && segment.flags.contains(Flags::ACK) && client.syn.is_some_and(is_before_syn)
    }

    /// Whether a segment belongs to this connection, by its numbers.
    pub(crate) fn fits(&mut self, segment: &Segment<'_>, peer: &Self) -> bool {
        let near =
            |number: u32, known: u32| number.wrapping_sub(known) < JUMP_MAX || known.wrapping_sub(number) < 1 << 30;
        // It belongs to an earlier connection between the same ends.
        let is_old = self.octets < 1 << 30 && self.syn.is_some_and(|syn| is_before(segment.sequence, syn));
        let fits = !is_old
            && (!self.is_placed || near(segment.sequence, self.next))
            && (!segment.flags.contains(Flags::ACK)
                || !peer.is_placed
                || near(segment.acknowledgment, later(peer.next, self.acked.unwrap_or(peer.next))));
        self.odd = if fits { 0 } else { self.odd + 1 };
        if self.odd < ODD_MAX {
            return fits;
        }
        // The capture lost a lot: the stream continues here.
        self.odd = 0;
        self.next = segment.sequence;
        self.hole = None;
        true
    }

    /// Takes the data of a segment that fits. `None` if it has no data.
    pub(crate) fn see_data(&mut self, sequence: u32, len: u32, at: Timestamp) -> Option<Data> {
        if !self.is_placed {
            self.place(sequence);
        }
        let end = sequence.wrapping_add(len);
        if len == 0 {
            return None;
        }
        if is_before(self.next, end) {
            self.octets += u64::from(end.wrapping_sub(self.next));
            if is_before(self.next, sequence) {
                self.hole.get_or_insert((self.next, sequence)).1 = sequence;
            }
            self.next = end;
            self.data_at = at;
            return Some(Data::New);
        }
        if let Some((from, to)) = self.hole
            && is_before(sequence, to)
            && is_before(from, end)
        {
            self.fill(sequence, end);
            self.retransmits = self.retransmits.saturating_add(1);
            return Some(Data::Late);
        }
        self.retransmits = self.retransmits.saturating_add(1);
        Some(Data::Seen)
    }

    fn fill(&mut self, sequence: u32, end: u32) {
        self.hole = match self.hole {
            Some((from, to)) if is_upto(sequence, from) => is_before(end, to).then_some((end, to)),
            Some((from, _)) => Some((from, sequence)),
            None => None,
        };
    }

    /// Takes an acknowledgment by its peer. True if it covers a gap, which then counts as missed.
    pub(crate) fn see_acked(&mut self, upto: u32) -> bool {
        if !self.is_placed {
            self.place(upto);
        }
        let Some((from, to)) = self.hole.filter(|(_, to)| is_upto(*to, upto)) else { return false };
        self.missed = self.missed.saturating_add(to.wrapping_sub(from));
        self.hole = None;
        self.gaps = self.gaps.saturating_add(1);
        true
    }

    /// Takes its FIN, which is behind its data. Of duplicates, the one with the lowest acknowledgment was sent first.
    pub(crate) fn see_fin(&mut self, sequence: u32, acknowledgment: Option<u32>, at: Timestamp) {
        if self.fin.is_none() && is_before(self.next, sequence) {
            let unseen = self.next;
            self.see_data(unseen, sequence.wrapping_sub(unseen), self.data_at);
            // The data before the FIN may be captured later.
            self.hole.get_or_insert((unseen, sequence)).1 = sequence;
        }
        match &mut self.fin {
            None => self.fin = Some(Close { sequence, acknowledgment, peer_acked: None, at }),
            Some(fin) => {
                if let (Some(first), Some(other)) = (fin.acknowledgment, acknowledgment)
                    && is_before(other, first)
                {
                    fin.acknowledgment = acknowledgment;
                }
            }
        }
    }

    /// Whether a RST of this side is valid (RFC 9293, section 3.5.3; RFC 5961, section 3.2), as far as that can be
    /// decided without the peer's window.
    pub(crate) fn judge_reset(&self, sequence: u32, peer: &Self) -> Reset {
        if !self.is_placed {
            return Reset::Sure;
        }
        let expected = peer.acked.unwrap_or(self.next.wrapping_sub(self.octets.min(FAR.into()) as u32));
        let fin = u32::from(self.fin.is_some());
        let known = later(self.next.wrapping_add(fin), expected);
        if is_before(sequence, expected) || is_before(known.wrapping_add(UNSEEN_MAX), sequence) {
            Reset::Forged
        } else if is_before(known, sequence) {
            Reset::Doubtful
        } else {
            Reset::Sure
        }
    }

    /// Octets of data that it sent: seen, or acknowledged without being seen.
    pub(crate) fn sent(&self, peer: &Self) -> u64 {
        self.octets + u64::from(self.unseen(peer))
    }

    /// Octets of data that were acknowledged and never seen.
    pub(crate) fn missed(&self, peer: &Self) -> u64 {
        u64::from(self.missed) + u64::from(self.unseen(peer))
    }

    /// Octets that its peer has acknowledged behind the last one that was seen.
    fn unseen(&self, peer: &Self) -> u32 {
        let unseen = match peer.acked {
            Some(acked) if self.is_placed && is_before(self.next, acked) => acked.wrapping_sub(self.next),
            _ => 0,
        };
        // A FIN has a sequence number, too.
        let fin = u32::from(self.fin.is_some() || unseen == 1 || self.packets == 0 && peer.has_stepped);
        unseen.saturating_sub(fin)
    }
}
