// The form of a schedule, new or not. While the person types, it shows the rule in words and its next runs.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { stringify, parse } from "../lib/json.js";
import { zoneName } from "../lib/time.js";
import { Dialog } from "./dialogs.js";
import { Field, FormError } from "./fields.js";
import { Time } from "./marks.js";
import { TaskFields, argsOf, useTasks } from "./task_form.js";

const RULES = [
  "daily 09:00",
  "weekly mon,fri 08:00",
  "every 15m",
  "monthly 1 06:00",
  "0 9 * * 1-5",
  "slots 24",
];
/**
 * What a schedule does when it is late or overlaps; `fallback` is shown for a new one.
 * @type {(FieldProps & { name: "catchUp" | "overlap" | "maxLateness" | "rank", fallback: string | number })[]}
 */
const EXCEPTIONS = [
  {
    name: "catchUp",
    label: "After downtime",
    type: "select",
    fallback: "latest",
    options: [
      ["latest", "run the latest missed one"],
      ["all", "run every missed one"],
      ["skip", "skip what was missed"],
    ],
  },
  {
    name: "overlap",
    label: "While the last one still runs",
    type: "select",
    fallback: "allow",
    options: [
      ["allow", "run beside it"],
      ["skip", "skip"],
      ["supersede", "replace the one that waits"],
    ],
  },
  {
    name: "maxLateness",
    label: "Not later than (seconds)",
    type: "number",
    min: "0",
    step: "any",
    fallback: "",
    hint: "A run that is later than this is skipped. Empty: no limit.",
  },
  { name: "rank", label: "Rank", type: "number", min: "-100", max: "100", fallback: 0, hint: "Lower goes first." },
];
const SEATS = /^slots\s+(\d+)$/;
const PAUSE = 200; // milliseconds without a key before the rule is asked about

/** @type {string[] | null} */
let zones = null;
const knownZones = () => (zones ??= ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])]);

/**
 * A time as clocks in a zone show it.
 * @param {string} at
 * @param {string} zone
 */
export function inZone(at, zone) {
  try {
    return new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      weekday: "short",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZoneName: "short",
    }).format(new Date(at));
  } catch {
    return "";
  }
}

/**
 * The next runs of a rule, in the time of this page and of its zone, with a note where the clocks change.
 * @param {{ next: string[], notes?: { at: string, note: string }[], zone: string, label?: string }} props
 */
export function NextRuns({ next, notes = [], zone, label = "Next runs" }) {
  const noted = new Map(notes.map((note) => [new Date(note.at).getTime(), note.note]));
  return html`
    <ol class="runs" aria-label=${label}>
      ${next.map((at) => html`
        <li key=${at}>
          <${Time} at=${at} long /> <small>${inZone(at, zone)}</small>
          ${noted.has(new Date(at).getTime()) && html`
            <small class="is-retrying">${noted.get(new Date(at).getTime())}</small>
          `}
        </li>
      `)}
    </ol>
  `;
}

/**
 * What a rule means. It is asked for when the person stops typing.
 * @param {{ rule: string, zone: string }} props
 */
function Preview({ rule, zone }) {
  const [meaning, setMeaning] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const text = rule.trim();
    if (!text || SEATS.test(text)) {
      setMeaning(null);
      return undefined;
    }
    let isOver = false;
    const timer = setTimeout(async () => {
      try {
        const answer = await post("/api/schedules/preview", {
          rule: text,
          zone: zone.trim() || "UTC",
          n: 5,
        });
        if (!isOver) setMeaning(answer);
      } catch (error) {
        if (!isOver) setMeaning({ error });
      }
    }, PAUSE);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [rule, zone]);
  const seats = SEATS.exec(rule.trim());
  return html`
    <div class="preview" role="status" aria-label="Preview">
      ${seats ? html`
        <p><strong>One of ${seats[1]} even slots of the day.</strong></p>
        <p class="note">The slot with the fewest members is chosen when it is created, and kept.</p>
      ` : meaning?.error ? html`
        <p class="wrong">${meaning.error.field ? `${meaning.error.field}: ` : ""}${meaning.error.message}</p>
      ` : meaning ? html`
        <p><strong>${meaning.describe}</strong></p>
        <${NextRuns} next=${meaning.next} notes=${meaning.notes} zone=${zone} label="Preview of the next runs" />
      ` : html`<p class="note">The next runs appear here.</p>`}
    </div>
  `;
}

/** @param {FormDataEntryValue | null} text */
const number = (text) => (text === "" ? null : Number(text));

