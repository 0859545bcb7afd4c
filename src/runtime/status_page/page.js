"use strict";
// The TrafficWatches. What it shares with the other page is in shared.js.

const PERIOD = 5000; // between two questions
const PATIENCE = 10000; // for one answer
const ALL_NODES = 5000; // the most that the server gives
const FIT_SHOWN = 10; // fit nodes per watch, until asked for more: what is wrong comes first

// Told apart by sign and word, not by color alone; in the order in which they need attention.
const STATES = [
  { name: "Unfit", sign: "▲", says: "above a threshold: pods are kept off" },
  { name: "Suppressed", sign: "◆", says: "above a threshold, but left fit: the limit of unfit nodes is reached" },
  { name: "Unknown", sign: "?", says: "no evidence now: the label stays as it is" },
  { name: "Fit", sign: "●", says: "below every threshold" },
];
const SIGNS = Object.fromEntries(STATES.map((state) => [state.name, state.sign]));
const REASONS = {
  NoSample: "Prometheus has no series of this node",
  ExporterDown: "the node exporter does not answer",
  NoDevice: "no device of the node matches spec.devices",
  SpeedUnknown: "link speed not known: set spec.capacity or annotate the node",
  InvalidSample: "the sample is NaN, negative or contradictory",
  StaleSample: "the newest sample is too old",
  PartialWindow: "samples cover the window only partly: there may be more load than is seen",
  InvalidCapacity: "the capacity is no quantity, or far below the load",
  LowCoverage: "fewer than half of the nodes have data",
  MetricsUnavailable: "no answer from Prometheus",
};

const parameters = new URLSearchParams(location.search);
const wanted = { text: parameters.get("q") ?? "", state: parameters.get("state") ?? "", limit: 0 };
const sections = new Map(); // what is on the page, by watch
let view = null; // the last answer
let answeredAt = 0; // when it came, on the page's own clock
let failure = ""; // why there was none since
let timer = 0;
let asking = false;

// --- Words ------------------------------------------------------------------------------------

const parse = (time) => Date.parse(time.replace(/(\.\d{3})\d+/, "$1"));
const now = () => parse(view.now) + (performance.now() - answeredAt);

function inUnit(value, unit, exact) {
  const size = Math.abs(value);
  if (unit === "percent") {
    // A threshold is shown as its author wrote it, a measurement as exactly as a person reads it.
    if (exact) return `${value.toLocaleString("en", { maximumSignificantDigits: 6 })} %`;
    if (size > 0 && size < 0.0005) return "< 0.001 %";
    return `${rounded(value, size >= 9.95 ? 1 : size >= 0.995 ? 2 : 3)} %`;
  }
  const three = { maximumSignificantDigits: exact ? 6 : 3 };
  if (unit === "bits_per_second") {
    const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let step = 0;
    let scaled = value;
    while (Math.abs(scaled) >= 999.5 && step < units.length - 1) {
      scaled /= 1000;
      step += 1;
    }
    return `${scaled.toLocaleString("en", three)} ${units[step]}`;
  }
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(exact ? 5 : 2);
  return value.toLocaleString("en", { maximumSignificantDigits: exact ? 6 : 4 });
}

const nodes = (count) => `${rounded(count, 0)} ${count === 1 ? "node" : "nodes"}`;
const inWords = (reason) => (REASONS[reason] ? `${reason}: ${REASONS[reason]}` : reason);
const keyOf = (watch) => `${watch.namespace}/${watch.name}`;

// --- Elements ---------------------------------------------------------------------------------

function time(stamp, lead, tail) {
  const made = el("time", { datetime: stamp, title: stamp });
  Object.assign(made, { at: parse(stamp), lead, tail });
  tell(made);
  return made;
}

function tell(made) {
  const text = `${made.lead}${span(now() - made.at)}${made.tail}`;
  if (made.textContent !== text) made.textContent = text;
}

const badge = (state) => el("span", { class: `badge ${state}` }, `${SIGNS[state] ?? ""} ${state}`);

