// Reminders that become phone calls: who is called when, what became of it, and the provider's id of the call.
import {
  html, useLive, useState, post, patch, query, may, ask, act, RowActs, REASON, fromInput, toInput,
  count, zoneName, Title, Link, Loaded, Grid, Tabs, Filters, Facts, State, Time, Copy, Empty,
  Command, pagesOf, TableSection,
} from "../../js/kit.js";

/** @type {Record<string, string>} */
const STATES = {
  scheduled: "waiting",
  pending_retry: "retrying",
  processing: "running",
  completed: "done",
  failed: "failed",
  cancelled: "cancelled",
};
/** @type {Record<string, string>} */
const WORDS = { pending_retry: "waits for a retry" };
/** @param {{ of: any }} props */
const Status = ({ of }) => html`<${State} of=${STATES[of]} label=${WORDS[of] ?? of} />`;
/** @param {any} reminder */
const canEdit = (reminder) => ["scheduled", "pending_retry", "failed"].includes(reminder.status);
/** @param {any} reminder */
const canCancel = (reminder) =>
  ["scheduled", "pending_retry", "processing", "failed"].includes(reminder.status);
/** @param {any} reminder */
const canCall = (reminder) =>
  ["scheduled", "pending_retry", "failed", "cancelled"].includes(reminder.status);

/** @param {any} reminder */
const fields = (reminder) => [
  {
    name: "phone",
    label: "Phone",
    value: reminder?.phone,
    required: true,
    hint: "With the country, such as +385 1 234 567.",
    autocomplete: "off",
  },
  {
    name: "message",
    label: "Message",
    type: "textarea",
    rows: 3,
    value: reminder?.message,
    required: true,
    maxlength: 1000,
  },
  {
    name: "at",
    label: `When (${zoneName()})`,
    type: "datetime-local",
    value: toInput(reminder?.dateTimeUtc ?? new Date(Date.now() + 3_600_000)),
    required: true,
  },
  { name: "name", label: "Name", value: reminder?.name, autocomplete: "off" },
];

/** @param {() => unknown} after */
async function schedule(after) {
  await ask({
    title: "Schedule a reminder",
    yes: "Schedule",
    fields: fields(null),
    check: async (answer) => {
      const made = await post("/api/reminders", { ...answer, at: fromInput(answer.at) });
      await act(async () => made, `Reminder ${made.id} is scheduled.`, { after });
    },
  });
}

/**
 * @param {any} reminder
 * @param {() => unknown} after
 */
async function edit(reminder, after) {
  const before = Object.fromEntries(fields(reminder).map(({ name, value }) => [name, value ?? ""]));
  await ask({
    title: `Change reminder ${reminder.id}`,
    yes: "Save",
    fields: fields(reminder),
    text: reminder.status === "failed" ? "It stays in review until it is called again." : null,
    check: async (answer) => {
      // Only what was changed is sent: a masked value that was left alone stays what it is.
      const news = Object.fromEntries(
        Object.entries(answer).filter(([name, value]) => value !== before[name]),
      );
      if (news.at) news.at = fromInput(news.at);
      if (!Object.keys(news).length) return;
      const made = await patch(`/api/reminders/${reminder.id}`, news);
      await act(async () => made, `Reminder ${reminder.id} is changed.`, { after });
    },
  });
}

/**
 * @param {any} reminder
 * @param {() => unknown} after
 */
async function cancel(reminder, after) {
  const answer = await ask({
    title: `Cancel reminder ${reminder.id}`,
    text: `${reminder.phone} will not be called.`,
    fields: [REASON],
    yes: "Cancel it",
    no: "Keep it",
    isGrave: true,
  });
  // A retry undoes the cancellation.
  const undo = () =>
    act(() => post(`/api/items/${reminder.id}/retry`), "The reminder is called now.", { after });
  if (answer) {
    await act(
      () => post(`/api/reminders/${reminder.id}/cancel`, { reason: answer.reason }),
      {
        text: `Reminder ${reminder.id} is cancelled.`,
        ...(reminder.status === "failed" ? { undo } : {}),
      },
      { after },
    );
  }
}

/**
 * @param {any} reminder
 * @param {() => unknown} after
 */
const call = (reminder, after) =>
  act(() => post(`/api/items/${reminder.id}/retry`), `Reminder ${reminder.id} is called now.`, { after });

// ---- one reminder

/** @type {Column<any>[]} */
const TRIES = [
  { title: "Try", isNumber: true, cell: (tried) => count(tried.number) },
  { title: "Began", cell: (tried) => html`<${Time} at=${tried.startedAt} />` },
  { title: "Ended", cell: (tried) => html`<${Time} at=${tried.endedAt} />` },
  { title: "Outcome", cell: (tried) => tried.outcome },
  {
    title: "Error",
    isWide: true,
    cell: (tried) => html`<span class="wrap">${(tried.error ?? "").split("\n")[0]}</span>`,
  },
];

/** @param {{ of: any, after: () => unknown }} props */
function Acts({ of: reminder, after }) {
  if (!may("write")) return null;
  return html`
    ${canCall(reminder) && html`<button type="button" onClick=${() => call(reminder, after)}>Call now</button>`}
    ${canEdit(reminder) && html`<button type="button" onClick=${() => edit(reminder, after)}>Change</button>`}
    ${canCancel(reminder) && html`<button type="button" onClick=${() => cancel(reminder, after)}>Cancel</button>`}
  `;
}

