// One group of failures: the error, notes of people, its items, and acts on one, some or all of them.
import { html, useEffect, useState } from "../lib/ui.js";
import { get, post, may, pagesOf } from "../lib/api.js";
import { Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count, counted } from "../lib/time.js";
import { stringify } from "../lib/json.js";
import { Grid } from "../parts/grid.js";
import { Title } from "../parts/shell.js";
import { Facts, Section } from "../parts/table.js";
import { Bar, Copy, Empty, Loaded, State, Time } from "../parts/marks.js";
import { Spark } from "../parts/chart.js";
import { REASON, act, ask } from "../parts/dialogs.js";
import { actOn, RATE } from "../parts/acts.js";
import { EditItem } from "../parts/item_edit.js";

/** @type {Column<any>[]} */
const ITEMS = [
  {
    title: "Item",
    width: "80px",
    cell: (row) => html`<${Link} to=${`/items/${row.id}`} tabindex="-1">${row.id}</${Link}>`,
  },
  { title: "Given up", isTime: true, cell: (row) => html`<${Time} at=${row.finishedAt} />` },
  { title: "Tries", width: "70px", isNumber: true, cell: (row) => count(row.attempt) },
  {
    title: "Arguments",
    width: "minmax(180px, 2fr)",
    cell: (row) => html`<code class="clip">${stringify(row.args)}</code>`,
  },
  {
    title: "Error",
    width: "minmax(180px, 2fr)",
    isMinor: true,
    cell: (row) => html`<span title=${row.lastError}>${(row.lastError ?? "").split("\n")[0]}</span>`,
  },
  { title: "Queue", width: "120px", isMinor: true, cell: (row) => row.queue },
];

/** @type {Record<string, string>} */
const DOING = { retry: "Revive", discard: "Discard", cancel: "Cancel" };
/** @type {Record<string, string>} */
const DONE = { retry: "revived", discard: "discarded", cancel: "cancelled" };

/**
 * Acts on the whole group: how far they are, with a way to stop them.
 * @param {{ id: string, changes: any, onChange: (value?: any) => unknown }} props
 */
function Progress({ id, changes, onChange }) {
  const [every, setEvery] = useState(5);
  const acts = useLive("/api/acts", { pageSize: 50 }, { every });
  const own = (acts.data?.items ?? []).filter((each) => each.filter.errorGroup === id).slice(0, 3);
  const isRunning = own.some((each) => each.state === "running");
  useEffect(() => setEvery(isRunning ? 1 : 5), [isRunning]);
  useEffect(() => {
    if (changes) acts.reload();
  }, [changes]);
  return html`
    <div class="acts">
      ${own.map((each) => html`
        <div key=${each.id} class="banner" role="group" aria-label=${`${DOING[each.action]} the group`}>
          <${State} of=${each.state} />${" "}
          <span role="status">
            <b class="number">${count(each.changed)}</b> ${DONE[each.action]},${" "}
            <span class="number">
              ${count(each.seen)} of ${count(each.total)}
            </span>${" "}
            looked at
          </span>
          <span class="meter">
            <${Bar}
              value=${each.state === "done" ? 1 : each.total ? each.seen / each.total : 0}
              label=${`Progress of ${DOING[each.action].toLowerCase()}`}
              tone=${each.state === "cancelled" ? "cancelled" : "done"}
            />
          </span>
          <small>${each.author}, <${Time} at=${each.createdAt} /></small>
          ${each.state === "running" && may("write") && html`
            <button
              type="button"
              class="mini"
              onClick=${() =>
                act(() => post(`/api/acts/${each.id}/cancel`), "Stopped. Changes already made are kept.", {
                  after: () => {
                    acts.reload();
                    onChange();
                  },
                })
              }
            >
              Stop
            </button>
          `}
        </div>
      `)}
    </div>
  `;
}

