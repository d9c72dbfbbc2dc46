// What the page knows about this service: its version, its screens as far as the user may see them, what is turned on.
import { signal } from "./ui.js";

/** @typedef {Wire.Dashboard["screens"][number]} Screen */

/** Null until it is read. */
export const service = signal(/** @type {Wire.Dashboard | null} */ (null));

/** The screens of the navigation. */
export const screens = () => (service.value?.screens ?? []).filter((screen) => screen.group);

/** @param {Screen} screen */
function shapeOf({ path, app }) {
  const literal = path.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace("{id}", "(?<id>[0-9a-f]+)");
  return new RegExp(`^${literal}${app ? "(?:/(?<rest>.*))?" : ""}$`);
}

/**
 * The screen at this path, and the values in the path; null where there is none.
 * @param {string} at
 * @returns {{ screen: Screen, values: Record<string, unknown> } | null}
 */
export function screenAt(at) {
  for (const screen of service.value?.screens ?? []) {
    const match = shapeOf(screen).exec(at);
    if (!match) continue;
    const values = { ...match.groups };
    return { screen, values: screen.app ? { rest: values.rest ?? "", isOn: screen.isOn } : values };
  }
  return null;
}
