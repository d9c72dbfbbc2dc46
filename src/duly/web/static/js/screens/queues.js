// Queues, limits and workers: what waits, how old it is, what runs where. Queues can be paused, limits changed.
import { html, useState, classes } from "../lib/ui.js";
import { post, put, remove, may, pagesOf } from "../lib/api.js";
import { Link, path, query } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { now } from "../lib/prefs.js";
import { count, counted, duration } from "../lib/time.js";
import { Grid } from "../parts/grid.js";
import { Title } from "../parts/shell.js";
import { Tile } from "../parts/table.js";
import { Age, Bar, Command, Duration, Empty, RowButton, State, Time } from "../parts/marks.js";
import { Spark } from "../parts/chart.js";
import { act, ask } from "../parts/dialogs.js";
import { useTasks } from "../parts/task_form.js";

const VIEWS = [
  ["/queues", "", "Queues"],
  ["/queues?show=limits", "limits", "Limits"],
  ["/workers", "workers", "Workers"],
];
const BINS = 60; // points of a line
const BUSY = 600; // seconds of the average of handlers at once
const SILENT = 30; // seconds without a report after which a worker counts as silent

/** @param {{ at: string | null }} props */
function Views({ at }) {
  return html`
    <nav class="tabs" aria-label="Views">
      ${VIEWS.map(([to, name, word]) => html`
        <${Link}
          to=${to}
          class=${classes("tab", at === name && "is-here")}
          aria-current=${at === name ? "page" : null}
        >
          ${word}
        </${Link}>
      `)}
    </nav>
  `;
}

/**
 * The points of several series as one line of BINS values, oldest first.
 * @param {Answer<"/api/history">} chart
 * @param {{ points: any[][] }[]} series
 * @param {(point: any[]) => number} [value]
 */
export function lineOf(chart, series, value = (point) => point[1]) {
  const bins = Array(BINS).fill(0);
  const [from, to] = [new Date(chart.from).getTime() / 1000, new Date(chart.to).getTime() / 1000];
  for (const each of series) {
    for (const point of each.points) {
      const bin = Math.floor(((point[0] - from) / Math.max(to - from, 1)) * BINS);
      if (bin >= 0) bins[Math.min(bin, BINS - 1)] += value(point);
    }
  }
  return bins;
}

/** @param {string} queue */
const rootOf = (queue) => queue.split("/")[0];

/** What each queue did lately: items done in each minute, and how many ran at once on average. */
function useLately() {
  const done = useLive("/api/history", { minutes: 60, measure: "done" }, { every: 10 }).data;
  const runs = useLive("/api/history", { minutes: 10, measure: "run" }, { every: 10 }).data;
  const tasks = useTasks().data;
  const queueOf = new Map((tasks?.items ?? []).map((task) => [task.name, rootOf(task.queue)]));
  /**
   * @param {Answer<"/api/history">} chart
   * @param {string} queue
   */
  const of = (chart, queue) =>
    chart.series.filter((each) => each.task && (queueOf.get(each.task) ?? each.task) === queue);
  return {
    line: (/** @type {string} */ queue) => (done && !queue.includes("/") ? lineOf(done, of(done, queue)) : null),
    busy: (/** @type {string} */ queue) =>
      runs && !queue.includes("/")
        ? of(runs, queue)
            .flatMap((each) => each.points)
            .reduce((sum, [, n, mean]) => sum + n * (mean ?? 0), 0) / BUSY
        : null,
  };
}

/**
 * @param {string} name
 * @param {string} word
 */
const hold = (name, word) => post(`/api/queues/${encodeURIComponent(name)}/${word}`);

