// The live page: it asks the admin API again and again, and shows what it answers.
import { draw, element, keyOf, perSecond } from "./graph.js";
import { Letters } from "./letters.js";
import { count, get, made } from "./parts.js";
import { Traces } from "./traces.js";

const SECONDS = 2, MOST_EDGES = 300, MOST_ROWS = 200;
let token = sessionStorage.getItem("statefun-token") ?? "";
let before = null, chosen = null, isPaused = false;

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

// Numbers that are written as they came: a whole number above 2^53 would be rounded to a float of 64 bits.
function asSent(_, value, context) {
  return typeof value === "number" && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

async function ask(path, method = "GET", reviver) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`../${path}`, { method, headers });
  const content = JSON.parse(await answer.text(), reviver);
  if (!answer.ok) throw new Refused(answer.status, content.message);
  return content;
}

function fill(table, rows) {
  get(table).hidden = rows.length === 0;
  get(table).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => made("td", cell)));
    return row;
  }));
}

function showStatus(status) {
  const state = get("state");
  state.textContent = status.state.toLowerCase();
  state.classList.remove("bad");
  const figures = {
    "batch": status.batch < 0 ? "none yet" : count(status.batch),
    "in": perSecond(status.records_read_per_second),
    "out": perSecond(status.records_published_per_second),
    "lag": count(status.lag),
    "backlog": count(status.backlog),
    "last commit": status.batch < 0 ? "none yet" : `${Math.round(status.seconds_since_commit)} s ago`,
    "retries": count(status.counts.retries),
    "dead letters": count(status.counts.dead_letters),
  };
  get("figures").replaceChildren(...Object.entries(figures).map(([name, text]) => {
    const pair = document.createElement("div");
    pair.append(made("dt", name), made("dd", text));
    return pair;
  }));
  isPaused = status.paused.application;
  get("pause").textContent = isPaused ? "Resume the application" : "Pause the application";
  get("pause").hidden = false;
}

function ratesOf(topology) {
  const now = performance.now(), counts = new Map(), failures = new Map(), rates = new Map();
  for (const edge of topology.edges) counts.set(`${keyOf(edge.origin)} ${keyOf(edge.target)}`, edge.count);
  for (const node of topology.nodes) failures.set(keyOf(node), node.failures);
  const seconds = before ? (now - before.now) / 1000 : 1;
  for (const [key, number] of counts) {
    rates.set(key, before ? Math.max(0, number - (before.counts.get(key) ?? 0)) / seconds : 0);
  }
  for (const node of topology.nodes) {
    const known = before?.failures.get(keyOf(node));
    const isNew = known !== undefined && node.failures > known;
    const at = isNew ? now : before?.failed.get(keyOf(node)) ?? -Infinity;
    node.failedAt = at;
    node.is_failing = now - at < 30_000 || (!before && node.failures > 0);
  }
  const failed = new Map(topology.nodes.map((node) => [keyOf(node), node.is_failing && !before ? now : node.failedAt]));
  before = { now, counts, failures, failed };
  return rates;
}

function showTopology(topology, parts) {
  const rates = ratesOf(topology);
  const states = new Map(parts.map((part) => [`${part.kind} ${part.id}`, part.state]));
  draw(get("graph"), topology, rates, states, (node) => { chosen = node; showDetails(); });
  const { edges, total_edges: total } = topology;
  get("topology-note").textContent = total === 0
    ? "Nothing has flowed yet."
    : edges.length < total
      ? `The ${count(edges.length)} busiest of ${count(total)} connections. Thickness is the rate; red is what fails.`
      : "Thickness is the rate; red is what fails. Choose a part for details.";
  fill("edges", edges.slice(0, MOST_ROWS).map((edge) => [
    edge.origin.name, edge.target.name,
    perSecond(rates.get(`${keyOf(edge.origin)} ${keyOf(edge.target)}`) ?? 0), count(edge.count),
  ]));
}

