--- Redirects of the HTTP client: which are followed, and what is sent to where.

local http = require "keywatch.http"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local locations = require "keywatch.http.location"

describe("redirects", function()
  --- Runs fn(client, a, b, seen) with two origins, whose handlers note what they see.
  local function with(fn)
    testing.run(function(world)
      local seen = {}
      local function add(server)
        for _, method in ipairs { "GET", "POST" } do
          server:handle(method, "/see", function(request)
            seen = { method = request.method, body = request:body(), headers = request.headers, host = request.host,
              query = request.query_text }
            return "seen"
          end)
          server:handle(method, "/to/{status}/{rest...}", function(request)
            return tonumber(request.params.status), "moved", { location = request.params.rest }
          end)
          server:handle(method, "/loop", function() return 302, "", { location = "loop?again" } end)
        end
      end
      local first, second = world.server, world:serve { url = "http://127.0.0.1:3000" }
      add(first.server)
      add(second.server)
      fn(http.client { redirects = 3 }, first.url, second.url, function() return seen end)
    end)
  end

  it("are followed only if they are asked for, up to a number", function()
    with(function(client, a)
      local plain = http.client()
      local answer = assert(plain:request(a .. "/to/302/see"))
      assert.same({ 302, "moved", a .. "/to/302/see" }, { answer.status, answer.body, answer.url })
      answer = assert(plain:request(a .. "/to/302//see", { redirects = 1 }))
      assert.same({ 200, "seen", a .. "/see" }, { answer.status, answer.body, answer.url })
      local _, err = client:request(a .. "/loop")
      assert.equal("resource_exhausted", err.code)
      assert.matches("more than 3 redirects", err.message)
      assert.equal(302, client:request(a .. "/loop", { redirects = 0 }).status)
    end)
  end)

  it("change the method, or repeat the request", function()
    with(function(client, a, _, seen)
      for status, expected in pairs { [301] = "GET", [302] = "GET", [303] = "GET", [307] = "POST", [308] = "POST" } do
        local opts = { body = "body", headers = { ["content-type"] = "a/b" } }
        assert.equal("seen", assert(client:request(a .. "/to/" .. status .. "//see?a=b", opts)).body)
        assert.equal(expected, seen().method)
        assert.equal(expected == "POST" and "body" or "", seen().body)
        assert.equal(expected == "POST" and "a/b" or nil, seen().headers["content-type"])
      end
      local parts = { "x" }
      local _, err = client:request(a .. "/to/307//see", { body = function() return table.remove(parts) end })
      assert.equal("failed_precondition", err.code)
    end)
  end)

  it("take no credentials to another origin, and never leave TLS", function()
    with(function(client, a, b, seen)
      local headers = { authorization = "secret", Cookie = "secret", host = "localhost", other = "kept" }
      assert(client:request(a .. "/to/302//see", { headers = headers }))
      assert.same({ "secret", "secret", "localhost" }, { seen().headers.authorization, seen().headers.cookie,
        seen().host })
      local own = http.client { redirects = 1, headers = { Authorization = "secret" } }
      for _, one in ipairs { client, own } do
        assert(one:request(a .. "/to/302/" .. b .. "/see", { headers = headers }))
        assert.same({ "kept" }, { seen().headers.other, seen().headers.authorization, seen().headers.cookie })
        assert.equal("127.0.0.1:3000", seen().host)
      end
      assert.equal("invalid_argument", select(2, client:request(a .. "/to/302/ftp://x/")).code)
    end)
  end)

  it("are resolved as references of RFC 3986", function()
    local base = locations.parse "http://a/b/c/d;p?q"
    for reference, expected in pairs {
      ["g"] = "/b/c/g", ["./g"] = "/b/c/g", ["g/"] = "/b/c/g/", ["/g"] = "/g", ["?y"] = "/b/c/d;p?y",
      ["g?y"] = "/b/c/g?y", ["#s"] = "/b/c/d;p?q", ["g#s"] = "/b/c/g", [";x"] = "/b/c/;x", [""] = "/b/c/d;p?q",
      ["."] = "/b/c/", ["./"] = "/b/c/", [".."] = "/b/", ["../"] = "/b/", ["../g"] = "/b/g", ["../.."] = "/",
      ["../../g"] = "/g", ["../../../g"] = "/g", ["/./g"] = "/g", ["/../g"] = "/g", ["g."] = "/b/c/g.",
      ["..g"] = "/b/c/..g", ["./../g"] = "/b/g", ["./g/."] = "/b/c/g/", ["g/../h"] = "/b/c/h",
      ["g?y/../x"] = "/b/c/g?y/../x",
      ["/\195\169 g?\"<\9>"] = "/%C3%A9%20g?%22%3C%09%3E", -- not valid, and frequent
    } do
      local found = assert(locations.parse(locations.resolve(base, reference)))
      assert.same({ "http://a:80", expected }, { found.key, found.path }, reference)
    end
    assert.equal("http://g:80", locations.parse(locations.resolve(base, "//g")).key)
    assert.equal("https://g:443", locations.parse(locations.resolve(base, "HTTPS://g/x")).key)
    local ip6 = locations.parse "https://[::1]:8443"
    assert.same({ "https://[::1]:8443", "[::1]:8443", "/", "::1" }, { ip6.key, ip6.authority, ip6.path,
      ip6.address.host })
  end)

  it("from https to http are refused", function()
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = { "https://127.0.0.1:0", "http://127.0.0.1:0" },
      tls = { auto = true } })
    local urls = server:addresses()
    server:handle("GET", "/down", function() return 302, "", { location = urls[2] .. "/health" } end)
    server:handle("GET", "/up", function() return 302, "", { location = urls[1] .. "/health" } end)
    local client = assert(http.client { redirects = 1, tls = { verify = false } })
    assert.equal("failed_precondition", select(2, client:request(urls[1] .. "/down")).code)
    assert.equal(200, client:request(urls[2] .. "/up").status)
    client:close()
    server:close()
    store:close()
  end)
end)
