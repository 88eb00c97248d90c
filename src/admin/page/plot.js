// Dots over the last minutes, one shape and colour per upstream and model, with medians as lines.

import { draw, el } from "./show.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [560, 250, 62, 52, 24, 26];
const SERIES = 6;
/** Medians across the drawing. */
const BUCKETS = 20;
/** How near the pointer must come to a dot, in units of the drawing. */
const REACH = 16;

/**
 * A figure that can be drawn again and again. `show` makes text of a number, `limits` are lines across, `open` is told of
 * the record whose dot was clicked.
 */
export function plot(figure, { title, unit, note, show, limits, open }) {
  const svg = draw("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const [legend, tip] = [el("ul", { class: "legend" }), el("p", { class: "tip", hidden: "" })];
  figure.append(el("figcaption", {}, title), svg, legend, el("p", { class: "note" }, note), tip);
  let dots = [];

  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT];
    let found, least = REACH * REACH;
    for (const dot of dots) {
      const far = (dot.x - x) ** 2 + (dot.y - y) ** 2;
      if (far < least) [found, least] = [dot, far];
    }
    return found;
  };
  svg.addEventListener("pointermove", (event) => {
    const dot = nearest(event);
    tip.hidden = !dot;
    svg.classList.toggle("points", Boolean(dot));
    if (!dot) return;
    tip.textContent = `${dot.series}: ${show(dot.value)}`;
    tip.style.left = `${Math.min(dot.x / WIDTH, 0.62) * 100}%`;
    tip.style.top = `${svg.offsetTop + (dot.y / HEIGHT) * svg.clientHeight - 38}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  svg.addEventListener("click", (event) => {
    const dot = nearest(event);
    if (dot) open(dot.record);
  });

  /** Draws `series`, each `{title, points: [{at, value, record}]}`, from `reach` seconds ago until `now`; in seconds since 1970. */
  return (series, now, reach) => {
    const shown = series.filter(({ points }) => points.length > 0);
    const drawn = shown.slice(0, SERIES);
    const values = drawn.flatMap(({ points }) => points.map((point) => point.value));
    const axis = logAxis(values, limits);
    const x = (at) => LEFT + (1 - Math.min(Math.max((now - at) / reach, 0), 1)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - BOTTOM - TOP);

    const parts = frame(axis, x, y, now, reach, unit, show, limits);
    dots = [];
    drawn.forEach((one, index) => {
      let path = "";
      for (const { at, value, record } of one.points) {
        const dot = { x: x(at), y: y(value), value, record, series: one.title };
        dots.push(dot);
        path += shape(index, dot.x, dot.y, 2.4);
      }
      parts.push(draw("path", { class: `cloud s${index}`, d: path }));
      parts.push(draw("path", { class: `line s${index}`, d: curve(medians(one.points, now, reach / BUCKETS), x, y) }));
    });
    if (values.length === 0) parts.push(text("name middle", WIDTH / 2, HEIGHT / 2, "nothing yet"));
    svg.replaceChildren(...parts);
    svg.setAttribute("aria-label", about(title, drawn, show));
    legend.replaceChildren(...drawn.map((one, index) => el("li", {}, swatch(index), `${one.title}, n = ${one.points.length}`)));
    if (shown.length > SERIES) legend.append(el("li", {}, `${shown.length - SERIES} more are not drawn: filter for them`));
  };
}

function about(title, drawn, show) {
  const told = drawn.map(({ title, points }) => `${title}: median ${show(median(points))}, ${points.length} dots`);
  return `${title}. ${told.join("; ") || "nothing yet"}`;
}

function frame(axis, x, y, now, reach, unit, show, limits) {
  const [right, floor] = [WIDTH - RIGHT, HEIGHT - BOTTOM];
  const parts = [];
  for (const tick of axis.ticks) {
    parts.push(line("grid", LEFT, y(tick), right, y(tick)), text("tick end", LEFT - 6, y(tick) + 4, round(show(tick))));
  }
  for (const share of [1, 0.8, 0.6, 0.4, 0.2, 0]) {
    const at = x(now - share * reach);
    const ago = reach < 300 ? `${share * reach} s` : `${(share * reach) / 60} min`;
    parts.push(line("grid", at, TOP, at, floor));
    parts.push(text("tick middle", at, HEIGHT - 8, share === 0 ? "now" : share === 1 ? `${ago} ago` : ago));
  }
  for (const limit of limits.filter((limit) => limit >= axis.from && limit <= axis.to)) {
    parts.push(line("limit", LEFT, y(limit), right, y(limit)), text("limit start", right + 4, y(limit) + 4, round(show(limit))));
  }
  return [...parts, line("axis", LEFT, floor, right, floor), text("name start", 4, 12, unit)];
}

/** A logarithmic axis around these values. */
function logAxis(values, limits) {
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [limits[0] ?? 10, limits.at(-1) ?? 100];
  const steps = [];
  for (let decade = Math.floor(Math.log10(least)); decade <= Math.ceil(Math.log10(most)); decade += 1) {
    steps.push(...[1, 2, 5].map((digit) => Number(`${digit}e${decade}`)));
  }
  const from = steps.findLast((step) => step <= least) ?? least;
  const to = steps.find((step) => step >= most && step > from) ?? most;
  let ticks = steps.filter((step) => step >= from && step <= to);
  if (ticks.length > 8) ticks = ticks.filter((tick) => /^1e|^10*$|^0\.0*1$/.test(String(tick)));
  return { from, to, ticks, place: (value) => Math.log10(value / from) / Math.log10(to / from) };
}

export function median(points) {
  const sorted = points.map((point) => point.value).sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length / 2) - 1];
}

/** The median of each span of this width that has dots, by the middle of it. */
function medians(points, now, width) {
  const buckets = new Map();
  for (const point of points) {
    const bucket = Math.floor(point.at / width);
    if (!buckets.has(bucket)) buckets.set(bucket, []);
    buckets.get(bucket).push(point);
  }
  const middle = (bucket) => Math.min((bucket + 0.5) * width, now);
  return [...buckets].sort(([a], [b]) => a - b).map(([bucket, inside]) => ({ bucket, at: middle(bucket), value: median(inside) }));
}

/** A line that breaks where nothing was. */
function curve(points, x, y) {
  let before;
  return points.map(({ bucket, at, value }) => {
    const begins = before === undefined || bucket > before + 1;
    before = bucket;
    return `${begins ? "M" : "L"}${unit(x(at))} ${unit(y(value))}`;
  }).join("");
}

/** The outline of a series' mark: circle, square, triangle, diamond, cross, bar. So that colour is not all. */
function shape(series, x, y, size) {
  const m = (dx, dy) => `M${unit(x + dx * size)} ${unit(y + dy * size)}`;
  const whole = 2 * size;
  switch (series) {
    case 0: return `${m(-1, 0)}a${size} ${size} 0 1 0 ${whole} 0a${size} ${size} 0 1 0 -${whole} 0`;
    case 1: return `${m(-1, -1)}h${whole}v${whole}h-${whole}z`;
    case 2: return `${m(0, -1)}l${size} ${whole}h-${whole}z`;
    case 3: return `${m(0, -1)}l${size} ${size}l-${size} ${size}l-${size} -${size}z`;
    case 4: return `${m(-1, -1)}l${whole} ${whole}${m(1, -1)}l-${whole} ${whole}`;
    default: return `${m(-1, 0)}h${whole}${m(0, -1)}v${whole}`;
  }
}

function swatch(series) {
  return draw("svg", { class: "swatch", viewBox: "0 0 34 14", "aria-hidden": "true" },
    draw("path", { class: `line s${series}`, d: "M1 7L33 7" }),
    draw("path", { class: `mark s${series}`, d: shape(series, 17, 7, 4.2) }));
}

function line(look, x1, y1, x2, y2) {
  return draw("path", { class: look, d: `M${unit(x1)} ${unit(y1)}L${unit(x2)} ${unit(y2)}` });
}

function text(look, x, y, said) {
  return draw("text", { class: look, x: unit(x), y: unit(y) }, said);
}

/** A number that has no other digits needs none behind its point. */
function round(said) {
  return said.replace(/\.0+(?= |$)/, "");
}

/** A tenth of a unit is finer than anybody sees. */
function unit(number) {
  return Math.round(number * 10) / 10;
}
