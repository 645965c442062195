--- Clients of a cluster: its members and their health, endpoints that follow the members, which endpoint is preferred,
-- and members without a leader, from which the client moves away. spec/cluster has a real cluster.

local keywatch = require "keywatch"

local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local within = require "spec.support.within"

local PATIENCE, await, written_by = network.PATIENCE, network.await, network.written_by
local through_each_door = network.through_each_door
local KV, WATCH = "/etcdserverpb.KV/", "/etcdserverpb.Watch/Watch"
local RANGE, PUT, STATUS = KV .. "Range", KV .. "Put", "/etcdserverpb.Maintenance/Status"
local MEMBERS, AUTHENTICATE = "/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Auth/Authenticate"
local NOBODY = "http://127.0.0.1:1"
local NO_LEADER = { "status", 14, "etcdserver: no leader" }
local HEADER = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 3 }
local LED = { "reply", { header = HEADER, version = "3.5.21", leader = 2, raftTerm = 3, dbSize = 9 } }
local UNLED = { "reply", { header = HEADER, version = "3.5.21", raftTerm = 3, errors = { "etcdserver: no leader" } } }
local HANGS = "stream:receive() stream:wait('never')"
local FOUND = { "reply", { header = HEADER, kvs = { { key = "k", value = "v", mod_revision = 4 } }, count = 1 } }
local WATCHED = [[
  stream:headers()
  local id = 0
  for request in stream.receive, stream do
    if request.create_request then
      stream:message { header = { cluster_id = 1, revision = 5 }, watch_id = id, created = true }
      id = id + 1
    end
  end
]]
-- It is created, and ends when the spec says so: the member has lost its leader.
local LOSES_LEADER = [[
  stream:headers()
  stream:receive()
  stream:message { header = { cluster_id = 1, revision = 5 }, watch_id = 0, created = true }
  stream:wait("lost")
  stream:status(14, "etcdserver: no leader")
]]
-- It sends one event to each watch, after the revision that the watch has seen.
local TELLS = [[
  stream:headers()
  local id, kv = 0, { key = "k", value = "new", create_revision = 2, mod_revision = 6, version = 2 }
  for request in stream.receive, stream do
    if request.create_request then
      stream:message { header = { cluster_id = 1, revision = 5 }, watch_id = id, created = true }
      stream:message { header = { cluster_id = 1, revision = 6 }, watch_id = id, events = { { kv = kv } } }
      id = id + 1
    end
  end
]]

local OPTIONS = { connect_timeout = 1, timeout = PATIENCE, backoff = { first = 0.01, longest = 0.02 } }

--- A client of imposters, or of URLs.
local function connect(peers, options)
  local urls, all = {}, {}
  for i, peer in ipairs(peers) do urls[i] = type(peer) == "string" and peer or peer.url end
  for name, value in pairs(OPTIONS) do all[name] = value end
  for name, value in pairs(options or {}) do all[name] = value end
  return network.connect(urls, all)
end

--- Returns the behaviours of a working member, with changes.
local function member(changes)
  local behaviours = { [RANGE] = FOUND, [PUT] = { "reply", { header = HEADER } }, [STATUS] = LED, [WATCH] = WATCHED }
  for path, behaviour in pairs(changes or {}) do behaviours[path] = behaviour end
  return imposter.start(behaviours)
end

--- A member without a leader: it refuses calls that require one, and does not answer others that need one.
local function leaderless(changes)
  local refuses = [[
    if stream.request.hasleader then return stream:status(14, "etcdserver: no leader") end
    stream:receive() stream:wait("never")
  ]]
  local behaviours = { [RANGE] = refuses, [PUT] = refuses, [WATCH] = refuses, [STATUS] = UNLED }
  for path, behaviour in pairs(changes or {}) do behaviours[path] = behaviour end
  return member(behaviours)
end

local function listed(...)
  return { "reply", { header = HEADER, members = { ... } } }
end

local function started(name, ...)
  return { ID = 7, name = name, peerURLs = { "http://peer:1" }, clientURLs = { ... } }
end

describe("the members of a cluster #plain", function() -- there is no TLS in virtual time
  network.in_virtual_time()

  through_each_door("are listed, with decimal ids", function()
    local peer = member { [MEMBERS] = listed(started("one", "http://a:1", "http://b:1"),
      { ID = 8, peerURLs = { "http://peer:2" }, isLearner = true }) }
    local members = assert(connect({ peer }):members())
    assert.same({
      cluster_id = "1",
      { id = "7", name = "one", peer_urls = { "http://peer:1" }, client_urls = { "http://a:1", "http://b:1" },
        is_learner = false },
      { id = "8", name = "", peer_urls = { "http://peer:2" }, client_urls = {}, is_learner = true },
    }, members)
    assert.is_true(peer:calls_of(MEMBERS)[1].messages[1].linearizable)
    assert(connect({ peer }):members { serializable = true })
    assert.is_nil(peer:calls_of(MEMBERS)[2].messages[1].linearizable)
  end)

  it("cannot be listed if the server has no list", function()
    local members, err = connect({ member() }):members()
    assert.is_nil(members)
    assert.equal("unimplemented", err.code)
  end)
end)

