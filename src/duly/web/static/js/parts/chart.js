// Plots over time, each also as a table. uPlot is loaded when the first one is drawn.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { clock, theme } from "../lib/prefs.js";
import { ago, exact, count } from "../lib/time.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {string} [tone] what it means, which decides its colour
 * @property {boolean} [bars]
 * @property {boolean} [dashed]
 */

/** @typedef {(at: number) => string} AxisText how a time reads on the axis, if it is an hour of a day and no date */

/** @type {Promise<any> | null} */
let library = null;
const load = () => {
  library ??= import("../../vendor/uplot.js").then((module) => module.default);
  return library;
};

/**
 * A colour of the theme for a canvas: a variable may be `light-dark(…)`, which only an element resolves.
 * @param {string} name
 */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

/** @param {string} rgb */
const pale = (rgb) => rgb.replace("rgb(", "rgba(").replace(")", ", 0.4)");

/**
 * Colours of series, by what they mean.
 * @type {Record<string, string>}
 */
export const TONES = {
  done: "--done",
  failed: "--failed",
  retried: "--retrying",
  waiting: "--waiting",
  running: "--running",
  plan: "--cancelled",
  cap: "--failed",
  other: "--paused",
};

const DAYS = 2 * 86_400; // seconds from which on the axis shows days too
const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800]; // between marks, in seconds
const LEAST = 50; // pixels

/** @param {HTMLElement | null} box */
const widthOf = (box) => Math.max(box?.clientWidth ?? LEAST, LEAST);

/**
 * @param {Series} series
 * @param {any} UPlot
 */
function lineOf({ label, tone, bars, dashed }, UPlot) {
  const stroke = colour(TONES[tone ?? "other"] || TONES.other);
  return {
    label,
    stroke,
    width: dashed ? 1.5 : 2,
    dash: dashed ? [5, 4] : undefined,
    points: { show: false },
    spanGaps: true,
    ...(bars ? { fill: pale(stroke), paths: UPlot.paths.bars({ size: [0.7, 60] }) } : {}),
  };
}

/**
 * The options of uPlot.
 * @param {any} UPlot
 * @param {{
 *   series: Series[], width: number, height: number, unit: string, axis: AxisText | null, isLong: boolean,
 * }} chart
 */
function optionsOf(UPlot, { series, width, height, unit, axis, isLong }) {
  const grid = { stroke: colour("--line"), width: 1 };
  const text = { stroke: colour("--ink-2"), font: "11px system-ui, sans-serif" };
  /** @type {AxisText} */
  const momentText = (at) =>
    clock.value === "relative" ? ago(at * 1000) : exact(at * 1000).slice(isLong ? 5 : 11, 16);
  return {
    width,
    height,
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { setScale: false } },
    scales: {
      x: { time: false },
      y: {
        /**
         * @param {unknown} _
         * @param {number | null} low
         * @param {number | null} high
         */
        range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-9) * 1.08 || 1],
      },
    },
    axes: [
      {
        ...text,
        grid: { show: false },
        ticks: grid,
        size: 26,
        space: isLong ? 110 : 70,
        values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map(axis ?? momentText),
        ...(axis ? {} : { incrs: STEPS }),
      },
      {
        ...text,
        grid,
        ticks: { show: false },
        size: 48,
        space: 32,
        values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map((mark) => count(mark) + unit),
      },
    ],
    series: [{}, ...series.map((each) => lineOf(each, UPlot))],
  };
}

/**
 * The box that uPlot draws in.
 * @param {{
 *   label: string, times: number[], series: Series[], height: number, unit: string, axis: AxisText | null,
 * }} props
 */
