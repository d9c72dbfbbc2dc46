// Simulate: the next days in virtual time, on the real engine, with failures and downtimes; curves, and plain words.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { query, setQuery } from "../lib/router.js";
import { count, duration } from "../lib/time.js";
import { Title } from "../parts/shell.js";
import { Section, Tile } from "../parts/table.js";
import { Command, Empty, Trouble } from "../parts/marks.js";
import { Chart } from "../parts/chart.js";
import { Field } from "../parts/dialogs.js";

const APPS = { catalog: ["Products", 1_000], birthdays: ["People", 2_000] };
const WORDS = {
  calls: "Calls", maxCallsPerMinute: "Most calls in a minute", tries: "Tries", done: "Done", inReview: "In review", recovered: "Recovered after failures", deactivated: "Deactivated", skipped: "Skipped",
  lateP50Seconds: "Half started within", lateP99Seconds: "99 % within", lateMostSeconds: "All within",
};
const TONES = { done: "ok", inReview: "bad", deactivated: "bad", recovered: "running", tries: "waiting" };
const toneOf = (name) => (name.startsWith("retried") ? "retried" : "done");

function Result({ of }) {
  return html`<${Section} title="In plain words"><ul class="lines">${of.lines.map((line) => html`<li>${line}</li>`)}</ul></${Section}>
    <div class="tiles">${Object.entries(WORDS).map(([name, word]) => html`<${Tile} key=${name} label=${word} value=${name.endsWith("Seconds") ? duration(of.summary[name]) : count(of.summary[name])} tone=${of.summary[name] ? TONES[name] : null} />`)}</div>
    <${Section} title="Curves">${of.series.map((series) => html`<${Chart} key=${series.name} label=${series.name} times=${series.points.map(([at]) => at)} series=${[{ label: series.name, values: series.points.map(([, value]) => value), tone: toneOf(series.name), bars: true }]} />`)}</${Section}>`;
}

export default function Simulate() {
  const app = APPS[query.value.get("app")] ? query.value.get("app") : "catalog";
  const [answer, setAnswer] = useState(null);
  const [begun, setBegun] = useState(null);
  const [passed, setPassed] = useState(0);
  const isOver = useRef(false);
  useEffect(() => () => { isOver.current = true; }, []);
  useEffect(() => {
    if (begun === null) return undefined;
    const timer = setInterval(() => setPassed((Date.now() - begun) / 1000), 500);
    return () => clearInterval(timer);
  }, [begun]);
  const given = (name, initial) => query.value.get(name) ?? initial;
  const run = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    setQuery(form);
    setBegun(Date.now());
    setPassed(0);
    try {
      const found = await post("/api/simulate", { app: form.app, days: Number(form.days), count: Number(form.count), seed: Number(form.seed), downHours: Number(form.down || 0), failRate: Number(form.fail || 0) / 100 });
      if (!isOver.current) setAnswer({ found });
    } catch (error) {
      if (!isOver.current) setAnswer({ error });
    }
    if (!isOver.current) setBegun(null);
  };
  const [noun, many] = APPS[app];
  return html`<${Title}>Simulate</${Title}>
    <p>The real engine runs over days in seconds: schedules, slots, windows, limits and retries as they would be. Nothing outside is touched, and nothing is kept. The same seed gives the same days.</p>
    <form class="card form" onSubmit=${run} key=${app}>
      <${Field} name="app" label="App" type="select" value=${app} options=${Object.keys(APPS)} onChange=${(event) => setQuery({ app: event.target.value, count: null })} />
      <${Field} name="days" label="Days" type="number" min="1" max="14" required value=${given("days", 3)} />
      <${Field} name="count" label=${noun} type="number" min="1" max="10000" required value=${given("count", many)} />
      <${Field} name="fail" label="Calls that fail (%)" type="number" min="0" max="100" step="any" value=${given("fail", 2)} />
      <${Field} name="down" label="Hours without a worker" type="number" min="0" max="96" step="any" value=${given("down", 0)} />
      <${Field} name="seed" label="Seed" type="number" min="0" required value=${given("seed", 0)} />
      <button type="submit" class="main" disabled=${begun !== null}>${begun === null ? "Simulate" : "Simulating…"}</button>
    </form>
    <p class="note" role="status">${begun !== null ? `It has run for ${duration(Math.round(passed))}; it takes up to 25 s.` : ""}</p>
    ${answer?.error && html`<${Trouble} error=${answer.error} />`}
    ${answer?.found ? html`<${Result} of=${answer.found} />` : !answer?.error && html`<${Empty} title="Nothing was simulated yet."><p>Choose above, or in a terminal, with outages, bursts and crashes:</p><${Command}>${`duly simulate ${app} --days 7 --failure-rate 0.02`}</${Command}></${Empty}>`}`;
}
