// Rows of jobs by their status: those of one job, or of all of them. They stand in the order in which they changed.
import { idColumn } from "./table.js";
import { html } from "../lib/ui.js";
import { get, may, me, post, pagesOf } from "../lib/api.js";
import { query, Link } from "../lib/router.js";
import { useLive, forget } from "../lib/live.js";
import { fromInput, count, counted } from "../lib/time.js";
import { stringify } from "../lib/json.js";
import { Grid } from "./grid.js";
import { Filters, Tabs } from "./filters.js";
import { act, ask } from "./dialogs.js";
import { Empty, State, Time } from "./marks.js";

const LIVE = ["PENDING", "PROCESSING"];
const AGAIN = ["ERROR", "NOT_FOUND", "SKIPPED"];
const TABS = [
  ["", "Pending and processing"],
  ["PENDING", "Pending"],
  ["PROCESSING", "Processing"],
  ["ERROR", "Error"],
  ["NOT_FOUND", "Not found"],
  ["SKIPPED", "Skipped"],
];
/** @param {number} number */
const rowsOf = (number) => counted(number, "row");
const MOST = 1_000; // rows of one request

/** The statuses that the address asks for. */
const chosen = () => (query.value.get("statuses") || LIVE.join(",")).split(",");

/**
 * The first fields of a row, on one line.
 * @param {{ inputSummary: any }} props
 */
export const summary = ({ inputSummary }) => Object.values(inputSummary).filter(Boolean).join(" · ");

