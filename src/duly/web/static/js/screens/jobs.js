// Jobs: files of rows. A file is dropped here, looked at before anything is kept, and sent.
import { html, useEffect, useRef, useState, classes } from "../lib/ui.js";
import { may, post, upload, pagesOf } from "../lib/api.js";
import { go, query } from "../lib/router.js";
import { useLive, forget } from "../lib/live.js";
import { count } from "../lib/time.js";
import { stringify } from "../lib/json.js";
import { Grid } from "../parts/grid.js";
import { Filters } from "../parts/filters.js";
import { Title } from "../parts/shell.js";
import { Table, idColumn } from "../parts/table.js";
import { act, ask, say } from "../parts/dialogs.js";
import { Field } from "../parts/fields.js";
import { Bar, Command, Empty, State, Time, Trouble } from "../parts/marks.js";

const GLIMPSE = 1024 * 1024; // bytes of a large table that are enough to look at its first rows
const LONG = 60; // characters of a cell
/**
 * How a table is read, where the person knows better than what was found out.
 * @type {{ name: "header" | "delimiter", label: string, words: [string, string][] }[]}
 */
const READING = [
  {
    name: "header",
    label: "First row",
    words: [
      ["true", "names of columns"],
      ["false", "already a row"],
    ],
  },
  {
    name: "delimiter",
    label: "Between cells",
    words: [
      [",", "comma"],
      [";", "semicolon"],
      ["\t", "tab"],
      ["|", "bar"],
    ],
  },
];

/**
 * What of a file is sent to be looked at: the beginning of a large text, up to the end of a line.
 * @param {File} file
 */
async function beginning(file) {
  if (file.size <= 2 * GLIMPSE || !/\.(csv|tsv|txt|jsonl|ndjson)$/i.test(file.name)) return file;
  const part = new Uint8Array(await file.slice(0, GLIMPSE).arrayBuffer());
  const end = part.lastIndexOf(10);
  return new File([part.subarray(0, end < 0 ? part.length : end + 1)], file.name);
}

/** @param {any} value */
const short = (value) => {
  const text = typeof value === "string" ? value : stringify(value);
  return text.length > LONG ? `${text.slice(0, LONG)}…` : text;
};

/** @typedef {Answer<"/api/jobs/types">["items"][number]} JobType */
/** @typedef {{ jobType: string, mapping?: Record<string, string>, header?: string, delimiter?: string }} SendOptions */

/**
 * A file that is about to become a job: its type, the mapping of its columns, its first rows, then its upload.
 * @param {{ file: File, types: JobType[], onGone: (jobId?: number) => void }} props
 */