function bar(value, measure, over) {
  // The threshold stands at three quarters, so that there is room to be above it.
  const place = (number) => `${Math.min(100, Math.max(0, (number / measure.max) * 75))}%`;
  const made = el("div", { class: "bar", "aria-hidden": "true" });
  for (const [name, number] of [["fill", value], ["recover", measure.recover], ["max", measure.max]]) {
    const part = el("i", { class: name === "fill" && over ? "fill over" : name });
    if (name === "fill") part.style.width = place(number);
    else part.style.left = place(number);
    made.append(part);
  }
  return made;
}

function measured(value, measure) {
  const notes = [];
  const told = value.value !== null && value.value !== undefined;
  const over = told && value.value > measure.max;
  const line = el("span", { class: "value" });
  if (told) {
    const number = el("b", { class: over ? "over" : "" }, `${over ? "▲ " : ""}${inUnit(value.value, measure.unit)}`);
    line.append(number, ` / ${inUnit(measure.max, measure.unit, true)}`, el("span", { class: "said" }, over ? ", above" : ", not above"));
  } else {
    line.append(`no value / ${inUnit(measure.max, measure.unit, true)}`);
  }
  if (value.device) notes.push(value.device);
  if (value.unfit && told && !over && value.value > measure.recover) {
    notes.push(`fit again at ${inUnit(measure.recover, measure.unit, true)}`);
  }
  if (value.streak > 0) notes.push(`${value.streak} of ${value.needed} to ${value.unfit ? "fit" : "unfit"}`);
  if (value.reason) notes.push(`${told ? "last known value; " : ""}${inWords(value.reason)}`);
  const made = el("div", { class: value.reason ? "old" : "" }, line);
  if (told && measure.max > 0) made.append(bar(value.value, measure, over));
  if (notes.length > 0) made.append(el("small", null, notes.join(" · ")));
  return made;
}

// --- One watch --------------------------------------------------------------------------------

function verdict(watch) {
  const { nodes: all, unfit, suppressed, unknown } = watch.summary;
  if (watch.paused) return "Paused: nothing is judged, labels stay as they are.";
  if (all === 0) return "No node is selected.";
  const parts = [];
  if (unfit > 0) parts.push(`${unfit} of ${nodes(all)} unfit${watch.mode === "Observe" ? " (not written: mode Observe)" : ""}`);
  if (suppressed > 0) parts.push(`${suppressed} above a threshold but left fit, because only ${rounded(watch.limit, 0)} may be unfit at once`);
  if (unknown > 0) parts.push(`${unknown} without evidence`);
  return parts.length > 0 ? `${parts.join("; ")}.` : `All ${nodes(all)} fit.`;
}

function cells(node, watch) {
  const label = `label unfit=${node.unfit}`;
  const state = el("td", { role: "cell" }, badge(node.state));
  if (node.state === "Suppressed" || node.state === "Unknown") state.append(el("small", null, label));
  const made = [el("th", { scope: "row", role: "rowheader" }, node.name), state];
  for (const measure of watch.measures) {
    const value = node.values.find((one) => one.measure === measure.name);
    const cell = el("td", { role: "cell", "data-caption": measure.name });
    cell.append(value ? measured(value, measure) : "no value");
    made.push(cell);
  }
  const reason = el("td", { role: "cell", class: node.reason ? "why" : "none", "data-caption": "reason" });
  // What a measure says itself is not explained twice.
  if (node.reason) reason.append(node.values.some((one) => one.reason === node.reason) ? node.reason : inWords(node.reason));
  made.push(reason, el("td", { role: "cell", "data-caption": "since" }, time(node.since, "", " ago")));
  return made;
}

