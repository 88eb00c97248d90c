// The live page: reads events of the gauge, keeps the last exchanges, shows what the filter lets through.

import { detail } from "./detail.js";
import { listen } from "./feed.js";
import { lets, letsPair, readFilter } from "./filter.js";
import { plot } from "./plot.js";
import { ABSENT, OUTCOME_KINDS, STAGE_KINDS, bar, clock, el, name, number, outcomeMark, painted, stageKind, time } from "./show.js";

/** Rows, and exchanges that dots are made of. */
const ROWS = 500;
const DOTS = 4000;
/** How far back drawings reach: the first that holds every dot. */
const REACHES = [60, 120, 300, 600];
/** Rows are made for so many milliseconds in one go, which would hold up typing, and some in any case. */
const AT_ONCE_MS = 10;
const AT_ONCE = 20;
/** And shown so many together: each time, the whole page is laid out and painted. */
const TOGETHER = 150;
/** Drawings are made anew after so many. */
const DRAWN_MS = 2000;
const LIMITS = [0.3, 0.6, 1];

const at = (id) => document.getElementById(id);

/** Exchanges that have ended, newest first: {record, began, row, opened}. */
let past = [];
/** By id. */
const known = new Map();
/** Ended and not shown yet, oldest first. */
let queue = [];
/** The newest look at what is in flight and at the last minutes. */
let now = { pairs: [], running: [], time: Date.now() / 1000 };
/** When the gauge started. */
let running;
let dirty = true;

// --- what the gauge says ------------------------------------------------------------------------------------------------

const feed = listen({ take, state, askForToken });

function take(event, data) {
  if (event === "begin") begin(data);
  else if (event === "exchanges") {
    // A new connection begins with what an earlier one may have told already.
    const queued = new Set(queue.map(({ id }) => id));
    queue.push(...data.reverse().filter(({ id }) => !known.has(id) && !queued.has(id)));
  }
  else if (event === "now") {
    now = data;
    state(data.ready ? "good" : "wait", data.ready ? "live" : "live; takes no requests: starting or draining");
  }
  dirty = true;
  wake();
}

function state(look, said) {
  at("state").className = look;
  at("state").textContent = said;
}

function askForToken(again) {
  state("bad", "a token is wanted");
  at("asked").textContent = again ? "That is not the token." : "";
  at("ask").hidden = false;
  at("token").value = "";
  at("token").focus();
}

function begin({ started, version }) {
  at("ask").hidden = true;
  at("state").title = `version ${version}, running since ${new Date(started * 1000).toLocaleString("en-GB")}`;
  // Another process knows nothing of the exchanges of the one before it.
  if (running !== undefined && running !== started) {
    known.clear();
    past = [];
    queue = [];
    fresh.replaceChildren();
    at("past").replaceChildren();
  }
  running = started;
}

// --- what is shown -----------------------------------------------------------------------------------------------------

let woken = false;
let drawn = -Infinity;

/** Shows what is new with the next picture, a few rows at a time. */
function wake() {
  if (woken) return;
  woken = true;
  requestAnimationFrame(() => {
    woken = false;
    if (dirty) showLook();
    dirty = false;
    queue.splice(0, queue.length - DOTS);
    if (!held()) {
      makeRows(performance.now() + AT_ONCE_MS);
      if (queue.length === 0 || fresh.childElementCount >= TOGETHER) addRows();
      if (queue.length > 0) return later(wake);
    }
    showShown();
    if (performance.now() < drawn + DRAWN_MS) return;
    drawn = performance.now();
    later(showPlots);
    later(showOptions);
  });
}

function showLook() {
  showTotals();
  showNow();
  showRunning();
}

/** Whether somebody points at a row or reads one, which must not run away then. */
function held() {
  if (past.length === 0) return false;
  return at("exchanges").matches(":hover") || past.some(({ opened }) => opened && !opened.hidden);
}

/** In a task of its own, so that no task is long. */
function later(work) {
  setTimeout(work, 0);
}