async function showDetails() {
  if (!chosen) return;
  const { kind, name } = chosen;
  const [namespace, last] = [name.slice(0, name.lastIndexOf("/")), name.slice(name.lastIndexOf("/") + 1)];
  const place = `${kind === "function" ? "functions" : `${kind}es`}/${encodeURIComponent(namespace)}/${encodeURIComponent(last)}`;
  try {
    const found = await ask(place);
    const box = get("details");
    const title = made("h3", `${kind} ${name}`);
    const lines = made("pre", JSON.stringify(found, null, 2), { tabindex: "0", role: "region", "aria-label": `Details of ${name}` });
    const children = [title, lines];
    if (kind !== "function") {
      const paused = found.state === "PAUSED";
      const button = made("button", paused ? `Resume ${name}` : `Pause ${name}`, { type: "button" });
      button.addEventListener("click", () => change(`${place}/${paused ? "resume" : "pause"}`));
      children.splice(1, 0, button);
    }
    box.replaceChildren(...children);
  } catch (error) { report(error); }
}

function showBatches(batches) {
  const svg = get("batches"), phases = new Map();
  for (const batch of batches) {
    for (const [name, seconds] of Object.entries(batch.phases)) phases.set(name, (phases.get(name) ?? 0) + seconds);
  }
  const names = [...phases.keys()].sort((a, b) => phases.get(b) - phases.get(a));
  const shown = [...names.slice(0, 5), ...(names.length > 5 ? ["others"] : [])];
  const longest = Math.max(0.001, ...batches.map((batch) => batch.seconds));
  const width = 600 / Math.max(60, batches.length), bars = [];
  batches.forEach((batch, index) => {
    let y = 120;
    const parts = shown.map((name) => name === "others"
      ? names.slice(5).reduce((sum, each) => sum + (batch.phases[each] ?? 0), 0) : batch.phases[name] ?? 0);
    parts.forEach((seconds, number) => {
      const height = 114 * seconds / longest;
      y -= height;
      bars.push(element("rect", { x: index * width, y, width: width * 0.85, height, class: `p${number}` }));
    });
  });
  svg.replaceChildren(...bars);
  const last = batches.at(-1);
  get("batches-note").textContent = last
    ? `The newest one, ${count(last.batch)}, took ${last.seconds.toFixed(3)} s for ${count(last.rows)} rows; the longest here took ${longest.toFixed(3)} s.`
    : "None has ended yet.";
  get("phases").replaceChildren(...shown.map((name, number) => {
    const item = made("li", name);
    item.prepend(made("span", "", { class: `p${number}` }));
    return item;
  }));
}

function showLag(ingresses) {
  const rows = ingresses.flatMap((each) => each.partitions.map((part) => [each.name, part.topic, part.partition, part.offset, part.lag]));
  rows.sort((a, b) => b[4] - a[4]);
  get("lag-note").textContent = rows.length === 0 ? "No partition was read yet."
    : rows.length > MOST_ROWS ? `The ${MOST_ROWS} partitions with the largest lag, of ${count(rows.length)}.` : rows.length === 1 ? "1 partition." : `${count(rows.length)} partitions.`;
  fill("lag", rows.slice(0, MOST_ROWS).map(([ingress, topic, part, offset, lag]) => [ingress, topic, part, count(offset), count(lag)]));
}

function showFailures(failures) {
  const open = new Set([...get("failures").querySelectorAll("details[open]")].map((each) => each.dataset.key));
  get("failures").replaceChildren(...(failures.length ? failures.slice(0, MOST_ROWS).map((each) => {
    const box = document.createElement("details");
    box.dataset.key = `${each.kind} ${each.what}`;
    box.open = open.has(box.dataset.key);
    const head = made("summary", `${count(each.count)} ${each.what}: ${each.kind}`);
    box.append(head, made("pre", `${each.text}\n\nlast: ${new Date(each.last).toLocaleString()}`, { tabindex: "0", role: "region", "aria-label": "The newest failure of this kind" }));
    return box;
  }) : [made("p", "None.", { class: "note" })]));
}

