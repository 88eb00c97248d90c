// The connection to the gauge: server-sent events, read by `fetch`, which can send a token.

/** A page that nobody sees lets go of its connection after this long. */
const UNSEEN_SECONDS = 20;
/** Time to the next attempt: twice the last one, up to this. */
const LONGEST_WAIT_SECONDS = 15;

/**
 * `take` is told each event and its data, `state` how the connection is, `askForToken` that one is wanted, and whether the
 * one that was sent was wrong.
 */
export function listen({ take, state, askForToken }) {
  let connection;
  let wait = 1;
  let unseen;

  async function connect(token) {
    // What no header can carry is no token.
    if (token !== undefined && /[^!-~]/.test(token)) return askForToken(true);
    if (token !== undefined) sessionStorage.setItem("token", token);
    connection?.abort();
    const mine = (connection = new AbortController());
    state("wait", "connecting");
    let said = "";
    try {
      const answer = await fetch("live", { headers: authorization(), signal: mine.signal });
      if (answer.status === 401) {
        const again = sessionStorage.getItem("token") !== null;
        sessionStorage.removeItem("token");
        return askForToken(again);
      }
      if (!answer.ok) said = `: ${(await answer.text()).trim()}`;
      else {
        wait = 1;
        for await (const [event, data] of events(answer.body)) take(event, JSON.parse(data));
      }
    } catch {
      // It has ended, one way or another.
    }
    if (mine.signal.aborted) return;
    state("bad", `no connection${said}; again in ${wait} s`);
    setTimeout(() => { if (mine === connection) connect(); }, wait * 1000);
    wait = Math.min(wait * 2, LONGEST_WAIT_SECONDS);
  }

  function disconnect(said) {
    connection?.abort();
    connection = undefined;
    state("wait", said);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    const gone = () => {
      disconnect("nobody looks");
      document.addEventListener("visibilitychange", () => connect(), { once: true });
    };
    if (document.hidden && connection) unseen = setTimeout(gone, UNSEEN_SECONDS * 1000);
  });
  return { connect, disconnect, authorization };
}

function authorization() {
  const token = sessionStorage.getItem("token");
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** The events of a body, as [event, data]. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let searched = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n", searched)) >= 0; searched = 0) {
      const [, event, data] = /^event: ([^\n]*)\ndata: ([^\n]*)$/.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      if (event) yield [event, data];
    }
    searched = Math.max(text.length - 1, 0);
  }
}
