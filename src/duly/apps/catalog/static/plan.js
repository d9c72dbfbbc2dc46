// The calls, minutes and share of the API's budget that a catalog of a given size needs, and what fails first.
import {
  html, useEffect, useState, post, query, setQuery, count, duration, classes, Title, Field, Chart,
  Facts, Section, Tile, Trouble, Link, TableSection,
} from "../../js/kit.js";

const FIELDS = [
  { name: "products", label: "Products", value: 5000, min: 0, max: 10_000_000 },
  { name: "batch", label: "Products a call", value: 10, min: 1 },
  { name: "rate", label: "Calls a minute", value: 2, min: 0.01, step: "any" },
  { name: "slots", label: "Slots a day", value: 24, min: 1, max: 1440 },
  { name: "windows", label: "Retry windows a day", value: 6, min: 0, max: 1440 },
  { name: "cap", label: "Products a window", value: 50, min: 0 },
  { name: "fail", label: "Calls that fail (%)", value: 5, min: 0, max: 99, step: "any" },
];

/** @returns {Record<string, number>} */
const given = () =>
  Object.fromEntries(FIELDS.map(({ name, value }) => [name, Number(query.value.get(name) ?? value)]));
/** The body of a request. */
const asked = () => {
  const { fail, ...input } = given();
  return { ...input, failureRate: fail / 100 };
};
/** @param {number} number */
const percent = (number) => `${number.toFixed(1)} %`;
/** @param {number} number */
const minutes = (number) => duration(number * 60);

/**
 * Calls from slot to slot over a day: the scheduled ones are even, and windows come on top where they open.
 * @param {any} input
 * @param {any} plan
 */
function hours(input, plan) {
  const times = Array.from({ length: input.slots }, (_, slot) => (slot * 24) / input.slots);
  const fuller = input.products % input.slots;
  /** @param {any} products */
  const calls = (products) => Math.ceil(products / input.batch);
  const scheduled = times.map((_, slot) => calls(slot < fuller ? plan.slotMost : plan.slotLeast));
  const opened = Array.from({ length: input.slots }, () => 0);
  for (let window = 0; window < input.windows; window += 1) {
    opened[Math.floor(((window + 0.5) * input.slots) / input.windows)] += plan.windowCalls;
  }
  return { times, scheduled, all: scheduled.map((number, slot) => number + opened[slot]) };
}

/** @param {any} hour */
const clockTime = (hour) =>
  `${String(Math.floor(hour)).padStart(2, "0")}:${String(Math.floor((hour % 1) * 60)).padStart(2, "0")}`;

/** @param {{ input: any, plan: any }} props */
function Curves({ input, plan }) {
  const { times, scheduled, all } = hours(input, plan);
  return html`
    <${Chart}
      label="Calls from slot to slot"
      times=${times}
      axis=${clockTime}
      height=${200}
      series=${[
        { label: "allowed", values: times.map(() => plan.hourLimit), tone: "cap", dashed: true },
        { label: "with full retry windows", values: all, tone: "retried", bars: true },
        { label: "scheduled", values: scheduled, tone: "done", bars: true },
      ]}
    />
  `;
}

/**
 * How much of the limit the worst hour and the day use, as the catalog grows to twice its size or to where it breaks.
 * @param {{ input: any, plan: any }} props
 */
function Growth({ input, plan }) {
  const [curve, setCurve] = useState(/** @type {any} */ (null));
  const far = Math.min(
    Math.max(input.products * 2, (plan.breaksFirst?.products ?? 0) * 1.2, 100),
    10_000_000,
  );
  useEffect(() => {
    let isOver = false;
    const steps = Array.from({ length: 9 }, (_, index) => Math.round((far * index) / 8));
    Promise.all(steps.map((products) => post("/api/plan", { ...input, products }))).then(
      (plans) => {
        if (!isOver) {
          setCurve({
            steps,
            hour: plans.map((each) => each.hourUsedPercent),
            day: plans.map((each) => each.dayUsedPercent),
          });
        }
      },
      () => {},
    );
    return () => {
      isOver = true;
    };
  }, [JSON.stringify(input)]);
  if (!curve) return html`<div class="chart" style=${{ height: "260px" }}></div>`;
  return html`
    <${Chart}
      label="Share of the allowed calls as the catalog grows"
      unit=" %"
      times=${curve.steps}
      axis=${(products) => count(Math.round(products))}
      height=${200}
      series=${[
        { label: "limit", values: curve.steps.map(() => 100), tone: "cap", dashed: true },
        { label: "the fullest hour", values: curve.hour, tone: "retried" },
        { label: "the day", values: curve.day, tone: "done" },
      ]}
    />
  `;
}

