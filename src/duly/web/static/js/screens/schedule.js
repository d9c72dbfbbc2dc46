// One schedule: its rule in plain words, its next runs, what it made, and what was done to it.
import { html, useState } from "../lib/ui.js";
import { may, patch, post, remove } from "../lib/api.js";
import { go, Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count, duration, secondsBetween } from "../lib/time.js";
import { AuditLines } from "../parts/audit_lines.js";
import { Title } from "../parts/shell.js";
import { Facts, Section, Table } from "../parts/table.js";
import { Copy, Duration, Loaded, State, Time } from "../parts/marks.js";
import { act, askTyped } from "../parts/dialogs.js";
import { Json } from "../parts/json_view.js";
import { NextRuns, ScheduleForm } from "../parts/schedule_form.js";

/** @type {Record<string, string>} */
const CATCH_UP = {
  latest: "runs the latest missed one",
  all: "runs every missed one",
  skip: "skips what was missed",
};
/** @type {Record<string, string>} */
const OVERLAP = {
  allow: "runs beside the last one",
  skip: "skips while the last one is live",
  supersede: "replaces the one that waits",
};

/**
 * How the banner of a schedule looks, by its state.
 * @type {Record<string, string>}
 */
const LOOKS = { broken: "is-bad", paused: "is-warn" };

/** @param {any} row */
const took = (row) =>
  row.startedAt && row.finishedAt ? secondsBetween(row.startedAt, row.finishedAt) : null;
/** @param {any} row */
const late = (row) => (row.startedAt ? Math.max(secondsBetween(row.plannedAt, row.startedAt), 0) : null);

/** @type {Column<any>[]} */
const RUNS = [
  { title: "Item", cell: (row) => html`<${Link} to=${`/items/${row.id}`}>${row.id}</${Link}>` },
  { title: "State", cell: (row) => html`<${State} of=${row.state} />` },
  { title: "Planned", cell: (row) => html`<${Time} at=${row.plannedAt} />` },
  { title: "Late", isNumber: true, cell: (row) => html`<${Duration} seconds=${late(row)} />` },
  { title: "Took", isNumber: true, cell: (row) => html`<${Duration} seconds=${took(row)} />` },
  { title: "Tries", isNumber: true, cell: (row) => count(row.attempt) },
  {
    title: "Error",
    isWide: true,
    cell: (row) => html`<span class="wrap">${(row.lastError ?? "").split("\n")[0]}</span>`,
  },
];

/**
 * What can be done to it.
 * @param {{ story: Wire.ScheduleStory, reload: () => unknown, onEdit: () => void }} props
 */
function Acts({ story, reload, onEdit }) {
  const at = `/api/schedules/${story.id}`;
  /**
   * @param {string} name
   * @param {any} done
   */
  const doing = (name, done) => act(() => post(`${at}/${name}`), done, { after: reload });
  const pause = () =>
    act(
      () => post(`${at}/pause`),
      { text: `${story.key} is paused.`, undo: () => doing("resume", `${story.key} goes on.`) },
      { after: reload },
    );
  const drop = async () => {
    const text = "Its waiting items are cancelled. This cannot be undone.";
    const yes = await askTyped(`Remove ${story.key}`, text, story.key, "Remove");
    if (yes) {
      await act(() => remove(at), `${story.key} is removed.`, {
        after: () => go("/schedules", { replace: true }),
      });
    }
  };
  return html`
    <button type="button" onClick=${() => doing("run", `One more item of ${story.key} is due now.`)}>
      Run now
    </button>
    ${story.state === "active" && html`<button type="button" onClick=${pause}>Pause</button>`}
    ${story.state === "paused" && html`
      <button type="button" class="main" onClick=${() => doing("resume", `${story.key} goes on.`)}>Resume</button>
    `}
    ${story.state === "broken" && html`
      <button
        type="button"
        class="main"
        onClick=${() => doing("reactivate", `${story.key} is active again.`)}
      >
        Reactivate
      </button>
    `}
    <button type="button" onClick=${onEdit}>Edit</button>
    <button type="button" onClick=${drop}>Remove</button>
  `;
}

/**
 * What is known of it.
 * @param {{ story: Wire.ScheduleStory }} props
 */
