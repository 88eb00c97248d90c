//! A metric family whose children are bounded in number and can't be mistaken for one another.
//!
//! A child's key is its label text as it is exposed: escaped and quoted, so it is equal only where every value is. A
//! child beyond the family's limit is folded: first into `model="_other"`, then into a child with `_other` everywhere,
//! for which there is always room. Handles ([`Child`]) are resolved once and held; nothing hashes labels per event.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use prometheus::{IntCounter, IntGauge};

use super::histogram::{Histogram, Scale, Snapshot};

/// The label value of what was folded.
pub const OTHER: &str = "_other";
/// The label value of what is not there: a request that names no model, an exchange without an upstream.
pub const NONE: &str = "_none";

/// What a metric's values are counted in inside its cells, all of them integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Plain numbers.
    One,
    /// Seconds, counted in nanoseconds.
    Seconds,
    /// Tokens per second, counted in millionths: a sum then holds 10^10 replies of 1,000 tokens/s.
    TokensPerSecond,
}

impl Unit {
    /// Decimal digits behind the point.
    pub const fn digits(self) -> u32 {
        match self {
            Self::One => 0,
            Self::Seconds => 9,
            Self::TokensPerSecond => 6,
        }
    }
}

/// A metric's type as exposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

impl Kind {
    /// Its name in the exposition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family on paper.
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    /// Full name, with prefix and unit.
    pub name: &'static str,
    /// What it counts, "from … to …".
    pub help: &'static str,
    /// Label names, in the order they are exposed.
    pub labels: &'static [&'static str],
    /// What its cells count in.
    pub unit: Unit,
    /// Upper bounds in the exposed unit, for histograms.
    pub bounds: &'static [f64],
    /// Whether buckets keep an exemplar.
    pub exemplars: bool,
    /// Children per (upstream, model), per upstream or at all (by its labels) once every cell is in use: its weight when
    /// the series budget is split.
    pub cells: usize,
}

impl Desc {
    /// A family of plain numbers, one child per base label set.
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, labels, unit: Unit::One, bounds: &[], exemplars: false, cells: 1 }
    }

    /// With so many children per base label set.
    pub const fn cells(self, cells: usize) -> Self {
        Self { cells, ..self }
    }

    /// In seconds.
    pub const fn seconds(self) -> Self {
        Self { unit: Unit::Seconds, ..self }
    }

    /// In tokens per second.
    pub const fn tokens_per_second(self) -> Self {
        Self { unit: Unit::TokensPerSecond, ..self }
    }

    /// With these bounds.
    pub const fn bounds(self, bounds: &'static [f64]) -> Self {
        Self { bounds, ..self }
    }

    /// With an exemplar per bucket.
    pub const fn with_exemplars(self) -> Self {
        Self { exemplars: true, ..self }
    }

    /// Lines one child is exposed in: buckets with `+Inf`, sum and count, or one.
    pub const fn lines(&self) -> usize {
        if self.bounds.is_empty() { 1 } else { self.bounds.len() + 3 }
    }

    /// The bounds as the cells count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounds are small and positive")]
    fn scale(&self) -> Scale {
        let unit = 10_f64.powi(self.unit.digits().cast_signed());
        Scale::new(self.bounds.iter().map(|bound| (bound * unit).round() as u64))
    }
}

/// A child's value at one moment, in the units of its cells.
#[derive(Debug)]
pub enum Sample {
    /// Of a counter or gauge.
    Number(u64),
    /// Of a histogram.
    Histogram(Snapshot),
}

/// What a family's children are made of; a clone is a handle to the same cell.
pub trait Cell: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// The type it is exposed as.
    const KIND: Kind;

    /// A fresh cell.
    ///
    /// # Errors
    /// If the name is none.
    fn create(desc: &Desc, scale: &Arc<Scale>) -> prometheus::Result<Self>;

    /// Its value.
    fn sample(&self) -> Sample;
}

impl Cell for IntCounter {
    const KIND: Kind = Kind::Counter;

    fn create(desc: &Desc, _: &Arc<Scale>) -> prometheus::Result<Self> {
        Self::new(desc.name, desc.help)
    }

    fn sample(&self) -> Sample {
        Sample::Number(self.get())
    }
}

impl Cell for IntGauge {
    const KIND: Kind = Kind::Gauge;

