//! Which drawings a page has, and the numbers they are made of. Each is bounded, however long the log is.

use super::{
    plot::{Axis, Part, Plot, bars, escape, patch, swatch},
    rows::{Column, Log, Row, groups, sample, streams, whole_part},
    sessions::Sessions,
    shown::{class_name, long, name, shown, title, whole},
    tables::{KINDS, by_kind},
    tally::{DEADLINES, Report, Slice, Upstream, instant, lower, ranked},
};
use crate::figures::{Quantiles, Sample, percent, significant, time};

/// Series of one drawing: as many as can be told apart.
const SERIES: usize = 6;
/// Points of a curve.
const CURVE: u32 = 160;
/// Points of a cloud, all series together.
const CLOUD: usize = 2_400;
/// Bins of a time axis, at most.
const BINS: f64 = 60.0;
const HEIGHT: f64 = 310.0;
const BAND: f64 = 44.0;

/// A drawing, what it shows, and which look is which.
#[derive(Debug)]
pub(super) struct Figure {
    /// The section it belongs to.
    pub(super) section: &'static str,
    pub(super) title: String,
    /// Both ends of its numbers, and n.
    pub(super) note: String,
    pub(super) svg: String,
    /// Ready markup.
    pub(super) legend: Vec<String>,
}

/// All drawings there are numbers for.
pub(super) fn figures(log: &Log, report: &Report) -> Vec<Figure> {
    let ranked = ranked(log);
    let series: Vec<Series> = ranked.iter().take(SERIES).map(|(pair, rows)| Series::new(log, *pair, rows)).collect();
    let mut figures = Vec::new();
    figures.extend(first_output(&series));
    figures.extend(by_length(&series));
    figures.extend(over_time(&series));
    figures.extend(outcomes(report));
    figures.extend(speeds(&series));
    figures.extend(stages(&report.upstreams));
    let lengths = ("input", "By prompt length", "input tokens, by class");
    figures.extend(by_class(&report.by_input, &series, lengths));
    let loads = ("load", "By load", "in flight to the same upstream and model at the start");
    figures.extend(by_class(&report.by_load, &series, loads));
    figures.extend(by_hour(&series));
    figures.extend(sessions(&report.sessions));
    figures
}

/// The requests of an upstream and model.
struct Series<'a> {
    title: String,
    upstream: Option<String>,
    model: Option<String>,
    rows: &'a [&'a Row],
    /// Streams that had an output event, or of which it was not the client who kept them from one.
    awaited: usize,
}

impl<'a> Series<'a> {
    fn new(log: &Log, pair: usize, rows: &'a [&'a Row]) -> Self {
        let names = &log.pairs[pair];
        let [upstream, model] = [names.upstream, names.model].map(|name| name.map(|name| log.text(name).to_owned()));
        let clients = |row: &Row| matches!(log.text(row.outcome), "client_gone" | "client_error");
        let awaited = |row: &&&Row| row.get(Column::Ttft).is_some() || !clients(row);
        let awaited = streams(rows).0.iter().filter(awaited).count();
        Self { title: title(upstream.as_ref(), model.as_ref()), upstream, model, rows, awaited }
    }

    fn sample(&self, column: Column) -> Sample {
        sample(self.rows.iter().copied(), column)
    }
}

/// The share of all streams that were awaited with a first output by then: a failure is one that never came.
fn first_output(series: &[Series]) -> Option<Figure> {
    let samples: Vec<Sample> = series.iter().map(|series| series.sample(Column::Ttft)).collect();
    let ends = samples.iter().flat_map(|sample| [sample.quantile(0.0), sample.quantile(1.0)]).flatten();
    let x = Axis::log(ends.chain(DEADLINES), round_time)?;
    if samples.iter().all(Sample::is_empty) {
        return None;
    }
    let about = "Share of streams with a first output by a time, one curve per upstream and model";
    let mut plot = Plot::new(about, (x, "TTFT"), (shares(), "share of streams asked for"), HEIGHT, 0.0);
    let mut legend = Vec::new();
    for (index, (series, sample)) in
        series.iter().zip(&samples).enumerate().filter(|(_, (series, _))| series.awaited > 0)
    {
        rise(&mut plot, index, &series.title, sample, series.awaited, time);
        let n = format!("{} of {}", whole(sample.count() as f64), whole(series.awaited as f64));
        legend.push(key(index, true, &format!("{}, n = {n}", series.title)));
    }
    for (row, deadline) in (0..).zip(DEADLINES) {
        plot.upright(deadline, &round_time(deadline), row);
    }
    Some(Figure {
        section: "ttft",
        title: "Time to first token, of all streams asked for".to_owned(),
        note: "From the request's departure to the first output event's arrival. A curve that stays below 100 % ends where \
               streams never had one. n: streams with output, of those asked for; streams whose client left first are not counted. \
               Marks: p50, p90, p99 of those with output, from 10 and 100 on."
            .to_owned(),
        svg: plot.finish(),
        legend,
    })
}