function Story({ story }) {
  return html`
    <div class=${`banner ${LOOKS[story.state] ?? ""}`}>
      <${State} of=${story.state} label=${story.state === "broken" ? "deactivated" : story.state} />
      <strong>${story.describe}</strong>
      ${story.state === "broken" && html`
        <span>
          It failed ${count(story.failures)} times in a row
          ${story.lastError ? `: ${story.lastError.split("\n")[0]}` : ""}. Mend the cause, then
          reactivate it.
        </span>
      `}
      ${story.state === "paused" && html`
        <span>Since <${Time} at=${story.pausedAt} />. Occurrences missed meanwhile are not made up for.</span>
      `}
    </div>
    <div class="cards">
      <div class="card">
        <h2>Next runs</h2>
        ${story.next.length ? html`
          <${NextRuns} next=${story.next} notes=${story.notes} zone=${story.zone} />
        ` : html`<p class="note">None while it is ${story.state === "broken" ? "deactivated" : story.state}.</p>`}
      </div>
      <div class="card">
        <${Facts}
          of=${[
            ["Task", html`<${Link} to=${`/items?task=${encodeURIComponent(story.task)}`}>${story.task}</${Link}>`],
            ["Queue", story.queue],
            [
              "Rule",
              html`<code>${story.rule}</code> <${Copy} text=${story.rule} label="Copy the rule" />`,
            ],
            ["Zone", story.zone],
            ["After a downtime", CATCH_UP[story.catchUp] ?? story.catchUp],
            ["Overlap", OVERLAP[story.overlap] ?? story.overlap],
            [
              "Not later than",
              story.maxLateness === null ? "however late" : duration(story.maxLateness),
            ],
            ["Rank", story.rank],
            story.ring && [
              "Slot",
              html`<${Link} to=${`/schedules?ring=${encodeURIComponent(story.ring)}&slot=${story.slot}`}>
                ${story.slot} of ${story.ring}
              </${Link}>`,
            ],
            ["Last success", html`<${Time} at=${story.lastSuccessAt} />`],
            ["Failures in a row", html`<span class="number">${count(story.failures)}</span>`],
            ["Skipped", html`<span class="number">${count(story.skipped)}</span>`],
            story.unchanged > 0 && ["Unchanged", html`<span class="number">${count(story.unchanged)}</span>`],
            ["Created", html`<${Time} at=${story.createdAt} />`],
            ["Made by", story.owner ?? (story.isDeclared ? "code that declares it" : "code")],
          ]}
        />
      </div>
    </div>
    <${Section} title="Arguments">
      <${Json} value=${story.args} label="Arguments" />
    </${Section}>
    ${story.keep !== null && html`
      <${Section} title="Kept by the task">
        <${Json} value=${story.keep} label="Kept by the task" />
      </${Section}>
    `}
    <${Section}
      title="History"
      actions=${
        html`<${Link} to=${`/items?scheduleId=${story.id}`} class="button">
          All its items
        </${Link}>`
      }
    >
      <${Table} label="History" columns=${RUNS} rows=${story.items} empty="It has made no item yet." />
    </${Section}>
    <${AuditLines} title="Audit" lines=${story.audit} />
  `;
}

/** @param {{ id: string }} props */
export default function Schedule({ id }) {
  const found = useLive(`/api/schedules/${id}`, {}, { every: 3 });
  const [isEdited, setEdited] = useState(false);
  const story = found.data;
  return html`
    <${Title}
      text=${story?.key ?? `Schedule ${id}`}
      actions=${
        story &&
        may("write") && html`<${Acts} story=${story} reload=${found.reload} onEdit=${() => setEdited(true)} />`
      }
    >
      ${story?.key ?? `Schedule ${id}`}
    </${Title}>
    <${Loaded} of=${found}>${(data) => html`<${Story} story=${data} />`}</${Loaded}>
    ${isEdited && html`
      <${ScheduleForm}
        schedule=${story}
        onClose=${() => setEdited(false)}
        save=${(values) => patch(`/api/schedules/${id}`, values)}
        onDone=${async () => {
          setEdited(false);
          await found.reload();
        }}
      />
    `}
  `;
}
