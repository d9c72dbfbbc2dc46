// Items: every item, by whatever is known of it; selected ones, or all that fit, are acted on.
import { html, useState } from "../lib/ui.js";
import { may, pagesOf } from "../lib/api.js";
import { go, query, Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { fromInput, count } from "../lib/time.js";
import { stringify } from "../lib/json.js";
import { clock } from "../lib/prefs.js";
import { Grid } from "../parts/grid.js";
import { Filters, Tabs } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Command, Empty, ItemState, Time } from "../parts/marks.js";
import { Ordered, RATE, WORDS, actOn, orderAct } from "../parts/acts.js";
import { Put } from "../parts/put.js";

const STATES = [
  ["", "All"],
  ["waiting", "Waiting"],
  ["running", "Running"],
  ["failed", "In review"],
  ["done", "Done"],
  ["cancelled", "Cancelled"],
];
const DATES = [
  ["created", "created"],
  ["due", "due"],
  ["started", "started"],
  ["finished", "finished"],
];
const NUMBERS = ["minTries", "jobId", "scheduleId"];
const UNINDEXED = ["where", "error", "minTries", "from", "to"];

const fields = () => [
  { name: "task", label: "Task" },
  { name: "queue", label: "Queue" },
  { name: "key", label: "Key" },
  { name: "where", label: "Value", many: true },
  { name: "error", label: "Error" },
  { name: "minTries", label: "Tries, at least" },
  { name: "jobId", label: "Job" },
  { name: "scheduleId", label: "Schedule" },
  { name: "errorGroup", label: "Group" },
  ...(may("admin") ? [{ name: "userId", label: "Owner" }] : []),
  { name: "dateField", label: "Time of", options: DATES },
  { name: "from", label: "From", type: "time" },
  { name: "to", label: "To", type: "time" },
];

/** The filter in the address, as the API takes it. */
function filterOf() {
  /** @type {Query} */
  const filter = {};
  for (const { name } of [{ name: "state" }, ...fields()]) {
    const values = query.value.getAll(name).filter(Boolean);
    if (values.length) filter[name] = name === "where" ? values : values.at(-1);
  }
  for (const name of ["from", "to"]) if (filter[name]) filter[name] = fromInput(filter[name]);
  if (!filter.from && !filter.to) delete filter.dateField;
  return filter;
}

const HINT =
  "Type name:value, such as task:http or error:timeout; name=value searches the arguments; a number is an id.";

/**
 * Text that names no filter: an id, a value, or a key.
 * @type {import("../parts/filters.js").FreeText}
 */
function free(text, add) {
  if (/^\d+$/.test(text)) go(`/items/${text}`);
  else if (/^[^=\s]+=.*$/.test(text)) add("where", text);
  else if (/\s/.test(text)) return HINT;
  else add("key", text);
  return undefined;
}

/** @type {Column<Wire.Item>[]} */
const COLUMNS = [
  {
    title: "Item",
    width: "90px",
    isNumber: true,
    cell: (item) => html`<${Link} to=${`/items/${item.id}`} tabindex="-1">${item.id}</${Link}>`,
  },
  { title: "State", width: "115px", cell: (item) => html`<${ItemState} item=${item} />` },
  { title: "Task", width: "minmax(110px, 180px)", cell: (item) => item.task },
  {
    title: "Key",
    width: "minmax(80px, 1fr)",
    isMinor: true,
    cell: (item) => item.key && html`<code class="clip">${item.key}</code>`,
  },
  { title: "Due", isTime: true, cell: (item) => html`<${Time} at=${item.dueAt} />` },
  {
    title: "Tries",
    width: "64px",
    isNumber: true,
    cell: (item) => `${item.attempt}${item.maxAttempts ? `/${item.maxAttempts}` : ""}`,
  },
  { title: "Ended", isTime: true, isMinor: true, cell: (item) => html`<${Time} at=${item.finishedAt} />` },
  {
    title: "Owner",
    width: "90px",
    isMinor: true,
    isAdmin: true,
    cell: (item) => item.owner ?? html`<span class="none">–</span>`,
  },
  {
    title: "Error or arguments",
    width: "minmax(220px, 3fr)",
    isMinor: true,
    cell: (item) => {
      const wrong = item.state === "waiting" && item.cause ? item.cause : item.state !== "done" && item.lastError;
      return wrong ? html`
        <span class="wrong clip">${wrong.split("\n", 1)[0]}</span>
      ` : html`<code class="clip">${stringify(item.args)}</code>`;
    },
  },
];

