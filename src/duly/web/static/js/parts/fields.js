// Fields of forms: a label, an input of the right type, and a hint; and the error of a form.
import { html } from "../lib/ui.js";

/**
 * The value and the text of an option of a select.
 * @param {Option} option
 * @returns {[string, string]}
 */
export const optionOf = (option) => (Array.isArray(option) ? option : [option, option]);

/**
 * The input of a field, by its type.
 * @param {FieldProps} props
 */
function Input({ type, value, options = [], ...rest }) {
  if (type === "textarea" || type === "json") {
    const look = type === "json" ? "code" : null;
    return html`<textarea spellcheck="false" class=${look} ...${rest}>${value ?? ""}</textarea>`;
  }
  if (type === "select") {
    return html`
      <select ...${rest}>
        ${options.map(optionOf).map(([key, text]) => html`
          <option value=${key} selected=${String(value ?? "") === String(key)}>${text}</option>
        `)}
      </select>
    `;
  }
  const step = type === "datetime-local" ? { step: 1 } : {};
  return html`<input type=${type} defaultValue=${value ?? ""} ...${step} ...${rest} />`;
}

/**
 * One field of a form, with its label and hint.
 * @param {FieldProps} props
 */
export function Field({ name, label, type = "text", hint, rows = 8, value, ...rest }) {
  const id = `field-${name}`;
  const hintId = `${id}-hint`;
  const small = hint && html`<small id=${hintId}>${hint}</small>`;
  if (type === "checkbox") {
    return html`
      <label class="field check">
        <input type="checkbox" name=${name} defaultChecked=${Boolean(value)} ...${rest} />
        <span>${label}</span>
        ${small}
      </label>
    `;
  }
  const isText = type === "textarea" || type === "json";
  const more = { ...(isText ? { rows } : {}), ...(hint ? { "aria-describedby": hintId } : {}) };
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <${Input} id=${id} name=${name} type=${type} value=${value} ...${more} ...${rest} />
      ${small}
    </div>
  `;
}

/**
 * Why a form was rejected, with the field where there is one.
 * @param {{ error: { message: string, field?: string | null } | null }} props
 */
export const FormError = ({ error }) =>
  error && html`<p class="wrong" role="alert">${error.field ? `${error.field}: ` : ""}${error.message}</p>`;
