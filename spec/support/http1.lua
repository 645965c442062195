--- HTTP/1.1 connections in memory, in virtual time, whose invariants are checked after every call.

local probe = require("keywatch.core").probe

local http1 = {}

local END = "\r\n\r\n"
http1.END = END

local methods = {}
local meta = { __index = methods }

local function new(options)
  local raw = assert(probe.http.connection(options), "not enough memory")
  return setmetatable({ raw = raw, now = options.now or 0 }, meta)
end

function http1.server(options) return new(options or {}) end

function http1.client(options)
  local all = { is_client = true }
  for name, value in pairs(options or {}) do all[name] = value end
  return new(all)
end

--- Feeds bytes, in one piece or in pieces that end before each of the offsets. Returns what was sent since.
function methods:feed(bytes, offsets)
  local from = 1
  for _, offset in ipairs(offsets or {}) do
    if offset >= from then
      self.raw:feed(bytes:sub(from, offset), self.now)
      self.raw:check()
      from = offset + 1
    end
  end
  if from <= #bytes then self.raw:feed(bytes:sub(from), self.now) end
  self.raw:check()
  return self.raw:take(nil, self.now)
end

--- The peer closes its side.
function methods:close()
  self.raw:feed("", self.now)
  self.raw:check()
  return self.raw:take(nil, self.now)
end

--- Lets time pass, and does what is due.
function methods:wait(ms)
  self.now = self.now + ms
  local _, _, _, due = self.raw:state()
  if due and due <= self.now then self.raw:step(self.now) end
  self.raw:check()
  return self.raw:take(nil, self.now)
end

function methods:events() return self.raw:events() end
function methods:wants_bytes() return (self.raw:state()) end
function methods:is_done() return (select(2, self.raw:state())) end
function methods:why() return (select(3, self.raw:state())) end
function methods:memory() return (select(5, self.raw:state())) end

--- The time until the deadline.
function methods:due()
  local _, _, _, due = self.raw:state()
  return due and due - self.now
end

--- Continues, and returns what was sent.
function methods:flush()
  self.raw:flush(self.now)
  self.raw:check()
  return self.raw:take(nil, self.now)
end

--- Answers with a body, and returns what was sent.
function methods:reply(body, answer)
  local head = { status = 200, length = #body }
  for name, value in pairs(answer or {}) do head[name] = value end
  assert(self.raw:answer(head), "no answer")
  assert(self.raw:write(body), "no body")
  assert(self.raw:finish(), "no end")
  return self:flush()
end

--- The status that was sent, or nil.
function http1.status(bytes) return tonumber(bytes:match("^HTTP/1%.1 (%d%d%d) ")) end

--- The body of an answer that was sent.
function http1.body(bytes) return bytes:match("\r\n\r\n(.*)$") end

--- A request, from its first line and fields. Lines of the list that are false are left out.
function http1.head(...)
  local lines = {}
  for _, line in ipairs { ... } do lines[#lines + 1] = line end
  return table.concat(lines, "\r\n") .. END
end

--- GET of a path.
function http1.get(path) return http1.head("GET " .. (path or "/") .. " HTTP/1.1", "Host: h") end

return http1
