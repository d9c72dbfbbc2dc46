// Schedules: what recurs, by its rule in plain words; and the slots of rings, over which schedules are spread.
import { html, useState } from "../lib/ui.js";
import { post, may, pagesOf } from "../lib/api.js";
import { go, query, Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count, counted } from "../lib/time.js";
import { Grid } from "../parts/grid.js";
import { Filters, Tabs } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Section, Table } from "../parts/table.js";
import { Bar, Command, Empty, Loaded, State, Time } from "../parts/marks.js";
import { act, askTyped } from "../parts/dialogs.js";
import { ScheduleForm } from "../parts/schedule_form.js";
import { changeAll, changedText } from "../lib/many.js";

const FIELDS = [
  { name: "task", label: "Task" },
  { name: "keyContains", label: "Key contains" },
  { name: "key", label: "Key" },
  { name: "ring", label: "Ring" },
  { name: "slot", label: "Slot" },
  {
    name: "state",
    label: "State",
    options: [
      ["active", "active"],
      ["paused", "paused"],
      ["broken", "deactivated"],
    ],
    isHidden: true,
  },
  { name: "sort", label: "Order", options: [["next", "next first"]] },
];
const ALL = [...FIELDS, { name: "userId", label: "Owner" }];

/** @returns {Column<any>[]} */
const columns = () => [
  {
    title: "State",
    width: "134px",
    cell: (row) => html`<${State} of=${row.state} label=${row.state === "broken" ? "deactivated" : row.state} />`,
  },
  {
    title: "Key",
    width: "minmax(150px, 1.2fr)",
    cell: (row) => html`<${Link} to=${`/schedules/${row.id}`} tabindex="-1">${row.key}</${Link}>`,
  },
  { title: "Task", width: "minmax(110px, 0.8fr)", isMinor: true, cell: (row) => html`<code>${row.task}</code>` },
  {
    title: "When",
    width: "minmax(220px, 3fr)",
    cell: (row) => html`<span title=${row.rule}>${row.describe}</span>`,
  },
  { title: "Next", isTime: true, cell: (row) => html`<${Time} at=${row.nextAt} />` },
  { title: "Last", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.lastAt} />` },
  { title: "Failures", width: "75px", isNumber: true, isMinor: true, cell: (row) => count(row.failures) },
  ...(may("admin")
    ? [
        {
          title: "Owner",
          width: "80px",
          isMinor: true,
          cell: (/** @type {any} */ row) => row.owner ?? html`<span class="none">code</span>`,
        },
      ]
    : []),
];

const ACTS = [
  ["pause", "Pause", "paused"],
  ["resume", "Resume", "resumed"],
  ["run", "Run now", "started"],
  ["reactivate", "Reactivate", "reactivated"],
];

/** @param {{ selected: Set<string>, clear: () => void, reload: () => unknown }} props */
function SelectionBar({ selected, clear, reload }) {
  const ids = [...selected];
  /**
   * @param {string} action
   * @param {string} done
   */
  const doing = (action, done) =>
    act(
      () => changeAll("/api/schedules/act", { action }, ids),
      (changed) => changedText(changed.length, ids.length, "schedule", done),
      {
        after: () => {
          clear();
          reload();
        },
      },
    );
  const drop = async () => {
    const text = "Their waiting items are cancelled. This cannot be undone.";
    const yes = await askTyped(`Remove ${counted(ids.length, "schedule")}`, text, String(ids.length), "Remove");
    if (yes) await doing("remove", "removed");
  };
  if (!ids.length || !may("write")) return null;
  return html`
    <span class="number">${count(ids.length)} selected</span>
    ${ACTS.map(([name, word, done]) => html`
      <button
        type="button"
        class="mini"
        onClick=${() => doing(name, done)}
      >
        ${word}
      </button>
    `)}
    <button type="button" class="mini" onClick=${drop}>Remove</button>
    <button type="button" class="mini" onClick=${clear}>Clear</button>
  `;
}

function List() {
  const [changes, setChanges] = useState(0);
  const [isNew, setNew] = useState(false);
  const filters = Object.fromEntries(ALL.map(({ name }) => [name, query.value.get(name)]));
  const isFiltered = Object.values(filters).some(Boolean);
  return html`
    <${Title}
      actions=${
        may("write") && html`
          <button type="button" class="main" onClick=${() => setNew(true)}>New schedule</button>
        `
      }
    >
      Schedules
    </${Title}>
    <${Views} />
    <${Tabs}
      name="state"
      label="States"
      options=${[
        ["", "All"],
        ["active", "Active"],
        ["paused", "Paused"],
        ["broken", "Deactivated"],
      ]}
    />
    <${Filters}
      fields=${may("admin") ? ALL : FIELDS}
      free="keyContains"
      placeholder="a part of a key, or task:echo"
    />
    <${Grid}
      name=${`schedules ${JSON.stringify(filters)}`}
      label="Schedules"
      columns=${columns()}
      changes=${changes}
      to=${(row) => `/schedules/${row.id}`}
      load=${pagesOf("/api/schedules", filters)}
      bar=${(given) => html`<${SelectionBar} ...${given} />`}
      empty=${
        isFiltered ? html`
          <${Empty} title="No schedule fits.">
            <p>Remove a filter, or search for another key.</p>
          </${Empty}>
        ` : html`
          <${Empty} title="There is no schedule yet.">
            <p>Make one here, or with:</p>
            <${Command}>
              duly schedules add echo "daily 02:30" text=hello --key nightly --zone Europe/Zagreb
            </${Command}>
          </${Empty}>
        `
      }
    />
    ${isNew && html`
      <${ScheduleForm}
        onClose=${() => setNew(false)}
        save=${(values) => post("/api/schedules", values)}
        onDone=${(made) => {
          setNew(false);
          setChanges(changes + 1);
          go(`/schedules/${made.id}`);
        }}
      />
    `}
  `;
}

/** @type {[string, string][]} */
const VIEWS = [["", "Schedules"], ["slots", "Slots"]];

/** Schedules, or the slots that some of them share. */
const Views = () => may("admin") && html`<${Tabs} name="show" label="Views" options=${VIEWS} />`;

const SHOWN = 500; // slots of a ring in its table

/** @param {{ ring: string, slots: Answer<"/api/slots"> }} props */
function Ring({ ring, slots }) {
  const moves = useLive(`/api/slots/${encodeURIComponent(ring)}/rebalance`, { most: 200 }, { every: 0 });
  const total = slots.reduce((sum, each) => sum + each.members, 0);
  const most = Math.max(...slots.map((each) => each.members), 1);
  /** @type {Column<any>[]} */
  const columnsOf = [
    { title: "Slot", isNumber: true, cell: (row) => row.slot },
    {
      title: "Members",
      isNumber: true,
      cell: (row) => html`
        <${Link} to=${`/schedules?ring=${encodeURIComponent(ring)}&slot=${row.slot}`}>
          ${count(row.members)}
          <span class="sr"> members of slot ${row.slot}</span>
        </${Link}>
      `,
    },
    {
      title: "Load",
      isWide: true,
      cell: (row) => html`<${Bar} value=${row.members / most} label=${`Load of slot ${row.slot}`} />`,
    },
  ];
  return html`
    <${Section} title=${ring}>
      <p>
        ${count(total)} active members in ${count(slots.length)} slots: at least${" "}
        ${count(Math.min(...slots.map((each) => each.members)))}, at most ${count(most)} in one.
      </p>
      <div class="halves">
        <div class="short">
          <${Table}
            label=${`Slots of ${ring}`}
            columns=${columnsOf}
            rows=${slots.slice(0, SHOWN)}
            keyOf=${(row) => String(row.slot)}
          />
          ${slots.length > SHOWN && html`
            <p class="note">The first ${count(SHOWN)} of ${count(slots.length)} slots.</p>
          `}
        </div>
        <div class="short">
          <h3>Rebalance, as a preview</h3>
          <${Loaded} of=${moves}>
            ${(found) =>
              found.length ? html`
                <p>
                  ${found.length === 200 ? "200 or more" : count(found.length)} members would move so
                  that all slots are even. Nothing is moved here.
                </p>
                <${Table}
                  label=${`Moves in ${ring}`}
                  rows=${found}
                  keyOf=${(row) => String(row.scheduleId)}
                  columns=${[
                    {
                      title: "Member",
                      isWide: true,
                      cell: (row) => html`<${Link} to=${`/schedules/${row.scheduleId}`}>${row.key}</${Link}>`,
                    },
                    { title: "From", isNumber: true, cell: (row) => row.slot },
                    { title: "To", isNumber: true, cell: (row) => row.to },
                  ]}
                />
              ` : html`<p>All slots are even; nothing would move.</p>`
            }
          </${Loaded}>
        </div>
      </div>
    </${Section}>
  `;
}

function Slots() {
  const slots = useLive("/api/slots", {}, { every: 5 });
  return html`
    <${Title}>Slots</${Title}>
    <${Views} />
    <${Loaded} of=${slots}>
      ${(found) => {
        const rings = new Map();
        for (const each of found) rings.set(each.ring, [...(rings.get(each.ring) ?? []), each]);
        return rings.size ? (
          [...rings].map(([ring, each]) => html`<${Ring} key=${ring} ring=${ring} slots=${each} />`)
        ) : html`
          <${Empty} title="No schedule shares slots.">
            <p>A schedule with the rule <code>slots 24</code> gets one of 24 even slots of the day.</p>
          </${Empty}>
        `;
      }}
    </${Loaded}>
  `;
}

export default function Schedules() {
  return query.value.get("show") === "slots" && may("admin") ? html`<${Slots} />` : html`<${List} />`;
}
