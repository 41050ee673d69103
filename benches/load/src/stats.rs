//! The arithmetic behind the verdicts: medians, ratios of paired rounds, targets.

use std::fmt;

/// The median; `NaN` of nothing. The mean of the two in the middle where there are two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[upper],
        _ => f64::midpoint(sorted[upper - 1], sorted[upper]),
    }
}

/// Payonce's number divided by the bare component's, of rounds that ran side by side.
pub fn ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let pairs = pairs.into_iter();
    pairs.map(|(bare, payonce)| payonce / bare).collect()
}

/// The smallest and the largest value.
pub fn spread(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (least, most)
}

/// What a number has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// Whether `value` is what it has to be; `NaN` never is.
    pub fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_value_in_the_middle_or_the_mean_of_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn one_slow_round_does_not_move_the_median_of_the_ratios() {
        let calm = [(100.0, 90.0), (100.0, 92.0), (100.0, 91.0)];
        assert_eq!(median(&ratios(calm)), 0.91);
        let disturbed = [(100.0, 90.0), (100.0, 10.0), (100.0, 91.0), (50.0, 46.0)];
        assert_eq!(median(&ratios(disturbed)), 0.905);
    }

    #[test]
    fn a_disturbance_of_both_halves_of_a_round_cancels_out() {
        assert_eq!(ratios([(100.0, 90.0), (10.0, 9.0)]), [0.9, 0.9]);
    }

    #[test]
    fn spread_is_least_and_most() {
        assert_eq!(spread(&[0.9, 0.7, 0.8]), (0.7, 0.9));
    }

    #[test]
    fn targets_include_their_limit_and_nothing_is_not_met() {
        assert!(Target::AtLeast(0.9).met(0.9));
        assert!(!Target::AtLeast(0.9).met(0.89));
        assert!(Target::AtMost(1.5).met(1.5));
        assert!(!Target::AtMost(1.5).met(1.51));
        assert!(!Target::AtLeast(0.9).met(f64::NAN));
        assert!(!Target::AtMost(1.5).met(f64::NAN));
        assert_eq!(Target::AtLeast(2.0).to_string(), ">= 2");
    }
}
