// Prometheus' answers as the data frames that Grafana's own data source makes of them: its package asks for an older
// React.
import { FieldType } from "@grafana/data";

const SPANS = { s: 1, m: 60, h: 3600, d: 86400 };

/** What a panel's queries give, as `frames`, and where its time begins. */
export async function framesOf(server, panel, from, to, step) {
    const first = panel.timeFrom ? to - seconds(panel.timeFrom) : from;
    const pace = panel.interval ? Math.max(step, seconds(panel.interval)) : step;
    const answers = await Promise.all(
        panel.targets.map((target) =>
            target.instant
                ? ask(server, "query", { query: target.expr, time: to })
                : ask(server, "query_range", { query: target.expr, start: first, end: to, step: pace }),
        ),
    );
    const tables = panel.targets.filter(({ format }) => format === "table").length;
    const frames = panel.targets.flatMap((target, at) => {
        if (target.format === "table")
            return [table(target, answers[at], tables > 1 ? `Value #${target.refId}` : "Value")];
        if (target.format === "heatmap") return rows(target, answers[at], pace);
        return answers[at].map((series) => overTime(target, series, pace));
    });
    return { frames, from: first };
}

function seconds(span) {
    const [, number, unit] = /^(\d+)([smhd])$/.exec(span);
    return Number(number) * SPANS[unit];
}

/** Series as `{ labels, points }`, with times in milliseconds. */
async function ask(server, path, parameters) {
    const answer = await fetch(`${server}/api/v1/${path}`, { method: "POST", body: new URLSearchParams(parameters) });
    const { status, data, error } = await answer.json();
    if (status !== "success") throw new Error(`${parameters.query}: ${error}`);
    const found = data.resultType === "scalar" ? [{ metric: {}, value: data.result }] : data.result;
    return found.map(({ metric, value, values }) => ({
        labels: metric,
        points: (values ?? [value]).map(([at, number]) => [at * 1000, Number(number.replace("Inf", "Infinity"))]),
    }));
}

function overTime(target, { labels, points }, pace) {
    const name = legend(target, labels);
    return frame(target, name, [
        { name: "Time", type: FieldType.time, config: { interval: pace * 1000 }, values: points.map(([at]) => at) },
        {
            name: "Value",
            type: FieldType.number,
            labels,
            config: { displayNameFromDS: name },
            values: points.map(([, number]) => number),
        },
    ]);
}

function legend({ legendFormat, expr }, labels) {
    if (legendFormat === "__auto") throw new Error(`a series without a legend of its own: ${expr}`);
    return legendFormat.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? "");
}

function table(target, answer, value) {
    const labels = [...new Set(answer.flatMap((series) => Object.keys(series.labels).sort()))];
    const rows = answer.flatMap((series) => series.points.map((point) => [series.labels, point]));
    return frame(target, undefined, [
        { name: "Time", type: FieldType.time, config: {}, values: rows.map(([, [at]]) => at) },
        ...labels.map((name) => ({
            name,
            type: FieldType.string,
            config: { filterable: true },
            values: rows.map(([known]) => known[name] ?? ""),
        })),
        { name: value, type: FieldType.number, config: {}, values: rows.map(([, [, number]]) => number) },
    ]);
}

/** Cumulative buckets as one frame with a field for each bucket, each less the one below it. */
function rows(target, answer, pace) {
    const bound = ({ labels }) => Number(labels.le.replace("Inf", "Infinity"));
    const sorted = [...answer].sort((one, other) => bound(one) - bound(other));
    if (!sorted.length) return [];
    const times = [...new Set(sorted.flatMap(({ points }) => points.map(([at]) => at)))].sort(
        (one, other) => one - other,
    );
    const known = sorted.map(({ points }) => new Map(points));
    const counts = known.map((bucket, at) =>
        times.map((time) => {
            const above = (bucket.get(time) ?? 0) - (known[at - 1]?.get(time) ?? 0);
            return above < 1e-9 ? 0 : above;
        }),
    );
    return [
        frame(target, undefined, [
            { name: "Time", type: FieldType.time, config: { interval: pace * 1000 }, values: times },
            ...sorted.map(({ labels }, at) => ({
                name: labels.le,
                type: FieldType.number,
                labels,
                config: { displayNameFromDS: labels.le },
                values: counts[at],
            })),
        ]),
    ];
}

function frame({ refId }, name, fields) {
    return { refId, name, fields, length: fields[0].values.length };
}
