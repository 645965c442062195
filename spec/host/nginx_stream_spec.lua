--- Many requests in an nginx worker share one connection, over TCP or by a unix socket.

local directory = require "spec.support.directory"
local http = require "spec.support.http"
local network = require "spec.support.network"
local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local process = require "spec.support.process"
local proxies = require "spec.support.proxy"
local vm = require "spec.support.vm"

local REQUESTS = 60 -- that wait at the same time

local WORKER = [[
keywatch = require "keywatch"
client = keywatch.connect("$url")
n_waiting = 0
function wait_for(key)
  local watch = assert(client:watch(key))
  n_waiting = n_waiting + 1
  local event = assert(watch:next())
  n_waiting = n_waiting - 1
  watch:close()
  return event.value
end
]]

local SERVER = [[
location = /wait { content_by_lua_block { ngx.print(wait_for(ngx.var.arg_key)) } }
]]

local function sum(list)
  local n = 0
  for _, one in ipairs(list) do n = n + one end
  return n
end

describe("requests in nginx #once #peer", function()
  nginx_stage.with_tests()
  before_each(network.begin)
  after_each(network.finish)

  --- Has many requests wait, each for the next change of one of three keys; changes them, and takes the answers.
  local function share(stage, client)
    local requests = {}
    for i = 1, REQUESTS do
      requests[i] = http.connect(stage.port)
      requests[i]:send("/wait?key=" .. i % 3)
    end
    stage:await("requests that wait", function() return sum(stage:ask_each("return n_waiting")) == REQUESTS end)
    for key = 0, 2 do assert(client:put(tostring(key), "value of " .. key)) end
    for i, request in ipairs(requests) do
      local answer = request:wait()
      assert.equal("200 value of " .. i % 3, answer.status .. " " .. answer.body)
      request:close()
    end
    assert.same({ 0, 0 }, stage:ask_each("return n_waiting"))
  end

  network.of_each(function(kind)
    it("share one connection of their worker to " .. kind .. ", whose bytes come in pieces", function()
      local server = network.start(kind)
      local client = network.connect(server.url)
      local proxy = proxies.start(server.url)
      proxy:split(3)
      local stage = nginx_stage.start { init_worker = WORKER, server = SERVER, words = { url = proxy.url } }
      share(stage, client)
      share(stage, client)
      assert.equal(2, proxy:accepted())
      for _, pid in ipairs(stage:workers()) do assert.equal(1, proc.connections(pid, proxy.port)) end
      assert.equal("", stage:troubles())
      assert.equal(0, stage:quit())
    end)
  end)

  it("reach a server beside nginx by a unix socket", function()
    local path = directory.new() .. "/socket"
    local server = process.start({ vm.interpreter, "bin/keywatch", "serve", "--memory", "--listen-client-urls",
      "unix://" .. path }, { env = vm.environment() })
    server:expect_error("ready to serve client requests")
    local client = network.connect("unix:" .. path)
    local stage = nginx_stage.start { init_worker = WORKER, server = SERVER, words = { url = "unix:" .. path } }
    share(stage, client)
    client:close()
    stage:await("one connection for each worker", function() return proc.unix_connections(server.pid, path) == 2 end)
    assert.equal("", stage:troubles())
    assert.equal(0, stage:quit())
    stage:await("end of the connections", function() return proc.unix_connections(server.pid, path) == 0 end)
  end)
end)
