--- The journals of nginx workers: each worker writes down what its watch tells, from its start to its end, in a file of
-- its own. The spec compares all of them with what has happened.
--
-- The lines of a journal:
--   synced REVISION      a watch has begun, and has what existed at the revision
--   an event's text      as spec/support/writer.lua has it
--   -- REVISION          the events before are all of one revision
--   error CODE           the watch has ended; the next one begins

local journal = {}

-- What a worker runs in init_worker. `follower` is for the questions of the spec.
journal.WORKER = [[
local keywatch = require "keywatch"
local writer = dofile "$root/spec/support/writer.lua"

require("keywatch.driver.ngx").home.renewal = $renewal
follower = { n_segments = 0, n_errors = {}, last = 0, n_events = 0 }
client = keywatch.connect("$url", { backoff = { first = 0.01, longest = 0.1 }, connect_timeout = 2, tls = $tls })
cache = client:cache("$prefix", { history_bytes = 100000 })
content = cache:table()

local file = assert(io.open("$here/journal." .. ngx.worker.pid(), "w"))
local function note(...)
  file:write(...)
  file:write("\n")
end

local function enter(batch)
  local list = {}
  for _, event in ipairs(batch.events) do
    if event.type == "synced" then
      note("synced ", ("%.0f"):format(event.revision))
      follower.n_segments, follower.last = follower.n_segments + 1, event.revision
    end
  end
  if batch.events[1].initial or batch.events[1].type == "synced" then return end
  writer.enter(list, batch)
  list[#list] = "-- " .. ("%.0f"):format(batch.revision)
  note(table.concat(list, "\n"))
  follower.last, follower.n_events = batch.revision, follower.n_events + #batch.events
end

local function follow()
  local watch, batch, err
  watch, err = client:watch("$prefix", { prefix = true, initial = true })
  while watch do
    batch, err = watch:batch()
    if not batch then break end
    enter(batch)
    file:flush()
  end
  local code = err and err.code or "closed"
  note("error ", code)
  file:flush()
  follower.n_errors[code] = (follower.n_errors[code] or 0) + 1
end

keywatch.spawn(function()
  while true do
    follow()
    keywatch.sleep(0.01)
  end
end)
]]

--- The segments of a journal, each from one "synced" to the next: { from, to, list }. A line without an end, and a
-- batch without its last line, were written by a worker that was killed then.
local function segments_of(text)
  local all, pending = {}, {}
  for line in text:gmatch("([^\n]*)\n") do
    local current = all[#all]
    local word, number = line:match("^(%S+) (%d+)$")
    if word == "synced" then
      all[#all + 1] = { from = tonumber(number), to = tonumber(number), list = {} }
      pending = {}
    elseif word == "--" then
      for _, one in ipairs(pending) do table.insert(current.list, one) end
      table.insert(current.list, "--")
      current.to, pending = tonumber(number), {}
    elseif not line:find("^error ") then
      pending[#pending + 1] = line
    end
  end
  return all
end

--- Compares a journal, from a byte on, with a writer's truth. `from` is the revision that the journal had come to at
-- that byte, or nil at the beginning. Returns the number of events, and the revision that the journal has come to.
function journal.compare(text, writer, from)
  if from then text = ("synced %.0f\n"):format(from) .. text end
  local n_events, to = 0, from
  for _, segment in ipairs(segments_of(text)) do
    writer:compare(segment.list, segment.from, false, segment.to)
    for _, line in ipairs(segment.list) do
      if line ~= "--" then n_events = n_events + 1 end
    end
    to = segment.to
  end
  return n_events, to
end

return journal
