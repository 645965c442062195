-- SPDX-License-Identifier: MIT
--- source: makes the requests of a controller. A request names the object to reconcile; usually it is a key.
--
--   an informer       each object that is added, updated or deleted: its key
--   an object watch   each event: its key
--   a channel         each value that is received
--   { every = s }     each s seconds: the field `request`
--
-- Each change is tested by the predicate `where(event)`, and `map(object, key, event)` returns its requests: one, a
-- list of them, or nil. An update is mapped by the new object and by the old one, so that a child that changes its
-- owner wakes both owners. Errors of the functions are logged and counted: after an error of `where` the change passes,
-- since an extra request does no harm; after an error of `map` there is no request.
--
-- reconcile reads the informer, which is ahead of the changes that are queued. So every state of the informer makes
-- requests. States that do not fit into a full queue make them at once, in a coroutine, in which functions must not
-- wait.
--
-- Existing objects, and those of a resync, have a low priority: real changes overtake them.
--
-- A kind of source has these functions: start(source), which returns true, or nil and an error; wait_synced(source,
-- timeout), which waits until all existing objects are in the queue; and stop(source).
--
-- A change is pending from the read until its functions have returned: the end of keywatch.run may cancel the task, and
-- the next one continues with the pending change.

local channels = require "keywatch.task.channel"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local convention = require "keywatch.controller.convention"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local informers = require "keywatch.cache.informer"
local log = require "keywatch.support.log"
local object_watches = require "keywatch.cache.object_watch"
local slices = require "keywatch.task.slice"
local workers = require "keywatch.task.worker"

local LOW = { priority = -100 } -- of requests without a change
local AT_ONCE = 64              -- changes that a task reads without a wait, after which other tasks run

-- {====== Requests ======

--- Counts and logs an error of a program's function. For changes that do not fit into a full queue, which may be many,
-- only the first error is logged.
local function complain(self, name, text)
  self.tally.failures = self.tally.failures + 1
  if self.is_dropping and self.has_logged_drop then return end
  self.has_logged_drop = self.has_logged_drop or self.is_dropping
  log.error({ controller = self.controller_name }, "'%s' of %s of the controller '%s' has failed: %s", name, self.title,
    self.controller_name, text)
end

--- Calls a function of the program. Returns true and its result; or false after an error, which is logged. Raises if
-- the task was cancelled.
local function call(self, name, fn, ...)
  local ok, found = driver.attempt(fn, ...)
  if ok then return true, found end
  complain(self, name, log.failure(self, found))
  return false
end

--- Adds a request. nil and false add nothing.
local function add(self, request, opts)
  if request == nil or request == false then return end
  if request ~= request then return complain(self, "map", "NaN cannot be a request") end
  self.queue:add(request, opts)
end

--- Adds the requests of an object, by the option `map`. A table without a metatable is a list of requests.
local function add_mapped(self, object, event, opts)
  local ok, found = call(self, "map", self.map, object, event.key, event)
  if not ok then return end
  if type(found) ~= "table" or getmetatable(found) ~= nil then return add(self, found, opts) end
  local n = #found
  for i = 1, n do add(self, found[i], opts) end
  for field in next, found do
    if type(field) ~= "number" or field < 1 or field > n or field % 1 ~= 0 then
      complain(self, "map", ("it has returned a list of requests with the field %s"):format(check.shown(field)))
    end
  end
end

--- Adds the requests of a change.
local function add_change(self, event)
  local where = self.where
  if where then
    local ok, passes = call(self, "where", where, event)
    if ok and not passes then return end
  end
  local opts = (event.initial or event.resync) and LOW or nil
  if not self.map then return add(self, self.has_keys and event.key or event.object, opts) end
  add_mapped(self, event.object, event, opts)
  if event.old ~= nil and not rawequal(event.old, event.object) then add_mapped(self, event.old, event, opts) end
end

-- }======

