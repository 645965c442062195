// Keys and values: what one call can do, namespaces, and transactions of both kinds.
"use strict";

const assert = require("node:assert/strict");
const { STMConflictError } = require("etcd3");
const { add } = require("./case");

const MIB = 1024 * 1024;

// TypeScript has their names; what is left of them in JavaScript are numbers.
const SERIALIZABLE_SNAPSHOT = 0, SERIALIZABLE = 1, REPEATABLE_READS = 2;

add("put_and_get", async ({ client }) => {
  const { header } = await client.put("pg/a").value("1");
  assert.equal(await client.get("pg/a"), "1");
  assert.equal(await client.get("pg/a").string(), "1");
  assert.equal(await client.get("pg/a").number(), 1);
  assert.equal(await client.get("pg/nothing"), null);
  assert.equal(await client.get("pg/a").exists(), true);
  assert.equal(await client.get("pg/nothing").exists(), false);

  const previous = await client.put("pg/a").value("2").getPrevious();
  assert.equal(previous.value.toString(), "1");
  assert.equal(await client.get("pg/a").revision(header.revision), "1");
  assert.equal(await client.get("pg/a").serializable(true), "2");
  const { kvs } = await client.get("pg/a").exec();
  assert.deepEqual([kvs[0].create_revision, kvs[0].version, kvs[0].lease], [header.revision, "2", "0"]);

  await client.put("pg/a").touch();
  assert.equal((await client.get("pg/a").exec()).kvs[0].version, "3");
  assert.equal(await client.get("pg/a"), "2");

  await client.put("pg/json").value(JSON.stringify({ a: [1, 2] }));
  assert.deepEqual(await client.get("pg/json").json(), { a: [1, 2] });
});

add("any_bytes", async ({ client }) => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const key = Buffer.concat([Buffer.from("ab/"), bytes]);
  await client.put(key).value(bytes);
  assert.deepEqual(await client.get(key).buffer(), bytes);
  const [found] = await client.getAll().prefix("ab/").keyBuffers();
  assert.deepEqual(found, key);
  await client.put("ab/ž").value("ž€😀");
  assert.equal(await client.get("ab/ž").string(), "ž€😀");
  await client.put("ab/empty").value("");
  assert.equal(await client.get("ab/empty").string(), "");
});

add("large_values", async ({ client }) => {
  const value = Buffer.alloc(MIB, "0123456789abcdef");
  await client.put("lv/a").value(value);
  assert.ok((await client.get("lv/a").buffer()).equals(value));
  await assert.rejects(client.put("lv/a").value(Buffer.alloc(MIB * 1.6)), /etcdserver: request is too large/);
  await client.delete().key("lv/a");
});

add("delete", async ({ client }) => {
  for (const name of ["a", "b", "c", "d", "e"]) await client.put("de/" + name).value(name);
  assert.equal((await client.delete().key("de/a")).deleted, "1");
  assert.equal((await client.delete().key("de/a")).deleted, "0");
  const previous = await client.delete().inRange({ start: "de/b", end: "de/d" }).getPrevious();
  assert.deepEqual(previous.map(kv => kv.value.toString()), ["b", "c"]);
  assert.equal((await client.delete().prefix("de/")).deleted, "2");
});

add("ranges", async ({ client }) => {
  const { header } = await client.put("ra/a").value("3");
  await client.put("ra/b").value("1");
  await client.put("ra/c").value("2");
  const all = () => client.getAll().prefix("ra/");
  assert.deepEqual(await all(), { "ra/a": "3", "ra/b": "1", "ra/c": "2" });
  assert.deepEqual(await all().numbers(), { "ra/a": 3, "ra/b": 1, "ra/c": 2 });
  assert.deepEqual(await all().keys(), ["ra/a", "ra/b", "ra/c"]);
  assert.deepEqual(await all().sort("Value", "Descend").keys(), ["ra/a", "ra/c", "ra/b"]);
  assert.deepEqual(await all().sort("Mod", "Descend").limit(2).keys(), ["ra/c", "ra/b"]);
  assert.equal(await all().count(), 3);
  const { more, count } = await all().limit(1).exec();
  assert.deepEqual([more, count], [true, "3"]);
  assert.deepEqual(await client.getAll().inRange({ start: "ra/b", end: "ra/c" }).keys(), ["ra/b"]);
  assert.deepEqual(await all().minModRevision(Number(header.revision) + 1).keys(), ["ra/b", "ra/c"]);
  assert.deepEqual(await all().maxCreateRevision(header.revision).keys(), ["ra/a"]);
  assert.deepEqual(await all().revision(header.revision).keys(), ["ra/a"]);
});

