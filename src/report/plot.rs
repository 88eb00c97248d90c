//! Drawing: axes, curves, points and bars as inline SVG. Colours and dashes are the page's style, by class.

use std::fmt::{Display, Write as _};

/// Units of a drawing's own; the page scales it to the room there is.
pub(super) const WIDTH: f64 = 520.0;
const LEFT: f64 = 58.0;
/// Room for the names of lines across.
const RIGHT: f64 = 50.0;
const TOP: f64 = 26.0;
/// Below the axis: numbers, then the axis' name.
const BOTTOM: f64 = 46.0;
/// About the width of a letter, as large as a phone shows it.
const LETTER: f64 = 8.0;

/// How a number becomes a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis: from where to where, and the numbers that stand at it.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Decades and what lies between, around these numbers, which are all above zero.
    pub(super) fn log(numbers: impl Iterator<Item = f64>, show: impl Fn(f64) -> String) -> Option<Self> {
        let (least, most) = bounds(numbers.filter(|number| *number > 0.0))?;
        let steps = steps(least, most);
        let from = steps.iter().copied().rev().find(|step| *step <= least).unwrap_or(least);
        let to = steps.iter().copied().find(|step| *step >= most && *step > from).unwrap_or(most);
        let mut ticks: Vec<f64> = steps.into_iter().filter(|step| *step >= from && *step <= to).collect();
        if ticks.len() > 10 {
            // Each decade alone.
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        let ticks = ticks.into_iter().map(|tick| (tick, show(tick))).collect();
        Some(Self { scale: Scale::Log, from, to, ticks })
    }

    /// With these ends and numbers.
    pub(super) fn with(from: f64, to: f64, ticks: Vec<(f64, String)>) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { scale: Scale::Linear, from, to, ticks }
    }

    /// Where a number lies, 0 at the axis' begin and 1 at its end; what lies outside is moved to the nearest end.
    fn place(&self, number: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (number - self.from) / (self.to - self.from),
            Scale::Log => {
                (number.max(f64::MIN_POSITIVE).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
            }
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn holds(&self, number: f64) -> bool {
        number >= self.from && number <= self.to
    }
}

fn bounds(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.filter(|number| number.is_finite()).fold(None, |bounds, number| {
        let (least, most) = bounds.unwrap_or((number, number));
        Some((least.min(number), most.max(number)))
    })
}

/// 1, 2 and 5 of each decade around these.
#[expect(clippy::cast_possible_truncation, reason = "an exponent of a double has three digits")]
fn steps(least: f64, most: f64) -> Vec<f64> {
    let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
    decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| format!("{digit}e{decade}").parse().unwrap_or(digit)))
        .collect()
}

/// A drawing in the making.
#[derive(Debug)]
pub(super) struct Plot {
    svg: String,
    x: Axis,
    y: Axis,
    /// Where the y axis ends below; the x axis' numbers stand under `foot`.
    floor: f64,
    foot: f64,
}

impl Plot {
    /// A frame with both axes and their names. `about` is what a reader who does not see it is told. Between the y
    /// axis' end and the x axis' numbers `band` units are left for [`Plot::counts`].
    pub(super) fn new(about: &str, x: (Axis, &str), y: (Axis, &str), height: f64, band: f64) -> Self {
        let ((x, x_name), (y, y_name)) = (x, y);
        let foot = height - BOTTOM;
        let mut plot = Self { svg: open(about, height), x, y, floor: foot - band, foot };
        let [left, right, floor] = [LEFT, WIDTH - RIGHT, plot.floor];
        for (number, text) in &plot.y.ticks.clone() {
            let at = plot.at_y(*number);
            plot.line("grid", left, at, right, at);
            plot.text("tick end", left - 6.0, at + 4.0, text);
        }
        let mut free = f64::MIN;
        for (number, text) in &plot.x.ticks.clone() {
            let at = plot.at_x(*number);
            plot.line("grid", at, TOP, at, foot);
            // What would run into the one before is left out; its line stands.
            let half = text.chars().count() as f64 * LETTER / 2.0;
            let middle = at.min(WIDTH - half).max(half);
            if middle - half > free {
                plot.text("tick middle", middle, foot + 16.0, text);
                free = middle + half + LETTER;
            }
        }
        plot.line("axis", left, floor, right, floor);
        plot.text("name start", 4.0, 13.0, y_name);
        plot.text("name end", right, height - 8.0, x_name);
        plot
    }

    fn at_x(&self, number: f64) -> f64 {
        LEFT + self.x.place(number) * (WIDTH - RIGHT - LEFT)
    }

    fn at_y(&self, number: f64) -> f64 {
        self.floor - self.y.place(number) * (self.floor - TOP)
    }

