// Short messages, acts with their messages, and dialogs: a form, or a confirmation that has to be typed.
import { html, signal, useLayoutEffect, useRef, useState, classes } from "../lib/ui.js";
import { forget } from "../lib/live.js";
import { Field, FormError } from "./fields.js";

/** @typedef {Message & { id: number }} Toast */

const SHOWN = 4; // messages at a time

export const toasts = signal(/** @type {Toast[]} */ ([]));
let lastId = 0;

/** @param {number} id */
const close = (id) => {
  toasts.value = toasts.value.filter((each) => each.id !== id);
};

/**
 * Show a short message; `undo` gives it a button.
 * @param {string} text
 * @param {Omit<Message, "text">} [options]
 */
export function say(text, { tone = "ok", undo = null, seconds = 6 } = {}) {
  lastId += 1;
  const id = lastId;
  toasts.value = [...toasts.value.slice(1 - SHOWN), { id, text, tone, undo }];
  setTimeout(() => close(id), seconds * 1000);
}

/**
 * Show a message about an error, for longer.
 * @param {Error} error
 */
export const sayError = (error) => say(error.message, { tone: "bad", seconds: 12 });

/** @param {{ toast: Toast }} props */
function ToastLine({ toast }) {
  const undo = () => {
    close(toast.id);
    toast.undo?.();
  };
  return html`
    <div class=${classes("toast", `tone-${toast.tone}`)}>
      <span>${toast.text}</span>
      ${toast.undo && html`<button type="button" onClick=${undo}>Undo</button>`}
      <button type="button" class="mini" aria-label="Close message" onClick=${() => close(toast.id)}>✕</button>
    </div>
  `;
}

export const Toasts = () => html`
  <div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map((toast) => html`<${ToastLine} key=${toast.id} toast=${toast} />`)}
  </div>
`;

// -- acts

/** How many acts are under way. */
const acting = signal(0);

/**
 * Do something, show a message about the result, and read the page again. Gives whether it succeeded.
 * @template Result
 * @param {() => Promise<Result> | Result} doing
 * @param {string | Message | null | ((result: Result) => string | Message | null)} [done]
 * @param {{ after?: (result: Result) => unknown }} [options]
 */
export async function act(doing, done, { after } = {}) {
  acting.value += 1;
  try {
    const result = await doing();
    forget();
    const message = typeof done === "function" ? done(result) : done;
    if (typeof message === "string") say(message);
    else if (message) say(message.text, message);
    await after?.(result);
    return true;
  } catch (error) {
    sayError(error);
    return false;
  } finally {
    acting.value -= 1;
  }
}

/**
 * The buttons of a screen or section. While an act is under way they do nothing, because the page still shows the state
 * before it. They keep the focus, which disabled buttons would lose.
 * @param {{ children: Children }} props
 */
