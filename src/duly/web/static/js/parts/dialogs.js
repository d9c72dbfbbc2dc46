// Questions to the person: a form in a dialog, a confirmation that has to be typed, and short messages.
import { html, signal, useEffect, useRef, useState, classes } from "../lib/ui.js";
import { forget } from "../lib/live.js";

export const toasts = signal([]);
let number = 0;

/** A short message; `undo` gives it a button. */
export function say(text, { tone = "ok", undo = null, seconds = 6 } = {}) {
  const id = (number += 1);
  toasts.value = [...toasts.value.slice(-3), { id, text, tone, undo }];
  setTimeout(() => {
    toasts.value = toasts.value.filter((each) => each.id !== id);
  }, seconds * 1000);
}

export function Toasts() {
  const close = (id) => {
    toasts.value = toasts.value.filter((each) => each.id !== id);
  };
  return html`
    <div class="toasts" role="status" aria-live="polite">
      ${toasts.value.map((each) => html`
        <div key=${each.id} class=${classes("toast", `tone-${each.tone}`)}>
          <span>${each.text}</span>
          ${each.undo && html`
            <button
              type="button"
              onClick=${() => {
                close(each.id);
                each.undo();
              }}
            >
              Undo
            </button>
          `}
          <button type="button" class="mini" aria-label="Close message" onClick=${() => close(each.id)}>✕</button>
        </div>
      `)}
    </div>
  `;
}

/** How many acts are under way. */
const acting = signal(0);

/** Do something, show a message about the result, and read the page again. Gives whether it succeeded. */
export async function act(doing, done, { after } = {}) {
  acting.value += 1;
  try {
    const answer = await doing();
    forget();
    if (done) {
      const message = typeof done === "function" ? done(answer) : done;
      if (typeof message === "string") say(message);
      else if (message) say(message.text, message);
    }
    await after?.(answer);
    return true;
  } catch (error) {
    say(error.message, { tone: "bad", seconds: 12 });
    return false;
  } finally {
    acting.value -= 1;
  }
}

/**
 * The buttons of a screen or section. While an act is under way they do nothing, because the page still shows the state
 * before it. They keep the focus, which disabled buttons would lose.
 */
export function Actions({ children }) {
  const isHeld = acting.value > 0;
  const hold = (event) => {
    if (!isHeld) return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <div class="actions" role="group" aria-disabled=${isHeld ? "true" : null} onClickCapture=${hold}>${children}</div>
  `;
}

/** A dialog that is open while it is drawn. */
export function Dialog({ title, onClose, children, wide = false }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    if (!box.current.open) box.current.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return html`
    <dialog
      ref=${box}
      class=${wide && "wide"}
      aria-label=${title}
      onCancel=${(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick=${(event) => {
        if (event.target === box.current) onClose();
      }}
    >
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

const asked = signal(null);

/**
 * Ask for something and give the values of the form, or null. `fields`: [{name, label, type, value, hint, required, options}].
 * `typed`: a word that must be typed first, for what cannot be undone.
 */
export const ask = (question) =>
  new Promise((resolve) => {
    asked.value = { fields: [], ...question, resolve };
  });

export function Asked() {
  const question = asked.value;
  if (!question) return null;
  const end = (answer) => {
    asked.value = null;
    question.resolve(answer);
  };
  return html`<${Question} key=${question.title} question=${question} end=${end} />`;
}

function Question({ question, end }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const values = {};
    for (const field of question.fields) {
      values[field.name] =
        field.type === "checkbox" ? form.has(field.name) : (form.get(field.name) ?? "");
    }
    if (!question.check) return end(values);
    setBusy(true);
    try {
      const answer = await question.check(values);
      end(answer === undefined ? values : answer);
    } catch (wrong) {
      setError(wrong);
      setBusy(false);
    }
    return undefined;
  };
  const isHeld = (question.typed && typed !== question.typed) || isBusy;
  return html`
    <${Dialog} title=${question.title} wide=${question.wide} onClose=${() => end(null)}>
      <form onSubmit=${send}>
        ${question.text && html`<p>${question.text}</p>`}
        ${question.fields.map((field) => html`<${Field} key=${field.name} ...${field} />`)}
        ${question.typed && html`
          <label class="field">
            <span>Type <code>${question.typed}</code> to confirm</span>
            <input
              value=${typed}
              autocomplete="off"
              spellcheck="false"
              onInput=${(event) => setTyped(event.target.value)}
            />
          </label>
        `}
        ${error && html`
          <p class="wrong" role="alert">
            ${error.field ? `${error.field}: ` : ""}
            ${error.message}
          </p>
        `}
        <footer>
          <button type="button" onClick=${() => end(null)}>${question.no || "Not now"}</button>
          <button type="submit" class=${question.isGrave ? "grave" : "main"} disabled=${isHeld}>
            ${question.yes || "OK"}
          </button>
        </footer>
      </form>
    </${Dialog}>
  `;
}

/** One field of a form, with its label and hint. */
export function Field({ name, label, type = "text", value, hint, options, rows = 8, ...rest }) {
  const id = `field-${name}`;
  const described = hint ? { "aria-describedby": `${id}-hint` } : {};
  let input;
  if (type === "textarea" || type === "json") {
    input = html`
      <textarea
        id=${id}
        name=${name}
        rows=${rows}
        spellcheck="false"
        class=${type === "json" && "code"}
        ...${described}
        ...${rest}
      >
        ${value ?? ""}
      </textarea>
    `;
  } else if (type === "select") {
    input = html`
      <select id=${id} name=${name} ...${described} ...${rest}>
        ${options.map((each) => {
          const [key, text] = Array.isArray(each) ? each : [each, each];
          return html`<option value=${key} selected=${String(value ?? "") === String(key)}>${text}</option>`;
        })}
      </select>
    `;
  } else if (type === "checkbox") {
    return html`
      <label class="field check">
        <input type="checkbox" name=${name} defaultChecked=${Boolean(value)} ...${rest} />
        <span>${label}</span>
        ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
      </label>
    `;
  } else {
    input = html`
      <input
        id=${id}
        name=${name}
        type=${type}
        defaultValue=${value ?? ""}
        ...${(type === "datetime-local" ? { step: 1 } : {})}
        ...${described}
        ...${rest}
      />
    `;
  }
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${input}
      ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
    </div>
  `;
}