-- {====== Kinds ======

--- Ends the controller, because a source has ended by itself.
local function report_end(self, err)
  local text = errors.text_of(type(err) == "table" and rawget(err, "message") or err):gsub("^keywatch: ", "")
  local code = type(err) == "table" and core.errors[err.code] and err.code or "internal"
  self.on_end(errors.new(code, ("keywatch: %s has ended: %s"):format(self.title, text)))
end

--- Calls the function of a source until that has ended by itself.
local function follow(self)
  local ok, found = driver.attempt(self.kind.follow, self)
  if not ok then found = found.err end
  if not self.is_stopped then report_end(self, found) end
end

--- Stops the task of a source.
local function stop_following(self)
  local worker = self.worker
  self.worker, self.is_stopped = nil, true
  if worker then worker:stop(true) end
end

local of_informer = { has_keys = true }

--- Adds the requests of an object's state that is not delivered, since its event was coalesced. Does not wait.
local function add_dropped(self, object, event)
  local thread = compat.create(add_change)
  self.is_dropping = true
  local ok, raised = compat.resume(thread, self, {
    type = "modified", key = event.key, object = object, revision = event.revision,
    create_revision = event.create_revision,
  })
  if not ok then complain(self, "map", errors.text_of(raised)) end
  self.is_dropping = false
end

function of_informer.start(self)
  local function on_event(_, _, event) add_change(self, event) end
  local handler, err = informers.add_handler(self.object, {
    add = on_event, delete = on_event, at_bound = "coalesce", resync = self.resync,
    update = function(_, _, _, event) add_change(self, event) end,
    name = ("source of the controller '%s'"):format(self.controller_name),
    on_drop = function(object, event) add_dropped(self, object, event) end,
  })
  if not handler then return nil, err end
  self.handler = handler
  self.worker = workers.start(follow, self)
  return true
end

--- Waits for the end of the handler, which ends with the informer. Returns the error.
function of_informer.follow(self)
  self.handler:join()
  return self.object:error() or errors.closed("informer")
end

function of_informer.wait_synced(self, timeout)
  local d = driver.get()
  local deadline = d.now() + timeout
  local ok, err = self.object:wait_synced(timeout)
  if not ok then return nil, err end
  ok, err = self.handler:wait_synced(math.max(0, deadline - d.now()))
  return ok, err
end

function of_informer.stop(self)
  local handler = self.handler
  stop_following(self)
  self.handler = nil
  if handler then handler:close() end
end

--- Returns a kind of source that a task reads. read(object) waits for the next change and returns it, or nil and the
-- error that has ended the changes; handle(source, change) adds the requests.
local function read_by_task(read, handle)
  local kind = { stop = stop_following }

  function kind.start(self)
    self.worker = workers.start(follow, self)
    return true
  end

  function kind.follow(self)
    local slice, described = slices.new(AT_ONCE), self.described
    while not self.is_stopped do -- a function of the program may have stopped the controller
      if described.pending == nil then
        local change, err = read(self.object)
        if change == nil then return err end
        described.pending = { change }
      end
      handle(self, described.pending[1])
      described.pending = nil
      slices.pass(slice)
    end
  end

  function kind.wait_synced() return true end

  return kind
end

local of_object_watch = read_by_task(function(watch)
  local event, err = watch:next()
  if event and event.type == "error" then return nil, event.error end
  return event, err or errors.closed("object watch")
end, function(self, event)
  if event.type == "synced" then
    self.described.has_synced = true
    self.synced:set()
  elseif event.key then
    add_change(self, event)
  end
end)
of_object_watch.has_keys = true

--- Waits until the existing objects were read, if the object watch begins with them.
function of_object_watch.wait_synced(self, timeout)
  local has_synced = driver.await(self, "synced", driver.get().now() + timeout, function()
    return not self.object.opts.initial or self.described.has_synced
  end)
  if has_synced then return true end
  return nil, core.new_error("timeout")
end

local of_channel = read_by_task(function(channel)
  local value, err = channel:receive()
  return value, err or errors.closed("channel")
end, function(self, value) add_change(self, { type = "received", object = value }) end)

local of_timer = { stop = stop_following }

function of_timer.start(self)
  self.due_at = driver.get().now()
  self.worker = workers.start(follow, self)
  return true
end

function of_timer.follow(self)
  local d = driver.get()
  while true do
    local now = d.now()
    if now >= self.due_at then
      self.due_at = now + self.every
      add(self, self.request)
    end
    d.sleep(math.max(0, self.due_at - d.now()))
  end
end

function of_timer.wait_synced() return true end

-- }======

