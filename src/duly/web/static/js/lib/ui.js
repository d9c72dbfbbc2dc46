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
export const html = htm.bind(h);

/** Join the names of classes that are wanted. */
export const classes = (...names) => names.filter(Boolean).join(" ");
