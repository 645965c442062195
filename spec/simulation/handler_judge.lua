--- Checks the events that the handlers of informers have received in random runs.
--
-- A ledger has the writes, revision by revision, for each epoch of a server (truth.lua). A judge is a handler that
-- records its calls. The calls are checked when the run is over:
--
--   always: an object is added only if it did not exist, updated from the previously delivered state, and deleted only
--   if it existed; a delivered state was written at its revision, and is not older than the previous one. The calls add
--   up to the final content.
--   with at_bound = "wait" and without a gap: every change was delivered exactly once, in the order of revisions.
--
-- Values are texts: "good ..." decodes, "bad ..." does not, and "hidden ..." decodes to an object that no handler
-- wants.

local handler_judge = {}

--- Returns the options of informers that decode these values.
function handler_judge.options()
  return {
    codec = { decode = function(value)
      if value:find("^bad") then return nil, "a bad value" end
      return { text = value }
    end },
    where = function(object) return not object.text:find("^hidden") end,
  }
end

-- {====== The ledger ======

--- Adds to an epoch of a ledger that a key was put; or deleted, if `text` is nil.
function handler_judge.note(epoch, key, text, revision)
  local before = epoch.content[key]
  if not text and not before then return end
  local change = { text = text, revision = revision,
    create_revision = text and (before and before.create_revision or revision) or nil }
  local list = epoch.keys[key] or {}
  if #list > 0 and list[#list].revision == revision then list.is_fleeting = true end -- put and deleted in one revision
  epoch.keys[key] = list
  table.insert(list, change)
  epoch.content[key] = text and change or nil
end

--- Returns the ledger of the keys below a prefix, whose names lose the first `cut` bytes: for each epoch the changes of
-- each key, and the final content.
function handler_judge.ledger(truth, prefix, cut)
  local ledger = {}
  for number, epoch in ipairs(truth.epochs) do
    ledger[number] = { keys = {}, content = {} }
    epoch:each(prefix, epoch.first, epoch.last, function(revision, events)
      for _, event in ipairs(events) do
        handler_judge.note(ledger[number], event.key:sub(cut + 1), event.value, revision)
      end
    end)
  end
  return ledger
end

--- Returns the change of a key at a revision, in an epoch.
local function change_at(epoch, key, revision)
  for _, change in ipairs(epoch.keys[key] or {}) do
    if change.revision == revision then return change end
  end
end

-- }======