-- {====== Making one ======

local KINDS = { [informers.mt] = of_informer, [object_watches.mt] = of_object_watch, [channels.mt] = of_channel }
local TITLES = {
  [of_informer] = "an informer", [of_object_watch] = "an object watch", [of_channel] = "a channel",
  [of_timer] = "a timer",
}
local OPTIONS = {
  map = "function", where = "function", owner = "boolean", every = "positive number", request = "any",
  resync = "positive number",
}
local OF_CHANGES = { map = true, where = true, owner = true }
local OF_TIMERS = { every = true, request = true }
local FIELDS = { -- of all kinds
  [of_informer] = { map = true, where = true, owner = true, resync = true },
  [of_object_watch] = OF_CHANGES, [of_channel] = OF_CHANGES, [of_timer] = OF_TIMERS,
}

--- Raises an error about a source.
local function refuse(name, i, text, ...)
  check.misuse("%s: source %d%s", name, i, text:format(...))
end

--- Returns the object and the options of a source: an object, or a table with an object at 1 and options.
local function take_apart(given, i, name)
  if check.shown(given) ~= "a table" then return given, {} end
  local opts = check.copy(given, 1)
  check.known(opts, ("%s: source %d"):format(name, i), OPTIONS)
  return given[1], opts
end

--- Returns a description of a source. Raises if the source is invalid.
local function parse(given, i, name)
  local object, opts = take_apart(given, i, name)
  local kind = object ~= nil and KINDS[getmetatable(object)] or object == nil and opts.every and of_timer
  if not kind then
    refuse(name, i, " must be an informer, an object watch, a channel, or a table with 'every', and is %s",
      check.shown(object))
  end
  for field in pairs(opts) do
    if not FIELDS[kind][field] then refuse(name, i, ": %s has no option '%s'", TITLES[kind], field) end
  end
  if opts.owner and opts.map then refuse(name, i, ": options 'owner' and 'map' exclude each other") end
  if kind == of_timer and (opts.request == nil or opts.request ~= opts.request) then
    refuse(name, i, ": a timer needs the option 'request'")
  end
  return {
    kind = kind, object = object, opts = opts, title = ("source %d, %s,"):format(i, TITLES[kind]),
    pending = nil,      -- { a taken change whose requests are not queued yet }
    has_synced = false, -- of an object watch: the existing objects were read
  }
end

--- Returns a source that adds requests to a queue, by a description. on_end(err) is called if the source ends by
-- itself. tally.failures counts the errors of `map` and `where`.
local function new(described, controller_name, queue, tally, on_end)
  local opts = described.opts
  return {
    described = described,
    kind = described.kind,
    has_keys = described.kind.has_keys,
    title = described.title,
    object = described.object,
    map = opts.owner and convention.owner_of or opts.map,
    where = opts.where,
    every = opts.every,
    request = opts.request,
    resync = opts.resync,
    controller_name = controller_name,
    queue = queue,
    tally = tally,
    on_end = on_end,
    synced = driver.get().event(),
    is_dropping = false,   -- add_dropped is running
    has_logged_drop = false, -- the failure of a function there was logged
    due_at = 0, -- of a timer
    handler = nil,
    worker = nil,
    is_stopped = false,
  }
end

-- }======

--- Returns the calls of a source's informer that are stuck: see informer:status.
local function stuck_calls(self)
  return self.kind == of_informer and self.object:status().stuck or {}
end

return { parse = parse, new = new, stuck_calls = stuck_calls }
