//! The clock of an interface (`draft-ietf-opsawg-pcapng`, section 4.2).

use crate::Timestamp;

/// A count of units since the Unix epoch, and seconds to add.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    unit: Unit,
    pub(super) offset_s: i64,
}

#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Nanoseconds in a unit.
    Longer(u64),
    /// Units in a nanosecond.
    Shorter(u64),
    /// A second has 2 to the power of this units.
    Binary(u8),
}

impl Default for Clock {
    fn default() -> Self {
        Self { unit: Unit::Longer(1000), offset_s: 0 }
    }
}

impl Clock {
    /// Takes the value of `if_tsresol`. `None` if its units are too small for 64 bits.
    pub(super) fn resolve(&mut self, resolution: u8) -> Option<()> {
        self.unit = match resolution {
            0..=9 => Unit::Longer(10u64.pow(9 - u32::from(resolution))),
            10..=19 => Unit::Shorter(10u64.pow(u32::from(resolution) - 9)),
            0x80..=0xbf => Unit::Binary(resolution & 0x7f),
            _ => return None,
        };
        Some(())
    }

    /// Clamps times to the range from 1970 to 2554.
    pub(super) fn time(&self, units: u64) -> Timestamp {
        let nanoseconds = match self.unit {
            Unit::Longer(nanoseconds) => units.saturating_mul(nanoseconds),
            Unit::Shorter(in_nanosecond) => units / in_nanosecond,
            Unit::Binary(power) => {
                u64::try_from((u128::from(units) * u128::from(NANOSECONDS)) >> power).unwrap_or(u64::MAX)
            }
        };
        if self.offset_s == 0 {
            return Timestamp(nanoseconds);
        }
        let offset = i128::from(self.offset_s) * i128::from(NANOSECONDS);
        let shifted = (i128::from(nanoseconds) + offset).max(0);
        Timestamp(u64::try_from(shifted).unwrap_or(u64::MAX))
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
