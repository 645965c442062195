-- SPDX-License-Identifier: MIT
--- component: a part of a program that a manager starts and stops. A program adds controllers, caches, informers,
-- electors, and tables with the methods `start` and `stop`; for each of them the manager has a record, which knows its
-- kind and its state.
--
--           start                 has returned              stop               has returned, or was cut short
--   IDLE ----------> STARTING ----------------> STARTED -----------> STOPPING -------------------------------> STOPPED
--     ^                 |                          |                     |
--     |                 +-- has failed: FAILED     +-- has ended by itself: FAILED, or STOPPED
--     +------------------------------------------------------------------+ the leadership was lost, and may return
--
-- A kind is a table of functions. All except the first three return at once, and never raise:
--
--   start(record, store, timeout)  starts the component, and may wait. Returns true, or nil and an error. The component
--                                  may raise, too
--   stop(record, timeout)          stops the component, and may wait. Returns true, or nil and an error. May raise, too
--   drop(record, timeout)          the same for a component whose leadership is lost: queued work is dropped.
--                                  May be absent
--   is_idle(record)                true if the component can be started again. May be absent: then it can if `stop` has
--                                  returned true
--   is_synced(record)              true if the component is ready for work
--   failure(record)                returns the error that the component has ended with, or nil
--   trouble(record)                returns the present trouble as a text, or nil; and true if that is
--                                  to be reported at once, and not only if it lasts
--   status(record)                 returns a table, or nil
--
-- and of these fields: `word`, the name of the kind; `runs_from_creation`: the component runs from its creation, and is
-- closed when the manager has stopped.

local caches = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local controllers = require "keywatch.controller.controller"
local electors = require "keywatch.controller.elector"
local errors = require "keywatch.support.errors"
local informers = require "keywatch.cache.informer"
local strings_first = require("keywatch.support.order").strings_first

local MOMENT = 0.05 -- seconds

-- {====== Kinds ======

--- Returns the text of an error, without the prefix "keywatch: ".
local function text_of(err)
  return (errors.text_of(type(err) == "table" and rawget(err, "message") or err):gsub("^keywatch: ", ""))
end

--- Returns the status of a component of keywatch's own kinds.
local function own_status(record)
  return record.object:status()
end

--- Returns the field `trouble` of a status as a text, or nil.
local function own_trouble(record)
  local trouble = record.object:status().trouble
  return trouble and text_of(trouble)
end

--- Returns a text about calls of handlers that do not return, or nil; and true.
local function stuck_text(record)
  local found = record.object:status().stuck
  local name = strings_first(found)[1]
  if not name then return nil end
  return ("a call of '%s' has not returned for %.0f s, while changes wait"):format(name, found[name]), true
end

--- Returns the field `failure` of a status.
local function own_failure(record)
  return record.object:status().failure
end

--- True if the state of a status is "idle".
local function is_idle(record)
  return record.object:status().state == "idle"
end

local of_controller = { word = "controller", status = own_status, failure = own_failure, is_idle = is_idle }

function of_controller.start(record, store)
  controllers.start_managed(record.object, store)
  return true
end

--- With a timeout of 0 cancelled calls get a moment to end.
function of_controller.stop(record, timeout)
  local ok, err = record.object:stop(timeout)
  if not ok and timeout == 0 then record.object:join(MOMENT) end
  return ok, err
end

--- Another process may already lead, and work on the queued requests.
function of_controller.drop(record, timeout)
  record.object:stop(0)
  return record.object:join(math.max(timeout, MOMENT))
end

function of_controller.is_synced(record)
  return record.object:has_synced()
end

function of_controller.trouble(record)
  local status = record.object:status()
  if status.overdue > 0 then
    return ("it has worked on a request for %.3g s, longer than its timeout"):format(status.longest_call_seconds), true
  end
  return stuck_text(record)
end

local of_informer = { word = "informer", runs_from_creation = true, status = own_status }

function of_informer.trouble(record)
  local text = stuck_text(record)
  if text then return text, true end
  return own_trouble(record)
end

function of_informer.start(record, _, timeout)
  return record.object:wait_synced(timeout)
end

function of_informer.stop(record)
  record.object:close()
  return true
end

function of_informer.is_synced(record)
  return record.object:has_synced()
end

function of_informer.failure(record)
  return record.object:error()
end

local of_cache = { word = "cache", runs_from_creation = true, status = own_status, trouble = own_trouble }

function of_cache.start(record, _, timeout)
  return record.object:wait_ready(timeout)
end

function of_cache.stop(record)
  record.object:close()
  return true
end

function of_cache.is_synced(record)
  return record.object:is_ready()
end

function of_cache.failure(record)
  if record.object:status().phase == "closed" then return errors.closed("cache") end
end

local of_elector = {
  word = "elector", status = own_status, trouble = own_trouble, failure = own_failure, is_idle = is_idle,
}

function of_elector.start(record)
  electors.start_managed(record.object)
  return true
end

function of_elector.stop(record, timeout)
  return record.object:stop(timeout)
end

function of_elector.is_synced()
  return true
end

local of_table = { word = "component" }

--- Returns true, or nil and an error, for the results of a table's method. A method that returns nothing has succeeded:
-- few functions of Lua end with `return true`.
local function outcome_of(ok, err)
  if ok or ok == nil and err == nil then return true end
  return nil, err == nil and "it has returned false" or err
end

function of_table.start(record, store) return outcome_of(record.object:start(store)) end
function of_table.stop(record, timeout) return outcome_of(record.object:stop(timeout)) end

--- Calls an optional method of an object. Returns true and its result, or false if there is no such method.
local function call_optional(object, name)
  local fn = object[name]
  if fn == nil then return false end
  return true, fn(object)
end

--- Calls an optional method of a component. Returns its result, `absent` if there is none; or nil and the text of the
-- error that it has raised. The method is called in a coroutine that is not a task. So a method that waits raises, for
-- any caller: the loop, or a task.
local function ask(record, name, absent)
  local thread = compat.create(call_optional)
  local ok, found, result = compat.resume(thread, record.object, name)
  if ok and compat.status(thread) ~= "dead" then ok, found = false, "it yields" end
  if ok then
    if not found then return absent end
    return result
  end
  return nil, ("its method '%s' has raised: %s"):format(name, errors.text_of(found))
end

--- A component whose method raises counts as not synced.
function of_table.is_synced(record)
  return ask(record, "has_synced", true) and true or false
end

function of_table.status(record)
  local found = ask(record, "status")
  return type(found) == "table" and found or nil
end

--- Returns a field of the status of a component, or nil; or nil and the text of the raised error.
local function status_field(record, name)
  local status, raised = ask(record, "status")
  if type(status) ~= "table" then return nil, raised end
  local ok, value = pcall(function() return status[name] end)
  if ok then return value or nil end
  return nil, ("its status has raised: %s"):format(errors.text_of(value))
end

function of_table.failure(record)
  return (status_field(record, "failure"))
end

function of_table.trouble(record)
  local trouble, raised = status_field(record, "trouble")
  if not raised then raised = select(2, ask(record, "has_synced")) end
  if raised then return raised, true end
  return trouble and text_of(trouble)
end

-- }======