fn speeds(series: &[Series]) -> Option<Figure> {
    let samples: Vec<Sample> = series.iter().map(|series| series.sample(Column::Speed)).collect();
    let ends = samples.iter().flat_map(|sample| [sample.quantile(0.0), sample.quantile(1.0)]).flatten();
    let x = Axis::log(ends, significant_short)?;
    let about = "Share of streams at most so fast, one curve per upstream and model";
    let mut plot =
        Plot::new(about, (x, "output tokens per second, after the first"), (shares(), "share of streams"), HEIGHT, 0.0);
    let mut legend = Vec::new();
    for (index, (series, sample)) in
        series.iter().zip(&samples).enumerate().filter(|(_, (_, sample))| !sample.is_empty())
    {
        rise(&mut plot, index, &series.title, sample, sample.count(), |speed| {
            format!("{} tokens/s", significant(speed))
        });
        legend.push(key(index, true, &format!("{}, n = {}", series.title, whole(sample.count() as f64))));
    }
    Some(Figure {
        section: "speed",
        title: "Output speed".to_owned(),
        note: "Share of streams at most this fast, from the first to the last output event. The left foot of a curve is its slow tail. \
               Marks: p50, p90, p99, from 10 and 100 on."
            .to_owned(),
        svg: plot.finish(),
        legend,
    })
}

/// A curve of how many of `all` are at most so large, with marks at three quantiles.
fn rise(plot: &mut Plot, index: usize, title: &str, sample: &Sample, all: usize, show: impl Fn(f64) -> String) {
    let reach = sample.count() as f64 / all.max(1) as f64;
    let point = |q: f64| Some((sample.quantile(q)?, q * reach));
    let points: Vec<_> = (0..=CURVE).filter_map(|step| point(f64::from(step) / f64::from(CURVE))).collect();
    plot.curve(&format!("s{index}"), title, &points);
    for (q, called) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")] {
        if let (Some(_), Some((x, y))) = (sample.percentile(q), point(q)) {
            plot.mark(index, &format!("{title}: {called} {}, n = {}", show(x), sample.count()), x, y);
        }
    }
}

fn by_length(series: &[Series]) -> Option<Figure> {
    let all: Vec<Vec<(f64, f64)>> = series
        .iter()
        .map(|series| {
            let point = |row: &&Row| Some((row.get(Column::InputTokens)?, row.get(Column::Ttft)?));
            series.rows.iter().filter_map(point).filter(|(x, y)| *x > 0.0 && *y > 0.0).collect()
        })
        .collect();
    let n: usize = all.iter().map(Vec::len).sum();
    let x = Axis::log(all.iter().flatten().map(|point| point.0), tokens)?;
    let y = Axis::log(all.iter().flatten().map(|point| point.1), round_time)?;
    let about = "TTFT by input tokens, one mark per stream";
    let mut plot = Plot::new(about, (x, "input tokens, cached included"), (y, "TTFT"), HEIGHT, 0.0);
    let every = n.div_ceil(CLOUD).max(1);
    let mut legend = Vec::new();
    for (index, (series, points)) in series.iter().zip(&all).enumerate().filter(|(_, (_, points))| !points.is_empty()) {
        let kept: Vec<_> = points.iter().step_by(every).copied().collect();
        plot.cloud(index, &series.title, &kept);
        legend.push(key(index, false, &format!("{}, n = {}", series.title, whole(points.len() as f64))));
    }
    for deadline in DEADLINES {
        plot.across(deadline, &round_time(deadline));
    }
    let thinned = if every > 1 { format!(" One in {every} is drawn.") } else { String::new() };
    Some(Figure {
        section: "ttft",
        title: "Time to first token by prompt length".to_owned(),
        note: format!("Each mark is a stream: its input tokens as the provider counts them, and its TTFT.{thinned}"),
        svg: plot.finish(),
        legend,
    })
}

