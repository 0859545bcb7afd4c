"use strict";
// The NetworkProbers: coverage, the matrix of nodes, the worst paths.

const PERIOD = 5000; // between two questions
const PATIENCE = 15000; // for one answer: Prometheus is asked in between
const NUMBERS = 12; // nodes up to which a field is large enough for its number
const LETTERS = 22; // of a node's name beside the matrix
const SVG = "http://www.w3.org/2000/svg";

// Upper bounds of the colors. The alerts begin above 5 % and, with timeouts of 200 ms and more, 100 ms.
const MEASURES = [
  { key: "loss", name: "Loss", of: "lost", bounds: [0, 0.01, 0.05, 0.2], legend: ["none", "up to 1 %", "up to 5 %", "up to 20 %", "more"], text: percent },
  { key: "p99", name: "p99 of round-trip times", of: "p99", bounds: [0.001, 0.01, 0.05, 0.1], legend: ["up to 1 ms", "up to 10 ms", "up to 50 ms", "up to 100 ms", "more"], text: seconds },
];
const BLAMED = { From: (path) => path.from, To: (path) => path.to, Both: (path) => `${path.from} and ${path.to}`, Between: () => "what lies between" };

const chosen = new URLSearchParams(location.search).get("prober") ?? "";
let view = null; // the last list
let one = null; // the NetworkProber that is shown
let failure = "";
let answeredAt = 0;
let asking = false;
let timer = 0;

const keyOf = (prober) => `${prober.namespace}/${prober.name}`;
const count = (number, word) => `${rounded(number, 0)} ${word}${number === 1 ? "" : "s"}`;

function percent(value) {
  if (value === 0) return "0 %";
  return value < 0.0005 ? "< 0.1 %" : `${rounded(value * 100, value < 0.1 ? 1 : 0)} %`;
}

function seconds(value) {
  if (value >= 1) return `${rounded(value, 2)} s`;
  return value < 0.001 ? `${rounded(value * 1e6, 0)} µs` : `${rounded(value * 1000, value < 0.01 ? 1 : 0)} ms`;
}

function level(value, bounds) {
  const place = bounds.findIndex((bound) => value <= bound);
  return place < 0 ? bounds.length : place;
}

// --- The matrix -------------------------------------------------------------------------------

function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

// Of long names the end says which one it is.
const short = (name) => (name.length > LETTERS ? `…${name.slice(1 - LETTERS)}` : name);

function worstOf(figures, values) {
  let found = null;
  values.forEach((row, from) => row.forEach((value, to) => {
    if (value !== null && (found === null || value > found.value)) found = { value, from: figures.nodes[from].node, to: figures.nodes[to].node };
  }));
  return found;
}

// Told apart by a dot and a stroke as well as by color.
function sign(x, y, size, degree) {
  if (degree === 3) return [draw("circle", { class: "dot", cx: x + size / 2, cy: y + size / 2, r: 1.5 })];
  if (degree === 4) return [draw("path", { class: "bar4", d: `M${x + 2} ${y + size - 2}L${x + size - 2} ${y + 2}` })];
  return [];
}

function field(figures, measure, from, to, place) {
  const { x, y, wide, high, numbers } = place;
  const value = figures[measure.key][from][to];
  const names = `${figures.nodes[from].node} → ${figures.nodes[to].node}`;
  const known = value !== null && value !== undefined;
  const degree = known ? level(value, measure.bounds) : -1;
  const kind = known ? `l${degree}` : from === to ? "self" : "none";
  const cell = draw("rect", { class: `cell ${kind}`, x, y, width: wide, height: high },
    draw("title", {}, `${names}: ${known ? `${measure.text(value)} ${measure.of}` : "not measured"}`));
  if (!known) return [cell];
  if (numbers) return [cell, draw("text", { class: `in on${degree}`, x: x + wide / 2, y: y + high / 2 + 4 }, measure.text(value))];
  return [cell, ...sign(x, y, high, degree)];
}

