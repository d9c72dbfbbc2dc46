// Simulate: the next days in virtual time, on the real engine, with failures and downtimes; curves, and plain words.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { query, setQuery } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count, duration } from "../lib/time.js";
import { Title } from "../parts/shell.js";
import { Section, Tile } from "../parts/table.js";
import { Command, Empty, Loaded, Trouble } from "../parts/marks.js";
import { Chart } from "../parts/chart.js";
import { Field } from "../parts/fields.js";

/**
 * Where everything that was planned ended: the others add up to the first.
 * @type {Record<string, string>}
 */
const ENDS = {
  planned: "Planned",
  done: "Done in time",
  late: "Done late",
  inReview: "In review",
  deactivated: "Deactivated",
  skipped: "Skipped",
  stillFailing: "Still failing",
  waiting: "Still waiting",
};
/** @type {Record<string, string>} */
const FIGURES = {
  recovered: "Recovered after failures",
  tries: "Tries",
  calls: "Calls",
  maxCallsPerMinute: "Most calls in a minute",
  lateP50Seconds: "Half done within",
  lateP99Seconds: "99 % within",
  lateMostSeconds: "All within",
};
/** @type {Record<string, string>} */
const TONES = {
  done: "ok", late: "warn", inReview: "bad", deactivated: "bad", stillFailing: "warn", recovered: "running",
  tries: "waiting",
};
/** @param {string} name */
const toneOf = (name) => (name.startsWith("retried") ? "retried" : "done");

/** @param {{ of: Record<string, number>, words: Record<string, string>, label: string }} props */
const Tiles = ({ of, words, label }) => html`
  <div class="tiles" role="group" aria-label=${label}>
    ${Object.entries(words).map(([name, word]) => html`
      <${Tile}
        key=${name}
        label=${word}
        value=${name.endsWith("Seconds") ? duration(of[name]) : count(of[name])}
        tone=${of[name] ? TONES[name] : null}
        note=${name === "late" ? `more than ${duration(of.lateAfterSeconds)} after their time` : null}
      />
    `)}
  </div>
`;

/** @param {{ of: Answer<"/api/simulate", "post"> }} props */
function Result({ of }) {
  const summary = /** @type {Record<string, number>} */ (of.summary);
  return html`
    <${Section} title="In plain words">
      <ul class="lines">${of.lines.map((line) => html`<li>${line}</li>`)}</ul>
    </${Section}>
    <${Tiles} of=${summary} words=${ENDS} label="Where everything that was planned ended" />
    <${Tiles} of=${summary} words=${FIGURES} label="How it went" />
    <${Section} title="Curves">
      ${of.series.map((series) => html`
        <${Chart}
          key=${series.name}
          label=${series.name}
          times=${series.points.map(([at]) => at)}
          series=${[
            {
              label: series.name,
              values: series.points.map(([, value]) => value),
              tone: toneOf(series.name),
              bars: true,
            },
          ]}
        />
      `)}
    </${Section}>
  `;
}

export default function SimulateScreen() {
  const known = useLive("/api/simulate", {}, { every: 0 });
  return html`
    <${Title}>Simulate</${Title}>
    <p>
      The real engine runs over days in seconds: schedules, slots, windows, limits and retries as they
      would be. Nothing outside is touched, and nothing is kept. The same seed gives the same days.
    </p>
    <${Loaded} of=${known}>
      ${({ items }) =>
        items.length ? html`<${Simulate} apps=${items} />` : html`
          <${Empty} title="No app of this service can be simulated."></${Empty}>
        `
      }
    </${Loaded}>
  `;
}

/**
 * The form of the chosen app, and the result. `apps` have the parameters of each.
 * @param {{ apps: Answer<"/api/simulate">["items"] }} props
 */
function Simulate({ apps }) {
  const { app, parameters } = apps.find((each) => each.app === query.value.get("app")) ?? apps[0];
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [begun, setBegun] = useState(/** @type {any} */ (null));
  const [passed, setPassed] = useState(0);
  const isOver = useRef(false);
  useEffect(
    () => () => {
      isOver.current = true;
    },
    [],
  );
  useEffect(() => {
    if (begun === null) return undefined;
    const timer = setInterval(() => setPassed((Date.now() - begun) / 1000), 500);
    return () => clearInterval(timer);
  }, [begun]);
  /**
   * @param {string} name
   * @param {any} initial
   */
  const given = (name, initial) => query.value.get(name) ?? initial;
  /** @param {FormEvent} event */
  const run = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    setQuery(form);
    setBegun(Date.now());
    setPassed(0);
    try {
      const values = Object.fromEntries(parameters.map(({ name }) => [name, Number(form[name])]));
      const found = await post("/api/simulate", {
        app: form.app,
        days: Number(form.days),
        parameters: values,
        seed: Number(form.seed),
        downHours: Number(form.down || 0),
        outHours: Number(form.out || 0),
        failRate: Number(form.fail || 0) / 100,
      });
      if (!isOver.current) setAnswer({ found });
    } catch (error) {
      if (!isOver.current) setAnswer({ error });
    }
    if (!isOver.current) setBegun(null);
  };
  const others = apps.flatMap((each) => each.parameters.map(({ name }) => [name, null]));
  return html`
    <form class="card form" onSubmit=${run} key=${app}>
      <${Field}
        name="app"
        label="App"
        type="select"
        value=${app}
        options=${apps.map((each) => each.app)}
        onChange=${(event) => setQuery({ ...Object.fromEntries(others), app: event.target.value })}
      />
      <${Field}
        name="days"
        label="Days"
        type="number"
        min="1"
        max="14"
        required
        value=${given("days", 3)}
      />
      ${[
        ...parameters.map(({ name, label, shown, most }) => ({ name, label, shown, max: most, required: true })),
        { name: "fail", label: "Calls that fail (%)", shown: 2, max: 100, step: "any" },
        { name: "down", label: "Hours without a worker", shown: 0, max: 96, step: "any" },
        { name: "out", label: "Hours in which every call fails", shown: 0, max: 96, step: "any" },
      ].map(({ shown, ...field }) => html`
        <${Field} key=${field.name} type="number" min="0" ...${field} value=${given(field.name, shown)} />
      `)}
      <${Field} name="seed" label="Seed" type="number" min="0" required value=${given("seed", 0)} />
      <button type="submit" class="main" disabled=${begun !== null}>
        ${begun === null ? "Simulate" : "Simulating…"}
      </button>
    </form>
    <p class="note" role="status">
      ${begun !== null ? `It has run for ${duration(Math.round(passed))}; it takes up to 25 s.` : ""}
    </p>
    ${answer?.error && html`<${Trouble} error=${answer.error} />`}
    ${answer?.found ? html`<${Result} of=${answer.found} />` : (
      !answer?.error && html`
        <${Empty} title="Nothing was simulated yet.">
          <p>Choose above, or in a terminal, with outages, bursts and crashes:</p>
          <${Command}>${`duly simulate ${app} --days 7 --failure-rate 0.02`}</${Command}>
        </${Empty}>
      `
    )}
  `;
}
