-- SPDX-License-Identifier: MIT
--- log: what a program has to say for itself, a line each, on stderr.
--
--   2026-01-01T00:00:00.000Z info ready to serve client requests on http://127.0.0.1:2379

local uv = require "keywatch.uv"

local LEVELS = { debug = 1, info = 2, warn = 3, error = 4, panic = 5, fatal = 6 }

local least = LEVELS.info

local log = {}

--- Nothing below this level is written from here on. False if there is no such level.
function log.set_level(name)
  least = LEVELS[name] or least
  return LEVELS[name] ~= nil
end

--- Writes a line, whatever the level.
function log.write(level, format, ...)
  local text = select("#", ...) > 0 and format:format(...) or format
  local now = uv.time()
  local seconds = math.floor(now)
  io.stderr:write(("%s.%03dZ %s %s\n"):format(os.date("!%Y-%m-%dT%H:%M:%S", seconds),
    math.floor((now - seconds) * 1000), level, text))
end

for _, level in ipairs { "debug", "info", "warn", "error" } do
  log[level] = function(...)
    if LEVELS[level] >= least then log.write(level, ...) end
  end
end

return log
