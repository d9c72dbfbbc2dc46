// One job: how far it is and how fast, its rows as the task returned them, what was refused, and all that can be done.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { address, get, may, post, remove, upload, pagesOf } from "../lib/api.js";
import { go, query, Link } from "../lib/router.js";
import { useLive, forget } from "../lib/live.js";
import { count, duration, secondsBetween } from "../lib/time.js";
import { parse, stringify } from "../lib/json.js";
import { now } from "../lib/prefs.js";
import { Grid } from "../parts/grid.js";
import { Tabs } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { service } from "../lib/service.js";
import { Facts, Section, Table, Tile } from "../parts/table.js";
import { Chart } from "../parts/chart.js";
import { Pending, summary } from "../parts/pending.js";
import { Dialog, REASON, act, ask, say } from "../parts/dialogs.js";
import { Field } from "../parts/fields.js";
import { Bar, Empty, Loaded, RowButton, State, Time, Trouble } from "../parts/marks.js";

const FILES = new URL("../..", import.meta.url); // the static files, those of apps among them
const MANY = 10; // columns of results that have a place
const TABS = [
  ["", "Rows"],
  ["pending", "Pending"],
  ["refused", "Refused"],
  ["events", "Events"],
];
/** @param {any} value */
const shown = (value) =>
  value === null || value === undefined ? "" : typeof value === "string" ? value : stringify(value);

/** @param {{ job: Wire.Job, reload: () => unknown }} props */
function Acts({ job, reload }) {
  if (!may("write")) return null;
  const done = { after: reload };
  const path = `/api/jobs/${job.id}`;
  const isOver = job.queueState === "DONE";
  const kickoff = () =>
    act(
      () => post(`${path}/kickoff`, undefined, { query: { durationMs: 5_000 } }),
      ({ processed, seconds, triedAgain }) => {
        const retried = triedAgain ? `, ${count(triedAgain)} are tried again` : "";
        return `${count(processed)} rows ended in ${duration(seconds)}${retried}.`;
      },
      done,
    );
  const reprocess = async () => {
    const answer = await ask({
      title: "Reprocess rows",
      text: "Rows are tried again, with their full number of tries. Rows that could not be read must be fixed first.",
      yes: "Reprocess",
      fields: [
        { name: "ERROR", label: `In error (${count(job.failedItems)})`, type: "checkbox", value: true },
        {
          name: "NOT_FOUND",
          label: `Not found (${count(job.notFoundItems)})`,
          type: "checkbox",
          value: true,
        },
        { name: "SKIPPED", label: `Skipped (${count(job.skippedItems)})`, type: "checkbox" },
        {
          name: "reset",
          label: "Also rows that were reprocessed as often as the settings allow",
          type: "checkbox",
        },
      ],
    });
    const statuses = answer ? ["ERROR", "NOT_FOUND", "SKIPPED"].filter((status) => answer[status]) : [];
    if (statuses.length) {
      act(
        () => post(`${path}/reprocess`, { scope: "job", statuses, reset: answer.reset }),
        ({ items }) => `At most ${count(items)} rows are reprocessed.`,
        done,
      );
    }
  };
  const cancel = async () => {
    const answer = await ask({
      title: `Cancel job ${job.id}?`,
      text: "No more rows are taken or started, and all that have not ended are cancelled.",
      typed: "cancel",
      yes: "Cancel the job",
      no: "Leave it",
      isGrave: true,
      fields: [REASON],
    });
    if (answer) {
      act(
        () => post(`${path}/cancel`, { reason: answer.reason }),
        `Job ${job.id} is being cancelled.`,
        done,
      );
    }
  };
  const forgetIt = async () => {
    const answer = await ask({
      title: `Remove job ${job.id}?`,
      text: `Its ${count(job.totalItems)} rows, their results and its file are deleted. This cannot be undone.`,
      typed: String(job.id),
      yes: "Remove",
      isGrave: true,
    });
    if (answer) act(() => remove(path), `Job ${job.id} is removed.`, { after: () => go("/jobs") });
  };
  return html`
    ${!isOver &&
      (job.queueState === "PAUSED" ? html`
        <button
          type="button"
          class="main"
          onClick=${() => act(() => post(`${path}/resume`), `Job ${job.id} goes on.`, done)}
        >
          Resume
        </button>
      ` : html`
        <button
          type="button"
          onClick=${() =>
            act(
              () => post(`${path}/pause`),
              {
                text: `Job ${job.id} is paused.`,
                undo: () => act(() => post(`${path}/resume`), "Undone.", done),
              },
              done,
            )
          }
        >
          Pause
        </button>
        <button type="button" onClick=${kickoff}>Kick off</button>
      `)}
    <button type="button" onClick=${reprocess}>Reprocess…</button>
    ${!isOver && html`<button type="button" onClick=${cancel}>Cancel</button>`}
    <button type="button" onClick=${forgetIt}>Remove</button>
  `;
}

