// Types that the dashboard's JSDoc names without an import.
import type { ComponentChildren } from "preact";
import type { Signal as PreactSignal } from "@preact/signals";
import type { paths } from "./openapi";

type Split<Path extends string> = Path extends `${infer First}/${infer Rest}` ? [First, ...Split<Rest>] : [Path];

/** Whether an address, part by part, is one of the template: `{…}` stands for any part. */
type Fits<Parts, Template> = [Parts, Template] extends [[infer Part, ...infer Rest], [infer Shape, ...infer More]]
  ? Shape extends `{${string}}`
    ? Fits<Rest, More>
    : Part extends Shape
      ? Fits<Rest, More>
      : false
  : [Parts, Template] extends [[], []]
    ? true
    : false;

/** The path of the OpenAPI document for this address; one without parameters comes first. */
type PathOf<Address extends string> = Address extends keyof paths
  ? Address
  : { [Path in keyof paths & string]: Fits<Split<Address>, Split<Path>> extends true ? Path : never }[keyof paths & string];

type Success<Operation> = Operation extends { responses: infer Responses }
  ? { [Status in keyof Responses & (200 | 201 | 202)]: Content<Responses[Status]> }[keyof Responses & (200 | 201 | 202)]
  : never;
type Content<Response> = Response extends { content: { "application/json": infer Body } } ? Body : null;

declare global {
  /** What the API answers to this method and address, by its OpenAPI document. `any` where it does not say. */
  type Answer<Address extends string, Method extends string = "get"> = [PathOf<Address>] extends [never]
    ? any
    : paths[PathOf<Address>] extends { [M in Method]: infer Operation }
      ? Success<Operation>
      : any;

  type Children = ComponentChildren;
  type Signal<Value> = PreactSignal<Value>;
  type VNode = import("preact").VNode<any>;

  /** What a template takes. Handlers and render functions get what the element or component gives them. */
  type TemplateValue =
    | ((...values: any[]) => unknown)
    | Column<any>[]
    | object
    | string
    | number
    | bigint
    | boolean
    | null
    | undefined;

  /** The sending of a form. */
  type FormEvent = SubmitEvent & { target: HTMLFormElement };

  /** A filter of a read, as parameters of its address. */
  type Query = Record<string, any>;
  type Clock = "local" | "utc" | "relative";

  /** What `useLive` gives. */
  type Live<Data> = { data: Data | undefined; error: any; isLoading: boolean; reload: () => unknown };

  /** A short message on the page. */
  type Message = { text: string; tone?: "ok" | "bad"; undo?: (() => unknown) | null; seconds?: number };

  /** A field of a form; what is not named here is an attribute of its input. */
  type FieldProps = {
    name: string;
    label: Children;
    type?: string;
    value?: any;
    hint?: Children;
    options?: Option[];
    rows?: number | string;
    required?: boolean;
    [attribute: string]: any;
  };
  type Option = string | [value: string, label: string];

  /** A column of a table or a grid. */
  type Column<Row> = {
    title: string;
    cell: (row: Row) => Children;
    isNumber?: boolean;
    /** Of a table: takes the room that is left. */
    isWide?: boolean;
    /** Of a grid: left out on a phone. */
    isMinor?: boolean;
    isTime?: boolean;
    width?: string;
    [mark: string]: unknown;
  };

  /** Reads a page of a list: `after` is the cursor of the page before. */
  type LoadPage = (
    after: string | null,
    size: number,
    stop: AbortSignal,
    age: number,
  ) => Promise<{ items: any[]; next?: string | null; search?: any }>;

  /** What the bar of a grid is drawn from. */
  type GridSelection<Row = any> = { selected: Set<string>; rows: Row[]; clear: () => void; reload: () => void };

  namespace Wire {
    type ItemStory = Answer<"/api/items/1">;
    type Item = Answer<"/api/items">["items"][number];
    type Job = Answer<"/api/jobs">["items"][number];
    type Schedule = Answer<"/api/schedules">["items"][number];
    type ScheduleStory = Omit<Answer<"/api/schedules/1">, "args"> & { args: Record<string, any> };
    type Group = Answer<"/api/review">["items"][number];
    type GroupStory = Answer<"/api/review/1">;
    type Task = Answer<"/api/tasks">["items"][number];
    type Param = Task["params"][number];
    type Me = Answer<"/api/me">;
    type Dashboard = Answer<"/api/dashboard">;
    type Now = Answer<"/api/now">;
    type BulkAct = Answer<"/api/acts/1">;
  }
}
