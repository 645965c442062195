// Errors of refused TLS connections: spec/interop/tls_spec.lua runs this against servers with wrong certificates.
"use strict";

const assert = require("node:assert/strict");
const { add } = require("./case");

add("no_connection", async ({ client }) => {
  await assert.rejects(client.get("a").exec(), error => {
    console.log(error.message);
    return error.message.startsWith("14 UNAVAILABLE: ");
  });
});
