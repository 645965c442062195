-- SPDX-License-Identifier: MIT
--- watch_stream: the watches of one resource over HTTP: a stream of events, one line of JSON each.
--
-- Watches of the same scope, filter and form are members of one *channel*. A change is decoded once for the resource,
-- and encoded once for each form; the core writes the same bytes to all members of a channel (rpc/broadcast.h).
--
--   initial state -> catching up from the history -> member --- no room ---> lagging --- room ---> catching up ...
--
-- The task of a request writes the initial state, and what it has to catch up with, as fast as its client reads. It
-- joins the channel in the turn in which nothing is left, so that there is no gap, and then the task ends: members have
-- no task, because thousands of tasks take much memory. A publish has the number of its change in the history. A member
-- without room is left out. Once it has room, it gets a task again, and continues from that number. If the history no
-- longer has that change, the watch ends without an event: its client watches again, and gets the error.
--
-- A watch ends in order: at its deadline, when the API closes, or when the resource has another history.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local json = require "keywatch.json"
local requests = require "keywatch.server.request"
local slices = require "keywatch.task.slice"
local status_error = require "keywatch.kubernetes.status_error"
local timers = require "keywatch.task.timers"
local transition = require "keywatch.kubernetes.transition"

local HEADERS = { ["content-type"] = "application/json", ["cache-control"] = "no-cache, private" }
local MAX_SORTED = 2000 -- objects of an initial state that are sorted by revision; sorting more takes too long
local PART_BYTES, PART_CHANGES = 65536, 500 -- limits of one write of a task, after which others get their turn
local REFRESH_TIMEOUT = 1 -- seconds that a bookmark waits for the present revision
local BOOKMARK_INTERVAL, LAST_BOOKMARK = 60, 2 -- seconds; the second one before the deadline