/** @param {{ summary: Wire.Now | undefined }} props */
function Queues({ summary }) {
  const [looks, setLooks] = useState(0);
  const look = () => setLooks((times) => times + 1);
  const lately = useLately();
  const known = new Map((summary?.queues ?? []).map((each) => [each.queue, each]));
  /** @param {any} row */
  const turn = (row) =>
    row.paused
      ? act(() => hold(row.queue, "resume"), `${row.queue} is resumed.`, { after: look })
      : act(
          () => hold(row.queue, "pause"),
          {
            text: `${row.queue} is paused: no further item starts.`,
            undo: () => act(() => hold(row.queue, "resume"), `${row.queue} is resumed.`, { after: look }),
            seconds: 12,
          },
          { after: look },
        );
  /** @type {Column<any>[]} */
  const columns = [
    {
      title: "Queue",
      width: "minmax(130px, 1.5fr)",
      cell: (row) => html`
        <${Link} to=${`/items?queue=${encodeURIComponent(row.queue)}`} tabindex="-1">${row.queue}</${Link}>
      `,
    },
    {
      title: "State",
      width: "100px",
      cell: (row) => html`
        <${State}
          of=${row.paused ? "paused" : row.due > 0 && row.running === 0 ? "late" : "ok"}
          label=${row.paused ? "paused" : row.running ? "running" : row.due ? "due" : "idle"}
        />
      `,
    },
    { title: "Waiting", width: "80px", isNumber: true, cell: (row) => count(row.waiting) },
    { title: "Due", width: "65px", isNumber: true, cell: (row) => count(row.due) },
    {
      title: "Oldest due",
      width: "110px",
      isNumber: true,
      cell: (row) => html`<${Duration} seconds=${row.oldestDueSeconds} />`,
    },
    {
      title: "Retrying",
      width: "84px",
      isNumber: true,
      isMinor: true,
      cell: (row) => count(row.retrying),
    },
    { title: "Running", width: "78px", isNumber: true, cell: (row) => count(row.running) },
    {
      title: "At once",
      width: "74px",
      isNumber: true,
      isMinor: true,
      cell: (row) => {
        const busy = lately.busy(row.queue);
        return busy === null ? "–" : busy.toFixed(busy < 10 ? 2 : 0);
      },
    },
    {
      title: "Review",
      width: "72px",
      isNumber: true,
      isMinor: true,
      cell: (row) =>
        row.failed ? html`
          <${Link} to=${`/items?state=failed&queue=${encodeURIComponent(row.queue)}`} tabindex="-1">
            ${count(row.failed)}
          </${Link}>
        ` : (
          "0"
        ),
    },
    {
      title: "Per minute",
      width: "95px",
      isNumber: true,
      isMinor: true,
      cell: (row) => {
        const rate = known.get(row.queue)?.perMinute;
        return rate === undefined || rate === null ? "–" : count(Math.round(rate * 10) / 10);
      },
    },
    {
      title: "Done, last hour",
      width: "125px",
      isMinor: true,
      cell: (row) => {
        const line = lately.line(row.queue);
        return (
          line && html`
            <${Spark}
              values=${line}
              tone="done"
              label=${`Done in the last hour: ${count(line.reduce((sum, each) => sum + each, 0))}`}
            />
          `
        );
      },
    },
    {
      title: "Act",
      width: "84px",
      cell: (row) =>
        may("admin") && html`
          <${RowButton}
            tabindex="-1"
            label=${`${row.paused ? "Resume" : "Pause"} ${row.queue}`}
            onClick=${() => turn(row)}
          >
            ${row.paused ? "Resume" : "Pause"}
          </${RowButton}>
        `,
    },
  ];
  /** @param {GridSelection} props */
  const bar = ({ selected, clear }) => {
    const names = [...selected];
    if (!names.length) return null;
    const after = () => {
      clear();
      look();
    };
    /**
     * @param {string} word
     * @param {string} done
     */
    const doing = (word, done) =>
      act(
        async () => {
          for (const name of names) await hold(name, word);
        },
        `${counted(names.length, "queue")} ${done}.`,
        { after },
      );
    return html`
      <span class="number">${count(names.length)} selected</span>
      <button type="button" class="mini" onClick=${() => doing("pause", "paused")}>Pause</button>
      <button type="button" class="mini" onClick=${() => doing("resume", "resumed")}>Resume</button>
      <button type="button" class="mini" onClick=${clear}>Clear</button>
    `;
  };
  const pauseByName = () =>
    ask({
      title: "Pause a queue by name",
      text: "No further item of it starts until it is resumed. Items that run are finished. It may have no items yet.",
      yes: "Pause",
      fields: [{ name: "queue", label: "Queue", required: true, autocomplete: "off" }],
      check: async ({ queue }) => {
        await act(
          () => hold(queue.trim(), "pause"),
          (answer) => answer?.note ?? `${queue.trim()} is paused.`,
        );
      },
    });
  return html`
    <${Title}
      actions=${
        may("admin") && html`<button type="button" onClick=${pauseByName}>Pause by name</button>`
      }
    >
      Queues and limits
    </${Title}>
    <${Views} at="" />
    <${Totals} summary=${summary} />
    <${Grid}
      name="queues"
      label="Queues"
      keyOf=${(row) => row.queue}
      columns=${columns}
      looks=${looks}
      bar=${bar}
      to=${(row) => `/items?queue=${encodeURIComponent(row.queue)}`}
      load=${pagesOf("/api/queues")}
      empty=${
        html`<${Empty} title="No queue has any work.">
          <p>A queue appears when an item is put:</p>
          <${Command}>duly put echo text=hello</${Command}>
        </${Empty}>`
      }
    />
    <p class="note">
      “At once” is how many handlers of a queue ran at the same time, on average over ten minutes.
    </p>
  `;
}