/** @type {Column<any>[]} */
const COLUMNS = [
  idColumn("Item", "/items", "90px"),
  {
    title: "Job",
    width: "80px",
    isNumber: true,
    isGlobal: true,
    cell: (row) => html`
      <${Link} to=${`/jobs/${row.jobId}`} tabindex="-1" aria-label=${`Go to job ${row.jobId}`}>
        ${row.jobId}
      </${Link}>
    `,
  },
  { title: "Row", width: "80px", isNumber: true, isMinor: true, cell: (row) => count(row.row) },
  {
    title: "Input",
    width: "minmax(120px, 2fr)",
    cell: (row) => html`<span class="clip" title=${summary(row)}>${summary(row)}</span>`,
  },
  { title: "Status", width: "125px", cell: (row) => html`<${State} of=${row.status} />` },
  { title: "Attempts", width: "90px", isNumber: true, isMinor: true, cell: (row) => row.attempts },
  {
    title: "Locked by",
    width: "minmax(80px, 1fr)",
    isMinor: true,
    cell: (row) => row.lockedBy && html`<code class="clip">${row.lockedBy}</code>`,
  },
  { title: "Updated", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.updatedAt} />` },
  {
    title: "Job type",
    width: "110px",
    isMinor: true,
    isGlobal: true,
    cell: (row) => row.jobType && html`<span class="pill">${row.jobType}</span>`,
  },
  {
    title: "Progress",
    width: "90px",
    isMinor: true,
    isGlobal: true,
    cell: (row) => html`<span class="pill" title="Of its job">${Math.floor((row.progress ?? 0) * 100)} %</span>`,
  },
  {
    title: "Error",
    width: "minmax(120px, 2fr)",
    isMinor: true,
    isJob: true,
    cell: (row) => row.lastError && html`<span class="wrong clip">${row.lastError.split("\n", 1)[0]}</span>`,
  },
];

/**
 * Have rows, named as `job-item`, tried once more: each job is asked on its own.
 * @param {Iterable<string>} keys
 */
async function reprocess(keys) {
  const jobs = new Map();
  for (const key of keys) {
    const [job, item] = key.split("-");
    jobs.set(job, [...(jobs.get(job) ?? []), Number(item)]);
  }
  let items = 0;
  for (const [job, itemIds] of jobs) {
    for (let at = 0; at < itemIds.length; at += MOST) {
      items += (
        await post(`/api/jobs/${job}/reprocess`, {
          scope: "items",
          itemIds: itemIds.slice(at, at + MOST),
        })
      ).items;
    }
  }
  return items;
}

/** @type {Record<string, "failedItems" | "notFoundItems" | "skippedItems">} */
const HELD = { ERROR: "failedItems", NOT_FOUND: "notFoundItems", SKIPPED: "skippedItems" };

/**
 * The jobs that have rows of these statuses, and how many.
 * @param {string[]} statuses
 * @param {Query} filter
 */
async function jobsWith(statuses, { jobId, jobType, userId }) {
  /** @type {Wire.Job[]} */
  const found = [];
  if (jobId) {
    for (const id of String(jobId).split(",")) found.push(await get(`/api/jobs/${id}`));
  } else {
    /** @type {string | null | undefined} */
    let after = null;
    do {
      /** @type {Answer<"/api/jobs">} */
      const page = await get("/api/jobs", { jobType, userId, after, pageSize: 500 });
      found.push(...page.items);
      after = page.next;
    } while (after);
  }
  const owner = userId === "me" && me.value ? me.value.userId : userId;
  const matching = found.filter(
    (job) =>
      (!jobType || job.jobType === jobType) && (!owner || owner === "all" || job.userId === owner),
  );
  const held = matching.map((job) => ({
    id: job.id,
    rows: statuses.reduce((sum, status) => sum + job[HELD[status]], 0),
  }));
  return held.filter((job) => job.rows);
}

/**
 * Reprocess all rows that match, after the person has typed how many these are.
 * @param {string[]} statuses
 * @param {Query} filter
 * @param {() => unknown} reload
 */
async function reprocessAll(statuses, filter, reload) {
  /** @type {{ id: number, rows: number }[]} */
  let jobs = [];
  const isKnown = await act(async () => {
    jobs = await jobsWith(statuses, filter);
  });
  if (!isKnown) return;
  const total = jobs.reduce((sum, job) => sum + job.rows, 0);
  if (!total) {
    await ask({ title: "No row matches", text: "There is nothing to reprocess.", yes: "OK" });
    return;
  }
  const answer = await ask({
    title: `Reprocess all ${rowsOf(total)}?`,
    text: `Those of ${
      jobs.length === 1 ? `job ${jobs[0].id}` : `${count(jobs.length)} jobs`
    }, in the background. Rows that could not be read have to be fixed instead.`,
    typed: String(total),
    yes: "Reprocess",
    fields: [
      {
        name: "reset",
        label: "Also rows that were reprocessed as often as the settings allow",
        type: "checkbox",
      },
    ],
  });
  if (!answer) return;
  await act(
    async () => {
      for (const job of jobs) {
        await post(`/api/jobs/${job.id}/reprocess`, { scope: "job", statuses, reset: answer.reset });
      }
    },
    `${rowsOf(total)} will be reprocessed.`,
    { after: reload },
  );
}

/** @param {{ jobId?: number | null, every?: number }} props */
export function Pending({ jobId = null, every = 6 }) {
  const statuses = chosen();
  /** @type {Query} */
  const filter = jobId
    ? {}
    : {
        jobId: query.value.get("jobId"),
        jobType: query.value.get("jobType"),
        userId: may("admin") ? query.value.get("userId") : null,
        from: fromInput(query.value.get("from")),
        to: fromInput(query.value.get("to")),
      };
  const root = jobId ? `/api/jobs/${jobId}` : "/api/pending";
  const sums = useLive(`${root}/counts`, filter, { every: 12 });
  /** @type {Record<string, number>} */
  const counts = { ...sums.data?.counts };
  if (sums.data) counts[""] = LIVE.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  const types = useLive(jobId ? null : "/api/jobs/types", { pageSize: 500 }, { every: 0 });
  const fields = [
    { name: "jobType", label: "Job type", options: (types.data?.items ?? []).map((each) => each.name) },
    { name: "jobId", label: "Job" },
    ...(may("admin") ? [{ name: "userId", label: "Owner" }] : []),
    { name: "from", label: "From", type: "time" },
    { name: "to", label: "To", type: "time" },
  ];
  const isAgain = statuses.every((status) => AGAIN.includes(status));
  const matching = counts[query.value.get("statuses") ?? ""];
  /** @param {GridSelection} props */
  const bar = ({ selected, clear, reload }) => {
    const after = () => {
      forget();
      clear();
      reload();
      sums.reload();
    };
    const jobs = new Set([...selected].map((key) => key.split("-")[0]));
    if (selected.size) {
      return html`
        <span class="number">${count(selected.size)} selected</span>
        ${!jobId && jobs.size === 1 && html`
          <${Link} class="mini" to=${`/jobs/${[...jobs][0]}`}>Go to job</${Link}>
        `}
        <button
          type="button"
          class="mini"
          onClick=${() =>
            act(
              () => reprocess(selected),
              (items) => `${rowsOf(items)} are reprocessed.`,
              { after },
            )
          }
        >
          Reprocess selected
        </button>
        <button type="button" class="mini" onClick=${clear}>Clear</button>
      `;
    }
    // Jobs count their rows by status, not by the time of the last change.
    return isAgain && !filter.from && !filter.to ? html`
      <button
        type="button"
        class="mini"
        onClick=${() => reprocessAll(statuses, jobId ? { jobId } : filter, after)}
      >
        Reprocess all ${matching === undefined ? "" : count(matching)} matching
      </button>
    ` : null;
  };
  const columns = COLUMNS.filter((column) => (jobId ? !column.isGlobal : !column.isJob));
  const name = jobId ? `job ${jobId} pending` : `pending ${stringify(filter)}`;
  const list = jobId ? `${root}/items` : root;
  return html`
    <${Tabs}
      name="statuses"
      label="Statuses"
      options=${jobId ? [...TABS, ["DONE", "Done"]] : TABS}
      counts=${counts}
      capped=${sums.data?.capped ?? false}
    />
    ${!jobId && html`
      <${Filters}
        fields=${fields}
        free=${(text, add) =>
          /^\d+$/.test(text) ? add("jobId", text) : "Type job:17 or jobType:csv; a number is a job."
        }
        placeholder="job:17 jobType:csv"
      />
    `}
    <${Grid}
      name=${`${name} ${statuses}`}
      label="Rows of jobs"
      columns=${columns}
      keyOf=${(row) => `${row.jobId}-${row.id}`}
      to=${(row) => (jobId ? `/items/${row.id}` : `/jobs/${row.jobId}`)}
      every=${every}
      load=${pagesOf(list, { ...filter, statuses: statuses.join(",") })}
      bar=${may("write") ? bar : null}
      empty=${
        html`<${Empty} title="No row is in this state.">
          <p>
            ${isAgain ? "Nothing went wrong." : "All rows have ended."}${" "}
            <${Link} to="/jobs">Send a file</${Link}> to add rows.
          </p>
        </${Empty}>`
      }
    />
  `;
}
