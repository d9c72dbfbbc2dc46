// Times and numbers as text. The person chooses between local time, UTC, and relative to now.
import { clock } from "./prefs.js";

/** @typedef {string | number | Date} Moment */

export const zoneName = (isUtc = clock.value === "utc") =>
  isUtc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

/**
 * 2026-11-16 14:02:11, in local time or UTC.
 * @param {Moment} at
 */
export function exact(at, isUtc = clock.value === "utc") {
  const date = at instanceof Date ? at : new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  const shown = isUtc ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shown.toISOString().slice(0, 19).replace("T", " ");
}

/**
 * The same, without the date if it is today: that keeps columns narrow.
 * @param {Moment} at
 */
export function short(at, isUtc = clock.value === "utc") {
  const whole = exact(at, isUtc);
  return whole.slice(0, 10) === exact(new Date(), isUtc).slice(0, 10) ? whole.slice(11) : whole;
}

/** @type {[number, string][]} */
const STEPS = [
  [86400 * 365, "y"],
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/**
 * 95 → "1 min 35 s"; two units at most.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const sign = seconds < 0 ? "−" : "";
  let rest = Math.abs(seconds);
  if (rest < 1) return `${sign}${rest < 0.001 ? "0" : rest < 0.1 ? rest.toFixed(3) : rest.toFixed(1)} s`;
  if (rest < 10) return `${sign}${rest.toFixed(1)} s`;
  rest = Math.round(rest);
  /** @type {string[]} */
  const units = [];
  for (const [size, name] of STEPS) {
    if (rest >= size && units.length < 2) {
      units.push(`${Math.floor(rest / size)} ${name}`);
      rest %= size;
    } else if (units.length) break;
  }
  return sign + units.join(" ");
}

/**
 * Seconds from one moment to another.
 * @param {Moment} from
 * @param {Moment} until
 */
export const secondsBetween = (from, until) => (new Date(until).getTime() - new Date(from).getTime()) / 1000;

/** @param {Moment} at */
export function ago(at, reference = Date.now()) {
  const seconds = secondsBetween(at, reference);
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${duration(Math.round(seconds))} ago` : `in ${duration(Math.round(-seconds))}`;
}

/**
 * The value of an <input type="datetime-local"> as a time with its offset, in the zone that the person chose.
 * @param {FormDataEntryValue | null | undefined} text
 */
export function fromInput(text) {
  if (!text) return null;
  const date = new Date(clock.value === "utc" ? `${text}Z` : String(text));
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

/** @param {Moment | null | undefined} at */
export function toInput(at) {
  if (!at) return "";
  return exact(at).replace(" ", "T");
}

/**
 * A number with commas between thousands, and at most three digits after the point. Intl.NumberFormat can do this too,
 * but it is slow to load.
 * @param {number | string | { toString(): string } | null | undefined} number
 */
export function count(number) {
  if (number === null || number === undefined) return "";
  const rounded = typeof number === "number" ? Math.round(number * 1000) / 1000 : number;
  const [whole, part] = String(rounded).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/**
 * "1 item", "1,200 items".
 * @param {number} number
 * @param {string} noun
 * @param {string} [many] where the plural is not formed with an s
 */
export const counted = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`;
