// The reference of the API: every operation of its OpenAPI document by topic, with examples, a curl command, and a form
// to try the operations that only read.
import { html, useMemo, useState, classes } from "../lib/ui.js";
import { get, root } from "../lib/api.js";
import { query, setQuery, changed, Link } from "../lib/router.js";
import { useLive } from "../lib/live.js";
import { count } from "../lib/time.js";
import { stringify } from "../lib/json.js";
import { Title } from "../parts/shell.js";
import { Table } from "../parts/table.js";
import { Command, Copy, Empty, Loaded } from "../parts/marks.js";
import { Json } from "../parts/json_view.js";

/** @type {Record<string, string>} */
const TONES = { get: "running", post: "done", put: "retrying", patch: "retrying", delete: "failed" };
/** @typedef {any} Json a part of the OpenAPI document */
/** @typedef {{ method: string, path: string, parameters?: Json[], [key: string]: any }} Operation */

const DEEP = 4; // levels of a shape that are shown
// Every operation may answer with these errors; they are listed once.
const SHARED = new Set(["400", "401", "403", "404", "405", "409", "413", "415", "422", "429", "503"]);

/**
 * @param {Json} document
 * @param {Json} schema
 */
const resolve = (document, schema) =>
  schema?.$ref ? (document.components.schemas[schema.$ref.split("/").at(-1)] ?? {}) : (schema ?? {});

/**
 * A shape in a few words: string, integer, list of Item, one of a, b.
 * @param {Json} document
 * @param {Json} schema
 * @returns {string}
 */