/// Steps of a time axis.
struct Steps<'a> {
    axis: Axis,
    axis_name: &'a str,
    /// Which step a request belongs to; absent without a time.
    of: &'a dyn Fn(&Row) -> Option<u64>,
    /// Where on the axis a step begins.
    place: &'a dyn Fn(u64) -> f64,
    width: f64,
    /// What a step is called that begins there.
    called: &'a dyn Fn(f64) -> String,
}

/// TTFT over the log's time, a drawing for each series, all with the same axes.
fn over_time(series: &[Series]) -> Vec<Figure> {
    let times = || series.iter().flat_map(|series| series.rows.iter().filter_map(|row| row.time()));
    let Some((from, to)) = times().min_by(f64::total_cmp).zip(times().max_by(f64::total_cmp)) else {
        return Vec::new();
    };
    let width = bin(to - from);
    let first = (from / width).floor() * width;
    let steps = Steps {
        axis: Axis::with(first, ((to / width).floor() + 1.0) * width, instants(first, to, width)),
        axis_name: "UTC",
        of: &|row| row.time().map(|time| whole_part((time - first) / width)),
        place: &|step| first + step as f64 * width,
        width,
        called: &instant,
    };
    let note = format!("In steps of {}, by when requests began, UTC.", rounded(&long(width)));
    trends(series, &steps, "ttft", "over time", &note)
}

/// TTFT by hour of day, a drawing for each series.
fn by_hour(series: &[Series]) -> Vec<Figure> {
    let hour = |row: &Row| row.time().map(|time| whole_part(time / 3_600.0) % 24);
    let hours = groups(series.iter().flat_map(|series| series.rows.iter().copied()), hour);
    if hours.len() < 2 {
        return Vec::new();
    }
    let ticks = (0..=24).step_by(3).map(|hour| (f64::from(hour), format!("{hour:02}"))).collect();
    let steps = Steps {
        axis: Axis::with(0.0, 24.0, ticks),
        axis_name: "hour of day, UTC",
        of: &hour,
        place: &|hour| hour as f64,
        width: 1.0,
        called: &|hour| format!("{hour:02.0}–{:02.0} h", hour + 1.0),
    };
    trends(series, &steps, "hours", "by hour of day", "All days together, UTC.")
}

fn trends(series: &[Series], steps: &Steps, section: &'static str, title: &str, note: &str) -> Vec<Figure> {
    let binned: Vec<Vec<(u64, Quantiles)>> = series
        .iter()
        .map(|series| {
            let bins = groups(series.rows.iter().copied(), steps.of);
            let spread = |(bin, rows): (u64, Vec<&Row>)| (bin, sample(rows, Column::Ttft).quantiles());
            bins.into_iter().map(spread).filter(|(_, spread)| spread.n > 0).collect()
        })
        .collect();
    let ends = binned.iter().flatten().flat_map(|(_, spread)| [spread.p50, spread.p99]).flatten();
    let Some(y) = Axis::log(ends.chain([DEADLINES[0], DEADLINES[2]]), round_time) else { return Vec::new() };
    let mut figures = Vec::new();
    for (series, bins) in series.iter().zip(binned).filter(|(_, bins)| !bins.is_empty()) {
        let about = format!("TTFT p50 and p99 {title}: {}", series.title);
        let mut plot = Plot::new(&about, (steps.axis.clone(), steps.axis_name), (y.clone(), "TTFT"), HEIGHT, BAND);
        let middle = |bin: u64| (steps.place)(bin) + steps.width / 2.0;
        for (look, quantile) in [("s0", p50 as fn(&Quantiles) -> Option<f64>), ("s1", p99)] {
            // A bin without any is a gap in the curve.
            let there: Vec<_> = bins.iter().filter_map(|(bin, spread)| Some((*bin, quantile(spread)?))).collect();
            for run in there.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
                let points: Vec<_> = run.iter().map(|(bin, at)| (middle(*bin), *at)).collect();
                plot.curve(look, &about, &points);
            }
        }
        for (bin, spread) in &bins {
            let Some(p50) = spread.p50 else { continue };
            let at = (steps.called)((steps.place)(*bin));
            let says = format!("{at}: p50 {}, p99 {}, n = {}", time(p50), shown(spread.p99, time), spread.n);
            plot.mark(0, &says, middle(*bin), p50);
            if let Some(p99) = spread.p99 {
                plot.mark(1, &says, middle(*bin), p99);
            }
        }
        for deadline in DEADLINES {
            plot.across(deadline, &round_time(deadline));
        }
        let counts: Vec<_> = bins.iter().map(|(bin, spread)| ((steps.place)(*bin), spread.n as u64)).collect();
        plot.counts(steps.width, &counts);
        figures.push(Figure {
            section,
            title: format!("TTFT {title}: {}", series.title),
            note: format!("{note} Bars: n, streams that had an output event."),
            svg: plot.finish(),
            legend: vec![key(0, true, "p50"), key(1, true, "p99 (from 100 streams on)")],
        });
    }
    figures
}

