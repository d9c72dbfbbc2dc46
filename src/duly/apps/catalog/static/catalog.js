// The catalog: its day as one picture, its products, and what a person does about them.
import {
  html, styles, useLive, useState, post, remove, query, may, ask, act, eachOf, now, clock, exact,
  ago, count, me, Title, Link, Loaded, Grid, Filters, Section, Tile, Table, State, Time, Bar, Empty,
  Command, pagesOf,
} from "../../js/kit.js";

await styles(new URL("catalog.css", import.meta.url));

/** @type {Record<string, string>} */
const STATUSES = {
  pending: "waiting",
  syncing: "running",
  success: "done",
  failed: "failed",
  deactivated: "paused",
};
const PARTS = [
  ["done", "done"],
  ["failed", "failed"],
  ["running", "running"],
  ["waiting", "waiting"],
];
const DAY = 86_400_000;
/** @param {string} sku */
const name = (sku) => encodeURIComponent(sku);
/** @param {{ of: any }} props */
const Status = ({ of }) => html`<${State} of=${STATUSES[of]} label=${of} />`;

// ---- the picture of the day

/** @typedef {any} Day what /api/catalog/day answers */

/** @param {Day} day */
const begins = (day) => Date.parse(`${day.day}T00:00:00Z`);
/**
 * @param {Day} day
 * @param {number} at
 */
const place = (day, at) => `${((at - begins(day)) / DAY) * 100}%`;
/**
 * @param {Day} day
 * @param {{ slot: number }} slot
 */
const slotAt = (day, slot) => begins(day) + (slot.slot / day.slots.length) * DAY;
/** @param {number} at */
const hour = (at) => (clock.value === "relative" ? ago(at, now.value) : exact(at).slice(11, 16));

/**
 * @param {Day} day
 * @param {any} slot
 */
const slotText = (day, slot) => {
  const numbers = ["planned", "done", "failed", "running", "waiting"].map((each) => `${count(slot[each])} ${each}`);
  return `${hour(slotAt(day, slot))}: ${numbers.join(", ")}`;
};

/** @param {{ at: string, used: number, cap: number, waiting: number }} window */
const windowText = ({ at, used, cap, waiting }) =>
  `Retry window ${hour(Date.parse(at))}: ${count(used)} of ${count(cap)} used, ${count(waiting)} wait`;

/** @param {{ of: [tone: string, number: number][], most: number }} props */
const Stack = ({ of, most }) => html`
  <span class="stack">
    ${of.map(
      ([tone, number]) =>
        number > 0 && html`<span class=${`is-${tone}`} style=${{ height: `${(number / most) * 100}%` }}></span>`,
    )}
  </span>
`;

/** @param {{ day: Day }} props */
function Picture({ day }) {
  const most = Math.max(
    1,
    ...day.slots.map((/** @type {any} */ slot) =>
      Math.max(slot.planned, slot.done + slot.failed + slot.running + slot.waiting),
    ),
  );
  const cap = Math.max(
    1,
    ...day.windows.map((/** @type {any} */ window) => Math.max(window.cap, window.used + window.waiting)),
  );
  const at = now.value;
  const done = day.slots.reduce(
    (/** @type {number} */ sum, /** @type {any} */ slot) => sum + slot.done,
    0,
  );
  const planned = day.slots.reduce(
    (/** @type {number} */ sum, /** @type {any} */ slot) => sum + slot.planned,
    0,
  );
  const marks = Array.from({ length: 8 }, (_, index) => begins(day) + (index * DAY) / 8);
  const width = `${100 / day.slots.length}%`;
  const label = [
    `Products synced over the day: ${count(done)} of ${count(planned)} done,`,
    `in ${day.slots.length} slots and ${day.windows.length} retry windows. The table has the same numbers.`,
  ].join(" ");
  return html`
    <div class="day-scroll" tabindex="0" role="group" aria-label="Picture of the day">
      <div
        class="day-plot"
        role="img"
        aria-label=${label}
      >
        <div class="day-slots">
          <span class="most">${count(most)}</span>
          <span class="rule"></span>
          ${day.slots.map((/** @type {any} */ slot) => html`
            <span
              key=${slot.slot}
              class="slot"
              style=${{ left: place(day, slotAt(day, slot)), width }}
              title=${slotText(day, slot)}
            >
              <span class="planned" style=${{ height: `${(slot.planned / most) * 100}%` }}></span>
              <${Stack} most=${most} of=${PARTS.map(([part, tone]) => [tone, slot[part]])} />
            </span>
          `)}
          ${at >= begins(day) && at < begins(day) + DAY && html`
            <span class="day-now" style=${{ left: place(day, at) }}>
              <span>now</span>
            </span>
          `}
        </div>
        <div class="day-windows">
          <span class="most">${count(cap)}</span>
          <span class="rule"></span>
          ${day.windows.map((/** @type {any} */ window) => html`
            <span
              key=${window.at}
              class="window"
              style=${{ left: place(day, Date.parse(window.at)) }}
              title=${windowText(window)}
            >
              <span class="cap" style=${{ height: `${(window.cap / cap) * 100}%` }}></span>
              <${Stack}
                most=${cap}
                of=${[
                  ["retrying", window.used],
                  ["waiting", window.waiting],
                ]}
              />
            </span>
          `)}
        </div>
        <div class="day-hours">
          ${marks.map((mark) => html`<span key=${mark} style=${{ left: place(day, mark) }}>${hour(mark)}</span>`)}
        </div>
      </div>
    </div>
  `;
}

