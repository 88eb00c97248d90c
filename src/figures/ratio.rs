//! Two samples of one number beside each other: how many times the one the other is and by how much it differs, each
//! with the range in which the truth lies 19 times out of 20.
//!
//! The method is the percentile bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13): draw
//! as many values out of each sample as it has, with repetition, compare the two quantiles, do so [`RESAMPLES`] times, and
//! keep the middle 95 % of what came. It supposes no distribution, which latencies don't have, and no symmetry. It takes
//! the values of a sample as independent, which requests one after the other are not quite: where one is like the one before
//! it (a queue that drains, a slow minute), a sample holds less than its n says, and the interval is too narrow. A drift that
//! both targets of [`compare`] share makes its intervals too wide instead; [`paired`] takes that drift out.
//!
//! The draws are pseudo-random from a fixed seed: the same samples always give the same interval.

use serde::Serialize;

use super::{Sample, rank};

/// How often the samples are drawn anew. An end of the interval is then the 50th value from its side.
pub const RESAMPLES: usize = 2_000;

/// Left out at each side of the interval: 2.5 %.
const TAIL: f64 = 0.025;

/// What the draws begin with.
const SEED: u64 = 0x005e_ed0f_7a11;

/// An estimate and its 95 % confidence interval, in the unit of the estimate. `low ≤ estimate ≤ high`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// What the samples themselves say.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether this value may be the truth, as far as the samples can tell.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// One quantile of two samples, A beside B.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// A / B. Absent where B's quantile is zero, or so often zero among the draws that the interval has no end.
    pub ratio: Option<Interval>,
    /// A − B, in the unit of the values.
    pub difference: Interval,
}

/// How many values a sample must have for an interval of this quantile: with fewer, even the whole range of the sample
/// would miss the quantile more often than the interval may (`max(q, 1 − q)ⁿ ≤ 2.5 %`). 6 for the median, 368 for p99.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturates at the edges")]
pub fn enough(q: f64) -> usize {
    (TAIL.ln() / q.max(1.0 - q).ln()).ceil() as usize
}

/// Compares a quantile of A with the same of B, `q` between 0 and 1. The two are drawn from independently of each other.
/// Absent if one of them has fewer values than [`enough`].
pub fn compare(a: &Sample, b: &Sample, q: f64) -> Option<Comparison> {
    if a.count().min(b.count()) < enough(q) {
        return None;
    }
    let (at_a, at_b) = (a.quantile(q)?, b.quantile(q)?);
    let mut draws = Draws::new();
    let drawn: Vec<(f64, f64)> =
        (0..RESAMPLES).filter_map(|_| draws.quantile(a, q).zip(draws.quantile(b, q))).collect();
    Some(Comparison {
        ratio: interval(at_a / at_b, drawn.iter().map(|(a, b)| a / b)),
        difference: interval(at_a - at_b, drawn.iter().map(|(a, b)| a - b))?,
    })
}

