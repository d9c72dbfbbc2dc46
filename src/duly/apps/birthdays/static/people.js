// People and their birthdays: who is greeted when, in their own time, and how it went.
import {
  html, useLive, useState, post, patch, remove, root, may, ask, act, go, exact, count, Title, Link,
  Loaded, Grid, Facts, State, Time, Empty, Command, pagesOf, TableSection,
} from "../../js/kit.js";

const ZONES = Intl.supportedValuesOf ? ["UTC", ...Intl.supportedValuesOf("timeZone")] : ["UTC"];
const LEAPS = [
  ["feb28", "28 February"],
  ["mar1", "1 March"],
  ["skip", "not at all"],
];
/** @type {Record<string, string>} */
const STATES = {
  PENDING: "waiting",
  PROCESSING: "running",
  COMPLETED: "done",
  FAILED: "failed",
  CANCELLED: "cancelled",
};
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/** @param {any} person */
const at = (person) =>
  `/people/${encodeURIComponent(person.id)}${person.owner ? `?userId=${encodeURIComponent(person.owner)}` : ""}`;
/** @param {string} id */
const path = (id) => `/api/people/${encodeURIComponent(id)}`;
/** @param {any} birthday */
const day = (birthday) => `${Number(birthday.slice(3))} ${MONTHS[Number(birthday.slice(0, 2)) - 1]}`;
/** @param {any} person */
const whole = (person) => `${person.firstName} ${person.lastName}`;

/**
 * A moment by the clock of the place where someone lives.
 * @param {{ moment: any, zone: string }} props
 */
function There({ moment, zone }) {
  if (!moment) return html`<span class="none">–</span>`;
  const text = new Intl.DateTimeFormat("sv-SE", {
    timeZone: zone,
    dateStyle: "short",
    timeStyle: "short",
  }).format(new Date(moment));
  return html`<time datetime=${moment} title=${`${exact(moment, true)} UTC`}>${text}</time>`;
}

/** @param {any} person */
const fields = (person) => [
  ...(person
    ? []
    : [
        {
          name: "id",
          label: "Id",
          required: true,
          autocomplete: "off",
          hint: "Yours for this person, such as user-456.",
        },
      ]),
  {
    name: "firstName",
    label: "First name",
    value: person?.firstName,
    required: true,
    autocomplete: "off",
  },
  { name: "lastName", label: "Last name", value: person?.lastName, required: true, autocomplete: "off" },
  person
    ? {
        name: "birthday",
        label: "Birthday",
        value: person.birthday,
        required: true,
        hint: "Month and day, such as 03-15.",
        pattern: "(\\d{4}-)?\\d{2}-\\d{2}",
      }
    : { name: "birthday", label: "Birthday", type: "date", required: true },
  {
    name: "zone",
    label: "Time zone",
    type: "select",
    options: person && !ZONES.includes(person.zone) ? [person.zone, ...ZONES] : ZONES,
    value: person?.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
  },
  {
    name: "leap",
    label: "Born on 29 February: in other years greet on",
    type: "select",
    options: LEAPS,
    value: person?.leap ?? "feb28",
  },
];

/** @param {() => unknown} after */
async function add(after) {
  await ask({
    title: "Add a person",
    yes: "Add",
    text: "The person is greeted every year in the morning, in their own time zone.",
    fields: fields(null),
    check: async (answer) => {
      const made = await post("/api/people", answer);
      await act(async () => made, `${whole(made)} is added.`, { after });
    },
  });
}

/**
 * @param {any} person
 * @param {any} query
 * @param {() => unknown} after
 */
async function edit(person, query, after) {
  await ask({
    title: `Edit ${whole(person)}`,
    yes: "Save",
    fields: fields(person),
    check: async (answer) => {
      // Only what was changed is sent: a masked value that was left alone stays what it is.
      const news = Object.fromEntries(
        Object.entries(answer).filter(([name, value]) => value !== person[name]),
      );
      if (!Object.keys(news).length) return;
      const made = await patch(path(person.id), news, { query });
      await act(async () => made, `${whole(made)} is changed.`, { after });
    },
  });
}

/**
 * @param {any} person
 * @param {any} query
 */
async function leave(person, query) {
  const sure = await ask({
    title: `Remove ${whole(person)}`,
    text: "The person is no longer greeted. A waiting greeting is cancelled.",
    typed: person.id,
    yes: "Remove",
    isGrave: true,
  });
  if (sure) {
    await act(() => remove(path(person.id), undefined, { query }), `${whole(person)} is removed.`, {
      after: () => go("/people"),
    });
  }
}

