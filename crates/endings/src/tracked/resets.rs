//! Resets, and the signs that another host forged them.

use watari_packets::{Flags, Segment};

use crate::ending::Side;
use crate::half::{Close, Reset};
use crate::reorder;
use crate::sequence::{is_before, is_upto};
use crate::tracked::{Stage, TrackedConnection};

/// How many signs show that a side did not send the RST that seems to be its own.
const LIFE_MIN: u8 = 2;

impl TrackedConnection {
    pub(super) fn see_reset(&mut self, side: Side, segment: &Segment<'_>) {
        let worth = self.worth(side, segment);
        if worth == Reset::Forged {
            return;
        }
        self.zeek.see(side, segment);
        let (half, peer) = self.halves(side);
        if half.reset.is_none() {
            let acknowledgment = segment.flags.contains(Flags::ACK).then_some(segment.acknowledgment).or(half.acked);
            half.reset =
                Some(Close { sequence: segment.sequence, acknowledgment, peer_acked: peer.acked, at: segment.time });
        }
        if self.stage != Stage::Closing {
            self.is_doubtful = worth == Reset::Doubtful;
            self.close(segment.time);
        } else if worth == Reset::Sure {
            self.is_doubtful = false;
        }
    }

    fn worth(&self, side: Side, segment: &Segment<'_>) -> Reset {
        let (half, peer) = (self.half(side), self.half(side.peer()));
        if let Some(syn) = peer.syn
            && !half.is_placed
            && segment.flags.contains(Flags::ACK)
            && !(is_before(syn, segment.acknowledgment) && is_upto(segment.acknowledgment, peer.next))
        {
            return Reset::Forged;
        }
        half.judge_reset(segment.sequence, peer)
    }

    /// Data behind a side's own FIN or RST, or an acknowledgment beyond its RST's, show that the FIN or RST was forged.
    pub(super) fn revive(&mut self, side: Side, segment: &Segment<'_>, sequence: u32) {
        let end = sequence.wrapping_add(segment.len);
        let (half, _) = self.halves(side);
        if segment.len > 0 && half.fin.is_some_and(|fin| is_before(fin.sequence, end)) {
            half.fin = None;
            self.reopen(side);
        }
        let (half, _) = self.halves(side);
        let Some(reset) = half.reset else { return };
        let says_more = is_before(reset.sequence, end);
        // The order of segments captured within this window is unknown.
        let knows_more = reorder::WINDOW <= segment.time.since(reset.at)
            && reset.acknowledgment.is_some_and(|known| is_before(known, segment.acknowledgment));
        self.life += if says_more { LIFE_MIN } else { u8::from(knows_more) };
        if self.life >= LIFE_MIN {
            let (half, _) = self.halves(side);
            half.reset = None;
            self.life = 0;
            self.reopen(side);
        }
    }

    fn reopen(&mut self, side: Side) {
        self.zeek.revive(side);
        if self.stage == Stage::Closing && !self.is_reset() {
            self.stage = if self.is_established { Stage::Open } else { Stage::Opening };
        }
    }
}
