// Users: who may use this service, as what, and whether they can sign in.
import { html, useState } from "../lib/ui.js";
import { me, patch, post, pagesOf } from "../lib/api.js";
import { Link } from "../lib/router.js";
import { Grid } from "../parts/grid.js";
import { Title } from "../parts/shell.js";
import { Command, Empty, RowButton, State, Time } from "../parts/marks.js";
import { act, ask } from "../parts/dialogs.js";

/** @type {Option[]} */
const ROLES = [
  ["user", "user: sees and does what is their own"],
  ["admin", "admin: sees and does everything"],
];
/** @type {FieldProps} */
const PASSWORD = {
  name: "password",
  label: "Password",
  type: "password",
  minlength: "8",
  autocomplete: "new-password",
};

export default function Users() {
  const [changes, setChanges] = useState(0);
  const [looks, setLooks] = useState(0);
  const look = () => setLooks((times) => times + 1);
  /**
   * @param {any} row
   * @param {Query} values
   * @param {string} text
   * @param {Partial<Message>} [more]
   */
  const change = (row, values, text, more) =>
    act(() => patch(`/api/users/${encodeURIComponent(row.id)}`, values), { text, ...more }, { after: look });
  const add = () =>
    ask({
      title: "Add a user",
      yes: "Add",
      fields: [
        {
          name: "id",
          label: "Name",
          required: true,
          maxlength: "100",
          autocomplete: "off",
          hint: "The name to sign in with; it cannot be changed.",
        },
        { name: "role", label: "Role", type: "select", options: ROLES, value: "user" },
        { ...PASSWORD, hint: "At least 8 characters. Empty: a program, which uses API keys only." },
      ],
      check: async ({ id, role, password }) => {
        await post("/api/users", { id: id.trim(), role, ...(password ? { password } : {}) });
      },
    }).then(
      (answer) =>
        answer && act(async () => {}, `${answer.id} is added.`, { after: () => setChanges(changes + 1) }),
    );
  /** @param {any} row */
  const role = (row) =>
    ask({
      title: `Role of ${row.id}`,
      yes: "Change",
      fields: [{ name: "role", label: "Role", type: "select", options: ROLES, value: row.role }],
    }).then(
      (answer) =>
        answer &&
        answer.role !== row.role &&
        change(row, { role: answer.role }, `${row.id} is ${answer.role} now.`),
    );
  /** @param {any} row */
  const password = (row) =>
    ask({
      title: `Password of ${row.id}`,
      text: "Their other sessions end.",
      yes: "Set",
      fields: [{ ...PASSWORD, required: true, hint: "At least 8 characters." }],
      check: async (answer) => {
        await patch(`/api/users/${encodeURIComponent(row.id)}`, { password: answer.password });
      },
    }).then((answer) => answer && act(async () => {}, `${row.id} has a new password.`, { after: look }));
  /** @param {any} row */
  const disable = (row) =>
    change(row, { disabled: true }, `${row.id} is disabled: sessions and keys no longer work.`, {
      undo: () => change(row, { disabled: false }, `${row.id} is enabled.`),
      seconds: 12,
    });
  /** @type {Column<any>[]} */
  const columns = [
    {
      title: "User",
      width: "minmax(130px, 1.5fr)",
      cell: (row) => html`
        <strong>${row.id}</strong>
        ${me.value && row.id === me.value.userId && html` <span class="pill">you</span>`}
      `,
    },
    { title: "Role", width: "90px", cell: (row) => row.role },
    {
      title: "State",
      width: "110px",
      cell: (row) => html`
        <${State} of=${row.disabledAt ? "cancelled" : "ok"} label=${row.disabledAt ? "disabled" : "enabled"} />
      `,
    },
    {
      title: "Signs in with",
      width: "130px",
      isMinor: true,
      cell: (row) => (row.hasPassword ? "a password" : "keys only"),
    },
    { title: "Since", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.createdAt} />` },
    {
      title: "See",
      width: "130px",
      isMinor: true,
      cell: (row) => html`
        <${Link} to=${`/items?userId=${encodeURIComponent(row.id)}`} tabindex="-1">
          items<span class="sr"> of ${row.id}</span>
        </${Link}>${" "}
        <${Link} to=${`/keys?userId=${encodeURIComponent(row.id)}`} tabindex="-1">
          keys<span class="sr"> of ${row.id}</span>
        </${Link}>
      `,
    },
    {
      title: "Act",
      width: "265px",
      cell: (row) => html`
        <${RowButton} label=${`Role of ${row.id}`} onClick=${() => role(row)}>Role</${RowButton}>${" "}
        <${RowButton} label=${`Password of ${row.id}`} onClick=${() => password(row)}>Password</${RowButton}>${" "}
        ${row.disabledAt ? html`
          <${RowButton}
            label=${`Enable ${row.id}`}
            onClick=${() => change(row, { disabled: false }, `${row.id} is enabled.`)}
          >
            Enable
          </${RowButton}>
        ` : html`
          <${RowButton} label=${`Disable ${row.id}`} onClick=${() => disable(row)}>Disable</${RowButton}>
        `}
      `,
    },
  ];
  return html`
    <${Title}
      actions=${
        html`<button type="button" class="main" onClick=${add}>
          Add a user
        </button>`
      }
    >
      Users
    </${Title}>
    <${Grid}
      name="users"
      label="Users"
      columns=${columns}
      changes=${changes}
      looks=${looks}
      every=${10}
      load=${pagesOf("/api/users")}
      empty=${
        html`<${Empty} title="There are no users yet.">
          <p>
            On this machine you are the local admin. To listen on other addresses, someone must be able
            to sign in:
          </p>
          <${Command}>duly users add NAME --admin</${Command}>
        </${Empty}>`
      }
    />
    <p class="note">Users who have left are disabled, not removed, so that the audit log still shows who did what.</p>
  `;
}
