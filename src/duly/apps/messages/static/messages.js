// Messages between queues of a broker: what waits, what a person has to look at, and how late retries went out.
import {
  html, useLive, useState, get, post, patch, query, may, ask, act, RowActs, REASON, go, count,
  duration, address, changed, Title, Link, Loaded, Grid, Tabs, Filters, Facts, Section, State, Time,
  Json, Copy, Chart, Empty, Command, pagesOf, TableSection,
} from "../../js/kit.js";

/** @type {Record<string, string>} */
const WORDS = {
  waiting: "waiting",
  running: "being sent",
  done: "sent",
  failed: "in review",
  cancelled: "cancelled",
};
/** @param {{ of: any }} props */
const Status = ({ of }) => html`<${State} of=${of} label=${WORDS[of]} />`;
/** @param {any} message */
const canChange = (message) => message.state === "waiting" || message.state === "failed";

// ---- no broker

const NoBroker = () => html`
  <${Title}>Messages</${Title}>
  <${Empty} title="No broker is set up here.">
    <p>
      This screen shows failed messages of RabbitMQ queues. They are republished after growing delays,
      and go to manual review when their retries are used up.
    </p>
    <p>1. Install RabbitMQ on this machine with one of these commands:</p>
    <p><${Command}>docker run --rm -p 5672:5672 rabbitmq:4</${Command}></p>
    <p><${Command}>apt install rabbitmq-server</${Command}></p>
    <p>2. Install the client:</p>
    <p><${Command}>pip install 'duly[rabbitmq]'</${Command}></p>
    <p>3. Set its URL, and restart duly:</p>
    <p><${Command}>RABBITMQ_URL=amqp://localhost duly up</${Command}></p>
  </${Empty}>
`;

// ---- acts

/**
 * @param {any} message
 * @param {boolean} isSent
 */
const fields = (message, isSent) => [
  {
    name: "queue",
    label: "Queue",
    value: message.queue,
    required: true,
    autocomplete: "off",
    hint: isSent ? "Where it is published to." : "Where it will be published to.",
  },
  ...(message.payload.text !== null &&
  new TextEncoder().encode(message.payload.text).length === message.payload.bytes
    ? [{ name: "payloadText", label: "Payload", type: "json", value: message.payload.text, rows: 10 }]
    : [
        {
          name: "payloadBase64",
          label: "Another payload, as base64",
          type: "json",
          rows: 4,
          hint: "Left empty, the payload stays as it is.",
        },
      ]),
  {
    name: "headers",
    label: "More headers, as JSON",
    type: "json",
    rows: 3,
    hint: 'Such as {"x-repaired-by": "ana"}; they are added to those that it has.',
  },
];

/**
 * @param {any} answer
 * @param {any} message
 */
function changes(answer, message) {
  const news = {};
  if (answer.queue !== message.queue) news.queue = answer.queue;
  // A form says line ends as CR LF; those of the payload stay as they were.
  if (
    answer.payloadText !== undefined &&
    answer.payloadText.replaceAll("\r\n", "\n") !== message.payload.text.replaceAll("\r\n", "\n")
  ) {
    news.payloadText = answer.payloadText.replaceAll("\r\n", "\n");
  }
  if (answer.payloadBase64) news.payloadBase64 = answer.payloadBase64.replace(/\s/g, "");
  if (answer.headers.trim()) {
    try {
      news.headers = JSON.parse(answer.headers);
    } catch {
      throw new Error('Headers must be JSON, such as {"x-repaired-by": "ana"}.');
    }
  }
  return news;
}

/**
 * @param {any} message
 * @param {() => unknown} after
 */
async function edit(message, after) {
  await ask({
    title: `Edit message ${message.id}`,
    wide: true,
    yes: "Save",
    fields: fields(message, false),
    check: async (answer) => {
      const news = changes(answer, message);
      if (!Object.keys(news).length) return;
      await patch(`/api/messages/${message.id}`, news);
      await act(async () => {}, `Message ${message.id} is changed.`, { after });
    },
  });
}

