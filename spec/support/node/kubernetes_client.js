// npm's @kubernetes/client-node against a server with the widgets of spec/interop/kubernetes_spec.lua. Prints "done".
"use strict";

const assert = require("node:assert/strict");
const { pathToFileURL } = require("node:url");

let k8s, config, custom, MERGE; // the module, which can only be imported, and what is made of it

const PLACE = { group: "demo.example", version: "v1", namespace: "node", plural: "widgets" };
const PATH = "/apis/demo.example/v1/namespaces/node/widgets";

async function prepare() {
  k8s = await import(pathToFileURL(require.resolve("@kubernetes/client-node")));
  MERGE = k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch);
  config = new k8s.KubeConfig();
  config.loadFromOptions({
    clusters: [{ name: "c", server: process.argv[2], skipTLSVerify: true }],
    users: [{ name: "u" }],
    contexts: [{ name: "x", cluster: "c", user: "u" }],
    currentContext: "x",
  });
  custom = config.makeApiClient(k8s.CustomObjectsApi);
  await config.makeApiClient(k8s.CoreV1Api).createNamespace({ body: { metadata: { name: "node" } } });
}

function widget(name, size) {
  return { apiVersion: "demo.example/v1", kind: "Widget", metadata: { name, namespace: "node" }, spec: { size } };
}

async function fails(code, promise) {
  await assert.rejects(promise, (error) => error.code === code);
}

async function writesAndReads() {
  const made = await custom.createNamespacedCustomObject({ ...PLACE, body: widget("a", 1) });
  await fails(409, custom.createNamespacedCustomObject({ ...PLACE, body: widget("a", 1) }));
  await fails(404, custom.getNamespacedCustomObject({ ...PLACE, name: "nothing" }));
  made.spec.size = 2;
  await custom.replaceNamespacedCustomObject({ ...PLACE, name: "a", body: made });
  await fails(409, custom.replaceNamespacedCustomObject({ ...PLACE, name: "a", body: made }));
  const patched = await custom.patchNamespacedCustomObject({ ...PLACE, name: "a", body: { spec: { color: "red" } } },
    MERGE);
  assert.deepEqual(patched.spec, { size: 2, color: "red" });
  await custom.deleteNamespacedCustomObject({ ...PLACE, name: "a" });
}

/** An informer sees the state, then each change. */
async function informs() {
  await custom.createNamespacedCustomObject({ ...PLACE, body: widget("i0", 0) });
  const informer = k8s.makeInformer(config, PATH, () => custom.listNamespacedCustomObject(PLACE));
  const seen = [];
  let notify = () => {};
  for (const event of ["add", "update", "delete"]) {
    informer.on(event, (object) => {
      seen.push(`${event} ${object.metadata.name} ${object.spec.size}`);
      notify();
    });
  }
  informer.on("error", (error) => seen.push("error " + error));
  async function waitFor(text) {
    while (!seen.includes(text)) await new Promise((resolve) => (notify = resolve));
  }
  await informer.start();
  await waitFor("add i0 0");
  for (let i = 1; i < 20; i++) await custom.createNamespacedCustomObject({ ...PLACE, body: widget("i" + i, i) });
  await waitFor("add i19 19");
  await custom.patchNamespacedCustomObject({ ...PLACE, name: "i0", body: { spec: { size: 7 } } }, MERGE);
  await waitFor("update i0 7");
  await custom.deleteNamespacedCustomObject({ ...PLACE, name: "i0" });
  await waitFor("delete i0 7");
  assert.equal(seen.length, 22, seen.join(", "));
  await informer.stop();
}

/** A watch ends in order after its time. */
async function endsInOrder() {
  const watch = new k8s.Watch(config);
  const error = await new Promise((resolve, reject) => {
    watch.watch(PATH, { timeoutSeconds: 1 }, () => {}, resolve).catch(reject);
  });
  assert.ok(!error, String(error));
}

async function hasAnObjectApi() {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  await objects.create(widget("o", 1));
  assert.equal((await objects.read(widget("o"))).spec.size, 1);
  await objects.patch(widget("o", 2), undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
  const found = await objects.list("demo.example/v1", "Widget", "node");
  assert.ok(found.items.some((one) => one.metadata.name === "o" && one.spec.size === 2));
  await objects.delete(widget("o"));
}

async function main() {
  for (const check of [prepare, writesAndReads, informs, endsInOrder, hasAnObjectApi]) await check();
  console.log("done");
  process.exit(0); // connections may be kept
}

main();
