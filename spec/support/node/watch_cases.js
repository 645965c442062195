// Watchers. This client requests progress for every watcher, and throws if a response has the id of a forgotten one.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { ConstantBackoff, noop } = require("cockatiel");
const { add, Events, KeyEvents } = require("./case");

add("watch_key", async ({ client }) => {
  const watcher = await client.watch().key("wk/a").withPreviousKV().create();
  const events = new Events(watcher, "put", "delete");
  await client.put("wk/a").value("1");
  await client.put("wk/b").value("not this");
  await client.put("wk/a").value("2");
  await client.delete().key("wk/a");
  let [name, kv, previous] = await events.next();
  assert.deepEqual([name, kv.value.toString(), previous], ["put", "1", null]);
  [name, kv, previous] = await events.next();
  assert.deepEqual([name, kv.value.toString(), previous.value.toString()], ["put", "2", "1"]);
  [name, kv, previous] = await events.next();
  assert.deepEqual([name, kv.key.toString(), previous.value.toString()], ["delete", "wk/a", "2"]);
  await watcher.cancel();
});

// A response for a cancelled watcher would end the process.
add("watch_and_cancel_while_writing", async ({ client }) => {
  let writing = true;
  const writer = (async () => {
    for (let i = 0; writing; i++) await client.put("wc/a").value(i);
  })();
  for (let i = 0; i < 100; i++) {
    const watcher = await client.watch().prefix("wc/").create();
    if (i % 2) await once(watcher, "put");
    await watcher.cancel();
  }
  writing = false;
  await writer;
});

add("watch_progress", async ({ client }) => {
  const watcher = await client.watch().key("wg/a").create();
  const { header } = await client.put("wg/other").value("1");
  let response;
  do [response] = await once(watcher, "data");
  while (response.events.length > 0 || Number(response.header.revision) < Number(header.revision));
  assert.equal(watcher.lastRevision(), String(Number(response.header.revision) + 1));
  const events = new KeyEvents(watcher);
  await client.put("wg/a").value("1");
  assert.equal(await events.next(), "put wg/a=1");
  await watcher.cancel();
});

add("watch_compacted", async ({ client }) => {
  const { header } = await client.put("wx/a").value("1");
  await client.put("wx/a").value("2");
  const { header: last } = await client.put("wx/a").value("3");
  await client.kv.compact({ revision: last.revision, physical: true });
  const watcher = client.watch().key("wx/a").startRevision(header.revision).watcher();
  const [error] = await once(watcher, "error");
  assert.match(error.message, /Watcher canceled/);
  await assert.rejects(client.get("wx/a").revision(header.revision).exec(), {
    message: /etcdserver: mvcc: required revision has been compacted/,
  });
  const other = await client.watch().key("wx/a").startRevision(last.revision).create();
  assert.equal(await new KeyEvents(other).next(), "put wx/a=3");
  await other.cancel();
});

// The spec stops the server after "watching", and starts an empty one at the same address.
add("watch_across_restart", server =>
  server.withClient({
    grpcOptions: { "grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 200 },
    faultHandling: { host: () => noop, watchBackoff: new ConstantBackoff(50) },
  }, async client => {
    const { header } = await client.put("wr/a").value("old");
    const watcher = await client.watch().key("wr/a").startRevision(header.revision).create();
    const events = new KeyEvents(watcher);
    assert.equal(await events.next(), "put wr/a=old");
    const cutOff = once(watcher, "disconnected");
    console.log("watching");
    await cutOff;
    await once(watcher, "connected");
    while ((await client.put("wr/a").value("seen")).header.revision !== header.revision);
    await client.put("wr/a").value("new");
    assert.equal(await events.next(), "put wr/a=new");
    await watcher.cancel();
  }));
