// A client of the retry service that shares nothing with it but the contract: amqplib, protobufjs, and a failing consumer.
//
//     DULY_TEST_NODE=<folder with node_modules> node client.mjs amqp://… back | loop | poison
//
// It prints what it saw, one JSON object per line. Bytes are base64; `direct` and `retried` are written by util.inspect,
// which tells a Buffer from a string and a number from a BigInt.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { inspect, isDeepStrictEqual } from 'node:util';

const require = createRequire(`${process.env.DULY_TEST_NODE}/`);
const amqp = require('amqplib');
const protobuf = require('protobufjs');

const INCOMING = 'retry.scheduled';
const REVIEW = 'manual-review.pending';
const ORDERS = 'bestellungen.grün';

const { RetryMessage } = protobuf.parse(`
  syntax = "proto3";
  message RetryMessage {
    string message_id = 1;
    bytes original_payload = 2;
    string original_queue = 3;
    string error_reason = 4;
    int32 retry_count = 5;
    int32 max_retries = 6;
    int64 next_retry_at_ms = 7;
  }`).root;

const OURS = [
  'x-retry-message-id', 'x-retry-count', 'x-retry-max', 'x-retry-reason', 'x-retry-first-failure', 'x-duly-item',
];

// Every type that amqplib writes, guessed from the value or named.
const EVERY_KIND = {
  text: 'grüße, 時間', empty: '', 'x-tenant': 'acme', 'ключ': 'a name beyond ASCII',
  tiny: 7, negative: -128, short: 300, int: -70_000, long: 2 ** 40, past2to50: 2 ** 53 - 1, past2to63: 2 ** 70,
  half: 0.5, third: 1 / 3, smallest: Number.MIN_VALUE,
  yes: true, no: false, nothing: null, bytes: Buffer.from([0, 255, 128, 10]), noBytes: Buffer.alloc(0),
  list: [1, 'two', [3.5, null], { deep: true }], emptyList: [], table: { a: { b: { c: [-1] } }, empty: {} },
  time: { '!': 'timestamp', value: 1_700_000_000 }, millis: { '!': 'timestamp', value: 1_700_000_000_123 },
  decimal: { '!': 'decimal', value: { places: 2, digits: 12_345 } },
  float: { '!': 'float', value: 0.1 }, double: { '!': 'double', value: 7 },
  int8: { '!': 'int8', value: -7 }, uint8: { '!': 'uint8', value: 200 },
  int16: { '!': 'int16', value: 7 }, uint16: { '!': 'uint16', value: 65_000 },
  int32: { '!': 'int32', value: 7 }, uint32: { '!': 'uint32', value: 4_000_000_000 },
  int64: { '!': 'int64', value: -(2n ** 63n) }, bigint: { '!': 'int64', value: 2n ** 62n },
};

const EVERY_PROPERTY = {
  contentType: 'application/vnd.acme.order+protobuf', contentEncoding: 'identity', priority: 4, replyTo: 'answers',
  messageId: 'ours', timestamp: 1_700_000_000, type: 'order.created', appId: 'shop',
};

const EVERY_BYTE = Buffer.from(Array.from({ length: 1024 }, (_, n) => n % 256));

const protobufOf = (fields) => RetryMessage.encode(RetryMessage.fromObject(fields)).finish();
const jsonOf = (fields) => {
  const message = RetryMessage.fromObject(fields);
  return Buffer.from(JSON.stringify(RetryMessage.toObject(message, { bytes: String, longs: String })));
};
const snakeOf = ({ messageId, originalPayload, originalQueue, nextRetryAtMs }) =>
  Buffer.from(
    `{"message_id": "${messageId}", "original_queue": "${originalQueue}", "next_retry_at_ms": ${nextRetryAtMs},` +
    ` "original_payload": "${originalPayload.toString('base64')}", "of_a_later_contract": {"is": "ignored"}}`);

// name, how it is written, fields, the message's own properties, those of the envelope where they differ
const CASES = [
  ['every kind', protobufOf, { originalPayload: EVERY_BYTE, errorReason: '時間切れ 💥', nextRetryAtMs: '9007199254740993' },
    { ...EVERY_PROPERTY, headers: EVERY_KIND }],
  ['text', protobufOf, { originalPayload: Buffer.from('Grüße, 世界'), nextRetryAtMs: '9223372036854775807', maxRetries: 9 },
    { contentType: 'text/plain; charset=utf-8', headers: { tenant: 'acme' } }],
  ['empty', protobufOf, { originalPayload: Buffer.alloc(0), nextRetryAtMs: '-9223372036854775808' }, {}],
  ['many frames', protobufOf, { originalPayload: Buffer.alloc(300_000, EVERY_BYTE), retryCount: 2 },
    { contentType: 'application/octet-stream' }],
  ['JSON', jsonOf, { originalPayload: EVERY_BYTE, errorReason: 'süß', nextRetryAtMs: '9007199254740993', retryCount: 1 },
    { contentType: 'text/plain', headers: { ...EVERY_KIND, 'x-original-content-type': 'text/plain' } },
    { contentType: 'application/json' }],
  ['JSON by hand', snakeOf, { originalPayload: EVERY_BYTE, nextRetryAtMs: '9007199254740993' },
    { headers: EVERY_KIND }, { contentType: 'application/json; charset=utf-8' }],
];