-- {====== Judges ======

local methods = {}
local meta = { __index = methods }

local function text_of(object) return object and object.text end

--- Adds a handler to an informer; `name` is for objections. Options: those of the handler; and `work()`, which the
-- handler calls after it has recorded a call.
function handler_judge.open(name, informer, opts)
  local status = informer:status()
  local self = setmetatable({
    name = ("%s, %s"):format(name, opts.at_bound or "wait"),
    informer = informer,
    opts = opts,
    ledger = nil,      -- set when the calls are judged
    calls = {},
    received = {},         -- by key: { text, revision, epoch, create }, while the calls are judged
    base = nil,        -- revision of the informer, when the handler was first seen to have synced
    gaps = {},         -- { after, ending }: revisions that the informer may have skipped by reading everything again
    seen_gaps = status.gaps,
    seen_revision = status.revision,
    began_at = status.revision,
    latest = {},       -- by key: the last delivered text
    is_closed = false,
  }, meta)
  local function note(call)
    call.is_late = self.is_closed
    self.calls[#self.calls + 1] = call
    if call.name ~= "error" then self.latest[call.key] = call.name ~= "delete" and call.text or nil end
    opts.work()
  end
  self.handler = assert(informer:add_handler {
    add = function(key, object, event) note { name = "add", key = key, text = text_of(object), event = event } end,
    update = function(key, object, old, event)
      note { name = "update", key = key, text = text_of(object), old = text_of(old), event = event }
    end,
    delete = function(key, object, event)
      note { name = "delete", key = key, text = text_of(object), event = event }
    end,
    error = function(key, err, event) note { name = "error", key = key, err = err, event = event } end,
    max_bytes = opts.max_bytes, at_bound = opts.at_bound, resync = opts.resync,
  })
  return self
end

function methods:fail(call, text, ...)
  local what = call and ("%s %s %s at %s: "):format(call.name, call.key, tostring(call.text),
    tostring(call.event.revision)) or ""
  error(("a handler of %s: %s%s"):format(self.name, what, text:format(...)), 0)
end

--- To be called often: records when the informer may have read everything again, and when the handler has synced.
function methods:sample()
  if self.is_closed then return end
  local status = self.informer:status()
  if status.gaps ~= self.seen_gaps then
    table.insert(self.gaps, { after = self.seen_revision, ending = math.max(status.revision, self.seen_revision) })
  end
  self.seen_gaps, self.seen_revision = status.gaps, status.revision
  if not self.base and self.handler:has_synced() then self.base = status.revision end
end

function methods:is_in_gap(revision)
  for _, gap in ipairs(self.gaps) do
    if revision > gap.after and revision <= gap.ending then return true end
  end
  return false
end

-- What always holds ---------------------------------------------------------------------------------------------------

--- Returns the first epoch that has a delivered state, newer than the previous one of the key; nil if none has it.
function methods:epoch_of(call, last)
  local revision = call.event.revision
  for epoch = last and last.epoch or 1, #self.ledger do
    local change = change_at(self.ledger[epoch], call.key, revision)
    local is_newer = not last or epoch > last.epoch or revision > last.revision
    if change and change.text == call.text and is_newer then
      if change.create_revision == call.event.create_revision then return epoch end
    end
  end
end

function methods:judge_state(call, last)
  local epoch = self:epoch_of(call, last)
  if not epoch then
    self:fail(call, "this was never so, or is older than revision %s", last and tostring(last.revision) or "of nothing")
  end
  if call.text:find("^bad") or call.text:find("^hidden") then self:fail(call, "no handler wants this") end
  local create = call.event.create_revision
  if call.name == "update" and last.create and epoch == last.epoch and create ~= last.create then
    self:fail(call, "this is another object, created at %s and not at %s", tostring(create), tostring(last.create))
  end
  return { text = call.text, revision = call.event.revision, epoch = epoch, create = create }
end

--- True if the handler may have missed changes, because it coalesces or was overrun.
function methods:may_coalesce()
  return self.opts.at_bound == "coalesce" or (self.handler:status().overruns or 0) > 0
end

--- Checks one call against the previous ones.
function methods:judge_call(call)
  local received, key = self.received, call.key
  local last = received[key]
  if call.is_late then self:fail(call, "this has begun after close") end
  if call.name == "error" then
    if call.err.code ~= "malformed" then self:fail(call, "another error: %s", tostring(call.err)) end
    return
  end
  if call.name == "add" and last and last.text then self:fail(call, "it is there: %s", last.text) end
  if call.name ~= "add" and not (last and last.text) then self:fail(call, "it is not there") end
  if call.event.resync then
    if call.name ~= "update" or call.text ~= last.text or call.old ~= last.text then
      self:fail(call, "a resync of what is not the last state, %s", last.text)
    end
    return
  end
  if call.name == "update" and call.old ~= last.text then
    self:fail(call, "the old state is %s, and %s was delivered", tostring(call.old), last.text)
  end
  if call.name == "delete" then
    if not self:may_coalesce() and call.text ~= last.text then
      self:fail(call, "the last state is not %s", last.text)
    end
    received[key] = { revision = last.revision, epoch = last.epoch } -- the next state must be newer
    return
  end
  received[key] = self:judge_state(call, last)
end

-- What holds where there is no gap ------------------------------------------------------------------------------------

--- Returns the calls that are due for a key after a revision at which the handler knew the state `known`.
function methods:expected(key, position, known)
  local list = {}
  for _, change in ipairs(self.ledger[#self.ledger].keys[key] or {}) do
    if change.revision > position then
      local text, one = change.text, nil
      if text and text:find("^bad") then
        one = { name = "error" }
      elseif text and not text:find("^hidden") then
        one = { name = known and "update" or "add", text = text, old = known }
        known = text
      elseif known then
        one = { name = "delete", text = known }
        known = nil
      end
      if one then
        one.revision = change.revision
        list[#list + 1] = one
      end
    end
  end
  return list
end

--- True if a change of a key after a revision was in a gap, or one revision has changed the key twice.
function methods:has_gap(key, position)
  local list = self.ledger[#self.ledger].keys[key] or {}
  if list.is_fleeting then return true end
  for _, change in ipairs(list) do
    if change.revision > position and self:is_in_gap(change.revision) then return true end
  end
  return false
end

--- True if a key was changed after its first delivered state, and before the handler began: its value was then bad, and
-- changes in between may have been in an earlier gap.
function methods:was_bad(key, position)
  for _, change in ipairs(self.ledger[#self.ledger].keys[key] or {}) do
    if change.revision > position and change.revision <= self.began_at then return true end
  end
  return false
end

local function shown(one)
  if not one then return "nothing" end
  return ("%s %s (was %s) at %s"):format(one.name, tostring(one.text), tostring(one.old), tostring(one.revision))
end

local function is_same(want, call)
  return want and want.name == call.name and want.text == call.text and want.old == call.old
    and want.revision == call.event.revision
end

--- Checks that the calls of a key, without resyncs, are the expected ones; all of them if `is_quiet`. Errors of bad
-- values up to the revision `optional` may be missing: the values were corrected during the initial walk.
function methods:compare(key, calls, expected, is_quiet, optional)
  local at = 1
  local function skip(call)
    while expected[at] and expected[at].name == "error" and expected[at].revision <= optional
      and not (call and is_same(expected[at], call)) do
      at = at + 1
    end
  end
  for _, call in ipairs(calls) do
    skip(call)
    if not is_same(expected[at], call) then
      local found = { name = call.name, text = call.text, old = call.old, revision = call.event.revision }
      self:fail(call, "%s was delivered, and %s was due", shown(found), shown(expected[at]))
    end
    at = at + 1
  end
  skip()
  if is_quiet and expected[at] then self:fail(nil, "%s was not delivered: %s", key, shown(expected[at])) end
end

--- Checks that every change of a key since the begin of the handler was delivered once.
function methods:judge_key(key, calls, is_quiet)
  local rest, first, position, known = {}, calls[1], nil, nil
  if first and first.name ~= "add" and first.name ~= "error" then self:fail(first, "the first of this key") end
  for _, call in ipairs(calls) do
    if call == first or call.event.initial then
      local change = change_at(self.ledger[#self.ledger], key, call.event.revision)
      -- If the value is bad since the server was restored, its last good state is in a previous epoch.
      if call.name == "add" and not (change and change.text == call.text) then return end
      position = math.max(position or 0, call.event.revision)
      known = call.name == "add" and call.text or known
    else
      rest[#rest + 1] = call
    end
  end
  if not (position or self.base) then return end
  if position and self.base and not first.event.initial and not self:has_gap(key, self.base) then
    for _, due in ipairs(self:expected(key, self.base, nil)) do
      if due.revision < first.event.revision and due.name ~= "error" then
        self:fail(first, "%s was due before", shown(due))
      end
    end
  end
  position = position or self.base
  if self:has_gap(key, position) or self:was_bad(key, position) then return end
  self:compare(key, rest, self:expected(key, position, known), is_quiet, self.base or math.huge)
end

--- Checks that changes of good values, except initial ones, come in the order of revisions, over all keys.
function methods:judge_order()
  local before = 0
  for _, call in ipairs(self.calls) do
    local event = call.event
    if call.name ~= "error" and not (event.resync or event.initial or self:is_in_gap(event.revision)) then
      if event.revision < before then self:fail(call, "revision %d came before", before) end
      before = event.revision
    end
  end
end

--- Checks all calls against a ledger. With `is_quiet` the whole content must have been delivered.
function methods:judge(ledger, is_quiet)
  self:sample()
  self.ledger = ledger
  for _, call in ipairs(self.calls) do self:judge_call(call) end
  if #ledger == 1 and not self:may_coalesce() then
    self:judge_order()
    local lists = {}
    for _, call in ipairs(self.calls) do
      if not call.event.resync then
        lists[call.key] = lists[call.key] or {}
        table.insert(lists[call.key], call)
      end
    end
    for key in pairs(ledger[1].keys) do self:judge_key(key, lists[key] or {}, is_quiet) end
  end
  if is_quiet then self:judge_content() end
end

--- Checks that the delivered events add up to the content of the informer, which judge_informer compares with the
-- server's.
function methods:judge_content()
  local received = {}
  for key, text in pairs(self.latest) do received[key] = text end
  for key, object in self.informer:each() do
    if received[key] ~= object.text then
      self:fail(nil, "%s is %s, and %s was delivered", key, object.text, tostring(received[key]))
    end
    received[key] = nil
  end
  local left = next(received)
  if left then self:fail(nil, "%s was delivered, %s, and is not there", left, received[left]) end
end

-- }======

--- Checks the content of an informer: the good values of the server, no hidden or deleted ones; and the list of its
-- bad values.
function handler_judge.judge_informer(informer, ledger)
  local content, bad = {}, {}
  for key, change in pairs(ledger[#ledger].content) do
    if change.text:find("^bad") then
      bad[key] = change.text
    elseif not change.text:find("^hidden") then
      content[key] = change
    end
  end
  local n = 0
  for key, object in informer:each() do
    n = n + 1
    if not bad[key] then
      if not content[key] or content[key].text ~= object.text then
        error(("an informer has %s of %s, and the server %s"):format(object.text, key,
          content[key] and content[key].text or "nothing"), 0)
      end
      local _, revision = informer:get(key)
      if revision ~= content[key].revision then
        error(("an informer has revision %s of %s, and the server %d"):format(tostring(revision), key,
          content[key].revision), 0)
      end
      content[key] = nil
    end
  end
  local left = next(content)
  if left then error(("an informer lacks %s of %s"):format(content[left].text, left), 0) end
  if informer:count() ~= n then error("an informer counts wrongly", 0) end
  for key, _, value in informer:bad_values() do
    if bad[key] ~= value then error(("an informer has a bad value of %s: %s"):format(key, value), 0) end
    bad[key] = nil
  end
  left = next(bad)
  if left then error(("an informer does not know that the value of %s is bad"):format(left), 0) end
end

return handler_judge