export default function Items() {
  const [isPutting, setPutting] = useState(false);
  const [changes, setChanges] = useState(0);
  const reload = () => setChanges((times) => times + 1);
  const filter = filterOf();
  const { state, userId, ...others } = filter;
  const isSlow = UNINDEXED.some((name) => others[name]);
  const counts = useLive("/api/items/counts", { ...others, userId }, { every: isSlow ? 30 : 20 });
  const sums = { ...counts.data?.counts };
  const capped = { ...counts.data?.capped };
  if (counts.data) {
    sums[""] = Object.values(counts.data.counts).reduce((all, each) => all + each, 0);
    capped[""] = Object.values(counts.data.capped).some(Boolean);
  }
  const actFilter = Object.fromEntries(
    Object.entries({ state, ...others })
      .filter(([, value]) => value)
      .map(([name, value]) => [
        name,
        NUMBERS.includes(name) && /^\d+$/.test(value) ? Number(value) : value,
      ]),
  );
  const canAll = Object.keys(actFilter).length > 0 && counts.data && !counts.error;
  const matching = counts.data ? `${count(sums[state ?? ""] ?? 0)}${capped[state ?? ""] ? "+" : ""}` : "";
  /** @param {{ selected: Set<string>, clear: () => void, reload: () => unknown }} props */
  const bar = ({ selected, clear, reload: again }) => {
    const after = () => {
      clear();
      again();
    };
    if (selected.size) {
      return html`
        <span class="number">${count(selected.size)} selected</span>
        ${Object.entries(WORDS).map(([action, [word]]) => html`
          <button type="button" class="mini" onClick=${() => actOn(action, [...selected], after)}>${word}</button>
        `)}
        <button type="button" class="mini" onClick=${clear}>Clear</button>
      `;
    }
    return canAll ? html`
      <label class="inline">
        <span class="sr">Act on all that fit</span>
        <select
          class="mini"
          value=""
          onChange=${(event) => {
            const action = event.target.value;
            event.target.value = "";
            if (action) orderAct(action, actFilter, { userId, fields: action === "retry" ? [RATE] : [] });
          }}
        >
          <option value="">All ${matching} matching…</option>
          ${Object.entries(WORDS).map(([action, [word]]) => html`<option value=${action}>${word} all</option>`)}
        </select>
      </label>
    ` : null;
  };
  const columns = COLUMNS.filter((column) => !column.isAdmin || may("admin"));
  const empty = Object.keys(filter).length ? html`
    <${Empty} title="No item fits.">
      <p>Remove a filter, or show <${Link} to="/items">all items</${Link}>.</p>
    </${Empty}>
  ` : html`
    <${Empty} title="No items yet.">
      <p>Put one from here, from your code, or in a terminal:</p>
      <${Command}>duly put TASK name=value --app MODULE:APP</${Command}>
    </${Empty}>
  `;
  return html`
    <${Title}
      actions=${
        may("write") && html`
          <button type="button" class="main" onClick=${() => setPutting(true)}>Put a new item</button>
        `
      }
    >
      Items
    </${Title}>
    <${Ordered} onDone=${reload} />
    <${Tabs} name="state" label="States" options=${STATES} counts=${sums} capped=${capped} />
    <${Filters} fields=${fields()} free=${free} placeholder="task:http error:timeout order.id=17 or an id" />
    <${Grid}
      name=${`items ${stringify(filter)} ${filter.from || filter.to ? clock.value : ""}`}
      label="Items"
      columns=${columns}
      changes=${changes}
      to=${(item) => `/items/${item.id}`}
      load=${pagesOf("/api/items", filter)}
      bar=${may("write") ? bar : null}
      empty=${empty}
      every=${isSlow ? 15 : 5}
    />
    ${isPutting && html`
      <${Put}
        first=${filter.task ?? ""}
        onClose=${() => setPutting(false)}
        onDone=${(made) => {
          setPutting(false);
          go(`/items/${made.id}`);
        }}
      />
    `}
  `;
}
