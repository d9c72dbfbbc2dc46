// API keys: each with as few rights as it needs, shown once, revoked when it is no longer needed.
import { html, useState } from "../lib/ui.js";
import { may, me, post, remove, root, pagesOf } from "../lib/api.js";
import { query } from "../lib/router.js";
import { fromInput } from "../lib/time.js";
import { now } from "../lib/prefs.js";
import { Grid } from "../parts/grid.js";
import { OwnerFilter } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Command, Copy, Empty, RowButton, State, Time } from "../parts/marks.js";
import { Dialog, act, ask, askTyped } from "../parts/dialogs.js";

/** @type {[scope: Wire.Me["scopes"][number], label: string][]} */
const SCOPES = [
  ["read", "read: look at rows"],
  ["write", "write: put, change and act"],
  ["admin", "admin: everything, of all owners"],
];

/**
 * The secret of a new key, which is shown only once.
 * @param {{ made: any, onClose: () => void }} props
 */
function Secret({ made, onClose }) {
  return html`
    <${Dialog} title="Copy the key now" onClose=${onClose}>
      <p>
        This is the secret of <strong>${made.name}</strong>. It is shown only once. Anyone who has it can
        use the key.
      </p>
      <p class="secret">
        <code>${made.secret}</code> <${Copy} text=${made.secret} label="Copy the secret" />
      </p>
      <p>Use it like this:</p>
      <${Command}>${`curl -H "Authorization: Bearer ${made.secret}" ${location.origin}${root}/api/me`}</${Command}>
      <footer>
        <button type="button" class="main" onClick=${onClose}>I have copied it</button>
      </footer>
    </${Dialog}>
  `;
}

/** @param {any} row */
const stateOf = (row) =>
  row.revokedAt
    ? ["cancelled", "revoked"]
    : row.expiresAt && new Date(row.expiresAt).getTime() <= now.value
      ? ["cancelled", "expired"]
      : ["ok", "valid"];

export default function Keys() {
  const isLocal = Boolean(me.value && me.value.via === "local");
  const [changes, setChanges] = useState(0);
  const [made, setMade] = useState(/** @type {any} */ (null));
  const userId = query.value.get("userId");
  const [looks, setLooks] = useState(0);
  const make = () =>
    ask({
      title: "New API key",
      yes: "Make the key",
      fields: [
        {
          name: "name",
          label: "Name",
          required: true,
          maxlength: "100",
          autocomplete: "off",
          hint: "What uses it, such as: shop.",
        },
        ...SCOPES.filter(([scope]) => may(scope)).map(([scope, label]) => ({
          name: scope,
          label,
          type: "checkbox",
          value: scope !== "admin",
        })),
        {
          name: "expiresAt",
          label: "Expires",
          type: "datetime-local",
          hint: "Empty: when it is revoked.",
        },
        ...(may("admin")
          ? [
              {
                name: "userId",
                label: "User",
                autocomplete: "off",
                required: isLocal,
                value: me.value && !isLocal ? me.value.userId : "",
                hint: "A user of this service.",
              },
            ]
          : []),
      ],
      check: (answer) =>
        post("/api/keys", {
          name: answer.name,
          scopes: SCOPES.map(([scope]) => scope).filter((scope) => answer[scope]),
          expiresAt: fromInput(answer.expiresAt),
          userId: answer.userId?.trim() || null,
        }),
    }).then((answer) => {
      if (answer) {
        setMade(answer);
        setChanges(changes + 1);
      }
    });
  /** @param {any} row */
  const revoke = async (row) => {
    const text = "Requests with this key are rejected from now on. This cannot be undone.";
    const yes = await askTyped(`Revoke ${row.name}`, text, row.name, "Revoke");
    if (yes) {
      await act(() => remove(`/api/keys/${row.id}`), `${row.name} is revoked.`, {
        after: () => setLooks(looks + 1),
      });
    }
  };
  /** @type {Column<any>[]} */
  const columns = [
    { title: "Name", width: "minmax(130px, 1.5fr)", cell: (row) => html`<strong>${row.name}</strong>` },
    {
      title: "State",
      width: "100px",
      cell: (row) => {
        const [tone, word] = stateOf(row);
        return html`<${State} of=${tone} label=${word} />`;
      },
    },
    { title: "May", width: "120px", cell: (row) => row.scopes.join(", ") },
    { title: "Begins with", width: "140px", isMinor: true, cell: (row) => html`<code>duly_${row.id}</code>` },
    ...(may("admin")
      ? [{ title: "Owner", width: "90px", isMinor: true, cell: (/** @type {any} */ row) => row.userId }]
      : []),
    {
      title: "Last used",
      isTime: true,
      cell: (row) => (row.lastUsedAt ? html`<${Time} at=${row.lastUsedAt} />` : html`<span class="none">never</span>`),
    },
    {
      title: "Expires",
      isTime: true,
      isMinor: true,
      cell: (row) =>
        row.expiresAt ? html`<${Time} at=${row.expiresAt} />` : html`<span class="none">when revoked</span>`,
    },
    { title: "Made", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.createdAt} />` },
    {
      title: "Act",
      width: "84px",
      cell: (row) =>
        !row.revokedAt &&
        may("write") && html`
          <${RowButton} label=${`Revoke ${row.name}`} onClick=${() => revoke(row)}>Revoke</${RowButton}>
        `,
    },
  ];
  return html`
    <${Title}
      actions=${
        may("write") && html`<button type="button" class="main" onClick=${make}>New key</button>`
      }
    >
      API keys
    </${Title}>
    <${OwnerFilter} />
    <${Grid}
      name=${`keys ${userId}`}
      label="API keys"
      columns=${columns}
      changes=${changes}
      looks=${looks}
      every=${10}
      load=${pagesOf("/api/keys", { userId })}
      empty=${
        html`<${Empty} title="There is no key yet.">
          <p>Programs use the API with a key. Make one here, or with:</p>
          <${Command}>duly keys add USER --name shop</${Command}>
        </${Empty}>`
      }
    />
    ${made && html`<${Secret} made=${made} onClose=${() => setMade(null)} />`}
  `;
}
