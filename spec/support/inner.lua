--- Adds the functions of core.inner, which are internal to keywatch, as methods of stores: specs move manual clocks and
-- fill replicas. busted loads keywatch.core again for each spec file.
--
-- A replica takes a server's answers. These methods of a replica make such answers from tables, and return true, or nil
-- and an error:
--
--   load_kvs(revision, kvs)     the first content
--   merge_kvs(revision, kvs)    the content at a later revision
--   apply(revision, events)     the events of one revision; a revision that the replica already has is ignored
--   advance(revision)           a revision without events

--- Returns the method that fills a replica by a function of core.inner.
local function filling(core, fill)
  return function(replica, revision, kvs)
    local state = core.feed_state("\0", "\0")
    assert(state:add(core.encode("RangeResponse", { header = { revision = revision }, kvs = kvs, count = #kvs })))
    local ok, err
    repeat ok, err = fill(replica, state) until ok ~= false
    state:close()
    return ok, err
  end
end

--- Passes an answer of a Watch call to a replica.
local function hear(core, replica, revision, answer)
  local hand = require "spec.support.hand"
  local server, sub = hand.new(), core.subscription(1, "", { prefix = true })
  local call, stream = server:watch(2 ^ 30)
  sub:begin(revision - 1)
  assert(sub:attach(server.client, call))
  server:answer(stream, hand.created(0, revision), answer)
  local n, err = core.inner.feed(replica, sub)
  sub:close()
  server:close()
  if not n then return nil, err end
  return true
end

local function add_methods(core)
  local methods = core.store_methods
  for name, fn in pairs(core.inner) do methods[name] = fn end
  methods.load_kvs, methods.merge_kvs = filling(core, core.inner.load), filling(core, core.inner.merge)

  function methods.advance(replica, revision)
    return hear(core, replica, revision, { watch_id = 0, header = { revision = revision } })
  end

  function methods.apply(replica, revision, events)
    local answer = { watch_id = 0, header = { revision = revision }, events = {} }
    for i, event in ipairs(events) do
      local kv = { key = event.key, value = event.value, create_revision = event.create_revision,
        mod_revision = revision, version = event.version, lease = event.lease }
      answer.events[i] = { type = event.type:upper(), kv = kv }
    end
    return hear(core, replica, revision, answer)
  end
  return core
end

package.preload["keywatch.core"] = function(name)
  local path = assert(package.searchpath(name, package.cpath))
  return add_methods(assert(package.loadlib(path, "luaopen_keywatch_core"))(name, path))
end

if package.loaded["keywatch.core"] then add_methods(package.loaded["keywatch.core"]) end
