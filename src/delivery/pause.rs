//! How long an event waits after a failed attempt.

/// The longest pause, before the part that is random: 6 hours.
const LONGEST_MS: u64 = 21_600_000;

/// The same with that part, milliseconds.
pub(super) const MOST_MS: i64 = 25_920_000;

/// The pause after so many attempts, milliseconds: four times as long after each, up to 6 hours, and up to
/// a fifth longer at `random`, so that what failed together does not come back together.
pub(super) fn pause_ms(first_ms: u64, attempts: i64, random: u64) -> i64 {
    let exponent = u32::try_from(attempts.saturating_sub(1).max(0)).unwrap_or(u32::MAX);
    let pause = first_ms
        .saturating_mul(4_u64.saturating_pow(exponent))
        .min(LONGEST_MS);
    let most = pause.div_euclid(5).saturating_add(1);
    let extra = random.checked_rem(most).unwrap_or(0);
    i64::try_from(pause.saturating_add(extra)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_six_hours() {
        let pauses: Vec<_> = (1..=9)
            .map(|attempts| pause_ms(5_000, attempts, 0))
            .collect();
        assert_eq!(
            pauses,
            [
                5_000, 20_000, 80_000, 320_000, 1_280_000, 5_120_000, 20_480_000, 21_600_000,
                21_600_000
            ]
        );
        assert_eq!(pause_ms(5_000, i64::MAX, 0), 21_600_000);
        assert_eq!(pause_ms(5_000, 9, 21_600_000 / 5), MOST_MS);
        assert_eq!(pause_ms(5_000, 0, 0), 5_000);
    }

    #[test]
    fn the_random_part_is_at_most_a_fifth() {
        for random in [0, 1, 999, 1_000, 1_001, u64::MAX] {
            let pause = pause_ms(5_000, 1, random);
            assert!((5_000..=6_000).contains(&pause), "{random}: {pause}");
        }
    }
}
