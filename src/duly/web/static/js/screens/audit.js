// The audit log: who did what, newest first.
import { html } from "../lib/ui.js";
import { pagesOf } from "../lib/api.js";
import { query, Link } from "../lib/router.js";
import { Grid } from "../parts/grid.js";
import { Filters } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Empty, Time } from "../parts/marks.js";
import { stringify } from "../lib/json.js";

const FIELDS = [{ name: "subject", label: "Subject" }];

/**
 * The screens of what was acted on.
 * @type {Record<string, string>}
 */
const SCREENS = { item: "/items", job: "/jobs", schedule: "/schedules", group: "/review" };

/**
 * Where the thing that a line is about can be seen.
 * @param {{ of: string }} props
 */
function Subject({ of }) {
  const [kind, id] = of.split(":");
  const to = SCREENS[kind];
  return to && /^[0-9a-f]+$/.test(id ?? "") ? html`<${Link} to=${`${to}/${id}`} tabindex="-1">${of}</${Link}>` : (
    of
  );
}

/** @type {Column<any>[]} */
const COLUMNS = [
  { title: "When", isTime: true, cell: (line) => html`<${Time} at=${line.at} />` },
  { title: "Who", width: "120px", cell: (line) => line.actor },
  { title: "What", width: "170px", cell: (line) => html`<code>${line.action}</code>` },
  { title: "Subject", width: "minmax(140px, 1fr)", cell: (line) => html`<${Subject} of=${line.subject} />` },
  {
    title: "Details",
    width: "minmax(160px, 2fr)",
    isMinor: true,
    cell: (line) => html`<code class="clip">${line.details ? stringify(line.details) : ""}</code>`,
  },
];

export default function Audit() {
  const subject = query.value.get("subject");
  return html`
    <${Title}>Audit log</${Title}>
    <${Filters}
      fields=${FIELDS}
      free="subject"
      placeholder="subject, such as item:17"
    />
    <${Grid}
      name=${`audit ${subject}`}
      label="Audit log"
      columns=${COLUMNS}
      load=${pagesOf("/api/audit", { subject })}
      empty=${
        html`<${Empty} title="There are no actions yet.">
          <p>Every action of a user or an API key is recorded here: put, cancel, edit, pause, retry.</p>
        </${Empty}>`
      }
    />
  `;
}
