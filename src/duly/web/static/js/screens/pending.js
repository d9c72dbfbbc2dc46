// Pending: the rows of all jobs that wait, are worked on, or have to be looked after.
import { html } from "../lib/ui.js";
import { Title } from "../parts/shell.js";
import { service } from "../lib/service.js";
import { Command, Empty } from "../parts/marks.js";
import { Pending } from "../parts/pending.js";

export default function PendingScreen() {
  if (!service.value?.pending) {
    return html`
      <${Title}>Pending</${Title}>
      <${Empty} title="The list of pending rows is turned off.">
        <p>Each job has its own. To see those of all jobs here, start the service with</p>
        <${Command}>DULY_PENDING_ENABLED=true duly serve</${Command}>
      </${Empty}>
    `;
  }
  return html`
    <${Title}>Pending</${Title}>
    <${Pending} />
  `;
}
