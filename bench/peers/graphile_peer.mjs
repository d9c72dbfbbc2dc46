// graphile-worker: the preset of its performance page (worker.graphile.org/docs/performance), a local queue and
// batched completion, but with a queue of 2000 instead of 500, which is faster here. It deletes finished jobs.

import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import { obey } from "./contract.mjs";

const PUT_CHUNK = 10_000;

const preset = {
  worker: {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 2000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: new Logger(() => (level, message) => level === "error" && console.error(message)),
  },
};

const left = "select count(*) from graphile_worker._private_jobs where run_at <= now()";

const future = `
insert into graphile_worker._private_jobs (task_id, payload, run_at)
select tasks.id, json_build_object('n', n, 'at', '0'), now() + interval '1 year' + n * interval '1 second'
  from graphile_worker._private_tasks tasks, generate_series(1, $1::int) n
 where tasks.identifier = 'noop'`;

async function install(dsn) {
  await runMigrations({ connectionString: dsn, preset });
  const utils = await makeWorkerUtils({ connectionString: dsn, preset });
  // The first job registers the task, which the seeds refer to.
  const job = await utils.addJob("noop", {});
  await utils.completeJobs([job.id]);
  await utils.release();
}

async function client(dsn) {
  const utils = await makeWorkerUtils({ connectionString: dsn, preset });
  return {
    put: (payload) => utils.addJob("noop", payload),
    async putMany(payloads, runAt) {
      for (let from = 0; from < payloads.length; from += PUT_CHUNK) {
        const chunk = payloads.slice(from, from + PUT_CHUNK);
        await utils.addJobs(chunk.map((payload) => ({ identifier: "noop", payload, runAt })));
      }
    },
  };
}

async function work(dsn, log) {
  const taskList = { noop: async (payload) => log.note(payload) };
  const runner = await run({ connectionString: dsn, preset, taskList });
  // It stops by itself on SIGTERM.
  await runner.promise;
}

await obey({ install, client, work, latencyWork: work, left, future });