function words(document, schema) {
  if (!schema) return "anything";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.const !== undefined) return stringify(schema.const);
  if (schema.enum) return schema.enum.map((/** @type {unknown} */ each) => stringify(each)).join(", ");
  const some = schema.anyOf ?? schema.oneOf;
  if (some) return some.map((/** @type {Json} */ each) => words(document, each)).join(" or ");
  if (schema.type === "array") return `list of ${words(document, schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties && schema.additionalProperties !== true) {
    return `object of ${words(document, schema.additionalProperties)}`;
  }
  const bounds = [
    ["minimum", "at least"],
    ["exclusiveMinimum", "more than"],
    ["maximum", "at most"],
    ["maxLength", "up to"],
  ]
    .filter(([name]) => schema[name] !== undefined)
    .map(([name, word]) => `${word} ${count(schema[name])}${name === "maxLength" ? " characters" : ""}`);
  return [
    schema.format ? `${schema.type} (${schema.format})` : (schema.type ?? "anything"),
    ...bounds,
  ].join(", ");
}

/**
 * An example of a shape: the one that it names, or one made of its fields.
 * @param {Json} document
 * @param {Json} schema
 * @returns {unknown}
 */
function exampleOf(document, schema, depth = 0) {
  const of = resolve(document, schema);
  if (of.examples?.length) return of.examples[0];
  if (of.default !== undefined) return of.default;
  if (of.const !== undefined) return of.const;
  if (of.enum) return of.enum[0];
  const some = of.anyOf ?? of.oneOf;
  if (some) {
    const first = some.find((/** @type {Json} */ each) => each.type !== "null") ?? some[0];
    return exampleOf(document, first, depth);
  }
  if (of.properties && depth < DEEP) {
    return Object.fromEntries(
      Object.entries(of.properties).map(([name, each]) => [name, exampleOf(document, each, depth + 1)]),
    );
  }
  if (of.type === "array") return depth < DEEP ? [exampleOf(document, of.items, depth + 1)] : [];
  /** @type {Record<string, unknown>} */
  const plain = {
    string: of.format === "date-time" ? "2026-12-01T09:00:00Z" : "text",
    integer: of.minimum ?? 1,
    number: of.minimum ?? 1,
    boolean: true,
    object: {},
  };
  return plain[of.type] ?? null;
}

/**
 * Text in which what is between backticks is code.
 * @param {string} text
 */
const prose = (text) => (text ?? "").split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

/** @param {{ document: Json, schema: Json }} props */
function Shape({ document, schema }) {
  const of = resolve(document, schema);
  if (!of.properties) {
    return html`<p><code>${words(document, schema)}</code></p>`;
  }
  const needed = new Set(of.required ?? []);
  return html`
    <${Table}
      label=${`Fields of ${schema.$ref?.split("/").at(-1) ?? "the body"}`}
      rows=${Object.entries(of.properties).map(([id, each]) => ({ id, each }))}
      columns=${[
        {
          title: "Field",
          cell: (row) => html`
            <code>${row.id}</code>
            ${needed.has(row.id) && html` <small>required</small>`}
          `,
        },
        { title: "Type", cell: (row) => html`<span class="wide-type">${words(document, row.each)}</span>` },
        {
          title: "Meaning",
          cell: (row) =>
            row.each.description
              ? prose(row.each.description)
              : row.each.default !== undefined && row.each.default !== null
                ? `Default: ${stringify(row.each.default)}.`
                : "",
        },
      ]}
    />
  `;
}

/** @param {string} text */
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * The line that does this in a shell.
 * @param {Json} document
 * @param {Operation} operation
 */
function curlOf(document, operation) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const verb = operation.method === "get" ? "" : `-X ${operation.method.toUpperCase()} `;
  const payload = body
    ? ` -H 'Content-Type: application/json' -d ${quote(stringify(exampleOf(document, body)))}`
    : "";
  const url = quote(location.origin + root + operation.path);
  return `curl ${verb}-H "Authorization: Bearer $DULY_API_KEY"${payload} ${url}`;
}

/**
 * Ask it here, as who one is.
 * @param {{ operation: Operation }} props
 */
function Try({ operation }) {
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const names = (operation.parameters ?? []).filter((each) => each.in !== "header");
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const at = operation.path.replace(/\{(\w+)(?::\w+)?\}/g, (_, name) =>
      encodeURIComponent(String(form.get(name) ?? "")),
    );
    setBusy(true);
    try {
      setAnswer({
        value: await get(
          at,
          Object.fromEntries(
            names.filter((each) => each.in === "query").map(({ name }) => [name, form.get(name)]),
          ),
        ),
      });
    } catch (error) {
      setAnswer({ error });
    }
    setBusy(false);
  };
  return html`
    <details class="try">
      <summary>Try it</summary>
      <form class="form" onSubmit=${send}>
        ${names.map((each) => html`
          <div class="field" key=${each.name}>
            <label for=${`${operation.id}-${each.name}`}>${each.name}</label>
            <input
              id=${`${operation.id}-${each.name}`}
              name=${each.name}
              required=${each.required}
              autocomplete="off"
              spellcheck="false"
              placeholder=${each.schema?.default ?? ""}
            />
          </div>
        `)}
        <button type="submit" class="main" disabled=${isBusy}>Send</button>
      </form>
      <div role="status">
        ${answer?.error && html`<p class="wrong">${answer.error.status}: ${answer.error.message}</p>`}
      </div>
      ${answer &&
        !answer.error &&
        (typeof answer.value === "string" ? html`
          <pre tabindex="0" class="answer">${answer.value}</pre>
        ` : html`<${Json} value=${answer.value} label="Answer" />`)}
    </details>
  `;
}

const STREAMS = /events|export|rejects/; // what has no end, or is a file

/** @param {{ document: Json, operation: Operation }} props */
function Operation({ document, operation }) {
  const parameters = operation.parameters ?? [];
  const body = Object.entries(operation.requestBody?.content ?? {})[0];
  const good = Object.entries(operation.responses ?? {}).filter(([status]) => !SHARED.has(status));
  const curl = curlOf(document, operation);
  return html`
    <article class="card operation" id=${operation.id} aria-label=${operation.title}>
      <header>
        <code class=${classes("method", `is-${TONES[operation.method]}`)}>
          ${operation.method.toUpperCase()}
        </code>${" "}
        <code class="wrap">${operation.path}</code>
        <${Copy} text=${curl} label=${`Copy curl for ${operation.title}`} />
      </header>
      <p class="wrap">${prose(operation.description)}</p>
      ${parameters.length > 0 && html`
        <h3>Parameters</h3>
        <${Table}
          label=${`Parameters of ${operation.title}`}
          rows=${parameters.map((each) => ({ ...each, id: each.name }))}
          columns=${[
            {
              title: "Name",
              cell: (row) => html`
                <code>${row.name}</code>
                ${row.required && html` <small>required</small>`}
              `,
            },
            { title: "In", cell: (row) => row.in },
            {
              title: "Type",
              cell: (row) => html`<span class="wide-type">${words(document, row.schema)}</span>`,
            },
            { title: "Meaning", cell: (row) => prose(row.description) },
          ]}
        />
      `}
      ${body && html`
        <h3>Body <small>${body[0]}</small></h3>
        <${Shape} document=${document} schema=${body[1].schema} />
        <p>For example:</p>
        <pre tabindex="0">${stringify(exampleOf(document, body[1].schema), 2)}</pre>
      `}
      <h3>Answers</h3>
      ${good.map(([status, answer]) => {
        const [kind, content] = Object.entries(answer.content ?? {})[0] ?? [];
        return html`
          <details key=${status}>
            <summary>
              <strong>${status}</strong>${" "}
              ${content?.schema ? words(document, content.schema) : answer.description}${" "}
              ${kind && kind !== "application/json" && html`<small>${kind}</small>`}
            </summary>
            ${content?.schema && html`
              <${Shape} document=${document} schema=${content.schema} />
              <pre tabindex="0">${stringify(exampleOf(document, content.schema), 2)}</pre>
            `}
          </details>
        `;
      })}
      <h3>In a shell</h3>
      <${Command}>${curl}</${Command}>
      ${operation.method === "get" && !STREAMS.test(operation.path) && html`<${Try} operation=${operation} />`}
    </article>
  `;
}

/** @param {Json} document */
const operationsOf = (document) =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => TONES[method])
      .map(([method, operation]) => ({
        ...operation,
        method,
        path,
        id: `${method}-${operation.operationId}`,
        tag: operation.tags?.[0] ?? "more",
        title: operation.summary ?? operation.operationId,
        text: `${method} ${path} ${operation.summary} ${operation.description} ${operation.operationId}`.toLowerCase(),
      })),
  );

/** @param {{ document: Json }} props */
function Docs({ document }) {
  const all = useMemo(() => operationsOf(document), [document]);
  const terms = (query.value.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const tags = [...new Set(all.map((each) => each.tag))];
  const open = query.value.get("tag") ?? tags[0];
  const shown = terms.length
    ? all.filter((each) => terms.every((term) => each.text.includes(term)))
    : all.filter((each) => each.tag === open);
  return html`
    <div class="filters">
      <form role="search" onSubmit=${(event) => event.preventDefault()}>
        <input
          type="search"
          data-search
          aria-label="Search the API"
          placeholder="schedules, POST, retry …"
          value=${query.value.get("q") ?? ""}
          onInput=${(event) => setQuery({ q: event.target.value || null })}
        />
      </form>
      <span class="note number" role="status">${count(shown.length)} of ${count(all.length)} operations</span>
    </div>
    ${!terms.length && html`
      <nav class="tabs" aria-label="Topics">
        ${tags.map((tag) => html`
          <${Link}
            key=${tag}
            to=${changed({ tag: tag === tags[0] ? null : tag })}
            class=${classes("tab", tag === open && "is-here")}
            aria-current=${tag === open ? "page" : null}
          >
            ${tag} <span class="number">${all.filter((each) => each.tag === tag).length}</span>
          </${Link}>
        `)}
      </nav>
    `}
    <div class="operations">
      ${shown.map((each) => html`<${Operation} key=${each.id} document=${document} operation=${each} />`)}
    </div>
    ${shown.length === 0 && html`
      <${Empty} title="No operation matches.">
        <p>Search for a part of its path, such as <code>/api/items</code>, or for what it does.</p>
      </${Empty}>
    `}
    <details class="card">
      <summary>Errors that every operation may return</summary>
      <${Table}
        label="Errors"
        rows=${Object.entries(all[0]?.responses ?? {})
          .filter(([status]) => SHARED.has(status))
          .map(([id, each]) => ({ id, each }))}
        columns=${[
          { title: "Status", cell: (row) => row.id },
          { title: "Meaning", isWide: true, cell: (row) => row.each.description },
        ]}
      />
      <${Shape} document=${document} schema=${{ $ref: "#/components/schemas/ProblemOut" }} />
    </details>
  `;
}

export default function ApiDocs() {
  const document = useLive("/api/openapi.json", {}, { every: 0 });
  return html`
    <${Title}
      actions=${
        html`<a class="button" href=${`${root}/api/openapi.json`}>
          OpenAPI document
        </a>`
      }
    >
      API
    </${Title}>
    <p>
      Requests authenticate with a key: <code>Authorization: Bearer duly_…</code>.${" "}
      <${Link} to="/keys">Make one</${Link}>. Lists return pages: pass <code>next</code> of a page as${" "}
      <code>after</code> to get the following one.
    </p>
    <${Loaded} of=${document}>${(found) => html`<${Docs} document=${found} />`}</${Loaded}>
  `;
}
