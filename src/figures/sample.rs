//! Values of one number, and their exact quantiles: of nearest rank, so that each is a value that was there.

use serde::Serialize;

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

    /// The quantile as it is published: absent also where the sample has fewer values than [`least`].
    pub fn percentile(&self, q: f64) -> Option<f64> {
        self.quantile(q).filter(|_| self.count() >= least(q))
    }

    /// All that is published of the sample.
    pub fn quantiles(&self) -> Quantiles {
        let [p1, p10, p50, p90, p99] = [0.01, 0.1, 0.5, 0.9, 0.99].map(|q| self.percentile(q));
        let ratio = |more: Option<f64>, less: Option<f64>| Some(more? / less.filter(|less| *less > 0.0)?);
        Quantiles {
            n: self.count(),
            min: self.0.first().copied(),
            p1,
            p10,
            p50,
            p90,
            p99,
            max: self.0.last().copied(),
            mean: p50.map(|_| self.0.iter().sum::<f64>() / self.0.len() as f64),
            p99_over_p50: ratio(p99, p50),
            p50_over_p1: ratio(p50, p1),
        }
    }
}

/// What a sample comes to, in the unit of its values: in tables, and by these names in JSON. What there is no value for, or
/// too few for, is absent and has no key.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Quantiles {
    /// How many values.
    pub n: usize,
    /// The least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Of speeds the tail is below: 99 in 100 are as fast. From 100 values on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p1: Option<f64>,
    /// From ten values on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p10: Option<f64>,
    /// The median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// From ten values on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    /// From 100 values on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The arithmetic mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// How consistent times are: how much longer the tail takes than the median. Absent where that is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_over_p50: Option<f64>,
    /// The same of speeds. Absent where the tail is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_over_p1: Option<f64>,
}

/// How many values a sample must have for a quantile to be published: as many as let one lie beyond it, 10 for p10 and p90,
/// 100 for p1 and p99; with fewer it is the least or the most and nothing else. A median is one of any.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturates")]
pub fn least(q: f64) -> usize {
    let beyond = q.min(1.0 - q);
    if beyond < 0.5 { (1.0 / beyond).round() as usize } else { 1 }
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
        assert_eq!(sample.count(), 4);
        assert_eq!(Sample::default().quantile(0.5), None);
    }

    #[test]
    fn a_tail_is_published_from_where_it_is_more_than_the_extreme() {
        assert_eq!([0.5, 0.1, 0.9, 0.01, 0.99].map(least), [1, 10, 10, 100, 100]);
        let of = |n: u32| (1..=n).map(f64::from).collect::<Sample>().quantiles();
        assert_eq!(of(0), Quantiles::default());
        let nine = of(9);
        assert_eq!((nine.n, nine.p50, nine.p90, nine.p10, nine.max), (9, Some(5.0), None, None, Some(9.0)));
        let few = of(99);
        assert_eq!((few.p10, few.p90, few.p1, few.p99, few.p99_over_p50), (Some(10.0), Some(90.0), None, None, None));
        let all = of(100);
        assert_eq!(
            (all.min, all.p1, all.p50, all.p99, all.max),
            (Some(1.0), Some(1.0), Some(50.0), Some(99.0), Some(100.0))
        );
        assert_eq!((all.mean, all.p99_over_p50, all.p50_over_p1), (Some(50.5), Some(1.98), Some(50.0)));
        let zeros: Sample = [0.0; 100].into_iter().collect();
        assert_eq!((zeros.quantiles().p99_over_p50, zeros.quantiles().p50_over_p1), (None, None));
    }
}
