// One act on many rows: in one request where there is one for all of them, else in a request for each, a few at a time.
import { post } from "./api.js";
import { count } from "./time.js";

const AT_ONCE = 4;
const MOST = 1_000; // rows of one request

/** Have those of these rows changed that can be, in requests for all of them; gives the ids that were changed. */
export async function changeAll(path, body, ids) {
  const changed = [];
  for (let at = 0; at < ids.length; at += MOST) {
    const answer = await post(path, { ...body, ids: ids.slice(at, at + MOST).map(Number), skip: true });
    changed.push(...answer.ids);
  }
  return changed;
}

/** What came of an act on many rows, in words. */
export const changedText = (changed, all, noun, verb) => {
  const rest = all > changed ? ` ${count(all - changed)} could not be, in the state that they are in.` : "";
  return { text: `${count(changed)} ${noun}${changed === 1 ? "" : "s"} ${verb}.${rest}`, tone: changed ? "ok" : "bad" };
};

/** Do `one` for each; gives {done, failed, text(noun, verb)}. It throws when nothing succeeded, with the first problem. */
export async function eachOf(all, one) {
  const rest = [...all];
  const problems = [];
  let done = 0;
  const go = async () => {
    while (rest.length) {
      try {
        await one(rest.shift());
        done += 1;
      } catch (error) {
        problems.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, go));
  if (!done && problems.length) throw problems[0];
  const text = (noun, verb) => {
    const told = `${count(done)} ${noun}${done === 1 ? "" : "s"} ${verb}.`;
    return problems.length
      ? {
          text: `${told} ${count(problems.length)} not: ${problems[0].message}`,
          tone: "bad",
          seconds: 12,
        }
      : told;
  };
  return { done, failed: problems.length, text };
}