function Plot({ label, times, series, height, unit, axis }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const isLong = times.length > 1 && times[times.length - 1] - times[0] > DAYS;
  const lines = series.map(({ label: name, tone, bars, dashed }) => [name, tone, bars, dashed]);
  const shape = JSON.stringify([isLong, lines, height, unit, clock.value, theme.value]);
  const data = [times, ...series.map((each) => each.values)];
  useEffect(() => {
    let isOver = false;
    /** @type {ResizeObserver | null} */
    let watcher = null;
    load().then((UPlot) => {
      if (isOver || !box.current) return;
      const width = widthOf(box.current);
      const options = optionsOf(UPlot, { series, width, height, unit, axis, isLong });
      plot.current = new UPlot(options, data, box.current);
      watcher = new ResizeObserver(() => plot.current?.setSize({ width: widthOf(box.current), height }));
      watcher.observe(box.current);
    });
    return () => {
      isOver = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(data);
  });
  return html`<div ref=${box} class="plot" role="img" aria-label=${label} style=${{ height: `${height}px` }}></div>`;
}

/**
 * The same numbers as a table.
 * @param {{
 *   label: string, times: number[], series: Series[], height: number, axis: AxisText | null,
 *   textOf: (value: number | null | undefined) => string,
 * }} props
 */
const Numbers = ({ label, times, series, height, axis, textOf }) => html`
  <div
    class="scroll"
    tabindex="0"
    role="region"
    aria-label=${`${label}, as a table`}
    style=${{ height: `${height}px` }}
  >
    <table>
      <thead>
        <tr>
          <th scope="col">Time</th>
          ${series.map((each) => html`<th scope="col" class="number">${each.label}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${times.map((at, row) => html`
          <tr>
            <td>${axis ? axis(at) : exact(at * 1000)}</td>
            ${series.map((each) => html`<td class="number">${textOf(each.values[row])}</td>`)}
          </tr>
        `)}
      </tbody>
    </table>
  </div>
`;

/** @param {Series} series */
const lastOf = ({ values }) => values.findLast((value) => value !== null) ?? null;

/**
 * Series over time; `times` are seconds since 1970.
 * @param {{
 *   label: string, times: number[], series: Series[], height?: number, unit?: string, axis?: AxisText | null,
 * }} props
 */
export function Chart({ label, times, series, height = 160, unit = "", axis = null }) {
  const [isTable, setTable] = useState(false);
  /** @param {number | null | undefined} value */
  const textOf = (value) =>
    value === null || value === undefined ? "–" : `${count(Math.round(value * 100) / 100)}${unit}`;
  const summary = series.map((each) => `${each.label} ${textOf(lastOf(each))}`).join(", ");
  return html`
    <figure class="chart">
      <figcaption>
        <strong>${label}</strong>${" "}
        <span class="keys">
          ${series.map((each) => html`
            <span class=${`key tone-${each.tone || "other"}`}>${each.label} <b>${textOf(lastOf(each))}</b></span>
          `)}
        </span>
        <button type="button" class="mini" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>
          ${isTable ? "Chart" : "Table"}
        </button>
      </figcaption>
      ${isTable ? html`
        <${Numbers}
          label=${label}
          times=${times}
          series=${series}
          height=${height}
          axis=${axis}
          textOf=${textOf}
        />
      ` : html`
        <${Plot}
          label=${`${label}: ${summary}`}
          times=${times}
          series=${series}
          height=${height}
          unit=${unit}
          axis=${axis}
        />
      `}
    </figure>
  `;
}

/**
 * A line without axes, beside a number.
 * @param {{ values: number[], label: string, tone?: string }} props
 */
export function Spark({ values, label, tone = "running" }) {
  const most = Math.max(...values, 1);
  const step = values.length > 1 ? 100 / (values.length - 1) : 100;
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(22 - (value / most) * 20).toFixed(1)}`);
  return html`
    <svg
      class=${`spark tone-${tone}`}
      viewBox="0 0 100 24"
      preserveAspectRatio="none"
      role="img"
      aria-label=${label}
    >
      <polyline points=${points.join(" ")} />
    </svg>
  `;
}
