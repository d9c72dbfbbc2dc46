// Now: one glance tells whether all is well, and if not, why and where to act.
import { html } from "../lib/ui.js";
import { may } from "../lib/api.js";
import { useLive } from "../lib/live.js";
import { Link, query, setQuery } from "../lib/router.js";
import { count, duration } from "../lib/time.js";
import { Age, Bar, Command, Empty, Loaded, State, Time } from "../parts/marks.js";
import { Chart } from "../parts/chart.js";
import { Section, Table, Tile } from "../parts/table.js";
import { Title } from "../parts/shell.js";

const SPANS = [
  [15, "15 minutes"],
  [60, "1 hour"],
  [360, "6 hours"],
  [1440, "1 day"],
  [10080, "7 days"],
];
/** @type {Record<string, string>} */
const WORDS = { ok: "All is well", warn: "Something needs a look", bad: "Something is wrong" };

/** @param {{ now: Wire.Now }} props */
function Health({ now }) {
  return html`
    <div class=${`banner is-${now.health}`} role="status">
      <strong><${State} of=${now.health} label=${WORDS[now.health]} /></strong>
      ${now.reasons.length > 0 ? html`
        <ul>
          ${now.reasons.map((reason) => html`
            <li key=${reason.text}>
              <${Link} to=${reason.path}>${reason.text}</${Link}>
            </li>
          `)}
        </ul>
      ` : html`<span class="note">Nothing is late, and nothing is in review.</span>`}
    </div>
  `;
}

/** @param {{ now: Wire.Now }} props */
function Tiles({ now }) {
  const { totals, review, schedules, recovery } = now;
  const plus = totals.capped ? "+" : "";
  /**
   * @param {any} to
   * @param {any} props
   */
  const tile = (to, props) => html`<${Link} to=${to} class="plain-link"><${Tile} ...${props} /></${Link}>`;
  return html`
    <div class="tiles">
      ${tile("/items?state=waiting", {
        label: "Due now",
        value: count(totals.due) + plus,
        note: `${count(totals.waiting)}${plus} wait in all`,
        tone: "waiting",
      })}
      ${tile("/items?state=running", { label: "Running", value: count(totals.running), tone: "running" })}
      ${tile("/items?state=waiting", {
        label: "Late",
        value: count(totals.late),
        note: "later than planned",
        tone: totals.late ? "warn" : "ok",
      })}
      ${tile("/items?state=waiting", {
        label: "Retry lane",
        value: count(totals.retrying),
        note: "failed, to be tried again",
        tone: totals.retrying ? "retrying" : null,
      })}
      ${tile("/review", {
        label: "In review",
        value: count(review.items),
        note: `${count(review.groups)} ${review.groups === 1 ? "kind" : "kinds"} of failure`,
        tone: review.items ? "bad" : "ok",
      })}
      ${tile("/schedules", {
        label: "Schedules",
        value: count(schedules.active),
        note: schedules.broken ? (
          `${count(schedules.broken)} deactivated`
        ) : schedules.nextAt ? html`next <${Time} at=${schedules.nextAt} />` : (
          "none to come"
        ),
        tone: schedules.broken ? "bad" : null,
      })}
      ${recovery && html`
        <${Tile}
          label="Recovery"
          value=${recovery.seconds === null ? "unknown" : duration(recovery.seconds)}
          note=${`${count(recovery.late)} late, ${count(Math.round(recovery.perMinute))} a minute`}
          tone="warn"
        />
      `}
    </div>
  `;
}

/**
 * Points of several tasks, added up per step: number, or the longest.
 * @param {any} history
 * @param {any} measure
 * @param {any} place
 * @param {any} add
 */
function added(history, measure, place, add) {
  const found = new Map();
  for (const series of history.series) {
    if (series.measure !== measure) continue;
    for (const point of series.points) {
      found.set(point[0], add(found.get(point[0]) ?? 0, point[place] ?? 0));
    }
  }
  return found;
}