add("errors", async ({ client }) => {
  await assert.rejects(client.put("").value("1"), { message: /etcdserver: key is not provided/ });
  await assert.rejects(client.get("er/a").revision(1e9).exec(), {
    message: /etcdserver: mvcc: required revision is a future revision/,
  });
  await assert.rejects(client.put("er/a").value("1").lease(1234).exec(), {
    name: "Error",
    message: /etcdserver: requested lease not found/,
  });
  assert.equal(await client.get("er/a").exists(), false);
});

add("namespaces", async ({ client }) => {
  const outer = client.namespace("ns/");
  const inner = outer.namespace("in/");
  await inner.put("a").value("1");
  assert.equal(await client.get("ns/in/a"), "1");
  assert.equal(await outer.get("in/a"), "1");
  await outer.put("b").value("2");
  assert.deepEqual(await outer.getAll(), { b: "2", "in/a": "1" });
  assert.deepEqual(await inner.getAll(), { a: "1" });
  const { succeeded } = await inner.if("a", "Value", "==", "1").then(inner.put("c").value("3")).commit();
  assert.equal(succeeded, true);
  await inner.delete().all();
  assert.deepEqual(await client.getAll().prefix("ns/").keys(), ["ns/b"]);
});

add("transactions", async ({ client }) => {
  await client.put("tx/a").value("1");
  const won = await client
    .if("tx/a", "Value", "==", "1")
    .and("tx/a", "Version", "<", 2)
    .and("tx/nothing", "Create", "==", 0)
    .then(client.put("tx/a").value("2"), client.get("tx/a"), client.delete().key("tx/nothing"))
    .else(client.get("tx/a"))
    .commit();
  assert.equal(won.succeeded, true);
  assert.deepEqual(won.responses.map(answer => answer.response), [
    "response_put", "response_range", "response_delete_range",
  ]);
  assert.equal(won.responses[1].response_range.kvs[0].value.toString(), "2");
  assert.equal(won.responses[1].response_range.kvs[0].mod_revision, won.header.revision);

  const lost = await client
    .if("tx/a", "Mod", "!=", won.header.revision)
    .then(client.put("tx/a").value("3"))
    .else(client.get("tx/a"))
    .commit();
  assert.equal(lost.succeeded, false);
  assert.equal(lost.header.revision, won.header.revision);
  assert.equal(lost.responses[0].response_range.kvs[0].value.toString(), "2");
});

// Etcd's transactions are made of reads that are compared again when all is written.
add("software_transactions", async ({ client }) => {
  for (const isolation of [SERIALIZABLE_SNAPSHOT, SERIALIZABLE, REPEATABLE_READS]) {
    await client.put("stm/n").value("0");
    const addOne = () =>
      client.stm({ isolation, retries: 100 }).transact(async tx => {
        await tx.put("stm/n").value((await tx.get("stm/n").number()) + 1);
      });
    await Promise.all(Array.from({ length: 10 }, addOne));
    assert.equal(await client.get("stm/n").number(), 10);
  }
});

add("software_transactions_conflict", async ({ client }) => {
  await client.put("stmc/a").value("1");
  const conflicting = client.stm({ isolation: SERIALIZABLE_SNAPSHOT, retries: 0 }).transact(async tx => {
    await tx.get("stmc/a");
    await client.put("stmc/a").value("2");
    await tx.put("stmc/b").value("1");
  });
  await assert.rejects(conflicting, STMConflictError);
  assert.equal(await client.get("stmc/b").exists(), false);

  const moved = await client.stm().transact(async tx => {
    const value = await tx.get("stmc/a");
    await tx.delete().key("stmc/a");
    await tx.put("stmc/c").value(value);
    return value;
  });
  assert.equal(moved, "2");
  assert.deepEqual(await client.getAll().prefix("stmc/"), { "stmc/c": "2" });
});
