--- Weather for nginx: two workers that follow a server through a proxy, under load, while at random nginx is reloaded,
-- workers and the server are killed, history is compacted, the network fails, and the server is restored to an older
-- state. In the end every journal of every worker that ever lived is compared with what has happened.

local luassert = require "luassert"

local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local journal = require "spec.support.nginx_journal"
local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local proxies = require "spec.support.proxy"
local server = require "spec.support.server"
local shell = require "spec.support.shell"
local uv = require "spec.support.luv"
local writers = require "spec.support.writer"

local PREFIX = "/weather/"
local RENEWAL = 0.5 -- seconds after which a worker's timer and connection are renewed, which are 600 otherwise
local TIMERS = 4   -- of a worker: where its tasks began, where its connections are, for its exit, and a new one
local WRITES = 20   -- before and after each event of the weather

-- What must have happened, and what watches must have been told.
local weather = { OUTCOMES = { "watch compacted", "watch regressed" } }
weather.__index = weather

local SERVER = [[
location = /read {
  content_by_lua_block {
    ngx.sleep(0.002)
    if math.random(5) == 1 then client:get("/weather/1", { timeout = 1 }) end
    local kv = cache:is_ready() and cache:get("/weather/1")
    ngx.print(kv and kv.value or "none")
  }
}
]]

-- {====== The server ======

local function tls_of(self)
  if not self.is_tls then return nil end
  local ca = certificates.paths("ca")
  local cert, key = certificates.paths("alice")
  return { ca = ca, cert = cert, key = key }
end

local function start_server(self)
  local options = { kind = self.kind, path = self.path, is_tls = self.is_tls }
  if self.server then options.port, options.peer_port = self.server.port, self.server.peer_port end
  if self.is_tls then
    for _, flag in ipairs { "--client-cert-auth", "--trusted-ca-file", (certificates.paths("ca")) } do
      table.insert(options, flag)
    end
  end
  self.server = server.start(options)
end

local function kill_server(self)
  self.server.process:signal("sigkill")
  self.server.process:wait()
end

-- }======

--- Starts a server of a kind ("keywatch" or "etcd"), with mutual TLS or without, a proxy, and nginx.
function weather.start(kind, is_tls, random)
  local self = setmetatable({
    kind = kind,
    is_tls = is_tls,
    random = random,
    path = directory.new(),
    server = nil,
    counts = {},
    journals = {}, -- by pid: { at = bytes that were compared, from = the revision there }
    n_events = 0,  -- that all workers have seen
  }, weather)
  start_server(self)
  local tls = tls_of(self)
  self.client = keywatch.connect(self.server.url, { tls = tls, backoff = { first = 0.01, longest = 0.1 } })
  self.writer = writers.new(self.client, random, PREFIX)
  self.proxy = proxies.start(self.server.url)
  self.stage = nginx_stage.start {
    init_worker = journal.WORKER,
    server = SERVER,
    words = {
      root = uv.cwd(), url = self.proxy.url, prefix = PREFIX, renewal = RENEWAL,
      tls = tls and ("{ ca = %q, cert = %q, key = %q }"):format(tls.ca, tls.cert, tls.key) or "nil",
    },
  }
  return self
end

function weather:count(what)
  self.counts[what] = (self.counts[what] or 0) + 1
end

function weather:write(n)
  for _ = 1, n or WRITES do self.writer:write() end
end

--- Writes one last time, and waits until each worker has everything; then compares what the workers have.
function weather:settle()
  self.n_settled = (self.n_settled or 0) + 1
  local mark = tostring(self.n_settled)
  local revision = self.writer:write { { put = PREFIX .. "mark", value = mark } }
  self.stage:await_each(("return content['%smark'] == %q and follower.last >= %.0f"):format(PREFIX, mark, revision))
  self:compare_content()
end

--- The tables and caches of the workers are what exists.
function weather:compare_content()
  local expected = {}
  for key, kv in pairs(self.writer.state) do expected[key] = kv.value end
  for _, text in ipairs {
    "local all = {} for key, value in pairs(content) do all[key] = value end return all",
    ("local all = {} for kv in cache:each('%s', { prefix = true }) do all[kv.key] = kv.value end return all")
      :format(PREFIX),
  } do
    for _, found in ipairs(self.stage:ask_each(text)) do luassert.same(expected, found) end
  end
end

