--- Clients of a server in the same process, in virtual time. The server acts at moments that a spec chooses.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local code = require("spec.support.answer").code
local within = require "spec.support.within"

local PATIENCE = 60 -- seconds
local LOCAL = "http://127.0.0.1:0"
local N = 2500      -- keys, on several pages

describe("a client #plain", function() -- there is no TLS in virtual time
  local world, store, server

  before_each(function()
    world, store = testing.world(), keywatch.open()
    server = assert(keywatch.serve { store = store, listen = LOCAL })
  end)

  after_each(function()
    server:close()
    store:close()
    world:close()
  end)

  local function connect(opts, urls) return keywatch.connect(urls or server:addresses()[1], opts) end

  local function key_of(i) return ("k%04d"):format(i) end

  local function fill()
    for i = 1, N do store:put(key_of(i), "v") end
  end

  describe("whose token is not renewed in time", function()
    it("continues its watches, and reads that were under way", function()
      local n_asked, refuse, sleeps = 0, false, {}
      server:mount("etcdserverpb.Auth", { Authenticate = {
        request = "AuthenticateRequest", response = "AuthenticateResponse",
        handler = function()
          n_asked = n_asked + 1
          if n_asked == 2 then keywatch.sleep(PATIENCE) end
          return { token = "t" .. n_asked }
        end,
      } })
      server:use { before = function(call)
        if call.path:find("Range$") and refuse then
          refuse = false
          return nil, { grpc_status = 16, message = "etcdserver: invalid auth token" }
        end
        if call.path:find("LeaseLeases$") and #sleeps == 0 then
          sleeps[1] = true
          keywatch.sleep(PATIENCE)
        end
        return true
      end }
      keywatch.run(function()
        local client = connect { user = "u", password = "p", timeout = 0.5 }
        local w = assert(client:watch("k", { timeout = PATIENCE }))
        client:put("k", "1", { timeout = PATIENCE })
        assert.equal("1", w:next(PATIENCE).value)
        local reading = keywatch.spawn(client.leases, client, { timeout = PATIENCE })
        while #sleeps == 0 do keywatch.sleep(0.001) end
        refuse = true
        assert.equal("1", client:get("k", { timeout = PATIENCE }).value)
        assert.is_true(n_asked >= 3)
        client:put("k", "2", { timeout = PATIENCE })
        assert.equal("2", w:next(PATIENCE).value)
        local _, found = reading:join()
        assert.same({}, found)
      end)
    end)
  end)

  describe("with an initial read", function()
    before_each(fill)

    it("delivers no kv twice, and no deleted one, though it begins again in a sync", function()
      local w = assert(connect():watch("k", { prefix = true, initial = true }))
      store:delete(key_of(1))
      store:compact(store:status().revision)
      assert.equal(store:status().revision, w:sync(PATIENCE))
      for i = 2, N do assert.equal(key_of(i), w:next(0).key) end
      assert.equal("synced", w:next(0).type)
      assert.equal("timeout", code(w:next(0)))
    end)

    it("reads a bounded number of pages ahead in sync, however often sync is called", function()
      local many = 10000 + N
      for i = N + 1, many do store:put(("l%05d"):format(i), "v") end
      local w = assert(connect():watch("k", { range_end = "m", initial = true }))
      for _ = 1, 2 do
        assert.equal("full", code(w:sync(PATIENCE)))
        assert.equal(10000, w.n - w.at)
      end
      for _ = 1, many - 5000 do assert.is_true(w:next(PATIENCE).initial) end
      assert.equal(store:status().revision, w:sync(PATIENCE))
      for _ = 1, 5000 do assert.is_true(w:next(0).initial) end
      assert.equal("synced", w:next(0).type)
    end)

    it("delivers each kv once, though finalizers read, too, while a page is decoded", function()
      local pages = {
        { connect(), core.answers, "range" }, -- called with a received page
        { store, core.store_methods, "range" },
      }
      for _, page in ipairs(pages) do
        local owner, module, name = page[1], page[2], page[3]
        local real, w, n, seen = module[name], nil, 0, {}
        local function note(event)
          if not event or not event.key then return event end
          assert.is_nil(seen[event.key])
          seen[event.key], n = true, n + 1
          return event
        end
        module[name] = function(...)
          local result, err = real(...)
          if w then note(w:next(0)) end
          return result, err
        end
        local ok, err = pcall(function()
          w = assert(owner:watch("k", { prefix = true, initial = true }))
          repeat until note(assert(w:next(PATIENCE))).type == "synced"
        end)
        module[name] = real
        assert(ok, err)
        assert.equal(N, n)
        w:close()
      end
    end)

    it("reads no page for a watch that a finalizer has closed", function()
      local client = connect()
      local w = assert(client:watch("k", { prefix = true, initial = true }))
      local reads = client.transport.reads
      function reads.begin(self, ...)
        self.begin = nil
        local read = self:begin(...)
        w:close()
        return read
      end
      repeat until not w:next()
      assert.is_nil(rawget(reads, "begin"))
      assert.is_false(reads:has_any())
    end)

    it("delivers nothing after it was closed, though a page was on its way", within.task(function()
      local w = assert(connect():watch("k", { prefix = true, initial = true }))
      for _ = 1, 1000 do w:next() end
      local reading = keywatch.spawn(function() return { w:next(PATIENCE) } end)
      keywatch.sleep(0)
      w:close()
      assert.same({}, select(2, reading:join()))
    end))

    it("is idle while a page is on its way, even if changes have arrived", function()
      local is_asked, is_open = false, false
      keywatch.run(function()
        local client = connect()
        local w = assert(client:watch("k", { prefix = true, initial = true }))
        server:use { before = function(call)
          if not call.path:find("/Range", 1, true) then return true end
          is_asked = true
          while not is_open do keywatch.sleep(0.01) end
        end }
        for _ = 1, 1000 do w:next() end
        for _ = 1, 5 do store:put("k", "later") end
        local reading = keywatch.spawn(function()
          for i = 1001, N do assert.equal(key_of(i), w:next(PATIENCE).key) end
          assert.equal("synced", w:next(PATIENCE).type)
          for _ = 1, 5 do assert.equal("later", w:next(PATIENCE).value) end
        end)
        while not is_asked do keywatch.sleep(0.001) end
        local polls, poll = 0, client.transport.poll
        client.transport.poll = function(...)
          polls = polls + 1
          return poll(...)
        end
        keywatch.sleep(0.1)
        assert(polls < 100, polls .. " turns")
        is_open = true
        assert(reading:join(PATIENCE))
      end)
    end)
  end)

  describe("with values that exceed the size of an answer", function()
    it("reads them in smaller pages", function()
      local client, n = connect { max_message = 10000 }, 0
      for i = 1, 100 do store:put(key_of(i), ("x"):rep(1000)) end
      for kv in client:each("k", { prefix = true }) do
        n = n + 1
        assert.equal(key_of(n), kv.key)
      end
      assert.equal(100, n)
      local w = assert(client:watch("k", { prefix = true, initial = true }))
      for i = 1, 100 do assert.equal(key_of(i), w:next(PATIENCE).key) end
      assert.equal("synced", w:next(PATIENCE).type)
    end)

    it("reports a write as in doubt if its answer is too large", function()
      for i = 1, 20 do store:put(key_of(i), ("x"):rep(1000)) end
      local deleted, err = connect({ max_message = 10000 }):delete("k", { prefix = true, prev_kv = true })
      assert.is_nil(deleted)
      assert.same({ "answer_too_large", true }, { err.code, err.maybe_done })
      assert.equal(0, store:status().keys)
    end)
  end)

  describe("with a failed write", function()
    local function fail_with(status)
      server:use { before = function(call)
        if call.path:find("Put$") then return nil, { grpc_status = status, message = "spec: no" } end
        return true
      end }
    end

    it("reports whether the write may have been done", function()
      local client = connect()
      fail_with(14)
      assert.is_true(select(2, client:put("a", "")).maybe_done)
    end)

    it("reports a write in doubt at a timeout", function()
      server:use { before = function() keywatch.sleep(PATIENCE) end }
      local client = connect()
      local _, err = client:put("a", "", { timeout = 1 })
      assert.same({ "deadline_exceeded", true }, { err.code, err.maybe_done })
      _, err = client:get("a", { timeout = 1 })
      assert.same({ "deadline_exceeded" }, { err.code, err.maybe_done })
    end)

    it("reports a write in doubt if its task is cancelled", function()
      local is_come = false
      server:use { before = function()
        is_come = true
        keywatch.sleep(PATIENCE)
      end }
      keywatch.run(function()
        local client = connect()
        local writing, reading = keywatch.spawn(client.put, client, "a", ""), keywatch.spawn(client.get, client, "a")
        while not is_come do keywatch.sleep(0.001) end
        for _, task in ipairs { writing, reading } do task:cancel() end
        local _, err = writing:join()
        assert.same({ "cancelled", true }, { err.code, err.maybe_done })
        _, err = reading:join()
        assert.same({ "cancelled" }, { err.code, err.maybe_done })
      end)
    end)

    it("reports a write as not done if it was refused, or never sent", function()
      fail_with(3)
      assert.is_nil(select(2, connect():put("a", "")).maybe_done)
      local _, err = connect(nil, "unix:/nowhere"):put("a", "", { timeout = 0.1 })
      assert.same({ "unavailable" }, { err.code, err.maybe_done })
    end)
  end)

  describe("without waiters", function()
    --- Returns how often the client is polled in a time without events.
    local function polls_of(client, seconds)
      local n, poll = 0, client.transport.poll
      function client.transport.poll(...) -- instead of its class's
        n = n + 1
        return poll(...)
      end
      keywatch.sleep(seconds)
      client.transport.poll = nil
      return n
    end

    it("does not wake the loop when a message comes on a stream", function()
      local client = connect()
      local stream = assert(client:stream("/etcdserverpb.Lease/LeaseKeepAlive"))
      stream:send { ID = 5 }
      keywatch.sleep(0.1)
      assert.is_true(polls_of(client, 0.1) < 20)
      assert.is_table(stream:receive(PATIENCE))
      assert.is_true(polls_of(client, 0.1) < 20)
    end)

    it("does not wake the loop when a connection opens late", function()
      local client = connect()
      client:get("a", { timeout = 0.00001 })
      keywatch.sleep(0.1)
      assert.is_true(polls_of(client, 0.1) < 20)
      assert.is_nil(select(2, client:get("a")))
    end)
  end)

  describe("with a slow reader of a stream", function()
    it("opens the window while there is more to read than the stream takes at once", function()
      local piece, sent = ("x"):rep(16384), 0
      server:mount("spec.Slow", { Pour = { stream = true, handler = function(call)
        while call:send(piece) do sent = sent + 1 end
      end } })
      keywatch.run(function()
        -- Without timers, which would write pending bytes.
        local client = connect { keepalive = 0, connect_timeout = 2 * PATIENCE }
        local stream = assert(client:stream("/spec.Slow/Pour"))
        local before
        repeat
          before = sent
          keywatch.sleep(0.1)
        until sent > 0 and sent == before
        for _ = 1, 40 do assert(stream:receive(PATIENCE)) end -- over half of the window, but not all
        local deadline = keywatch.now() + PATIENCE
        while sent == before and keywatch.now() < deadline do keywatch.sleep(0.01) end
        assert.is_true(sent > before)
      end)
    end)
  end)

  describe("in a sync with a slow reader", function()
    it("asks the server periodically, and does not disturb other watches", within.task(function()
      local client = connect()
      local w, others = assert(client:watch("k")), {}
      for i = 1, 5 do
        others[i] = assert(client:watch("k"))
        keywatch.spawn(function() for _ in others[i]:events() do keywatch.sleep(0) end end)
      end
      keywatch.spawn(function() for _ in w:events() do keywatch.sleep(PATIENCE) end end)
      keywatch.sleep(0.01)
      local asks, watch_calls = 0, client.transport.watch_calls
      local class = getmetatable(watch_calls).__index
      function watch_calls.request_progress(...)
        asks = asks + 1
        return class.request_progress(...)
      end
      for i = 1, 3 do client:put("k", tostring(i)) end
      assert.equal("timeout", code(w:sync(0.8)))
      assert.is_true(asks < 20)
      local n = 0
      for _ in pairs(watch_calls.calls) do n = n + 1 end
      assert.equal(1, n)
    end))
  end)

  --- Expects a client to leave a lagging member that answers a read so.
  local function expect_leaving(on_range)
    local behind, asked = keywatch.open(), 0
    local other = assert(keywatch.serve { store = behind, listen = LOCAL, cluster_token = "t" })
    other:use { before = function(call)
      if not call.path:find("Range$") then return true end
      asked = asked + 1
      return on_range()
    end }
    server:close()
    server = assert(keywatch.serve { store = store, listen = LOCAL, cluster_token = "t" })
    local url = server:addresses()[1]
    for _ = 1, 5 do store:put("z", "") end
    keywatch.run(function()
      local client = connect({ timeout = 1 }, { url, other:addresses()[1] })
      local w = assert(client:watch("k", { timeout = PATIENCE }))
      store:put("k", "1")
      assert.equal("1", w:next(PATIENCE).value)
      server:close()
      while asked == 0 do w:next(0.01) end
      server = assert(keywatch.serve { store = store, listen = url, cluster_token = "t" })
      store:put("k", "2")
      assert.equal("2", w:next(PATIENCE).value)
    end)
    other:close()
    behind:close()
  end

  it("leaves a member that is behind, and cannot report progress", function()
    expect_leaving(function() return nil, { grpc_status = 14, message = "etcdserver: request timed out" } end)
  end)

  it("leaves a member that reports no progress", function()
    expect_leaving(function() keywatch.sleep(1000 * PATIENCE) end)
  end)

  describe("that is closed", function()
    it("ends its streams with that error", within.task(function()
      local client = connect()
      local one = assert(client:stream("/etcdserverpb.Watch/Watch"))
      local other = assert(client:stream("/etcdserverpb.Watch/Watch"))
      local waiting = keywatch.spawn(function() return { one:receive(PATIENCE) } end)
      keywatch.sleep(0)
      client:close()
      assert.same({ "closed", "closed" }, { code(other:receive(1)), code(other:send {}) })
      assert.equal("keywatch: the client is closed", select(2, other:receive(0)).message)
      local found = select(2, waiting:join())
      assert.equal("closed", found[2].code)
    end))

    it("wakes waiters that would have tried again later", function()
      server:use { before = function() return nil, { grpc_status = 14, message = "spec: no leader" } end }
      keywatch.run(function()
        local client = connect { backoff = { first = 1e9, longest = 1e9 } }
        local reading = keywatch.spawn(function() return { client:get("a", { timeout = math.huge }) } end)
        while not client.transport.closing do keywatch.sleep(0.001) end
        client:close()
        assert.equal("closed", select(2, reading:join(PATIENCE))[2].code)
      end)
    end)
  end)

  describe("with a stream", function()
    it("may check the stream where waiting is not allowed", function()
      local stream = assert(connect():stream("/etcdserverpb.Watch/Watch"))
      local found = coroutine.wrap(function() return { stream:receive(0) } end)()
      assert.equal("timeout", found[2].code)
    end)

    it("is notified at a send that the stream has ended", function()
      local stream = assert(connect():stream("/no.Such/Method"))
      stream:send("a")
      while stream:send("b") do keywatch.sleep(0.001) end
      assert.equal("closed", code(stream:send("c")))
      assert.equal("unimplemented", code(stream:receive(PATIENCE)))
      stream = assert(connect():stream("/etcdserverpb.Watch/Watch"))
      stream:close()
      assert.equal("keywatch: the stream is closed", select(2, stream:send {}).message)
    end)
  end)

  describe("with a usage error", function()
    --- Checks that fn raises an error with this text at its own line.
    local function misuse(fn, words)
      local line = debug.getinfo(fn, "S").linedefined
      local ok, err = pcall(fn)
      assert.is_false(ok)
      assert.matches("served_spec.lua:" .. line .. ": ", err, 1, true)
      assert.matches(words, err, 1, true)
    end

    it("blames the caller's line, and names the method", function()
      local client = connect()
      local w, lease = assert(client:watch("a")), assert(client:lease(60))
      for _, one in ipairs { client, store } do
        misuse(function() local _ = one:put("a", "b", { leese = 1 }) end, "put: there is no option 'leese'")
        misuse(function() local _ = one:watch("a", { foo = 1 }) end, "watch: there is no option 'foo'")
        misuse(function() local _ = one:each("a", { foo = 1 }) end, "each: there is no option 'foo'")
        misuse(function() local _ = one:lease(2.5) end, "bad argument #1 to 'lease'")
      end
      misuse(function() local _ = w:next("x") end, "bad argument #1 to 'next'")
      misuse(function() local _ = client:status { foo = 1 } end, "status: there is no option 'foo'")
      misuse(function() local _ = client:hash_kv(0, { foo = 1 }) end, "hash_kv: there is no option 'foo'")
      misuse(function() local _ = lease:keys { foo = 1 } end, "keys: there is no option 'foo'")
      misuse(function() local _ = client:call("/a/b", 7) end, "call: a message of a method")
      misuse(function() local _ = client:call("/a/b", "", { timeout = 0 / 0 }) end,
        "call: option 'timeout' must be a number of seconds, not nan")
      misuse(function() local _ = client:stream("/a/b", { is_read = true }) end, "stream: there is no option 'is_read'")
      for _, name in ipairs { "Bad", "a b", "x-bin", "grpc-timeout", "" } do
        misuse(function() local _ = client:call("/a/b", "", { metadata = { [name] = "" } }) end,
          ("call: metadata cannot have the name '%s'"):format(name))
      end
      for _, value in ipairs { "a\r\nb", "\255", 1, {} } do
        misuse(function() local _ = client:call("/a/b", "", { metadata = { x = value } }) end, "metadata 'x' must be")
      end
      for _, opts in ipairs { { max_message = 1.5 }, { max_message = 0 }, { connect_timeout = 0 }, { timeout = 0 / 0 },
        { keepalive = -1 } } do
        local words = "connect: option '" .. next(opts)
        misuse(function() local _ = keywatch.connect("http://127.0.0.1:1", opts) end, words)
      end
    end)
  end)
end)
