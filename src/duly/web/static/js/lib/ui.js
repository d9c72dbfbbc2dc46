// What every module draws with: Preact, its hooks and signals, and htm in place of JSX.
import { h, render, Fragment, createContext } from "../../vendor/preact.js";
import htm from "../../vendor/htm.js";

export { h, render, Fragment, createContext };
export {
  useState,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useCallback,
  useId,
  useContext,
  useErrorBoundary,
} from "../../vendor/hooks.js";
export { signal, computed, effect, batch, useSignal, useComputed } from "../../vendor/signals.js";

/** @type {(strings: TemplateStringsArray, ...values: TemplateValue[]) => VNode} */
export const html = /** @type {any} */ (htm.bind(h));

/**
 * Join the class names that are set.
 * @param {...(string | false | null | undefined)} names
 */
export const classes = (...names) => names.filter(Boolean).join(" ");