/** @type {Column<any>} */
const ROW = {
  title: "Row",
  width: "80px",
  isNumber: true,
  cell: (row) => html`
    <${Link} to=${`/items/${row.id}`} tabindex="-1" aria-label=${`Row ${row.row}, item ${row.id}`}>
      ${count(row.row)}
    </${Link}>
  `,
};

/** @param {{ job: Wire.Job, title: string, what: string }} props */
const Links = ({ job, title, what }) => html`
  <span class="inline">
    ${title}${" "}
    ${["xlsx", "csv"].map((format) => html`
      <a
        class="mini"
        href=${address(`/api/jobs/${job.id}/${what}`, { format })}
        download
        aria-label=${`${title} as ${format}`}
      >
        ${format}
      </a>
    `)}
  </span>
`;

/** @param {{ job: Wire.Job }} props */
const Downloads = ({ job }) => html`
  <${Links} job=${job} title="Export" what="export" />
  ${job.failedItems > 0 && html`<${Links} job=${job} title="Rejects" what="rejects" />`}
`;

/** @typedef {(points: any[]) => import("../parts/chart.js").Series[]} SeriesOf */

/**
 * How the job adapts to the database and the provider: rows at a time, calls at a time, how long they take.
 * @param {{ job: Wire.Job }} props
 */
function Controller({ job }) {
  const minutes = Math.min(Math.max(Math.ceil(secondsBetween(job.createdAt, now.peek()) / 60), 10), 720);
  const history = useLive(
    "/api/history",
    { job: job.id, minutes: job.finishedAt ? minutes : Math.min(minutes, 120) },
    { every: job.finishedAt ? 0 : 5 },
  );
  const found = new Map((history.data?.series ?? []).map((each) => [each.measure, each.points]));
  const step = history.data?.stepSeconds ?? 10;
  // Points are [when, how often, mean, most].
  /**
   * @param {string} tone
   * @returns {SeriesOf}
   */
  const mean =
    (tone, times = 1) =>
    (points) => [{ label: "mean", tone, values: points.map((point) => point[2] * times) }];
  /** @type {[measure: string, label: string, unit: string, series: SeriesOf][]} */
  const all = [
    ["batch", "Rows at a time", "", mean("waiting")],
    ["width", "Calls at a time", "", mean("running")],
    [
      "latency",
      "How long a call takes",
      " ms",
      (points) => [
        ...mean("retried", 1_000)(points),
        { label: "longest", tone: "cap", dashed: true, values: points.map((point) => point[3] * 1_000) },
      ],
    ],
    [
      "rate",
      "Calls a second",
      "",
      (points) => [{ label: "calls", tone: "done", values: points.map((point) => point[1] / step) }],
    ],
  ];
  const charts = all.filter(([measure]) => found.get(measure)?.length);
  if (!charts.length) {
    return html`
      <p class="note">Nothing was measured in this time. Measurements are taken while rows are processed.</p>
    `;
  }
  return html`
    <div class="cards">
      ${charts.map(([measure, label, unit, series]) => html`
        <${Chart}
          key=${measure}
          label=${label}
          unit=${unit}
          height=${130}
          times=${(found.get(measure) ?? []).map((point) => point[0])}
          series=${series(found.get(measure) ?? [])}
        />
      `)}
    </div>
  `;
}

/**
 * The rows in the order of the file, with a column for each field of their results.
 * @param {{ job: Wire.Job }} props
 */