/** @param {{ day: Day }} props */
function Twins({ day }) {
  /**
   * @param {string} title
   * @param {any} field
   */
  const number = (title, field) => ({
    title,
    isNumber: true,
    cell: (/** @type {any} */ row) => count(row[field]),
  });
  return html`
    <div class="day-twins">
      <${Table}
        label="Slots of the day"
        rows=${day.slots}
        keyOf=${(slot) => slot.slot}
        columns=${[
          {
            title: "Slot",
            cell: (slot) => html`<${Link} to=${`/catalog?slot=${slot.slot}`}>${hour(slotAt(day, slot))}</${Link}>`,
          },
          number("Planned", "planned"),
          number("Done", "done"),
          number("Failed", "failed"),
          number("Running", "running"),
          number("Waiting", "waiting"),
        ]}
      />
      <${Table}
        label="Retry windows of the day"
        rows=${day.windows}
        keyOf=${(window) => window.at}
        empty="There are no retry windows."
        columns=${[
          { title: "Retry window", cell: (window) => hour(Date.parse(window.at)) },
          number("Cap", "cap"),
          number("Used", "used"),
          number("Waiting", "waiting"),
        ]}
      />
    </div>
  `;
}

/** @param {{ day: Day }} props */
function Day({ day }) {
  const [isTable, setTable] = useState(false);
  return html`
    <figure class="chart day">
      <figcaption>
        <strong>${day.day} ${day.zone}</strong>
        <span class="keys">
          <span class="key tone-plan">planned</span>
          <span class="key tone-done">done</span>
          <span class="key tone-failed">failed</span>
          <span class="key tone-running">running</span>
          <span class="key tone-waiting">waiting</span>
          <span class="key tone-retried">retried, in windows below</span>
        </span>
        <button
          type="button"
          class="mini"
          aria-pressed=${String(isTable)}
          onClick=${() => setTable(!isTable)}
        >
          ${isTable ? "Picture" : "Table"}
        </button>
      </figcaption>
      ${isTable ? html`<${Twins} day=${day} />` : html`<${Picture} day=${day} />`}
    </figure>
  `;
}

// ---- acts

/**
 * Reactivate a thousand at a time until none is left. Gives how many.
 * @param {any} cause
 * @param {any} syncNow
 */
async function reactivateAll(cause, syncNow) {
  let products = 0;
  for (;;) {
    const done = await post("/api/products/reactivate", {
      ...(cause === null ? {} : { cause }),
      syncNow,
    });
    products += done.products;
    if (!done.isMore) return products;
  }
}

/** @param {number} number */
const plural = (number, word = "product") => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/**
 * @param {string | null} cause
 * @param {number} products
 * @param {() => unknown} after
 */
async function askReactivate(cause, products, after) {
  const answer = await ask({
    title: cause === null ? "Reactivate all products" : "Reactivate by cause",
    text: [
      `${plural(products)} ${products === 1 ? "was" : "were"} deactivated${cause ? ` by ${cause}` : ""}`,
      " and will be synced again. The last sync of each is discarded if it is in review. Is the cause fixed?",
    ].join(""),
    fields: [
      {
        name: "syncNow",
        label: "Sync now too, not only from the next slot on",
        type: "checkbox",
        value: true,
      },
    ],
    yes: "Reactivate",
  });
  if (answer) {
    await act(
      () => reactivateAll(cause, answer.syncNow),
      (number) => `${plural(number)} reactivated.`,
      { after },
    );
  }
}

