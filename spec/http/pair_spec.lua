--- Both roles of HTTP/1.1 and HTTP/2 against each other, at random, and with memory that runs out. Only probe builds
-- can look.

local dose = require "spec.support.dose"
local http1 = require "spec.support.http1"
local occurrences = require "spec.support.occurrences"
local probed = require "spec.support.probed"
local new_random = require("spec.support.random").new

local probe = probed.get("both HTTP/1.1 roles")
if not probe then return end

local starve = require "spec.support.starve"

local seed = tonumber(os.getenv("KW_SEED") or 1)

--- Moves some bytes from one end to the other. Returns whether any moved.
local function move(random, from, to)
  if not to:wants_bytes() then return false end
  local bytes = from.raw:take(random:one_in(3) and random:between(1, 20) or random:between(1, 5000), 0)
  if bytes == "" then return false end
  to.raw:feed(bytes, 0)
  to.raw:check()
  from.raw:check()
  return true
end

local function random_fields(random)
  local fields = {}
  for i = 1, random:between(0, 3) do
    fields[2 * i - 1] = "x-" .. random:between(0, 99)
    fields[2 * i] = ("v"):rep(random:between(0, 30))
  end
  return fields
end

local function lines(fields)
  local text = {}
  for i = 1, #fields, 2 do text[#text + 1] = "\n" .. fields[i] .. ": " .. fields[i + 1] end
  return table.concat(text)
end

--- A message at random: its body in pieces, and how its length is given.
local function random_message(random)
  local pieces = {}
  for i = 1, random:one_in(3) and 0 or random:between(1, 5) do
    pieces[i] = ("abcdefgh"):rep(random:between(0, random:one_in(5) and 2000 or 20)) .. i
  end
  local body = table.concat(pieces)
  return { pieces = pieces, body = body, length = random:one_in(2) and -1 or #body, fields = random_fields(random),
    trailers = random_fields(random), at = 0 }
end

--- Sends the next part of a message. Returns true once all was sent.
local function send(one, message, random)
  if message.at < #message.pieces then
    if not one.raw:has_room() then return false end
    message.at = message.at + 1
    assert(one.raw:write(message.pieces[message.at], random:one_in(2)), "not written")
    return false
  end
  assert(one.raw:finish(message.trailers), "not ended")
  return true
end

--- The events of one message and of the end of its exchange: without space for output and the length, which the engine
--- adds; and with the body as one, which is returned beside them.
local function events_of(one, list)
  for _, event in ipairs(one:events()) do
    local body = event:match("^body (.*)")
    if body then
      list.body = list.body .. body
    elseif event ~= "room" then
      list[#list + 1] = event:gsub("\ncontent%-length: %d+", "")
    end
  end
  return list
end

local function expect_message(list, head, message, has_trailers, is_empty)
  local trailers = has_trailers and lines(message.trailers) or ""
  local expected = ("%s length %d%s"):format(head, is_empty and 0 or message.length, lines(message.fields))
  assert.same({ expected, "end" .. trailers, "close" }, { list[1], list[2], list[3] })
  assert(list.body == (is_empty and "" or message.body), "another body has arrived")
end

local METHODS = { "GET", "POST", "PUT", "HEAD", "DELETE", "X" }
local STATUSES = { 200, 201, 204, 304, 404, 500 }

--- One exchange of random messages. Returns what occurred.
local function exchange(random, client, server, is_h2)
  local request, answer = random_message(random), random_message(random)
  local method, status = random:pick(METHODS), random:pick(STATUSES)
  local is_empty = method == "HEAD" or status == 204 or status == 304
  local heard, seen = { body = "" }, { body = "" }
  assert(client.raw:request { method = method, path = "/x", length = request.length, fields = request.fields })
  local all_sent, has_answered, all_answered = request.length == 0, false, false
  repeat
    local moved = move(random, client, server)
    moved = move(random, server, client) or moved
    events_of(client, seen)
    events_of(server, heard)
    all_sent = all_sent or seen[3] ~= nil -- the answer came before our call of finish
    if not all_sent then all_sent, moved = send(client, request, random), true end
    if not has_answered and heard[(is_empty or answer.length == 0) and 2 or 1] then
      assert(server.raw:answer { status = status, length = answer.length, fields = answer.fields })
      has_answered, moved = true, true
    elseif has_answered and not all_answered and heard[2] then
      all_answered, moved = send(server, answer, random), true
    end
    server.raw:flush(0)
    client.raw:flush(0)
  until not moved
  expect_message(events_of(server, heard), method .. " http host /x", request,
    request.length == -1 or is_h2 and request.length > 0, false)
  expect_message(events_of(client, seen), tostring(status), answer,
    not is_empty and (is_h2 or answer.length == -1), is_empty)
  return { [is_empty and "empty" or answer.length == -1 and "chunks" or "length"] = 1,
    [answer.length == -1 and #answer.trailers > 0 and "trailers" or "no trailers"] = 1,
    [#request.body > 10000 and "large" or "small"] = 1 }
end

describe("a client and a server", function()
  local function exchange_messages(h2)
    local random = new_random(seed)
    occurrences.await({ "empty", "chunks", "length", "trailers", "large" }, dose.of(20, 100), function()
      local client = http1.client { max_out = random:between(100, 20000), max_body = 1e6, h2 = h2 }
      local server = http1.server { max_out = random:between(100, 20000), max_body = 1e6, h2 = h2 }
      local counts = {}
      for _ = 1, random:between(1, 6) do
        for what, n in pairs(exchange(random, client, server, h2)) do counts[what] = (counts[what] or 0) + n end
      end
      assert.is_false(client:is_done() or server:is_done())
      client.raw:free()
      server.raw:free()
      return counts
    end)
  end

  it("exchange random messages in random pieces over HTTP/1.1", function() exchange_messages(nil) end)
  it("exchange random messages in random pieces over HTTP/2", function() exchange_messages(true) end)
end)

describe("where memory runs out #slow, an HTTP/1.1 connection", function()
  --- A conversation in which each role buffers, writes and reads. Nothing is expected of what it brings.
  local function converse(client, server)
    client:request { method = "PUT", length = -1, fields = { "a", "b" } }
    pcall(client.write, client, "hello")
    pcall(client.write, client, ("x"):rep(5000), true)
    pcall(client.finish, client, { "c", "d" })
    for _ = 1, 100 do
      local bytes = client:take(100, 0)
      if bytes == "" then break end
      server:feed(bytes, 0)
      server:check()
      client:check()
    end
    pcall(server.answer, server, { status = 200, length = -1 })
    pcall(server.write, server, ("y"):rep(5000), true)
    pcall(server.finish, server)
    server:flush()
    for _ = 1, 100 do
      local bytes = server:take(90, 0)
      if bytes == "" then break end
      client:feed(bytes, 0)
      client:check()
    end
    server:feed("GET / HTTP", 0)
    server:feed("/1.1\n", 0)
    server:check()
  end

  it("ends, and nothing is lost", function()
    local function attempt(n)
      local reached = starve.during(probe.fail_core, n, function()
        local client, server = probe.http.connection { is_client = true }, probe.http.connection {}
        if client and server then converse(client, server) end
        for _, one in ipairs { client or false, server or false } do
          if one then
            local events = one:events()
            local opened, closed = 0, 0
            for _, event in ipairs(events) do
              opened = opened + (event:match("^PUT ") and 1 or 0)
              closed = closed + (event:match("^close") and 1 or 0)
            end
            assert(closed >= opened or not select(2, one:state()), "an exchange was not closed")
            one:free()
          end
        end
      end)
      return reached
    end
    starve.try_each(attempt)
  end)
end)
