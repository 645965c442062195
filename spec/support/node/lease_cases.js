// Leases and elections.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { EtcdLeaseInvalidError } = require("etcd3");
const { add, Events } = require("./case");

add("lease", async ({ client }) => {
  const lease = client.lease(600, { autoKeepAlive: false });
  const id = await lease.grant();
  await lease.put("le/a").value("1");
  await client.put("le/b").value("2").lease(id);
  const { kvs } = await client.get("le/a").exec();
  assert.equal(kvs[0].lease, id);
  const { grantedTTL, keys } = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  assert.equal(grantedTTL, "600");
  assert.deepEqual(keys.map(String).sort(), ["le/a", "le/b"]);
  const { leases } = await client.leaseClient.leaseLeases();
  assert.ok(leases.some(one => one.ID === id));

  await client.put("le/b").value("3").ignoreLease();
  assert.equal((await client.get("le/b").exec()).kvs[0].lease, id);
  await client.put("le/b").value("4");
  await lease.revoke();
  assert.deepEqual(await client.getAll().prefix("le/"), { "le/b": "4" });
});

add("lease_kept_alive", async ({ client }) => {
  const lease = client.lease(3);
  const events = new Events(lease, "keepaliveSucceeded", "keepaliveFailed", "lost");
  await lease.put("lk/a").value("1");
  for (let i = 0; i < 5; i++) { // longer than the lease's ttl
    const [name, response] = await events.next();
    assert.deepEqual([name, response.TTL], ["keepaliveSucceeded", "3"]);
  }
  assert.equal(await client.get("lk/a"), "1");
  await lease.revoke();
  assert.equal(await client.get("lk/a"), null);
});

add("lease_lost", async ({ client }) => {
  const lease = client.lease(6);
  const lost = once(lease, "lost");
  const id = await lease.grant();
  await client.leaseClient.leaseRevoke({ ID: id });
  const [error] = await lost;
  assert.ok(error instanceof EtcdLeaseInvalidError);
  assert.ok(lease.revoked());

  const other = client.lease(600, { autoKeepAlive: false });
  assert.equal((await other.keepaliveOnce()).TTL, "600");
  await client.leaseClient.leaseRevoke({ ID: await other.grant() });
  await assert.rejects(other.keepaliveOnce(), EtcdLeaseInvalidError);
  await assert.rejects(other.put("ll/a").value("1").exec(), EtcdLeaseInvalidError);
});

add("election", async ({ client }) => {
  const election = client.election("el", 30);
  assert.equal(await election.leader(), undefined);
  const observer = await election.observe();
  const changes = new Events(observer, "change", "error");

  const ann = election.campaign("ann");
  await ann.wait();
  assert.equal(await election.leader(), "ann");
  assert.deepEqual(await changes.next(), ["change", "ann"]);
  await ann.proclaim("anna");
  assert.deepEqual(await changes.next(), ["change", "anna"]);

  const bob = election.campaign("bob");
  const elected = bob.wait();
  await once(bob, "_isWaiting");
  assert.equal(await election.leader(), "anna");
  await ann.resign();
  await elected;
  assert.equal(await election.leader(), "bob");
  assert.deepEqual(await changes.next(), ["change", "bob"]);
  await assert.rejects(ann.proclaim("ann"));

  await bob.resign();
  assert.deepEqual(await changes.next(), ["change", undefined]);
  await observer.cancel();
});