/** @param {() => unknown} after */
async function publish(after) {
  const isAdmin = may("admin");
  await ask({
    title: "Publish a product",
    text: "It is synced once a day, at the hour that has the fewest products.",
    yes: "Publish",
    fields: [
      { name: "sku", label: "SKU", required: true, autocomplete: "off" },
      ...(isAdmin
        ? [
            {
              name: "userId",
              label: "User",
              value: me.value ? me.value.userId : "",
              required: true,
              autocomplete: "off",
              hint: "Whose product it is.",
            },
          ]
        : []),
    ],
    check: async ({ sku, userId }) => {
      const made = await post("/api/products", { sku, ...(isAdmin ? { userId } : {}) });
      await act(async () => made, `${made.sku} is published: slot ${made.hourBucket}.`, { after });
    },
  });
}

/** @param {{ selected: Set<string>, rows: any[], clear: () => void, reload: () => unknown }} props */
function Acts({ selected, rows, clear, reload }) {
  if (!rows.length) {
    return selected.size ? html`<span>${count(selected.size)} selected, not read yet</span>` : null;
  }
  /** @param {any} row */
  const whose = (row) => ({ query: { userId: row.userId } });
  /**
   * @param {any[]} list
   * @param {(row: any) => Promise<unknown>} doing
   * @param {string} done
   */
  const each = (list, doing, done) =>
    act(
      () => eachOf(list, doing),
      (came) => came.text("product", done),
      {
        after: () => {
          clear();
          reload();
        },
      },
    );
  const broken = rows.filter((row) => !row.isActive);
  const withdraw = async () => {
    const one = rows.length === 1;
    const sure = await ask({
      title: one ? `Withdraw ${rows[0].sku}` : `Withdraw ${plural(rows.length)}`,
      text: "They are no longer synced. Waiting syncs are cancelled.",
      typed: one ? rows[0].sku : String(rows.length),
      yes: "Withdraw",
      isGrave: true,
    });
    if (sure) {
      await each(
        rows,
        (row) => remove(`/api/products/${name(row.sku)}`, undefined, whose(row)),
        "withdrawn",
      );
    }
  };
  return html`
    <span>${count(rows.length)} selected</span>
    <button
      type="button"
      onClick=${() => each(rows, (row) => post(`/api/schedules/${row.id}/run`), "will be synced now")}
    >
      Sync now
    </button>
    ${broken.length > 0 && html`
      <button
        type="button"
        onClick=${() =>
          each(
            broken,
            (row) => post(`/api/products/${name(row.sku)}/reactivate`, { syncNow: true }, whose(row)),
            "reactivated",
          )
        }
      >
        Reactivate
      </button>
    `}
    <button type="button" onClick=${withdraw}>Withdraw</button>
    <button type="button" class="mini" onClick=${clear}>Clear</button>
  `;
}

// ---- products

const FIELDS = [
  { name: "status", label: "Status", options: ["pending", "syncing", "success", "failed"] },
  {
    name: "active",
    label: "Active",
    options: [
      ["true", "synced"],
      ["false", "deactivated"],
    ],
  },
  { name: "slot", label: "Slot" },
  { name: "q", label: "SKU or user" },
];