/**
 * Publish a message now, whatever its number of retries. One that has ended is published again as a new message.
 * One that ends meanwhile is rejected.
 * @param {any} message
 * @param {() => unknown} after
 */
async function send(message, after) {
  const isReplay = message.state === "done" || message.state === "cancelled";
  await ask({
    title: isReplay ? `Replay message ${message.id}` : `Send message ${message.id}`,
    wide: true,
    yes: isReplay ? "Replay" : "Send",
    text: isReplay
      ? "It is published again, as a message of its own."
      : "It is published now, whatever its number of retries.",
    fields: fields(message, true),
    check: async (answer) => {
      const made = await post(`/api/messages/${message.id}/send`, {
        ...changes(answer, message),
        ...(isReplay ? { replay: true } : {}),
      });
      const [id] = made.ids;
      await act(
        async () => made,
        isReplay ? `Message ${id} publishes it again.` : `Message ${id} is on its way.`,
        { after: isReplay ? () => go(`/messages/${id}`) : after },
      );
    },
  });
}

/**
 * @param {any} message
 * @param {() => unknown} after
 */
const expedite = (message, after) =>
  act(() => post(`/api/items/${message.id}/retry`), `Message ${message.id} is retried now.`, { after });

/**
 * @param {any} message
 * @param {string} verb
 * @param {string} text
 * @param {() => unknown} after
 */
async function end(message, verb, text, after) {
  const answer = await ask({
    title: `${verb} message ${message.id}`,
    text,
    fields: [REASON],
    yes: `${verb} it`,
    no: "Keep it",
    isGrave: true,
  });
  if (answer) {
    await act(
      () => post(`/api/items/${message.id}/${verb.toLowerCase()}`, { reason: answer.reason }),
      verb === "Cancel" ? "It is cancelled. Replay publishes it again." : "It is discarded.",
      { after },
    );
  }
}

/**
 * How a message is ended by hand, by its state: the verb, and what it means.
 * @type {Record<string, [string, string] | undefined>}
 */
const ENDINGS = {
  waiting: ["Cancel", "It will not be published to its queue again."],
  failed: ["Discard", "It leaves review for good, unpublished."],
};

/** @param {{ of: any, after: () => unknown }} props */
function Acts({ of: message, after }) {
  const download = html`
    <a class="button" href=${address(`/api/messages/${message.id}/payload`)} download>Download payload</a>
  `;
  if (!may("write")) return download;
  const isOver = message.state === "done" || message.state === "cancelled";
  const ending = ENDINGS[message.state];
  return html`
    ${message.state === "waiting" && html`
      <button type="button" onClick=${() => expedite(message, after)}>Expedite</button>
    `}
    ${canChange(message) && html`<button type="button" onClick=${() => edit(message, after)}>Edit</button>`}
    ${message.state !== "running" && html`
      <button type="button" onClick=${() => send(message, after)}>${isOver ? "Replay" : "Send"}</button>
    `}
    ${ending && html`<button type="button" onClick=${() => end(message, ...ending, after)}>${ending[0]}</button>`}
    ${download}
  `;
}

// ---- one message

