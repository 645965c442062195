-- SPDX-License-Identifier: MIT
--- A live table of the objects below a prefix, as `top` shows processes: an object watch of JSON values, with a
-- selector.
--
--   lua examples/live_table.lua [URL [PREFIX [FIELDS]]]
--   lua examples/live_table.lua http://127.0.0.1:2379 jobs/ 'state!=done'
--
-- Without an argument the program makes a store, and changes some jobs in it. In a terminal the table is drawn in
-- place.

local keywatch = require "keywatch"

local store = arg[1] and keywatch.connect(arg[1]) or keywatch.open()
local prefix = arg[2] or "jobs/"
local HOME = os.getenv("TERM") and arg[1] and "\27[H\27[J" or "" -- moves to the top of the screen, and clears it

local rows = {} -- by key: the object

--- Returns a value as the text of a cell.
local function cell(value)
  if type(value) == "number" and value % 1 == 0 then return ("%d"):format(value) end
  return tostring(value)
end

--- Draws the table.
local function draw(revision)
  local keys, lines = {}, {}
  for key in pairs(rows) do keys[#keys + 1] = key end
  table.sort(keys)
  for i, key in ipairs(keys) do
    lines[i] = ("%-8s %-10s %s"):format(key:sub(#prefix + 1), cell(rows[key].state), cell(rows[key].retries))
  end
  print(("%s-- revision %d, %d objects"):format(HOME, revision, #keys))
  for _, line in ipairs(lines) do print(line) end
end

--- Keeps the rows equal to the objects, and draws what has changed.
local function follow()
  local watch = assert(store:object_watch(prefix, {
    prefix = true, initial = true, codec = "json", fields = arg[3] or "state!=done",
  }))
  local is_synced = false
  for event in watch:events() do
    if event.type == "added" or event.type == "modified" then rows[event.key] = event.object end
    if event.type == "deleted" then rows[event.key] = nil end
    is_synced = is_synced or event.type == "synced"
    if is_synced then draw(event.revision) end
  end
end

if arg[1] then return keywatch.run(follow) end

keywatch.run(function()
  store:put("jobs/1", '{"state":"running","retries":0}')
  store:put("jobs/2", '{"state":"done","retries":1}')
  local task = keywatch.spawn(follow)
  for i, value in ipairs { '{"state":"waiting","retries":1}', '{"state":"running","retries":2}' } do
    keywatch.sleep(0)
    store:put("jobs/" .. 2 * i, value)
  end
  keywatch.sleep(0)
  store:put("jobs/1", '{"state":"done","retries":0}') -- no longer selected
  keywatch.sleep(0)
  store:delete("jobs/4")
  keywatch.sleep(0)
  task:cancel()
end)
