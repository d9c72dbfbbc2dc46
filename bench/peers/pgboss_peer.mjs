// pg-boss: two fetchers per process, each taking batches of 2000 without a pause while they come back full; it keeps
// completed jobs for a week. Its low-latency mode is opt-in twice, per instance (useListenNotify) and per queue (notify), so
// latency has a queue of its own and bulk puts do not pay for notifications.

import { PgBoss } from "pg-boss";
import { obey, untilTerminated } from "./contract.mjs";

const QUEUE = "bench";
const LIVE_QUEUE = "bench_live";
const PUT_CHUNK = 10_000;

const left = "select count(*) from pgboss.job where state < 'completed' and start_after <= now()";

const finished = "select count(*) from pgboss.job where state = 'completed'";

const future = `
insert into pgboss.job (name, data, policy, start_after, keep_until)
select '${QUEUE}', jsonb_build_object('n', n, 'at', '0'), 'standard',
       due, due + interval '14 days'
  from (select n, now() + interval '1 year' + n * interval '1 second' as due
          from generate_series(1, $1::int) n) rows`;

const done = `
insert into pgboss.job (name, data, policy, state, start_after, created_on, started_on, completed_on)
select '${QUEUE}', jsonb_build_object('n', n, 'at', '0'), 'standard', 'completed', seen, seen, seen, seen
  from (select n, now() - n * interval '3 milliseconds' as seen from generate_series(1, $1::int) n) rows`;

async function start(dsn, options = {}) {
  const boss = new PgBoss({ connectionString: dsn, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function install(dsn) {
  const boss = await start(dsn);
  await boss.createQueue(QUEUE);
  await boss.createQueue(LIVE_QUEUE, { notify: true });
  await boss.stop();
}

async function client(dsn, { live = false } = {}) {
  // A process that only sends needs neither maintenance nor cron.
  const boss = await start(dsn, { supervise: false, schedule: false });
  const queue = live ? LIVE_QUEUE : QUEUE;
  return {
    put: (payload) => boss.send(queue, payload),
    async putMany(payloads, startAfter) {
      for (let from = 0; from < payloads.length; from += PUT_CHUNK) {
        const chunk = payloads.slice(from, from + PUT_CHUNK);
        await boss.insert(queue, chunk.map((data) => ({ data, startAfter })));
      }
    },
  };
}

async function work(dsn, log) {
  const boss = await start(dsn);
  const options = {
    batchSize: 2000,
    localConcurrency: 2,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  await boss.work(QUEUE, options, async (jobs) => {
    for (const job of jobs) log.note(job.data);
  });
  await untilTerminated();
  await boss.stop({ timeout: 5000 });
}

async function latencyWork(dsn, log) {
  const boss = await start(dsn, { useListenNotify: true });
  // With its default batch of one, two notifications during one fetch count as one, and the second job
  // waits for the next notification or for the 30 s poll.
  await boss.work(LIVE_QUEUE, { batchSize: 50 }, async (jobs) => {
    for (const job of jobs) log.note(job.data);
  });
  await untilTerminated();
  await boss.stop({ timeout: 5000 });
}

await obey({ install, client, work, latencyWork, left, finished, future, done });