function map(figures, measure) {
  const nodes = figures.nodes;
  const numbers = nodes.length <= NUMBERS;
  const high = numbers ? 26 : nodes.length <= 32 ? 16 : 11;
  const wide = numbers ? 42 : high;
  const letters = Math.max(...nodes.map((node) => short(node.node).length));
  const edge = 12 + letters * 6.4;
  const [width, height] = [wide, high].map((size) => edge + nodes.length * size + 2);
  const worst = worstOf(figures, figures[measure.key]);
  const label = `${measure.name} between ${count(nodes.length, "node")}; ` +
    (worst ? `the worst is ${measure.text(worst.value)} from ${worst.from} to ${worst.to}` : "no path is measured");
  const picture = draw("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height });
  nodes.forEach((node, i) => {
    const [column, row] = [wide, high].map((size) => edge + i * size + size / 2 + 4);
    const name = (attributes) => draw("text", attributes, short(node.node), draw("title", {}, node.zone ? `${node.node}, zone ${node.zone}` : node.node));
    picture.append(name({ class: "row", x: edge - 5, y: row }), name({ class: "column", transform: `translate(${column} ${edge - 5}) rotate(-90)` }));
  });
  nodes.forEach((_, from) => nodes.forEach((_, to) =>
    picture.append(...field(figures, measure, from, to, { x: edge + to * wide, y: edge + from * high, wide, high, numbers }))));
  const legend = measure.legend.map((text, degree) => el("li", null,
    draw("svg", { width: 14, height: 14, "aria-hidden": "true" }, draw("rect", { class: `l${degree}`, width: 14, height: 14 }), ...sign(0, 0, 14, degree)), text));
  return el("figure", { class: "map" }, el("figcaption", null, measure.name), picture, el("ul", { class: "legend" }, ...legend));
}

// --- One NetworkProber ------------------------------------------------------------------------

function table(head, rows) {
  const cell = (value, i) => (i === 0 ? el("th", { scope: "row", role: "rowheader" }, value) : el("td", { role: "cell", "data-caption": head[i] }, value));
  return el("table", { role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...head.map((text) => el("th", { scope: "col", role: "columnheader" }, text)))),
    el("tbody", { role: "rowgroup" }, ...rows.map((row) => el("tr", { role: "row" }, ...row.map(cell)))));
}

function figure(value, measure, limit) {
  if (value === null || value === undefined) return "–";
  return value > limit ? el("span", { class: "over" }, `▲ ${measure.text(value)}`) : measure.text(value);
}

const loss = (figures, value) => figure(value, MEASURES[0], figures.lossy);
const late = (figures, value) => figure(value, MEASURES[1], figures.slow);
const isBad = (node) => node.bad;

function verdict(prober) {
  if (prober.problem) return "Its spec cannot stand.";
  if (!prober.listed) return "Its pods are not listed yet.";
  if (prober.selected === 0) return "No pod is selected.";
  const parts = [`${rounded(prober.injected, 0)} of ${count(prober.selected, "selected pod")} have an agent`];
  const bad = (prober.measured?.figures?.nodes ?? []).filter(isBad).map((node) => node.node);
  if (bad.length > 0) parts.push(`most paths of ${bad.slice(0, 3).join(", ")}${bad.length > 3 ? ` and ${bad.length - 3} more nodes` : ""} are bad`);
  return `${parts.join("; ")}.`;
}

function problems(prober) {
  const made = [];
  const { measured } = prober;
  const figures = measured?.figures;
  const say = (head, text) => made.push(el("p", { class: "problem" }, el("b", null, `! ${head}: `), text));
  if (prober.problem) say("Spec", prober.problem);
  if (prober.failing) {
    const [number, why] = prober.failing;
    say("Agents that cannot start", `${rounded(number, 0)}, ${why}${prober.paused ? "; no further pod gets one" : ""}. kubectl describe one of these pods.`);
  }
  if (measured?.problem) say("No figures", `Prometheus “${measured.endpoint}”: ${measured.problem}`);
  else if (figures && figures.scraped === 0 && prober.injected > 0) {
    say("Not scraped", `Prometheus “${measured.endpoint}” scrapes none of the agents: does it select the PodMonitor of this name?`);
  } else if (figures && figures.nodes.length === 0 && prober.members > 1) {
    say("Nothing recorded", `Prometheus “${measured.endpoint}” scrapes ${count(figures.scraped, "agent")} and has recorded no path: does it select the PrometheusRule of this name?`);
  }
  if (figures?.silentAgents > 0) {
    const names = figures.silent.map((agent) => `${agent.namespace}/${agent.pod}${agent.peers > 0 ? "" : " (no peers)"}`);
    say("Silent agents", `${rounded(figures.silentAgents, 0)} have probed no peer for five minutes: ${names.join(", ")}`);
  }
  return made;
}

function maps(figures) {
  const all = figures.measuredNodes === figures.nodes.length;
  const text = `From each node (row) to each (column), over five minutes; ${all ? count(figures.nodes.length, "node") : `the ${figures.nodes.length} worst of ${count(figures.measuredNodes, "node")}`}. An empty field is a path that nobody probes.`;
  return [el("h3", null, "Between nodes"), el("p", { class: "facts" }, text), el("div", { class: "maps" }, ...MEASURES.map((measure) => map(figures, measure)))];
}

function lists(prober) {
  const made = el("div", { class: "lists" });
  const figures = prober.measured?.figures;
  const part = (head, content) => made.append(el("div", null, el("h3", null, head), content));
  if (figures && figures.worst.length > 0) {
    part("Worst paths", table(["From", "To", "Loss", "p99", "To blame"],
      figures.worst.map((path) => [path.from, path.to, loss(figures, path.loss), late(figures, path.p99), path.bad ? BLAMED[path.blame](path) : "–"])));
  }
  const bad = (figures?.nodes ?? []).filter(isBad);
  if (bad.length > 0) part("Nodes to blame", table(["Node", "Zone", "Loss", "p99"], bad.map((node) => [node.node, node.zone || "–", loss(figures, node.loss), late(figures, node.p99)])));
  if (prober.notInjected.length > 0) {
    part("Pods without an agent", table(["Why", "Pods", "What it means", "What to do"],
      prober.notInjected.map((one) => [one.reason, rounded(one.count, 0), one.meaning, one.remedy ?? "–"])));
  }
  return made;
}

