//! The exposition: text 0.0.4, or OpenMetrics 1.0 with exemplars. One writer for both, as they differ in little.

use std::{fmt::Write as _, sync::Arc};

use prometheus::proto::{LabelPair, MetricFamily, MetricType};

use super::{
    family::{Desc, Exposed, Kind, Sample, label_text},
    histogram::{Exemplar, Snapshot},
};
use crate::observation::push_decimal;

/// Which text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Writes our families, then foreign ones (the process metrics). Families without children are left out; the order is
/// that of the catalogue and, within a family, of the label text.
pub fn encode(families: &[Arc<dyn Exposed>], foreign: &[MetricFamily], format: Format) -> String {
    let mut writer = Writer { out: String::with_capacity(64 * 1024), format };
    for family in families {
        let samples = family.samples();
        if samples.is_empty() {
            continue;
        }
        let desc = family.desc();
        writer.head(desc.name, desc.help, family.kind());
        let bounds: Vec<String> = desc.bounds.iter().copied().chain([f64::INFINITY]).map(canonical).collect();
        for (labels, sample) in &samples {
            match sample {
                Sample::Number(value) => writer.line(desc, "", labels, *value, desc.unit.digits()),
                Sample::Histogram(snapshot) => writer.histogram(desc, labels, &bounds, snapshot),
            }
        }
    }
    for family in foreign {
        writer.foreign(family);
    }
    if format == Format::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
    writer.out
}

struct Writer {
    out: String,
    format: Format,
}

impl Writer {
    fn head(&mut self, name: &str, help: &str, kind: Kind) {
        let open = self.format == Format::OpenMetrics;
        // OpenMetrics names a counter without the suffix its samples have.
        let name = if open && kind == Kind::Counter { name.strip_suffix("_total").unwrap_or(name) } else { name };
        let _ = write!(self.out, "# HELP {name} ");
        for char in help.chars() {
            match char {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '"' if open => self.out.push_str("\\\""),
                other => self.out.push(other),
            }
        }
        let _ = write!(self.out, "\n# TYPE {name} {}\n", kind.as_str());
        if open && name.ends_with("_seconds") {
            let _ = writeln!(self.out, "# UNIT {name} seconds");
        }
    }

    fn line(&mut self, desc: &Desc, suffix: &str, labels: &str, value: u64, digits: u32) {
        self.series(desc.name, suffix, labels);
        push_decimal(&mut self.out, value, digits);
        self.out.push('\n');
    }

    fn histogram(&mut self, desc: &Desc, labels: &str, bounds: &[String], snapshot: &Snapshot) {
        let digits = desc.unit.digits();
        // Most of an exposition are these lines, alike but for the bound: nothing is formatted in them but the count.
        let comma = if labels.is_empty() { "" } else { "," };
        let head = [desc.name, "_bucket{", labels, comma, "le=\""].concat();
        for (index, (bound, count)) in bounds.iter().zip(&snapshot.buckets).enumerate() {
            for text in [head.as_str(), bound, "\"} "] {
                self.out.push_str(text);
            }
            push_decimal(&mut self.out, *count, 0);
            if self.format == Format::OpenMetrics
                && let Some(Some((value, exemplar))) = snapshot.exemplars.get(index)
            {
                self.exemplar(*value, digits, exemplar);
            }
            self.out.push('\n');
        }
        self.line(desc, "_sum", labels, snapshot.sum, digits);
        self.line(desc, "_count", labels, snapshot.count(), 0);
    }

    /// ` # {exchange_id="…",trace_id="…"} 0.25`: 67 characters of labels at most, 128 are allowed. Without a time: a
    /// reader takes an unchanged exemplar without one for the same, and keeps it once.
    fn exemplar(&mut self, value: u64, digits: u32, exemplar: &Exemplar) {
        let _ = write!(self.out, " # {{exchange_id=\"{}\"", exemplar.id);
        // A trace id is hexadecimal; anything else is not worth a broken exposition.
        let trace = exemplar.trace_id.as_deref();
        if let Some(trace) = trace.filter(|id| id.len() <= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            let _ = write!(self.out, ",trace_id=\"{trace}\"");
        }
        self.out.push_str("} ");
        push_decimal(&mut self.out, value, digits);
    }

    /// Everything of a line before its value.
    fn series(&mut self, name: &str, suffix: &str, labels: &str) {
        let [open, close] = if labels.is_empty() { ["", " "] } else { ["{", "} "] };
        for text in [name, suffix, open, labels, close] {
            self.out.push_str(text);
        }
    }

    fn foreign(&mut self, family: &MetricFamily) {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => Kind::Counter,
            MetricType::GAUGE => Kind::Gauge,
            _ => return, // the process metrics have no others
        };
        self.head(family.name(), family.help(), kind);
        for metric in family.get_metric() {
            let pairs = metric.get_label();
            let names: Vec<&str> = pairs.iter().map(LabelPair::name).collect();
            let values: Vec<&str> = pairs.iter().map(LabelPair::value).collect();
            self.series(family.name(), "", &label_text(&names, &values));
            let value =
                if kind == Kind::Counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
            let _ = writeln!(self.out, "{value}");
        }
    }
}

