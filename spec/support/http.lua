--- An HTTP/1.1 client, for specs with a web server: persistent connections, and calls that wait for answers.

local uv = require "spec.support.luv"

local process = require "spec.support.process"

local http = {}

local methods = {}
local meta = { __index = methods }

local REQUEST = "%s %s HTTP/1.1\r\nHost: stage\r\nContent-Length: %d\r\n\r\n%s"

--- Decodes a chunked body from a position of a text on. Returns the body and its end; nil if it is incomplete.
local function take_chunks(text, at)
  local parts = {}
  while true do
    local _, stop, digits = text:find("^(%x+)[^\r\n]*\r\n", at)
    if not stop then return nil end
    local size = tonumber(digits, 16)
    if #text < stop + size + 2 then return nil end
    if size == 0 then return table.concat(parts), stop + 2 end
    parts[#parts + 1] = text:sub(stop + 1, stop + size)
    at = stop + size + 3
  end
end

--- Takes one answer from the front of a text. Returns { status, head, body } and the rest; nil if it is incomplete.
local function take_answer(text)
  local _, stop = text:find("\r\n\r\n", 1, true)
  if not stop then return nil end
  local head = text:sub(1, stop)
  local body, finish
  if head:lower():find("transfer-encoding: chunked", 1, true) then
    body, finish = take_chunks(text, stop + 1)
  else
    finish = stop + (tonumber(head:lower():match("content%-length: (%d+)")) or 0)
    body = #text >= finish and text:sub(stop + 1, finish) or nil
  end
  if not body then return nil end
  return { status = tonumber(head:match("^HTTP/%d%.%d (%d+)")), head = head, body = body }, text:sub(finish + 1)
end

local function close(self)
  self.is_over = true
  if not self.socket:is_closing() then self.socket:close() end
end

--- Begins a connection to a port of this machine, or to a path of a unix socket. With is_paused, nothing is read before
-- `resume`.
function http.connect(where, is_paused)
  local is_path = type(where) == "string"
  local self = setmetatable({
    socket = is_path and uv.new_pipe(false) or uv.new_tcp(),
    parts = {},      -- received bytes that were not taken
    n_received = 0,  -- bytes
    is_over = false, -- the server has ended the connection, or refused it
  }, meta)
  local function on_connect(err)
    if err then return close(self) end
    if not is_paused then self:resume() end
  end
  if is_path then self.socket:connect(where, on_connect) else self.socket:connect("127.0.0.1", where, on_connect) end
  return self
end

--- Begins to read.
function methods:resume()
  self.socket:read_start(function(failure, chunk)
    if failure or not chunk then return close(self) end
    self.parts[#self.parts + 1] = chunk
    self.n_received = self.n_received + #chunk
  end)
end

--- Returns the received bytes that no `wait` has taken.
function methods:received()
  self.parts = { table.concat(self.parts) }
  return self.parts[1]
end

--- Sends bytes.
function methods:say(bytes)
  if not self.is_over then self.socket:write(bytes) end
end

--- Sends a request: GET, or POST if there is a body. A connection may send several requests before it waits.
function methods:send(path, body)
  self:say(REQUEST:format(body and "POST" or "GET", path, #(body or ""), body or ""))
end

--- Waits for the next answer. Returns nil if the connection ends first.
function methods:wait(seconds)
  local answer, rest
  local is_in_time = process.turn_until(function()
    answer, rest = take_answer(self:received())
    return answer or self.is_over
  end, seconds)
  if not is_in_time then error("no answer", 2) end
  if answer then self.parts = { rest } end
  return answer
end

--- Sends a request and waits for its answer.
function methods:ask(path, body)
  self:send(path, body)
  return self:wait()
end

function methods:close()
  close(self)
  uv.run("nowait")
end

return http