    /// A curve through these points; `class` is its look.
    pub(super) fn curve(&mut self, class: &str, title: &str, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let _ = write!(self.svg, "<path class=\"line {class}\" d=\"");
        for (index, (x, y)) in points.iter().enumerate() {
            let [x, y] = [self.at_x(*x), self.at_y(*y)];
            let _ = write!(self.svg, "{}{} {}", if index == 0 { "M" } else { "L" }, unit(x), unit(y));
        }
        let _ = write!(self.svg, "\"><title>{}</title></path>", escape(title));
    }

    /// One mark of a series' shape, with what it says when pointed at.
    pub(super) fn mark(&mut self, series: usize, title: &str, x: f64, y: f64) {
        let shape = shape(series, self.at_x(x), self.at_y(y), 3.4);
        let _ =
            write!(self.svg, "<path class=\"mark s{series}\" d=\"{shape}\"><title>{}</title></path>", escape(title));
    }

    /// Many marks of a series' shape in one: they are not told apart when pointed at.
    pub(super) fn cloud(&mut self, series: usize, title: &str, points: &[(f64, f64)]) {
        let _ = write!(self.svg, "<path class=\"cloud s{series}\" d=\"");
        for (x, y) in points {
            self.svg.push_str(&shape(series, self.at_x(*x), self.at_y(*y), 2.2));
        }
        let _ = write!(self.svg, "\"><title>{}</title></path>", escape(title));
    }

    /// A line across at a number of the y axis, if it is on the drawing.
    pub(super) fn across(&mut self, number: f64, text: &str) {
        if self.y.holds(number) {
            let at = self.at_y(number);
            self.line("limit", LEFT, at, WIDTH - RIGHT, at);
            self.text("limit start", WIDTH - RIGHT + 3.0, at + 4.0, text);
        }
    }

    /// A line upright at a number of the x axis, if it is on the drawing. Texts of neighbours stand in different `row`s.
    pub(super) fn upright(&mut self, number: f64, text: &str, row: u8) {
        if self.x.holds(number) {
            let at = self.at_x(number);
            self.line("limit", at, TOP, at, self.floor);
            self.text("limit start", at + 3.0, self.floor - 5.0 - f64::from(row) * 13.0, text);
        }
    }

    /// Bars under the y axis' end: how many there are at each place of the x axis, of this width.
    pub(super) fn counts(&mut self, width: f64, counts: &[(f64, u64)]) {
        let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let [top, band] = [self.floor + 8.0, self.foot - self.floor - 8.0];
        for (x, count) in counts.iter().filter(|(_, count)| *count > 0) {
            let (from, to) = (self.at_x(*x), self.at_x(*x + width));
            let height = (*count as f64 / most as f64 * band).max(1.0);
            let wide = (to - from - 1.0).max(1.0);
            let title = format!("n = {count}");
            self.bar("count", &title, [from + 0.5, top + band - height, wide, height]);
        }
        self.text("tick end", LEFT - 6.0, top + 14.0, &format!("n {most}"));
        self.line("axis", LEFT, self.foot, WIDTH - RIGHT, self.foot);
    }

    fn bar(&mut self, class: &str, title: &str, place: [f64; 4]) {
        bar(&mut self.svg, class, title, place);
    }

    fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(unit);
        let _ = write!(self.svg, "<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>");
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        write_text(&mut self.svg, class, x, y, text);
    }

    /// The drawing.
    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

/// A bar's part: its look, what it says when pointed at, its length, and what is written on it if there is room.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) class: String,
    pub(super) title: String,
    pub(super) length: f64,
    pub(super) label: String,
}

/// Lying bars made of parts, each under its name. Lengths are shares of `whole`.
pub(super) fn bars(about: &str, rows: &[(String, String, Vec<Part>)], whole: f64) -> String {
    const ROW: f64 = 46.0;
    const BAR: f64 = 20.0;
    let height = rows.len() as f64 * ROW + 6.0;
    let mut svg = open(about, height);
    let room = WIDTH - 8.0;
    for (index, (name, number, parts)) in rows.iter().enumerate() {
        let top = index as f64 * ROW;
        write_text(&mut svg, "row start", 4.0, top + 15.0, name);
        write_text(&mut svg, "tick end", WIDTH - 4.0, top + 15.0, number);
        let mut from = 4.0;
        for part in parts {
            let length = if whole > 0.0 { part.length / whole * room } else { 0.0 };
            let place = [from, top + 20.0, length.max(0.5), BAR];
            bar(&mut svg, &part.class, &part.title, place);
            if let Some(hatch) = hatch(&part.class) {
                bar(&mut svg, hatch, &part.title, place);
            }
            if part.label.chars().count() as f64 * LETTER + 8.0 < length {
                write_text(&mut svg, "on middle", from + length / 2.0, top + 34.5, &part.label);
            }
            from += length;
        }
    }
    svg.push_str("</svg>");
    svg
}

