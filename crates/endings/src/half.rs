//! One direction of a connection: what one side was seen to send.

use watari_packets::{Flags, Segment, Timestamp};

use crate::sequence::{FAR, is_before, is_upto, later};

/// How far ahead of what was seen a segment may be and be believed at once: what a capture may have lost in a row.
const JUMP_MAX: u32 = 1 << 24;
/// How many in a row that are further away are believed.
const ODD_MAX: u8 = 3;
/// How far ahead of what was seen a reset may be: the data before it may be lost to the capture.
const UNSEEN_MAX: u32 = 1 << 16;

/// What one side sent, in sequence numbers of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half {
    /// Of the first octet of data. Means something once [`Half::is_placed`].
    pub(crate) start: u32,
    /// Behind the last octet that was seen.
    pub(crate) next: u32,
    /// The highest acknowledgment that this side sent: how much of its peer's it has.
    pub(crate) acked: Option<u32>,
    /// Whether that was one more than the one before, as where a FIN is acknowledged.
    pub(crate) has_stepped: bool,
    pub(crate) fin: Option<Close>,
    pub(crate) reset: Option<Close>,
    /// Octets of data that it sent, each counted once.
    pub(crate) octets: u64,
    pub(crate) packets: u32,
    /// Segments with data, none of them new or all of them late.
    pub(crate) retransmits: u32,
    pub(crate) gaps: u32,
    /// Octets of data that were acknowledged and never seen, in gaps that others followed.
    pub(crate) missed: u32,
    pub(crate) zero_windows: u32,
    /// When new data came last.
    pub(crate) data_at: Timestamp,
    /// What was passed over last, until it comes.
    hole: Option<(u32, u32)>,
    pub(crate) syn: Option<u32>,
    pub(crate) syns: u8,
    pub(crate) is_placed: bool,
    /// Segments in a row that fit nowhere.
    odd: u8,
}

/// How a side closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Close {
    /// The sequence number of its FIN or RST.
    pub(crate) sequence: u32,
    /// What it said to have of its peer's.
    pub(crate) acknowledgment: Option<u32>,
    /// What its peer had said to have, as far as was captured by then.
    pub(crate) heard: Option<u32>,
    pub(crate) at: Timestamp,
}

/// What data are to what was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// They follow.
    New,
    /// They were seen, in whole.
    Seen,
    /// They were passed over before.
    Late,
}

/// What a RST is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// It stands where its receiver expects it, or within what is on its way to it.
    Sure,
    /// It stands behind what was seen, and its receiver may have seen more.
    Doubtful,
    /// Its receiver takes no notice.
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

    /// The first of its closes. Who has reset sends no FIN any more, so a FIN came first.
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

    /// Whether more is to come from it, up to this number, than was seen or acknowledged.
    pub(crate) fn is_behind(&self, upto: u32, peer: &Self) -> bool {
        let fin = u32::from(self.fin.is_some());
        self.packets > 0
            && self.is_placed
            && is_before(self.next.wrapping_add(fin), upto)
            && peer.acked.is_none_or(|acked| is_before(acked, upto))
    }

    /// Whether this acknowledges its SYN, and of the data that came with it (RFC 7413) any.
    pub(crate) fn may_be_synchronized(&self, upto: u32) -> bool {
        is_upto(self.start, upto) && is_upto(upto, self.next)
    }

    /// Data begin here.
    fn place(&mut self, start: u32) {
        (self.start, self.next, self.is_placed) = (start, start, true);
    }

    /// Its SYN. Data that came before it stay where they are.
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

    /// Whether a server that is not known to have taken the client's SYN acknowledges something before it: an earlier connection
    /// between the same ends, which it remembers (RFC 9293, section 3.10.7.4: it answers a SYN with what it expects in that).
    pub(crate) fn knows_other(&self, segment: &Segment<'_>, client: &Self) -> bool {
        let is_before_syn = |syn| !is_before(syn, segment.acknowledgment);
        !self.is_placed && segment.flags.contains(Flags::ACK) && client.syn.is_some_and(is_before_syn)
    }

    /// Whether a segment is of this connection at all, by its place.
    pub(crate) fn fits(&mut self, segment: &Segment<'_>, peer: &Self) -> bool {
        let near =
            |number: u32, known: u32| number.wrapping_sub(known) < JUMP_MAX || known.wrapping_sub(number) < 1 << 30;
        // Of an earlier connection between the same ends.
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
        // Long unseen: it goes on from here.
        self.odd = 0;
        self.next = segment.sequence;
        self.hole = None;
        true
    }

    /// Its data, if there are any, which fit.
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

    /// An acknowledgment by its peer. True if it covers what was never seen.
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

    /// Its FIN, behind its data. Of copies, the one that knew least of the peer was sent first.
    pub(crate) fn see_fin(&mut self, sequence: u32, acknowledgment: Option<u32>, at: Timestamp) {
        if self.fin.is_none() && is_before(self.next, sequence) {
            let unseen = self.next;
            self.see_data(unseen, sequence.wrapping_sub(unseen), self.data_at);
            // They may be captured yet.
            self.hole.get_or_insert((unseen, sequence)).1 = sequence;
        }
        match &mut self.fin {
            None => self.fin = Some(Close { sequence, acknowledgment, heard: None, at }),
            Some(fin) => {
                if let (Some(first), Some(other)) = (fin.acknowledgment, acknowledgment)
                    && is_before(other, first)
                {
                    fin.acknowledgment = acknowledgment;
                }
            }
        }
    }

    /// What a RST of its is worth (RFC 9293, section 3.5.3; RFC 5961, section 3.2), as far as can be told without the
    /// peer's window.
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

    /// How many octets it sent: as many as were seen, or acknowledged without being seen.
    pub(crate) fn sent(&self, peer: &Self) -> u64 {
        self.octets + u64::from(self.unseen(peer))
    }

    /// How many of them were acknowledged and never seen.
    pub(crate) fn missed(&self, peer: &Self) -> u64 {
        u64::from(self.missed) + u64::from(self.unseen(peer))
    }

    /// Octets behind the last that was seen which its peer has acknowledged.
    fn unseen(&self, peer: &Self) -> u32 {
        let unseen = match peer.acked {
            Some(acked) if self.is_placed && is_before(self.next, acked) => acked.wrapping_sub(self.next),
            _ => 0,
        };
        // A FIN has a number, too.
        let fin = u32::from(self.fin.is_some() || unseen == 1 || self.packets == 0 && peer.has_stepped);
        unseen.saturating_sub(fin)
    }
}