function Sending({ file, types, onGone }) {
  const isPicture = /\.(png|jpe?g|webp|gif|zip)$/i.test(file.name);
  const fitting = types.filter((each) => each.kinds.includes("image") === isPicture);
  const [options, setOptions] = useState(
    /** @type {SendOptions} */ ({
      jobType: (fitting.find((each) => each.name === "csv") ?? fitting[0] ?? types[0]).name,
    }),
  );
  const [glimpse, setGlimpse] = useState(/** @type {any} */ (null));
  const [wrong, setWrong] = useState(/** @type {any} */ (null));
  const [sent, setSent] = useState(/** @type {any} */ (null));
  const sending = useRef(/** @type {any} */ (null));
  const type = types.find((each) => each.name === options.jobType);
  const fields = { ...options, mapping: options.mapping && stringify(options.mapping) };
  useEffect(() => {
    let isOver = false;
    /** @type {ReturnType<typeof upload> | null} */
    let looking = null;
    beginning(file)
      .then((part) => {
        if (isOver) return null;
        looking = upload("/api/jobs/preview", part, fields);
        return looking.done;
      })
      .then(
        (found) => {
          if (found && !isOver) {
            setGlimpse(found);
            setWrong(null);
          }
        },
        (error) => {
          if (!isOver) setWrong(error);
        },
      );
    return () => {
      isOver = true;
      looking?.stop();
    };
  }, [stringify(options)]);
  /** @param {string} name */
  const tell = (name) => (/** @type {{ target: HTMLInputElement }} */ event) =>
    setOptions({ ...options, [name]: event.target.value || undefined });
  /** @param {string} field */
  const map = (field) => (/** @type {{ target: HTMLInputElement }} */ event) => {
    const changed = { ...(options.mapping ?? glimpse.mapping), [field]: event.target.value };
    if (!event.target.value) delete changed[field];
    setOptions({ ...options, mapping: changed });
  };
  const create = async () => {
    setSent(0);
    sending.current = upload("/api/jobs", file, fields, setSent);
    try {
      const made = await sending.current.done;
      forget();
      say(`${file.name} is job ${made.jobId}.`);
      onGone(made.jobId);
    } catch (error) {
      setWrong(error);
      setSent(null);
    }
  };
  const mapping = options.mapping ?? glimpse?.mapping ?? {};
  /** @type {Column<any>[] | null} */
  const columns = glimpse && [
    { title: "Line", isNumber: true, cell: (row) => row.line },
    ...glimpse.columns
      .slice(0, 12)
      .map((/** @type {string} */ column) => ({
        title: column,
        cell: (/** @type {any} */ row) => short(row.values[column] ?? ""),
      })),
    {
      title: "Problems",
      isWide: true,
      cell: (row) =>
        row.problems.length ? html`<span class="wrong">${row.problems.join("; ")}</span>` : html`
          <${State} of="ok" label="fits" />
        `,
    },
  ];
  return html`
    <section class="card sending" aria-label=${`Send ${file.name}`}>
      <header class="title">
        <h2>${file.name} <small>${count(Math.ceil(file.size / 1024))} kB</small></h2>
      </header>
      <div class="form">
        <${Field}
          name=${`type-${file.name}`}
          label="Type of job"
          type="select"
          value=${options.jobType}
          options=${types.map((each) => [each.name, `${each.name} (${each.task})`])}
          onChange=${(event) => {
            setGlimpse(null);
            setOptions({ ...options, jobType: event.target.value, mapping: undefined });
          }}
        />
        ${READING.map(({ name, label, words }) => html`
          <${Field}
            key=${name}
            name=${`${name}-${file.name}`}
            label=${label}
            type="select"
            value=${options[name] ?? ""}
            options=${[["", "found out"], ...words]}
            onChange=${tell(name)}
          />
        `)}
      </div>
      ${wrong && html`<${Trouble} error=${wrong} />`}
      ${!glimpse && !wrong && html`<p class="loading" role="status">Looking at the first rows…</p>`}
      ${glimpse && html`
        ${type?.fields && html`
          <h3>Which column is which field</h3>
          <div class="form mapping">
            ${type.fields.map((field) => html`
              <${Field}
                key=${field.name}
                name=${`map-${file.name}-${field.name}`}
                label=${field.name}
                type="select"
                value=${mapping[field.name] ?? ""}
                options=${[["", "not in this file"], ...glimpse.columns]}
                onChange=${map(field.name)}
              />
            `)}
          </div>
          ${type.fields.some((field) => field.isNeeded) && html`
            <p class="note">
              A row needs at least one of${" "}
              ${type.fields
                .filter((field) => field.isNeeded)
                .map((field) => field.name)
                .join(", ")}
              .
            </p>
          `}
          ${glimpse.unused.length > 0 && html`<p class="note">Not used: ${glimpse.unused.join(", ")}.</p>`}
        `}
        <h3>
          The first ${count(glimpse.rows.length)} rows${" "}
          <small>
            ${glimpse.kind},${" "}
            ${glimpse.refused
              ? `${glimpse.refused} would be refused. The others are processed; refused rows can be fixed later`
              : "all of them are valid"}
          </small>
        </h3>
        <${Table}
          label=${`First rows of ${file.name}`}
          columns=${columns}
          rows=${glimpse.rows}
          keyOf=${(row) => String(row.number)}
          empty="The file has no rows."
        />
      `}
      <div class="form">
        ${sent === null ? html`
          <button type="button" class="main" disabled=${!glimpse} onClick=${create}>Create the job</button>
          <button type="button" onClick=${() => onGone()}>Not this file</button>
        ` : html`
          <span class="narrow">
            <${Bar} value=${sent} label=${`Sent of ${file.name}`} />
          </span>
          <span class="number" role="status">${Math.floor(sent * 100)} % sent</span>
          <button type="button" onClick=${() => sending.current.stop()}>Stop</button>
        `}
      </div>
    </section>
  `;
}

/** @param {{ onFiles: (value?: any) => unknown }} props */
function Drop({ onFiles }) {
  const [isOver, setOver] = useState(false);
  const picker = useRef(/** @type {any} */ (null));
  /** @param {any} event */
  const take = (event) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer.files.length) onFiles([...event.dataTransfer.files]);
  };
  return html`
    <div
      class=${classes("drop", isOver && "is-over")}
      onDragOver=${(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave=${() => setOver(false)}
      onDrop=${take}
    >
      <p>
        <strong>Drop files here</strong>: CSV, Excel, JSON lines, pictures, or a zip file of them.
      </p>
      <button type="button" onClick=${() => picker.current.click()}>Choose files</button>
      <input
        ref=${picker}
        type="file"
        multiple
        class="offscreen"
        tabindex="-1"
        aria-label="Files to send"
        onChange=${(event) => {
          onFiles([...event.target.files]);
          event.target.value = "";
        }}
      />
    </div>
  `;
}

