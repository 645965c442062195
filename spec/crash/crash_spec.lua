--- The server is killed again and again while clients write and watch, and keeps every promise that it made.
--
-- KW_DOSE=60 does so for an hour. After every round the records of all clients are checked, see check.lua. If that
-- fails, data and records are kept, and the text says where.

local check = require "spec.crash.check"
local process = require "spec.support.process"
local random = require "spec.support.random"
local server = require "spec.support.server"
local uv = require "spec.support.luv"

local PYTHON = "/usr/bin/python3" -- the one that Debian's packages are for

local FAULT = "build/fault.so" -- of spec/support/fault.c
local TESTS = 3
local SECONDS = 60 * require("spec.support.dose").factor / TESTS
local SEED = tonumber(os.getenv("KW_SEED") or 1)
local CLIENTS = 2 -- processes of them
local ROUNDS = 40 -- with one directory: what is checked is held in memory
local LEAST, MOST = 50, 1500 -- milliseconds of traffic

local function now()
  return uv.hrtime() / 1e9
end

--- Waits for a time of the test's choosing, not for anything to happen.
local function idle(milliseconds)
  local is_over = false
  local timer = uv.new_timer()
  uv.update_time()
  timer:start(milliseconds, 1, function() is_over = true end) -- again: a turn that begins with it ends with the next
  while not is_over do uv.run("once") end
  timer:close()
end

describe("a server that is killed #once #peer #slow", function()
  local directory, port, peer, clients, checker, rng, counts
  local restarts -- records of them that are not checked yet
  local has_faults -- whether the server's disk is one that fails

  local function files()
    local list = {}
    for i = 1, CLIENTS do list[i] = ("%s/records-%d"):format(directory, i - 1) end
    return list
  end

  --- The options of a server on the directory, and on the port that it had.
  local function restarted()
    restarts[#restarts + 1] = ("spawn %.6f"):format(now())
    local data = directory .. "/data"
    local env = { KW_FAULT_DIR = data, KW_FAULT_CONTROL = directory .. "/plan" }
    return { kind = "keywatch", port = port, path = data, preload = has_faults and FAULT, env = env }
  end

  local function start()
    peer = server.start(restarted())
    port = peer.port
  end

  --- A new directory, and clients who know nothing.
  local function begin()
    directory = assert(uv.fs_mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/keywatch-crash-XXXXXX"))
    checker, restarts, clients = check.new(), {}, {}
    start()
    for i, path in ipairs(files()) do
      clients[i] = process.start({ PYTHON, "-B", "spec/crash/load.py", peer.address, tostring(i - 1),
        tostring(rng:next()), path }, { is_lasting = true, env = { PYTHONPATH = "spec/support/python" } })
    end
  end

  --- Ends everything, and leaves nothing behind unless something went wrong.
  local function finish(is_kept)
    for _, client in ipairs(clients or {}) do
      client:signal("sigkill")
      client:wait()
      if client.records then client.records:close() end
    end
    if peer and peer:is_running() then
      peer.process:signal("sigkill")
      peer.process:wait()
    end
    if directory and not is_kept then process.run { "rm", "-rf", directory } end
    clients, peer, directory = nil, nil, nil
  end

  before_each(function()
    rng = random.new(SEED)
    counts, has_faults, port = { rounds = 0, kills = 0, writes = 0, lost = 0, found = 0 }, false, nil
  end)

  after_each(function()
    finish(true)
  end)

  --- Gives all clients a command, and waits for the answers, which begin with a word.
  local function tell(command, word)
    for _, client in ipairs(clients) do client:write(command .. "\n") end
    for _, client in ipairs(clients) do client:expect(word .. "[^\n]*\n") end
  end

  --- The new lines of all records.
  local function lines()
    return coroutine.wrap(function()
      for _, line in ipairs(restarts) do coroutine.yield(line) end
      restarts = {}
      for i, path in ipairs(files()) do
        local file = clients[i].records or assert(io.open(path))
        clients[i].records = file
        for line in file:lines() do coroutine.yield(line) end
        file:seek("cur", 0) -- what comes later is read, too
      end
    end)
  end

  local function judge()
    local objections = checker:round(lines())
    if #objections > 0 then
      error(("%s\nround %d, kept in %s\n%s"):format(table.concat(objections, "\n"), counts.rounds, directory,
        peer:log()), 0)
    end
  end

  local function kill(child)
    child:signal("sigkill")
    child:wait()
    counts.kills = counts.kills + 1
  end

  --- Everything from traffic to the verdict. `die` ends the server, somehow.
  local function round(die)
    counts.rounds = counts.rounds + 1
    tell("go", "flowing")
    die()
    start()
    tell("pause", "paused")
    tell("audit", "audited")
    judge()
  end

  --- Rounds until the time is over.
  local function go_round(die)
    local deadline = now() + SECONDS
    repeat
      begin()
      local last = counts.rounds + ROUNDS
      repeat round(die) until now() > deadline or counts.rounds == last
      for _, name in ipairs { "writes", "lost", "found" } do counts[name] = counts[name] + checker[name] end
      finish()
    until now() > deadline
    print(("  %d rounds, %d kills; %d writes acknowledged, %d lost, %d of these found"):format(counts.rounds,
      counts.kills, counts.writes, counts.lost, counts.found))
  end

  it("keeps its promises whenever it dies", function()
    go_round(function()
      idle(rng:between(LEAST, MOST))
      kill(peer.process)
      while rng:one_in(4) do -- before it serves, or soon after
        local child = server.launch(restarted())
        idle(rng:between(0, 150))
        kill(child)
      end
    end)
  end)

  --- Tells the disk what to do, see fault.c; nil for nothing.
  local function plan(line)
    local path = directory .. "/plan"
    if not line then return os.remove(path) end
    local file = assert(io.open(path .. ".next", "w"))
    file:write(line, "\n")
    file:close()
    assert(os.rename(path .. ".next", path))
  end

  --- Lets the disk end the server at a later sync: groups have two of them, and are not there before the second.
  local function die_by(kind)
    has_faults = true
    go_round(function()
      idle(rng:between(0, LEAST))
      local moment = rng:pick { "before", "after" }
      plan(("%s sync %d %s %d"):format(kind, rng:between(1, 200), moment, rng:next()))
      peer.process:wait()
      counts.kills = counts.kills + 1
      plan(nil)
    end)
  end

  it("keeps its promises when it dies before a commit, in it, and after it", function()
    die_by("kill")
  end)

  it("keeps its promises when the power fails", function()
    die_by("cut")
  end)
end)
