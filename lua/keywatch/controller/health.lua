-- SPDX-License-Identifier: MIT
--- health: texts about the trouble of a manager's components.
--
-- Trouble that may be temporary, such as an unreachable server, is reported when it has lasted for some time. Permanent
-- trouble is reported at once.

local driver = require "keywatch.task.driver"
local bases = require "keywatch.concurrency.base"
local components = require "keywatch.controller.component"

local LASTING = 30 -- seconds after which trouble is reported

--- Notes when the trouble of a component has begun. Called periodically.
local function look(record, now)
  local is_used = record.state == "started" or record.state == "starting"
  local text = is_used and record.kind.trouble(record) or nil
  record.troubled_since = text and (record.troubled_since or now) or nil
end

--- Returns a text about a component that is late to start or sync, or nil.
local function late_text(record, now)
  local seconds = record.since and now - record.since or 0
  if seconds < LASTING then return nil end
  if record.state == "starting" then
    return ("%s has not been started for %.0f s"):format(record.title, seconds)
  elseif record.state == "started" and not record.kind.is_synced(record) then
    return ("%s has not synced for %.0f s"):format(record.title, seconds)
  elseif record.state == "stopping" then
    return ("%s has not stopped for %.0f s"):format(record.title, seconds)
  end
end

--- Adds texts about the trouble of a component to a list.
local function add_texts(list, record, now)
  if record.state == "failed" then
    list[#list + 1] = record.title .. " has failed"
    return
  end
  look(record, now)
  local late = late_text(record, now)
  if record.troubled_since then
    local trouble, is_urgent = record.kind.trouble(record)
    if trouble and (late or is_urgent or now - record.troubled_since >= LASTING) then
      list[#list + 1] = ("%s: %s"):format(late or record.title, trouble)
      return
    end
  end
  list[#list + 1] = late
end

--- Returns a text about a client that has had no connection for some time, or nil.
local function connection_text(root, now)
  if bases.is_local(root) then return nil end
  local state = root:state()
  if state.state ~= "waiting" and state.state ~= "connecting" then return nil end
  local seconds = now - state.since
  if seconds < LASTING then return nil end
  return ("the client has had no usable server for %.0f s%s"):format(seconds, state.why and ": " .. state.why or "")
end

local STATES = {
  new = "the manager is not started", stopping = "the manager is being stopped", stopped = "the manager has stopped",
}

--- Returns a list of texts about trouble. It is empty if there is none.
local function texts(manager)
  local now, list = driver.get().now(), {}
  if manager.failure then
    list[1] = "the manager has failed: " .. components.text_of(manager.failure)
  else
    list[1] = STATES[manager.state]
  end
  for _, record in ipairs(manager.records) do add_texts(list, record, now) end
  list[#list + 1] = connection_text(manager.root, now)
  return list
end

return { look = look, texts = texts }
