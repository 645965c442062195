// Common parts of the cases: the list of cases, their clients, and functions that wait for events.
"use strict";

const fs = require("node:fs");
const { once } = require("node:events");
const { Etcd3 } = require("etcd3");

const SECONDS = 25; // after which a case counts as hanging

const cases = new Map();

/** Registers an async function of a Server as a case, by its name. */
function add(name, fn) {
  cases.set(name, fn);
}

/** Where to connect. `client` is shared by the cases, as it would be in a program. For TLS there are files: `ca`, the
 * trusted authority, and optionally `cert` and `key`, the client's certificate. */
class Server {
  constructor(url, ca, cert, key) {
    this.url = url;
    this.credentials = ca && {
      rootCertificate: fs.readFileSync(ca),
      certChain: cert && fs.readFileSync(cert),
      privateKey: key && fs.readFileSync(key),
    };
    this.client = this.connect();
  }

  connect(options) {
    return new Etcd3({ hosts: this.url, credentials: this.credentials, ...options });
  }

  /** Runs a function with a client of its own. */
  async withClient(options, fn) {
    const client = this.connect(options);
    try {
      return await fn(client);
    } finally {
      client.close();
    }
  }
}

/** Collects events of an emitter, in order: next() waits for the next one. */
class Events {
  constructor(emitter, ...names) {
    this.queue = [];
    this.emitter = emitter;
    for (const name of names) {
      emitter.on(name, (...values) => {
        this.queue.push([name, ...values]);
        emitter.emit("case:event");
      });
    }
  }

  async next() {
    while (this.queue.length === 0) await once(this.emitter, "case:event");
    return this.queue.shift();
  }
}

/** Collects the events of a watcher: next() returns, for example, "put a=1" or "delete a". */
class KeyEvents extends Events {
  constructor(watcher) {
    super(watcher, "put", "delete");
  }

  async next() {
    const [name, kv] = await super.next();
    return name === "put" ? `put ${kv.key}=${kv.value}` : `delete ${kv.key}`;
  }
}

function timeout() {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the case does not end")), SECONDS * 1000);
  });
  return { late, clear: () => clearTimeout(timer) };
}

/** Runs a case by its name, with a time limit. */
async function run(name, server) {
  const { late, clear } = timeout();
  try {
    await Promise.race([cases.get(name)(server), late]);
  } finally {
    clear();
  }
}

module.exports = { add, cases, run, Events, KeyEvents, Server };