function Rows({ job }) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  const known = useRef(/** @type {Set<string>} */ (new Set()));
  /** @type {LoadPage} */
  const load = async (after, pageSize, signal, age) => {
    const page = await get(
      `/api/jobs/${job.id}/items`,
      { sort: "row", after, pageSize },
      { signal, age },
    );
    const before = known.current.size;
    for (const { result } of page.items) {
      if (result !== null && typeof result === "object" && !Array.isArray(result)) {
        for (const name of Object.keys(result)) if (known.current.size < MANY) known.current.add(name);
      }
    }
    if (known.current.size > before) setNames([...known.current]);
    return page;
  };
  /** @type {Column<any>[]} */
  const columns = [
    ROW,
    { title: "Status", width: "125px", cell: (row) => html`<${State} of=${row.status} />` },
    {
      title: "Input",
      width: "minmax(120px, 1fr)",
      isMinor: true,
      cell: (row) => html`<span class="clip">${summary(row)}</span>`,
    },
    ...(names.length
      ? names.map((name) => ({
          title: name,
          width: "minmax(90px, 1fr)",
          cell: (/** @type {any} */ row) => html`<span class="clip">${shown(row.result?.[name])}</span>`,
        }))
      : [
          {
            title: "Result",
            width: "minmax(160px, 2fr)",
            cell: (/** @type {any} */ row) => html`<code class="clip">${shown(row.result)}</code>`,
          },
        ]),
    {
      title: "Error",
      width: "minmax(120px, 1fr)",
      isMinor: true,
      cell: (row) =>
        row.lastError && html`
          <span class="wrong clip" title=${row.lastError}>${row.lastError.split("\n", 1)[0]}</span>
        `,
    },
  ];
  return html`
    <${Grid}
      name=${`job ${job.id} rows`}
      label="Rows"
      columns=${columns}
      load=${load}
      total=${job.isComplete ? job.totalItems : null}
      to=${(row) => `/items/${row.id}`}
      empty=${
        html`<${Empty} title="No rows yet.">
          <p>
            ${job.lastError
              ? job.lastError
              : "The file is being read. If that does not begin, no worker runs: duly up"}
          </p>
        </${Empty}>`
      }
    />
  `;
}

/**
 * A refused row, column by column, to be fixed and tried again.
 * @param {{ job: Wire.Job, row: any, onClose: () => void, onDone: (answer?: any) => void }} props
 */
function Fix({ job, row, onClose, onDone }) {
  const came = useLive(`/api/jobs/${job.id}/rows/${row.row}`, {}, { every: 0 });
  const [wrong, setWrong] = useState(/** @type {any} */ (null));
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    if (!came.data) return;
    /** @type {Record<string, unknown>} */
    const values = {};
    try {
      for (const [at, column] of came.data.columns.entries()) {
        const text = String(form.get(`column-${at}`));
        const before = came.data.values[column];
        const isText = before === null || before === undefined || typeof before === "string";
        // A value that was a number or a list in the file stays one.
        if (text !== shown(before)) values[column] = isText ? text : parse(text);
      }
      if (!Object.keys(values).length) throw new Error("Change something first.");
      await post(`/api/jobs/${job.id}/rows/${row.row}/mend`, { values });
      forget();
      say(`Row ${row.row} is tried again.`);
      onDone();
    } catch (error) {
      setWrong(error);
    }
  };
  return html`
    <${Dialog} title=${`Fix row ${row.row}`} wide onClose=${onClose}>
      <p class="wrong">${row.lastError}</p>
      <${Loaded} of=${came}>
        ${(/** @type {Answer<"/api/jobs/1/rows/1">} */ { columns, values }) => html`
          <form onSubmit=${send}>
            ${columns.map((column, at) => html`
              <${Field}
                key=${column}
                name=${`column-${at}`}
                label=${column}
                value=${shown(values[column])}
                autocomplete="off"
              />
            `)}
            ${wrong && html`<p class="wrong" role="alert">${wrong.message}</p>`}
            <footer>
              <button type="button" onClick=${onClose}>Not now</button>
              <button type="submit" class="main">Try it with this</button>
            </footer>
          </form>
        `}
      </${Loaded}>
    </${Dialog}>
  `;
}