--- Compares the journals of all workers that ever lived, as far as they were not compared before.
function weather:compare_journals()
  for _, name in ipairs(directory.list(self.stage.here)) do
    local pid = name:match("^journal%.(%d+)$")
    if pid then
      local one = self.journals[pid] or { at = 0 }
      local file = assert(io.open(self.stage.here .. "/" .. name))
      file:seek("set", one.at)
      local text = file:read("*a"):match("^.*\n") or ""
      file:close()
      local n, to = journal.compare(text, self.writer, one.from)
      self.n_events = self.n_events + n
      for code in text:gmatch("error (%S+)\n") do self:count("watch " .. code) end
      self.journals[pid] = { at = one.at + #text, from = to }
    end
  end
end

--- Each worker has one connection, when nothing is being renewed; and no more timers than it had before.
function weather:check_workers()
  for _, pid in ipairs(self.stage:workers()) do
    self.stage:await("one connection of worker " .. pid, function()
      return proc.connections(pid, self.proxy.port) == 1
    end)
    self.stage:await("as few timers as before in worker " .. pid, function()
      return self.stage:ask(pid, "return ngx.timer.running_count() + ngx.timer.pending_count()") <= TIMERS
    end)
  end
end

-- {====== What happens ======

local happenings = {}

function happenings.reload(self)
  self.stage:reload()
  self:write(3)
  self.stage:reload()
  self:count("reload")
end

--- Each worker moves to another timer, with another connection.
function happenings.renewal(self)
  local text = "return require('keywatch.driver.ngx').home.moves"
  for _, pid in ipairs(self.stage:workers()) do
    local before = self.stage:ask(pid, text)
    self.stage:await("another timer", function()
      self:write(1)
      return self.stage:ask(pid, text) > before
    end)
  end
end

happenings["worker killed"] = function(self)
  self.stage:kill(self.random:pick(self.stage:workers()))
end

happenings["server killed"] = function(self)
  kill_server(self)
  start_server(self)
end

happenings.compaction = function(self)
  assert(self.client:compact(self.writer.revision))
end

happenings.cut = function(self)
  self.proxy:cut { how = self.random:pick { "close", "reset" } }
end

happenings.split = function(self)
  self.proxy:split(self.random:between(1, 9))
  self:write()
  self:settle()
  self.proxy:restore()
end

--- The workers are cut off while keys change and are compacted: they must read anew.
happenings["missed compaction"] = function(self)
  self.proxy:refuse()
  self.proxy:cut()
  self:write()
  assert(self.client:compact(self.writer.revision))
  self:write(1)
  self.proxy:accept_again()
end

local function copy(list)
  local all = {}
  for key, value in pairs(list) do all[key] = value end
  return all
end

--- The server goes back to an older state. Whatever was compared before has happened; from now on it has not.
happenings.restore = function(self)
  local writer = self.writer
  self:settle()
  kill_server(self)
  local saved, revision, state, log = directory.new(), writer.revision, copy(writer.state), copy(writer.log)
  shell.must(("cp -a %s/. %s"):format(self.path, saved))
  start_server(self)
  self:write()
  self:settle()
  self:compare_journals()
  kill_server(self)
  directory.remove(self.path)
  self.path = saved
  local before = self.stage:ask_each("return follower.n_segments")
  start_server(self)
  writer.revision, writer.state, writer.log = revision, state, log
  for i, pid in ipairs(self.stage:workers()) do
    self.stage:await("a watch of the restored server", function()
      return self.stage:ask(pid, "return follower.n_segments") > before[i]
    end)
  end
  local mark = state[PREFIX .. "mark"].value
  self.stage:await_each(("return content['%smark'] == %q"):format(PREFIX, mark))
end

weather.NAMES = {
  "reload", "renewal", "worker killed", "server killed", "compaction", "cut", "split", "missed compaction", "restore",
}

-- }======

--- One thing happens, and everybody finds their way.
function weather:happen(name)
  self:write()
  happenings[name](self)
  self:count(name)
  self:write()
  self:settle()
  self:check_workers()
end

--- What was counted, as a text.
function weather:report()
  local words = {}
  for name, n in pairs(self.counts) do words[#words + 1] = ("%s %d"):format(name, n) end
  table.sort(words)
  return ("%s%s: %d events; %s"):format(self.kind, self.is_tls and " with TLS" or "", self.n_events,
    table.concat(words, ", "))
end

function weather:close()
  self.client:close()
  self.proxy:close()
  self.stage:close()
  if self.server:is_running() then self.server:stop() end
end

return weather
