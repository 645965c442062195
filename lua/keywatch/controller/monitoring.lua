-- SPDX-License-Identifier: MIT
--- monitoring: the HTTP endpoints of a manager, for monitoring systems and probes, on its own listeners.
--
--   /metrics   the counters
--   /livez     200: the process runs its tasks
--   /healthz   200; or 503 and the texts of is_healthy, one in a line
--   /readyz    200; or 503 while has_synced is false

local certificates = require "keywatch.server.certificates"
local driver = require "keywatch.task.driver"
local health = require "keywatch.controller.health"
local log = require "keywatch.support.log"
local metrics_text = require "keywatch.support.metrics_text"
local monitor = require "keywatch.server.monitor"
local origin = require "keywatch.server.origin"

local OK, UNAVAILABLE = 200, 503

--- Returns an answer with a list of texts, or with "ok" if there is none.
local function answer(texts)
  if not texts[1] then return OK, "ok\n" end
  return UNAVAILABLE, table.concat(texts, "\n") .. "\n"
end

--- Returns the handlers by path.
local function handlers(manager)
  return {
    ["/metrics"] = function() return OK, manager:metrics(), metrics_text.HEADERS end,
    ["/livez"] = function() return answer {} end,
    ["/healthz"] = function() return answer(health.texts(manager)) end,
    ["/readyz"] = function()
      if manager:has_synced() then return answer {} end
      local texts = health.texts(manager)
      return answer(texts[1] and texts or { "the manager has not synced yet" })
    end,
  }
end

--- Listens. Returns the monitor; or nil and an error.
local function open(manager)
  local addresses, tls = manager.listen, manager.tls
  driver.get().check_serve()
  local logger, own = log.new(), nil
  if tls then
    local opened, err = certificates.open(tls, addresses, nil, logger)
    if not opened then return nil, err end
    own = opened
  end
  local ok, opened, why = pcall(monitor.open, addresses, own and own.context, handlers(manager), origin.new(), logger)
  if own and ok and opened then
    opened.certificates = own
    own:start()
  elseif own then
    own:close()
  end
  if not ok then error(opened, 0) end
  if opened then log.info("metrics and health are on %s", table.concat(opened:addresses(), ", ")) end
  return opened, why
end

return { open = open }
