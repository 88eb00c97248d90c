// One exchange opened: its stages as a waterfall, its gaps, and what client, gauge and provider say side by side.

import { ABSENT, STAGES, bar, draw, el, name, number, percent, span, stageKind, time } from "./show.js";

/** Flags with which the provider's TTFT is of something else than the gauge's. */
const NOT_COMPARABLE = ["hidden_reasoning", "summarised_reasoning", "server_ttft_of_head", "server_ttft_behind_queue"];

/** Everything of a record; `gaps` is a list of [from, to, count] in seconds, or nothing if it is not known. */
export function detail(record, gaps) {
  return el("div", { class: "detail" }, waterfall(record), sides(record), strip(record, gaps), facts(record));
}

function part(look, title, ...children) {
  return el("section", { class: look }, el("h3", {}, title), ...children);
}

// --- stages ------------------------------------------------------------------------------------------------------------

function waterfall(record) {
  const stages = Object.entries(record.stages_s).filter(([, seconds]) => seconds > 0);
  const wall = record.wall_s;
  let from = 0;
  const rows = stages.map(([stage, seconds]) => {
    const piece = el("i", { class: stageKind(stage) });
    const share = wall > 0 ? seconds / wall : 0;
    piece.style.marginLeft = `${wall > 0 ? (from / wall) * 100 : 0}%`;
    piece.style.width = `${share * 100}%`;
    from += seconds;
    return el("tr", {},
      el("th", { scope: "row", title: STAGES[stage] }, stage),
      el("td", { class: "track" }, piece),
      el("td", { class: "number" }, span(seconds)),
      el("td", { class: "number share" }, percent(share)));
  });
  const whole = stages.map(([stage, seconds]) => ({ look: stageKind(stage), length: seconds, says: `${stage}: ${time(seconds)}, ${STAGES[stage]}` }));
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", {}, time(wall * share)));
  return part("stages", "Where the time went",
    bar(whole, `Stages in order: ${stages.map(([stage, seconds]) => `${stage} ${time(seconds)}`).join(", ")}`),
    el("p", { class: "ticks", "aria-hidden": "true" }, ...ticks),
    el("table", { class: "waterfall" },
      el("tbody", {}, ...rows),
      el("tfoot", {}, el("tr", {},
        el("th", { scope: "row", title: "from the request head's arrival to the end of everything" }, "wall"),
        el("td", { class: "track note" }, "all of these together"),
        el("td", { class: "number" }, span(wall)),
        el("td", {})))));
}

// --- client, gauge, provider -------------------------------------------------------------------------------------------

function sides(record) {
  const { client_reported_s: client = {}, server_reported_s: server = {} } = record;
  const rows = [
    ["first token", "request → first output", client.ttft, record.client_ttft_s, record.ttft_s, server.ttft],
    ["queue", "request → work begins", undefined, undefined, undefined, server.queue],
    ["prefill", "work on the prompt", undefined, undefined, undefined, server.prefill],
    ["generation", "first → last output", undefined, undefined, record.stages_s.generation || undefined, server.decode],
    ["total", "request → end", client.total, record.client_duration_s, record.duration_s, server.total],
  ].filter(([, , ...said]) => said.some((seconds) => seconds !== undefined));
  const longest = Math.max(...rows.flatMap(([, , ...said]) => said.map((seconds) => seconds ?? 0)));
  const looks = ["client", "gauge", "gauge", "provider"];
  const cell = (seconds, column) => {
    const piece = el("i", { class: looks[column] });
    piece.style.width = `${longest > 0 ? ((seconds ?? 0) / longest) * 100 : 0}%`;
    return el("td", { class: "number" }, span(seconds), piece);
  };
  const head = ["client says", "gauge, to the client", "gauge, to the provider", "provider says"];
  const table = el("table", { class: "clocks" },
    el("thead", {}, el("tr", {}, el("td", {}), ...head.map((title) => el("th", { scope: "col", class: "number" }, title)))),
    el("tbody", {}, ...rows.map(([title, ends, ...said]) => el("tr", {}, el("th", { scope: "row", title: ends }, title), ...said.map(cell)))));
  return part("sides", "Client, gauge, provider", table, el("ul", { class: "below" }, ...between(record, client, server).map((said) => el("li", {}, said))));
}

/** What lies between two clocks' figures of the same thing. */
function between(record, client, server) {
  const said = [];
  if (client.ttft !== undefined && record.client_ttft_s !== undefined) {
    said.push(`outside the gauge, on the client's side: ${time(client.ttft - record.client_ttft_s)} before the first token`);
  }
  const comparable = !record.flags.some((flag) => NOT_COMPARABLE.includes(flag));
  if (comparable && record.ttft_s !== undefined && server.ttft !== undefined) {
    said.push(`outside the provider's own account: ${time(record.ttft_s - server.ttft)} before the first token`);
  }
  const { request, first_output: first, event_mean: mean } = record.overhead_s ?? {};
  if (request !== undefined || first !== undefined) {
    said.push(`the gauge added ${time(request)} to the request, ${time(first)} to the first output, ${time(mean)} to an event on average`);
  }
  if (Object.keys(server).length === 0) said.push("the provider says nothing of its own times");
  if (Object.keys(client).length === 0) said.push("the client has not sent what it measured itself");
  return said;
}

// --- gaps --------------------------------------------------------------------------------------------------------------

const [WIDTH, HEIGHT, SIDE] = [720, 92, 30];

