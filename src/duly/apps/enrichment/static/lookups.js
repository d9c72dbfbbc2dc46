// A panel of the page of a job: what the provider was asked for its rows.
import { Empty, Grid, Link, Time, count, html, pagesOf } from "../../js/kit.js";

/** @type {Column<any>[]} */
const COLUMNS = [
  { title: "When", isTime: true, cell: (event) => html`<${Time} at=${event.createdAt ?? event.at} />` },
  {
    title: "Item",
    width: "90px",
    isNumber: true,
    cell: (event) => html`<${Link} to=${`/items/${event.itemId}`} tabindex="-1">${event.itemId}</${Link}>`,
  },
  { title: "Words", width: "minmax(100px, 1fr)", cell: (event) => event.variant },
  { title: "Retailer", width: "minmax(90px, 1fr)", cell: (event) => event.retailer },
  { title: "Ended", width: "110px", cell: (event) => event.status },
  {
    title: "Took",
    width: "90px",
    isNumber: true,
    isMinor: true,
    cell: (event) => `${count(event.milliseconds)} ms`,
  },
];

/** @param {{ job: Wire.Job }} props */
export default function LookUps({ job }) {
  return html`
    <${Grid}
      name=${`job ${job.id} lookups`}
      label="Look-ups"
      columns=${COLUMNS}
      load=${pagesOf(`/api/jobs/${job.id}/events`)}
      empty=${html`<${Empty} title="There are no requests to the provider yet."></${Empty}>`}
    />
  `;
}