/** @param {{ of: any, queue: any }} props */
function Payload({ of: payload, queue }) {
  const decoded = payload.decoded ?? parsed(payload.text);
  const [how, setHow] = useState(/** @type {any} */ (null));
  const ways = [
    ...(decoded !== null ? [["decoded", "Decoded"]] : []),
    ...(payload.text !== null ? [["text", "Text"]] : []),
    ["hex", "Bytes"],
  ];
  const shown = how ?? ways[0][0];
  return html`
    <${Section}
      title=${`Payload, ${count(payload.bytes)} bytes`}
      actions=${
        html`<div class="actions" role="group" aria-label="How the payload is shown">
          ${ways.map(([key, word]) => html`
            <button
              type="button"
              class="mini"
              aria-pressed=${String(shown === key)}
              onClick=${() => setHow(key)}
            >
              ${word}
            </button>
          `)}
        </div>`
      }
    >
      ${shown === "decoded" && html`<${Json} value=${decoded} label="payload" />`}
      ${shown === "text" && html`<pre tabindex="0">${payload.text}</pre>`}
      ${shown === "hex" && html`<pre tabindex="0">${payload.hex}</pre>`}
      ${payload.decoded === null && payload.text === null && html`
        <p class="note">
          To see what protobuf messages hold, name their types: <code>DULY_MESSAGE_DESCRIPTORS</code> and${" "}
          <code>DULY_MESSAGE_TYPES=${queue || "queue"}=package.Type</code>.
        </p>
      `}
    </${Section}>
  `;
}