/** @param {{ group: Wire.GroupStory, reload: () => unknown }} props */
function Notes({ group, reload }) {
  const [text, setText] = useState("");
  /** @param {any} event */
  const send = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    if (
      await act(() => post(`/api/review/${group.id}/notes`, { text: text.trim() }), "Noted.", {
        after: reload,
      })
    ) {
      setText("");
    }
  };
  return html`
    <${Section} title="Notes">
      <ul class="notes">
        ${group.notes.map((note) => html`
          <li key=${note.id}>
            <p class="wrap">${note.text}</p>
            <small>${note.author}, <${Time} at=${note.at} /></small>
          </li>
        `)}
        ${group.notes.length === 0 && html`<li class="none">There are no notes yet.</li>`}
      </ul>
      ${may("write") && html`
        <form class="note-form" onSubmit=${send}>
          <label class="sr" for="note">A note about this group</label>
          <input
            id="note"
            maxlength="4000"
            placeholder="What is the cause, and who fixes it?"
            value=${text}
            onInput=${(event) => setText(event.target.value)}
          />
          <button type="submit" disabled=${!text.trim()}>Write</button>
        </form>
      `}
    </${Section}>
  `;
}

/** @param {{ group: Wire.GroupStory }} props */
function Sample({ group }) {
  const [isWhole, setWhole] = useState(false);
  const text = group.error || "";
  const lines = text.split("\n");
  const isLong = lines.length > 14;
  return html`
    <${Section}
      title="Error"
      actions=${
        html`
          <${Link} to=${`/items/${group.sample}`} class="button">Item ${group.sample}</${Link}>
          <${Copy} text=${text} label="Copy the error" />
        `
      }
    >
      <pre tabindex="0" aria-label="Error of a sample">
        ${isWhole || !isLong ? text : lines.slice(-14).join("\n")}
      </pre>
      ${isLong && html`
        <p>
          <button type="button" class="mini" onClick=${() => setWhole(!isWhole)}>
            ${isWhole ? "Only its end" : `All ${count(lines.length)} lines`}
          </button>
        </p>
      `}
    </${Section}>
  `;
}

/**
 * What can be done with all of it.
 * @param {{ group: Wire.GroupStory, look: any }} props
 */
function Acts({ group, look }) {
  const filter = { state: "failed", errorGroup: group.id };
  /**
   * @param {string} action
   * @param {any} more
   */
  const order = (action, more) => post("/api/acts", { action, filter, ...more });
  const canary = () =>
    act(
      () => post(`/api/review/${group.id}/canary`),
      ({ ids }) => `Item ${ids[0]} is tried again. See how it ends before you revive the others.`,
      { after: look },
    );
  /**
   * Ask, then order what the answer says.
   * @param {string} verb
   * @param {string} action
   * @param {Partial<import("../parts/dialogs.js").Question>} question
   */
  const askFor = async (verb, action, { fields = [], ...question }) => {
    const answer = await ask({
      title: `${verb} ${counted(group.items, "item")}`,
      yes: verb,
      fields: [...fields, REASON],
      check: ({ rate, queue, reason }) =>
        order(action, { reason, ...(rate ? { rate: Number(rate) } : {}), ...(queue ? { queue: queue.trim() } : {}) }),
      ...question,
    });
    if (answer) look();
  };
  const revive = () =>
    askFor("Revive", "retry", {
      text: "Each is tried again with all its tries. A rate spares a provider that has just come back.",
      fields: [{ ...RATE, value: 10 }],
    });
  const redirect = () =>
    askFor("Redirect", "retry", {
      text: "They are tried again in another queue, such as one whose workers have what these need.",
      fields: [
        { name: "queue", label: "Queue", required: true, autocomplete: "off" },
        { ...RATE, value: "" },
      ],
    });
  const discard = () =>
    askFor("Discard", "discard", {
      text: "They leave review for good and are never tried again. This cannot be undone.",
      typed: String(group.items),
      isGrave: true,
    });
  return html`
    <button type="button" class="main" onClick=${canary}>Try one</button>
    <button type="button" onClick=${revive}>Revive all</button>
    <button type="button" onClick=${redirect}>Redirect</button>
    <button type="button" onClick=${discard}>Discard all</button>
  `;
}