    fn create(desc: &Desc, _: &Arc<Scale>) -> prometheus::Result<Self> {
        Self::new(desc.name, desc.help)
    }

    fn sample(&self) -> Sample {
        Sample::Number(self.get().max(0).cast_unsigned())
    }
}

impl Cell for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn create(desc: &Desc, scale: &Arc<Scale>) -> prometheus::Result<Self> {
        Ok(Self::new(scale, desc.exemplars))
    }

    fn sample(&self) -> Sample {
        Sample::Histogram(self.snapshot())
    }
}

/// A family and its children.
#[derive(Debug)]
pub struct Family<C> {
    desc: Desc,
    scale: Arc<Scale>,
    children: RwLock<BTreeMap<Box<str>, C>>,
    limit: AtomicUsize,
    /// How many of them are kept for what is folded.
    kept: AtomicUsize,
    overflow: IntCounter,
    /// Takes what there is no room for even folded, and is never exposed.
    unseen: C,
}

impl<C: Cell> Family<C> {
    /// A family without children. `overflow` counts what is folded.
    ///
    /// # Errors
    /// If the name is none.
    pub fn new(desc: Desc, overflow: &IntCounter) -> prometheus::Result<Self> {
        let scale = Arc::new(desc.scale());
        let unseen = C::create(&desc, &scale)?;
        let (limit, kept) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Ok(Self { desc, scale, children: RwLock::default(), limit, kept, overflow: overflow.clone(), unseen })
    }

    /// The child with these label values, made if there is none, folded if there is no room. Takes a lock: hold what it
    /// returns.
    pub fn child(&self, values: &[&str]) -> C {
        let key = label_text(self.desc.labels, values);
        if let Some(cell) = self.children.read().unwrap_or_else(PoisonError::into_inner).get(key.as_str()) {
            return cell.clone();
        }
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit.load(Relaxed);
        // Some of families that can grow is kept for children folded by model alone, one for those folded altogether.
        let folded = self.folded(values, |label| label == "model");
        let kept = match self.desc.labels {
            labels if !labels.contains(&"upstream") => 0,
            _ if key == folded => 1,
            _ => self.kept.load(Relaxed),
        };
        let room = limit.saturating_sub(kept);
        if let Some(cell) = self.admit(&mut children, key, room) {
            return cell;
        }
        self.overflow.inc();
        let all = self.folded(values, |_| true);
        let cell = self.admit(&mut children, folded, limit.saturating_sub(1));
        cell.or_else(|| self.admit(&mut children, all, limit)).unwrap_or_else(|| self.unseen.clone())
    }

    fn folded(&self, values: &[&str], fold: impl Fn(&str) -> bool) -> String {
        let values: Vec<_> =
            self.desc.labels.iter().zip(values).map(|(label, value)| if fold(label) { OTHER } else { value }).collect();
        label_text(self.desc.labels, &values)
    }

    fn admit(&self, children: &mut BTreeMap<Box<str>, C>, key: String, room: usize) -> Option<C> {
        if let Some(cell) = children.get(key.as_str()) {
            return Some(cell.clone());
        }
        if children.len() >= room {
            return None;
        }
        let cell = C::create(&self.desc, &self.scale).ok()?;
        children.insert(key.into(), cell.clone());
        Some(cell)
    }
}

/// A family as the budget and the encoder see it, whatever its cells are.
pub trait Exposed: Send + Sync + std::fmt::Debug {
    /// Its description.
    fn desc(&self) -> &Desc;
    /// Its type.
    fn kind(&self) -> Kind;
    /// Bounds the number of its children from now on; so many of them are `kept` for what is folded.
    fn limit(&self, children: usize, kept: usize);
    /// Its children in the order of their label text.
    fn samples(&self) -> Vec<(Box<str>, Sample)>;
}

impl<C: Cell> Exposed for Family<C> {
    fn desc(&self) -> &Desc {
        &self.desc
    }

    fn kind(&self) -> Kind {
        C::KIND
    }

    fn limit(&self, children: usize, kept: usize) {
        self.limit.store(children, Relaxed);
        self.kept.store(kept, Relaxed);
    }

    fn samples(&self) -> Vec<(Box<str>, Sample)> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        children.iter().map(|(labels, cell)| (labels.clone(), cell.sample())).collect()
    }
}