/** Rows that are made and not there yet. */
const fresh = document.createDocumentFragment();

/** Makes rows of the oldest that wait, until it is that late. */
function makeRows(until) {
  for (let made = 0; queue.length > 0 && (made < AT_ONCE || performance.now() < until); made += 1) {
    const record = queue.shift();
    if (known.has(record.id)) continue;
    const exchange = { record, began: beganAt(record) };
    exchange.row = pastRow(exchange);
    known.set(record.id, exchange);
    past.unshift(exchange);
    fresh.prepend(exchange.row);
  }
}

/** Shows them. */
function addRows() {
  const added = fresh.childElementCount;
  if (added === 0) return;
  at("past").prepend(fresh);
  past.slice(ROWS, ROWS + added).forEach(dropRow);
  for (const { record } of past.splice(DOTS)) known.delete(record.id);
  keepOneInTabOrder();
}

/** Of an exchange that is no longer among the last ones; not while it is opened. */
function dropRow(exchange) {
  if (exchange.opened) return;
  exchange.row?.remove();
  exchange.row = undefined;
}

/** Seconds since 1970. */
function beganAt(record) {
  return Date.parse(record.time) / 1000;
}

function pastRow(exchange) {
  const { record, began } = exchange;
  const stages = Object.entries(record.stages_s);
  const parts = stages.map(([stage, seconds]) => ({ look: stageKind(stage), length: seconds }));
  const most = stages.reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0]);
  const row = line([
    clock(began), name(record.upstream, 40), name(record.model, 80), outcomeMark(record.outcome),
    time(record.ttft_s), number(record.output_tokens_per_second), number(record.output_tokens), time(record.wall_s),
    painted(parts, `mostly ${most[0]}: ${time(most[1])}`),
  ]);
  row.setAttribute("aria-expanded", "false");
  row.dataset.id = record.id;
  row.hidden = !lets(record);
  return row;
}

const COLUMNS = ["time", "upstream", "model", "outcome", "number ttft", "number speed", "number tokens", "number wall", "where"];

/** A row of these cells. */
function line(cells) {
  const shown = cells.map((cell, column) => {
    const made = el("span", { role: "gridcell", class: COLUMNS[column] }, cell);
    if (column === 1 || column === 2) made.title = made.textContent;
    return made;
  });
  return el("div", { role: "row", class: "row", tabindex: "-1" }, ...shown);
}

const DOING = { sending: "sending", waiting: "waiting", streaming: "streaming", answering: "no stream", tunnel: "tunnel" };

/** Rows of those in flight, newest first, kept by key so that the focus stays. */
function showRunning() {
  const here = new Map([...at("running").children].map((row) => [row.dataset.key, row]));
  const hold = at("exchanges").matches(":hover") && here.size > 0;
  const rows = now.running.filter(lets).reverse().filter(({ key }) => !hold || here.has(key)).map((exchange) => {
    const { key, upstream, model, doing, age_s: age, sent_s: sent, ttft_s: ttft } = exchange;
    const before = sent === undefined ? age : age - sent;
    const waited = ttft ?? (doing === "waiting" || doing === "answering" ? sent : 0) ?? 0;
    const parts = [
      { look: "g5", length: before },
      { look: "g3", length: waited },
      { look: "g4", length: ttft === undefined ? 0 : age - before - ttft },
    ];
    const row = line([
      el("em", {}, "now"), name(upstream, 40), name(model, 80),
      el("span", { class: "outcome" }, el("i", { class: `doing ${doing}`, "aria-hidden": "true" }, "●"), ` ${DOING[doing]}`),
      ttft === undefined && doing === "waiting" ? el("em", {}, `${time(sent)} …`) : time(ttft),
      ABSENT, ABSENT, el("em", {}, `${time(age)} …`), painted(parts, `${time(before)} before its departure, ${time(waited)} waiting for output`),
    ]);
    row.dataset.key = key;
    const old = here.get(key);
    if (!old) return row;
    old.replaceChildren(...row.children);
    return old;
  });
  if (hold) {
    for (const row of here.values()) row.classList.toggle("over", !rows.includes(row));
  } else {
    // Moved only where they are not in their place: a row that is taken out loses the focus.
    for (const row of here.values()) if (!rows.includes(row)) row.remove();
    rows.forEach((row, place) => {
      const there = at("running").children[place];
      if (there !== row) at("running").insertBefore(row, there ?? null);
    });
  }
  keepOneInTabOrder();
}