/** @param {{ group: Wire.GroupStory, reload: () => unknown, changes: any, look: any }} props */
function Story({ group, reload, changes, look }) {
  const [edited, setEdited] = useState(/** @type {any} */ (null));
  /** @param {string} id */
  const edit = async (id) => act(async () => setEdited(await get(`/api/items/${id}`)), null);
  /** @param {{ selected: Set<string>, clear: () => void, reload: () => unknown }} props */
  const bar = ({ selected, clear, reload: again }) => {
    const ids = [...selected];
    if (!ids.length || !may("write")) return null;
    const after = () => {
      clear();
      again();
      reload();
    };
    return html`
      <span class="number">${count(ids.length)} selected</span>
      ${ids.length === 1 && html`<button type="button" class="mini" onClick=${() => edit(ids[0])}>Edit</button>`}
      <button type="button" class="mini" onClick=${() => actOn("retry", ids, after)}>Retry</button>
      <button type="button" class="mini" onClick=${() => actOn("discard", ids, after)}>Discard</button>
      <button type="button" class="mini" onClick=${clear}>Clear</button>
    `;
  };
  return html`
    <div class="card">
      <${Facts}
        of=${[
          ["Items", html`<span class="number">${count(group.items)}</span>`],
          ["Task", html`<${Link} to=${`/items?task=${encodeURIComponent(group.task)}`}>${group.task}</${Link}>`],
          ["Class", html`<code>${group.errorClass ?? "–"}</code>`],
          ["First", html`<${Time} at=${group.firstAt} />`],
          ["Last", html`<${Time} at=${group.lastAt} />`],
          group.trend && [
            "Last 24 hours",
            html`<${Spark}
              values=${group.trend}
              tone="failed"
              label=${`Given up in the last 24 hours: ${count(group.trend.reduce((sum, each) => sum + each, 0))}`}
            />`,
          ],
        ]}
      />
    </div>
    <div class="halves">
      <${Sample} group=${group} />
      <${Notes} group=${group} reload=${reload} />
    </div>
    <${Section} title="Items">
      <${Grid}
        name=${`group ${group.id}`}
        label="Items of this group"
        columns=${ITEMS}
        changes=${changes}
        bar=${bar}
        to=${(row) => `/items/${row.id}`}
        load=${pagesOf("/api/items", { state: "failed", errorGroup: group.id })}
      />
    </${Section}>
    ${edited && html`<${EditItem} item=${edited} onClose=${() => setEdited(null)} onDone=${look} />`}
  `;
}

/** @param {Wire.GroupStory} group */
const titleOf = (group) =>
  group.message || (group.error ?? "").split("\n")[0] || group.errorClass || group.id;

/** @param {{ id: string }} props */
export default function Group({ id }) {
  const found = useLive(`/api/review/${id}`, {}, { every: 12 });
  const [changes, setChanges] = useState(0);
  const look = () => {
    setChanges((times) => times + 1);
    found.reload();
  };
  // All its items may have left review, perhaps just now and by an act whose progress is still of interest.
  const isEmpty = found.error?.status === 404;
  const group = isEmpty ? undefined : found.data;
  const title = isEmpty ? "This group is empty" : group ? titleOf(group) : "Group";
  return html`
    <${Title} text=${title} actions=${group && may("write") && html`<${Acts} group=${group} look=${look} />`}>
      <span class="wrap">${title}</span>
    </${Title}>
    <${Progress} id=${id} changes=${changes} onChange=${look} />
    ${isEmpty ? html`
      <${Empty} title="None of its items is in review any more.">
        <p><${Link} to="/review">All groups</${Link}></p>
      </${Empty}>
    ` : html`
      <${Loaded} of=${found}>
        ${(data) => html`<${Story} group=${data} reload=${found.reload} changes=${changes} look=${look} />`}
      </${Loaded}>
    `}
  `;
}
