-- SPDX-License-Identifier: MIT
--- testing: the kit for tests of programs that use keywatch: virtual time, a network and servers inside the process,
-- and faults on demand. Clients, servers and stores are real; only the clock and the network are simulated.

local worlds = require "keywatch.testing.world"

return { run = worlds.run, world = worlds.open }