/// The median of the differences A − B within pairs: of requests that were sent side by side, so that what changed for both
/// is in neither. It is not the difference of the medians. Pairs with a value that is no number are left out; absent with
/// fewer pairs than [`enough`] for a median.
pub fn paired(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Interval> {
    let differences: Sample = pairs.into_iter().map(|(a, b)| a - b).collect();
    if differences.count() < enough(0.5) {
        return None;
    }
    let mut draws = Draws::new();
    let drawn: Vec<f64> = (0..RESAMPLES).filter_map(|_| draws.quantile(&differences, 0.5)).collect();
    interval(differences.quantile(0.5)?, drawn.into_iter())
}

/// The middle 95 % of what was drawn. Absent if an end is not finite.
fn interval(estimate: f64, drawn: impl Iterator<Item = f64>) -> Option<Interval> {
    let mut drawn: Vec<f64> = drawn.collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let outside = usize::try_from(rank(TAIL, drawn.len() as u64)?).ok()?;
    let (low, high) = (drawn[outside - 1], drawn[drawn.len() - outside]);
    [estimate, low, high].iter().all(|end| end.is_finite()).then_some(Interval { estimate, low, high })
}

/// Draws samples anew.
struct Draws(fastrand::Rng);

impl Draws {
    fn new() -> Self {
        Self(fastrand::Rng::with_seed(SEED))
    }

    /// The quantile of nearest rank of as many values as `sample` has, drawn from it with repetition.
    ///
    /// The values are in order, so the place drawn k-th lowest is the place of the k-th lowest value; and of `n` uniform
    /// numbers the k-th lowest is distributed as Beta(k, n − k + 1) (David and Nagaraja, *Order Statistics*, 2003, 2.3). So one
    /// number is drawn instead of `n`, and a sample of a million costs what one of ten does.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to `n`, and then clamped")]
    fn quantile(&mut self, sample: &Sample, q: f64) -> Option<f64> {
        let values = sample.values();
        let (n, k) = (values.len() as f64, rank(q, values.len() as u64)? as f64);
        let (low, high) = (self.gamma(k), self.gamma(n - k + 1.0));
        let place = (n * low / (low + high)) as usize;
        values.get(place.min(values.len() - 1)).copied()
    }

    /// A gamma variate of this shape, at least 1, and scale 1: Marsaglia and Tsang, *A simple method for generating gamma
    /// variables*, 2000. Beta(a, b) is a share of two of them: G(a) / (G(a) + G(b)).
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.0.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// A standard normal variate (Box and Muller's).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.0.f64(), self.0.f64());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Log-normal values, as waits are: `median` times e to a normal variate times `sigma`.
    fn log_normal(draws: &mut Draws, n: usize, median: f64, sigma: f64) -> Vec<f64> {
        (0..n).map(|_| median * (sigma * draws.normal()).exp()).collect()
    }

    fn sample(values: &[f64]) -> Sample {
        values.iter().copied().collect()
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!((enough(0.5), enough(0.9), enough(0.99)), (6, 36, 368));
        let (five, six) = (sample(&[1.0; 5]), sample(&[1.0; 6]));
        assert_eq!(compare(&five, &six, 0.5), None);
        assert_eq!(compare(&six, &five, 0.5), None);
        assert!(compare(&six, &six, 0.5).is_some());
        assert_eq!(compare(&six, &six, 0.99), None);
        assert_eq!(paired([(1.0, 2.0); 5]), None);
    }

    #[test]
    fn nothing_is_a_multiple_of_zero() {
        let (zeros, ones) = (sample(&[0.0; 9]), sample(&[1.0; 9]));
        let compared = compare(&ones, &zeros, 0.5).unwrap();
        assert_eq!(compared.ratio, None);
        assert_eq!(compared.difference, Interval { estimate: 1.0, low: 1.0, high: 1.0 });
        // The median is 1, but draws of zeros are no rarity.
        let mixed = sample(&[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(compare(&ones, &mixed, 0.5).unwrap().ratio, None);
        assert_eq!(compare(&zeros, &ones, 0.5).unwrap().ratio.unwrap().estimate, 0.0);
    }

    #[test]
    fn a_constant_difference_shows_through_any_drift_in_pairs() {
        let pairs = (0..40).map(|i| (f64::from(i * i) + 0.25, f64::from(i * i)));
        assert_eq!(paired(pairs.clone()), Some(Interval { estimate: 0.25, low: 0.25, high: 0.25 }));
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let unpaired = compare(&sample(&a), &sample(&b), 0.5).unwrap().difference;
        assert!(unpaired.contains(0.0) && unpaired.contains(0.25), "{unpaired:?}");
        let with_a_gap = [(f64::NAN, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0)];
        assert_eq!(paired(with_a_gap), None, "five are left");
    }

    #[test]
    fn one_draw_stands_for_as_many_as_there_are_values() {
        let values: Vec<f64> = (0..12_u32).map(f64::from).collect();
        let (sample, times) = (sample(&values), 20_000);
        for q in [0.5, 0.99] {
            let rank = usize::try_from(rank(q, 12).unwrap()).unwrap();
            let (mut draws, mut random) = (Draws::new(), fastrand::Rng::with_seed(3));
            let mut seen = [[0_i32; 12]; 2];
            for _ in 0..times {
                let mut places: Vec<usize> = (0..12).map(|_| random.usize(..12)).collect();
                places.sort_unstable();
                seen[0][places[rank - 1]] += 1;
                let drawn = draws.quantile(&sample, q).unwrap();
                seen[1][values.iter().position(|value| *value == drawn).unwrap()] += 1;
            }
            // Of 20,000, the share of a place has a standard error of 71 at most, a difference of two 100.
            let apart = (0..12).map(|place| (seen[0][place] - seen[1][place]).abs()).max();
            assert!(apart < Some(500), "{q}: {seen:?}");
        }
    }

    /// How many times out of `trials` the truth lay in the intervals of ratio, difference and pairs, A's median being
    /// 1.3 times B's.
    fn covered(trials: usize, n: usize, q: f64) -> [usize; 3] {
        let mut draws = Draws(fastrand::Rng::with_seed(7));
        // The standard normal quantile of `q`.
        let deviate = if q == 0.5 { 0.0 } else { 2.326_347_874 };
        let at = |median: f64, sigma: f64| median * f64::exp(sigma * deviate);
        let (truth_a, truth_b) = (at(1.3, 0.5), at(1.0, 0.5));
        let mut covered = [0; 3];
        for _ in 0..trials {
            let (a, b) = (log_normal(&mut draws, n, 1.3, 0.5), log_normal(&mut draws, n, 1.0, 0.5));
            let compared = compare(&sample(&a), &sample(&b), q).unwrap();
            covered[0] += usize::from(compared.ratio.unwrap().contains(truth_a / truth_b));
            covered[1] += usize::from(compared.difference.contains(truth_a - truth_b));
            // Pairs: each is 0.2 ± noise above its partner, whatever the partner is.
            let noise = log_normal(&mut draws, n, 0.2, 0.5);
            let pairs = b.iter().zip(&noise).map(|(b, more)| (b + more, *b));
            covered[2] += usize::from(paired(pairs).unwrap().contains(0.2));
        }
        covered
    }

    #[test]
    fn the_truth_lies_inside_as_often_as_promised() {
        let covered = covered(200, 40, 0.5);
        println!("of 200 intervals at n = 40, ratio, difference and pairs cover the truth: {covered:?}");
        assert!(covered.iter().all(|count| (176..=198).contains(count)), "{covered:?}");
    }

    #[test]
    fn and_of_p99_from_where_it_is_given() {
        let covered = covered(200, enough(0.99), 0.99);
        println!("of 200 intervals of p99 at n = 368, ratio and difference cover the truth: {:?}", &covered[..2]);
        assert!(covered[..2].iter().all(|count| (176..=198).contains(count)), "{covered:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn intervals_are_what_they_say(
            a in proptest::collection::vec(1e-6_f64..1e3, 6..80),
            b in proptest::collection::vec(1e-6_f64..1e3, 6..80),
            power in -20_i32..20,
        ) {
            let (a, b) = (sample(&a), sample(&b));
            let compared = compare(&a, &b, 0.5).unwrap();
            let ratio = compared.ratio.unwrap();
            for interval in [ratio, compared.difference] {
                prop_assert!(interval.contains(interval.estimate), "{:?}", interval);
            }
            prop_assert_eq!(compare(&a, &b, 0.5), Some(compared), "deterministic");

            // The unit doesn't matter: exactly so for powers of two.
            let unit = f64::powi(2.0, power);
            let scaled = |sample: &Sample| sample.values().iter().map(|value| value * unit).collect::<Sample>();
            let other = compare(&scaled(&a), &scaled(&b), 0.5).unwrap();
            prop_assert_eq!(other.ratio, Some(ratio));
            prop_assert_eq!(other.difference.low, compared.difference.low * unit);

            // Of a sample and itself nothing can be told apart.
            let same = compare(&a, &a, 0.5).unwrap();
            prop_assert!(same.ratio.unwrap().contains(1.0) && same.difference.contains(0.0));
            prop_assert_eq!(same.ratio.unwrap().estimate, 1.0);
        }

        #[test]
        fn so_are_those_of_pairs(pairs in proptest::collection::vec((1e-6_f64..1e3, 1e-6_f64..1e3), 6..80)) {
            let interval = paired(pairs.clone()).unwrap();
            prop_assert!(interval.contains(interval.estimate));
            let swapped = paired(pairs.iter().map(|(a, b)| (*b, *a))).unwrap();
            prop_assert!(swapped.low <= -interval.low && swapped.high >= -interval.high, "{:?} {:?}", interval, swapped);
            prop_assert!(paired(pairs.iter().map(|(a, _)| (*a, *a))).unwrap().contains(0.0));
        }
    }
}