// ---- one person

/** @type {Column<any>[]} */
const EVENTS = [
  { title: "When, there", cell: (event) => html`<${There} moment=${event.target} zone=${event.zone} />` },
  { title: "When", cell: (event) => html`<${Time} at=${event.target} />` },
  {
    title: "Status",
    cell: (event) => html`<${State} of=${STATES[event.status]} label=${event.status.toLowerCase()} />`,
  },
  { title: "Tries", isNumber: true, cell: (event) => count(event.attempts) },
  { title: "Sent", cell: (event) => html`<${Time} at=${event.executedAt} />` },
  { title: "Next try", cell: (event) => html`<${Time} at=${event.nextTryAt} />` },
  { title: "Error", isWide: true, cell: (event) => event.lastError ?? "" },
  {
    title: "Item",
    cell: (event) =>
      event.id === null ? html`<span class="none">not yet</span>` : html`
        <${Link} to=${`/items/${event.id}`}>${event.id}</${Link}>
      `,
  },
];

/** @param {{ id: string }} props */
function Person({ id }) {
  const userId = new URLSearchParams(location.search).get("userId");
  const query = userId ? { userId } : {};
  const story = useLive(path(id), query, { every: 3 });
  return html`
    <${Loaded} of=${story}>
      ${(person) => html`
        <${Title}
          text=${whole(person)}
          actions=${
            may("write") && html`
              <button type="button" onClick=${() => edit(person, query, story.reload)}>Edit</button>
              <button type="button" onClick=${() => leave(person, query)}>Remove</button>
            `
          }
        >
          ${whole(person)}
        </${Title}>
        <div class="card">
          <${Facts}
            of=${[
              ["Id", html`<code>${person.id}</code>`],
              ["Birthday", day(person.birthday)],
              ["Time zone", person.zone],
              person.birthday === "02-29" && [
                "In other years",
                LEAPS.find(([key]) => key === person.leap)?.[1],
              ],
              ["Next greeting, there", html`<${There} moment=${person.nextAt} zone=${person.zone} />`],
              ["Next greeting", html`<${Time} at=${person.nextAt} long />`],
              person.owner && ["Of user", person.owner],
            ]}
          />
        </div>
        <${TableSection}
          title="Greetings"
          rows=${person.events.map((/** @type {any} */ event) => ({ ...event, zone: person.zone }))}
          keyOf=${(event) => event.id ?? "next"}
          columns=${EVENTS}
          empty="There are no further birthdays."
        />
        <p class="back"><${Link} to="/people">All people</${Link}></p>
      `}
    </${Loaded}>
  `;
}

// ---- all people

/** @type {Column<any>[]} */
const COLUMNS = [
  {
    title: "Name",
    width: "minmax(150px, 1fr)",
    cell: (person) => html`<${Link} to=${at(person)} tabindex="-1">${whole(person)}</${Link}>`,
  },
  { title: "Birthday", width: "130px", cell: (person) => day(person.birthday) },
  {
    title: "Next, there",
    width: "150px",
    cell: (person) => html`<${There} moment=${person.nextAt} zone=${person.zone} />`,
  },
  { title: "Time zone", width: "minmax(140px, 1fr)", isMinor: true, cell: (person) => person.zone },
  { title: "Next", isTime: true, isMinor: true, cell: (person) => html`<${Time} at=${person.nextAt} />` },
  { title: "Id", width: "minmax(110px, 1fr)", isMinor: true, cell: (person) => html`<code>${person.id}</code>` },
];

function People() {
  const [changes, setChanges] = useState(0);
  return html`
    <${Title}
      actions=${
        may("write") && html`
          <button type="button" class="main" onClick=${() => add(() => setChanges(changes + 1))}>
            Add person
          </button>
        `
      }
    >
      People
    </${Title}>
    <${Grid}
      name="people"
      label="People"
      columns=${COLUMNS}
      changes=${changes}
      keyOf=${(person) => `${person.owner ?? ""}/${person.id}`}
      to=${at}
      load=${pagesOf("/api/people")}
      empty=${
        html`<${Empty} title="There are no people yet.">
          <p>Add a person above, or from a terminal:</p>
          <${Command}>duly people add user-456 Ana Horvat 1990-03-15 Europe/Zagreb</${Command}>
        </${Empty}>`
      }
    />
  `;
}

/** @param {{ rest: string }} props */
export default function Screen({ rest }) {
  if (!rest) return html`<${People} />`;
  return html`<${Person} id=${decodeURIComponent(location.pathname.slice(`${root}/people/`.length))} />`;
}
