// The same command line as contract.py, for peers that run on Node. See there for what each command promises.
// Node looks for packages beside the program, so setup.py copies these files beside node_modules.

import { appendFileSync, openSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const UNSUPPORTED = { unsupported: true };

// Date.now() has only milliseconds. This sum is CLOCK_REALTIME at process start plus monotonic time, so it would
// miss a clock that is stepped during the run.
export const nowInNanoseconds = () =>
  BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

// Writes down when each handler started; without a path it does nothing. Times travel as strings, because
// they do not fit into a JavaScript number.
export function startLog(path) {
  if (!path) return { note() {} };
  const file = openSync(path, "a");
  return { note: (payload) => appendFileSync(file, `${payload.at} ${nowInNanoseconds()}\n`) };
}

export function untilTerminated() {
  return new Promise((resolve) => process.once("SIGTERM", resolve));
}

export async function obey(peer) {
  const [command, ...args] = process.argv.slice(2);
  const answer = await carryOut(peer, command, args);
  if (answer !== undefined) {
    console.log(typeof answer === "string" ? answer : JSON.stringify(answer));
  }
  process.exit(0);
}

async function carryOut(peer, command, [dsn, ...rest]) {
  switch (command) {
    case "left-sql":
      return peer.left;
    case "finished-sql":
      return peer.finished ?? UNSUPPORTED;
    case "install":
      return peer.install(dsn);
    case "put-many":
      return putMany(peer, dsn, Number(rest[0]));
    case "put-one":
      return putOne(peer, dsn, Number(rest[0]));
    case "work":
      return peer.work(dsn, startLog(rest[0]));
    case "latency-work":
      return peer.latencyWork(dsn, startLog(rest[0]));
    case "latency-put":
      return putPaced(peer, dsn, Number(rest[0]), Number(rest[1]));
    case "burst-put":
      return putBurst(peer, dsn, Number(rest[0]), Number(rest[1]));
    case "left":
      return Number((await query(dsn, peer.left))[0].count);
    case "future":
      return seed(dsn, peer.future, Number(rest[0]));
    case "done":
      return seed(dsn, peer.done, Number(rest[0]));
    default:
      throw new Error(`unknown command: ${command}`);
  }
}

const secondsSince = (begun) => (performance.now() - begun) / 1000;

async function putMany(peer, dsn, n) {
  const payloads = Array.from({ length: n }, (_, number) => ({ n: number, at: "0" }));
  const client = await peer.client(dsn);
  const begun = performance.now();
  await client.putMany(payloads);
  return { seconds: secondsSince(begun), n };
}

async function putOne(peer, dsn, n) {
  const client = await peer.client(dsn);
  // The first put prepares statements and warms caches: a long-lived client has done so.
  await client.put({ n: -1, at: "0" });
  const begun = performance.now();
  for (let number = 0; number < n; number++) await client.put({ n: number, at: "0" });
  return { seconds: secondsSince(begun), n };
}

async function putPaced(peer, dsn, n, rate) {
  const client = await peer.client(dsn, { live: true });
  const begun = performance.now();
  for (let number = 0; number < n; number++) {
    const wait = begun + (number * 1000) / rate - performance.now();
    if (wait > 0) await sleep(wait);
    await client.put({ n: number, at: String(nowInNanoseconds()) });
  }
  return { seconds: secondsSince(begun), n };
}

async function putBurst(peer, dsn, n, seconds) {
  const client = await peer.client(dsn);
  const begun = performance.now();
  const due = nowInNanoseconds() + BigInt(Math.round(seconds * 1e9));
  const payloads = Array.from({ length: n }, (_, number) => ({ n: number, at: String(due) }));
  await client.putMany(payloads, new Date(Number(due / 1_000_000n)));
  return { seconds: secondsSince(begun), n };
}

async function query(dsn, sql, values = []) {
  const client = new pg.Client(dsn);
  await client.connect();
  const { rows } = await client.query(sql, values);
  await client.end();
  return rows;
}

async function seed(dsn, sql, n) {
  if (!sql) return UNSUPPORTED;
  await query(dsn, sql, [n]);
  // Rows that have stood in a real store for days have been vacuumed, analysed and written to disk long since.
  await query(dsn, "vacuum analyze");
  await query(dsn, "checkpoint");
  return { n };
}