const tell = (line) => console.log(JSON.stringify(line));
const written = (value) => inspect(value, { depth: null, sorted: true, maxArrayLength: null, maxStringLength: null });

async function send(channel, queue, body, properties = {}) {
  channel.sendToQueue(queue, body, { persistent: true, mandatory: true, ...properties });
  await channel.waitForConfirms();
}

// What a queue brings, as often as it is awaited; each is acknowledged when the next is asked for.
async function* messages(channel, queue) {
  const come = [];
  let wake = () => {};
  await channel.consume(queue, (message) => {
    if (message === null) throw new Error(`${queue} is gone`);
    come.push(message);
    wake();
  });
  for (;;) {
    while (come.length === 0) await new Promise((resolve) => { wake = resolve; });
    const message = come.shift();
    yield message;
    channel.ack(message);
  }
}

async function take(source) {
  return (await source.next()).value;
}

// Each message comes once directly and once through the service.
async function back(channel) {
  await channel.assertQueue('direct', { durable: true });
  const direct = messages(channel, 'direct');
  const retried = messages(channel, ORDERS);
  for (const [name, encode, fields, own, envelope = {}] of CASES) {
    const messageId = randomUUID();
    const properties = { correlationId: name, ...own };
    const body = encode({ messageId, originalQueue: ORDERS, ...fields });
    await send(channel, 'direct', fields.originalPayload, properties);
    await send(channel, INCOMING, body, { ...properties, ...envelope });
    const one = await take(direct);
    const other = await take(retried);
    const ours = {};
    other.properties.headers ??= {};
    for (const header of OURS) {
      ours[header] = other.properties.headers[header];
      delete other.properties.headers[header];
    }
    tell({
      name,
      messageId,
      envelope: body.toString('base64'),
      payload: fields.originalPayload.toString('base64'),
      got: other.content.toString('base64'),
      ours,
      isEqual: isDeepStrictEqual(one.properties, other.properties),
      direct: written(one.properties),
      retried: written(other.properties),
    });
  }
}

// A consumer that always fails and asks for a retry, as any of the service's users does, until a person has it.
async function loop(channel) {
  const most = { once: 1, twice: 2, asUsual: 0 };
  for (const [type, maxRetries] of Object.entries(most)) {
    const headers = { maxRetries, bytes: Buffer.from([0, 255]), price: 0.1 };
    await send(channel, ORDERS, EVERY_BYTE, { messageId: randomUUID(), type, headers });
  }
  const review = messages(channel, REVIEW);
  const fail = async () => {
    for await (const message of messages(channel, ORDERS)) {
      const { messageId, type, headers } = message.properties;
      const count = headers['x-retry-count'] ?? null;
      tell({ event: 'failed', type, count, reason: headers['x-retry-reason'] ?? null });
      const request = protobufOf({
        messageId, originalPayload: message.content, originalQueue: ORDERS,
        errorReason: `${type} failed after ${count ?? 0} retries`, retryCount: count ?? 0, maxRetries: headers.maxRetries,
      });
      await send(channel, INCOMING, request, { messageId, type, headers });
    }
  };
  const failing = fail();
  const reviewing = (async () => {
    for (const _ of Object.keys(most)) {
      const { content, properties: { messageId, type, headers } } = await take(review);
      const { bytes, price, ...others } = headers;
      tell({
        event: 'review', messageId, type, payload: content.toString('base64'), headers: others,
        isOwnKept: isDeepStrictEqual({ bytes, price }, { bytes: Buffer.from([0, 255]), price: 0.1 }),
      });
    }
  })();
  await Promise.race([failing, reviewing]);
}

// What nobody can decode goes to a person with its bytes; what comes after it is retried as ever.
async function poison(channel) {
  const whole = protobufOf({ messageId: randomUUID(), originalPayload: EVERY_BYTE, originalQueue: ORDERS });
  const bodies = {
    noise: [Buffer.from([255, 255, 255, 0, 128]), {}],
    cut: [Buffer.from(whole.subarray(0, whole.length - 100)), {}],
    json: [Buffer.from('{"message_id": '), { contentType: 'application/json' }],
    empty: [Buffer.alloc(0), {}],
  };
  for (const [type, [body, more]] of Object.entries(bodies)) {
    await send(channel, INCOMING, body, { type, headers: { list: [1, { deep: null }] }, ...more });
  }
  await send(channel, INCOMING, whole, { type: 'whole' });
  const review = messages(channel, REVIEW);
  for (const _ of Object.keys(bodies)) {
    const { content, properties: { type, headers } } = await take(review);
    tell({ type, isSame: content.equals(bodies[type][0]), reason: headers['x-review-reason'], list: headers.list });
  }
  const { content, properties } = await take(messages(channel, ORDERS));
  tell({ type: properties.type, isSame: content.equals(EVERY_BYTE) });
}

const [url, scenario] = process.argv.slice(2);
const connection = await amqp.connect(url);
const channel = await connection.createConfirmChannel();
channel.on('return', (message) => { throw new Error(`${message.fields.routingKey}: ${message.fields.replyText}`); });
await channel.assertQueue(ORDERS, { durable: true });
await { back, loop, poison }[scenario](channel);
await channel.waitForConfirms();
await connection.close();