function showTotals() {
  at("in-flight").textContent = number(now.in_flight ?? 0);
  at("oldest").textContent = now.oldest_wait_s === undefined ? ABSENT : time(now.oldest_wait_s);
  if (now.window_s === undefined) return;
  const minutes = now.window_s / 60;
  at("ended-name").textContent = now.forgotten ? `ended in ${time(now.reaches_s)}` : `ended in ${minutes} min`;
  at("ended").textContent = number(now.exchanges);
  const more = now.pairs_left_out > 0 ? ` Pairs with less traffic are left out: ${number(now.pairs_left_out)}.` : "";
  at("window").textContent = (now.forgotten
    ? `Of the last ${number(now.exchanges)} exchanges, which ended in ${time(now.reaches_s)}: more are not remembered (admin.recent). Beside each number is how many it is made of.`
    : `Of the ${number(now.exchanges)} exchanges that ended in the last ${minutes} minutes. Beside each number is how many it is made of.`) + more;
}

function showNow() {
  const rows = now.pairs.filter(letsPair).map((pair) => {
    const { upstream, model, in_flight: running, oldest_wait_s: oldest, ttft_s: ttft, output_tokens_per_second: speed, overhead_s: overhead } = pair;
    const outcomes = Object.entries(pair.outcomes);
    const parts = OUTCOME_KINDS.map(([look, kind, , those]) => {
      const length = outcomes.filter(([outcome]) => those.includes(outcome)).reduce((sum, [, n]) => sum + n, 0);
      return { look, length, says: `${kind}: ${length}` };
    });
    const told = outcomes.sort((a, b) => b[1] - a[1]).map(([outcome, n]) => `${number(n)} ${outcome}`).join(" · ");
    return el("tr", {},
      el("th", { scope: "row", title: name(upstream, 200) }, name(upstream, 40)),
      el("td", { class: "model", title: name(model, 200) }, name(model, 80)),
      figure("in flight", number(running)),
      figure("oldest wait", oldest === undefined ? ABSENT : time(oldest)),
      figure("TTFT p50", time(ttft.p50), ttft.n),
      figure("p99", time(ttft.p99), ttft.n, ttft.n < 100 ? "largest" : undefined),
      figure("tokens/s p50", number(speed.p50), speed.n),
      figure("overhead p50", time(overhead.p50), overhead.n),
      el("td", { class: "outcomes", "data-name": "outcomes" }, bar(parts, told || "none ended"), el("small", {}, told)));
  });
  const nothing = el("tr", {}, el("td", { colspan: "9", class: "note" }, now.pairs.length > 0 ? "The filter lets none through." : "No exchange yet. Send a request through the gauge, and it shows here."));
  at("now").tBodies[0].replaceChildren(...(rows.length > 0 ? rows : [nothing]));
}

/** A number under its name, with how many it is made of. */
function figure(title, shown, n, more) {
  const under = n === undefined || n === 0 ? "" : `n = ${number(n)}${more ? `, ${more}` : ""}`;
  return el("td", { class: "number", "data-name": title }, el("b", {}, shown), el("small", {}, under));
}

const plots = {
  ttft: plot(at("ttft"), {
    title: "Time to first token", unit: "TTFT", show: time, limits: LIMITS, open: openRecord,
    note: "Each mark is a stream, where its first output came. Lines are medians, a twentieth of the width each. Dashed: below feels instant, fine, noticed.",
  }),
  speed: plot(at("speed"), {
    title: "Output speed", unit: "tokens/s", show: number, limits: [], open: openRecord,
    note: "Tokens per second after the first, of streams whose provider counted them. Each mark is one, where it ended.",
  }),
};

