// Keys and values, and transactions of both kinds.
"use strict";

const assert = require("node:assert/strict");
const { add } = require("./case");

const MIB = 1024 * 1024;

// Enums of TypeScript, which are plain numbers in JavaScript.
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

add("large_values", async ({ client }) => {
  const value = Buffer.alloc(MIB, "0123456789abcdef");
  await client.put("lv/a").value(value);
  assert.ok((await client.get("lv/a").buffer()).equals(value));
  await assert.rejects(client.put("lv/a").value(Buffer.alloc(MIB * 1.6)), /etcdserver: request is too large/);
  await client.delete().key("lv/a");
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

// A software transaction compares its reads again when it commits.
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
