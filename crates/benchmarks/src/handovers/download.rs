//! A download, with the arrival time of each piece.

use std::io;
use std::thread::scope;
use std::time::Instant;

use watari_test_origins::Content;

use crate::connection::Opener;
use crate::failure::Failure;
use crate::servers::Watari;

/// The path of the file.
pub(super) const PATH: &str = "/file";

/// The pieces of a download, in the order of their arrival.
pub(super) struct Download {
    /// For each piece: seconds since the request, and bytes received so far.
    pieces: Vec<(f64, u64)>,
}

/// Time in which a download reaches its rate, in seconds.
const START_S: f64 = 1.0;

impl Download {
    /// Downloads and compares all content. With `move_it`, orders a handover when half of the content has arrived.
    pub(super) fn run(opener: &Opener, watari: &Watari, content: &Content, move_it: bool) -> Result<Self, Failure> {
        let mut connection = opener.open(watari.server.service)?;
        let (mut pieces, begun) = (Vec::new(), Instant::now());
        scope(|scope| {
            let mut order = None;
            connection.download(PATH, content.len(), |position, piece| {
                if content.difference(position, piece).is_some() {
                    return Err(io::Error::other("another byte than the origins'"));
                }
                let position = position + piece.len() as u64;
                pieces.push((begun.elapsed().as_secs_f64(), position));
                if move_it && position >= content.len() / 2 && order.is_none() {
                    order = Some(scope.spawn(|| watari.move_download()));
                }
                Ok(())
            })?;
            order.map_or(Ok(()), |order| order.join().expect("an order does not panic"))
        })?;
        Ok(Self { pieces })
    }

    /// Seconds from the first quarter of the bytes to the last byte. The beginning of the download does not count.
    pub(super) fn took(&self) -> f64 {
        let Some((end, len)) = self.pieces.last() else { return f64::NAN };
        let quarter = self.pieces.partition_point(|(_, position)| *position < len / 4);
        end - self.pieces[quarter].0
    }

    /// The longest time without a byte, in seconds, after [`START_S`].
    pub(super) fn longest_pause(&self) -> f64 {
        let pauses = self.running().windows(2).map(|pair| pair[1].0 - pair[0].0);
        pauses.max_by(f64::total_cmp).unwrap_or(f64::NAN)
    }

    /// The share of the average rate that is missing in the worst second, after [`START_S`].
    pub(super) fn worst_dip(&self) -> f64 {
        let pieces = self.running();
        let second = |from: &(f64, u64)| {
            let end = pieces.partition_point(|piece| piece.0 < from.0 + 1.0);
            pieces.get(end).map(|to| speed(from, to))
        };
        let slowest = pieces.iter().map_while(second).min_by(f64::total_cmp);
        let [first, .., last] = pieces else { return f64::NAN };
        slowest.map_or(f64::NAN, |slowest| 1.0 - slowest / speed(first, last))
    }

    fn running(&self) -> &[(f64, u64)] {
        &self.pieces[self.pieces.partition_point(|piece| piece.0 < START_S)..]
    }
}

/// The rate between two pieces, in bytes per second.
fn speed(from: &(f64, u64), to: &(f64, u64)) -> f64 {
    (to.1 - from.1) as f64 / (to.0 - from.0)
}

#[cfg(test)]
mod tests {
    // All values in these tests are exact.
    #![allow(clippy::float_cmp)]

    use super::*;

    /// A piece each quarter of a second, and a gap of `pieces` pieces before piece `from`.
    fn paused(from: u64, pieces: u64) -> Download {
        let at = |piece: u64| if piece >= from { piece + pieces } else { piece };
        Download { pieces: (0..40).map(|piece| (at(piece) as f64 / 4.0, piece + 1)).collect() }
    }

    #[test]
    fn a_pause_is_seen_and_missed_in_a_second() {
        let even = paused(20, 0);
        assert_eq!((even.took(), even.longest_pause(), even.worst_dip()), (7.5, 0.25, 0.0));
        let halted = paused(20, 2);
        assert_eq!((halted.took(), halted.longest_pause()), (8.0, 0.75));
        assert!(halted.worst_dip() > 0.4, "{}", halted.worst_dip());
    }

    #[test]
    fn what_is_lost_at_the_beginning_does_not_count() {
        let late = paused(2, 2);
        assert_eq!((late.took(), late.longest_pause(), late.worst_dip()), (7.5, 0.25, 0.0));
    }
}
