//! Medians and ranges of finite values.

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<_> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

/// The least and the largest.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let both = |(least, most): (f64, f64), (a, b): (f64, f64)| (least.min(a), most.max(b));
    values.into_iter().map(|value| (value, value)).reduce(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0]), Some(2.0));
        assert_eq!(median([3.0, 1.0, 7.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_range_has_the_least_and_the_largest() {
        assert_eq!(range([3.0, 1.0, 2.0]), Some((1.0, 3.0)));
        assert_eq!(range([]), None);
    }
}
