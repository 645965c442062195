--- A writer that changes keys at random, and knows the events that watches must receive.

local PATIENCE = 60 -- seconds after which a missing event counts as lost

local methods = {}
local meta = { __index = methods }

--- Returns a writer below a prefix, with its own client. Options: keys, their number; size, the largest of values.
local function new(client, random, prefix, options)
  options = options or {}
  return setmetatable({
    client = client,
    random = random,
    prefix = prefix,
    keys = options.keys or 9,
    size = options.size or 20,
    state = {},   -- the existing kvs, by key
    log = {},     -- by revision: lists of { text of the event, the same with the previous revision }
    revision = 0, -- of the store; other writers must report theirs
    n = 0,        -- writes
  }, meta)
end

--- Returns an event as a text, for comparisons.
local function text_of(event, prev)
  local text = ("%s %s %s"):format(event.type, event.key, event.value or "")
  if #text > 100 then text = ("%s..%d bytes.."):format(text:sub(1, 60), #text) end
  text = ("%s c%d m%d v%d"):format(text, event.create_revision or 0, event.mod_revision, event.version or 0)
  return prev and ("%s after %d"):format(text, prev.mod_revision) or text
end

local function key_of(self) return self.prefix .. self.random:between(1, self.keys) end

local function value_of(self)
  self.n = self.n + 1
  return ("%d %s"):format(self.n, ("x"):rep(self.random:between(0, self.size)))
end

--- Returns the operations of a transaction that writes different keys.
local function choose(self)
  local ops, is_taken = {}, {}
  for _ = 1, self.random:one_in(3) and self.random:between(2, 4) or 1 do
    local key = key_of(self)
    if not is_taken[key] then
      is_taken[key] = true
      local goes = self.state[key] and self.random:one_in(4)
      ops[#ops + 1] = goes and { delete = key } or { put = key, value = value_of(self) }
    end
  end
  return ops
end

local function apply(self, op, revision)
  local key = op.put or op.delete
  local prev = self.state[key]
  local kv = op.put and {
    type = "put", key = key, value = op.value, mod_revision = revision,
    create_revision = prev and prev.create_revision or revision,
    version = prev and prev.version + 1 or 1,
  }
  self.state[key] = kv or nil
  local event = kv or { type = "delete", key = key, mod_revision = revision }
  return { text_of(event), text_of(event, prev) }
end

--- Makes a transaction, and logs its events.
function methods:write(ops)
  ops = ops or choose(self)
  local answer = assert(self.client:txn { success = ops })
  local revision = answer.revision
  assert(self.revision == 0 or revision == self.revision + 1, "another writer")
  local events = {}
  for i, op in ipairs(ops) do events[i] = apply(self, op, revision) end
  self.log[revision], self.revision = events, revision
  return revision
end

--- Makes the last write: a watch is complete when it has received this write.
function methods:finish()
  return self:write { { put = self.prefix .. "end", value = "" } }
end

--- Adds the texts of a batch's events to a list.
local function enter(list, batch, has_prev)
  for _, event in ipairs(batch.events) do
    assert(event.mod_revision == batch.revision, "a batch is of one revision")
    list[#list + 1] = text_of(event, has_prev and event.prev)
  end
  list[#list + 1] = "--"
end

--- Reads a watch until the last write. Returns the events for compare(). After progress, only newer events may follow.
function methods:gather(watch, has_prev)
  local list, progress = {}, 0
  while true do
    local batch, err = watch:batch(PATIENCE)
    if not batch then error(("after revision %d: %s"):format(watch.revision, tostring(err)), 2) end
    assert(batch.revision > progress, "an event after the progress that covers it")
    if batch.events[1].type == "progress" then
      progress = batch.revision
    else
      enter(list, batch, has_prev)
      if batch.events[#batch.events].key == self.prefix .. "end" then return list end
    end
  end
end

--- Checks that each revision after `from`, and up to `to` if given, was received once, complete, and in order.
function methods:compare(gathered, from, has_prev, to)
  local n = 0
  local function expect(text)
    n = n + 1
    if gathered[n] == text then return end
    error(("at %d, expected %s, found %s"):format(n, text, tostring(gathered[n])), 3)
  end
  for revision = from + 1, to or self.revision do
    for _, texts in ipairs(self.log[revision] or {}) do expect(texts[has_prev and 2 or 1]) end
    if self.log[revision] then expect("--") end
  end
  assert(n == #gathered, "more events than changes")
end

return { new = new, enter = enter, PATIENCE = PATIENCE }