/** @param {string} text */
function parsed(text) {
  if (!text || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @type {Column<any>[]} */
const FAILURES = [
  { title: "Retry", isNumber: true, cell: (failure) => count(failure.retry) },
  { title: "When", cell: (failure) => html`<${Time} at=${failure.at} />` },
  { title: "Reason", isWide: true, cell: (failure) => html`<span class="wrap">${failure.reason}</span>` },
];
/** @type {Column<any>[]} */
const TRIES = [
  { title: "Try", isNumber: true, cell: (tried) => count(tried.number) },
  { title: "Ended", cell: (tried) => html`<${Time} at=${tried.endedAt} />` },
  { title: "Outcome", cell: (tried) => tried.outcome },
  {
    title: "Error",
    isWide: true,
    cell: (tried) => html`<span class="wrap">${(tried.error ?? "").split("\n")[0]}</span>`,
  },
];

/** @param {{ id: string }} props */
function Message({ id }) {
  const story = useLive(`/api/messages/${id}`, {}, { every: 2 });
  return html`
    <${Loaded} of=${story}>
      ${(message) => {
        const { headers = null, ...properties } = message.properties;
        return html`
          <${Title} text=${`Message ${id}`} actions=${html`<${Acts} of=${message} after=${story.reload} />`}>
            Message ${id}
          </${Title}>
          <div class="card">
            <${Facts}
              of=${[
                ["Status", html`<${Status} of=${message.state} />`],
                [
                  "Queue",
                  message.queue ? html`
                    <${Link} to=${`/messages?queue=${encodeURIComponent(message.queue)}`}>
                      ${message.queue}
                    </${Link}>
                  ` : (
                    "none was named"
                  ),
                ],
                [
                  "Message id",
                  message.messageId ? html`
                    <code class="wrap">${message.messageId}</code>${" "}
                    <${Copy} text=${message.messageId} label="Copy the message id" />
                  ` : (
                    "–"
                  ),
                ],
                ["Retries", `${message.retryCount} of ${message.maxRetries}`],
                [
                  message.state === "waiting" ? "Published again" : "Was due",
                  html`<${Time} at=${message.dueAt} long />`,
                ],
                message.firstFailedAt && ["First failed", html`<${Time} at=${message.firstFailedAt} long />`],
                message.replayOf && [
                  "Publishes again",
                  html`<${Link} to=${`/messages/${message.replayOf}`}>message ${message.replayOf}</${Link}>`,
                ],
                ["Item", html`<${Link} to=${`/items/${id}`}>${id}</${Link}>`],
              ]}
            />
            ${message.reason && html`<p class="wrong wrap">${message.reason}</p>`}
            ${message.error && message.error !== message.reason && html`
              <p class="wrong wrap">${message.error.split("\n")[0]}</p>
            `}
          </div>
          <${Payload} of=${message.payload} queue=${message.queue} />
          <div class="cards">
            <${Section} title="Headers">
              ${headers && Object.keys(headers).length ? html`
                <${Json} value=${headers} label="headers" />
              ` : html`<p class="none">It has none.</p>`}
            </${Section}>
            <${Section} title="Properties">
              ${Object.keys(properties).length ? html`<${Json} value=${properties} label="properties" />` : html`
                <p class="none">It has none.</p>
              `}
            </${Section}>
          </div>
          <${TableSection}
            title="Failures"
            rows=${message.story}
            keyOf=${(failure) => `${failure.retry}-${failure.at}`}
            columns=${FAILURES}
            empty="None is kept."
          />
          ${message.tries.length > 0 && html`
            <${TableSection}
              title="Tries to publish it that did not succeed"
              label="Tries"
              rows=${message.tries}
              keyOf=${(tried) => `${tried.number}-${tried.startedAt}`}
              columns=${TRIES}
            />
          `}
          <p class="back"><${Link} to="/messages">All messages</${Link}></p>
        `;
      }}
    </${Loaded}>
  `;
}

// ---- all messages

function Drift() {
  const minutes = Number(query.value.get("minutes")) || 60;
  const drift = useLive("/api/messages/drift", { minutes }, { every: 5 });
  const points = drift.data?.points ?? [];
  const many = points.reduce((sum, point) => sum + point[3], 0);
  return html`
    <${Section}
      title="How late retries went out"
      actions=${
        html`<label class="inline">
          <span>Last</span>
          <select
            value=${minutes}
            onChange=${(event) =>
              go(changed({ minutes: event.target.value === "60" ? null : event.target.value }), {
                replace: true,
              })
            }
          >
            ${[
              [15, "15 minutes"],
              [60, "hour"],
              [360, "6 hours"],
              [1440, "24 hours"],
            ].map(([key, word]) => html`<option value=${key}>${word}</option>`)}
          </select>
        </label>`
      }
    >
      <${Chart}
        label=${
          many ? `Seconds after their time, ${count(many)} published` : "None was published in this time"
        }
        unit=" s"
        height=${140}
        times=${points.map((point) => point[0])}
        series=${[
          { label: "latest", values: points.map((point) => point[2]), tone: "retried" },
          { label: "mean", values: points.map((point) => point[1]), tone: "running" },
        ]}
      />
    </${Section}>
  `;
}

function Queues() {
  const queues = useLive(may("admin") ? "/api/queues" : null, { pageSize: 500 }, { every: 3 });
  const own = (queues.data?.items ?? []).filter((queue) => queue.queue.startsWith("message_retry"));
  if (!own.length) return null;
  // What named no queue, and what queues beyond the first hundreds have, lie in queues that are no queue of the broker.
  /** @param {any} queue */
  const named = (queue) => queue.queue.slice("message_retry/".length);
  return html`
    <${TableSection}
      title="Queues"
      label="Queues of messages"
      rows=${own}
      keyOf=${(queue) => queue.queue}
      columns=${[
        {
          title: "Queue",
          isWide: true,
          cell: (queue) => html`
            ${named(queue) ? html`
              <${Link} to=${`/messages?queue=${encodeURIComponent(named(queue))}`}>${named(queue)}</${Link}>
            ` : (
              "of no queue"
            )}
            ${queue.paused && html` <${State} of="paused" />`}
          `,
        },
        { title: "Waiting", isNumber: true, cell: (queue) => count(queue.waiting + queue.retrying) },
        { title: "Being sent", isNumber: true, cell: (queue) => count(queue.running) },
        { title: "In review", isNumber: true, cell: (queue) => count(queue.failed) },
        {
          title: "Oldest due",
          isNumber: true,
          cell: (queue) => (queue.oldestDueSeconds === null ? "–" : duration(queue.oldestDueSeconds)),
        },
      ]}
    />
  `;
}

/** @type {Column<any>[]} */
const COLUMNS = [
  {
    title: "Message",
    width: "100px",
    cell: (row) => html`<${Link} to=${`/messages/${row.id}`} tabindex="-1">${row.id}</${Link}>`,
  },
  {
    title: "Queue",
    width: "minmax(120px, 1fr)",
    cell: (row) => row.queue || html`<span class="none">none</span>`,
  },
  { title: "Status", width: "130px", cell: (row) => html`<${Status} of=${row.state} />` },
  {
    title: "Retries",
    width: "80px",
    isNumber: true,
    cell: (row) => `${row.retryCount}/${row.maxRetries}`,
  },
  { title: "Due", isTime: true, isMinor: true, cell: (row) => html`<${Time} at=${row.dueAt} />` },
  {
    title: "Payload",
    width: "minmax(160px, 2fr)",
    isMinor: true,
    cell: (row) => html`
      <code class="clip" title=${row.payload.text}>${row.payload.text ?? row.payload.hex}</code>
    `,
  },
  {
    title: "Reason",
    width: "minmax(140px, 1fr)",
    isMinor: true,
    cell: (row) => html`<span class="clip" title=${row.reason || row.error}>${row.reason || row.error}</span>`,
  },
];
const TABS = [
  ["", "All"],
  ["waiting", "Waiting"],
  ["failed", "In review"],
  ["running", "Being sent"],
  ["done", "Sent"],
  ["cancelled", "Cancelled"],
];
const FIELDS = [
  { name: "queue", label: "Queue" },
  { name: "messageId", label: "Message id" },
];
const ID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const WORD = /^\S{1,200}$/;

/** @param {GridSelection} selection */
const chosen = (selection) => {
  const acts = [
    {
      word: "Send",
      rows: selection.rows.filter((row) => row.state === "waiting" || row.state === "failed"),
      one: (/** @type {any} */ row) => post(`/api/messages/${row.id}/send`),
      done: "on the way",
    },
    {
      word: "Cancel",
      rows: selection.rows.filter((row) => row.state === "waiting"),
      one: (/** @type {any} */ row) => post(`/api/items/${row.id}/cancel`),
      done: "cancelled",
      sure: "None of them will be published to its queue again.",
    },
  ];
  return html`<${RowActs} ...${selection} noun="message" acts=${acts} />`;
};

function Messages() {
  const [state, queue, messageId] = ["state", "queue", "messageId"].map((name) => query.value.get(name));
  const isFiltered = state || queue || messageId;
  // An id need not be a UUID: any word is one if a message has it, and the name of a queue otherwise.
  /**
   * @param {string} text
   * @param {any} add
   */
  const free = (text, add) => {
    const asId =
      ID.test(text) || !WORD.test(text)
        ? Promise.resolve(ID.test(text))
        : get("/api/messages", { messageId: text, pageSize: 1 }).then(
            (found) => found.items.length > 0,
            () => false,
          );
    asId.then((isId) => add(isId ? "messageId" : "queue", text));
  };
  return html`
    <${Title}>Messages</${Title}>
    <${Queues} />
    <${Drift} />
    <${Section} title="Messages">
      <${Tabs} name="state" label="Status" options=${TABS} />
      <${Filters} fields=${FIELDS} free=${free} placeholder="a queue, or a message's id" />
      <${Grid}
        name=${`messages ${state} ${queue} ${messageId}`}
        label="Messages"
        columns=${COLUMNS}
        to=${(row) => `/messages/${row.id}`}
        load=${pagesOf("/api/messages", { state, queue, messageId })}
        bar=${may("write") ? chosen : null}
        empty=${
          html`<${Empty} title=${isFiltered ? "No message fits." : "No message has failed yet."}>
            ${!isFiltered && html`
              <p>
                Send failed messages to the queue <code>retry.scheduled</code>; docs/messages.md describes
                their format.
              </p>
            `}
          </${Empty}>`
        }
      />
    </${Section}>
  `;
}

/** @param {{ rest: string, isOn?: boolean }} props */
export default function Screen({ rest, isOn = true }) {
  if (!isOn) return html`<${NoBroker} />`;
  return rest ? html`<${Message} id=${rest} />` : html`<${Messages} />`;
}