fn p50(spread: &Quantiles) -> Option<f64> {
    spread.p50
}

fn p99(spread: &Quantiles) -> Option<f64> {
    spread.p99
}

/// A number of a class: what it is, its axis' name, where it is found, how it is shown, and both its ends.
type Number = (&'static str, &'static str, fn(&Slice) -> &Quantiles, fn(f64) -> String, &'static str);

/// TTFT and speed by a class, two drawings.
fn by_class(slices: &[Slice], series: &[Series], (section, title, x_name): (&'static str, &str, &str)) -> Vec<Figure> {
    // What is of no class lies on no axis.
    let classes = slices.iter().map(|slice| slice.class.as_str()).filter(|class| *class != "unknown");
    let mut classes: Vec<&str> = classes.collect();
    classes.sort_by_key(|class| (lower(class), *class));
    classes.dedup();
    classes.truncate(12);
    if classes.len() < 2 {
        return Vec::new();
    }
    let ticks = (0_u32..).zip(&classes).map(|(index, class)| (f64::from(index) + 0.5, class_name(class))).collect();
    let x = Axis::with(0.0, classes.len() as f64, ticks);
    let two: [Number; 2] = [
        (
            "TTFT p50",
            "TTFT p50",
            |slice| &slice.ttft_s,
            round_time,
            "from the request's departure to the first output event's arrival",
        ),
        (
            "output speed p50",
            "tokens/s p50",
            |slice| &slice.output_tokens_per_second,
            significant_short,
            "output tokens per second after the first",
        ),
    ];
    let mut figures = Vec::new();
    for (what, y_name, spread, show, meaning) in two {
        let Some(y) = Axis::log(slices.iter().filter_map(|slice| spread(slice).p50), show) else { continue };
        let about = format!("{what} by class, one line per upstream and model");
        let mut plot = Plot::new(&about, (x.clone(), x_name), (y, y_name), HEIGHT, 0.0);
        let mut legend = Vec::new();
        for (index, series) in series.iter().enumerate() {
            let own = slices.iter().filter(|slice| slice.upstream == series.upstream && slice.model == series.model);
            let point = |slice: &Slice| {
                let at = classes.iter().position(|class| *class == slice.class)?;
                let (n, p50) = (spread(slice).n, spread(slice).p50?);
                let says = format!("{}, {}: {what} {}, n = {n}", series.title, class_name(&slice.class), show(p50));
                Some((at as f64 + 0.5, p50, says))
            };
            let points: Vec<_> = own.filter_map(point).collect();
            if points.is_empty() {
                continue;
            }
            let line: Vec<_> = points.iter().map(|(x, y, _)| (*x, *y)).collect();
            plot.curve(&format!("s{index}"), &series.title, &line);
            for (x, y, says) in &points {
                plot.mark(index, says, *x, *y);
            }
            legend.push(key(index, true, &series.title));
        }
        figures.push(Figure {
            section,
            title: format!("{title}: {what}"),
            note: format!("{meaning}; n of each mark stands in the table and appears when it is pointed at."),
            svg: plot.finish(),
            legend,
        });
    }
    figures
}

fn outcomes(report: &Report) -> Option<Figure> {
    let row = |pair: &super::tally::Pair| {
        let title = title(pair.upstream.as_ref(), pair.model.as_ref());
        let part = |(index, n): (usize, u64)| {
            let share = n as f64 / pair.requests as f64;
            let (kind, meaning, _) = KINDS[index];
            let says = format!("{title}: {} {kind} of {}, {}: {meaning}", n, pair.requests, percent(share));
            Part { class: format!("k{index}"), title: says, length: share, label: format!("{kind} {}", percent(share)) }
        };
        let parts = by_kind(pair).into_iter().enumerate().filter(|(_, n)| *n > 0).map(part).collect();
        (title.clone(), format!("n = {}", whole(pair.requests as f64)), parts)
    };
    let rows: Vec<(String, String, Vec<Part>)> = report.pairs.iter().take(2 * SERIES).map(row).collect();
    let legend = (0..)
        .zip(KINDS)
        .map(|(index, (kind, meaning, _))| keyed(&patch(&format!("k{index}")), &format!("{kind}: {meaning}")));
    (!rows.is_empty()).then(|| Figure {
        section: "outcomes",
        title: "How requests ended".to_owned(),
        note: "All requests of an upstream and model; n stands beside its name.".to_owned(),
        svg: bars("Shares of outcomes per upstream and model", &rows, 1.0),
        legend: legend.collect(),
    })
}

/// Kinds of stages: their look, and the stages.
const STAGE_KINDS: [(&str, &str, &[&str]); 5] = [
    ("g0", "connecting: retry, dns, tcp, tls, pool_wait", &["retry", "dns", "tcp", "tls", "pool_wait"]),
    ("g1", "the client's side: upload, receive, client_stall", &["upload", "receive", "client_stall"]),
    ("g2", "own time: gateway_request, gateway_response", &["gateway_request", "gateway_response"]),
    ("g3", "first_output_wait: the provider, and the way there and back", &["first_output_wait"]),
    ("g4", "generation and tail: output came, and what followed it", &["generation", "tail"]),
];

/// One time line per upstream: the mean request, on one scale, and each in shares of its own.
fn stages(upstreams: &[Upstream]) -> Vec<Figure> {
    let shown: Vec<&Upstream> = upstreams.iter().filter(|upstream| upstream.wall_s > 0.0).take(2 * SERIES).collect();
    let mean = |upstream: &Upstream| upstream.wall_s / upstream.requests.max(1) as f64;
    let Some(longest) = shown.iter().map(|upstream| mean(upstream)).max_by(f64::total_cmp) else { return Vec::new() };
    let rows = |shares: bool| -> Vec<(String, String, Vec<Part>)> {
        let row = |upstream: &&Upstream| {
            let parts = upstream.stages.iter().filter(|stage| stage.sum_s > 0.0).map(|stage| {
                let kind = STAGE_KINDS.iter().find(|(_, _, stages)| stages.contains(&stage.stage.as_str()));
                let called = name(Some(&stage.stage));
                let [mean, share] = [time(stage.mean_s), percent(stage.share)];
                Part {
                    class: kind.map_or("g5", |(class, _, _)| class).to_owned(),
                    title: format!("{called}: mean {mean}, {share} of the wall time"),
                    length: if shares { stage.share } else { stage.mean_s },
                    label: format!("{called} {}", if shares { share } else { mean }),
                }
            });
            let number = format!("mean {}, n = {}", time(mean(upstream)), whole(upstream.requests as f64));
            (name(upstream.upstream.as_ref()), number, parts.collect())
        };
        shown.iter().map(row).collect()
    };
    let legend: Vec<String> = STAGE_KINDS.iter().map(|(class, meaning, _)| keyed(&patch(class), meaning)).collect();
    let figure = |title: &str, note: &str, svg: String| Figure {
        section: "stages",
        title: title.to_owned(),
        note: format!(
            "Left to right as time runs, {note}. A bar is the mean wall time: from the request head's arrival to the end."
        ),
        svg,
        legend: legend.clone(),
    };
    vec![
        figure(
            "The mean request, stage by stage",
            "all on one scale",
            bars("Mean time by stage, one bar per upstream", &rows(false), longest),
        ),
        figure(
            "The same in shares",
            "each upstream on its own scale",
            bars("Share of wall time by stage, one bar per upstream", &rows(true), 1.0),
        ),
    ]
}

fn sessions(sessions: &Sessions) -> Option<Figure> {
    let most =
        sessions.longest.iter().map(|session| session.inference_s).max_by(f64::total_cmp).filter(|most| *most > 0.0)?;
    let row = |session: &super::sessions::Session| {
        let rest = (session.inference_s - session.waiting_s - session.generation_s).max(0.0);
        let parts = [
            ("g3", "waiting", session.waiting_s),
            ("g4", "generating", session.generation_s),
            ("g1", "the rest", rest),
        ];
        let part = |(class, called, seconds): (&str, &str, f64)| Part {
            class: class.to_owned(),
            title: format!("{called}: {} of {}", long(seconds), long(session.inference_s)),
            length: seconds,
            label: format!("{called} {}", long(seconds)),
        };
        let parts = parts.into_iter().filter(|(_, _, seconds)| *seconds > 0.0).map(part).collect();
        let number = format!("{}, {} calls", long(session.inference_s), session.calls);
        (name(session.session.as_ref()), number, parts)
    };
    let rows: Vec<(String, String, Vec<Part>)> = sessions.longest.iter().map(row).collect();
    let legend = [
        ("g3", "waiting for the first output"),
        ("g4", "generating, from the first to the last output"),
        ("g1", "the rest: sending, connecting, tails"),
    ];
    Some(Figure {
        section: "sessions",
        title: "Inference time of the longest sessions".to_owned(),
        note: "The sum of each session's calls, from each request head's arrival to its end.".to_owned(),
        svg: bars("Inference time by session", &rows, most),
        legend: legend.map(|(class, meaning)| keyed(&patch(class), meaning)).to_vec(),
    })
}

fn key(index: usize, line: bool, text: &str) -> String {
    keyed(&swatch(index, line), text)
}

fn keyed(swatch: &str, text: &str) -> String {
    format!("{swatch}{}", escape(text))
}

fn shares() -> Axis {
    Axis::with(0.0, 1.0, [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, format!("{:.0} %", share * 100.0))).to_vec())
}

/// A width that makes at most [`BINS`] of a span, and that a clock has.
fn bin(span: f64) -> f64 {
    const WIDTHS: [f64; 16] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0,
        86_400.0,
    ];
    let fits = |width: &f64| span / width < BINS;
    WIDTHS.into_iter().find(fits).unwrap_or_else(|| (span / BINS / 86_400.0).ceil() * 86_400.0)
}