/// A handle to one child, which comes into being at its first use: what was never observed is not exposed.
#[derive(Debug)]
pub struct Child<C> {
    family: Arc<Family<C>>,
    values: Box<[Arc<str>]>,
    cell: OnceLock<C>,
}

impl<C: Cell> Child<C> {
    /// A handle; the child is not there yet.
    pub fn of(family: &Arc<Family<C>>, values: &[&str]) -> Self {
        let values = values.iter().copied().map(Arc::from).collect();
        Self { family: family.clone(), values, cell: OnceLock::new() }
    }

    /// The cell. After the first time: a load and a branch.
    #[inline]
    pub fn get(&self) -> &C {
        self.cell.get_or_init(|| {
            let values: Vec<&str> = self.values.iter().map(AsRef::as_ref).collect();
            self.family.child(&values)
        })
    }
}

/// Handles to those children of a family that begin with the same label values. Each comes into being at its first use and is
/// found again by comparing the other values: for labels of few values, which are known only when they come.
#[derive(Debug)]
pub struct Children<C> {
    family: Arc<Family<C>>,
    first: Box<[Arc<str>]>,
    used: RwLock<Vec<Used<C>>>,
}

/// The other values and their cell.
type Used<C> = (Box<[Box<str>]>, C);

impl<C: Cell> Children<C> {
    /// Handles; the children are not there yet.
    pub fn of(family: &Arc<Family<C>>, first: &[Arc<str>]) -> Self {
        Self { family: family.clone(), first: first.into(), used: RwLock::default() }
    }

    /// The cell with these values behind the first ones. Allocates nothing after its first use.
    pub fn get(&self, last: &[&str]) -> C {
        let same = |(values, _): &&Used<C>| values.iter().map(AsRef::as_ref).eq(last.iter().copied());
        if let Some((_, cell)) = self.used.read().unwrap_or_else(PoisonError::into_inner).iter().find(same) {
            return cell.clone();
        }
        let cell = self.touch(last);
        let values = last.iter().copied().map(Box::from).collect();
        self.used.write().unwrap_or_else(PoisonError::into_inner).push((values, cell.clone()));
        cell
    }

    /// Makes the child exist, and no handle to it.
    pub fn touch(&self, last: &[&str]) -> C {
        let values: Vec<&str> = self.first.iter().map(AsRef::as_ref).chain(last.iter().copied()).collect();
        self.family.child(&values)
    }
}