local KINDS = {
  [controllers.mt] = of_controller, [informers.mt] = of_informer, [caches.mt] = of_cache, [electors.mt] = of_elector,
}

--- Returns the kind of an object. Raises if a manager cannot do anything with it.
local function kind_of(object, name)
  local mt = type(object) == "table" and getmetatable(object)
  local kind = mt and KINDS[mt]
  if kind then return kind end
  for _, method in ipairs { "start", "stop" } do
    if type(object) ~= "table" or not check.is_callable(object[method]) then
      check.misuse("%s: argument 1 must be a controller, a cache, an informer, an elector, or a table with the methods "
        .. "'start' and 'stop', and is %s", name,
        type(object) ~= "table" and check.shown(object) or ("%s without '%s'"):format(check.shown(object), method))
    end
  end
  return of_table
end

--- Returns the name that the program has given to an object, or nil.
local function name_of(object, kind)
  local name
  if kind.runs_from_creation then name = object.prefix else name = object.name end
  return type(name) == "string" and name or nil
end

--- Returns the record of a kind and a name, or nil.
local function find(records, kind, name)
  for _, record in ipairs(records) do
    if record.kind == kind and record.name == name then return record end
  end
end

--- Returns a name that no component of a kind has. Raises if a controller or an elector has the name; other components
-- are numbered.
local function free_name(name, kind, records, method)
  local other, n, free = find(records, kind, name), 1, name
  if other and (kind == of_controller or kind == of_elector) then
    check.misuse("%s: there is %s already", method, other.title)
  end
  while find(records, kind, free) do
    n = n + 1
    free = ("%s#%d"):format(name, n)
  end
  return free
end

--- Returns the record of an object. Raises if a manager cannot do anything with the object, or `records` has it, or a
-- controller or an elector of its name.
local function new(object, is_led, records, method)
  local kind = kind_of(object, method)
  for _, other in ipairs(records) do
    if rawequal(other.object, object) then check.misuse("%s: %s was added before", method, other.title) end
  end
  local given = name_of(object, kind) or ""
  local is_nameless = given == "" and kind == of_table
  local name = free_name(is_nameless and "#" .. #records + 1 or given, kind, records, method)
  return {
    object = object,
    kind = kind,
    name = name,                -- for metrics: no other component of the kind has it
    title = (is_nameless and "the %s %s" or "the %s '%s'"):format(kind.word, name), -- for logs and errors
    is_led = is_led and not kind.runs_from_creation, -- runs only while this process leads
    state = "idle",
    since = nil,                -- the time of the state
    term = nil,                 -- the leadership in which it was started
    owner = nil,                -- the running load that has added it, or nil
    troubled_since = nil,       -- the time at which the trouble began
    counts = {},                -- see metrics.lua
    watch = nil,                -- the worker that waits for its end
    is_hurried = false,         -- its next stop has a timeout of 0
    manager = nil,              -- the manager that starts and stops it: see claim
  }
end

--- Returns the manager of a component; nil if there is none, or its kind has no managers.
local function manager_of(record)
  return (record.kind == of_controller or record.kind == of_elector) and record.object.manager or nil
end

--- Makes a manager the only one that may start a component, if the kind supports that.
local function claim(record, manager)
  record.manager = manager
  if record.kind == of_controller or record.kind == of_elector then record.object.manager = manager end
end

--- Ends a claim.
local function release(record)
  if record.manager and manager_of(record) == record.manager then record.object.manager = nil end
  record.manager = nil
end

--- Returns the store of a controller's options; nil if it has none, or the component is no controller.
local function own_store(record)
  if record.kind == of_controller then return record.object.given_store end
end

--- True if the caller is a call of reconcile of a component.
local function is_inside(record)
  return record.kind == of_controller and controllers.is_inside(record.object)
end

--- True if an object with the methods of a store is `below`, or wraps it.
local function stands_on(object, below)
  while object ~= nil do
    if rawequal(object, below) then return true end
    local mt = getmetatable(object)
    local base = type(mt) == "table" and rawget(mt, "__base")
    if not base then return false end
    object = base(object, "")
  end
  return false
end

return {
  new = new, text_of = text_of, stands_on = stands_on, of_controller = of_controller, of_elector = of_elector,
  claim = claim, release = release, manager_of = manager_of, own_store = own_store, is_inside = is_inside,
}
