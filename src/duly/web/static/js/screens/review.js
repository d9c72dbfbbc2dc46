// Review: what was given up, in groups that failed alike; and schedules that were deactivated after failures in a row.
import { html } from "../lib/ui.js";
import { get, may } from "../lib/api.js";
import { query, Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count, counted } from "../lib/time.js";
import { Grid } from "../parts/grid.js";
import { OwnerFilter, Tabs } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Table } from "../parts/table.js";
import { Empty, Loaded, Time } from "../parts/marks.js";
import { Spark } from "../parts/chart.js";
import { act, ask } from "../parts/dialogs.js";
import { changeAll, changedText } from "../lib/many.js";


/** @param {number[]} numbers */
const sumOf = (numbers) => numbers.reduce((sum, each) => sum + each, 0);

/** @type {Column<any>[]} */
const GROUPS = [
  {
    title: "Error",
    width: "minmax(220px, 3fr)",
    cell: (row) => html`
      <${Link} to=${`/review/${row.id}`} tabindex="-1">${row.message || row.errorClass || row.id}</${Link}>
    `,
  },
  { title: "Items", width: "80px", isNumber: true, cell: (row) => count(row.items) },
  { title: "Task", width: "minmax(110px, 1fr)", cell: (row) => html`<code>${row.task}</code>` },
  {
    title: "Last 24 hours",
    width: "125px",
    isMinor: true,
    cell: (row) =>
      row.trend && html`
        <${Spark}
          values=${row.trend}
          tone="failed"
          label=${`Given up in the last 24 hours: ${count(sumOf(row.trend))}`}
        />
      `,
  },
  {
    title: "Class",
    width: "minmax(110px, 1fr)",
    isMinor: true,
    cell: (row) => html`<code>${row.errorClass}</code>`,
  },
  { title: "First", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.firstAt} />` },
  { title: "Last", isTime: true, cell: (row) => html`<${Time} at=${row.lastAt} />` },
];

function Groups() {
  const userId = query.value.get("userId");
  return html`
    <${OwnerFilter} />
    <${Grid}
      name=${`review ${userId}`}
      label="Groups of failures"
      columns=${GROUPS}
      to=${(row) => `/review/${row.id}`}
      load=${(after, pageSize, signal, age) =>
        get("/api/review", { userId, after, pageSize: Math.min(pageSize, 100) }, { signal, age })
      }
      empty=${
        html`<${Empty} title="Nothing is in review.">
          <p>
            Items that used up their tries, or that their task gave up, wait here for a person. Similar
            failures form a group.
          </p>
        </${Empty}>`
      }
    />
  `;
}

const MOST = 500; // deactivated schedules that are looked at at once

/**
 * What schedules have in common that were deactivated: the first line of the last error, without its numbers.
 * @param {any} error
 */
export const causeOf = (error) =>
  (error ?? "")
    .split("\n")[0]
    .replace(/["'][^"']*["']/g, "…")
    .replace(/\d+/g, "#")
    .trim() || "no error text";

function Broken() {
  const userId = query.value.get("userId");
  const found = useLive("/api/schedules", { state: "broken", userId, pageSize: MOST }, { every: 8 });
  /** @param {any[]} rows */
  const revive = (rows) =>
    act(
      () => changeAll("/api/schedules/act", { action: "reactivate" }, rows.map((row) => row.id)),
      (changed) => changedText(changed.length, rows.length, "schedule", "reactivated"),
      { after: found.reload },
    );
  /**
   * @param {any} cause
   * @param {any[]} rows
   */
  const reviveAll = async (cause, rows) => {
    const yes =
      rows.length === 1 ||
      (await ask({
        title: `Reactivate ${count(rows.length)} schedules`,
        text: `Cause: ${cause}. Each is due at its next time. They are deactivated again if the cause is not gone.`,
        yes: `Reactivate ${count(rows.length)}`,
      }));
    if (yes) await revive(rows);
  };
  return html`
    <${Loaded} of=${found}>
      ${({ items, next }) => {
        const causes = new Map();
        for (const row of items) {
          causes.set(causeOf(row.lastError), [...(causes.get(causeOf(row.lastError)) ?? []), row]);
        }
        const sorted = [...causes].sort(([, one], [, other]) => other.length - one.length);
        return items.length ? html`
          ${next && html`
            <p class="note">The first ${count(MOST)}; the others follow when these are active again.</p>
          `}
          ${sorted.map(([cause, rows]) => html`
            <section key=${cause} aria-label=${cause}>
              <header class="section">
                <h2 class="wrap">${cause}</h2>
                <div class="actions">
                  <span class="pill">${count(rows.length)}</span>
                  ${may("write") && html`
                    <button
                      type="button"
                      class=${rows.length > 1 ? "main" : ""}
                      onClick=${() => reviveAll(cause, rows)}
                    >
                      ${rows.length > 1 ? `Reactivate all ${count(rows.length)}` : "Reactivate"}
                    </button>
                  `}
                </div>
              </header>
              <div class="short">
                <${Table}
                  label=${`Deactivated: ${cause}`}
                  rows=${rows}
                  columns=${[
                    {
                      title: "Schedule",
                      cell: (row) => html`<${Link} to=${`/schedules/${row.id}`}>${row.key}</${Link}>`,
                    },
                    { title: "Task", cell: (row) => html`<code>${row.task}</code>` },
                    { title: "Failures", isNumber: true, cell: (row) => count(row.failures) },
                    { title: "Deactivated", cell: (row) => html`<${Time} at=${row.brokenAt} />` },
                    {
                      title: "Last error",
                      isWide: true,
                      cell: (row) => html`<span class="wrap">${(row.lastError ?? "").split("\n")[0]}</span>`,
                    },
                    ...(may("write") && rows.length > 1
                      ? [
                          {
                            title: "Act",
                            cell: (/** @type {any} */ row) => html`
                              <button
                                type="button"
                                class="mini"
                                aria-label=${`Reactivate ${row.key}`}
                                onClick=${() => revive([row])}
                              >
                                Reactivate
                              </button>
                            `,
                          },
                        ]
                      : []),
                  ]}
                />
              </div>
            </section>
          `)}
        ` : html`
          <${Empty} title="No schedule is deactivated.">
            <p>
              If a task has a breaker, its schedules are deactivated after that number of failures in a
              row, and shown here with the cause.
            </p>
          </${Empty}>
        `;
      }}
    </${Loaded}>
  `;
}

/** @type {[string, string][]} */
const VIEWS = [["", "Items"], ["schedules", "Deactivated schedules"]];

/** @param {Answer<"/api/review/totals">} totals */
const totalsText = ({ items, groups, isMore }) =>
  `${count(items)}${isMore ? "+" : ""} ${items === 1 ? "item" : "items"} in ${counted(groups, "group")}`;

export default function Review() {
  const totals = useLive("/api/review/totals", { userId: query.value.get("userId") }, { every: 10 });
  const isBroken = query.value.get("show") === "schedules";
  const summary = totals.data && totalsText(totals.data);
  return html`
    <${Title} text="Review" actions=${html`<span class="note number">${summary}</span>`}>Review</${Title}>
    <${Tabs}
      name="show"
      label="What is in review"
      options=${VIEWS}
    />
    ${isBroken ? html`<${Broken} />` : html`<${Groups} />`}
  `;
}