function section(watch) {
  const part = (tag, name) => el(tag, { class: name });
  const made = {
    root: el("section", { class: "watch", id: `watch-${keyOf(watch)}` }),
    head: part("h2", "name"), verdict: part("p", "verdict"), facts: part("p", "facts"), problems: part("div", "problems"),
    columns: el("thead", { role: "rowgroup" }), body: el("tbody", { role: "rowgroup" }), rows: new Map(), full: false,
    more: el("button", { type: "button", class: "more" }), cut: part("p", "cut"),
    queries: el("div"), changes: el("summary"), transitions: el("ul", { class: "transitions" }),
  };
  made.table = el("table", { role: "table" }, made.columns, made.body);
  made.more.addEventListener("click", () => {
    made.full = true;
    show();
  });
  const history = el("details", null, made.changes, made.transitions);
  history.open = watch.transitions.length > 0 && watch.transitions.length <= 12;
  made.root.append(made.head, made.verdict, made.facts, made.problems, made.table, made.more, made.cut, history,
    el("details", null, el("summary", null, "What is asked"), made.queries));
  return made;
}

function describe(made, watch) {
  const { summary, measures } = watch;
  const problems = measures.filter((measure) => measure.problem);
  const rank = summary.unfit > 0 ? "bad" : summary.suppressed > 0 ? "held" : summary.unknown > 0 || problems.length > 0 ? "worry" : "good";
  made.root.className = `watch ${rank}`;
  fill(made.head, [watch.mode, watch.paused], () => [
    el("span", { class: "of" }, `${watch.namespace}/`), watch.name,
    ...(watch.mode === "Observe" ? [" ", el("span", { class: "tag" }, "Observe: writes nothing")] : []),
    ...(watch.paused ? [" ", el("span", { class: "tag" }, "Paused: judges nothing")] : [])]);
  fill(made.verdict, verdict(watch), () => [verdict(watch)]);
  fill(made.facts, [watch.label, watch.intervalSeconds, watch.limit, watch.room, watch.lastSuccess], () => [
    "Label ", el("code", null, watch.label), ` · at most ${rounded(watch.limit, 0)} of ${nodes(watch.room)} that can take pods may be unfit`,
    ` · every ${rounded(watch.intervalSeconds, 3)} s · `, watch.lastSuccess ? time(watch.lastSuccess, "judged ", " ago") : "never judged yet"]);
  fill(made.problems, problems, () => problems.map((measure) => el("p", { class: "problem" },
    el("b", null, `! ${measure.name}: no answer`), ` from Prometheus “${measure.endpoint}”: ${measure.problem}`)));
  fill(made.columns, measures, () => [el("tr", { role: "row" }, ...["Node", "State"].map((text) => el("th", { scope: "col", role: "columnheader" }, text)),
    ...measures.map((measure) => el("th", { scope: "col", role: "columnheader" }, measure.name, el("small", null,
      `unfit above ${inUnit(measure.max, measure.unit, true)}, fit again at ${inUnit(measure.recover, measure.unit, true)}`))),
    ...["Reason", "Since"].map((text) => el("th", { scope: "col", role: "columnheader" }, text)))]);
  fill(made.queries, measures, () => measures.flatMap((measure) => [
    el("p", null, el("b", null, measure.name), ` asks Prometheus “${measure.endpoint}”`), el("pre", { tabindex: "0" }, measure.query)]));
  const count = watch.transitions.length;
  fill(made.changes, count, () => [count === 0 ? "No change of state in the last hour" : `Changes of state in the last hour: ${count}${count >= 200 ? " (the newest)" : ""}`]);
  fill(made.transitions, watch.transitions, () => watch.transitions.map((change) => el("li", null, time(change.at, "", " ago"),
    el("b", null, change.node), el("span", null, badge(change.from), " → ", badge(change.to)), el("span", null, inWords(change.reason)))));
}

// Rows stay the elements they are; only their order and their cells follow the answer.
function list(made, watch, chosen) {
  const fit = chosen.filter((node) => node.state === "Fit");
  const all = made.full || wanted.text !== "" || wanted.state === "Fit" || fit.length <= FIT_SHOWN + 1;
  const shown = all ? chosen : chosen.filter((node) => node.state !== "Fit").concat(fit.slice(0, FIT_SHOWN));
  const names = new Set(shown.map((node) => node.name));
  for (const [name, row] of made.rows) {
    if (!names.has(name)) {
      row.remove();
      made.rows.delete(name);
    }
  }
  let next = made.body.firstElementChild;
  for (const node of shown) {
    const row = made.rows.get(node.name) ?? el("tr", { role: "row" });
    made.rows.set(node.name, row);
    fill(row, [node, watch.measures], () => cells(node, watch));
    if (row === next) next = row.nextElementSibling;
    else made.body.insertBefore(row, next);
  }
  made.table.hidden = shown.length === 0;
  made.more.hidden = all;
  if (!all) made.more.textContent = `Show ${rounded(fit.length - FIT_SHOWN, 0)} more fit nodes`;
  fill(made.cut, [watch.nodesTruncated, watch.nodes.length, watch.summary.nodes, wanted.limit], () => (watch.nodesTruncated ? [beyond(watch)] : []));
  return shown.length;
}