/// A bound as OpenMetrics spells it (`1.0`, `5e-06`, `+Inf`), in both formats, so that the label is one whatever the
/// scraper asked for.
fn canonical(bound: f64) -> String {
    if bound.is_infinite() {
        return "+Inf".to_owned();
    }
    let scientific = format!("{bound:e}");
    let exponent =
        scientific.split_once('e').and_then(|(mantissa, power)| Some((mantissa, power.parse::<i32>().ok()?)));
    match exponent {
        Some((mantissa, power)) if power < -4 => format!("{mantissa}e-{:02}", power.unsigned_abs()),
        Some((mantissa, power)) if power >= 6 => format!("{mantissa}e+{power:02}"),
        _ => format!("{bound:?}"),
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounter, IntGauge};

    use super::*;
    use crate::{
        metrics::{family::Family, histogram::Histogram},
        observation::ExchangeId,
    };

    fn families() -> Vec<Arc<dyn Exposed>> {
        let overflow = IntCounter::new("overflow", "Folded.").unwrap();
        let requests = Family::<IntCounter>::new(
            Desc::new("requests_total", "Back\\slash, \"quotes\"\nand a line.", &["model"]),
            &overflow,
        );
        let wait = Family::<IntGauge>::new(Desc::new("wait_seconds", "From a to b.", &[]).seconds(), &overflow);
        let ttft = Family::<Histogram>::new(
            Desc::new("ttft_seconds", "From c to d.", &["model"]).seconds().bounds(&[5e-6, 0.25, 1.0]).with_exemplars(),
            &overflow,
        );
        let empty = Family::<Histogram>::new(Desc::new("empty_seconds", "None.", &[]).bounds(&[1.0]), &overflow);
        let (requests, wait, ttft) = (requests.unwrap(), wait.unwrap(), ttft.unwrap());
        requests.child(&["z"]).inc_by(3);
        requests.child(&["a\"b\\"]).inc();
        wait.child(&[]).set(1_500_000_000);
        let exemplar = Exemplar { id: ExchangeId(0xab), trace_id: Some("0af7651916cd43dd8448eb211c80319c".into()) };
        ttft.child(&["m"]).observe_with(250_000_000, &exemplar);
        ttft.child(&["m"]).observe_with(123_456_789_012, &Exemplar { id: ExchangeId(1), trace_id: Some("\"}".into()) });
        vec![Arc::new(requests), Arc::new(wait), Arc::new(ttft), Arc::new(empty.unwrap())]
    }

    #[test]
    fn text() {
        let expected = r#"# HELP requests_total Back\\slash, "quotes"\nand a line.
# TYPE requests_total counter
requests_total{model="a\"b\\"} 1
requests_total{model="z"} 3
# HELP wait_seconds From a to b.
# TYPE wait_seconds gauge
wait_seconds 1.5
# HELP ttft_seconds From c to d.
# TYPE ttft_seconds histogram
ttft_seconds_bucket{model="m",le="5e-06"} 0
ttft_seconds_bucket{model="m",le="0.25"} 1
ttft_seconds_bucket{model="m",le="1.0"} 1
ttft_seconds_bucket{model="m",le="+Inf"} 2
ttft_seconds_sum{model="m"} 123.706789012
ttft_seconds_count{model="m"} 2
"#;
        assert_eq!(encode(&families(), &[], Format::Text), expected);
    }

    #[test]
    fn open_metrics() {
        let expected = r#"# HELP requests Back\\slash, \"quotes\"\nand a line.
# TYPE requests counter
requests_total{model="a\"b\\"} 1
requests_total{model="z"} 3
# HELP wait_seconds From a to b.
# TYPE wait_seconds gauge
# UNIT wait_seconds seconds
wait_seconds 1.5
# HELP ttft_seconds From c to d.
# TYPE ttft_seconds histogram
# UNIT ttft_seconds seconds
ttft_seconds_bucket{model="m",le="5e-06"} 0
ttft_seconds_bucket{model="m",le="0.25"} 1 # {exchange_id="00000000000000ab",trace_id="0af7651916cd43dd8448eb211c80319c"} 0.25
ttft_seconds_bucket{model="m",le="1.0"} 1
ttft_seconds_bucket{model="m",le="+Inf"} 2 # {exchange_id="0000000000000001"} 123.456789012
ttft_seconds_sum{model="m"} 123.706789012
ttft_seconds_count{model="m"} 2
# EOF
"#;
        assert_eq!(encode(&families(), &[], Format::OpenMetrics), expected);
    }

    #[test]
    fn bounds_are_spelt_canonically() {
        let spelt = [5e-6, 1.5e-5, 0.0001, 0.00065, 0.25, 1.0, 1024.0, 2.5e7, f64::INFINITY].map(canonical);
        assert_eq!(spelt, ["5e-06", "1.5e-05", "0.0001", "0.00065", "0.25", "1.0", "1024.0", "2.5e+07", "+Inf"]);
    }
}