/** @type {Column<Wire.Job>[]} */
const COLUMNS = [
  idColumn("Job", "/jobs"),
  {
    title: "File",
    width: "minmax(120px, 2fr)",
    cell: (job) => html`<span class="clip">${job.name ?? html`<span class="none">${job.task}</span>`}</span>`,
  },
  {
    title: "Type",
    width: "110px",
    isMinor: true,
    cell: (job) => job.jobType && html`<span class="pill">${job.jobType}</span>`,
  },
  {
    title: "State",
    width: "115px",
    cell: (job) => html`<${State} of=${job.queueState} label=${job.cancelled ? "CANCELLED" : null} />`,
  },
  {
    title: "Progress",
    width: "130px",
    isMinor: true,
    cell: (job) => html`
      <${Bar}
        value=${job.totalItems ? job.processedItems / job.totalItems : 0}
        label=${`Progress of job ${job.id}`}
        tone="done"
      />
    `,
  },
  {
    title: "Rows",
    width: "90px",
    isNumber: true,
    cell: (job) => `${count(job.totalItems)}${job.isComplete ? "" : "+"}`,
  },
  { title: "Errors", width: "80px", isNumber: true, cell: (job) => count(job.failedItems) },
  {
    title: "A minute",
    width: "90px",
    isNumber: true,
    isMinor: true,
    cell: (job) => (job.perMinute ? count(Math.round(job.perMinute)) : "–"),
  },
  {
    title: "Done by",
    isTime: true,
    isMinor: true,
    cell: (job) => html`<${Time} at=${job.finishedAt ?? job.forecastAt} />`,
  },
  {
    title: "Owner",
    width: "90px",
    isMinor: true,
    isAdmin: true,
    cell: (job) => job.userId ?? html`<span class="none">–</span>`,
  },
  { title: "Created", isTime: true, isMinor: true, cell: (job) => html`<${Time} at=${job.createdAt} />` },
];

export default function Jobs() {
  const types = useLive("/api/jobs/types", { pageSize: 500 }, { every: 0 });
  const [files, setFiles] = useState(/** @type {File[]} */ ([]));
  const [changes, setChanges] = useState(0);
  const known = types.data?.items ?? [];
  const jobType = query.value.get("jobType");
  const userId = may("admin") ? query.value.get("userId") : null;
  /** @param {File[]} found */
  const take = (found) =>
    setFiles((before) => [
      ...before,
      ...found.filter((each) => !before.some((other) => other.name === each.name)).slice(0, 20),
    ]);
  /** @param {File} file */
  const gone = (file) => (/** @type {number | undefined} */ jobId) => {
    setFiles((before) => before.filter((each) => each !== file));
    if (jobId && files.length === 1) go(`/jobs/${jobId}`);
    else if (jobId) setChanges((times) => times + 1);
  };
  const address = () =>
    ask({
      title: "A file from an address",
      text: "The settings list the allowed addresses.",
      yes: "Create the job",
      fields: [
        {
          name: "source",
          label: "Address",
          required: true,
          placeholder: "s3://drop/incoming/products.csv",
          hint: "s3://…, ftp://…, ftps://… or file:name",
        },
        {
          name: "jobType",
          label: "Type of job",
          type: "select",
          options: known.map((each) => each.name),
        },
      ],
      check: async (options) => {
        const made = await post("/api/jobs", options);
        forget();
        go(`/jobs/${made.jobId}`);
      },
    });
  const scan = () =>
    act(
      () => post("/api/ingestion/scan", {}),
      ({ took, refused, held }) =>
        [`${count(took)} new files were taken, ${count(refused)} were refused.`, held].filter(Boolean).join(" "),
      { after: () => setChanges((times) => times + 1) },
    );
  const fields = [
    { name: "jobType", label: "Type", options: known.map((each) => each.name) },
    ...(may("admin") ? [{ name: "userId", label: "Owner" }] : []),
  ];
  const actions = may("write") && known.length > 0 && html`
    ${may("admin") && html`
      <button type="button" onClick=${address}>From an address</button>
      <button type="button" onClick=${scan}>Look for new files</button>
    `}
  `;
  return html`
    <${Title} actions=${actions}>Jobs</${Title}>
    ${may("write") && known.length > 0 && html`<${Drop} onFiles=${take} />`}
    ${types.data && !known.length && html`
      <p class="note">
        No type of job is known here, so files cannot be sent. Name a provider for products, or give
        your app a type with <code>app.job_type</code>.
      </p>
    `}
    ${files.map((file) => html`<${Sending} key=${file.name} file=${file} types=${known} onGone=${gone(file)} />`)}
    <${Filters}
      fields=${fields}
      placeholder="jobType:csv"
      free=${(text) => {
        if (/^\d+$/.test(text)) {
          go(`/jobs/${text}`);
          return undefined;
        }
        return "Type type:csv; a number is a job.";
      }}
    />
    <${Grid}
      name=${`jobs ${jobType} ${userId}`}
      label="Jobs"
      every=${8}
      changes=${changes}
      columns=${COLUMNS.filter((column) => !column.isAdmin || may("admin"))}
      to=${(job) => `/jobs/${job.id}`}
      load=${pagesOf("/api/jobs", { jobType, userId })}
      empty=${
        html`<${Empty} title="No jobs yet.">
          <p>Drop a file above, or send one from a terminal:</p>
          <${Command}>duly jobs create products.csv</${Command}>
        </${Empty}>`
      }
    />
  `;
}