function beyond(watch) {
  const text = `Only ${rounded(watch.nodes.length, 0)} of ${nodes(watch.summary.nodes)} are loaded, those that need attention first. `;
  const made = el("span", null, text);
  if (wanted.limit !== ALL_NODES) {
    const button = el("button", { type: "button", class: "more" }, `Load up to ${rounded(ALL_NODES, 0)}`);
    button.addEventListener("click", () => {
      wanted.limit = ALL_NODES;
      ask();
    });
    made.append(button);
  }
  return made;
}

// --- The page ---------------------------------------------------------------------------------

function choose(watch) {
  const text = wanted.text.toLowerCase();
  const ofState = watch.nodes.filter((node) => wanted.state === "" || node.state === wanted.state);
  if (keyOf(watch).toLowerCase().includes(text)) return ofState;
  return ofState.filter((node) => node.name.toLowerCase().includes(text));
}

function tiles() {
  const total = (name) => view.watches.reduce((sum, watch) => sum + watch.summary[name], 0);
  const counts = STATES.map((state) => ({ ...state, count: total(state.name.toLowerCase()) }));
  const all = { name: "", sign: "", says: "every state", count: total("nodes") };
  for (const { name, sign, says, count } of [all, ...counts]) {
    const id = `state-${name || "all"}`;
    let button = byId(id);
    if (!button) {
      button = el("button", { type: "button", id, title: says });
      button.addEventListener("click", () => {
        wanted.state = wanted.state === name ? "" : name;
        show();
      });
      byId("states").append(button);
    }
    button.className = `${name || "all"}${count > 0 ? " some" : ""}`;
    button.setAttribute("aria-pressed", String(wanted.state === name));
    fill(button, count, () => [el("b", null, rounded(count, 0)), " ", name === "" ? (count === 1 ? "judged node" : "judged nodes") : `${sign} ${name}`]);
  }
  const unfit = counts[0].count;
  document.title = `${unfit > 0 ? `▲ ${unfit} unfit · ` : ""}Traffic operator`;
}

function inShort(watch) {
  const counts = STATES.slice(0, 3).map((state) => [state.sign, watch.summary[state.name.toLowerCase()]]);
  const parts = counts.filter(([, count]) => count > 0).map(([sign, count]) => `${sign}${count}`);
  if (watch.measures.some((measure) => measure.problem)) parts.push("! no answer");
  if (watch.paused) parts.push("paused");
  return parts.join(" ") || (watch.summary.nodes > 0 ? "all fit" : "no nodes");
}

function index(watches) {
  byId("index").hidden = watches.length < 2;
  fill(byId("index"), watches.map((watch) => [keyOf(watch), inShort(watch)]), () => [el("ul", null, ...watches.map((watch) =>
    el("li", null, el("a", { href: `#${encodeURIComponent(`watch-${keyOf(watch)}`)}` }, keyOf(watch)), ` ${inShort(watch)}`)))]);
}

function notice() {
  if (view.leader && view.watches.length > 0) return null;
  if (view.leader) {
    return [el("h2", null, "No TrafficWatch"), el("p", null, "This replica leads, and there is nothing for it to judge. ",
      el("code", null, "kubectl get trafficwatches -A"), " lists what exists.")];
  }
  return [el("h2", null, "This replica does not lead"),
    el("p", null, `Only the replica that leads judges nodes and knows their state. ${view.identity} waits to take over and has nothing to show. Ask the leader; the Lease names it:`),
    el("pre", { tabindex: "0" }, "kubectl -n traffic-operator-system get lease traffic-operator -o jsonpath='{.spec.holderIdentity}'\nkubectl -n traffic-operator-system port-forward pod/THAT-NAME 8082")];
}

