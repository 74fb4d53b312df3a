// Draws the topology: columns from ingresses over functions to egresses.
const WIDTH = 210, HEIGHT = 44, GAP_X = 120, GAP_Y = 16;
const SVG = "http://www.w3.org/2000/svg";

export const keyOf = (place) => `${place.kind} ${place.name}`;

export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The column of each node: its distance from the ingresses, with all egresses in the last one.
export function columnsOf(nodes, edges) {
  const next = new Map();
  for (const edge of edges) {
    const from = keyOf(edge.origin);
    if (!next.has(from)) next.set(from, []);
    next.get(from).push(keyOf(edge.target));
  }
  const column = new Map();
  let front = nodes.filter((each) => each.kind === "ingress").map(keyOf);
  for (const key of front) column.set(key, 0);
  for (let depth = 1; front.length; depth += 1) {
    const reached = [];
    for (const key of front) {
      for (const target of next.get(key) ?? []) {
        if (!column.has(target)) { column.set(target, depth); reached.push(target); }
      }
    }
    front = reached;
  }
  for (const node of nodes) if (!column.has(keyOf(node))) column.set(keyOf(node), 1);
  const last = Math.max(1, ...nodes.filter((each) => each.kind === "function").map((each) => column.get(keyOf(each)))) + 1;
  for (const node of nodes) if (node.kind === "egress") column.set(keyOf(node), last);
  return column;
}

function curve(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  if (from === to) {
    const [right, top] = [from.x + WIDTH - 30, from.y];
    return `M${right} ${top} c10 -22 34 -22 30 ${HEIGHT / 2}`;
  }
  if (from.x === to.x) return `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x1 + GAP_X / 2} ${y2} ${x1} ${y2}`;
  if (x2 > x1) return `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}`;
  const over = Math.min(y1, y2) - HEIGHT;
  return `M${x1} ${y1} C${x1 + GAP_X} ${over} ${x2 - GAP_X} ${over} ${x2} ${y2}`;
}

const short = (name) => {
  const last = name.slice(name.lastIndexOf("/") + 1);
  return last.length > 26 ? `${last.slice(0, 25)}…` : last;
};

export const perSecond = (rate) => `${rate >= 10 || rate === 0 ? Math.round(rate).toLocaleString() : rate.toFixed(1)}/s`;

// Draw the graph; `select` is called with a node that was chosen. The focus stays on its node.
export function draw(svg, topology, rates, states, select) {
  const focused = document.activeElement?.getAttribute("data-key");
  const column = columnsOf(topology.nodes, topology.edges);
  const rows = [], places = new Map();
  for (const node of topology.nodes) {
    const x = column.get(keyOf(node));
    rows[x] = (rows[x] ?? 0) + 1;
    places.set(keyOf(node), {
      x: 10 + x * (WIDTH + GAP_X), y: 26 + (rows[x] - 1) * (HEIGHT + GAP_Y), node, rate: 0,
    });
  }
  const lines = [], top = Math.max(1, ...rates.values());
  for (const edge of topology.edges) {
    const from = places.get(keyOf(edge.origin)), to = places.get(keyOf(edge.target));
    if (!from || !to) continue;
    const rate = rates.get(`${keyOf(edge.origin)} ${keyOf(edge.target)}`) ?? 0;
    to.rate += rate;
    if (edge.origin.kind === "ingress") from.rate = Math.max(from.rate, rate);
    lines.push(element("path", {
      d: curve(from, to),
      "stroke-width": 1 + 7 * (Math.log1p(rate) / Math.log1p(top)),
      class: to.node.is_failing ? "bad" : rate ? "" : "still",
    }));
  }
  const boxes = [...places.values()].map(({ x, y, node, rate }) => {
    const key = keyOf(node), state = states.get(key);
    const failing = node.is_failing ? ", it fails" : "";
    const still = { PAUSED: ", paused", WAITING: ", waiting for others" }[state] ?? "";
    const box = element("g", {
      class: `${node.kind}${node.is_failing ? " failing" : ""}${state === "PAUSED" ? " paused" : ""}`,
      role: "button", tabindex: "0", "data-key": key, transform: `translate(${x} ${y})`,
      "aria-label": `${node.kind} ${node.name}, ${perSecond(rate)}${failing}${still}`,
    });
    const title = element("title");
    title.textContent = `${node.kind} ${node.name}`;
    const name = element("text", { x: 10, y: 19 });
    name.textContent = short(node.name);
    const under = element("text", { x: 10, y: 36, class: "rate" });
    under.textContent = `${node.kind}, ${perSecond(rate)}${node.failures ? `, ${node.failures.toLocaleString()} failures` : ""}${still}`;
    box.append(title, element("rect", { width: WIDTH, height: HEIGHT }), name, under);
    box.addEventListener("click", () => select(node));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(node); }
    });
    return box;
  });
  const width = 20 + Math.max(1, rows.length) * (WIDTH + GAP_X) - GAP_X;
  const height = 36 + Math.max(1, ...rows.filter(Boolean)) * (HEIGHT + GAP_Y);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...lines, ...boxes);
  if (focused) svg.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}
