// The dead letters: lists them, shows one in full when it is opened, and replays them.
import { count, get, made } from "./parts.js";

const MOST = 100;
const FILTERS = ["function", "error"];

export class Letters {
  #ask; #report; #boxes = new Map(); #filter = ""; #known = null;

  // Args: ask sends a request; report shows that one has failed.
  constructor(ask, report) {
    this.#ask = ask;
    this.#report = report;
    get("letters-filter").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#list();
    });
    for (const [id, query] of [["replay-these", ""], ["replay-these-to-target", "&to-target=true"]]) {
      get(id).addEventListener("click", () => this.#replay("dead-letters/replay", this.#filter + query));
    }
  }

  // Lists them again if the application has counted other ones: they are in a topic, which takes a while to read.
  async look(number) {
    if (number === this.#known) return;
    this.#known = number;
    await this.#list();
  }

  async #list() {
    const given = FILTERS.map((name) => [name, get(`letters-${name}`).value.trim()]).filter(([, text]) => text);
    this.#filter = new URLSearchParams(given).toString();
    try {
      this.#show(await this.#ask(`dead-letters?${this.#filter}&limit=${MOST}`));
    } catch (error) {
      const hasNoTopic = error.status === 404;
      if (!hasNoTopic) this.#known = null; // look again
      get("letters-note").textContent = error.message;
      get("letters-filter").hidden = get("letters").hidden = hasNoTopic;
      if (error.status === 401 || !error.status) this.#report(error);
    }
  }

  #show({ letters, total, replay_topic: replayTopic }) {
    const boxes = letters.map((each) => [each.id, this.#boxes.get(each.id) ?? this.#box(each, replayTopic)]);
    this.#boxes = new Map(boxes);
    get("letters").replaceChildren(...this.#boxes.values());
    get("letters-note").textContent = total === 0
      ? `None waits${this.#filter ? " that is so" : ""}.`
      : total > letters.length ? `The newest ${count(letters.length)} of ${count(total)}.` : `${count(total)} in all.`;
    get("replay-these").hidden = !(this.#filter && total);
    get("replay-these-to-target").hidden = !(this.#filter && total && replayTopic);
  }

  #box(letter, replayTopic) {
    const box = document.createElement("details");
    const place = letter.target ?? `${letter.topic}/${letter.partition}/${letter.offset}`;
    const time = letter.time ? new Date(letter.time).toLocaleString() : "";
    const line = [time, place, letter.error_code, letter.error_type].filter(Boolean).join(" · ");
    box.append(made("summary", line), made("p", letter.error_message ?? "", { class: "bad" }));
    box.addEventListener("toggle", async () => {
      if (!box.open || box.dataset.filled) return;
      box.dataset.filled = "true";
      try {
        const { traceback, ...facts } = await this.#ask(`dead-letters/${letter.id}`);
        box.append(this.#button("Replay into its topic", letter, ""));
        if (replayTopic) box.append(this.#button("Replay to its target", letter, "to-target=true"));
        box.append(...(traceback ? [this.#text(traceback, `Traceback of ${letter.id}`)] : []));
        box.append(this.#text(JSON.stringify(facts, null, 2), `All parts of ${letter.id}`));
      } catch (error) {
        delete box.dataset.filled;
        get("letters-note").textContent = error.message;
      }
    });
    return box;
  }

  #text(text, label) {
    return made("pre", text, { tabindex: "0", role: "region", "aria-label": label });
  }

  #button(text, letter, query) {
    const button = made("button", text, { type: "button", "aria-label": `${text}: ${letter.id}` });
    button.addEventListener("click", () => this.#replay(`dead-letters/${letter.id}/replay`, query));
    return button;
  }

  async #replay(path, query) {
    const note = get("letters-note");
    let text;
    try {
      const { replayed, problems } = await this.#ask(`${path}?${query}`, "POST");
      text = [`Replayed ${count(replayed)}.`, ...problems.slice(0, 5)].join(" ");
      await this.#list();
    } catch (error) {
      text = error.message;
      if (error.status === 401 || !error.status) this.#report(error);
    }
    note.textContent = `${text} ${text.startsWith("Replayed") ? note.textContent : ""}`;
    note.focus(); // its button may be gone
  }
}
