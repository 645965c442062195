// SPDX-License-Identifier: MIT
// npm's etcd3 at work: the same program as peer.lua.
//
// Many in flight are as many async functions with one client. Values are taken as buffers, without the cost of making
// strings of them. Events come with "data", which has those of a message at once.
"use strict";

const { Etcd3 } = require("etcd3");

const PREFIX = "/registry/";
const KEYS = Array.from({ length: 10000 }, (_, i) => PREFIX + String(i).padStart(10, "0"));
const VALUE = "v".repeat(100);
const WARMING = 1000;

function moment() {
  const { user, system } = process.cpuUsage();
  return { seconds: performance.now() / 1e3, cpu: (user + system) / 1e6 };
}

function report(start, bytes) {
  const end = moment();
  console.log(`seconds=${end.seconds - start.seconds} cpu=${end.cpu - start.cpu} bytes=${bytes}`);
}

const requests = {
  async get(client, key) {
    return (await client.get(key).buffer()).length;
  },
  async put(client, key) {
    await client.put(key).value(VALUE);
    return VALUE.length;
  },
};

/** Calls fn n times, with so many under way. Returns the bytes of all. */
async function run(client, fn, n, inFlight) {
  let bytes = 0;
  async function work(_, first) {
    for (let i = first; i < n; i += inFlight) {
      const more = await fn(client, KEYS[i % KEYS.length]);
      bytes += more;
    }
  }
  await Promise.all(Array.from({ length: inFlight }, work));
  return bytes;
}

async function measureRequests(client, fn, n, inFlight) {
  await run(client, fn, WARMING, inFlight);
  const start = moment();
  report(start, await run(client, fn, n, inFlight));
}

/** Counts n events and their bytes, and reports. `start` is when that began: with the first, unless it is known. */
async function count(watcher, n, start) {
  let bytes = 0;
  await new Promise(resolve => {
    watcher.on("data", response => {
      start ??= moment();
      for (const { kv } of response.events) {
        bytes += kv.key.length + kv.value.length;
        n--;
      }
      if (n === 0) resolve();
    });
  });
  report(start, bytes);
  await watcher.cancel();
}

async function measureWatch(client, n) {
  const watcher = await client.watch().prefix(PREFIX).create();
  const counted = count(watcher, n);
  console.log("watching");
  await counted;
}

async function measureHistory(client, n) {
  await client.get(PREFIX).exists();
  const start = moment();
  await count(await client.watch().prefix(PREFIX).startRevision("1").create(), n, start);
}

async function main() {
  const [port, what, n, inFlight] = process.argv.slice(2);
  const client = new Etcd3({ hosts: "http://127.0.0.1:" + port });
  if (what === "watch") await measureWatch(client, Number(n));
  else if (what === "history") await measureHistory(client, Number(n));
  else await measureRequests(client, requests[what], Number(n), Number(inFlight));
  client.close();
}

main();