/** @param {{ id: string }} props */
function Reminder({ id }) {
  const story = useLive(`/api/reminders/${id}`, {}, { every: 2 });
  return html`
    <${Loaded} of=${story}>
      ${(reminder) => html`
        <${Title} text=${`Reminder ${id}`} actions=${html`<${Acts} of=${reminder} after=${story.reload} />`}>
          Reminder ${id}
        </${Title}>
        <div class="card">
          <p class="wrap">${reminder.message}</p>
          <${Facts}
            of=${[
              ["Status", html`<${Status} of=${reminder.status} />`],
              ["To be called", html`<${Time} at=${reminder.dateTimeUtc} long />`],
              ["Phone", reminder.phone],
              ["Name", reminder.name || "–"],
              ["Tries", `${reminder.attemptCount} of ${reminder.maxAttempts}`],
              reminder.nextRetryAt && ["Next try", html`<${Time} at=${reminder.nextRetryAt} long />`],
              [
                "Call id",
                reminder.vapiCallId ? html`
                  <code>${reminder.vapiCallId}</code>${" "}
                  <${Copy} text=${reminder.vapiCallId} label="Copy the call id" />
                ` : (
                  "none yet"
                ),
              ],
              ["Key of all tries", html`<code class="wrap">${reminder.executionKey}</code>`],
              reminder.idempotencyKey && [
                "Key of the latest try",
                html`<code class="wrap">${reminder.idempotencyKey}</code>`,
              ],
              ["Item", html`<${Link} to=${`/items/${id}`}>${id}</${Link}>`],
            ]}
          />
          ${reminder.lastError && html`<p class="wrong wrap">${reminder.lastError}</p>`}
        </div>
        <${TableSection}
          title="Tries that did not succeed"
          label="Tries"
          rows=${reminder.attempts}
          keyOf=${(tried) => `${tried.number}-${tried.startedAt}`}
          columns=${TRIES}
          empty="None."
        />
        <p class="back"><${Link} to="/reminders">All reminders</${Link}></p>
      `}
    </${Loaded}>
  `;
}

// ---- all reminders

/** @type {Column<any>[]} */
const COLUMNS = [
  {
    title: "When",
    isTime: true,
    cell: (row) => html`
      <${Link} to=${`/reminders/${row.id}`} tabindex="-1">
        <${Time} at=${row.dateTimeUtc} />
      </${Link}>
    `,
  },
  { title: "Status", width: "160px", cell: (row) => html`<${Status} of=${row.status} />` },
  { title: "Phone", width: "150px", cell: (row) => row.phone },
  { title: "Name", width: "110px", isMinor: true, cell: (row) => row.name },
  {
    title: "Message",
    width: "minmax(160px, 2fr)",
    isMinor: true,
    cell: (row) => html`<span class="clip" title=${row.message}>${row.message}</span>`,
  },
  {
    title: "Tries",
    width: "70px",
    isNumber: true,
    isMinor: true,
    cell: (row) => `${row.attemptCount}/${row.maxAttempts}`,
  },
  {
    title: "Call id, or error",
    width: "minmax(150px, 2fr)",
    isMinor: true,
    cell: (row) =>
      row.vapiCallId ? html`<code>${row.vapiCallId}</code>` : html`
        <span class="clip" title=${row.lastError}>${row.lastError ?? ""}</span>
      `,
  },
];

const TABS = [
  ["", "All"],
  ["scheduled", "Scheduled"],
  ["processing", "Being called"],
  ["pending_retry", "Waits for a retry"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
];
const FIELDS = [
  { name: "from", label: "From", type: "time" },
  { name: "to", label: "Until", type: "time" },
];

/** @param {GridSelection} selection */
const chosen = (selection) => {
  const acts = [
    {
      word: "Call now",
      rows: selection.rows.filter(canCall),
      one: (/** @type {any} */ row) => post(`/api/items/${row.id}/retry`),
      done: "called now",
    },
    {
      word: "Cancel",
      rows: selection.rows.filter(canCancel),
      one: (/** @type {any} */ row) => post(`/api/reminders/${row.id}/cancel`),
      done: "cancelled",
      sure: "None of these numbers will be called.",
    },
  ];
  return html`<${RowActs} ...${selection} noun="reminder" acts=${acts} />`;
};

function Reminders() {
  const [changes, setChanges] = useState(0);
  const state = query.value.get("state");
  const from = fromInput(query.value.get("from"));
  const to = fromInput(query.value.get("to"));
  return html`
    <${Title}
      actions=${
        may("write") && html`
          <button type="button" class="main" onClick=${() => schedule(() => setChanges(changes + 1))}>
            Schedule reminder
          </button>
        `
      }
    >
      Reminders
    </${Title}>
    <${Tabs} name="state" label="Status" options=${TABS} />
    <${Filters} fields=${FIELDS} hasSearch=${false} />
    <${Grid}
      name=${`reminders ${state} ${from} ${to}`}
      label="Reminders"
      columns=${COLUMNS}
      changes=${changes}
      to=${(row) => `/reminders/${row.id}`}
      load=${pagesOf("/api/reminders", { state, from, to })}
      bar=${may("write") ? chosen : null}
      empty=${
        html`<${Empty} title=${state || from || to ? "No reminder fits." : "There are no reminders yet."}>
          ${!(state || from || to) && html`
            <p>Schedule one above, or from a terminal:</p>
            <${Command}>
              duly reminders add '+385 1 234 567' 'Dentist at 9' --at 2026-12-01T09:00+01:00
            </${Command}>
          `}
        </${Empty}>`
      }
    />
  `;
}

/** @param {{ rest: string }} props */
export default function Screen({ rest }) {
  return rest ? html`<${Reminder} id=${rest} />` : html`<${Reminders} />`;
}