function strip(record, gaps) {
  const { gap_p50_s: half, gap_p99_s: most, max_gap_s: longest, coalesced_events: together } = record;
  if (longest === undefined) return part("gaps", "Gaps between output events", el("p", { class: "note" }, "None was observed."));
  const count = gaps?.reduce((sum, [, , n]) => sum + n, 0);
  const told = [
    count === undefined ? "" : `${number(count)} gaps: `,
    "half below ", span(half), ", 99 of 100 below ", span(most), ", the longest ", span(longest), ".",
    together ? ` ${number(together)} events came in one read with the one before: no gap is seen there.` : "",
  ];
  return part("gaps", "Gaps between output events", ...(gaps?.length ? [histogram(gaps, { p50: half, p99: most, longest })] : []), el("p", { class: "note" }, ...told));
}

/** How many gaps are how long: lengths on a logarithmic axis, heights by the root of the count, so that one stall shows. */
function histogram(gaps, marks) {
  const [from, to] = [gaps[0][0] / 1.5, Math.max(gaps.at(-1)[1], marks.longest) * 1.5];
  const x = (seconds) => SIDE + (Math.log(seconds / from) / Math.log(to / from)) * (WIDTH - 2 * SIDE);
  const most = Math.sqrt(Math.max(...gaps.map(([, , count]) => count)));
  const [floor, room] = [HEIGHT - 20, HEIGHT - 40];
  const bars = gaps.map(([begin, end, count]) => {
    const height = Math.max((Math.sqrt(count) / most) * room, 2);
    const rect = { class: "gap", x: x(begin), y: floor - height, width: Math.max(x(end) - x(begin) - 1, 1.5), height };
    return draw("rect", rect, draw("title", {}, `${number(count)} between ${time(begin)} and ${time(end)}`));
  });
  const ticks = [];
  for (let decade = Math.ceil(Math.log10(from)); 10 ** decade <= to; decade += 1) {
    for (const digit of [1, 3]) {
      const seconds = digit * 10 ** decade;
      if (seconds > to) continue;
      ticks.push(draw("path", { class: "axis", d: `M${x(seconds)} ${floor}v4` }), draw("text", { class: "tick middle", x: x(seconds), y: HEIGHT - 3 }, `${parseFloat((seconds < 1 ? seconds * 1e3 : seconds).toPrecision(1))} ${seconds < 1 ? "ms" : "s"}`));
    }
  }
  let before = -Infinity;
  const named = Object.entries(marks).filter(([, seconds]) => seconds !== undefined).flatMap(([title, seconds]) => {
    // Names that would run into one another stand further right, their lines where they belong.
    const at = Math.max(x(seconds) + 3, before + 8);
    before = at + title.length * 7;
    return [draw("path", { class: "limit", d: `M${x(seconds)} 14V${floor}` }), draw("text", { class: "limit", x: at, y: 12 }, title)];
  });
  const about = gaps.map(([begin, end, count]) => `${count} from ${time(begin)} to ${time(end)}`).join("; ");
  return draw("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Gaps by length: ${about}` },
    ...bars, draw("path", { class: "axis", d: `M${SIDE} ${floor}H${WIDTH - SIDE}` }), ...ticks, ...named);
}

// --- the rest ----------------------------------------------------------------------------------------------------------

function facts(record) {
  const { connection = {} } = record;
  const tokens = [
    record.input_tokens === undefined ? undefined : `${number(record.input_tokens)} in`,
    record.cached_tokens ? `(${number(record.cached_tokens)} cached)` : undefined,
    record.output_tokens === undefined ? undefined : `${number(record.output_tokens)} out`,
    record.reasoning_tokens ? `(${number(record.reasoning_tokens)} reasoning)` : undefined,
  ].filter(Boolean).join(" ");
  const speed = record.output_tokens_per_second === undefined ? undefined : `${number(record.output_tokens_per_second)} tokens/s after the first`;
  const rows = {
    id: record.id,
    began: record.time,
    request: [record.method, record.path].filter(Boolean).join(" "),
    answer: [record.status, record.finish_reason].filter((value) => value !== undefined).join(", "),
    limit: record.limit,
    "served as": record.response_model,
    read: `${record.dialect}, ${record.endpoint}${record.stream ? ", a stream" : ""}`,
    tokens: tokens || "the provider gave no counts",
    speed,
    events: record.events === undefined ? undefined : `${number(record.events)}, ${number(record.output_events)} with output, in ${number(record.reads)} reads`,
    bytes: `${number(record.request_bytes)} up, ${number(record.response_bytes)} down`,
    attempts: record.attempts,
    connection: connection.reused === undefined ? undefined : `${connection.reused ? "reused" : "new"}, HTTP/${connection.client_version} to the client, HTTP/${connection.upstream_version ?? ABSENT} to the provider`,
    "round trip": connection.upstream_rtt_s === undefined ? undefined : `${time(connection.upstream_rtt_s)} to the provider, ${time(connection.client_rtt_s)} to the client`,
    load: record.load_class?.replace("_up", " and up").replace("_", "–"),
    workload: record.workload,
    "arrivals by": record.stamp && [...new Set(Object.values(record.stamp))].join(", "),
    "mind": record.flags.join(", "),
    trace: record.trace_id,
    session: record.session,
    "provider's id": record.upstream_request_id,
  };
  const told = Object.entries(rows).filter(([, value]) => value !== undefined && value !== "");
  return part("facts", "Facts", el("dl", {}, ...told.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, name(String(value), 300))))));
}