/** @param {{ job: Wire.Job, reload: () => unknown }} props */
function Refused({ job, reload }) {
  const [fixed, setFixed] = useState(/** @type {any} */ (null));
  const [changes, setChanges] = useState(0);
  const [report, setReport] = useState(/** @type {any} */ (null));
  const picker = useRef(/** @type {any} */ (null));
  const again = () => {
    setChanges((times) => times + 1);
    reload();
  };
  /** @param {File} file */
  const send = (file) =>
    file &&
    act(
      () => upload(`/api/jobs/${job.id}/mend`, file, {}).done,
      (answer) => `${count(answer.mended)} of ${count(answer.rows)} rows are tried again.`,
      {
        after: (answer) => {
          setReport(answer);
          again();
        },
      },
    );
  const canFix = may("write") && job.jobType;
  /** @type {Column<any>[]} */
  const columns = [
    ROW,
    {
      title: "Input",
      width: "minmax(100px, 1fr)",
      isMinor: true,
      cell: (row) => html`<span class="clip">${summary(row)}</span>`,
    },
    {
      title: "Why",
      width: "minmax(160px, 3fr)",
      cell: (row) => html`
        <span class="wrong clip" title=${row.lastError}>${(row.lastError ?? "").split("\n", 1)[0]}</span>
      `,
    },
    { title: "Tries", width: "70px", isNumber: true, isMinor: true, cell: (row) => row.attempts },
    ...(canFix
      ? [
          {
            title: "Act",
            width: "80px",
            cell: (/** @type {any} */ row) => html`
              <${RowButton} label=${`Fix row ${row.row}`} onClick=${() => setFixed(row)}>Fix</${RowButton}>
            `,
          },
        ]
      : []),
  ];
  return html`
    <div class="actions">
      <${Downloads} job=${job} />
      ${canFix && html`
        <button type="button" class="mini" onClick=${() => picker.current.click()}>Send mended rejects</button>
        <input
          ref=${picker}
          type="file"
          class="offscreen"
          tabindex="-1"
          aria-label="File of mended rejects"
          onChange=${(event) => {
            send(event.target.files[0]);
            event.target.value = "";
          }}
        />
      `}
    </div>
    ${report?.refusals.length > 0 && html`
      <${Table}
        label="Still refused"
        rows=${report.refusals}
        keyOf=${(each) => `${each.line}`}
        columns=${[
          { title: "Line", isNumber: true, cell: (each) => each.line },
          { title: "Why", isWide: true, cell: (each) => each.reason },
        ]}
      />
    `}
    <${Grid}
      name=${`job ${job.id} refused`}
      label="Refused rows"
      columns=${columns}
      changes=${changes}
      to=${(row) => `/items/${row.id}`}
      load=${pagesOf(`/api/jobs/${job.id}/items`, { statuses: "ERROR" })}
      empty=${html`<${Empty} title="No row was refused or failed."></${Empty}>`}
    />
    ${fixed && html`
      <${Fix}
        job=${job}
        row=${fixed}
        onClose=${() => setFixed(null)}
        onDone=${() => {
          setFixed(null);
          again();
        }}
      />
    `}
  `;
}

/**
 * A panel that an app adds to the pages of jobs of its tasks. Its module is loaded when it is shown.
 * @param {{ panel: any, job: Wire.Job }} props
 */
function Panel({ panel, job }) {
  const [loaded, setLoaded] = useState(/** @type {{ Component?: any, error?: any }} */ ({}));
  useEffect(() => {
    import(new URL(panel.script, FILES).href).then(
      (module) => setLoaded({ Component: module.default }),
      (error) => setLoaded({ error }),
    );
  }, [panel.script]);
  const { Component, error } = loaded;
  return html`
    <${Section} title=${panel.title}>
      ${error && html`<${Trouble} error=${error} />`}
      ${Component && html`<${Component} job=${job} />`}
    </${Section}>
  `;
}

/**
 * What people did to it, and the panels of apps.
 * @param {{ job: Wire.Job }} props
 */
function Events({ job }) {
  const panels = (service.value?.panels ?? []).filter((panel) => panel.tasks.includes(job.task));
  /** @type {Column<any>[]} */
  const acts = [
    { title: "When", isTime: true, cell: (line) => html`<${Time} at=${line.at} />` },
    { title: "Who", width: "120px", cell: (line) => line.actor },
    { title: "What", width: "170px", cell: (line) => html`<code>${line.action}</code>` },
    {
      title: "Details",
      width: "minmax(160px, 2fr)",
      isMinor: true,
      cell: (line) => html`<code class="clip">${stringify(line.details)}</code>`,
    },
  ];
  return html`
    ${may("admin") && html`
      <${Section} title="Acts of people">
        <${Grid}
          name=${`job ${job.id} audit`}
          label="Acts of people"
          columns=${acts}
          load=${pagesOf("/api/audit", { subject: `job:${job.id}` })}
        />
      </${Section}>
    `}
    ${panels.map((panel) => html`<${Panel} key=${panel.script} panel=${panel} job=${job} />`)}
    ${!may("admin") && !panels.length && html`<${Empty} title="Nothing is recorded about this job."></${Empty}>`}
  `;
}