function showTimers(timers) {
  get("timers-note").textContent = timers.buckets
    ? `${count(timers.buckets)} buckets with timers wait; for long waits, the time is somewhat early.` : "No timer waits.";
  const shown = (each) => new Date(each.time).toLocaleString() + (each.in_event_time ? " (event time)" : "");
  fill("timers", timers.due.map((each) => [shown(each), count(each.buckets)]));
}

function showFunctions(functions) {
  const select = get("function"), names = functions.map((each) => each.name);
  if (names.join() === [...select.options].map((each) => each.value).join()) return;
  const kept = select.value;
  select.replaceChildren(...names.map((name) => made("option", name, { value: name })));
  if (names.includes(kept)) select.value = kept;
}

function report(error) {
  if (error.status === 401) {
    get("login").hidden = false;
    get("content").hidden = true;
    get("pause").hidden = true;
    get("state").textContent = "a token is needed";
    return;
  }
  get("state").textContent = error.status ? "running, with a problem" : "the application does not answer";
  get("state").classList.add("bad");
  get("problem").textContent = error.status ? error.message : "The application does not answer; this page asks again.";
  get("problem").hidden = false;
}

async function change(path) {
  try { await ask(path, "PUT"); } catch (error) { report(error); }
  await look();
  await showDetails();
}

async function look() {
  try {
    const [status, topology, batches, ingresses, failures, timers, functions] = await Promise.all([
      ask("status"), ask(`topology?limit=${MOST_EDGES}`), ask("batches"), ask("ingresses"), ask("failures"), ask("timers"), ask("functions"),
    ]);
    get("login").hidden = true;
    get("content").hidden = false;
    get("problem").hidden = true;
    showStatus(status);
    showTopology(topology, status.parts);
    showBatches(batches);
    showLag(ingresses);
    showFailures(failures);
    showTimers(timers);
    showFunctions(functions);
    letters.look(status.counts.dead_letters);
    document.body.dataset.shown = "true";
    if (!get("module").childElementCount) showModule(await ask("module"));
  } catch (error) { report(error); }
}

function showModule(files) {
  get("module").replaceChildren(...(files.length ? files.map((each) => {
    const box = document.createElement("details"), number = each.findings.length;
    const text = made("pre", "", { tabindex: "0", role: "region", "aria-label": each.file });
    const warning = (found) => made("strong", `${found.severity}: ${found.text}\n`);
    const lines = each.text ? each.text.trimEnd().split("\n") : [];
    lines.forEach((line, index) => {
      text.append(made("span", `${line}\n`), ...each.findings.filter((found) => found.line === index + 1).map(warning));
    });
    text.append(...each.findings.filter((found) => found.line > lines.length).map(warning));
    box.append(made("summary", number === 0 ? each.file : `${each.file}: ${number === 1 ? "1 warning" : `${count(number)} warnings`}`), text);
    return box;
  }) : [made("p", "All parts are declared in Python.", { class: "note" })]));
}

const letters = new Letters(ask, report);
new Traces(ask, report);
get("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = get("token").value.trim();
  sessionStorage.setItem("statefun-token", token);
  look();
});
get("inspect").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = get("function").value, slash = name.lastIndexOf("/");
  const parts = [name.slice(0, slash), name.slice(slash + 1), get("id").value].map(encodeURIComponent);
  try {
    get("address").textContent = JSON.stringify(await ask(`state/${parts.join("/")}`, "GET", asSent), null, 2);
  } catch (error) {
    get("address").textContent = error.message;
    if (error.status === 401 || !error.status) report(error);
  }
});
get("pause").addEventListener("click", () => change(isPaused ? "resume" : "pause"));

async function repeat() {
  if (!document.hidden) await look();
  setTimeout(repeat, SECONDS * 1000);
}
repeat();