/** @param {{ minutes: any }} props */
function Curves({ minutes }) {
  const history = useLive("/api/history", { minutes }, { every: 10 });
  return html`
    <${Loaded} of=${history}>
      ${(data) => {
        const step = data.stepSeconds;
        const from = Math.floor(Date.parse(data.from) / 1000 / step) * step;
        const until = Math.floor(Date.parse(data.to) / 1000 / step) * step;
        /** @type {number[]} */
        const times = [];
        for (let at = from; at <= until; at += step) times.push(at);
        /**
         * @param {any} left
         * @param {any} right
         */
        const sum = (left, right) => left + right;
        /** @param {any} measure */
        const perMinute = (measure) => {
          const found = added(data, measure, 1, sum);
          return times.map((at) => ((found.get(at) ?? 0) * 60) / step);
        };
        const longest = added(data, "lateness", 3, Math.max);
        const totals = added(data, "lateness", 1, sum);
        const means = new Map();
        for (const series of data.series) {
          if (series.measure === "lateness") {
            for (const [at, n, mean] of series.points) means.set(at, (means.get(at) ?? 0) + n * mean);
          }
        }
        return html`
          <div class="cards">
            <${Chart}
              label="Ended a minute"
              times=${times}
              series=${[
                { label: "done", tone: "done", values: perMinute("done") },
                { label: "retried", tone: "retried", values: perMinute("retried") },
                { label: "given up", tone: "failed", values: perMinute("failed") },
              ]}
            />
            <${Chart}
              label="Late against plan"
              unit=" s"
              times=${times}
              series=${[
                {
                  label: "longest",
                  tone: "failed",
                  values: times.map((at) => (longest.has(at) ? longest.get(at) : null)),
                },
                {
                  label: "mean",
                  tone: "running",
                  values: times.map((at) => (totals.get(at) ? means.get(at) / totals.get(at) : null)),
                },
              ]}
            />
          </div>
        `;
      }}
    </${Loaded}>
  `;
}

/** @type {Column<any>[]} */
const QUEUES = [
  {
    title: "Queue",
    isWide: true,
    cell: (queue) => html`
      <${Link} to=${`/items?queue=${encodeURIComponent(queue.queue)}`}>${queue.queue}</${Link}>${" "}
      ${queue.paused && html`<${State} of="paused" />`}
    `,
  },
  { title: "Due", isNumber: true, cell: (queue) => count(queue.due) },
  { title: "Waiting", isNumber: true, cell: (queue) => count(queue.waiting) },
  { title: "Retrying", isNumber: true, cell: (queue) => count(queue.retrying) },
  { title: "Running", isNumber: true, cell: (queue) => count(queue.running) },
  { title: "In review", isNumber: true, cell: (queue) => count(queue.failed) },
  { title: "A minute", isNumber: true, cell: (queue) => count(Math.round(queue.perMinute ?? 0)) },
  {
    title: "Oldest due",
    isNumber: true,
    cell: (queue) => (queue.due ? duration(queue.oldestDueSeconds) : "–"),
  },
];

/** @type {Column<any>[]} */
const LIMITS = [
  { title: "Limit", isWide: true, cell: (limit) => html`<code>${limit.name}</code>` },
  {
    title: "Used",
    isNumber: true,
    cell: (limit) => `${count(limit.used)}${limit.most === null ? "" : ` of ${count(limit.most)}`}`,
  },
  {
    title: "Fill",
    cell: (limit) =>
      limit.most === null ? html`<span class="none">set in code</span>` : html`
        <${Bar}
          value=${limit.fill}
          label=${`Fill of ${limit.name}`}
          tone=${limit.fill >= 1 ? "retrying" : "running"}
        />
      `,
  },
];

/** @type {Column<any>[]} */
const WORKERS = [
  {
    title: "Worker",
    cell: (worker) => html`
      <span class="wrap">${worker.name}</span>
      ${worker.ailing && html`<span class="wrong wrap">${worker.ailing}</span>`}
    `,
  },
  { title: "Last report", cell: (worker) => html`<${Age} at=${worker.seenAt} />` },
  { title: "Running", isNumber: true, cell: (worker) => count(worker.running) },
  {
    title: "What it runs",
    isWide: true,
    cell: (worker) =>
      worker.runs.length ? (
        worker.runs.map((/** @type {any} */ run) => html`
          <div key=${String(run.id)}>
            <${Link} to=${`/items/${run.id}`}>
              ${run.task} ${run.key ?? run.id}
            </${Link}>${" "}
            <small>for <${Age} at=${run.startedAt} /></small>
          </div>
        `)
      ) : html`<span class="none">idle</span>`,
  },
];

/**
 * A table of the first rows, and how many more there are.
 * @param {Parameters<typeof Table>[0] & { more: number }} props
 */
const FirstRows = ({ more, ...table }) => html`
  <${Table} keyOf=${(/** @type {any} */ row) => row.name} ...${table} />
  ${more > 0 && html`<p class="note">${count(more)} more ${table.label.toLowerCase()}.</p>`}
`;

