-- SPDX-License-Identifier: MIT
--- dispatcher: takes news from the core, and passes them to the tasks of a server.
--
-- The driver polls a dispatcher in every turn. A new call becomes a task. A task that waits for its client, for a
-- snapshot or for the end of all connections is woken. Notes for the debug log are logged.
--
-- However many calls arrive together, at most CALLS of their tasks begin per turn, and connections take turns: those of
-- one connection begin in the order of arrival. Later calls stay in the core until these have begun.

local call = require "keywatch.server.call"
local driver = require "keywatch.task.driver"
local notes = require "keywatch.server.notes"
local request = require "keywatch.server.request"
local trouble = require "keywatch.server.trouble"

local CALLS = 16 -- calls whose news are passed on per turn; then sockets and other tasks get their turn

local dispatcher_methods = {}
local dispatcher_mt = { __index = dispatcher_methods }

--- Starts the task of a new call, or answers a request that needs none.
local function begin(self, server, id)
  local http = request.open(server, id)
  local opened = http or call.open(server, id)
  if not opened then return end
  if http and request.is_quick(http) then return request.serve(http) end
  server.calls[id] = opened
  opened.task = driver.get().spawn(http and request.serve or call.serve, opened)
  self.newest = opened.task
end

--- Ends a call whose client has received the answer, or has cancelled the call. `status` is gRPC's.
local function finish(server, known, status)
  server.calls[known.id] = nil
  known.has_ended = true
  if known.task and known.task.state ~= "done" then known.task:cancel() end
  if known.worker then known.worker:stop(true) end
  local deferral = known.deferral
  known.deferral = nil
  if deferral then deferral:give_up() end
  if #server.middleware > 0 then driver.get().spawn(call.run_after, known, status) end
end

--- Passes on the news of calls. Returns true if there may be more news.
local function pass_news(self)
  local server, newest, n = self.server, self.newest, 0
  if newest and newest.state == "new" then return false end
  self.newest = nil
  for id, is_new, has_input, has_room, status in server.object.next_news, server.object do
    if is_new then begin(self, server, id) end
    local known = server.calls[id]
    if known and has_input and known.arrived then known.arrived:set() end
    if known and has_room and known.has_room then known.has_room:set() end
    if known and status then finish(server, known, status) end
    n = n + 1
    if n == CALLS then return true end
  end
  return false
end

--- For the driver.
function dispatcher_methods:poll()
  local server = self.server
  local has_more = pass_news(self)
  notes.drain(server)
  for snapshot, ready in pairs(server.snapshots) do
    if snapshot:is_ready() ~= false then ready:set() end
  end
  if server.gone and not driver.get().hosts(server.object) then server.gone:set() end
  local seconds = trouble.poll(server)
  return has_more and 0 or seconds
end

--- Ends every call of a server that closes.
function dispatcher_methods:finish_all(status)
  for _, known in pairs(self.server.calls) do finish(self.server, known, status) end
end

--- Returns the dispatcher of a server, attached to the driver.
local function open(server)
  local dispatcher = setmetatable({
    server = server,
    newest = nil, -- the task of the last call that was begun, until the task runs
  }, dispatcher_mt)
  driver.get().attach(dispatcher)
  return dispatcher
end

return { open = open }