-- {====== Channels ======

--- Returns the key of a scope: a namespace, a name, or both.
local function scope_of(namespace, name)
  return (namespace or "") .. "/" .. (name or "")
end

--- Returns the channel for the options of a watch, and makes it if it does not exist.
local function channel_of(self, opts)
  local scope = scope_of(opts.namespace, opts.name)
  local id = scope .. "\0" .. opts.form.id .. "\0" .. (opts.filter and opts.filter.text or "")
  local channel = self.channels[id]
  if channel then return channel end
  channel = {
    id = id,
    scope = scope,
    namespace = opts.namespace,
    name = opts.name,
    filter = opts.filter,
    form = opts.form,
    members = core.broadcast(),
    fresh = opts.form.has_head and core.broadcast() or nil, -- members that have got no event yet
    n = 0, -- watches: members, and others that will become members
  }
  self.channels[id] = channel
  local list = self.by_scope[scope] or {}
  self.by_scope[scope] = list
  list[#list + 1] = channel
  return channel
end

--- Removes a channel without watches.
local function remove_channel(self, channel)
  self.channels[channel.id] = nil
  local list = self.by_scope[channel.scope]
  for i, one in ipairs(list) do
    if one == channel then
      table.remove(list, i)
      break
    end
  end
  if not list[1] then self.by_scope[channel.scope] = nil end
end

--- Returns the line of a change for a channel; nil if the channel does not show the change. `lines` has the lines of
-- this change that were encoded before.
local function line_of(channel, change, is_first, lines)
  local name, entry = transition.of(change, channel.filter)
  if not name then return nil end
  local id = name .. (is_first and "!" or "") .. channel.form.id
  local line = lines and lines[id]
  if line then return line end
  line = channel.form:event(name, entry, is_first)
  if lines then lines[id] = line end
  return line
end

local function publish(channel, change, at, lines)
  if channel.fresh then
    local first = line_of(channel, change, true, lines)
    if not first then return end
    channel.fresh:publish(first, at)
    channel.members:publish(line_of(channel, change, false, lines), at)
    channel.members:absorb(channel.fresh)
  else
    local line = line_of(channel, change, false, lines)
    if line then channel.members:publish(line, at) end
  end
end

--- Publishes a change in the channels of its scopes. Does not wait.
local function dispatch(self, change, at)
  local namespace, name = change.key:match("^([^/]*)/(.*)$")
  if not namespace then name = change.key end
  local lines, known = {}, {}
  for _, scope in ipairs { "/", scope_of(namespace), scope_of(nil, name), scope_of(namespace, name) } do
    for _, channel in ipairs(not known[scope] and self.by_scope[scope] or {}) do publish(channel, change, at, lines) end
    known[scope] = true
  end
end

-- }======

-- {====== One watch ======

--- True if the watch must end.
local function must_end(watch)
  return watch.stream.is_closed or watch.has_ended or driver.get().now() >= watch.ends_at
end

--- Writes lines, and waits while the client does not read. Returns false if the watch must end.
local function write(watch, text)
  local left = watch.ends_at - driver.get().now()
  if left <= 0 or watch.stream.is_closed then return false end
  return watch.request:write(text, left) and not must_end(watch)
end

--- True if a change is in the scope of a channel.
local function is_in_scope(channel, key)
  local namespace, name = key:match("^([^/]*)/(.*)$")
  if not namespace then name = key end
  return (not channel.namespace or channel.namespace == namespace) and (not channel.name or channel.name == name)
end

--- Gathers the lines of some changes, for slices.SECONDS, beginning at the watch's place in the history. Returns the
-- text, which may be empty; nil if the history has lost the place. Does not wait: the history might be replaced.
local function gather(watch)
  local channel, history, now = watch.channel, watch.stream.resource.history, driver.get().now
  local ends_at = now() + slices.SECONDS
  local parts, bytes, n = {}, 0, 0
  while watch.place <= history.last and bytes < PART_BYTES and n < PART_CHANGES and now() < ends_at do
    local change = history:get(watch.place)
    if not change then return nil end
    local line = change.revision > watch.after and is_in_scope(channel, change.key)
      and line_of(channel, change, channel.form.has_head and not watch.has_head)
    if line then
      parts[#parts + 1], bytes, watch.has_head = line, bytes + #line, true
    end
    watch.place, n = watch.place + 1, n + 1
  end
  return table.concat(parts)
end

--- Makes the watch a member of its channel. Returns false if the client is gone.
local function join(watch)
  local channel = watch.channel
  local broadcast = channel.fresh and not watch.has_head and channel.fresh or channel.members
  return watch.stream.server.object:join(watch.request.id, broadcast)
end

--- Writes what the watch has missed, and joins its channel. Returns false if the watch must end.
local function catch_up(watch)
  local history = watch.stream.resource.history
  while not must_end(watch) do
    local text = gather(watch)
    if not text then return false end
    if text == "" and watch.place > history.last then return join(watch) end
    if text ~= "" and not write(watch, text) then return false end
    if watch.place <= history.last then driver.get().sleep(0) end
  end
  return false
end

--- Writes the entries of a page as synthetic events. Other tasks run in between if that takes a while.
local function write_page(watch, page, slice)
  local form, parts, bytes = watch.channel.form, {}, 0
  for i, entry in ipairs(page) do
    local line = form:event("ADDED", entry, form.has_head and not watch.has_head)
    parts[#parts + 1], bytes, watch.has_head = line, bytes + #line, true
    slices.pass(slice)
    if bytes >= PART_BYTES or i == #page then
      if not write(watch, table.concat(parts)) then return false end
      parts, bytes = {}, 0
    end
  end
  return true
end

local function is_older(one, other) return one.revision < other.revision end

--- Returns the first entries of a list, those of a short one in the order of their revisions: a client that continues
-- from the last event then gets no change twice. Returns nil and an error.
local function first_entries(list)
  local all = {}
  while true do
    local page, err = list:next_page()
    if err then return nil, err end
    if not page then break end
    for _, entry in ipairs(page) do all[#all + 1] = entry end
    if #all > MAX_SORTED then return all end
  end
  table.sort(all, is_older)
  return all
end

--- Writes the initial state: a list of reads.lua. Returns true; false if the watch must end; nil and an error.
local function write_state(watch, list)
  local page, err = first_entries(list)
  local slice = slices.new(PART_CHANGES)
  while page do
    if not write_page(watch, page, slice) then return false end
    page, err = list:next_page()
  end
  if err then return nil, err end
  return not watch.ends_state or write(watch, watch.channel.form:bookmark_line(list.revision, true))
end

--- Writes an error, which is the last event of a watch.
local function write_error(watch, err)
  local status = json.encode(status_error.to_status(err), { sort_keys = true })
  watch.request:write(('{"type":"ERROR","object":%s}\n'):format(status), watch.ends_at - driver.get().now())
end

--- Finds the place in the history of the first change after a revision, which may be still to come. Returns true; false
-- if the watch must end; nil and an error.
local function find_place(watch, revision)
  local history, now = watch.stream.resource.history, driver.get().now
  watch.after = revision
  local ok, err = history:wait_for(revision, watch.ends_at - now())
  if not ok and err.reason ~= "Timeout" then return nil, err end
  if not ok or must_end(watch) then return false end
  watch.place = history:find(revision)
  if watch.place then return true end
  return nil, status_error.expired(("too old resource version: %d (%d)"):format(revision, history.floor or 0))
end

--- Writes the initial state, and catches up. Returns true if the watch is a member then; false if it must end; nil and
-- the error that is its last event.
local function begin_events(watch, start)
  if start.err then return nil, start.err end
  local ok, err = true, nil
  if start.list then ok, err = write_state(watch, start.list) end
  if ok then ok, err = find_place(watch, start.revision) end
  if not ok then return ok, err end
  return catch_up(watch)
end

-- }======

-- {====== Members ======

local watch_methods = {}
local watch_mt = { __index = watch_methods }

--- Removes a watch that ends.
local function forget(watch)
  local stream, channel = watch.stream, watch.channel
  stream.server.object:leave(watch.request.id)
  stream.timers:remove(watch)
  stream.watches[watch], channel.n = nil, channel.n - 1
  if channel.n == 0 and stream.channels[channel.id] == channel then remove_channel(stream, channel) end
end

--- Lets a watch that has joined its channel go on without a task.
local function rest(watch)
  local stream = watch.stream
  watch.deadline = math.min(watch.ends_at, watch.bookmark_at)
  stream.timers:insert(watch)
  stream.poll_at = nil
  requests.defer(watch.request, watch)
end

--- Ends a watch that has no task.
local function conclude(watch)
  forget(watch)
  requests.complete(watch.request)
end

--- Calls begin(watch, …), which returns what catch_up returns, in a task. Lets the watch rest, or ends it.
local function run(watch, begin, ...)
  local ok, is_member, err = pcall(begin, watch, ...)
  if ok and is_member and not must_end(watch) then return rest(watch) end
  forget(watch)
  if not ok then error(is_member, 0) end
  if err then write_error(watch, err) end
end

--- For the dispatcher: there is room. A member that lags catches up.
function watch_methods:set()
  local place = self.stream.server.object:lag(self.request.id)
  if not place then return end
  self.place = place
  self.stream.timers:remove(self)
  requests.resume(self.request, run, self, catch_up)
end

--- For the dispatcher: the client is gone.
function watch_methods:give_up()
  forget(self)
end

--- Ends a watch at the next opportunity, in order.
local function stop(watch)
  watch.has_ended = true
  if watch.request.deferral == watch then return conclude(watch) end
  local event = watch.request.has_room
  if event then event:set() end
end

-- }======

-- {====== Bookmarks and deadlines ======

--- Sends the bookmarks of members, after the history has reached the present revision of the store, also if only other
-- resources have changed.
local function send_bookmarks(stream, due)
  local history = stream.resource.history
  history:catch_up(REFRESH_TIMEOUT)
  for _, watch in ipairs(due) do
    local request = watch.request
    if request.deferral == watch and not stream.server.object:lag(request.id) then
      stream.server.object:send(request.id, watch.channel.form:bookmark_line(history.revision))
    end
  end
end

--- Sets the time of the next bookmark.
local function plan_bookmark(watch, now)
  local last = watch.ends_at - LAST_BOOKMARK
  watch.bookmark_at = watch.bookmark_at >= last and math.huge or math.min(now + BOOKMARK_INTERVAL, last)
  watch.deadline = math.min(watch.ends_at, watch.bookmark_at)
end

local stream_methods = {}
local stream_mt = { __index = stream_methods }

--- For the driver: does what is due of members.
function stream_methods:poll()
  local now, due = driver.get().now(), nil
  local watch = self.timers:due(now)
  while watch do
    if now >= watch.ends_at then
      conclude(watch)
    else
      due = due or {}
      due[#due + 1] = watch
      plan_bookmark(watch, now)
      self.timers:insert(watch)
    end
    watch = self.timers:due(now)
  end
  if due then driver.get().spawn(send_bookmarks, self, due) end
  local next_at = self.timers:next()
  return next_at and math.max(0, next_at - now)
end

-- }======

--- Returns the watches of a resource over a server. They follow the resource's history from the first watch on.
local function new(server, resource)
  return setmetatable({
    server = server, resource = resource,
    channels = {}, -- by id
    by_scope = {}, -- lists of channels
    watches = {},  -- as keys
    timers = timers.new(), -- of members: the watches themselves
    is_steady = true, poll_at = nil, -- for the driver
    unsubscribe = nil,
    is_closed = false,
  }, stream_mt)
end

--- Ends all watches, in order.
local function end_all(self)
  local all = {}
  for watch in pairs(self.watches) do all[#all + 1] = watch end
  for _, watch in ipairs(all) do stop(watch) end
end

--- Begins to follow the history.
local function begin(self)
  if self.unsubscribe then return end
  local history = self.resource.history
  self.unsubscribe = history:subscribe(function(change, is_over)
    if change then dispatch(self, change, history.last) end
    if is_over then end_all(self) end
  end)
  driver.get().attach(self)
end

--- Makes a watch of a request. `opts`: see `serve`.
local function new_watch(self, request, opts)
  local now, channel = driver.get().now(), channel_of(self, opts)
  local ends_at = now + opts.timeout
  local bookmark_at = opts.bookmarks and math.max(now, math.min(now + BOOKMARK_INTERVAL, ends_at - LAST_BOOKMARK))
  local watch = setmetatable({
    stream = self, request = request, channel = channel, ends_at = ends_at, bookmark_at = bookmark_at or math.huge,
    ends_state = opts.ends_state,
    after = 0,   -- changes up to this revision are not shown
    place = nil, -- in the history: of the next change
    has_head = false, -- an event was sent
    has_ended = false, -- the watch must end
    deadline = 0, number = 0, at = 0, owner = nil, -- of a timer, see task/timers.lua
  }, watch_mt)
  watch.owner = watch
  channel.n, self.watches[watch] = channel.n + 1, true
  return watch
end

--- Serves a watch: the handler of a request. `opts`: namespace, name, filter, form, bookmarks, ends_state = a bookmark
-- follows the initial state, timeout in seconds. start() returns { revision =, list = the initial state or nil }, or
-- { err = }; it may wait. The head of the answer is sent before.
function stream_methods:serve(request, opts, start)
  begin(self)
  local watch = new_watch(self, request, opts)
  run(watch, function()
    request:answer(200, HEADERS)
    return begin_events(watch, start())
  end)
end

--- Ends all watches, in order, and follows the history no longer.
function stream_methods:close()
  self.is_closed = true
  end_all(self)
  driver.get().detach(self)
  if self.unsubscribe then self.unsubscribe() end
  self.unsubscribe = nil
end

return { new = new, HEADERS = HEADERS }
