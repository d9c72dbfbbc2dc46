// The same request for each of many things that have no request for all of them: a few at a time, and what came of it in words.
import { count } from "./time.js";

const AT_ONCE = 4;

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