function section(prober) {
  const figures = prober.measured?.figures;
  const bad = prober.problem || prober.failing || (figures?.nodes ?? []).some(isBad);
  const worry = prober.notInjected.length > 0 || prober.measured?.problem || figures?.silentAgents > 0;
  const facts = [`${prober.mode} · ${prober.probes.join(", ")} every ${rounded(prober.periodSeconds, 3)} s`,
    `${count(prober.members, "pod")} on ${count(prober.nodes, "node")} take part`,
    ...(figures ? [`${rounded(figures.scraped, 0)} scraped`] : []),
    ...(prober.needRestart > 0 ? [`${rounded(prober.needRestart, 0)} with an agent of an earlier spec`] : []),
    `about ${rounded(prober.estimatedSeries, 0)} series`];
  return el("section", { class: `watch ${bad ? "bad" : worry ? "worry" : "good"}` },
    el("h2", null, el("span", { class: "of" }, `${prober.namespace}/`), prober.name),
    el("p", { class: "verdict" }, verdict(prober)), el("p", { class: "facts" }, facts.join(" · ")),
    el("div", { class: "problems" }, ...problems(prober)),
    ...(figures && figures.nodes.length > 0 ? maps(figures) : []), lists(prober));
}

// --- The page ---------------------------------------------------------------------------------

function inShort(prober) {
  if (prober.problem) return "! spec";
  if (prober.failing) return `! ${count(prober.failing[0], "agent")} cannot start`;
  return `${rounded(prober.injected, 0)} of ${count(prober.selected, "pod")}`;
}

function notice() {
  if (!view.synced) return [el("h2", null, "Nothing is known yet"), el("p", null, "This replica has not listed the NetworkProbers, or the kind does not run here (--kinds).")];
  if (view.probers.length === 0) return [el("h2", null, "No NetworkProber"), el("p", null, el("code", null, "kubectl get networkprobers -A"), " lists what exists.")];
  if (!one) return [el("h2", null, chosen === "" ? "Choose a NetworkProber" : `There is no NetworkProber ${chosen}`)];
  return null;
}

function show() {
  fill(byId("replica"), [view.identity, view.version], () => [el("b", null, view.identity), ` · version ${view.version}`]);
  const current = one ? keyOf(one) : "";
  fill(byId("index"), [view.probers.map((prober) => [keyOf(prober), inShort(prober)]), current], () => [el("ul", null, ...view.probers.map((prober) =>
    el("li", null, el("a", { href: `?prober=${encodeURIComponent(keyOf(prober))}`, ...(keyOf(prober) === current ? { "aria-current": "page" } : {}) }, keyOf(prober)),
      " ", el("span", { class: prober.problem || prober.failing ? "bad" : "" }, inShort(prober)))))]);
  const said = notice();
  document.title = `${one ? `${keyOf(one)} · ` : ""}NetworkProbers · Traffic operator`;
  fill(byId("prober"), [one, said === null, view.synced, view.probers.length], () => [said ? el("div", { class: "notice" }, ...said) : section(one)]);
  tick();
}

function tick() {
  const trouble = byId("trouble");
  trouble.hidden = failure === "";
  byId("freshness").textContent = failure !== "" ? "Not live" : view ? "Live: asks every 5 s" : "";
  if (failure === "") return;
  const stamp = view ? new Date(Date.now() - (performance.now() - answeredAt)).toLocaleTimeString() : "";
  fill(trouble, [failure, stamp], () => [view ? `No answer since ${stamp}: ${failure}. What is shown is of then; asking again every 5 s.` : `No answer yet: ${failure}. Asking again every 5 s.`]);
}

async function get(query) {
  const answer = await fetch(`api/v1/networkprobers${query}`, { signal: AbortSignal.timeout(PATIENCE), cache: "no-store" });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}: ${(await answer.text()).slice(0, 200).trim()}`);
  return answer.json();
}

async function ask() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const list = await get("");
    // Without a choice the only one is meant.
    const wanted = list.probers.find((prober) => keyOf(prober) === chosen) ?? (chosen === "" && list.probers.length === 1 ? list.probers[0] : null);
    const query = wanted ? `?namespace=${encodeURIComponent(wanted.namespace)}&name=${encodeURIComponent(wanted.name)}` : "";
    one = wanted ? ((await get(query)).probers[0] ?? null) : null;
    view = list;
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

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else ask();
});
ask();
