// JSON with exact numbers: a number that JavaScript cannot hold is kept as its text.

/** A number by its digits, where a double would lose some of them. */
export class Exact {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
  toString() {
    return this.text;
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0000exact:";

/** @param {string} text */
const isKept = (text) => {
  const number = Number(text);
  if (!Number.isFinite(number)) return false;
  if (String(number) === text) return true;
  // 1.0 and 1e3 are other ways to write the same number; a number of few digits is held exactly.
  return (
    text
      .replace(/[eE].*$/, "")
      .replace(/[-.]/g, "")
      .replace(/^0+/, "").length <= 15
  );
};

/**
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
  let isMarked = false;
  const safe = text.replace(TOKENS, (token) => {
    if (token[0] === '"' || isKept(token)) return token;
    isMarked = true;
    return JSON.stringify(MARK + token);
  });
  if (!isMarked) return JSON.parse(text);
  return JSON.parse(safe, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? new Exact(value.slice(MARK.length)) : value,
  );
}

/**
 * @param {unknown} value
 * @param {number} [indent]
 * @returns {string}
 */
export function stringify(value, indent) {
  /** @type {string[]} */
  const numbers = [];
  const text = JSON.stringify(
    value,
    /**
     * @this {any}
     * @param {string} key
     * @param {unknown} each
     */
    function mark(key, each) {
      const held = this[key];
      if (!(held instanceof Exact)) return each;
      numbers.push(held.text);
      return `${MARK}${numbers.length - 1}`;
    },
    indent,
  );
  if (!numbers.length) return text;
  return text.replace(/"\\u0000exact:(\d+)"/g, (_, place) => numbers[Number(place)]);
}
