// What people and keys did to one item or schedule, as a table.
import { html } from "../lib/ui.js";
import { stringify } from "../lib/json.js";
import { Section, Table } from "./table.js";
import { Time } from "./marks.js";

/** @type {Column<Wire.ItemStory["audit"][number]>[]} */
const COLUMNS = [
  { title: "When", cell: (line) => html`<${Time} at=${line.at} />` },
  { title: "Who", cell: (line) => line.actor },
  { title: "What", cell: (line) => html`<code>${line.action}</code>` },
  {
    title: "Details",
    isWide: true,
    cell: ({ details }) => html`
      <code class="wrap">${details && Object.keys(details).length ? stringify(details) : ""}</code>
    `,
  },
];

/** @param {{ title: string, lines: any[] }} props */
export const AuditLines = ({ title, lines }) => html`
  <${Section} title=${title}>
    <${Table} label=${title} rows=${lines} empty="No changes yet." columns=${COLUMNS} />
  </${Section}>
`;
