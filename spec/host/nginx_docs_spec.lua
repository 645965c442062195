--- docs/openresty.md is true: its configurations run and answer as their comments say, and its table has each phase.

local phases = require "keywatch.driver.ngx_phase"

local certificates = require "spec.support.certificates"
local document = require "spec.support.document"
local files = require "spec.support.files"
local network = require "spec.support.network"
local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"

local page = document.read("docs/openresty.md")

local EFFECTS = { start = "blocks, for a second unless it has a timeout", wait = "waits", read = "raises" }

--- The whole configuration of a block, which may have only what stands in `http`.
local function configuration_of(text, peer)
  if not text:find("\nevents ") then text = "events { worker_connections 64; }\n\nhttp {\n" .. text .. "\n}\n" end
  local ca = certificates.paths("ca")
  local cert, key = certificates.paths("alice")
  local words = {
    ["127.0.0.1:8080"] = "127.0.0.1:$port", ["127.0.0.1:2379"] = peer.address, ["/var/lib/nginx"] = "$here",
    ["/etc/nginx/ca.pem"] = ca, ["/etc/nginx/client.pem"] = cert, ["/etc/nginx/client.key"] = key,
  }
  return (text:gsub("[%d.]+:%d+", words):gsub("/[%w/_]+%.?%w*", words):gsub("/var/lib/nginx", "$here"))
end

describe("docs/openresty.md #once #peer", function()
  nginx_stage.with_tests()
  before_each(network.begin)
  after_each(network.finish)

  local function start_peer(text)
    if not text:find("https://", 1, true) then
      local peer = network.start("keywatch")
      return peer, network.connect(peer.url)
    end
    local ca = certificates.paths("ca")
    local cert, key = certificates.paths("alice")
    local peer = network.start("keywatch", { is_tls = true, "--client-cert-auth", "--trusted-ca-file", ca })
    return peer, network.connect(peer.url, { tls = { ca = ca, cert = cert, key = key } })
  end

  for _, block in ipairs(page:blocks_of("nginx")) do
    it("has a configuration that runs in: " .. block.section, function()
      local text = table.concat(page:lines_of(block), "\n")
      local peer, client = start_peer(text)
      assert(client:put("/config/colour", "red"))
      assert(client:put("/stock", "7"))
      local stage = nginx_stage.start { configuration = configuration_of(text, peer) }
      local n = 0
      for path, body in text:gmatch("# GET (%S+): ([^\n]*)\n") do
        for _ = 1, 4 do assert.equal(body .. "\n", stage:get(path).body, stage:log()) end
        n = n + 1
      end
      assert(n > 0, "nothing is asked")
      stage:reload()
      assert.equal(0, stage:quit())
      assert.equal("", stage:troubles())
    end)
  end

  it("has each phase in its table, with what works there", function()
    local n = 0
    for _, line in ipairs(page.lines) do
      local name, code, effect = line:match("^| `([%l_]+)` | `([%w_.]+)` | (.-) |$")
      if name then
        n = n + 1
        local phase = phases.list[n]
        assert.same({ phase[1], phase[3], EFFECTS[phase[2]] }, { name, code, effect })
      end
    end
    assert.equal(#phases.list, n)
  end)

  -- Debian's nginx lacks OpenResty's patches, without which a handshake ends if one of its handlers waits.
  it("is right about balancer phases, the exit of workers, and TLS phases, where caches are read", function()
    local peer, client = start_peer("")
    assert(client:put("/stock", "7"))
    local cert, key = certificates.paths("server")
    local stage = nginx_stage.start {
      words = { url = peer.url, cert = cert, key = key },
      init_worker = [[
        client = require("keywatch").connect("$url")
        cache = client:cache("/stock")
        assert(cache:wait_ready(60))
        function try(reader)
          local ok, found = pcall(function()
            local kv, err = (reader or client):get("/stock")
            return kv and kv.value or tostring(err)
          end)
          local file = io.open("$here/phase." .. ngx.get_phase(), "w")
          file:write(tostring(ok), " ", tostring(found))
          file:close()
        end
      ]],
      http = [[
        exit_worker_by_lua_block { try() }
        upstream balanced {
          server 0.0.0.1;
          balancer_by_lua_block {
            try()
            require("ngx.balancer").set_current_peer("127.0.0.1", $port)
          }
        }
      ]],
      server = [[
        listen unix:$here/tls ssl;
        ssl_certificate $cert;
        ssl_certificate_key $key;
        ssl_client_hello_by_lua_block { try(cache) }
        ssl_certificate_by_lua_block { try(cache) }
        server_rewrite_by_lua_block { if ngx.var.uri == "/balanced" then try() end }
        location = /balanced { proxy_pass http://balanced/end; }
        location = /end { return 200 "end"; }
      ]],
    }
    local done = process.run { "curl", "--silent", "--show-error", "--insecure", "--unix-socket", stage.here .. "/tls",
      "https://localhost/balanced" }
    assert.equal("end", done:stdout(), done:transcript() .. stage:log())
    assert.equal(0, stage:quit())
    for _, name in ipairs { "ssl_client_hello", "ssl_cert", "server_rewrite", "balancer", "exit_worker" } do
      local text = files.read(stage.here .. "/phase." .. name)
      if phases.kind_of(name) == "wait" then
        assert.equal("true 7", text, name)
      elseif name == "exit_worker" then
        assert.matches("closed", text)
      else
        assert.matches("false .*get waits, which nginx's phase '" .. name .. "' does not allow", text)
      end
    end
    assert.equal("", stage:troubles())
  end)
end)
