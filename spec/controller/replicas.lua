--- A controller that keeps N children for every parent, and a judge of all that it writes.
--
--   /sets/NAME         { "replicas": 3, "image": "red" }, and a finalizer
--   /parts/NAME/1 … 3  { "image": "red", "term": 17 }, whose owner is the parent; `term` is the revision of the
--                      leadership under which the child was written, or 0
--
-- Children are written only if the parent is still what the controller has seen: the transaction compares it. So no
-- child comes after its parent's last finalizer has gone, however late a request arrives.

local cjson = require "cjson"

local controller = require "keywatch.controller"

local SETS, PARTS = "/sets/", "/parts/"
local FINALIZER = "replicas"
local TIMES = { timeout = 5 } -- of requests

local replicas = { SETS = SETS, PARTS = PARTS, FINALIZER = FINALIZER }

-- {====== Texts ======

--- The value of a parent.
function replicas.parent(n, image) return ('{"replicas":%d,"image":"%s"}'):format(n, image) end

--- The value of a child.
function replicas.child(owner, image, term)
  return ('{"metadata":{"owner":"%s"},"image":"%s","term":%d}'):format(owner, image, term)
end

--- The key of the n-th child of a parent.
function replicas.child_key(owner, n) return ("%s%s/%d"):format(PARTS, owner:sub(#SETS + 1), n) end

-- }======

-- {====== The controller ======

--- Returns the keys of a table, in order.
local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

--- The informers of a client: parents, and children, which are found by their owner.
function replicas.informers(client)
  return client:informer(SETS, { codec = "json" }),
    client:informer(PARTS, { codec = "json", indexes = { owner = controller.ownership.owner_of } })
end

--- Writes, if all compares hold. Returns as a reconcile.
local function write(self, store, compare, ops)
  if #ops == 0 then return true end
  local result, err = store:txn({ compare = compare, success = ops }, TIMES)
  if not result then return nil, err end
  self.count(result.succeeded and "changes by reconcile" or "conflicts")
  return result.succeeded or { again = true }
end

--- Deletes the children that are not wanted. That is a transaction of its own: two parents, each with a child that has
-- the key of a child of the other one, would else wait for each other.
local function delete_children(self, store, have, want)
  local ops, compare = {}, {}
  for _, child in ipairs(sorted_keys(have)) do
    if not want[child] then
      compare[#compare + 1] = { key = child, mod_revision = have[child].revision }
      ops[#ops + 1] = { delete = child }
    end
  end
  return write(self, store, compare, ops)
end

--- Writes missing and wrong children, if the parent has not changed.
local function put_children(self, store, key, revision, have, want)
  local ops, compare = {}, { { key = key, mod_revision = revision } }
  for _, child in ipairs(sorted_keys(want)) do
    local old = have[child]
    if not old or old.image ~= want[child] then
      compare[#compare + 1] = { key = child, mod_revision = old and old.revision or 0 }
      ops[#ops + 1] = { put = child, value = replicas.child(key, want[child], self.term_of(store)) }
    end
  end
  return write(self, store, compare, ops)
end

--- Removes the finalizer of a parent, once there is no child.
local function finalize(store, key)
  local prefix = PARTS .. key:sub(#SETS + 1) .. "/"
  local range, err = store:range(prefix, { prefix = true, limit = 1, timeout = TIMES.timeout })
  if not range then return nil, err end
  if #range.kvs > 0 then return { again = true } end
  local done
  done, err = controller.ownership.remove_finalizer(store, key, FINALIZER, TIMES)
  if done == nil then return nil, err end
end

--- Brings one parent and its children into the wished state.
local function reconcile(self, key, context)
  local parent, revision = self.parents:get(key)
  local have, want = {}, {}
  for child, object in self.parts:by_index("owner", key) do
    local _, child_revision = self.parts:get(child)
    have[child] = { image = object.image, revision = child_revision }
  end
  local is_wanted = parent ~= nil and not controller.ownership.is_deleting(parent)
  if is_wanted and not controller.ownership.has_finalizer(parent, FINALIZER) then
    local done, err = controller.ownership.add_finalizer(context.store, key, FINALIZER, TIMES)
    if done == nil then return nil, err end
    return true -- the change comes as an event
  end
  if is_wanted then
    for i = 1, parent.replicas do want[replicas.child_key(key, i)] = parent.image end
  end
  local outcome, err = delete_children(self, context.store, have, want)
  if outcome ~= true then return outcome, err end
  if is_wanted then return put_children(self, context.store, key, revision, have, want) end
  if controller.ownership.has_finalizer(parent, FINALIZER) then return finalize(context.store, key) end
end

--- Returns a controller. Options: `parents` and `parts`, informers; `store`; `term_of(store)`, the revision of the
-- leadership whose fence it is; `count(what)`; `disturb(request)`, called before each reconcile; `workers`, `resync`.
function replicas.new(opts)
  local active = {}
  local self = {
    parents = opts.parents, parts = opts.parts, count = opts.count, term_of = opts.term_of,
  }
  return controller.new {
    name = "replicas",
    store = opts.store,
    workers = opts.workers,
    timeout = 30,
    limiter = controller.limiter.exponential { first = 0.01, longest = 20 },
    sources = { { opts.parents, resync = opts.resync }, { opts.parts, owner = true } },
    reconcile = function(key, context)
      if active[key] then opts.count("two reconciles of one request at once") end
      active[key] = true
      local ok, outcome, err = pcall(function()
        if opts.disturb then opts.disturb(key) end
        return reconcile(self, key, context)
      end)
      active[key] = nil
      if not ok then error(outcome, 0) end
      return outcome, err
    end,
  }
end

-- }======

-- {====== The judge ======

--- Returns why the state of a store is not what its parents wish, or nil.
function replicas.difference(store)
  local want, have = {}, {}
  for _, kv in ipairs(store:range(SETS, { prefix = true }).kvs) do
    local parent = cjson.decode(kv.value)
    if controller.ownership.is_deleting(parent) then return kv.key .. " is being deleted" end
    if not controller.ownership.has_finalizer(parent, FINALIZER) then return kv.key .. " has no finalizer" end
    for i = 1, parent.replicas do want[replicas.child_key(kv.key, i)] = parent.image end
  end
  for _, kv in ipairs(store:range(PARTS, { prefix = true }).kvs) do
    local child = cjson.decode(kv.value)
    if not want[kv.key] then return kv.key .. " is an orphan of " .. tostring(controller.ownership.owner_of(child)) end
    if child.image ~= want[kv.key] then return ("%s is %s, and not %s"):format(kv.key, child.image, want[kv.key]) end
    have[kv.key] = true
  end
  for key in pairs(want) do
    if not have[key] then return key .. " is missing" end
  end
end

local judge_methods = {}
local judge_mt = { __index = judge_methods }

--- A judge of changes. Children that the spec itself writes have the term -1.
function replicas.judge()
  return setmetatable({ state = {}, term = 0, failure = nil }, judge_mt)
end

--- Judges a change: of a key with a prefix of this module, to a value, or nil.
function judge_methods:change(key, value)
  local before = self.state[key]
  self.state[key] = value
  if key:sub(1, #PARTS) == PARTS and value then
    local term = cjson.decode(value).term
    if term < self.term and term > 0 then
      self.failure = self.failure or ("%s was written by term %d after term %d"):format(key, term, self.term)
    end
    self.term = math.max(self.term, term)
  elseif key:sub(1, #SETS) == SETS and before and not value then
    local parent = cjson.decode(before)
    if not controller.ownership.is_deleting(parent) then return end
    local prefix = PARTS .. key:sub(#SETS + 1) .. "/"
    for child, text in pairs(self.state) do
      if child:sub(1, #prefix) == prefix and cjson.decode(text).term >= 0 then
        self.failure = self.failure or ("%s was gone before its child %s"):format(key, child)
      end
    end
  end
end

-- }======

return replicas
