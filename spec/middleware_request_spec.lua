--- What middleware sees of requests: the field `request` of calls, and the messages of streams. The core and handlers
-- get the same bytes.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local serving = require "spec.support.serving"
local within = require "spec.support.within"

local ECHO, STREAM = "/spec.Calls/Echo", "/spec.Calls/Stream"
local KV = "/etcdserverpb.KV/"
local PUT, RANGE, TXN, WATCH = KV .. "Put", KV .. "Range", KV .. "Txn", "/etcdserverpb.Watch/Watch"
local KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"

local PREFIX, AFTER = "/protected/", "/protected0"
local REFUSED = { grpc_status = 7, message = "protected" }

local OPS = { "request_range", "request_put", "request_delete_range", "request_txn" }

local is_allowed

--- True if no op of a list touches the protected keys.
local function are_allowed(ops)
  for _, op in ipairs(ops or {}) do
    for _, name in ipairs(OPS) do
      if op[name] and not is_allowed(op[name]) then return false end
    end
  end
  return true
end

--- True if a request touches no protected key.
function is_allowed(request)
  local key, range_end = request.key or "", request.range_end or ""
  if range_end ~= "" then
    if key < AFTER and (range_end == "\0" or range_end > PREFIX) then return false end
  elseif key >= PREFIX and key < AFTER then
    return false
  end
  for _, compare in ipairs(request.compare or {}) do
    if not is_allowed(compare) then return false end
  end
  return are_allowed(request.success) and are_allowed(request.failure)
end