/// A series' line and mark, for a legend.
pub(super) fn swatch(series: usize, line: bool) -> String {
    let mut svg = "<svg class=\"swatch\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">".to_owned();
    if line {
        let _ = write!(svg, "<path class=\"line s{series}\" d=\"M1 7L33 7\"/>");
    }
    let _ = write!(svg, "<path class=\"mark s{series}\" d=\"{}\"/></svg>", shape(series, 17.0, 7.0, 4.2));
    svg
}

/// A filled part's look, for a legend.
pub(super) fn patch(class: &str) -> String {
    let rect = |class: &str| format!("<rect class=\"{class}\" x=\"5\" y=\"1\" width=\"24\" height=\"12\"/>");
    let hatch = hatch(class).map(rect).unwrap_or_default();
    format!("<svg class=\"swatch\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">{}{hatch}</svg>", rect(class))
}

/// What is laid over a part, so that colour is not all that tells it from its neighbours.
fn hatch(class: &str) -> Option<&'static str> {
    match class {
        "k1" | "g0" => Some("wide"),
        "k2" | "g2" => Some("dense"),
        "k4" | "g1" => Some("dots"),
        _ => None,
    }
}

fn open(about: &str, height: f64) -> String {
    format!("<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escape(about))
}

fn bar(svg: &mut String, class: &str, title: &str, place: [f64; 4]) {
    let [x, y, width, height] = place.map(unit);
    let title = escape(title);
    let _ = write!(
        svg,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{title}</title></rect>"
    );
}

fn write_text(svg: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let _ = write!(svg, "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>", unit(x), unit(y), escape(text));
}

/// The outline of a series' mark: circle, square, triangle, diamond, cross, bar. So that colour is not all.
fn shape(series: usize, x: f64, y: f64, size: f64) -> String {
    let (place, half, whole) = (format!("M{} {}", unit(x), unit(y)), unit(size), unit(2.0 * size));
    let m = |dx: f64, dy: f64| format!("M{} {}", unit(x + dx * size), unit(y + dy * size));
    match series % 6 {
        0 => format!("{}a{half} {half} 0 1 0 {whole} 0a{half} {half} 0 1 0 -{whole} 0", m(-1.0, 0.0)),
        1 => format!("{}h{whole}v{whole}h-{whole}z", m(-1.0, -1.0)),
        2 => format!("{}l{half} {whole}h-{whole}z", m(0.0, -1.0)),
        3 => format!("{}l{half} {half}l-{half} {half}l-{half} -{half}z", m(0.0, -1.0)),
        4 => format!("{}l{whole} {whole}{}l-{whole} {whole}", m(-1.0, -1.0), m(1.0, -1.0)),
        _ => format!("{place}m-{half} 0h{whole}m-{half} -{half}v{whole}"),
    }
}

/// A tenth of a unit is finer than anybody sees.
fn unit(number: f64) -> impl Display {
    (number * 10.0).round() / 10.0
}

/// Text as it may stand in a page.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis) -> Vec<f64> {
        axis.ticks.iter().map(|(tick, _)| *tick).collect()
    }

    #[test]
    fn axes_have_round_numbers_around_what_they_show() {
        let log = Axis::log([0.03, 0.7].into_iter(), |number| number.to_string()).unwrap();
        assert_eq!(ticks(&log), [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]);
        let wide = Axis::log([0.001, 900.0].into_iter(), |number| number.to_string()).unwrap();
        assert_eq!(ticks(&wide), [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0]);
        let one = Axis::log([1.0].into_iter(), |number| number.to_string()).unwrap();
        assert_eq!((one.from, one.to), (1.0, 2.0), "there is always a length");
        assert!(Axis::log([0.0, f64::NAN].into_iter(), |_| String::new()).is_none());
    }

    #[test]
    fn places_lie_on_the_axis_whatever_the_number() {
        let axis = Axis::log([0.01, 10.0].into_iter(), |_| String::new()).unwrap();
        for number in [0.0, -1.0, 1e-9, 0.1, 1e300, f64::INFINITY, f64::NAN] {
            assert!((0.0..=1.0).contains(&axis.place(number)), "{number}");
        }
        assert!((axis.place(0.1) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(Axis::with(5.0, 5.0, Vec::new()).place(5.0), 0.0);
    }

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escape("<script>'&\"</script>"), "&lt;script&gt;&#39;&amp;&quot;&lt;/script&gt;");
    }
}
