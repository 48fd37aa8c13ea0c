//! The speed of the processor: how fast fixed work gets done.
//!
//! Other machines on the same hardware, and frequencies that change, make a processor faster and slower within minutes. So
//! the same trial has other rates later. A trial measures the speed while it runs, and the result says how much of the
//! spread of a ratio the speed alone explains.

use std::hint::black_box;

use watari_sys::thread_cpu_time;

use crate::statistics::median;

/// The numbers that are sorted at a time: about a millisecond of work.
const NUMBERS: u32 = 32 * 1024;

/// Fixed work, and the CPU time that it took.
#[derive(Debug)]
pub(crate) struct SpeedMeter {
    numbers: Vec<u32>,
    /// Where they are sorted.
    sorted: Vec<u32>,
    taken: Vec<f64>,
}

impl SpeedMeter {
    pub(crate) fn new() -> Self {
        // Weyl's sequence with the golden ratio: its numbers are in no order.
        let numbers: Vec<_> = (0..NUMBERS).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
        Self { sorted: numbers.clone(), numbers, taken: Vec::new() }
    }

    /// Does the work once. Waits for a processor do not count.
    pub(crate) fn look(&mut self) {
        self.sorted.copy_from_slice(&self.numbers);
        let before = thread_cpu_time();
        self.sorted.sort_unstable();
        black_box(&self.sorted);
        self.taken.push(thread_cpu_time().saturating_sub(before).as_secs_f64());
    }

    /// The median, as repetitions in a second of CPU time. None if it did no work.
    pub(crate) fn finish(self) -> Option<f64> {
        median(self.taken).map(f64::recip)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_meter_has_the_median_of_its_looks() {
        assert_eq!(SpeedMeter::new().finish(), None);
        let meter = SpeedMeter { numbers: Vec::new(), sorted: Vec::new(), taken: vec![0.5, 0.25, 0.125] };
        assert_eq!(meter.finish(), Some(4.0));
    }

    #[test]
    fn work_takes_time() {
        let mut meter = SpeedMeter::new();
        meter.look();
        assert!(meter.finish().unwrap().is_finite());
    }
}
