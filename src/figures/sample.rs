//! Values of one number, and their exact quantiles: of nearest rank, so that each is a value that was there.

/// Values in rising order.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// How many values there are: `n`, which stands beside every number made of them.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values in rising order.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The quantile of nearest rank, `q` from 0 to 1; absent without values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = usize::try_from(rank(q, self.0.len() as u64)?).ok()?;
        self.0.get(rank - 1).copied()
    }

    /// p99 / p50: how consistent they are. Absent without values, and where p50 is zero.
    pub fn spread(&self) -> Option<f64> {
        let (p99, p50) = (self.quantile(0.99)?, self.quantile(0.5)?);
        (p50 > 0.0).then_some(p99 / p50)
    }
}

impl FromIterator<f64> for Sample {
    /// Values in any order. What is no number is left out: it was not observed.
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        Self(values)
    }
}

/// The rank of a quantile among so many values, counted from 1; absent without values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and `count`, and then clamped")]
pub fn rank(q: f64, count: u64) -> Option<u64> {
    (count > 0).then(|| ((q * count as f64).ceil() as u64).clamp(1, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_nearest() {
        assert_eq!(
            [rank(0.5, 1), rank(0.5, 4), rank(0.5, 5), rank(0.99, 100), rank(1.0, 3)].map(Option::unwrap),
            [1, 2, 3, 99, 3]
        );
        assert_eq!(rank(0.5, 0), None);
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        let sample: Sample = [0.4, 0.1, f64::NAN, 0.3, 0.2].into_iter().collect();
        assert_eq!([0.0, 0.5, 0.51, 0.99].map(|q| sample.quantile(q).unwrap()), [0.1, 0.2, 0.3, 0.4]);
        assert_eq!((sample.count(), sample.spread()), (4, Some(2.0)));
        assert_eq!(Sample::default().quantile(0.5), None);
    }
}