function showPlots() {
  const farthest = REACHES.at(-1);
  let oldest = now.time;
  const series = { ttft: new Map(), speed: new Map() };
  const add = (of, record, at, value) => {
    if (value === undefined || value <= 0 || at < now.time - farthest) return;
    oldest = Math.min(oldest, at);
    const title = `${name(record.upstream, 24)} ${name(record.model, 32)}`;
    if (!series[of].has(title)) series[of].set(title, []);
    series[of].get(title).push({ at, value, record });
  };
  for (const { record, began } of [...queue.map((record) => ({ record, began: beganAt(record) })).reverse(), ...past]) {
    if (began + record.wall_s < now.time - 2 * farthest) break;
    if (!lets(record)) continue;
    add("ttft", record, began + (record.client_ttft_s ?? record.ttft_s), record.ttft_s);
    add("speed", record, began + record.wall_s, record.output_tokens_per_second);
  }
  const reach = REACHES.find((seconds) => seconds >= now.time - oldest) ?? farthest;
  for (const of of Object.keys(plots)) {
    const sorted = [...series[of]].sort(([a], [b]) => (a < b ? -1 : 1));
    plots[of](sorted.map(([title, points]) => ({ title, points })), now.time, reach);
  }
}

// --- the filter --------------------------------------------------------------------------------------------------------

function refilter() {
  readFilter();
  for (const { record, row, opened } of past.slice(0, ROWS)) {
    if (!row) continue;
    row.hidden = !lets(record);
    if (opened) opened.hidden = row.hidden;
  }
  keepOneInTabOrder();
  dirty = true;
  drawn = -Infinity;
  wake();
}

/** What can be chosen: what there is. */
function showOptions() {
  const there = (key) => [...new Set([...now.pairs.map((pair) => pair[key]), ...past.map(({ record }) => record[key])])].filter(Boolean).sort();
  for (const key of ["upstream", "model", "outcome"]) {
    const select = at(key);
    const wanted = there(key).slice(0, 200);
    const has = [...select.options].slice(1).map((option) => option.value);
    if (wanted.join("\n") === has.join("\n")) continue;
    const chosen = select.value;
    if (chosen && !wanted.includes(chosen)) wanted.push(chosen);
    select.replaceChildren(select.options[0], ...wanted.map((value) => el("option", { value }, name(value))));
    select.value = chosen;
  }
}

function showShown() {
  const newer = queue.length + fresh.childElementCount;
  at("newer").hidden = newer === 0 || !held();
  at("newer").textContent = `${number(newer)} newer: show`;
  const rows = past.slice(0, ROWS);
  const shown = rows.filter(({ record }) => lets(record)).length;
  const cut = now.in_flight > now.running.length ? `; of ${number(now.in_flight)} in flight the ${now.running.length} oldest` : "";
  at("shown").textContent = rows.length === 0
    ? "Those that end while the page is open appear here."
    : `${shown === rows.length ? "The" : `${number(shown)} of the`} last ${number(rows.length)} that ended${cut}. Open one for its time line.`;
}

// --- opening and moving ------------------------------------------------------------------------------------------------

function toggle(row) {
  const exchange = known.get(row.dataset.id);
  if (!exchange) return;
  if (exchange.opened) return close(exchange);
  exchange.opened = el("div", { role: "row", class: "opened" });
  show(exchange, exchange.record, undefined);
  row.after(exchange.opened);
  row.setAttribute("aria-expanded", "true");
  refresh(exchange);
}

function show(exchange, record, gaps) {
  exchange.opened?.replaceChildren(el("div", { role: "gridcell", "aria-label": `exchange ${record.id}` }, detail(record, gaps)));
}

/** The record may have grown since: clients send their own times afterwards. And only now its gaps are asked for. */
async function refresh(exchange) {
  try {
    const answer = await fetch(`exchange?id=${exchange.record.id}`, { headers: feed.authorization() });
    const found = answer.ok ? await answer.json() : null;
    if (found) show(exchange, found.record, found.gaps);
  } catch {
    // What is shown stays.
  }
}

