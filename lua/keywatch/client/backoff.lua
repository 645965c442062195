-- SPDX-License-Identifier: MIT
--- backoff: how long a client waits between two attempts: a random part of a bound that doubles with each failure
-- (exponential backoff with jitter), so that the clients of a server that has restarted do not all return at the same
-- moment.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"

local DEFAULTS = { first = 0.1, longest = 3 } -- seconds
local MAX_DOUBLINGS = 60 -- a higher exponent could overflow to infinity

--- Raises unless `opts`, the option `backoff` of connect, is { first =, longest = } in seconds, with first <= longest.
-- Both may be left out.
local function check_option(opts)
  check.known(opts, "connect: option 'backoff'", { first = "positive number", longest = "positive number" })
  local first, longest = opts.first or DEFAULTS.first, opts.longest or DEFAULTS.longest
  if first > longest then
    check.misuse("connect: option 'backoff' has first = %s, which is more than longest = %s", first, longest)
  end
end

--- Returns a function that returns the seconds to wait after so many failures in a row. `opts` is the option `backoff`
-- of connect, or {}.
local function new(opts)
  local first, longest = opts.first or DEFAULTS.first, opts.longest or DEFAULTS.longest
  return function(failures)
    return driver.random() * math.min(longest, first * 2 ^ math.min(failures - 1, MAX_DOUBLINGS))
  end
end

return { check_option = check_option, new = new }
