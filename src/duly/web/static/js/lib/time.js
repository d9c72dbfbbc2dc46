// Times in words, as the person wants them: of this place, of UTC, or from now.
import { clock } from "./prefs.js";

const pad = (number, width = 2) => String(number).padStart(width, "0");

const parts = (date, isUtc) =>
  isUtc
    ? [
        date.getUTCFullYear(),
        date.getUTCMonth() + 1,
        date.getUTCDate(),
        date.getUTCHours(),
        date.getUTCMinutes(),
        date.getUTCSeconds(),
      ]
    : [
        date.getFullYear(),
        date.getMonth() + 1,
        date.getDate(),
        date.getHours(),
        date.getMinutes(),
        date.getSeconds(),
      ];

export const zoneName = (isUtc = clock.value === "utc") =>
  isUtc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

/** 2026-11-16 14:02:11, of this place or of UTC. */
export function exact(at, isUtc = clock.value === "utc") {
  const date = at instanceof Date ? at : new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  const [year, month, day, hour, minute, second] = parts(date, isUtc);
  return `${year}-${pad(month)}-${pad(day)} ${pad(hour)}:${pad(minute)}:${pad(second)}`;
}

/** Without the day when it is today's, which keeps columns narrow. */
export function short(at, isUtc = clock.value === "utc") {
  const whole = exact(at, isUtc);
  return whole.slice(0, 10) === exact(new Date(), isUtc).slice(0, 10) ? whole.slice(11) : whole;
}

const STEPS = [
  [86400 * 365, "y"],
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** 95 → "1 min 35 s"; two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const sign = seconds < 0 ? "−" : "";
  let rest = Math.abs(seconds);
  if (rest < 1) return `${sign}${rest < 0.001 ? "0" : rest < 0.1 ? rest.toFixed(3) : rest.toFixed(1)} s`;
  if (rest < 10) return `${sign}${rest.toFixed(1)} s`;
  rest = Math.round(rest);
  const said = [];
  for (const [size, name] of STEPS) {
    if (rest >= size && said.length < 2) {
      said.push(`${Math.floor(rest / size)} ${name}`);
      rest %= size;
    } else if (said.length) break;
  }
  return sign + said.join(" ");
}

export function ago(at, reference = Date.now()) {
  const seconds = (reference - new Date(at).getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${duration(Math.round(seconds))} ago` : `in ${duration(Math.round(-seconds))}`;
}

/** What <input type="datetime-local"> holds, as a moment with its offset; the person's clock decides the zone. */
export function fromInput(text) {
  if (!text) return null;
  const date = new Date(clock.value === "utc" ? `${text}Z` : text);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

export function toInput(at) {
  if (!at) return "";
  return exact(at).replace(" ", "T");
}

/** A number with its thousands apart, and at most three digits after the point. By hand: loading the languages of the browser for it takes long. */
export function count(number) {
  if (number === null || number === undefined) return "";
  const [whole, part] = String(
    typeof number === "number" ? Math.round(number * 1000) / 1000 : number,
  ).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}
