// One act on many rows: in one request where there is one for all of them, else in a request for each, a few at a time.
import { post } from "./api.js";
import { count, counted } from "./time.js";

const AT_ONCE = 4;
const MOST = 1_000; // rows of one request

/**
 * Change these rows, as far as their state allows it. Gives the ids that were changed.
 * @param {string} path
 * @param {Query} body
 * @param {(string | number)[]} ids
 */
export async function changeAll(path, body, ids) {
  /** @type {number[]} */
  const changed = [];
  for (let at = 0; at < ids.length; at += MOST) {
    const answer = await post(path, { ...body, ids: ids.slice(at, at + MOST).map(Number), skip: true });
    changed.push(...answer.ids);
  }
  return changed;
}

/**
 * A message about an act on many rows: how many were changed, of how many.
 * @param {number} changed
 * @param {number} all
 * @param {string} noun
 * @param {string} verb
 * @returns {Message}
 */
export const changedText = (changed, all, noun, verb) => {
  const rest = all > changed ? ` ${counted(all - changed, noun)} could not be, in their current state.` : "";
  return { text: `${counted(changed, noun)} ${verb}.${rest}`, tone: changed ? "ok" : "bad" };
};

/**
 * Do `one` for each. If none succeeds, the first error is thrown.
 * @template Each
 * @param {Iterable<Each>} all
 * @param {(each: Each) => Promise<unknown>} one
 */
export async function eachOf(all, one) {
  const rest = [...all];
  /** @type {any[]} */
  const problems = [];
  let done = 0;
  const work = async () => {
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
      try {
        await one(next);
        done += 1;
      } catch (error) {
        problems.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (!done && problems.length) throw problems[0];
  /**
   * @param {string} noun
   * @param {string} verb
   * @returns {string | Message}
   */
  const text = (noun, verb) => {
    const result = `${count(done)} ${noun}${done === 1 ? "" : "s"} ${verb}.`;
    if (!problems.length) return result;
    return { text: `${result} ${count(problems.length)} failed: ${problems[0].message}`, tone: "bad", seconds: 12 };
  };
  return { done, failed: problems.length, text };
}
