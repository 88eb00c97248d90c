// How things are shown: numbers with their units, names of strangers, elements.

export const ABSENT = "–";

/** Three digits, or as many as the whole part has. */
export function significant(number) {
  return number.toFixed(number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
}

/** A time in seconds, in the unit that suits it. */
export function time(seconds) {
  if (seconds === undefined) return ABSENT;
  if (seconds < 0) return "−" + time(-seconds);
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return significant(seconds * 1e6) + " µs";
  if (seconds < 1) return significant(seconds * 1e3) + " ms";
  if (seconds < 600) return significant(seconds) + " s";
  if (seconds < 7200) return significant(seconds / 60) + " min";
  return significant(seconds / 3600) + " h";
}

const whole = new Intl.NumberFormat("en");
const timeOfDay = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** A count or a speed. */
export function number(value) {
  if (value === undefined) return ABSENT;
  return Number.isInteger(value) ? whole.format(value) : significant(value);
}

/** A share of one; what is not all is never 100 %, what is not nothing never 0 %. */
export function percent(share) {
  const hundredths = share * 100;
  if (hundredths > 0 && hundredths < 0.1) return "< 0.1 %";
  if (hundredths < 100 && hundredths > 99.9) return "> 99.9 %";
  return hundredths.toFixed(hundredths === 0 || hundredths === 100 ? 0 : 1) + " %";
}

/** The time of day of an instant in seconds since 1970. */
export function clock(seconds) {
  return timeOfDay.format(seconds * 1000);
}

/** A name that may be anything a client sent: nothing of it steers the reading direction, and it has an end. */
export function name(text, longest = 60) {
  if (!text) return ABSENT;
  if (text.length <= longest && /^[ -~]*$/.test(text)) return text;
  const tame = [...text].map((char) => (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(char) ? "\ufffd" : char));
  return tame.length > longest ? tame.slice(0, longest - 1).join("") + "…" : tame.join("");
}

/** An element with these attributes and children; strings become text, never markup. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing's. */
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** A span in seconds with its exact value beside what is shown. */
export function span(seconds) {
  return seconds === undefined ? ABSENT : el("data", { value: seconds }, time(seconds));
}

/** Kinds of stages: look, name, and the stages; as the report has them. */
export const STAGE_KINDS = [
  ["g0", "connecting", ["retry", "dns", "tcp", "tls", "pool_wait"]],
  ["g1", "the client's side", ["upload", "receive", "client_stall"]],
  ["g2", "the gauge's own", ["gateway_request", "gateway_response"]],
  ["g3", "wait for the first output", ["first_output_wait"]],
  ["g4", "generation and tail", ["generation", "tail"]],
];

export function stageKind(stage) {
  return STAGE_KINDS.find(([, , stages]) => stages.includes(stage))?.[0] ?? "g5";
}

/** What each stage is. */
export const STAGES = {
  retry: "an earlier attempt",
  dns: "the provider's name resolved",
  tcp: "connecting to the provider",
  tls: "the handshake with it",
  pool_wait: "waiting for a free connection",
  upload: "the provider did not take the request yet",
  receive: "the request was still arriving",
  gateway_request: "the gauge's own, on the way up",
  first_output_wait: "from the request's departure to the first output",
  generation: "from the first to the last output",
  tail: "from the last output to the response's end",
  client_stall: "the client did not take the rest",
  gateway_response: "the gauge's own, on the way down",
};

/** Kinds of outcomes: look, name, meaning, and the outcomes; as the report has them. */
export const OUTCOME_KINDS = [
  ["k0", "ok", "the protocol's own end was seen", ["complete"]],
  ["k1", "429", "rate limited: 429, or 529", ["rate_limited"]],
  ["k2", "failed", "the provider's: truncated, error event, reset, unreachable, timed out, 5xx",
    ["truncated", "error_event", "upstream_reset", "unreachable", "upstream_timeout", "upstream_5xx"]],
  ["k3", "4xx", "any other 4xx of the provider's", ["upstream_4xx"]],
  ["k4", "client", "the client left, or its request was refused as malformed", ["client_gone", "client_error"]],
  ["k5", "gauge", "refused by the gauge's own limit, cut by its shutdown, or its fault", ["refused", "drained", "gateway_error"]],
];

export function outcomeKind(outcome) {
  return OUTCOME_KINDS.find(([, , , outcomes]) => outcomes.includes(outcome))?.[0] ?? "k5";
}

/** An outcome with a mark of its kind, so that colour is not all that tells it. */
export function outcomeMark(outcome) {
  const marks = { k0: "✓", k1: "◔", k2: "✕", k3: "✕", k4: "↩", k5: "■" };
  const kind = outcomeKind(outcome);
  return el("span", { class: "outcome" }, el("i", { class: kind + "-ink", "aria-hidden": "true" }, marks[kind]), " " + name(outcome));
}

/** Colours of the stages' looks. */
const COLOURS = { g0: "--h0", g1: "--h1", g2: "--h2", g3: "--h3", g4: "--h4", g5: "--h5" };

/** Stages side by side in one element, painted: hundreds of them are shown. */
export function painted(parts, says) {
  const sum = parts.reduce((sum, part) => sum + part.length, 0);
  let from = 0;
  const stops = parts.filter((part) => part.length > 0).map(({ look, length }) => {
    const begin = from;
    from += (length / sum) * 100;
    return `var(${COLOURS[look]}) ${begin.toFixed(2)}% ${from.toFixed(2)}%`;
  });
  const element = el("span", { class: "bar", role: "img", "aria-label": says, title: says });
  if (stops.length > 0) element.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  return element;
}

/** Parts of one bar side by side: each its look, its length and what it says. */
export function bar(parts, label) {
  const whole = parts.reduce((sum, part) => sum + part.length, 0);
  const drawn = parts.filter((part) => part.length > 0).map((part) => {
    const piece = el("i", { class: part.look, title: part.says });
    piece.style.flexGrow = whole > 0 ? part.length / whole : 0;
    return piece;
  });
  return el("span", { class: "bar", role: "img", "aria-label": label }, ...drawn);
}
