// What of it is to be shown.

let filter = { words: "", upstream: "", model: "", outcome: "" };

/** Takes what is chosen and written. */
export function readFilter() {
  const value = (id) => document.getElementById(id).value;
  filter = { words: value("words").trim().toLowerCase(), upstream: value("upstream"), model: value("model"), outcome: value("outcome") };
}

/** Whether a record, or one in flight, is shown. */
export function lets(record) {
  const { words, outcome } = filter;
  return letsPair(record) && (!outcome || record.outcome === outcome) && (!words || textOf(record).includes(words));
}

/** Whether this upstream and model are. */
export function letsPair(record) {
  const { upstream, model } = filter;
  return (!upstream || record.upstream === upstream) && (!model || record.model === model);
}

function textOf(record) {
  const { id, upstream, model, outcome, doing, response_model, finish_reason, path, trace_id, session, flags = [] } = record;
  return [id, upstream, model, outcome, doing, response_model, finish_reason, path, trace_id, session, ...flags].join("\n").toLowerCase();
}