/** @param {{ summary: Wire.Now | undefined }} props */
function Totals({ summary }) {
  const totals = /** @type {Partial<Wire.Now["totals"]>} */ (summary?.totals ?? {});
  const more = totals.capped ? "+" : "";
  /** @param {number | undefined} number */
  const text = (number) => (number === undefined ? "–" : count(number) + more);
  return html`
    <div class="tiles">
      <${Tile} label="Waiting" value=${text(totals.waiting)} tone="waiting" />
      <${Tile} label="Due" value=${text(totals.due)} tone=${totals.due ? "warn" : "ok"} />
      <${Tile} label="Retrying" value=${text(totals.retrying)} tone="retrying" />
      <${Tile} label="Running" value=${text(totals.running)} tone="running" />
      <${Tile} label="In review" value=${text(totals.failed)} tone=${totals.failed ? "bad" : "ok"} />
      <${Tile}
        label="Workers"
        value=${summary ? count(summary.workers.length + (summary.moreWorkers ?? 0)) : "–"}
        tone=${summary && !summary.workers.length ? "bad" : "ok"}
      />
    </div>
  `;
}

/** @param {any} row */
const allowed = (row) => {
  if (row.most === null || row.most === undefined) return null;
  return row.perSeconds ? `${count(row.most)} in ${duration(row.perSeconds)}` : `${count(row.most)} at once`;
};

/**
 * A limit as it is typed: 2/60s, or 4.
 * @param {any} row
 */
const typedLimit = (row) => (row.perSeconds ? `${row.most}/${row.perSeconds}s` : String(row.most));

