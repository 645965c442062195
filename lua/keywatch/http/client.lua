-- SPDX-License-Identifier: MIT
--- client: an HTTP client: requests, with one retry and redirects; and streams.

local backoffs = require "keywatch.client.backoff"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local exchanges = require "keywatch.http.exchange"
local locations = require "keywatch.http.location"
local pools = require "keywatch.http.pool"
local security = require "keywatch.client.security"

local MAX_FIELDS = 100
local MAX_REFUSALS = 10 -- of one request, by servers of HTTP/2
local BACKOFF = { first = 0.01, longest = 0.5 } -- seconds between refusals
local TOKEN = "^[%w!#$%%&'*+%-.^_`|~]+$"

-- Methods whose request may be sent twice.
local IS_IDEMPOTENT = { GET = true, HEAD = true, OPTIONS = true, TRACE = true, PUT = true, DELETE = true }
local HAS_BODY = { POST = true, PUT = true, PATCH = true } -- an empty one has a length, too

-- Fields that the connection sets.
local RESERVED = {
  connection = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["transfer-encoding"] = true, upgrade = true,
  ["content-length"] = true,
}

local client_methods, client_mt = check.class "keywatch.http_client"

function client_mt:__tostring()
  return ("keywatch.http_client<%d connections%s>"):format(self.pool.count, self.pool.is_closed and ", closed" or "")
end