/** @type {Column<any>[]} */
const COLUMNS = [
  {
    title: "SKU",
    width: "minmax(130px, 1fr)",
    cell: (row) => html`<${Link} to=${`/schedules/${row.id}`} tabindex="-1">${row.sku}</${Link}>`,
  },
  { title: "User", width: "110px", isMinor: true, cell: (row) => row.userId },
  {
    title: "Status",
    width: "120px",
    cell: (row) => html`<${Status} of=${row.isActive ? row.syncStatus : "deactivated"} />`,
  },
  { title: "Slot", width: "60px", isNumber: true, cell: (row) => row.hourBucket },
  { title: "Failures", width: "80px", isNumber: true, cell: (row) => count(row.consecutiveFailures) },
  { title: "Last sync", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.lastSyncAt} />` },
  {
    title: "Price",
    width: "90px",
    isNumber: true,
    isMinor: true,
    cell: (row) => (row.lastPrice === null ? "–" : String(row.lastPrice)),
  },
  {
    title: "Quantity",
    width: "90px",
    isNumber: true,
    isMinor: true,
    cell: (row) => count(row.lastQuantity) || "–",
  },
  {
    title: "Last error",
    width: "minmax(160px, 2fr)",
    isMinor: true,
    cell: (row) => html`<span class="clip" title=${row.lastError}>${row.lastError ?? ""}</span>`,
  },
];

/** @param {{ changes: any, onChange: (value?: any) => unknown }} props */
function Products({ changes, onChange }) {
  const filter = Object.fromEntries(FIELDS.map(({ name: each }) => [each, query.value.get(each)]));
  return html`
    <${Section} title="Products">
      <${Filters}
        fields=${FIELDS}
        free="q"
        placeholder="part of a SKU, status:failed, slot:7"
      />
      <${Grid}
        name=${`products ${JSON.stringify(filter)}`}
        label="Products"
        columns=${COLUMNS}
        load=${pagesOf("/api/products", filter)}
        to=${(row) => `/schedules/${row.id}`}
        changes=${changes}
        bar=${may("write") ? (chosen) => html`<${Acts} ...${chosen} reload=${onChange} />` : null}
        empty=${
          html`<${Empty}
            title=${
              Object.values(filter).some(Boolean)
                ? "No product fits these filters."
                : "There are no products yet."
            }
          >
            ${!Object.values(filter).some(Boolean) && html`
              <p>Publish one above, or from a terminal:</p>
              <${Command}>duly products publish 65-12345-1 --user shop</${Command}>
            `}
          </${Empty}>`
        }
      />
    </${Section}>
  `;
}

// ---- the screen

/** @param {{ day: Day }} props */
function Tiles({ day }) {
  const { statuses, budget } = day;
  /**
   * @param {string} status
   * @param {string} to
   * @param {Children} [note]
   */
  const tile = (status, to, note) => html`
    <${Link} class=${`tile tone-${STATUSES[status]}`} to=${to}>
      <span class="tile-label">${status}</span>
      <span class="tile-value">${count(statuses[status])}</span>
      ${note && html`<span class="tile-note">${note}</span>`}
    </${Link}>
  `;
  const part = budget.mostPerDay ? budget.usedToday / budget.mostPerDay : 0;
  return html`
    <div class="tiles">
      ${tile("success", "/catalog?status=success")}
      ${tile("pending", "/catalog?status=pending")}
      ${tile("syncing", "/catalog?status=syncing")}
      ${tile("failed", "/catalog?status=failed", "wait for a retry window")}
      ${tile("deactivated", "/catalog?active=false", "until a person reactivates")}
      <${Tile}
        label="API calls today"
        value=${count(budget.usedToday)}
        note=${`of ${count(budget.mostPerDay)}; ${count(budget.perMinute)} a minute`}
        tone=${part > 0.9 ? "bad" : part > 0.7 ? "warn" : "ok"}
      >
        <${Bar} value=${part} label="API calls used today" tone=${part > 0.9 ? "failed" : "done"} />
      </${Tile}>
    </div>
  `;
}

/** @param {{ causes: { cause: string, products: number }[], after: () => unknown }} props */
function Causes({ causes, after }) {
  if (!causes.length) return null;
  const all = causes.reduce((sum, cause) => sum + cause.products, 0);
  return html`
    <${Section}
      title="Deactivated"
      actions=${
        may("write") && html`
          <button type="button" onClick=${() => askReactivate(null, all, after)}>
            Reactivate all ${count(all)}
          </button>
        `
      }
    >
      <ul class="causes card">
        ${causes.map((each) => html`
          <li key=${each.cause}>
            <span>
              <code class="wrap">${each.cause || "no longer known"}</code>${" "}
              <span class="pill">${plural(each.products)}</span>
            </span>
            ${may("write") && html`
              <button
                type="button"
                aria-label=${`Reactivate ${plural(each.products)} of ${each.cause || "no known cause"}`}
                onClick=${() => askReactivate(each.cause, each.products, after)}
              >
                Reactivate
              </button>
            `}
          </li>
        `)}
      </ul>
    </${Section}>
  `;
}

export default function Catalog() {
  const day = useLive("/api/catalog/day", {}, { every: 15 });
  const [changes, setChanges] = useState(0);
  const after = async () => {
    setChanges((times) => times + 1);
    await day.reload();
  };
  return html`
    <${Title}
      actions=${
        html`
          <${Link} class="button" to="/plan">Plan</${Link}>
          ${may("write") && html`
            <button type="button" class="main" onClick=${() => publish(after)}>Publish product</button>
          `}
        `
      }
    >
      Catalog
    </${Title}>
    <${Loaded} of=${day}>
      ${(data) => html`
        <${Tiles} day=${data} />
        <${Day} day=${data} />
        <${Causes} causes=${data.causes} after=${after} />
      `}
    </${Loaded}>
    <${Products} changes=${changes} onChange=${after} />
  `;
}
