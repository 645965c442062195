--- Makes methods of the functions that only keywatch calls with a store: specs move manual clocks and fill replicas.

local core = require "keywatch.core"

for name, fn in pairs(core.inner) do core.store_methods[name] = fn end
