// The trace of a record or an address: a tree of what has caused what.
import { count, get, made } from "./parts.js";

const MOST = 500;
const RECORD = /^[^/]+\/\d+\/\d+$/;

export class Traces {
  #ask; #report;

  // Args: ask sends a request; report shows that one has failed.
  constructor(ask, report) {
    this.#ask = ask;
    this.#report = report;
    get("trace-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#find(get("trace-what").value.trim());
    });
  }

  async #find(what) {
    const box = get("trace"), note = get("trace-note");
    box.hidden = true;
    try {
      const trace = await this.#ask(pathOf(what)), shown = trace.invocations.slice(0, MOST);
      note.textContent = noteAbout(trace, shown.length);
      box.replaceChildren(treeOf(shown, new Set(trace.asked)));
      box.hidden = false;
    } catch (error) {
      note.textContent = error.message;
      if (error.status === 401 || !error.status) this.#report(error);
    }
  }
}

function pathOf(what) {
  const [first, second, ...rest] = what.split("/");
  const parts = RECORD.test(what) ? ["traces", "records", first, second, ...rest]
    : ["traces", "addresses", first ?? "", second ?? "", rest.join("/")];
  return parts.map(encodeURIComponent).join("/");
}

function noteAbout(trace, shown) {
  const all = trace.invocations.length, more = trace.is_cut ? "more than " : "";
  const text = shown < all ? `The first ${count(shown)} of ${more}${count(all)} calls.` : all === 1 ? "1 call." : `${count(all)} calls.`;
  return trace.left_out ? `${text} Its micro-batches had too many entries: ${count(trace.left_out)} are left out.` : text;
}

// A call with several causes is below the first of them that is shown.
function treeOf(invocations, asked) {
  const root = made("ul", ""), items = new Map();
  for (const each of invocations) {
    const item = made("li", ""), below = made("ul", "");
    const name = made("span", each.address, asked.has(each.id) ? { class: "asked" } : {});
    const time = made("span", ` batch ${count(each.batch)}, ${new Date(each.time).toLocaleString()}`, { class: "note" });
    const leaves = [
      ...each.failures.map((text) => made("li", `failed: ${text}`, { class: "bad" })),
      ...each.records_out.map(({ topic, key }) => made("li", `record to ${topic}${key ? `, key ${key}` : ""}`)),
    ];
    item.append(...each.records_in.map((place) => made("span", `${place} → `)), name, time);
    below.append(...leaves);
    item.append(below);
    items.set(each.id, below);
    const cause = each.causes.find((id) => id !== each.id && items.has(id));
    (cause === undefined ? root : items.get(cause)).append(item);
  }
  for (const list of root.querySelectorAll("ul")) if (!list.childElementCount) list.remove();
  return root;
}