/** @param {{ input: any, plan: any }} props */
function Words({ input, plan }) {
  const first = plan.breaksFirst;
  const failing = percent(input.failureRate * 100);
  const now = plan.breaks
    .filter((/** @type {any} */ each) => each.products <= input.products)
    .map((/** @type {any} */ each) => each.what);
  return html`
    <div class=${classes("banner", !plan.fits && "is-bad")} role="status">
      <strong>${plan.fits ? "This fits." : "This does not fit."}</strong>
      <span>
        ${now.length ? `With ${count(input.products)} products, ${now.join("; ")}. ` : ""}
        ${first
          ? `First problem as the catalog grows: from ${count(first.products)} products on, ${first.what}.`
          : "There is no problem at any size of the catalog."}
      </span>
    </div>
    <div class="tiles">
      <${Tile}
        label="In each slot"
        value=${
          plan.slotLeast === plan.slotMost
            ? count(plan.slotMost)
            : `${count(plan.slotLeast)}–${count(plan.slotMost)}`
        }
        note=${`${count(plan.slotCalls)} calls, ${minutes(plan.slotMinutes)}`}
      />
      <${Tile}
        label="In a full retry window"
        value=${count(input.cap)}
        note=${`${count(plan.windowCalls)} calls, ${minutes(plan.windowMinutes)}`}
      />
      <${Tile}
        label="The fullest hour"
        value=${percent(plan.hourUsedPercent)}
        tone=${plan.hourUsedPercent > 100 ? "bad" : plan.hourUsedPercent > 80 ? "warn" : "ok"}
        note=${`${count(plan.worstHourCalls)} of ${count(plan.hourLimit)} calls`}
      />
      <${Tile}
        label="The day"
        value=${percent(plan.dayUsedPercent)}
        tone=${plan.dayUsedPercent > 100 ? "bad" : plan.dayUsedPercent > 80 ? "warn" : "ok"}
        note=${`${count(plan.dayCalls)} of ${count(plan.dayLimit)} calls`}
      />
      <${Tile}
        label="Retries a day"
        value=${count(Math.round(plan.retriesWanted))}
        note=${`needed if ${failing} of calls fail; windows take ${count(plan.retriesPossible)}`}
        tone=${plan.retriesWanted > plan.retriesPossible ? "bad" : "ok"}
      />
    </div>
  `;
}

export default function Plan() {
  const shown = given();
  const input = asked();
  const [answer, setAnswer] = useState(/** @type {any} */ ({}));
  const name = JSON.stringify(input);
  const [times, setTimes] = useState(0);
  useEffect(() => {
    let isOver = false;
    post("/api/plan", input).then(
      (plan) => {
        if (!isOver) setAnswer({ plan, input });
      },
      (error) => {
        if (!isOver) setAnswer((/** @type {any} */ before) => ({ ...before, error }));
      },
    );
    return () => {
      isOver = true;
    };
  }, [name, times]);
  /** @param {FormEvent} event */
  const send = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setQuery(Object.fromEntries(FIELDS.map((field) => [field.name, form.get(field.name)])), {});
    setTimes(times + 1);
  };
  const { plan, error } = answer;
  return html`
    <${Title}
      actions=${
        html`<${Link} class="button" to="/catalog">
          Catalog
        </${Link}>`
      }
    >
      Plan
    </${Title}>
    <form class="form card" onSubmit=${send} key=${name} aria-label="Plan">
      ${FIELDS.map((field) => html`
        <${Field} key=${field.name} type="number" required ...${field} value=${shown[field.name]} />
      `)}
      <button type="submit" class="main">Calculate</button>
    </form>
    ${error && html`<${Trouble} error=${error} />`}
    ${plan && html`
      <div class="back"><${Words} input=${answer.input} plan=${plan} /></div>
      <${Curves} input=${answer.input} plan=${plan} />
      <${Growth} input=${answer.input} plan=${plan} />
      <${TableSection}
        title="Problems as the catalog grows"
        label="Problems"
        rows=${plan.breaks}
        keyOf=${(each) => each.what}
        empty="There is no problem at any size."
        columns=${[
          { title: "From products", isNumber: true, cell: (each) => count(each.products) },
          { title: "What", isWide: true, cell: (each) => each.what },
        ]}
      />
      <${TableSection}
        title="Other sizes"
        label="Other sizes"
        rows=${plan.growth}
        keyOf=${(each) => each.products}
        columns=${[
          { title: "Products", isNumber: true, cell: (each) => count(each.products) },
          { title: "Fits", cell: (each) => (each.fits ? "yes" : "no") },
          { title: "Recommended changes", isWide: true, cell: (each) => each.changes.join("; ") || "none" },
          { title: "In each slot", isNumber: true, cell: (each) => count(each.perHour) },
          { title: "Calls used", isNumber: true, cell: (each) => percent(each.dayUsedPercent) },
        ]}
      />
      <${Section} title="Figures">
        <div class="card">
          <${Facts}
            of=${[
              ["Scheduled calls a day", count(plan.scheduledCalls)],
              ["Retry calls a day", count(plan.retryCalls)],
              ["Calls allowed a day", count(plan.dayLimit)],
              ["Products, if each call is used", count(plan.mostProducts)],
              ["Products, with room for retries", count(plan.usableProducts)],
              ["Fullest hour", minutes(plan.worstHourMinutes)],
              ["A slot", minutes(plan.slotMinutes)],
              ["A retry window", minutes(plan.windowMinutes)],
            ]}
          />
        </div>
      </${Section}>
    `}
  `;
}
