--- The gateway of examples/openresty: routes change without a reload, and stay available while the server is down.

local files = require "spec.support.files"
local free_port = require "spec.support.free_port"
local network = require "spec.support.network"
local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"
local server = require "spec.support.server"
local shell = require "spec.support.shell"
local uv = require "spec.support.luv"

local HERE = "examples/openresty/"

describe("the gateway of examples/openresty #once #peer", function()
  nginx_stage.with_tests()
  before_each(network.begin)
  after_each(network.finish)

  --- Writes the files of the example, with other ports. Returns a stage that is not started, and the ports.
  local function prepare(url)
    local ports = { ["8081"] = free_port(), ["8082"] = free_port() }
    local text = files.read(HERE .. "nginx.conf"):gsub("127%.0%.0%.1:8080", "127.0.0.1:$port")
      :gsub("127%.0%.0%.1:(808[12])", function(port) return "127.0.0.1:" .. ports[port] end)
      :gsub("error_log stderr", "error_log error.log")
    local stage = nginx_stage.new { configuration = text, env = { KEYWATCH = url } }
    shell.must(("cp %sgateway.lua %sstart %s"):format(HERE, HERE, stage.here))
    return stage, ports
  end

  local function start(url)
    local stage, ports = prepare(url)
    return stage:run(), ports
  end

  it("is started by its script", function()
    local stage = prepare("http://127.0.0.1:1")
    local done = process.run { stage.here .. "/start", "-t", "-e", stage.here .. "/error.log" }
    assert.equal(0, done.status, done:transcript())
  end)

  it("does what its README says", function()
    local peer = server.start()
    local stage, ports = start(peer.url)
    ports["8080"] = stage.port
    local readme = files.read(HERE .. "README.md")
    local text = readme:match("In another terminal[^\n]*\n\n```sh\n(.-)```"):gsub("808%d", ports)
    local answers = { "404 Not Found", "blue /shop/basket", "green /shop/basket", '"routes":1' }
    for line in text:gmatch("[^\n]+") do
      local answer = line:find("^curl") and table.remove(answers, 1)
      local env = { ETCDCTL_API = "3", ETCDCTL_ENDPOINTS = peer.url }
      stage:await(line, function()
        local done = process.run({ "sh", "-c", line }, nil, { env = env })
        return done.status == 0 and (not answer or done:stdout():find(answer, 1, true))
      end)
    end
    assert.same({}, answers)
    assert.equal(0, stage:quit())
  end)

  --- Waits until requests are answered with a body, by both workers: until eight in a row are.
  local function await(stage, path, body)
    stage:await(body, function()
      for _ = 1, 8 do
        if stage:get(path).body ~= body then return false end
      end
      return true
    end)
  end

  network.of_each(function(kind)
    it("follows the routes of " .. kind, function()
      local peer = network.start(kind)
      local client = network.connect(peer.url)
      local stage, ports = start(peer.url)
      local function put(name, path, port)
        local route = ('{"path": "%s", "upstream": "127.0.0.1:%d"}'):format(path, port)
        assert(client:put("/gateway/routes/" .. name, route))
      end
      assert.equal(404, stage:get("/shop/basket").status)
      put("shop", "/shop/", ports["8081"])
      await(stage, "/shop/basket", "blue /shop/basket\n")
      put("basket", "/shop/basket", ports["8082"])
      await(stage, "/shop/basket", "green /shop/basket\n")
      await(stage, "/shop/sale", "blue /shop/sale\n")
      assert(client:delete("/gateway/routes/basket"))
      await(stage, "/shop/basket", "blue /shop/basket\n")
      assert(client:put("/gateway/routes/shop", "nonsense")) -- the route stays as it was
      stage:expect_log("%[warn%].*the value of 'shop' cannot be decoded")
      await(stage, "/shop/basket", "blue /shop/basket\n")
      assert.matches('"routes":1', stage:get("/gateway/status").body)
      stage:reload()
      assert.equal(0, stage:quit())
    end)
  end)

  it("begins with the routes that it had, if the server is down", function()
    local peer = server.start()
    local stage, ports = start(peer.url)
    local client = network.connect(peer.url)
    local route = ('{"path": "/", "upstream": "127.0.0.1:%d"}'):format(ports["8081"])
    assert(client:put("/gateway/routes/all", route))
    await(stage, "/a", "blue /a\n")
    stage:await("the file", function() return uv.fs_stat(stage.here .. "/routes.kept") end)
    peer:stop()
    stage:reload()
    await(stage, "/a", "blue /a\n")
    stage:expect_log("%[warn%].*begins with the content of the file")
    assert.equal("", stage:troubles("keywatch: "))
    assert.equal(0, stage:quit())
  end)
end)
