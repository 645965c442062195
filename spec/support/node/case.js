// What the cases share: their list, the clients that they are tried with, and waiting for events.
"use strict";

const fs = require("node:fs");
const { once } = require("node:events");
const { Etcd3 } = require("etcd3");

const SECONDS = 25; // within which a case has ended, or is taken for one that hangs

const cases = new Map();

/** Makes an async function of a Server a case, by its name. */
function add(name, fn) {
  cases.set(name, fn);
}

/** Where to connect. `client` is shared by the cases, as it would be in a program. Over TLS there are files: `ca`, who is
 * trusted, and maybe `cert` and `key`, what is shown to the server. */
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

/** What an emitter has told of some events, in order: next() waits for the one after the last. */
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

/** What a watcher tells of keys: next() is such as "put a=1" or "delete a". */
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

/** Runs a case by its name, for as long as one may last. */
async function run(name, server) {
  const { late, clear } = timeout();
  try {
    await Promise.race([cases.get(name)(server), late]);
  } finally {
    clear();
  }
}

module.exports = { add, cases, run, Events, KeyEvents, Server };