/** @param {{ summary: Wire.Now | undefined }} props */
function Limits({ summary }) {
  const [looks, setLooks] = useState(0);
  const [changes, setChanges] = useState(0);
  const look = () => setLooks((times) => times + 1);
  const known = new Map((summary?.limits ?? []).map((each) => [each.name, each]));
  /** @param {string} name */
  const at = (name) => `/api/limits/${encodeURIComponent(name)}`;
  /** @param {any} row */
  const change = (row) =>
    ask({
      title: row ? `Change ${row.name}` : "Set a limit",
      text: "It applies to all workers at once, in place of the limit in the code, until it is cleared.",
      yes: "Set",
      fields: [
        ...(row ? [] : [{ name: "name", label: "Limit", required: true, autocomplete: "off" }]),
        {
          name: "limit",
          label: "Allowed",
          required: true,
          autocomplete: "off",
          hint: "2/1m: calls in any minute. 4: at the same time.",
          value: row && row.most !== null ? typedLimit(row) : "",
        },
      ],
      check: async ({ name, limit }) => {
        await put(at(row?.name ?? name.trim()), { limit: limit.trim() });
      },
    }).then(
      (answer) =>
        answer &&
        act(async () => {}, `${row?.name ?? answer.name} now allows ${answer.limit}.`, {
          after: row ? look : () => setChanges(changes + 1),
        }),
    );
  /** @param {any} row */
  const clear = (row) =>
    act(
      () => remove(at(row.name)),
      {
        text: `${row.name} is as in the code again.`,
        seconds: 12,
        undo: () =>
          act(
            () => put(at(row.name), { limit: typedLimit(row) }),
            "Set again.",
            { after: look },
          ),
      },
      { after: look },
    );
  /** @type {Column<any>[]} */
  const columns = [
    { title: "Limit", width: "minmax(170px, 1.5fr)", cell: (row) => html`<code>${row.name}</code>` },
    {
      title: "Allowed",
      width: "minmax(120px, 1fr)",
      cell: (row) =>
        allowed(row) ?? allowed(known.get(row.name) ?? {}) ?? html`<span class="none">as in the code</span>`,
    },
    {
      title: "Set by hand",
      width: "100px",
      isMinor: true,
      cell: (row) =>
        row.most === null ? html`<span class="none">no</span>` : html`<${State} of="paused" label="yes" />`,
    },
    {
      title: "Used",
      width: "80px",
      isNumber: true,
      cell: (row) => count(known.get(row.name)?.used ?? row.granted),
    },
    {
      title: "Fill",
      width: "120px",
      cell: (row) => {
        const fill = known.get(row.name)?.fill;
        return fill === undefined || fill === null ? html`<span class="none">–</span>` : html`
          <${Bar}
            value=${fill}
            label=${`Fill of ${row.name}`}
            tone=${fill >= 1 ? "failed" : fill > 0.8 ? "retrying" : "running"}
          />
        `;
      },
    },
    {
      title: "Free",
      isTime: true,
      isMinor: true,
      cell: (row) => {
        const free = known.get(row.name)?.freeAt;
        return free && new Date(free).getTime() > now.value ? html`<${Time} at=${free} />` : "now";
      },
    },
    { title: "Last call", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.last} />` },
    {
      title: "Act",
      width: "140px",
      cell: (row) =>
        may("admin") && html`
          <${RowButton} tabindex="-1" label=${`Change ${row.name}`} onClick=${() => change(row)}>
            Change
          </${RowButton}>${" "}
          ${row.most !== null && html`
            <${RowButton} tabindex="-1" label=${`Clear ${row.name}`} onClick=${() => clear(row)}>
              Clear
            </${RowButton}>
          `}
        `,
    },
  ];
  /** @param {GridSelection} props */
  const bar = ({ rows, selected, clear: unselect }) =>
    selected.size === 1 && rows[0] ? html`
      <button type="button" class="mini" onClick=${() => change(rows[0])}>Change the limit</button>
      ${rows[0].most !== null && html`
        <button type="button" class="mini" onClick=${() => clear(rows[0])}>Clear the limit</button>
      `}
      <button type="button" class="mini" onClick=${unselect}>Unselect</button>
    ` : null;
  return html`
    <${Title}
      text="Limits"
      actions=${
        may("admin") && html`<button type="button" onClick=${() => change(null)}>Set a limit</button>`
      }
    >
      Limits
    </${Title}>
    <${Views} at="limits" />
    <${Grid}
      name="limits"
      label="Limits"
      changes=${changes}
      looks=${looks}
      keyOf=${(row) => row.name}
      columns=${columns}
      bar=${bar}
      load=${pagesOf("/api/limits")}
      empty=${
        html`<${Empty} title="No limit has counted anything yet.">
          <p>
            A task with a limit shares it with all workers:${" "}
            <code>@app.task(limits=Limit("provider", 2, per=60))</code>.
          </p>
        </${Empty}>`
      }
    />
  `;
}

/** @param {{ summary: Wire.Now | undefined }} props */
function Workers({ summary }) {
  const known = new Map((summary?.workers ?? []).map((each) => [each.name, each]));
  /** @param {any} row */
  const isSilent = (row) => now.value - new Date(row.seenAt).getTime() > SILENT * 1000;
  /** @type {Column<any>[]} */
  const columns = [
    { title: "Worker", width: "minmax(180px, 1.5fr)", cell: (row) => html`<code>${row.name}</code>` },
    {
      title: "State",
      width: "100px",
      cell: (row) => html`
        <span title=${row.ailing}>
          <${State}
            of=${isSilent(row) || row.ailing ? "bad" : "ok"}
            label=${isSilent(row) ? "silent" : row.ailing ? "ailing" : "alive"}
          />
        </span>
      `,
    },
    { title: "Last sign", width: "130px", cell: (row) => html`<${Age} at=${row.seenAt} />` },
    {
      title: "Running",
      width: "85px",
      isNumber: true,
      cell: (row) => count(known.get(row.name)?.running ?? 0),
    },
    {
      title: "Runs now",
      width: "minmax(200px, 2.5fr)",
      cell: (row) =>
        (known.get(row.name)?.runs ?? []).map((run, place) => html`
          ${place > 0 && ", "}
          <${Link} to=${`/items/${run.id}`} tabindex="-1">
            ${run.task} ${run.key ?? run.id}
          </${Link}>${" "}
          <small>${duration(Math.max((now.value - new Date(run.startedAt).getTime()) / 1000, 0))}</small>
        `),
    },
    { title: "Started", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.startedAt} />` },
    {
      title: "Tasks",
      width: "minmax(140px, 1.5fr)",
      isMinor: true,
      cell: (row) => html`<span title=${row.tasks.join(", ")}>${row.tasks.join(", ")}</span>`,
    },
  ];
  return html`
    <${Title}>Workers</${Title}>
    <${Views} at="workers" />
    <${Grid}
      name="workers"
      label="Workers"
      keyOf=${(row) => row.name}
      columns=${columns}
      load=${pagesOf("/api/workers")}
      empty=${
        html`<${Empty} title="No worker is running.">
          <p>Due items wait until one is started:</p>
          <${Command}>duly worker</${Command}>
        </${Empty}>`
      }
    />
  `;
}

export default function QueuesAndLimits() {
  const summary = useLive("/api/now", {}, { every: 15 }).data;
  if (path.value === "/workers") return html`<${Workers} summary=${summary} />`;
  return query.value.get("show") === "limits" ? html`<${Limits} summary=${summary} />` : html`
    <${Queues} summary=${summary} />
  `;
}