/// Label names and values as they are exposed, without braces.
pub fn label_text(names: &[&str], values: &[&str]) -> String {
    debug_assert_eq!(names.len(), values.len(), "{names:?}");
    let mut text = String::with_capacity(64);
    for (name, value) in names.iter().zip(values) {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for char in value.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

/// Collects the families as they are made, so that none is exposed twice or forgotten.
pub(super) struct List {
    pub(super) overflow: IntCounter,
    pub(super) families: Vec<Arc<dyn Exposed>>,
}

impl List {
    pub(super) fn add<C: Cell>(&mut self, desc: Desc) -> prometheus::Result<Arc<Family<C>>> {
        Ok(self.take(Arc::new(Family::new(desc, &self.overflow)?)))
    }

    pub(super) fn take<C: Cell>(&mut self, family: Arc<Family<C>>) -> Arc<Family<C>> {
        self.families.push(family.clone());
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Desc = Desc::new("two", "Two labels.", &["upstream", "model"]);

    fn family(desc: Desc, limit: usize) -> (Family<IntCounter>, IntCounter) {
        let overflow = IntCounter::new("overflow", "Folded.").unwrap();
        let family = Family::new(desc, &overflow).unwrap();
        family.limit(limit, limit.div_ceil(16));
        (family, overflow)
    }

    fn lines(family: &Family<IntCounter>) -> Vec<(String, u64)> {
        let number = |sample| if let Sample::Number(number) = sample { number } else { panic!("{sample:?}") };
        family.samples().into_iter().map(|(labels, sample)| (labels.into(), number(sample))).collect()
    }

    #[test]
    fn label_sets_of_the_same_letters_stay_apart() {
        let (family, _) = family(TWO, 100);
        // One series to a hash without separators; two known to collide in FNV-1a; an attempt to forge a second label.
        let sets = [
            ["ab", "c"],
            ["a", "bc"],
            ["", "77kepQFQ8Kl"],
            ["", "!0IC=VloaY"],
            ["x\",model=\"y", "z"],
            ["x", "y\",model=\"z"],
        ];
        for (index, set) in sets.iter().enumerate() {
            family.child(set).inc_by(index as u64 + 1);
        }
        let mut values: Vec<_> = lines(&family).into_iter().map(|(_, value)| value).collect();
        values.sort_unstable();
        assert_eq!(values, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_crates_own_vectors_merge_them_which_is_why_they_are_not_used() {
        let vec = prometheus::IntCounterVec::new(prometheus::Opts::new("two", "Two."), &["a", "b"]).unwrap();
        vec.with_label_values(&["ab", "c"]).inc();
        vec.with_label_values(&["a", "bc"]).inc_by(10);
        assert_eq!(vec.with_label_values(&["ab", "c"]).get(), 11);
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(label_text(&["model"], &["a\"b\\c\nd"]), r#"model="a\"b\\c\nd""#);
        assert_eq!(label_text(&[], &[]), "");
    }

    #[test]
    fn beyond_the_limit_children_fold_by_model_then_altogether() {
        let (family, overflow) = family(TWO, 4);
        for model in ["m1", "m2", "m3", "m4"] {
            family.child(&["a", model]).inc();
        }
        family.child(&["b", "m5"]).inc();
        let expected = [
            (r#"upstream="_other",model="_other""#, 2),
            (r#"upstream="a",model="m1""#, 1),
            (r#"upstream="a",model="m2""#, 1),
            (r#"upstream="a",model="m3""#, 1),
        ];
        assert_eq!(lines(&family), expected.map(|(labels, value)| (labels.to_owned(), value)));
        assert_eq!(overflow.get(), 2);
    }

    #[test]
    fn a_larger_family_keeps_its_upstreams_apart_when_it_folds() {
        let (family, overflow) = family(TWO, 64);
        for index in 0..100 {
            family.child(&["a", &format!("m{index}")]).inc();
            family.child(&["b", &format!("m{index}")]).inc();
        }
        let lines = lines(&family);
        let folded = |upstream| lines.iter().find(|(l, _)| *l == label_text(TWO.labels, &[upstream, OTHER])).unwrap().1;
        assert_eq!((folded("a"), folded("b")), (70, 70));
        assert_eq!((lines.len(), overflow.get()), (62, 140));
    }

    #[test]
    fn without_any_room_nothing_is_exposed_and_nothing_fails() {
        let (family, overflow) = family(TWO, 0);
        family.child(&["a", "m"]).inc();
        assert_eq!((lines(&family).len(), overflow.get()), (0, 1));
    }

    #[test]
    fn a_child_exists_from_its_first_use_on() {
        let (family, _) = family(TWO, 10);
        let family = Arc::new(family);
        let child = Child::of(&family, &["a", "m"]);
        assert_eq!(lines(&family), []);
        child.get().inc();
        child.get().inc();
        assert_eq!(lines(&family), [(r#"upstream="a",model="m""#.to_owned(), 2)]);
    }

    #[test]
    fn children_are_told_apart_by_every_value_and_exist_from_their_first_use_on() {
        const DESC: Desc = Desc::new("four", "Four labels.", &["upstream", "model", "stream", "outcome"]);
        let (family, overflow) = family(DESC, 64);
        let family = Arc::new(family);
        let children = Children::of(&family, &["u".into(), "m".into()]);
        assert_eq!(lines(&family), []);
        for last in [["a", "b"], ["a", "bc"], ["ab", "c"], ["a", "b"], ["b", "a"]] {
            children.get(&last).inc();
        }
        children.touch(&["c", "c"]);
        let counts: Vec<_> =
            lines(&family).into_iter().map(|(labels, count)| (labels[23..].to_owned(), count)).collect();
        let expected = [
            (r#"stream="a",outcome="b""#, 2),
            (r#"stream="a",outcome="bc""#, 1),
            (r#"stream="ab",outcome="c""#, 1),
            (r#"stream="b",outcome="a""#, 1),
            (r#"stream="c",outcome="c""#, 0),
        ];
        assert_eq!(counts, expected.map(|(labels, count)| (labels.to_owned(), count)));
        let again = allocation_counter::measure(|| children.get(&["ab", "c"]).inc());
        assert_eq!((again.count_total, overflow.get()), (0, 0));
    }
}
