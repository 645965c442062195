// Runs cases with npm's etcd3: reads their names, one per line, and prints the result of each.
//
//     peer.js URL [CA [CERTIFICATE KEY]]
//
// After a case it prints "-- ok NAME", or what went wrong and then "-- failed NAME". "list" prints all names.
"use strict";

const readline = require("node:readline");
const { cases, run, Server } = require("./case");

require("./kv_cases");
require("./watch_cases");
require("./lease_cases");
require("./tls_cases");

async function main() {
  const server = new Server(...process.argv.slice(2));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === "list") {
      console.log("cases: " + [...cases.keys()].sort().join(" "));
      continue;
    }
    try {
      await run(line, server);
      console.log("-- ok " + line);
    } catch (error) {
      console.log(error);
      console.log("-- failed " + line);
    }
  }
  server.client.close();
}

main();