/** @param {{ id: string }} props */
export default function JobScreen({ id }) {
  const found = useLive(`/api/jobs/${id}`, {}, { every: 5 });
  const tab = query.value.get("tab") ?? "";
  const [isOpen, setOpen] = useState(false);
  const one = found.data;
  return html`
    <${Title} text=${`Job ${id}`} actions=${one && html`<${Acts} job=${one} reload=${found.reload} />`}>
      Job ${id} ${one?.name && html`<small>${one.name}</small>`}
    </${Title}>
    <${Loaded} of=${found}>
      ${(job) => html`
        <div class="tiles" style=${{ gridTemplateColumns: "repeat(auto-fit, minmax(110px, 1fr))" }}>
          <${Tile}
            label="State"
            value=${html`<${State} of=${job.queueState} label=${job.cancelled ? "CANCELLED" : null} />`}
            note=${job.isComplete ? "" : "rows are still being read"}
          />
          <${Tile}
            label="Processed"
            value=${count(job.processedItems)}
            note=${`of ${count(job.totalItems)}${job.isComplete ? "" : " so far"}`}
          >
            <${Bar}
              value=${job.totalItems ? job.processedItems / job.totalItems : 0}
              label="Progress"
              tone="done"
            />
          </${Tile}>
          <${Tile} label="Done" value=${count(job.doneItems)} tone="done" />
          <${Tile}
            label="Errors"
            value=${count(job.failedItems)}
            tone=${job.failedItems ? "bad" : null}
            note=${job.failedItems ? html`<${Link} to=${`/jobs/${id}?tab=refused`}>look and fix</${Link}>` : ""}
          />
          <${Tile} label="Not found" value=${count(job.notFoundItems)} />
          <${Tile}
            label="Skipped"
            value=${count(job.skippedItems)}
            note=${job.duplicateItems ? `${count(job.duplicateItems)} duplicates` : ""}
          />
          <${Tile}
            label="Rows a minute"
            value=${job.perMinute ? count(Math.round(job.perMinute)) : "–"}
          />
          <${Tile}
            label=${job.finishedAt ? "Took" : "Done in"}
            value=${
              job.finishedAt
                ? duration(secondsBetween(job.createdAt, job.finishedAt))
                : job.forecastAt
                  ? duration(Math.max(secondsBetween(now.value, job.forecastAt), 0))
                  : "–"
            }
            note=${html`<${Time} at=${job.finishedAt ?? job.forecastAt} />`}
          />
        </div>
        ${job.lastError && html`<div class="banner is-bad" role="alert"><strong>${job.lastError}</strong></div>`}
        <details class="card" onToggle=${(event) => setOpen(event.target.open)}>
          <summary>Facts and controller</summary>
          <${Facts}
            of=${[
              ["Type", job.jobType],
              ["Task", job.task],
              ["Owner", job.userId],
              ["Created", html`<${Time} at=${job.createdAt} long />`],
              ["Last change", html`<${Time} at=${job.lastHeartbeat} long />`],
              job.ipAddress && ["Sent from", job.ipAddress],
              ["Items", html`<${Link} to=${`/items?jobId=${id}`}>as items</${Link}>`],
            ]}
          />
          ${isOpen && html`<${Controller} job=${job} />`}
        </details>
        <div class="title">
          <${Tabs}
            name="tab"
            label="Parts of the job"
            options=${TABS}
            counts=${{ refused: job.failedItems }}
          />
          <div class="actions">${tab !== "refused" && html`<${Downloads} job=${job} />`}</div>
        </div>
        ${tab === "" && html`<${Rows} job=${job} />`}
        ${tab === "pending" && html`<${Pending} jobId=${id} />`}
        ${tab === "refused" && html`<${Refused} job=${job} reload=${found.reload} />`}
        ${tab === "events" && html`<${Events} job=${job} />`}
      `}
    </${Loaded}>
  `;
}
