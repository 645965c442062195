--- What the handlers of informers must have been told, at random.
--
-- A ledger has what was written, revision by revision. A server that is restored or replaced begins another epoch of
-- the ledger. A judge is a handler that notes its calls. They are judged whenever it is quiet:
--
--   always: an object is added only if it was not there, updated from the state that was told before, and deleted only
--   if it was there; what is told was written so at that revision, and is not older than what was told before. In the
--   end the calls lead to the content.
--   at_bound = "wait", and no gap: every change was told exactly once, and in order.
--
-- Values are texts: "good ..." decodes, "bad ..." does not, and "hidden ..." decodes to an object that nobody wants.

local ledger_methods = {}
local ledger_mt = { __index = ledger_methods }

-- {====== The ledger ======

local function new_ledger()
  local self = setmetatable({ epochs = {} }, ledger_mt)
  self:replace()
  return self
end

--- The options of informers: what the texts mean.
local function options()
  return {
    codec = { decode = function(value)
      if value:find("^bad") then return nil, "a bad value" end
      return { text = value }
    end },
    where = function(object) return not object.text:find("^hidden") end,
  }
end

--- Another server: nothing of what was written is there.
function ledger_methods:replace()
  self.epochs[#self.epochs + 1] = { keys = {}, content = {}, revision = 1 }
  self.epoch = #self.epochs
end

--- A key was put, or deleted if there is no text.
function ledger_methods:note(key, text, revision)
  local epoch = self.epochs[self.epoch]
  local before = epoch.content[key]
  if not text and not before then return end
  local change = { text = text, revision = revision,
    create_revision = text and (before and before.create_revision or revision) or nil }
  local list = epoch.keys[key] or {}
  if #list > 0 and list[#list].revision == revision then list.is_fleeting = true end -- it came and went at once
  epoch.keys[key] = list
  table.insert(list, change)
  epoch.content[key] = text and change or nil
  epoch.revision = revision
end

--- The change of a key at a revision, in an epoch.
function ledger_methods:change(epoch, key, revision)
  for _, change in ipairs(self.epochs[epoch].keys[key] or {}) do
    if change.revision == revision then return change end
  end
end

-- }======

-- {====== Judges ======

local methods = {}
local meta = { __index = methods }

local function text_of(object)
  if object == nil then return nil end
  return object.text
end

--- Adds a handler to an informer that is named. Options: of the handler; and `work(call)`, called in each call, after
-- it was noted.
local function open(name, informer, ledger, opts)
  local self = setmetatable({
    name = ("%s, %s"):format(name, opts.at_bound or "wait"),
    informer = informer,
    ledger = ledger,
    opts = opts,
    calls = {},        -- since it was judged last
    told = {},         -- by key: { text, revision, epoch }
    position = nil,    -- revision up to which all was told, when it was judged last
    epoch = ledger.epoch,
    base = nil,        -- revision of the informer, when the handler was first seen to have synced
    gaps = {},         -- { after, ending }: revisions in which the informer may have read anew
    seen_gaps = informer:status().gaps,
    seen_revision = informer:status().revision,
    began_at = informer:status().revision,
    n = 0,
    counts = {},
    latest = {},       -- by key: the text told last
    is_working = false, -- in a call
    is_closed = false,
  }, meta)
  local function note(call)
    self.n = self.n + 1
    if self.is_closed then call.is_late = true end
    self.calls[#self.calls + 1] = call
    if call.name == "delete" then self.latest[call.key] = nil end
    if call.name == "add" or call.name == "update" then self.latest[call.key] = call.text end
    local kind = call.event.resync and "resync" or call.event.missed and "missed" or call.event.initial and "initial"
      or call.name
    self.counts[kind] = (self.counts[kind] or 0) + 1
    if not opts.work then return end
    self.is_working = true
    local ok, err = pcall(opts.work, call)
    self.is_working = false
    if not ok then error(err, 0) end
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

--- To be called often: notes when the informer may have read anew, and when the handler has synced.
function methods:sample()
  if self.is_closed then return end
  local status = self.informer:status()
  if status.gaps ~= self.seen_gaps then
    self.counts.gaps = (self.counts.gaps or 0) + status.gaps - self.seen_gaps
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

--- Finds the epoch in which a state that is told is newer than what was told before of the key. The first that fits.
function methods:epoch_of(call, last)
  local revision = call.event.revision
  for epoch = last and last.epoch or 1, self.ledger.epoch do
    local change = self.ledger:change(epoch, call.key, revision)
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
  if call.text:find("^bad") or call.text:find("^hidden") then self:fail(call, "nobody wants this") end
  local create = call.event.create_revision
  if call.name == "update" and last.create and epoch == last.epoch and create ~= last.create then
    self:fail(call, "this is another object, created at %s and not at %s", tostring(create), tostring(last.create))
  end
  return { text = call.text, revision = call.event.revision, epoch = epoch, create = create }
end

--- True if changes may have been left out for the handler: others do not wait for it for ever.
function methods:may_coalesce()
  return self.opts.at_bound == "coalesce" or self.handler ~= nil and (self.handler:status().overruns or 0) > 0
end

--- Judges one call by what was told before.
function methods:judge_call(call)
  local told, key = self.told, call.key
  local last = told[key]
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
    self:fail(call, "the old state is %s, and %s was told", tostring(call.old), last.text)
  end
  if call.name == "delete" then
    if not self:may_coalesce() and call.text ~= last.text then
      self:fail(call, "the last state is not %s", last.text)
    end
    told[key] = { revision = last.revision, epoch = last.epoch } -- what comes is newer than what was
    return
  end
  told[key] = self:judge_state(call, last)
end

-- What holds where there is no gap ------------------------------------------------------------------------------------

--- What must have been told of a key after a position at which a state was known.
function methods:expected(key, position, known)
  local list = {}
  for _, change in ipairs(self.ledger.epochs[self.ledger.epoch].keys[key] or {}) do
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

--- Whether a change of a key after a position was in a gap, or one revision has changed the key twice.
function methods:has_gap(key, position)
  local list = self.ledger.epochs[self.ledger.epoch].keys[key] or {}
  if list.is_fleeting then return true end
  for _, change in ipairs(list) do
    if change.revision > position and self:is_in_gap(change.revision) then return true end
  end
  return false
end

--- Whether a value of a key was bad when the handler began, and its last good state is of before a position: states in
-- between may have been in a gap of which the handler knows nothing.
function methods:was_bad(key, position)
  for _, change in ipairs(self.ledger.epochs[self.ledger.epoch].keys[key] or {}) do
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

--- The calls of a key, without resyncs, are those expected; all of them if it is quiet. Bad values up to the revision
-- `optional` need not have been told: they were mended while the handler was told of what existed.
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
      self:fail(call, "%s was told, and %s was due", shown(found), shown(expected[at]))
    end
    at = at + 1
  end
  skip()
  if is_quiet and expected[at] then self:fail(nil, "%s was not told: %s", key, shown(expected[at])) end
end

--- Every change of a key was told once, since the handler was judged last, or since it has begun.
function methods:judge_key(key, calls, before, is_quiet)
  local position, known = self.position, before and before.text
  local rest, optional = calls, 0
  if not position then -- it has begun since
    optional = self.base or math.huge
    local first = calls[1]
    if first and first.name ~= "add" and first.name ~= "error" then self:fail(first, "the first of this key") end
    rest = {}
    for _, call in ipairs(calls) do
      local is_first = call == first or call.event.initial
      if is_first then
        local change = self.ledger:change(self.ledger.epoch, key, call.event.revision)
        -- The last good state of a value that is bad since the server was restored is of another epoch.
        if call.name == "add" and not (change and change.text == call.text) then return end
        position = math.max(position or 0, call.event.revision)
        known = call.name == "add" and call.text or known
      else
        rest[#rest + 1] = call
      end
    end
    if not position then
      if not self.base then return end
      position = self.base
    elseif self.base and not first.event.initial and not self:has_gap(key, self.base) then
      for _, due in ipairs(self:expected(key, self.base, nil)) do
        if due.revision < first.event.revision and due.name ~= "error" then
          self:fail(first, "%s was due before", shown(due))
        end
      end
    end
  end
  if self:has_gap(key, position) then return end
  if not self.position and self:was_bad(key, position) then return end
  self:compare(key, rest, self:expected(key, position, known), is_quiet, optional)
  self.counts.strict = (self.counts.strict or 0) + #rest
end

--- Calls after the initial ones come in the order of revisions.
function methods:judge_order(calls)
  local last = 0
  for _, call in ipairs(calls) do
    if not (call.event.initial or call.event.resync) and #self.gaps == 0 then
      if call.event.revision < last then self:fail(call, "out of order, after revision %d", last) end
      last = call.event.revision
    end
  end
end

local function by_key(calls)
  local lists = {}
  for _, call in ipairs(calls) do
    if not call.event.resync then
      lists[call.key] = lists[call.key] or {}
      table.insert(lists[call.key], call)
    end
  end
  return lists
end

--- Judges the calls since the last time. If it is quiet, all that there is was told, up to the revision of the server.
function methods:judge(is_quiet)
  self:sample()
  local calls, before = self.calls, {}
  self.calls = {}
  for key, one in pairs(self.told) do before[key] = one end
  for _, call in ipairs(calls) do self:judge_call(call) end
  local ledger = self.ledger
  local is_strict = not self:may_coalesce() and self.epoch == ledger.epoch
  if is_strict then
    local lists = by_key(calls)
    if self.position then self:judge_order(calls) end
    for key in pairs(ledger.epochs[ledger.epoch].keys) do
      self:judge_key(key, lists[key] or {}, before[key], is_quiet)
    end
  end
  if not is_quiet then return end
  self:judge_content()
  if self.epoch ~= ledger.epoch then self.told = {} end
  for key, one in pairs(self.told) do
    if not one.text then self.told[key] = nil end
  end
  if self.epoch ~= ledger.epoch then
    for key, text in pairs(self.latest) do self.told[key] = { text = text, revision = 0, epoch = ledger.epoch } end
  end
  self.position, self.epoch, self.gaps = ledger.epochs[ledger.epoch].revision, ledger.epoch, {}
end

--- What was told leads to the content of the informer, and that is what the server has.
function methods:judge_content()
  local told = {}
  for key, text in pairs(self.latest) do told[key] = text end
  for key, object in self.informer:each() do
    if told[key] ~= object.text then
      self:fail(nil, "%s is %s, and %s was told", key, object.text, tostring(told[key]))
    end
    told[key] = nil
  end
  local left = next(told)
  if left then self:fail(nil, "%s was told, %s, and is not there", left, told[left]) end
end

-- }======

--- An informer has what the server has: good values, nothing of those that are hidden or gone; and knows the bad ones.
local function judge_informer(informer, ledger)
  local content, bad = {}, {}
  for key, change in pairs(ledger.epochs[ledger.epoch].content) do
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

return { new_ledger = new_ledger, options = options, open = open, judge_informer = judge_informer }