/**
 * Changes `schedule`, or makes a new one. `save` sends the values; `onDone` gets its answer.
 * @param {{
 *   schedule?: Wire.Schedule | Wire.ScheduleStory | null, onClose: () => void, onDone: (answer: any) => unknown,
 *   save: (values: Query) => Promise<any>,
 * }} props
 */
export function ScheduleForm({ schedule = null, onClose, onDone, save }) {
  const { data: known, error: unknown } = useTasks();
  const tasks = known?.items;
  const [name, setName] = useState(schedule?.task ?? "");
  const [rule, setRule] = useState(schedule?.rule ?? "daily 09:00");
  const [zone, setZone] = useState(schedule?.zone ?? zoneName());
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const field = useRef(/** @type {any} */ (null));
  const task = tasks?.find((each) => each.name === name) ?? null;
  const isSeated = Boolean(schedule?.ring);
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setBusy(true);
    try {
      const args = task ? argsOf(task, form) : schedule ? parse(String(form.get("json"))) : {};
      const values = {
        zone: zone.trim() || "UTC",
        catchUp: form.get("catchUp"),
        overlap: form.get("overlap"),
        rank: number(form.get("rank")) ?? 0,
        ...(form.get("maxLateness") ? { maxLateness: number(form.get("maxLateness")) } : {}),
        ...(isSeated ? {} : { rule: rule.trim() }),
        args,
      };
      const answer = await save(
        schedule ? values : { task: name, key: String(form.get("key")).trim(), ...values },
      );
      forget();
      await onDone(answer);
    } catch (wrong) {
      setError(wrong);
      setBusy(false);
    }
  };
  /** @param {string} text */
  const use = (text) => {
    setRule(text);
    field.current?.querySelector("#field-rule")?.focus();
  };
  return html`
    <${Dialog} title=${schedule ? `Edit ${schedule.key}` : "New schedule"} wide onClose=${onClose}>
      <form onSubmit=${send} ref=${field}>
        <div class="halves">
          <div>
            ${!schedule && html`
              <${Field}
                name="task"
                label="Task"
                type="select"
                value=${name}
                required
                onChange=${(event) => setName(event.target.value)}
                options=${[
                  ["", tasks ? "Choose a task" : "Loading…"],
                  ...(tasks ?? []).map((each) => each.name),
                ]}
                hint=${task?.doc || null}
              />
              <${Field}
                name="key"
                label="Key"
                required
                maxlength="500"
                autocomplete="off"
                hint="A name of your own, unique for each task."
              />
            `}
            ${isSeated ? html`<p class="note">It keeps its slot: ${schedule?.describe}.</p>` : html`
              <div class="field">
                <label for="field-rule">Rule</label>
                <input
                  id="field-rule"
                  name="rule"
                  value=${rule}
                  required
                  spellcheck="false"
                  autocomplete="off"
                  onInput=${(event) => setRule(event.target.value)}
                />
                <div class="actions" role="group" aria-label="Examples of rules">
                  ${RULES.filter((each) => !schedule || !SEATS.test(each)).map((each) => html`
                    <button type="button" class="mini" onClick=${() => use(each)}>${each}</button>
                  `)}
                </div>
              </div>
              <div class="field">
                <label for="field-zone">Zone</label>
                <input
                  id="field-zone"
                  name="zone"
                  list="zones"
                  value=${zone}
                  spellcheck="false"
                  autocomplete="off"
                  onInput=${(event) => setZone(event.target.value)}
                />
                <datalist id="zones">
                  ${knownZones().map((each) => html`<option value=${each}></option>`)}
                </datalist>
              </div>
              <${Preview} rule=${rule} zone=${zone} />
            `}
          </div>
          <div>
            ${unknown && html`<p class="wrong" role="alert">${unknown.message}</p>`}
            ${task ? html`
              <${TaskFields} key=${task.name} task=${task} values=${schedule?.args ?? {}} />
            ` : schedule && tasks ? html`
              <${Field}
                name="json"
                label="Arguments"
                type="json"
                value=${stringify(schedule.args, 2)}
                hint="As JSON, because this service does not have the task."
              />
            ` : (
              !schedule && html`<p class="note">Its arguments appear here when you choose a task.</p>`
            )}
            <details>
              <summary>When it is late, and when it overlaps</summary>
              ${EXCEPTIONS.map(({ fallback, ...each }) => html`
                <${Field} key=${each.name} ...${each} value=${schedule?.[each.name] ?? fallback} />
              `)}
            </details>
          </div>
        </div>
        <${FormError} error=${error} />
        <footer>
          <button type="button" onClick=${onClose}>Not now</button>
          <button type="submit" class="main" disabled=${isBusy || (!schedule && !task)}>
            ${schedule ? "Save" : "Create"}
          </button>
        </footer>
      </form>
    </${Dialog}>
  `;
}
