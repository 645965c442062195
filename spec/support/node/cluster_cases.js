// Maintenance, members, and authentication that is not enabled.
"use strict";

const assert = require("node:assert/strict");
const { noop } = require("cockatiel");
const { EtcdUserNotFoundError, EtcdRoleNotFoundError } = require("etcd3");
const { add } = require("./case");

add("status", async ({ client }) => {
  const status = await client.maintenance.status();
  assert.match(status.version, /^3\.\d+\.\d+$/);
  assert.equal(status.leader, status.header.member_id);
  assert.ok(Number(status.dbSize) > 0);
  const { members, header } = await client.cluster.memberList({});
  assert.deepEqual(members.map(member => member.ID), [header.member_id]);
});

// A client of its own: the others would try again when there is no space, and then give the server up for a while.
add("alarm", server =>
  server.withClient({ faultHandling: { host: () => noop, global: noop } }, async client => {
    const { members } = await client.cluster.memberList({});
    const alarm = { memberID: members[0].ID, alarm: "Nospace" };
    const ask = async action => (await client.maintenance.alarm({ action, ...alarm })).alarms;
    assert.deepEqual(await ask("Get"), []);
    assert.deepEqual(await ask("Activate"), [alarm]);
    await assert.rejects(client.put("al/a").value("1"), { message: /etcdserver: mvcc: database space exceeded/ });
    assert.deepEqual(await ask("Get"), [alarm]);
    assert.deepEqual(await ask("Deactivate"), [alarm]);
    await client.put("al/a").value("1");
  }));

// But for HashKV, which this client cannot call.
add("maintenance", async ({ client }) => {
  await client.maintenance.defragment();
  assert.ok("hash" in (await client.maintenance.hash()));
  const { header } = await client.cluster.memberList({});
  await client.maintenance.moveLeader({ targetID: header.member_id });
  await assert.rejects(client.maintenance.moveLeader({ targetID: 1 }), {
    message: /etcdserver: bad leader transferee/,
  });
});

add("auth_disabled", async server => {
  const { client } = server;
  assert.deepEqual(await client.getUsers(), []);
  assert.deepEqual(await client.getRoles(), []);
  await assert.rejects(client.user("nobody").roles(), EtcdUserNotFoundError);
  await assert.rejects(client.role("nothing").permissions(), EtcdRoleNotFoundError);
  await assert.rejects(client.auth.authEnable(), { message: /etcdserver: root user does not exist/ });
  await server.withClient({ auth: { username: "root", password: "x" } }, async other => {
    await assert.rejects(other.get("au/a").exec(), { message: /etcdserver: authentication is not enabled/ });
  });
});
