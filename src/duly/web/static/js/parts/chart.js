// Plots over time, with a table twin for those who read instead of look. uPlot is fetched when the first one is drawn.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { clock, theme } from "../lib/prefs.js";
import { ago, exact, count } from "../lib/time.js";

let library = null;
const load = () => {
  library ??= import("../../vendor/uplot.js").then((module) => module.default);
  return library;
};

/** A colour of the theme as a canvas knows it: a variable may say `light-dark(…)`, so an element has to wear it first. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const worn = getComputedStyle(probe).color;
  probe.remove();
  return worn;
}
const pale = (worn) => worn.replace("rgb(", "rgba(").replace(")", ", 0.4)");
/** Colours of series, by what they mean. */
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

const DAYS = 2 * 86_400; // seconds, from which on the axis says days too

/**
 * `times`: seconds since 1970. `series`: [{label, values, tone, bars, dashed, scale, unit}].
 * `axis`: how a time reads on the axis, when it is no moment (hours of a day).
 */
export function Chart({ label, times, series, height = 160, unit = "", axis = null }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [isTable, setTable] = useState(false);
  const isLong = times.length > 1 && times.at(-1) - times[0] > DAYS;
  const shape = JSON.stringify([
    isLong,
    series.map(({ label: name, tone, bars, dashed }) => [name, tone, bars, dashed]),
    height,
    unit,
    clock.value,
    theme.value,
    isTable,
  ]);
  const data = [times, ...series.map((each) => each.values)];
  useEffect(() => {
    if (isTable) return undefined;
    let isOver = false;
    let watcher = null;
    load().then((UPlot) => {
      if (isOver || !box.current) return;
      const grid = { stroke: colour("--line"), width: 1 };
      const font = "11px system-ui, sans-serif";
      const ink = colour("--ink-2");
      const reads =
        axis ||
        ((at) =>
          clock.value === "relative" ? ago(at * 1000) : exact(at * 1000).slice(isLong ? 5 : 11, 16));
      plot.current = new UPlot(
        {
          width: Math.max(box.current.clientWidth, 50),
          height,
          legend: { show: false },
          cursor: { points: { size: 6 }, drag: { setScale: false } },
          scales: {
            x: { time: false },
            y: {
              range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-9) * 1.08 || 1],
            },
          },
          axes: [
            {
              stroke: ink,
              font,
              grid: { show: false },
              ticks: grid,
              size: 26,
              space: isLong ? 110 : 70,
              values: (_, marks) => marks.map(reads),
              ...(axis
                ? {}
                : { incrs: [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800] }),
            },
            {
              stroke: ink,
              font,
              grid,
              ticks: { show: false },
              size: 48,
              space: 32,
              values: (_, marks) => marks.map((mark) => count(mark) + unit),
            },
          ],
          series: [
            {},
            ...series.map((each) => {
              const stroke = colour(TONES[each.tone] || TONES.other);
              return {
                label: each.label,
                stroke,
                width: each.dashed ? 1.5 : 2,
                dash: each.dashed ? [5, 4] : undefined,
                points: { show: false },
                spanGaps: true,
                ...(each.bars
                  ? { fill: pale(stroke), paths: UPlot.paths.bars({ size: [0.7, 60] }) }
                  : {}),
              };
            }),
          ],
        },
        data,
        box.current,
      );
      watcher = new ResizeObserver(() =>
        plot.current?.setSize({ width: Math.max(box.current?.clientWidth ?? 50, 50), height }),
      );
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
  const words = (value) =>
    value === null || value === undefined ? "–" : `${count(Math.round(value * 100) / 100)}${unit}`;
  return html`
    <figure class="chart">
      <figcaption>
        <strong>${label}</strong>${" "}
        <span class="keys">
          ${series.map((each) => html`
            <span class=${`key tone-${each.tone || "other"}`}>
              ${each.label} <b>${words(each.values.findLast?.((value) => value !== null) ?? null)}</b>
            </span>
          `)}
        </span>
        <button type="button" class="mini" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>
          ${isTable ? "Chart" : "Table"}
        </button>
      </figcaption>
      ${isTable ? html`
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
                  ${series.map((each) => html`<td class="number">${words(each.values[row])}</td>`)}
                </tr>
              `)}
            </tbody>
          </table>
        </div>
      ` : html`
        <div
          ref=${box}
          class="plot"
          role="img"
          aria-label=${`${label}: ${series.map((each) => `${each.label} ${words(each.values.findLast?.((value) => value !== null) ?? null)}`).join(", ")}`}
          style=${{ height: `${height}px` }}
        ></div>
      `}
    </figure>
  `;
}

/** A line without axes, beside a number. */
export function Spark({ values, label, tone = "running" }) {
  const most = Math.max(...values, 1);
  const step = values.length > 1 ? 100 / (values.length - 1) : 100;
  const points = values
    .map((value, at) => `${(at * step).toFixed(1)},${(22 - (value / most) * 20).toFixed(1)}`)
    .join(" ");
  return html`
    <svg
      class=${`spark tone-${tone}`}
      viewBox="0 0 100 24"
      preserveAspectRatio="none"
      role="img"
      aria-label=${label}
    >
      <polyline points=${points} />
    </svg>
  `;
}
