--- Where a call may wait: in a task, and at top level unless another library turns a loop there.

local program = require "spec.support.program"

-- Tries all calls that wait, and all that do not, and prints the results.
local TRY = [[
  local keywatch = require "keywatch"
  local store = keywatch.open()
  local w = store:watch("a")

  local function try(name, fn, ...)
    local ok, err = pcall(fn, ...)
    local owner = tostring(err):match(" waits, which would block (.-):") or tostring(err)
    print(name, ok or owner:match("Neovim") or owner:match("luv") or owner)
  end

  local function join(timeout)
    local task = keywatch.spawn(function() end)
    local ok, err = pcall(task.join, task, timeout)
    task:cancel()
    if not ok then error(err, 0) end
  end

  local function try_all()
    try("run", keywatch.run, function() end)
    try("sleep", keywatch.sleep, 0)
    try("next", w.next, w, 0.001)
    try("batch", w.batch, w, 0.001)
    try("events", function() store:put("a", "1") w:events()() end)
    try("join", join)
    try("poll", w.next, w, 0)
    try("sync", w.sync, w)
    try("put", store.put, store, "a", "1")
    try("spawn", function() keywatch.spawn(function() end):cancel() end)
    try("now", keywatch.now)
    try("close", w.close, w)
  end
]]