describe("the health of a cluster #plain", function()
  network.in_virtual_time()

  through_each_door("is reported in the order of the endpoints, each of which is asked separately", function()
    local good = member()
    local full = member { [STATUS] = { "reply", { header = HEADER, version = "3.5.21", leader = 9, raftTerm = 3,
      errors = { "memberID:7 alarm:NOSPACE " } } } }
    local alone = leaderless()
    local forbidding = member { [RANGE] = { "status", 7, "etcdserver: permission denied" } }
    local corrupt = member { [STATUS] = { "reply", { leader = 9, errors = { "memberID:7 alarm:CORRUPT " } } } }
    local broken = member { [STATUS] = { "status", 13, "spec: no" } }
    local peers = { good, full, NOBODY, alone, forbidding, corrupt, broken }
    local client = connect(peers)
    local rows = assert(client:health { timeout = 0.5 })
    assert.equal(#peers, #rows)
    for i, peer in ipairs(peers) do assert.equal(peer.url or peer, rows[i].endpoint) end

    local seconds = rows[1].seconds
    assert(seconds >= 0)
    assert.same({ endpoint = good.url, is_healthy = true, seconds = seconds, version = "3.5.21", leader = "2",
      member_id = "2", is_leader = true, revision = 5, db_size = 9, errors = {} }, rows[1])
    local found = {}
    for i, row in ipairs(rows) do found[i] = row.err and row.err.code or row.is_healthy end
    assert.same({ true, "no_space", "unavailable", "deadline_exceeded", true, "corrupt", "internal" }, found)
    for i, row in ipairs(rows) do assert.equal(row.err == nil, row.is_healthy, i) end
    assert.same({ false, "9" }, { rows[2].is_leader, rows[2].leader })
    assert.matches("alarm:NOSPACE$", rows[2].err.message)
    assert.is_nil(rows[4].leader)
    assert.same({ "etcdserver: no leader" }, rows[4].errors)

    local call = good:calls_of(RANGE)[1]
    assert.equal("health", call.messages[1].key)
    assert.is_nil(call.messages[1].serializable)
    good:await_end()
    assert.equal("idle", client:state().state) -- it has used no connection of its own
  end)

  it("is requested as the client's user", function()
    local answers = { [AUTHENTICATE] = { "reply", { token = "t1" } },
      [RANGE] = [[
        stream:receive()
        if stream.request.token ~= "t1" then return stream:status(16, "etcdserver: invalid auth token") end
        stream:message { header = { revision = 5 } }
        stream:status(0)
      ]] }
    local refusing = member { [AUTHENTICATE] = { "status", 3, "etcdserver: authentication failed" } }
    local rows = connect({ member(answers), refusing }, { user = "u", password = "p" }):health()
    assert.is_true(rows[1].is_healthy)
    assert.equal("etcdserver: authentication failed", rows[2].err.message)
  end)

  it("leaves nothing behind if the task is cancelled, or the client is closed", within.task(function()
    local peer = member { [STATUS] = HANGS }
    local client = connect { peer }
    local task = keywatch.spawn(client.health, client)
    peer:await("#calls == 1")
    task:cancel()
    local ok, err = task:join()
    assert.is_false(ok)
    assert.equal("cancelled", err.code)
    peer:await_end()
    client:close()
    local rows
    rows, err = client:health()
    assert.is_nil(rows)
    assert.equal("closed", err.code)
  end))
end)

describe("endpoints that follow the member list #plain", function()
  network.in_virtual_time()

  it("are the client URLs of members that have started and are no learners", function()
    local second = member()
    local first = member()
    local other = "https://other:1" -- not as the endpoints that were given
    first:behave { [MEMBERS] = listed(started("one", first.url .. "/"), started("two", second.url),
      { name = "", clientURLs = { "http://unstarted:1" } },
      { name = "learner", isLearner = true, clientURLs = { "http://learner:1" } },
      started("other", other), started("odd", "gibberish"), started("twice", second.url)) }
    local client = connect { first }
    local urls
    local written = written_by(function()
      urls = assert(client:sync_endpoints())
      assert(client:sync_endpoints())
    end)
    assert.same({ first.url, second.url }, urls)
    assert.equal(("keywatch.client<%s,%s>"):format(first.url, second.url), tostring(client))
    local words = 'leaves out an endpoint of the member list: "https://other:1" asks for TLS'
    assert.equal(1, select(2, written:gsub(words, "")))
    assert.equal(1, select(2, written:gsub('"gibberish" ', "")))
    assert.equal(1, #first.connections) -- the connection stays
    assert.equal(first.url, client:state().endpoint)
  end)

  it("stay as they are if no member is usable", function()
    local peer = member { [MEMBERS] = listed() }
    local client = connect { peer }
    local urls, err = client:sync_endpoints()
    assert.is_nil(urls)
    assert.equal("failed_precondition", err.code)
    assert.equal(("keywatch.client<%s>"):format(peer.url), tostring(client))
    assert(client:get("k"))
  end)

  it("stay as they are if there are more than a cluster can have, and each unusable one is logged once", function()
    local urls, odd = {}, {}
    for i = 1, 300 do urls[i], odd[i] = "http://10.0.0.1:" .. 1000 + i, "odd://" .. i end
    local peer = member { [MEMBERS] = listed(started("many", (table.unpack or unpack)(urls))) }
    local client = connect { peer }
    local list, err = client:sync_endpoints()
    assert.is_nil(list)
    assert.equal("failed_precondition", err.code)
    assert.matches("more than 100", err.message, 1, true)
    assert.equal(("keywatch.client<%s>"):format(peer.url), tostring(client))
    odd[1] = "odd://" .. ("x"):rep(100000)
    peer:behave { [MEMBERS] = listed(started("one", peer.url, (table.unpack or unpack)(odd))) }
    local text = written_by(function()
      for _ = 1, 2 do assert.same({ peer.url }, assert(client:sync_endpoints())) end
    end)
    assert.equal(100, select(2, text:gsub("leaves out an endpoint", "")))
    assert(#text < 100000)
  end)

  it("end with the endpoints of the options: if no member answers, those are tried", function()
    local peer = member()
    peer:behave { [MEMBERS] = listed(started("hidden", NOBODY)) }
    local client = connect { peer }
    assert.same({ NOBODY }, assert(client:sync_endpoints()))
    assert.equal(peer.url, client:state().endpoint) -- it was given
    peer:behave { [PUT] = { "close" } }
    assert.is_true(select(2, client:put("k", "v")).maybe_done)
    assert(client:get("k"))
    assert.equal(peer.url, client:state().endpoint)
  end)

  it("no longer have watches and requests when their member is removed", within.task(function()
    local seed, old, new = member(), member(), member { [WATCH] = TELLS }
    seed:behave { [MEMBERS] = listed(started("old", old.url)) }
    old:behave { [MEMBERS] = listed(started("new", new.url)) }
    local client = connect { seed }
    assert(client:sync_endpoints())
    seed:behave { [RANGE] = { "close" } }
    assert(client:get("k"))
    assert.equal(old.url, client:state().endpoint)
    local w = assert(client:watch("k"))
    assert.same({ new.url }, assert(client:sync_endpoints()))
    assert.equal("new", assert(w:next(PATIENCE)).value)
    assert.equal(new.url, client:state().endpoint)
  end))

  it("are read again soon after a temporary failure", function()
    local first, second = member { [AUTHENTICATE] = { "reply", { token = "t" } } }, member()
    first:behave { [MEMBERS] = { "in_turn", NO_LEADER, HANGS, { "close" },
      { "status", 16, "etcdserver: invalid auth token" },
      listed(started("one", first.url), started("two", second.url)) } }
    local client = connect({ first }, { sync_endpoints = 3600, timeout = 0.5, user = "u", password = "p" })
    local w = assert(client:watch("k"))
    await(function() return tostring(client):find(second.url, 1, true) end)
    assert.equal(3, #first:calls_of(AUTHENTICATE)) -- two connections, and another token
    assert.is_nil(w:error())
  end)

  it("are not read again early after a permanent failure", function()
    local peer = member { [MEMBERS] = { "in_turn", { "status", 12, "spec: no" }, listed(started("one", NOBODY)) } }
    local client = connect({ peer }, { sync_endpoints = 3600 })
    assert(client:get("k"))
    await(function() return #peer:calls_of(MEMBERS) == 1 and not client.transport.cluster.question end)
    assert(client.transport.cluster.sync_at > keywatch.now() + 3000)
  end)

  through_each_door("are read in the background", function()
    local first, second = member(), member()
    first:behave { [MEMBERS] = { "in_turn", { "status", 13, "spec: no" }, HANGS,
      listed(started("one", first.url), started("two", second.url)) } }
    local client = connect({ first }, { sync_endpoints = 0.001, timeout = 0.05 })
    local w = assert(client:watch("k"))
    await(function() return tostring(client):find(second.url, 1, true) end)
    -- There are several endpoints by now, so the watch is on a stream that requires a leader.
    first:await("(function() for _, c in ipairs(calls) do if c.path == '" .. WATCH
      .. "' and c.headers.hasleader == 'true' then return true end end end)()")
    assert.is_nil(first:calls_of(WATCH)[1].headers.hasleader)
    assert.is_nil(w:error())
    assert(client:get("k", { timeout = PATIENCE }))
    assert.equal("true", first:calls_of(RANGE)[1].headers.hasleader)
  end)
end)

describe("the preferred endpoint #plain", function()
  network.in_virtual_time()

  it("is the first in the list, whenever a new connection is made", function()
    local first, second = member(), member()
    for _, prefer in ipairs { "first", false } do
      local client = connect({ first, second }, { prefer = prefer or nil })
      assert(client:get("k"))
      assert.equal(first.url, client:state().endpoint)
      first:behave { [RANGE] = { "close" } }
      assert(client:get("k")) -- it has failed at once, so the other is tried before
      assert.equal(second.url, client:state().endpoint)
      first:behave { [RANGE] = FOUND }
      assert(client:get("k"))
      assert.equal(second.url, client:state().endpoint) -- a connection that works is kept
      for _, endpoint in ipairs(client.transport.dialer.endpoints) do endpoint.failed_at = nil end -- as time does
      second:behave { [RANGE] = { "in_turn", { "close" }, FOUND } }
      assert(client:get("k"))
      assert.equal(first.url, client:state().endpoint)
      client:close()
    end
  end)

  it("is the fastest: all are dialled at once, and the first that answers is used", within.task(function()
    local slow, mute, quick = member { connection = { "mute" } }, member { connection = { "mute" } }, member()
    local client = connect({ slow, mute, NOBODY, quick }, { prefer = "fastest", connect_timeout = PATIENCE })
    assert(client:get("k"))
    assert.equal(quick.url, client:state().endpoint)
    for _, peer in ipairs { slow, mute } do
      peer:await("#connections == 1 and (connections[1].has_ended or not connections[1].is_open)")
    end
    assert(client:get("k"))
    assert.equal(1, #quick.connections)
  end))

  it("is the fastest of the usable ones", function()
    local bad, good = leaderless(), member()
    local client = connect({ bad, good }, { prefer = "fastest" })
    for _ = 1, 5 do assert(client:get("k")) end
    assert.equal(good.url, client:state().endpoint)
    assert(#bad:calls_of(RANGE) <= 1)
  end)

  it("is random: sooner or later each is used", function()
    local peers, seen, n = { member(), member(), member() }, {}, 0
    while n < 3 do
      local client = connect(peers, { prefer = "any" })
      assert(client:get("k"))
      local url = client:state().endpoint
      if not seen[url] then n = n + 1 end
      seen[url] = true
      client:close()
    end
    local client = connect({ NOBODY, peers[1], NOBODY }, { prefer = "any" })
    assert(client:get("k"))
  end)
end)

describe("a member without a leader #plain", function()
  network.in_virtual_time()

  it("gets requests that require a leader, if there are several endpoints", function()
    local peer = member()
    local client = connect { peer, NOBODY }
    assert(client:get("k"))
    assert(client:put("k", "v"))
    assert(client:watch("k"))
    for _, path in ipairs { RANGE, PUT, WATCH } do
      assert.equal("true", peer:calls_of(path)[1].headers.hasleader, path)
    end
    -- Requests that a member can answer alone require no leader.
    assert(client:get("k", { serializable = true }))
    assert(client:range("k", { serializable = true }))
    assert(client:status())
    for _, call in ipairs { peer:calls_of(RANGE)[2], peer:calls_of(RANGE)[3], peer:calls_of(STATUS)[1] } do
      assert.is_nil(call.headers.hasleader)
    end
  end)

  it("gets no requests that require a leader if it is the only endpoint, except for such watches", function()
    local peer = member()
    local client = connect { peer }
    assert(client:get("k"))
    local watches = {}
    for i, requires in ipairs { false, true, false, true, false } do
      watches[i] = assert(client:watch("k", { require_leader = requires }))
    end
    assert.is_nil(peer:calls_of(RANGE)[1].headers.hasleader)
    local streams = peer:calls_of(WATCH)
    assert.equal(2, #streams) -- one for each kind
    assert.same({ false, "true" }, { streams[1].headers.hasleader or false, streams[2].headers.hasleader })
    assert.same({ 3, 2 }, { #streams[1].messages, #streams[2].messages })
    for _, w in ipairs(watches) do assert.is_nil(w:error()) end
  end)

  through_each_door("has done nothing: reads and writes continue elsewhere", function()
    local bad, good = leaderless(), member()
    assert.equal("v", assert(connect({ bad, good }):get("k")).value)
    local client = connect { bad, good }
    assert.equal(5, assert(client:put("k", "v")).revision)
    assert.same({ 1, 1 }, { #bad:calls_of(PUT), #good:calls_of(PUT) })
    assert.equal(good.url, client:state().endpoint)
  end)

  it("certainly did not do a request that it refuses so; any other failed request is in doubt", function()
    local services = { ["/etcdserverpb.KV/Put"] = false, ["/v3lockpb.Lock/Lock"] = true, ["/spec.Own/Act"] = true }
    for path, is_in_doubt in pairs(services) do
      local client = connect({ member { [path] = NO_LEADER }, NOBODY }, { backoff = { first = 1e9, longest = 1e9 } })
      local _, err = client:call(path, "", { raw = true })
      assert.equal("etcdserver: no leader", err.message)
      assert.equal(is_in_doubt, err.maybe_done == true, path)
    end
    -- A server is not believed about a request that did not require a leader.
    assert.is_true(select(2, connect({ member { [PUT] = NO_LEADER } }):put("k", "v")).maybe_done)
    for _, text in ipairs { "etcdserver: request timed out", "etcdserver: leader changed" } do
      local peer = member { [PUT] = { "status", 14, text } }
      local _, err = connect({ peer, member() }):put("k", "v")
      assert.same({ text, true }, { err.message, err.maybe_done })
      assert.equal(1, #peer:calls_of(PUT))
    end
  end)

  it("is not believed about a write sent before a leader was required, or without that", within.task(function()
    local refuses = [[stream:receive() stream:wait("go on") stream:status(14, "etcdserver: no leader")]]
    local first, second = member { [PUT] = refuses }, member()
    first:behave { [MEMBERS] = listed(started("one", first.url), started("two", second.url)) }
    local client = connect { first }
    local write = keywatch.spawn(function() return select(2, client:put("k", "v")) end)
    first:await("#calls == 1")
    assert(client:sync_endpoints())
    first:signal("go on")
    local _, failure = write:join()
    assert.is_true(failure.maybe_done)
    assert.equal(0, #second:calls_of(PUT))
    local _, err = connect({ first, second }):call(PUT, {}, { metadata = { hasleader = "no" } })
    assert.is_true(err.maybe_done)
    assert.equal(0, #second:calls_of(PUT))
  end))

  it("is left by clients with a user, too", function()
    local bad = leaderless { [AUTHENTICATE] = NO_LEADER }
    local good = member { [AUTHENTICATE] = { "reply", { token = "t" } } }
    local client = connect({ bad, good }, { user = "u", password = "p" })
    assert(client:get("k"))
    assert.equal(good.url, client:state().endpoint)
    assert.equal("true", bad:calls_of(AUTHENTICATE)[1].headers.hasleader)
    assert.same({ "t", "true" }, { good:calls_of(RANGE)[1].headers.token, good:calls_of(RANGE)[1].headers.hasleader })
  end)

  through_each_door("is left by watches, which continue elsewhere", function()
    local bad, good = member { [WATCH] = LOSES_LEADER }, member { [WATCH] = TELLS }
    local client = connect { bad, good }
    local w = assert(client:watch("k"))
    for call in pairs(client.transport.watch_calls.calls) do call.since = -PATIENCE end -- it has lasted
    bad:signal("lost")
    assert.equal("new", assert(w:next(PATIENCE)).value)
    assert.equal(6, w.revision)
    assert.equal(good.url, client:state().endpoint)
    assert.equal(6, good:calls_of(WATCH)[1].messages[1].create_request.start_revision)
  end)

  it("is left, with all connections to it, while it authenticates the user again", function()
    local INVALID = { "status", 16, "etcdserver: invalid auth token" }
    local bad = member { [AUTHENTICATE] = { "in_turn", { "reply", { token = "t" } }, HANGS }, [RANGE] = INVALID,
      [WATCH] = LOSES_LEADER }
    local good = member { [AUTHENTICATE] = { "reply", { token = "t" } } }
    local client = connect({ bad, good }, { user = "u", password = "p" })
    keywatch.run(function()
      local watch = assert(client:watch("k"))
      local reading = keywatch.spawn(function() return client:get("k") end)
      bad:await("calls[#calls].path == '" .. AUTHENTICATE .. "' and #calls > 2")
      bad:signal("lost")
      local _, found = reading:join(PATIENCE)
      assert.equal("v", found.value)
      bad:await_end()
      watch:close()
    end)
  end)

  --- A watch of a client of two members: the first one sends revision 10, and later 12. The other one is at an earlier
  -- revision when the watch comes there, and has to be asked whether it is behind. Returns both, and the watch.
  local function behind_and_left()
    local function delivers(revision, ending)
      return ([[
        stream:headers()
        stream:receive()
        stream:message { header = { cluster_id = 1, revision = %d }, watch_id = 0, created = true }
        stream:message { header = { cluster_id = 1, revision = %d }, watch_id = 0, events = { { kv = {
          key = "k", value = "v", create_revision = 2, mod_revision = %d, version = 2 } } } }
        stream:wait("%s")
        stream:status(14, "spec: restarted")
      ]]):format(revision - 1, revision, revision, ending)
    end
    local good = member { [WATCH] = { "in_turn", delivers(10, "end"), delivers(12, "never") } }
    local behind = member { [WATCH] = LOSES_LEADER, [RANGE] = [[
      stream:receive()
      stream:wait("answer")
      stream:message { header = { cluster_id = 1, revision = 10 } }
      stream:status(0)
    ]] }
    local client = connect { good, behind }
    local w = assert(client:watch("k"))
    assert.equal(10, assert(w:next(PATIENCE)).mod_revision)
    good:signal("end")
    behind:await("calls[#calls].path == '" .. RANGE .. "'")
    behind:signal("lost")
    assert.equal(12, assert(w:next(PATIENCE)).mod_revision)
    return good, behind, w
  end

  it("is not believed, after it was left, about the revision that a watch has seen since", function()
    local _, behind, w = behind_and_left()
    behind:signal("answer")
    behind:await_end()
    assert.equal("timeout", select(2, w:next(0)).code)
  end)

  it("is left with all connections to it, though a request to it was not answered", function()
    local _, behind = behind_and_left()
    behind:await_end()
  end)

  it("keeps a watch that requires a leader waiting if it is alone, and the state has the reason", within.task(function()
    local received = {}
    local peer = member { [WATCH] = { "in_turn", LOSES_LEADER, NO_LEADER } }
    local client = connect({ peer }, { on_state = function(state) table.insert(received, state) end })
    local w = assert(client:watch("k", { require_leader = true }))
    peer:signal("lost")
    await(function() return received[#received] and received[#received].state == "waiting" end)
    assert.same({ "etcdserver: no leader", peer.url }, { received[#received].why, received[#received].endpoint })
    peer:await("#calls >= 4")
    assert.is_nil(w:error())
    peer:behave { [WATCH] = TELLS }
    assert.equal("new", assert(w:next(PATIENCE)).value)
    await(function() return client:state().state == "connected" end)
  end))

  it("is detected if it answers no request: reads and watches leave it, writes are in doubt", within.task(function()
    -- The member had a leader when the calls began, so it has not refused them.
    local bad = member { [RANGE] = HANGS, [PUT] = HANGS, [STATUS] = { "in_turn", LED, UNLED } }
    local good = member { [WATCH] = TELLS }
    local client = connect { bad, good }
    assert(client:status())
    local w = assert(client:watch("k"))
    local read = keywatch.spawn(client.get, client, "k")
    local initial = keywatch.spawn(client.watch, client, "k", { initial = true })
    local write = keywatch.spawn(client.put, client, "k", "v", { timeout = 0.5 })
    local _, made, err = write:join()
    assert.is_nil(made)
    assert.same({ "deadline_exceeded", true }, { err.code, err.maybe_done })
    assert.equal("new", assert(w:next(PATIENCE)).value)
    assert.equal("v", select(2, read:join()).value)
    assert.equal("v", select(2, initial:join()):next().value)
    assert.equal(good.url, client:state().endpoint)
    for _, call in ipairs(bad:calls_of(STATUS)) do assert.is_nil(call.headers.hasleader) end
    assert.same({ 3, 0 }, { #bad:calls_of(STATUS), #good:calls_of(PUT) })
  end))

  it("is detected if it answers only pings", within.task(function()
    local bad = member { [RANGE] = HANGS, [STATUS] = HANGS }
    local client = connect { bad, member { [WATCH] = TELLS } }
    local w = assert(client:watch("k"))
    assert.equal("deadline_exceeded", select(2, client:get("k", { timeout = 0.01 })).code)
    assert.equal("new", assert(w:next(PATIENCE)).value)
  end))

  it("is not left while it sends: on a slow network its status comes behind the answers to other requests", function()
    keywatch.run(function()
      -- Longer than a member may be silent.
      local sends = [[
        stream:headers()
        local bytes = h2.message(stream:encode { kvs = { { key = "k", value = ("v"):rep(130), mod_revision = 4 } } })
        for i = 1, #bytes do
          stream:data(bytes:sub(i, i))
          conn:sleep(20)
        end
        stream:status(0)
      ]]
      local slow, other = member { [RANGE] = { "in_turn", sends, HANGS }, [STATUS] = HANGS }, member()
      local client = connect { slow, other }
      local read = keywatch.spawn(client.get, client, "k")
      slow:await("#calls == 1")
      assert.equal("deadline_exceeded", select(2, client:get("k", { timeout = 0.01 })).code)
      local _, kv = read:join()
      assert.equal(130, #kv.value)
      assert.same({ 1, 0 }, { #slow:calls_of(STATUS), #other:calls_of(RANGE) })
    end)
  end)

  it("is not suspected forever: a member with a leader is kept", function()
    local slow, other = member { [RANGE] = { "in_turn", HANGS, FOUND } }, member()
    local client = connect { slow, other }
    local w = assert(client:watch("k"))
    assert.equal("deadline_exceeded", select(2, client:get("k", { timeout = 0.01 })).code)
    await(function() return next(client.transport.leader_probe.suspects) == nil end)
    assert(client:get("k"))
    assert.equal(slow.url, client:state().endpoint)
    assert.is_nil(w:error())
    assert.equal(0, #other.connections)
  end)

  it("is not asked repeatedly if no member has a leader, and the state has the reason", within.task(function()
    local peers = { leaderless(), leaderless(), leaderless() }
    local client = connect(peers, { timeout = 10000, backoff = { first = 1000, longest = 1000 } })
    for _, name in ipairs { "get", "put", "watch" } do
      keywatch.spawn(client[name], client, "k", name == "put" and "v" or nil)
    end
    await(function() return client:state().requests.waiting == 2 and client:state().watches.waiting == 1 end)
    keywatch.sleep(0.05)
    local n = 0
    for _, peer in ipairs(peers) do
      for _, path in ipairs { RANGE, PUT, WATCH } do n = n + #peer:calls_of(path) end
    end
    assert(n <= 6, n)
    assert.equal("waiting", client:state().state)
    assert.matches("etcdserver: no leader", client:state().why, 1, true)
  end))

  it("is not asked repeatedly by many requests, each of which finds another connection", within.task(function()
    local peers = { leaderless(), leaderless(), leaderless() }
    local client = connect(peers, { timeout = 10000, backoff = { first = 1000, longest = 1000 } })
    for _ = 1, 50 do keywatch.spawn(client.get, client, "k") end
    await(function() return client:state().requests.waiting == 50 end)
    keywatch.sleep(0.05)
    local n = 0
    for _, peer in ipairs(peers) do n = n + #peer:calls_of(RANGE) end
    assert(n <= 100, n) -- two of each
  end))

  it("does not exist for stores in process, whose watches may require a leader", function()
    local store = keywatch.open()
    local w = assert(store:watch("k", { require_leader = true }))
    store:put("k", "v")
    assert.equal("v", w:next(PATIENCE).value)
    store:close()
  end)
end)

describe("the hook on_call #plain", function()
  local received, world

  network.in_virtual_time(function(one) world = one end)
  before_each(function() received = {} end)

  local function observed(peers, options)
    local all = { on_call = function(call) table.insert(received, call) end }
    for name, value in pairs(options or {}) do all[name] = value end
    return connect(peers, all)
  end

  --- The reports, without the seconds, which are 0 or more.
  local function without_seconds()
    for _, call in ipairs(received) do
      assert(call.seconds >= 0)
      call.seconds = nil
    end
    return received
  end

  through_each_door("gets each request, when it has ended", function()
    local peer = member { [PUT] = { "status", 8, "etcdserver: mvcc: database space exceeded" } }
    local client = observed { peer }
    assert(client:get("k"))
    local _, err = client:put("k", "v")
    client:close()
    local _, closed = client:status()
    assert.same({
      { method = RANGE, endpoint = peer.url, status = 0, attempts = 1 },
      { method = PUT, endpoint = peer.url, status = 8, code = "no_space", attempts = 1, err = err },
      { method = STATUS, status = 14, code = "closed", attempts = 0, err = closed },
    }, without_seconds())
  end)

  it("gets the number of attempts of a request, and the last endpoint", function()
    local bad, good = leaderless(), member()
    local client = observed { bad, good }
    assert(client:get("k"))
    assert(client:call(RANGE, { key = "k" }))
    assert.same({
      { method = RANGE, endpoint = good.url, status = 0, attempts = 2 },
      { method = RANGE, endpoint = good.url, status = 0, attempts = 1 },
    }, without_seconds())
  end)

  it("gets requests without an answer", within.task(function()
    local peer = member { [RANGE] = HANGS }
    local client = observed { peer }
    local task = keywatch.spawn(client.get, client, "k")
    peer:await("#calls == 1")
    task:cancel()
    task:join()
    client:get("k", { timeout = 0.01 })
    local nobody = observed { NOBODY }
    nobody:get("k", { timeout = 0.01 })
    local found = {}
    for i, call in ipairs(received) do found[i] = { call.code, call.status, call.attempts, call.endpoint } end
    assert.same({ { "cancelled", 1, 1, peer.url }, { "deadline_exceeded", 4, 1, peer.url },
      { "unavailable", 14, 0 } }, found)
  end))

  through_each_door("gets the pages that a watch reads, and not its stream", function()
    local peer = member { [RANGE] = { "in_turn", { "status", 14, "spec: no" }, FOUND } }
    local client = observed { peer }
    local w = assert(client:watch("k", { initial = true }))
    assert.equal("v", w:next(PATIENCE).value)
    assert.same({ { method = RANGE, endpoint = peer.url, status = 0, attempts = 2 } }, without_seconds())
  end)

  it("gets no usage errors", function()
    local client = observed { member() }
    assert.has_error(function() client:get(7) end)
    assert.has_error(coroutine.wrap(function() client:get("k") end)) -- it is no task
    assert.same({}, received)
  end)

  for what, act in pairs {
    ["raises"] = function() error("a slip") end,
    ["raises no text"] = function() error(setmetatable({}, { __tostring = function() error("no") end })) end,
    ["waits"] = function() keywatch.sleep(1000) end,
    ["yields"] = function() coroutine.yield() end,
    ["calls its client, which waits"] = function(_, client) client:get("k") end,
  } do
    through_each_door("harms no request if it " .. what, function()
      local client
      client = observed({ member() }, { on_call = function(call)
        table.insert(received, call)
        act(call, client)
      end })
      local written = written_by(function()
        for i = 1, 2 do
          assert.equal("v", client:get("k").value)
          assert.equal(i, #received)
        end
      end)
      assert.equal(2, select(2, written:gsub("error the function on_call of a client has ", "")))
    end)
  end

  it("may read the client's state, while the connection of the request ends and another one is made", function()
    local answers = [[
      stream:receive()
      stream:wait("go")
      stream:message { header = { cluster_id = 1, revision = 5 } }
      stream:status(0)
      stream.conn:close()
    ]]
    local peer = member { [RANGE] = { "in_turn", answers, HANGS, FOUND } }
    local client, has_asked
    client = connect({ peer }, { on_call = function(call)
      assert(call.status == 0)
      local first = client.transport.connection
      for _ = 1, 100 do
        world:pause(0.01)
        client:state()
        local second = client.transport.connection
        has_asked = has_asked or first ~= second and second ~= nil
      end
    end })
    peer:slow(0)
    keywatch.run(function()
      local tasks = {}
      for i = 1, 2 do tasks[i] = keywatch.spawn(function() return client:watch("k", { initial = true }) end) end
      peer:await("#calls == 2")
      peer:signal("go")
      for _, task in ipairs(tasks) do
        local ok, watch, err = task:join(PATIENCE)
        assert(ok and watch, err or watch)
      end
    end)
    assert.is_true(has_asked)
  end)

  it("may close its client, and spawn tasks", within.task(function()
    local client, task
    client = observed({ member() }, { on_call = function()
      task = task or keywatch.spawn(keywatch.sleep, 0)
      client:close()
    end })
    assert.equal("v", client:get("k").value)
    assert(task:join())
    assert.equal("closed", select(2, client:get("k")).code)
  end))

  it("does not get the requests that it makes itself on a closed client", function()
    local client
    client = observed({ member() }, { on_call = function(call)
      table.insert(received, call.code or "ok")
      client:close()
      client:get("k")
    end })
    assert.equal("v", client:get("k").value)
    assert.equal("closed", select(2, client:get("k")).code)
    assert.same({ "ok", "closed" }, received)
  end)

  it("does not keep its client: a forgotten client is closed", function()
    local peer = member()
    network.await_forgotten(function()
      local client
      client = keywatch.connect(peer.url, { on_call = function() return client end })
      assert(client:get("k"))
      return client.transport
    end)
  end)
end)