-- {====== Headers ======

--- Adds the values of a header to a list of fields. Raises if the header is not valid.
local function add_header(list, name, value, what)
  if type(name) ~= "string" or not name:find(TOKEN) then
    check.misuse("%s: the name of a header is not valid: %s", what, check.shown(name))
  end
  if RESERVED[name:lower()] then check.misuse("%s: the header '%s' is set by the client itself", what, name) end
  for _, one in ipairs(type(value) == "table" and value or { value }) do
    if type(one) ~= "string" and type(one) ~= "number" then
      check.misuse("%s: the header '%s' must be a string, not %s", what, name, check.shown(one))
    end
    local text = tostring(one):match("^[ \t]*(.*[^ \t])") or ""
    if text:gsub("\t", ""):find("%c") then check.misuse("%s: the header '%s' has control bytes", what, name) end
    list[#list + 1], list[#list + 2] = name:lower(), text
  end
end

--- Returns the headers of a request by name in lower case. Those of the request replace those of the client.
local function headers_of(self, own)
  local by_name = { ["user-agent"] = "keywatch", ["accept-encoding"] = self.opts.decompress and "gzip" or nil }
  for _, headers in ipairs { self.opts.headers, own or {} } do
    for name, value in pairs(headers) do by_name[type(name) == "string" and name:lower() or name] = value end
  end
  return by_name
end

--- Returns headers as a list of fields; and the value of the header host, if there is one. Headers whose value is false
-- are left out.
local function fields_of(by_name, what)
  local list, host = {}, nil
  for name, value in pairs(by_name) do
    if name == "host" and value then
      host = type(value) == "string" and value or ""
      if not locations.is_authority(host) then
        check.misuse("%s: the header 'host' is not a host: %s", what, check.shown(value))
      end
    elseif value then add_header(list, name, value, what) end
  end
  if #list > 2 * MAX_FIELDS then check.misuse("%s: there are more than %d headers", what, MAX_FIELDS) end
  return list, host
end

-- }======

-- {====== Options ======

local DEFAULTS = {
  timeout = 10, connect_timeout = 5, stall = 30, idle_timeout = 30, max_connections = 64, max_per_host = 8,
  max_body = 64 * 2 ^ 20, redirects = 0,
}
local KINDS = {
  timeout = "positive", connect_timeout = "some seconds", stall = "positive", idle_timeout = "some seconds",
  max_connections = "count", max_per_host = "count", max_body = "0 or more", headers = "table",
  redirects = "amount", decompress = "boolean", protocol = check.one_of("h1", "h2"),
  tls = { "a table or true", function(value) return type(value) == "table" or value == true end },
}
local REQUEST_KINDS = {
  method = "text", headers = "table", timeout = "positive", stall = "positive", max_body = "0 or more",
  redirects = "amount",
  body = { "a string, or a function that returns the next part", function(value)
    return type(value) == "string" or check.is_callable(value)
  end },
}
local OPEN_KINDS = {
  method = "text", headers = "table", timeout = "positive", stall = "positive", length = "amount",
}

--- Returns a client. Returns nil and an error if a file of the option tls is unusable.
local function new(opts)
  opts = check.options(opts, "client", KINDS)
  local own = {}
  for name, value in pairs(DEFAULTS) do own[name] = opts[name] or value end
  own.headers = opts.headers or {}
  own.decompress = opts.decompress ~= false and core.inflater() ~= nil
  fields_of(headers_of { opts = own }, "client")
  local shared, err
  local protocols = opts.protocol or "any"
  if opts.tls then
    shared, err = security.new({}, opts.tls == true and {} or opts.tls, "client", protocols)
    if not shared then return nil, err end
  end
  local plain = security.new {}
  local pool = pools.new {
    connect_timeout = own.connect_timeout, idle_timeout = own.idle_timeout,
    max_connections = own.max_connections, max_per_host = own.max_per_host, protocol = opts.protocol,
    get_security = function(endpoint)
      if not endpoint.address.is_tls then return plain end
      if not shared then shared, err = security.new({}, {}, "request", protocols) end
      return shared, err
    end,
  }
  local client = setmetatable({
    opts = own,
    pool = pool,
    sentinel = compat.sentinel(function() driver.forget(pool) end),
  }, client_mt)
  driver.introduce(client)
  return client
end

-- }======

-- {====== Requests ======

--- Returns the request of a URL and options; or nil and an error if the URL is not valid.
local function new_request(url, opts, headers, what)
  check.argument(type(url) == "string", 1, what, "URL", url)
  local method = opts.method or opts.body and "POST" or "GET"
  if not method:find(TOKEN) or method == "CONNECT" then
    check.misuse("%s: the method is not valid: %s", what, check.shown(method))
  end
  local list, host = fields_of(headers, what)
  local location, why = locations.parse(url)
  if not location then return nil, errors.new("invalid_argument", ("keywatch: the URL '%s' %s"):format(url, why)) end
  return { method = method, url = url, location = location, list = list, host = host, length = 0,
    is_idempotent = IS_IDEMPOTENT[method] or false }
end

--- Begins an exchange on a connection. Returns it; or nil, why not, and true if another connection may begin it.
local function begin_on(self, connection, request, limits)
  local takes_more, was_used = connection.core:is_idle(), connection.was_used
  local exchange = exchanges.begin(self.pool, connection, request, limits)
  if exchange then
    exchange.client = self -- must not be collected before the exchange
    exchange.decompresses = self.opts.decompress
    return exchange
  end
  local _, _, why = connection:poll()
  connection.is_retired = not takes_more
  self.pool:release(connection)
  local text = takes_more and "the request is not valid" or why or "the connection has ended"
  local err = errors.new(takes_more and "invalid_argument" or "unavailable", ("keywatch: %s %s: %s"):format(
    request.method, request.url, text))
  return nil, err, not takes_more and (was_used or connection.is_shared)
end

--- Takes a connection and begins an exchange. Returns the exchange; or nil and an error.
local function begin(self, request, limits)
  local exchange, err, may_repeat
  for _ = 0, MAX_REFUSALS do
    local connection
    connection, err = self.pool:acquire(request.location, limits.deadline)
    if not connection then return nil, err end
    exchange, err, may_repeat = begin_on(self, connection, request, limits)
    if not may_repeat then break end
  end
  return exchange, err
end

--- Returns the time limits of a request.
local function limits_of(self, opts)
  local timeout = opts.timeout or self.opts.timeout
  return {
    deadline = timeout < math.huge and driver.get().now() + timeout or nil,
    stall = opts.stall or self.opts.stall,
  }
end

--- Sends the body of an exchange, and ends the request. Sends no more of the body once the exchange has ended.
local function send_body(exchange, body, max_body)
  exchange.collected, exchange.room = {}, max_body
  if type(body) == "string" then
    if body ~= "" then exchange:write(body) end
  elseif body then
    for part in body do
      if type(part) ~= "string" then check.misuse("request: the body's function must return strings") end
      if exchange.is_over or not exchange:write(part) then return end -- and a short body must not look complete
    end
  end
  exchange:finish()
end

--- Reads the answer of an exchange. Returns { status =, headers =, body =, trailers = }, or nil and an error.
local function read_answer(exchange, max_body)
  local head, err = exchange:answer()
  if not head then return nil, err end
  local parts, left = {}, max_body
  while true do
    local part
    part, err = exchange:read()
    if err then return nil, err end
    if not part then break end
    parts[#parts + 1], left = part, left - #part
    if left < 0 then
      return nil, exchanges.fail(exchange, "answer_too_large", ("the body is larger than max_body, %d bytes")
        :format(max_body))
    end
  end
  head.body, head.trailers = table.concat(parts), exchange:trailers()
  return head
end

local function perform(exchange, body, max_body)
  send_body(exchange, body, max_body)
  return read_answer(exchange, max_body)
end

--- Returns how a request that has failed may be sent again: "refused", the server has not processed it; "stale", the
-- connection was used before, and has ended without an answer; or nil.
local function repetition_of(exchange, body, failure)
  if failure.code ~= "unavailable" or body ~= nil and type(body) ~= "string" then return nil end
  if exchange.fate == "unprocessed" then return "refused" end
  local is_stale = exchange.is_repeatable and exchange.fate == "unanswered" and exchange.request.is_idempotent
  return is_stale and "stale" or nil
end

--- Makes a request once. Returns the answer; or nil, an error, and the result of repetition_of.
local function attempt(self, request, body, limits, max_body)
  local exchange, err = begin(self, request, limits)
  if not exchange then return nil, err end
  local ok, answer, failure = driver.protect(exchange.close, exchange, perform, exchange, body, max_body)
  if not ok or not answer then exchange:close() end
  if not ok then error(answer, 0) end
  if answer then return answer end
  exchanges.mark(exchange, failure)
  local repetition = repetition_of(exchange, body, failure)
  if repetition then exchange.connection.is_retired = true end
  return nil, failure, repetition
end

--- Waits before a refused request is sent again. Returns false if that would take too long.
local function pause(seconds, deadline)
  local d = driver.get()
  if deadline and d.now() + seconds >= deadline then return false end
  d.sleep(seconds)
  return true
end

--- Makes a request, and again as repetition_of says: a refused one after a while, and a stale one once.
local function attempt_and_retry(self, request, body, limits, max_body)
  local refusals, was_stale, seconds_after = 0, false, backoffs.new(BACKOFF)
  request.length = type(body) == "string" and #body or body and -1 or 0
  while true do
    local answer, err, repetition = attempt(self, request, body, limits, max_body)
    if repetition == "stale" and not was_stale then
      was_stale = true
      self.pool:drop_idle(request.location.key) -- they may have ended, too
    elseif repetition == "refused" and refusals < MAX_REFUSALS then
      refusals = refusals + 1
      if not pause(seconds_after(refusals), limits.deadline) then return nil, err end
    else
      return answer, err
    end
  end
end

-- {====== Redirects ======

local IS_REDIRECT = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }
local CREDENTIALS = { "authorization", "cookie", "proxy-authorization", "host" } -- not sent to another origin
local OF_BODIES = { "content-type", "content-encoding", "content-language", "content-location" }

local function remove(headers, names)
  for _, name in ipairs(names) do headers[name] = nil end
end

--- Returns the request that a redirect asks for, and its body; or nil and an error.
local function follow(request, answer, headers, body)
  local from, status, method = request.location, answer.status, request.method
  local becomes_get = status == 303 and method ~= "HEAD" or status <= 302 and method == "POST"
  if becomes_get then
    method, body = "GET", nil
    remove(headers, OF_BODIES)
  end
  if body and type(body) ~= "string" then
    return nil, errors.new("failed_precondition", ("keywatch: %s %s: a body that is a function cannot be sent again "
      .. "after a redirect"):format(method, request.url))
  end
  local url = locations.resolve(from, answer.headers.location)
  local next_one, err = new_request(url, { method = method }, headers, "request")
  if not next_one then return nil, err end
  if from.scheme == "https" and next_one.location.scheme ~= "https" then
    return nil, errors.new("failed_precondition", ("keywatch: %s %s: a redirect to %s, without TLS, is not followed")
      :format(request.method, request.url, url))
  end
  if next_one.location.key ~= from.key then
    remove(headers, CREDENTIALS)
    next_one = new_request(url, { method = method }, headers, "request")
  end
  return next_one, body
end

-- }======

--- Makes a request. Returns { status =, headers =, body =, trailers =, url = }; or nil and an error.
function client_methods:request(url, opts)
  opts = check.options(opts, "request", REQUEST_KINDS)
  local headers, body = headers_of(self, opts.headers), opts.body
  local request, err = new_request(url, opts, headers, "request")
  if not request then return nil, err end
  driver.get().check_send()
  local limits, max_body = limits_of(self, opts), opts.max_body or self.opts.max_body
  local left = opts.redirects or self.opts.redirects
  local most = left
  while true do
    local answer
    answer, err = attempt_and_retry(self, request, body, limits, max_body)
    if not answer then return nil, err end
    answer.url = request.url
    if most == 0 or not IS_REDIRECT[answer.status] or not answer.headers.location then return answer end
    if left == 0 then
      return nil, errors.new("resource_exhausted", ("keywatch: %s %s: there are more than %d redirects"):format(
        request.method, request.url, most))
    end
    left = left - 1
    local next_one, rest = follow(request, answer, headers, body)
    if not next_one then return nil, rest end
    request, body = next_one, rest
  end
end

--- Begins a request. The bodies of the request and of the answer are streams. Returns the exchange; or nil and an
-- error. The timeout ends when the head of the answer has arrived.
function client_methods:open(url, opts)
  opts = check.options(opts, "open", OPEN_KINDS)
  local request, err = new_request(url, opts, headers_of(self, opts.headers), "open")
  if not request then return nil, err end
  request.length = opts.length or HAS_BODY[request.method] and -1 or 0
  driver.get().check_send()
  local exchange, failure = begin(self, request, limits_of(self, opts))
  if not exchange then return nil, failure end
  exchange.is_streamed = true
  if request.length == 0 then exchange:finish() end
  return exchange
end

-- }======

--- Closes the client. Its requests fail.
function client_methods:close()
  self.pool:close()
end

client_mt.__close = client_methods.close

return { new = new, methods = client_methods }
