-- SPDX-License-Identifier: MIT
--- turns: calls of a store that would take long. In a task such a call is made in turns, between which other tasks,
-- servers and watches go on. Outside of a task it is made in one piece.
--
-- A call is tried first with the work of one turn, which is enough for nearly every call. A range that needs more is
-- read at one revision, whatever is written meanwhile.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local MAX_RESTARTS = 3 -- of a read whose revision was compacted: then it is read in one piece

local methods = core.store_methods
local try_range, open_read, read_more = methods.try_range, methods.open_read, methods.read_more
local range_in_one_piece = methods.range

--- Reads to the end, and lets others run before each part. Returns the result, or nil and an error.
local function read_all(store, read)
  local list, restarts = {}, 0
  local result, err
  repeat
    local is_whole = restarts > MAX_RESTARTS
    if not is_whole then driver.get().sleep(0) end
    result, err = read_more(store, list, read, is_whole)
    if result == false and err then list, restarts = {}, restarts + 1 end
  until result ~= false
  return result, err
end

--- Reads a range in turns. Returns its result, or nil and an error.
local function range_in_turns(store, key, opts)
  local read, why = open_read(store, key, opts)
  if not read then return nil, why end
  local ok, result, err = pcall(read_all, store, read)
  read:close() -- if the task was cancelled, or the store has failed
  if not ok then error(result, 0) end
  return result, err
end

--- Reads a range. Returns its result, or nil and an error.
function methods.range(store, key, opts)
  local ok, result, err = pcall(try_range, store, key, opts)
  if not ok then check.raise_again(result, "range") end
  if result ~= false then return result, err end
  if driver.can_park() then
    result, err = range_in_turns(store, key, opts)
  else
    result, err = check.call("range", range_in_one_piece, store, key, opts)
  end
  return result, err
end