describe("middleware that reads requests", function()
  local store, server, client

  serving.in_process(function(...) store, server, client = ... end)

  local function send(call, name, message) client:send(call, core.encode(name, message)) end

  local function expect_nothing_left() client:wait(function() return next(server.calls) == nil end) end

  --- Adds the rule.
  local function protect()
    local function check(request)
      if request and not is_allowed(request) then return nil, REFUSED end
    end
    server:use {
      before = function(call)
        if call.path:find(KV, 1, true) then return check(call.request) end
      end,
      message = function(_, message) return check(message.create_request) end,
    }
  end

  it("has a rule for each key", within.task(function()
    store:put("/protected/a", "1")
    protect()
    local own = keywatch.connect(server:addresses()[1])
    local secret, open = "/protected/a", "/open/a"
    for what, request in pairs {
      get = function(key) return own:get(key) end,
      put = function(key) return own:put(key, "x") end,
      delete = function(key) return own:delete(key) end,
      txn = function(key) return own:txn { success = { { put = key, value = "x" } } } end,
      failure = function(key) return own:txn { failure = { { delete = key } } } end,
      compare = function(key) return own:txn { compare = { { key = key, version = 1 } } } end,
      nested = function(key) return own:txn { success = { { txn = { failure = { { get = key } } } } } } end,
    } do
      local _, err = request(open)
      assert.is_nil(err, what)
      _, err = request(secret)
      assert.equal("permission_denied", err and err.code, what)
      assert.equal("protected", err.message:match "%a+$")
    end
    for _, opts in ipairs { { prefix = true }, { range_end = "\0" }, { range_end = "/protected/b" } } do
      assert.equal("permission_denied", select(2, own:range("/p", opts)).code)
    end
    assert.is_truthy(own:range("/open/", { prefix = true }))
    assert.equal("1", store:get("/protected/a").value)
    own:close()
  end))

  it("has a rule for each watch of a stream", function()
    protect()
    local call = client:call(WATCH)
    send(call, "WatchRequest", { create_request = { key = "/open/", range_end = "/open0", watch_id = 1 } })
    send(call, "WatchRequest", { progress_request = {} })
    client:wait(function() return #call.messages == 2 end)
    store:put("/open/b", "2")
    client:wait(function() return #call.messages == 3 end)
    send(call, "WatchRequest", { create_request = { key = "/", range_end = "\0", watch_id = 2 } })
    client:wait(function() return call.status end)
    assert.equal(7, call.status)
    assert.equal(3, #call.messages)
    store:put("/protected/a", "1")
    client:settle()
    assert.equal(3, #call.messages)
    expect_nothing_left()
  end)

  it("lets messages of a stream proceed in order, while a long batch of events is sent", function()
    local may_proceed = require("keywatch.task.driver").get().event()
    server:use {
      message = function(_, message)
        if message.create_request.key == "other1" then may_proceed:wait() end
      end,
    }
    for i = 1, 6 do
      local ops = {}
      for j = 1, 100 do ops[j] = { put = ("k%d/%d"):format(i, j), value = ("x"):rep(8192) } end
      store:txn { success = ops }
    end
    local call = client:call(WATCH)
    send(call, "WatchRequest", { create_request = { key = "k", range_end = "l", prev_kv = true } })
    client:wait(function() return #call.messages == 1 end)
    send(call, "WatchRequest", { create_request = { key = "other1" } })
    client:settle()
    client:pause()
    store:delete("k", { prefix = true }) -- too much for one part
    client:settle()
    may_proceed:set()
    for i = 2, 20 do
      send(call, "WatchRequest", { create_request = { key = "other" .. i } })
      client:turn()
    end
    client:resume()
    local events, created = 0, 0
    client:wait(function()
      events, created = 0, 0
      for _, bytes in ipairs(call.messages) do
        local message = core.decode("WatchResponse", bytes)
        events, created = events + #(message.events or {}), created + (message.created and 1 or 0)
      end
      return events == 600 and created == 21
    end)
    client:cancel(call)
    expect_nothing_left()
  end)

  it("sees what is executed: of repeated fields the last", function()
    local seen
    server:use { before = function(call) seen = call.request end }
    local function field(number, bytes) return string.char(number * 8 + 2, #bytes) .. bytes end
    client:unary(PUT, field(1, "first") .. field(2, "v") .. field(1, "second"))
    assert.equal("second", seen.key)
    assert.is_nil(store:get("first"))
    assert.equal("v", store:get("second").value)
    local put = core.encode("PutRequest", { key = "chosen" })
    local range = core.encode("RangeRequest", { key = "no" })
    client:unary(TXN, field(2, field(2, core.encode("PutRequest", { key = "no", value = "no" })) .. field(1, range)
      .. field(2, put)))
    assert.same({ { request_put = { key = "chosen" } } }, seen.success)
    assert.is_nil(store:get("no"))
    assert.equal("", store:get("chosen").value)
  end)

  it("changes nothing by changing the table", function()
    local function change(message) message.key, message.value = "other", "changed" end
    server:mount("spec.Calls", {
      Echo = { request = "PutRequest", handler = function(request) return request.key end },
    })
    server:use { before = function(call) change(call.request) end }
    client:ask(PUT, { key = "a", value = "1" })
    assert.equal("1", store:get("a").value)
    assert.equal("b", client:unary(ECHO, core.encode("PutRequest", { key = "b" })))
  end)

  it("sees the requests of services in Lua, and messages of their streams", function()
    local seen = {}
    server:mount("spec.Calls", {
      Echo = function(request) return request end,
      Stream = { stream = true, request = "PutRequest", response = "PutRequest", handler = function(call)
        for message in call:messages() do call:send(message) end
      end },
    })
    server:use {
      before = function(call)
        local request = call.request
        seen[#seen + 1] = type(request) == "table" and request.key or request
        assert.equal(request, call.request) -- the same table
      end,
      message = function(_, message)
        seen[#seen + 1] = message.key
        return message.key ~= "no"
      end,
    }
    assert.equal("x", client:unary(ECHO, "x"))
    local call = client:call(STREAM)
    for _, key in ipairs { "a", "b", "no", "c" } do send(call, "PutRequest", { key = key }) end
    client:wait(function() return call.status end)
    assert.equal(7, call.status)
    assert.same({ "x", "a", "a", "b", "no" }, seen)
    assert.equal(2, #call.messages)
    expect_nothing_left()
  end)

  it("waits for large requests, and gets no request that is malformed or too large", function()
    local sizes = {}
    server:use { before = function(call) sizes[#sizes + 1] = #call.request.value end }
    local value = ("x"):rep(1500000)
    client:ask(PUT, { key = "a", value = value })
    assert.equal(value, store:get("a").value)
    local _, status = client:unary(PUT, core.encode("PutRequest", { key = "b", value = ("x"):rep(3000000) }))
    assert.equal(8, status)
    _, status = client:unary(RANGE, "\255")
    assert.equal(13, status)
    assert.same({ 1500000 }, sizes)
    expect_nothing_left()
  end)

  it("gets nil if the client sends nothing", function()
    local seen = {}
    server:use {
      before = function(call) seen[#seen + 1] = tostring(call.request) end,
      message = function(_, message) seen[#seen + 1] = message end,
    }
    local call = client:call(KEEP_ALIVE)
    client:half_close(call)
    client:wait(function() return call.status end)
    assert.equal(0, call.status)
    assert.same({ "nil" }, seen)
    expect_nothing_left()
  end)

  it("ends with a client that sends no whole message, and reads no request after `before`", function()
    local seen
    server:use {
      before = function(call) if call.path == PUT then return end return call.request and true end,
      after = function(call) seen = tostring(call.request) end,
    }
    client:ask(PUT, { key = "a" })
    client:wait(function() return seen end)
    assert.equal("nil", seen)
    local call = client:call(WATCH)
    client:settle()
    client:cancel(call)
    expect_nothing_left()
  end)
end)
