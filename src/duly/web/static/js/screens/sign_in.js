// Signing in.
import { html, useState, useEffect, useRef } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { Field } from "../parts/fields.js";
import { Command } from "../parts/marks.js";

export default function SignIn() {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const form = useRef(/** @type {any} */ (null));
  useEffect(() => {
    document.title = "Sign in · duly";
    form.current?.elements.userId.focus();
  }, []);
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const credentials = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    try {
      await post("/api/session", credentials);
      // Nothing that the one before has seen may be left on the page.
      location.reload();
    } catch (wrong) {
      setError(wrong);
    }
    setBusy(false);
  };
  return html`
    <main class="alone" id="main">
      <h1>Sign in to duly</h1>
      <form ref=${form} class="card" onSubmit=${send}>
        <${Field} name="userId" label="User" autocomplete="username" required />
        <${Field}
          name="password"
          label="Password"
          type="password"
          autocomplete="current-password"
          required
        />
        ${error && html`<p class="wrong" role="alert">${error.message}</p>`}
        <button type="submit" class="main" disabled=${isBusy}>Sign in</button>
      </form>
      <details>
        <summary>No user yet?</summary>
        <p>On the machine that runs duly:</p>
        <${Command}>duly users add NAME --admin</${Command}>
      </details>
    </main>
  `;
}