export function Actions({ children }) {
  const isHeld = acting.value > 0;
  /** @param {MouseEvent} event */
  const hold = (event) => {
    if (!isHeld) return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <div class="actions" role="group" aria-disabled=${isHeld ? "true" : null} onClickCapture=${hold}>${children}</div>
  `;
}

// -- dialogs

/**
 * A dialog that is open while it is drawn. It opens before the next key or click, not after the next painting: what a
 * person types at once goes into its field.
 * @param {{ title: string, onClose: () => void, children: Children, wide?: boolean }} props
 */
export function Dialog({ title, onClose, children, wide = false }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    const before = document.activeElement;
    if (!box.current?.open) box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  /** @param {Event} event */
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  /** @param {MouseEvent} event */
  const closeOutside = (event) => {
    if (event.target === box.current) onClose();
  };
  return html`
    <dialog ref=${box} class=${wide && "wide"} aria-label=${title} onCancel=${cancel} onClick=${closeOutside}>
      <div class="sheet">
        <header>
          <h2>${title}</h2>
          <button type="button" class="mini" aria-label="Close" onClick=${onClose}>✕</button>
        </header>
        ${children}
      </div>
    </dialog>
  `;
}

/**
 * A question to the person, as a form.
 * @typedef {object} Question
 * @property {string} title
 * @property {Children} [text]
 * @property {FieldProps[]} [fields]
 * @property {string} [typed] a word that must be typed first, for what cannot be undone
 * @property {string} [yes] the text of the button that sends it
 * @property {string} [no]
 * @property {boolean} [isGrave] whether that button warns
 * @property {boolean} [wide]
 * @property {(values: any) => any} [check] gets the values; its error is shown in the form, its result is the answer
 */

const asked = signal(/** @type {(Question & { resolve: (answer: any) => void }) | null} */ (null));

/**
 * Ask for something. Gives the values of the form, by the names of its fields, or null.
 * @param {Question} question
 * @returns {Promise<any>}
 */
export const ask = (question) =>
  new Promise((resolve) => {
    asked.value = { ...question, resolve };
  });

/**
 * Ask for the reason of something that cannot be undone. Gives null where the person does not want it.
 * @param {string} title
 * @param {string} text
 * @param {string} [word] what has to be typed, and the text of the button
 * @returns {Promise<string | null>}
 */
export async function askReason(title, text, word = "discard") {
  const answer = await ask({
    title,
    text,
    typed: word,
    yes: word[0].toUpperCase() + word.slice(1),
    isGrave: true,
    fields: [REASON],
  });
  return answer && answer.reason;
}

/**
 * Ask whether to do what cannot be undone; the person has to type this word.
 * @param {string} title
 * @param {string} text
 * @param {string} word
 * @param {string} yes the text of the button
 */
export const askTyped = (title, text, word, yes) => ask({ title, text, typed: word, yes, isGrave: true });

/** @type {FieldProps} */
export const REASON = { name: "reason", label: "Reason", hint: "For the audit log." };

export function Asked() {
  const question = asked.value;
  if (!question) return null;
  /** @param {unknown} answer */
  const end = (answer) => {
    asked.value = null;
    question.resolve(answer);
  };
  return html`<${QuestionForm} key=${question.title} question=${question} end=${end} />`;
}

/**
 * The values of a form, by the names of its fields.
 * @param {HTMLFormElement} element
 * @param {FieldProps[]} fields
 */
function valuesIn(element, fields) {
  const form = new FormData(element);
  return Object.fromEntries(
    fields.map(({ name, type }) => [name, type === "checkbox" ? form.has(name) : (form.get(name) ?? "")]),
  );
}

/** @param {{ question: Question, end: (answer: unknown) => void }} props */
function QuestionForm({ question, end }) {
  const { title, text, fields = [], typed, yes = "OK", no = "Not now", isGrave = false, wide = false } = question;
  const [word, setWord] = useState("");
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const values = valuesIn(event.target, fields);
    setBusy(true);
    try {
      const answer = await question.check?.(values);
      end(answer === undefined ? values : answer);
    } catch (wrong) {
      setError(wrong);
      setBusy(false);
    }
  };
  const isHeld = isBusy || Boolean(typed && word !== typed);
  return html`
    <${Dialog} title=${title} wide=${wide} onClose=${() => end(null)}>
      <form onSubmit=${send}>
        ${text && html`<p>${text}</p>`}
        ${fields.map((field) => html`<${Field} key=${field.name} ...${field} />`)}
        ${typed && html`<${TypedWord} word=${typed} value=${word} onInput=${setWord} />`}
        <${FormError} error=${error} />
        <footer>
          <button type="button" onClick=${() => end(null)}>${no}</button>
          <button type="submit" class=${isGrave ? "grave" : "main"} disabled=${isHeld}>${yes}</button>
        </footer>
      </form>
    </${Dialog}>
  `;
}

/** @param {{ word: string, value: string, onInput: (text: string) => void }} props */
const TypedWord = ({ word, value, onInput }) => html`
  <label class="field">
    <span>Type <code>${word}</code> to confirm</span>
    <input value=${value} autocomplete="off" spellcheck="false" onInput=${(event) => onInput(event.target.value)} />
  </label>
`;