function urgency(watch) {
  const { unfit, suppressed, unknown } = watch.summary;
  return unfit > 0 ? 0 : suppressed > 0 ? 1 : unknown > 0 || watch.measures.some((measure) => measure.problem) ? 2 : 3;
}

function show() {
  remember();
  if (!view) return;
  const main = byId("watches");
  const said = notice();
  byId("filters").hidden = said !== null;
  fill(byId("replica"), [view.leader, view.identity, view.version], () => [el("b", null, view.identity), view.leader ? " leads" : " follows",
    ` · version ${view.version} · `, time(view.started, "up ", "")]);
  main.querySelector(".notice")?.remove();
  if (said) main.append(el("div", { class: "notice" }, ...said));
  else tiles();
  const watches = [...view.watches].sort((a, b) => urgency(a) - urgency(b) || (keyOf(a) < keyOf(b) ? -1 : 1));
  index(watches);
  const keys = new Set(watches.map(keyOf));
  for (const [key, made] of sections) {
    if (!keys.has(key)) {
      made.root.remove();
      sections.delete(key);
    }
  }
  let rows = 0;
  let next = main.querySelector("section");
  for (const watch of watches) {
    const made = sections.get(keyOf(watch)) ?? section(watch);
    sections.set(keyOf(watch), made);
    const chosen = choose(watch);
    describe(made, watch);
    rows += list(made, watch, chosen);
    made.root.hidden = chosen.length === 0 && (wanted.text !== "" || wanted.state !== "");
    if (made.root === next) next = made.root.nextElementSibling;
    else main.insertBefore(made.root, next);
  }
  const filtered = wanted.text !== "" || wanted.state !== "";
  byId("shown").textContent = filtered ? (rows > 0 ? `${rounded(rows, 0)} shown` : "Nothing matches.") : "";
  tick();
}

// The filter is in the address, so that what one sees can be sent to somebody else.
function remember() {
  const next = new URLSearchParams();
  if (wanted.text) next.set("q", wanted.text);
  if (wanted.state) next.set("state", wanted.state);
  const query = next.toString();
  if (query !== location.search.slice(1)) history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

function tick() {
  if (view) document.querySelectorAll("time").forEach(tell);
  const trouble = byId("trouble");
  trouble.hidden = failure === "";
  if (failure === "") {
    byId("freshness").textContent = view ? "Live: asks every 5 s" : "";
  } else if (view) {
    const stamp = new Date(Date.now() - (performance.now() - answeredAt)).toLocaleTimeString();
    byId("freshness").textContent = "Not live";
    // Announced once, not at every tick.
    fill(trouble, [failure, stamp], () => [`No answer since ${stamp}: ${failure}. What is shown is of then; asking again every 5 s.`]);
  } else {
    fill(trouble, failure, () => [`No answer yet: ${failure}. Asking again every 5 s.`]);
  }
}

async function ask() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const limit = wanted.limit ? `?limit=${wanted.limit}` : "";
    const answer = await fetch(`api/v1/trafficwatches${limit}`, { signal: AbortSignal.timeout(PATIENCE), cache: "no-store" });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}: ${(await answer.text()).slice(0, 200).trim()}`);
    view = await answer.json();
    answeredAt = performance.now();
    failure = "";
    show();
  } catch (error) {
    failure = error.name === "TimeoutError" ? `nothing came within ${PATIENCE / 1000} s` : error.message;
    tick();
  }
  asking = false;
  // A page that nobody sees asks nothing; it asks at once when it is seen again.
  if (!document.hidden) timer = setTimeout(ask, PERIOD);
}

byId("text").value = wanted.text;
byId("text").addEventListener("input", (event) => {
  wanted.text = event.target.value.trim();
  show();
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else ask();
});
setInterval(() => document.hidden || tick(), 1000);
ask();
