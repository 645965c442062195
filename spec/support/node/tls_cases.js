// What is told where TLS is refused: spec/interop/tls_spec.lua runs this against servers that do not fit.
"use strict";

const assert = require("node:assert/strict");
const { add } = require("./case");

add("no_connection", async ({ client }) => {
  await assert.rejects(client.get("a").exec(), error => {
    console.log(error.message);
    return error.message.startsWith("14 UNAVAILABLE: ");
  });
});
