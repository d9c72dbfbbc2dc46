// Parcels: those that are lost.
import { html, useLive, Title, Loaded } from "../../js/kit.js";

export default function Parcels() {
  const found = useLive("/api/parcels/lost", {}, { every: 5 });
  return html`<${Title}>Parcels</${Title}>
    <${Loaded} of=${found}>${({ codes }) => html`<ul>${codes.map((code) => html`<li>${code}</li>`)}</ul>`}</${Loaded}>`;
}