function close(exchange) {
  exchange.opened.remove();
  exchange.opened = undefined;
  exchange.row.setAttribute("aria-expanded", "false");
  if (past.indexOf(exchange) >= ROWS) dropRow(exchange);
}

function openRecord({ id }) {
  const exchange = known.get(id);
  if (!exchange?.row?.isConnected) return;
  if (!exchange.opened) toggle(exchange.row);
  focusRow(exchange.row);
  exchange.row.scrollIntoView({ block: "center" });
}

const rowsShown = () => [...at("exchanges").querySelectorAll("#running > .row, #past > .row:not([hidden])")];

/** Tab goes to one row, arrows to the others. */
function keepOneInTabOrder() {
  const current = at("exchanges").querySelector('.row[tabindex="0"]:not([hidden])');
  if (current) return;
  at("exchanges").querySelector("#running > .row, #past > .row:not([hidden])")?.setAttribute("tabindex", "0");
}

function focusRow(row) {
  for (const other of at("exchanges").querySelectorAll('.row[tabindex="0"]')) other.tabIndex = -1;
  row.tabIndex = 0;
  row.focus({ preventScroll: false });
}

function onGridKey(event) {
  const row = event.target.closest(".row, .opened");
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const own = row.classList.contains("opened") ? row.previousElementSibling : row;
  const rows = rowsShown();
  const place = rows.indexOf(own);
  const exchange = known.get(own.dataset.id);
  const steps = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: rows.length - 1, PageDown: place + 10, PageUp: place - 10 };
  if (event.key in steps) focusRow(rows[Math.min(Math.max(steps[event.key], 0), rows.length - 1)]);
  else if (event.key === "Enter" || event.key === " ") toggle(own);
  else if (event.key === "ArrowRight" && exchange && !exchange.opened) toggle(own);
  else if ((event.key === "Escape" || event.key === "ArrowLeft") && exchange?.opened) {
    close(exchange);
    focusRow(own);
  } else return;
  event.preventDefault();
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const typing = event.target.matches?.("input, select, textarea");
  if (event.key === "Escape" && event.target === at("words")) {
    at("words").value = "";
    refilter();
    at("exchanges").querySelector('.row[tabindex="0"]')?.focus();
  } else if (typing) return;
  else if (event.key === "/") at("words").focus();
  else if (event.key === "p") at("pause").click();
  else return;
  event.preventDefault();
}

function setPaused(paused) {
  at("pause").textContent = paused ? "Go on" : "Pause";
  at("pause").setAttribute("aria-pressed", String(paused));
  if (paused) feed.disconnect("paused");
  else feed.connect();
}

// --- begin -------------------------------------------------------------------------------------------------------------

at("stages").append(...STAGE_KINDS.map(([look, kind, stages]) => el("li", { title: stages.join(", ") }, el("i", { class: `patch ${look}` }), kind)));
for (const key of ["words", "upstream", "model", "outcome"]) at(key).addEventListener("input", refilter);
at("filter").addEventListener("reset", () => later(refilter));
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("exchanges").addEventListener("keydown", onGridKey);
at("exchanges").addEventListener("click", (event) => {
  const row = event.target.closest("#past > .row");
  // Who marks text in a row to copy it does not want it opened.
  const marked = getSelection();
  if (!row || (!marked.isCollapsed && row.contains(marked.anchorNode))) return;
  focusRow(row);
  toggle(row);
});
document.addEventListener("keydown", onKey);
at("exchanges").addEventListener("mouseleave", wake);
at("newer").addEventListener("click", () => {
  past.filter(({ opened }) => opened).forEach(close);
  at("newer").blur();
  dirty = true;
  makeRows(Infinity);
  addRows();
  wake();
});
at("pause").addEventListener("click", () => setPaused(at("pause").getAttribute("aria-pressed") === "false"));
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  feed.connect(at("token").value.trim());
});
showPlots();
feed.connect();