/// Some six instants at round times, as short as they can be.
fn instants(from: f64, to: f64, width: f64) -> Vec<(f64, String)> {
    let span = to - from + width;
    let step = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 10_800.0,
        21_600.0, 43_200.0,
    ]
    .into_iter()
    .find(|step| span / step <= 7.0)
    .unwrap_or_else(|| (span / 7.0 / 86_400.0).ceil() * 86_400.0);
    let first = whole_part((from / step).ceil());
    let last = whole_part((to + width) / step);
    let show = |at: f64| {
        let text = instant(at);
        let (day, clock) = (text.get(5..10).unwrap_or_default(), text.get(11..19).unwrap_or_default());
        match step {
            _ if step < 60.0 => clock.to_owned(),
            _ if step >= 86_400.0 => day.to_owned(),
            _ if span > 86_400.0 && clock == "00:00:00" => day.to_owned(),
            _ => clock.get(..5).unwrap_or_default().to_owned(),
        }
    };
    (first..=last).map(|index| index as f64 * step).map(|at| (at, show(at))).collect()
}

/// A time without digits that say nothing, as an axis has them.
fn round_time(seconds: f64) -> String {
    rounded(&time(seconds))
}

fn rounded(text: &str) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
}

/// Without digits that an axis does not need.
fn significant_short(number: f64) -> String {
    if number >= 1.0 { whole(number) } else { significant(number) }
}

fn tokens(number: f64) -> String {
    match number {
        _ if number >= 1e6 => format!("{}M", number / 1e6),
        _ if number >= 1e3 => format!("{}k", number / 1e3),
        _ => format!("{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_axis_has_few_bins_and_round_instants() {
        assert_eq!([0.0, 59.0, 3_600.0, 86_400.0, 7.0 * 86_400.0].map(bin), [1.0, 1.0, 120.0, 1_800.0, 21_600.0]);
        assert!(1e9 / bin(1e9) <= BINS);
        let noon = 1_769_860_800.0;
        let texts = |to: f64| instants(noon, noon + to, bin(to)).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(4.0), ["12:00:00", "12:00:01", "12:00:02", "12:00:03", "12:00:04", "12:00:05"]);
        assert_eq!(texts(7_000.0), ["12:00", "12:30", "13:00", "13:30"]);
        assert_eq!(texts(2.0 * 86_400.0), ["12:00", "02-01", "12:00", "02-02", "12:00"]);
    }
}