--- What TRY prints, if what waits is refused for the sake of `owner`; or nothing is, without.
local function expected(owner)
  local lines = {}
  for name in ("run sleep next batch events join poll sync put spawn now close"):gmatch("%a+") do
    local is_free = not ("run sleep next batch join"):find(name, 1, true) -- what was there already is no wait
    lines[#lines + 1] = ("%s\t%s\n"):format(name, (is_free or not owner) and "true" or owner)
  end
  return table.concat(lines)
end

local function expect_refusals(owner, text) assert.equal(expected(owner), program.printed_by(text)) end

describe("at top level", function()
  it("every call may wait", function() expect_refusals(nil, TRY .. "try_all()") end)

  it("no call may wait in Neovim", function() expect_refusals("Neovim", "vim = {}\n" .. TRY .. "try_all()") end)

  it("no call may wait while luv turns its loop", function()
    expect_refusals("luv", "package.loaded.luv = { loop_mode = function() return 'default' end }\n" .. TRY ..
      "try_all()")
  end)

  it("no call may wait while luv turns its loop, not for the shortest time", function()
    assert.same({ 0, "next\tluv\nbatch\tluv\njoin\tluv\nwait\tluv\nwait\ttrue\n" }, { program.run(TRY .. [[
      package.loaded.luv = { loop_mode = function() return "default" end }
      try("next", w.next, w, 1e-9)
      try("batch", w.batch, w, 1e-9)
      try("join", join, 1e-9)
      local signals = keywatch.signals { "TERM" }
      try("wait", signals.wait, signals, 1e-9)
      try("wait", signals.wait, signals, 0)
    ]]) })
  end)

  it("every call may wait while luv does not", function()
    expect_refusals(nil, "package.loaded.luv = { loop_mode = function() return nil end }\n" .. TRY .. "try_all()")
  end)

  it("every call may wait if modules and globals only have such names", function()
    expect_refusals(nil, "ngx = true\npackage.loaded.luv = true\n" .. TRY .. "try_all()")
    expect_refusals(nil, "ngx = {}\npackage.loaded.luv = {}\n" .. TRY .. "try_all()")
  end)

  it("the error names the alternative, and the call", function()
    local printed = program.printed_by [[
      package.loaded.luv = { loop_mode = function() return "default" end }
      local keywatch = require "keywatch"
      print(pcall(function() keywatch.sleep(0) end))
    ]]
    assert.matches("keywatch: sleep waits, which would block luv's loop: call it in a task, "
      .. "with keywatch.spawn", printed)
  end)
end)

-- Calls all that waits, in its plain form and by pcall, in a place where nothing may wait; prints what is not named.
local NAMES = [[
  local keywatch = require "keywatch"
  local store = keywatch.open()
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local client = keywatch.connect(server:addresses()[1])
  local lease, stream = client:lease(60), client:stream("/etcdserverpb.Lease/LeaseKeepAlive")
  local remote, near = client:watch("a"), store:watch("a")
  local channel, signals = keywatch.channel(), keywatch.signals { "USR1" }
  local task = keywatch.spawn(function() keywatch.sleep(60) end)

  local calls = {}
  local function add(object, name, ...) calls[#calls + 1] = { object, name, ... } end
  for _, name in ipairs { "get", "range", "delete", "exists", "watch" } do add(client, name, "a") end
  add(client, "put", "a", "b")
  add(client, "txn", {})
  add(client, "compact", 1)
  add(client, "lease", 5)
  add(client, "leases")
  add(client, "status")
  add(client, "call", "/etcdserverpb.Cluster/MemberList", {})
  for _, name in ipairs { "keepalive", "remaining", "keys", "revoke" } do add(lease, name) end
  for _, name in ipairs { "next", "batch", "sync" } do add(remote, name) end
  for _, name in ipairs { "next", "batch" } do add(near, name) end
  add(stream, "receive")
  add(channel, "receive")
  add(channel, "send", 1)
  add(signals, "wait")
  add(task, "join")
  add(server, "shutdown", 1)
  add(keywatch, "sleep", 0)
  add(keywatch, "join", { task })
  add(keywatch, "select", { channel })
  add(keywatch, "scope", function() end)

  local unpack = table.unpack or unpack
  local function arguments(call)
    if call[1] == keywatch then return unpack(call, 3) end
    return call[1], unpack(call, 3)
  end

  local function look(name, ok, err)
    local found = not ok and tostring(err):match("keywatch: ([%a ]+) waits, .*keywatch%.spawn")
    if found ~= name then print(name, ok, err) end
  end

  local function try_all()
    for _, call in ipairs(calls) do
      local object, name = call[1], call[2]
      local fn = object[name]
      look(name, pcall(function() local _ = fn(arguments(call)) end))
      look(name, pcall(fn, arguments(call)))
      look(name, pcall(function() return fn(arguments(call)) end))
    end
    assert(near:next(0) == nil and near:sync()) -- what need not wait
    look("the for loop", pcall(function() for _ in near:events() do break end end))
    look("receive", pcall(function() for _ in channel:values() do break end end))
    look("each", pcall(function() for _ in client:each("a") do break end end))
    print "all named"
  end
]]

describe("a call that cannot wait is named", function()
  local places = {
    ["while luv turns its loop"] = [[
      package.loaded.luv = { loop_mode = function() return "default" end }
      try_all()
    ]],
    ["in a coroutine that is no task"] = "coroutine.wrap(try_all)()",
    ["in a coroutine of a task"] = "keywatch.run(function() coroutine.wrap(try_all)() end)",
    ["in a function that C calls, in a task"] = "keywatch.run(function() string.gsub('x', 'x', try_all) end)",
    ["while the loop turns"] = [[
      require("keywatch.task.driver").get().attach { poll = function() try_all() os.exit(0, true) end }
      keywatch.sleep(0)
    ]],
  }
  for place, text in pairs(places) do
    it(place, function() assert.same({ 0, "all named\n" }, { program.run(NAMES .. text .. "\nos.exit(0, false)") }) end)
  end
end)

describe("with the real luv", function()
  it("no call may wait inside of a callback, and all may again after the loop", function()
    assert.equal("before\ttrue\n" .. expected("luv") .. "after\ttrue\n", program.printed_by(TRY .. [[
      local luv = require "luv"
      try("before", keywatch.sleep, 0)
      local timer = luv.new_timer()
      timer:start(0, 0, function()
        timer:close()
        try_all()
      end)
      luv.run()
      w = store:watch("a")
      try("after", keywatch.run, function()
        keywatch.sleep(0.001)
        store:put("a", "2")
        assert(w:next().value == "2")
      end)
    ]]))
  end)

  it("a program with both loops ends well", function()
    for _, order in ipairs { { "luv", "keywatch" }, { "keywatch", "luv" } } do
      assert.same({ 0, "from luv\n" }, { program.run(([[
        local first, second = require "%s", require "%s"
        local keywatch, luv = package.loaded.keywatch, package.loaded.luv
        store = keywatch.open()
        w = store:watch("a")
        keywatch.sleep(0.001)
        timer = luv.new_timer()
        timer:start(1, 0, function() store:put("a", "from luv") end)
        luv.run()
        print(w:next().value)
      ]]):format(order[1], order[2])) })
    end
  end)
end)
