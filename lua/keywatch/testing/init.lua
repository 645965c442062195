-- SPDX-License-Identifier: MIT
--- testing: the kit for tests of programs that use keywatch: virtual time, a network and servers inside of the process,
-- and faults on demand. Clients, servers and stores are the real ones; only the clock and the wire are not.

local worlds = require "keywatch.testing.world"

return { run = worlds.run, world = worlds.open }