const NO_WORKER = html`No worker is alive. Start one: <${Command}>duly worker yourmodule:app</${Command}>`;
const NO_LIMIT = "No limit has counted anything lately.";

/** @param {{ now: Wire.Now }} props */
function Fleet({ now }) {
  return html`
    <${Section}
      title="Queues"
      actions=${
        html`<${Link} to="/queues" class="mini">
          All queues and limits
        </${Link}>`
      }
    >
      <${FirstRows}
        label="Queues"
        columns=${QUEUES}
        rows=${now.queues}
        keyOf=${(queue) => queue.queue}
        empty="No queue has anything in it."
        more=${now.moreQueues}
      />
    </${Section}>
    <div class="cards">
      <${Section} title="Workers">
        <${FirstRows}
          label="Workers"
          columns=${WORKERS}
          rows=${now.workers}
          empty=${NO_WORKER}
          more=${now.moreWorkers}
        />
      </${Section}>
      <${Section} title="Limits">
        <${FirstRows} label="Limits" columns=${LIMITS} rows=${now.limits} empty=${NO_LIMIT} more=${now.moreLimits} />
      </${Section}>
    </div>
    <${Section} title="Alerts">
      ${now.alerts.length ? html`
        <${Table}
          label="Alerts"
          rows=${now.alerts}
          keyOf=${(alert) => alert.name}
          columns=${[
            { title: "Alert", cell: (alert) => html`<${State} of="bad" label=${alert.name} />` },
            { title: "Since", cell: (alert) => html`<${Time} at=${alert.since} />` },
            { title: "What", isWide: true, cell: (alert) => alert.message },
            {
              title: "Told",
              cell: (alert) =>
                alert.toldAt ? html`<${Time} at=${alert.toldAt} />` : html`
                  <span class="none">no webhook took it</span>
                `,
            },
          ]}
        />
      ` : html`<p class="note">None stands.</p>`}
    </${Section}>
  `;
}

const SHOWN = 100; // queues
/** @type {("waiting" | "due" | "retrying" | "running" | "failed")[]} */
const COUNTED = ["waiting", "due", "retrying", "running", "failed"];

/**
 * The picture with the newer numbers of the queues: the worst first.
 * @param {Wire.Now} now
 * @param {Answer<"/api/queues"> | undefined} depths
 */
function withDepths(now, depths) {
  if (!depths || depths.next) return now;
  const totals = { ...now.totals };
  for (const name of COUNTED) totals[name] = depths.items.reduce((sum, queue) => sum + queue[name], 0);
  const known = new Map(now.queues.map((queue) => [queue.queue, queue]));
  const queues = depths.items.map((queue) => ({ ...known.get(queue.queue), ...queue }));
  queues.sort(
    (one, other) =>
      (other.oldestDueSeconds ?? 0) - (one.oldestDueSeconds ?? 0) ||
      other.failed - one.failed ||
      other.waiting - one.waiting,
  );
  return {
    ...now,
    totals,
    queues: queues.slice(0, SHOWN),
    moreQueues: Math.max(queues.length - SHOWN, 0),
  };
}

export default function Now() {
  // The whole picture is eight questions to the database, the depths of queues are one: these move more often.
  const now = useLive("/api/now", {}, { every: may("admin") ? 15 : 4 });
  const depths = useLive(may("admin") ? "/api/queues" : null, { pageSize: 500 }, { every: 3 });
  const minutes = Number(query.value.get("minutes")) || 60;
  const span = html`
    <label class="inline">
      <span>Charts over</span>
      <select value=${minutes} onChange=${(event) => setQuery({ minutes: event.target.value })}>
        ${SPANS.map(([key, word]) => html`<option value=${key}>${word}</option>`)}
      </select>
    </label>
  `;
  return html`
    <${Title} actions=${may("admin") && span}>Now</${Title}>
    <${Loaded} of=${now}>
      ${(answer) => {
        const data = withDepths(answer, depths.data);
        return html`
          <${Health} now=${data} />
          <${Tiles} now=${data} />
          ${may("admin") && html`<${Curves} minutes=${minutes} />`}
          ${may("admin") ? html`<${Fleet} now=${data} />` : (
            data.totals.waiting + data.totals.running + data.review.items === 0 && html`
              <${Empty} title="You have no work here yet.">
                <p>Put an item from Items, or send a file under Jobs.</p>
              </${Empty}>
            `
          )}
        `;
      }}
    </${Loaded}>
  `;
}
