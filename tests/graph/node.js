// The configurable service of a service graph on the event loop of Node: what `graphnode` (tests/src/graph/node) is with threads and with an event
// loop of its own, by Node's own server and client of HTTP. It takes every connection, and opens as many as its calls need.
// Usage: node --expose-gc node.js PART.json; orders on standard input, a line for each on standard output.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const readline = require("node:readline");

// A caller lets an idle connection go after this, sooner than the other end does.
const KEPT_MS = 4_000;
const IDLE_MS = 10_000;
// One retry, in the unit of budgets, and how much of it is saved up at most.
const RETRY = 1_000;
const SAVED_MAX = 10 * RETRY;
// Of every answer, as that of the other runtimes.
const BODY = `{"served":true,"note":"a body of about two hundred bytes, as small answers of services have it, so that an answer is one segment and no more than that"}\n`;

// What a service is told (tests/src/graph/part.rs).
const part = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
let percent = 100;
let begun = 0;

for (const call of part.calls) {
  call.saved = RETRY;
  [call.host, call.port] = call.to.split(":");
  call.agent = new http.Agent({ keepAlive: call.pool > 0, maxFreeSockets: call.pool || 1, timeout: KEPT_MS });
}

// Takes so much CPU of this process, which has one thread that works.
function spin(micros) {
  const start = process.cpuUsage();
  for (;;) {
    const used = process.cpuUsage(start);
    if (used.user + used.system >= micros) return;
    for (let i = 0; i < 500; i++) Math.imul(i, i);
  }
}

function isMade(call, number) {
  return Math.floor((number * call.share_percent) / 100) !== Math.floor(((number - 1) * call.share_percent) / 100);
}

function ask(call) {
  return new Promise((resolve) => {
    const request = http.get({ host: call.host, port: call.port, path: "/call", agent: call.agent });
    const late = setTimeout(() => request.destroy(new Error("no answer in time")), call.timeout_ms);
    const done = (answered) => {
      clearTimeout(late);
      resolve(answered);
    };
    request.on("response", (answer) => {
      answer.resume();
      answer.on("end", () => done(answer.statusCode === 200));
      answer.on("error", () => done(false));
    });
    request.on("error", (error) => {
      clearTimeout(late);
      // The other end closed it while the request was on its way: as every client does, once more on another one.
      const again = request.reusedSocket && error.code === "ECONNRESET";
      resolve(again ? ask(call) : false);
    });
  });
}

// Whether a call was answered, at once or when it was tried again.
async function isAnswered(call) {
  const budget = call.budget_percent;
  if (budget !== null) call.saved = Math.min(SAVED_MAX, call.saved + (RETRY * budget) / 100);
  for (let failed = 0; ; ) {
    if (await ask(call)) return true;
    failed++;
    if (failed > call.retries || (budget !== null && call.saved < RETRY)) return false;
    if (budget !== null) call.saved -= RETRY;
  }
}

// Serves one request and returns the status of its answer.
async function serve() {
  const number = ++begun;
  if (part.allocate_bytes > 0) Buffer.alloc(part.allocate_bytes, 1);
  spin((part.cpu_us * percent) / 100);
  if (part.sleep_us > 0) await new Promise((resolve) => setTimeout(resolve, Math.ceil(part.sleep_us / 1000)));
  for (const [index, call] of part.calls.entries()) {
    // Calls of the same share are not all made by the same requests.
    if (isMade(call, number + 37 * index) && !(await isAnswered(call))) return 503;
  }
  return 200;
}

const server = http.createServer((request, answer) => {
  request.resume();
  serve().then((status) => {
    answer.writeHead(status, { "Content-Length": Buffer.byteLength(BODY) });
    answer.end(BODY);
  });
});
server.keepAliveTimeout = IDLE_MS;
server.on("error", (error) => fail(error));

function fail(error) {
  process.stderr.write(`graphnode: ${error.message}\n`);
  process.exit(1);
}

function unixNs() {
  return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));
}

// So many objects live while garbage is collected: each collection has to visit them.
const LIVING = 200_000;

// Collects garbage on the thread of the event loop, one collection after the other.
function collect(ms) {
  let living = null;
  for (let i = 0; i < LIVING; i++) living = { next: living, i };
  const end = performance.now() + ms;
  while (performance.now() < end) global.gc();
  return living.i;
}

async function carryOut(line) {
  const [order, ...words] = line.trim().split(/\s+/);
  const numbers = words.map(Number);
  const known = { block: 1, collect: 1, heavier: 2 }[order];
  if (known !== numbers.length || numbers.some((number) => !Number.isFinite(number))) {
    throw new Error(`${JSON.stringify(line)} is no order of a server on Node: block MS, collect MS or heavier PERCENT MS`);
  }
  const start = unixNs();
  const ms = numbers[numbers.length - 1];
  if (order === "block") {
    // Sleeps on the thread of the event loop.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  } else if (order === "collect") {
    collect(ms);
  } else {
    percent = numbers[0];
    await new Promise((resolve) => setTimeout(resolve, ms));
    percent = 100;
  }
  process.stdout.write(`{"start_unix_ns":${start},"end_unix_ns":${unixNs()}}\n`);
}

const [host, port] = part.listen.split(":");
server.listen({ host, port: Number(port), backlog: part.backlog }, async () => {
  process.stdout.write("ready\n");
  try {
    for await (const line of readline.createInterface({ input: process.stdin })) await carryOut(line);
  } catch (error) {
    fail(error);
  }
  // Whoever started it is gone.
  process.exit(0);
});
