--- Compressed answers for the HTTP client: gzip in any pieces, damaged and incomplete data, bombs.

local core = require "keywatch.core"
local http = require "keywatch.http"
local testing = require "keywatch.testing"

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local raw_server = require "spec.support.raw_server"
local resident = require "spec.support.resident"
local shell = require "spec.support.shell"

local MIB = 1024 * 1024

--- Returns the output of a command of the shell, which writes it to the file $1.
local function made_by(command)
  local path = directory.new() .. "/made"
  shell.must(command:gsub("%$1", path))
  return files.read(path)
end

--- Runs fn(client, url, peers) with a server that answers with these bytes, `size` at a time.
local function with(head, body, size, fn, options)
  testing.run(function(world)
    local url, peers = raw_server.listen(world, 1000, function(peer)
      if peer.has_answered or not peer.received:find("\r\n\r\n", 1, true) then return end
      peer.has_answered = true
      peer:say("HTTP/1.1 200 OK\r\n" .. head .. "\r\n")
      local at = 1
      peer.refill = function()
        at = at + size
        peer.is_over = at > #body
        return body:sub(at - size, at - 1)
      end
    end)
    local client = http.client(options)
    fn(client, url, peers)
  end)
end

describe("compressed answers", function()
  local text = {}
  for i = 1, 20000 do text[i] = ("line %d\n"):format(i) end
  text = table.concat(text)
  local GZIP = "content-encoding: gzip\r\n"
  local packed

  setup(function()
    local path = directory.new() .. "/text"
    files.write(path, text)
    packed = made_by("gzip -nc " .. path .. " >$1")
  end)

  teardown(directory.remove_all)

  it("are asked for, and decompressed", function()
    for _, size in ipairs { 7, 4096, #packed } do
      with(GZIP .. "content-length: " .. #packed .. "\r\n", packed, size, function(client, url, peers)
        local answer = assert(client:request(url))
        assert.is_true(answer.body == text)
        assert.same({ nil, nil }, { answer.headers["content-encoding"], answer.headers["content-length"] })
        assert.matches("\r\naccept%-encoding: gzip\r\n", peers[1].received)
        local parts = {}
        local exchange = assert(client:open(url))
        for part in exchange:parts() do
          assert.is_true(#part <= 65536)
          parts[#parts + 1] = part
        end
        assert.is_true(table.concat(parts) == text)
      end)
    end
  end)

  it("are left alone if the client wants that, or if it knows no such coding", function()
    with(GZIP, packed, 4096, function(client, url, peers)
      assert.is_true(client:request(url).body == packed)
      assert.is_nil(peers[1].received:find("accept-encoding", 1, true))
    end, { decompress = false })
    with("content-encoding: br\r\n", packed, 4096, function(client, url)
      assert.is_true(client:request(url).body == packed)
    end)
  end)

  it("may be empty, have several parts, or be of zlib", function()
    with(GZIP, "", 1, function(client, url) assert.equal("", client:request(url).body) end)
    with(GZIP, packed .. packed, 1000, function(client, url)
      assert.is_true(client:request(url).body == text .. text)
    end)
    local zlib = made_by [[python3 -c 'import zlib; open("$1", "wb").write(zlib.compress(b"hello"))']]
    with("content-encoding: deflate\r\n", zlib, 1, function(client, url)
      assert.equal("hello", client:request(url).body)
    end)
  end)

  it("that are damaged or incomplete fail", function()
    local wrong = packed:sub(1, 5000) .. "\0\0\0\0\0" .. packed:sub(5006)
    for body, why in pairs {
      [wrong] = "not valid", [packed:sub(1, -2)] = "not complete", [packed:sub(1, 20)] = "not complete",
      ["hello"] = "not valid", [packed .. "x"] = "not ", ["\31"] = "not complete",
    } do
      with(GZIP, body, 1000, function(client, url)
        local answer, err = client:request(url)
        assert.is_nil(answer)
        assert.equal("malformed", err.code)
        assert.matches("the compressed body is " .. why, err.message)
      end)
    end
  end)

  it("are limited by max_body as they are decompressed, in bounded memory", function()
    local bomb = made_by "head -c 209715200 /dev/zero | gzip -c >$1"
    with(GZIP, bomb, 65536, function(client, url)
      resident.reset_peak()
      local before = resident.now()
      local _, err = client:request(url, { max_body = 2 * MIB })
      assert.equal("answer_too_large", err.code)
      local n, exchange = 0, assert(client:open(url))
      for part in exchange:parts() do n = n + #part end
      assert.equal(200 * MIB, n)
      if resident.is_reliable then assert.is_true(resident.peak() - before < 160 * MIB) end
    end)
  end)

  it("need zlib, which is here", function() assert.is_truthy(core.inflater()) end)
end)
