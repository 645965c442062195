-- SPDX-License-Identifier: MIT
--- log: lines for the people who run a program. Every line of keywatch goes through this module.
--
--   2026-01-01T00:00:00.000Z info ready to serve client requests on http://127.0.0.1:2379
--
-- A line is passed to the handler of keywatch.log; without a handler it is written to vim.notify in Neovim, to
-- error.log in nginx (see driver/ngx.lua), and to stderr elsewhere. A world of the testing kit keeps the lines, which
-- then have the world's time.
--
-- Every line on stderr that begins with a timestamp was written by this module: control bytes in a text are escaped,
-- and further lines of a text, for example a traceback, are indented. Texts that a peer has sent are quoted, see
-- log.quote.
--
-- The module is the logger of the program. log.new makes other loggers, with their own level and destination. The
-- functions of a logger take a format and its values, optionally after a table of fields for handlers.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local errors = require "keywatch.support.errors"

local LEVELS = { debug = 1, info = 2, warn = 3, error = 4, panic = 5, fatal = 6 } -- as in etcd
local MUST_NOT_WAIT = "the function for log lines has waited, which it must not do: let it spawn a task that waits"
local MAX_STACKS = 16 -- tracebacks that are remembered for one owner, see log.failure

local least = LEVELS.info -- the lowest level that the program's logger writes

local log = {}

--- True if there is such a level.
function log.is_level(name)
  return LEVELS[name] ~= nil
end

--- Sets the lowest level that is written. Returns false if there is no such level.
function log.set_level(name)
  least = LEVELS[name] or least
  return LEVELS[name] ~= nil
end

-- {====== Bytes that must not reach a terminal ======

--- Returns the escape of every byte of a string.
local function escape(bytes)
  return (bytes:gsub(".", function(byte) return ("\\x%02x"):format(byte:byte()) end))
end

local CONTROLS = { ["\n"] = "\n    ", ["\t"] = "\t" } -- control bytes that are kept
for code = 0, 31 do
  local byte = string.char(code)
  CONTROLS[byte] = CONTROLS[byte] or escape(byte)
end
CONTROLS["\127"] = escape("\127")

--- Returns a text with its control bytes escaped, also the control characters U+0080 to U+009F of UTF-8.
local function clean(text)
  return (text:gsub("%c", CONTROLS):gsub("\194[\128-\159]", escape))
end

--- Returns a text that came from a peer in quotes: on one line, in printable ASCII.
function log.quote(text)
  return '"' .. text:gsub('[\\"]', "\\%0"):gsub("[^ -~]", escape) .. '"'
end

-- }======

-- {====== Destinations ======

local handler     -- the function of keywatch.log, or nil
local destination -- a function that gets the lines instead of stderr, or nil
local world       -- { lines =, now = } of the open world of the testing kit, or nil
local is_calling = false -- a function of the program is being called with a line

--- Passes the lines, as level and text, to a function instead of stderr.
function log.to(fn)
  destination = fn
end

--- Passes the lines to a world, { keep = function(level, text, fields), now = function }; with nil, to no world.
function log.use_world(found)
  world = found
end

--- Returns the time of a line in seconds since 1970; in a world, the time of the world.
local function now()
  if world then return world.now() end
  return require("keywatch.uv").time() -- loaded late: not every program with this module has libuv
end

--- Writes a line to stderr. A report begins with "keywatch: ", and not with time and level.
local function write_stderr(level, text, is_report)
  if is_report then return io.stderr:write("keywatch: ", (text:gsub("\n    ", "\n")), "\n") end
  local time = now()
  local seconds = math.floor(time)
  io.stderr:write(("%s.%03dZ %s %s\n"):format(os.date("!%Y-%m-%dT%H:%M:%S", seconds),
    math.floor((time - seconds) * 1000), level, text))
end

--- Returns vim.notify, called when Neovim may show a message; or nil outside of Neovim.
local function notifier()
  local vim = rawget(_G, "vim")
  if type(vim) ~= "table" or not vim.notify or not vim.schedule then return nil end
  return function(level, text)
    vim.schedule(function() vim.notify("keywatch: " .. text, vim.log.levels[level:upper()] or vim.log.levels.ERROR) end)
  end
end

--- Writes a line to the destination without a handler.
local function write_default(level, text, is_report)
  local notify = destination or notifier()
  if notify then notify(level, text) else write_stderr(level, text, is_report) end
end

--- Calls a function of the program with a line, in a separate coroutine: the function may do anything except wait.
-- Returns nil; or a text if the function has failed, or has waited. Lines that the function logs itself are written
-- as without a handler.
local function call(fn, level, text, fields)
  local own = check.copy(fields or {})
  own.time = own.time or now()
  local co = compat.create(fn)
  is_calling = true
  local ok, err = compat.resume(co, level, text, own)
  if not ok then return "the function for log lines has failed: " .. errors.text_of(err) end
  return compat.status(co) ~= "dead" and MUST_NOT_WAIT or nil
end

--- Like `call`, but also returns the text of an error that `call` itself has raised, for example for lack of memory.
local function fault_of(...)
  local ok, fault = pcall(call, ...)
  is_calling = false
  return fault ~= nil and (ok and fault or errors.text_of(fault)) or nil
end

--- Passes a line to the world, and to the handler. If there is neither, or the handler fails, writes the line to the
-- default destination.
local function deliver(level, text, fields, is_report)
  text = clean(text)
  if world then world.keep(level, text, fields) end
  local fn = not is_calling and handler
  local fault = fn and fault_of(fn, level, text, fields)
  if fault then write_default("error", clean(fault)) end
  if not fn and not world or fault then write_default(level, text, is_report) end
end

--- Returns a text, and its fields or nil. A table as the last value has the fields.
local function line_of(format, ...)
  local n = select("#", ...)
  local fields = n > 0 and select(n, ...) or nil
  return n > 0 and format:format(...) or format, type(fields) == "table" and fields or nil
end

--- Writes a line, regardless of the level.
function log.write(level, ...)
  deliver(level, line_of(...))
end

--- Logs a failure that would otherwise be silent, for example of a task that was not joined.
function log.report(text)
  deliver("error", text:gsub("^keywatch: ", ""), nil, true)
end

--- keywatch.log: sets the lowest level, and the handler, which gets the level, the text and a table of fields of each
-- line. A handler of false removes the handler.
function log.configure(opts)
  check.argument(type(opts) == "table", 1, "log", "table", opts)
  check.known(opts, "log", {
    level = { "debug, info, warn, error, panic or fatal", log.is_level },
    handler = { "a function or false", function(value) return value == false or type(value) == "function" end },
  })
  least = LEVELS[opts.level] or least
  if opts.handler ~= nil then handler = opts.handler end
end

-- }======

--- Adds the functions of a logger: debug, info, warn and error take optional fields, a format and its values.
local function add_functions(logger, emit)
  for _, level in ipairs { "debug", "info", "warn", "error" } do
    logger[level] = function(first, ...)
      if not logger.has(level) then return end
      if type(first) ~= "table" then return emit(level, first, ...) end
      emit(level, "%s", select("#", ...) > 1 and (...):format(select(2, ...)) or (...), first)
    end
  end
  return logger
end

--- True if the program's logger writes lines of a level.
function log.has(level)
  return LEVELS[level] >= least
end

add_functions(log, function(...) log.write(...) end)

--- Returns a logger. Its lowest level is `level`; if nil, the program's. Its lines are passed to the function `write`,
-- which is called like a handler; if nil, they are written like those of the program.
function log.new(level, write)
  local logger = {}

  function logger.has(asked)
    return LEVELS[asked] >= (LEVELS[level] or least)
  end

  return add_functions(logger, function(of, ...)
    if not write or is_calling then return log.write(of, ...) end
    local text, fields = line_of(...)
    local fault = fault_of(write, of, clean(text), fields)
    if not fault then return end
    log.write("error", "%s", fault)
    log.write(of, "%s", text)
  end)
end

--- Returns the text of an error, { err =, traceback = }, for a line: with the traceback when that occurs for the first
-- time, and after that with the number of its occurrences. `owner` is a table that represents the failed object.
function log.failure(owner, raised)
  local stack = raised.traceback:match("stack traceback:.*$") or raised.traceback
  local seen = owner.failed_stacks
  if not seen or seen.n > MAX_STACKS then
    seen = { n = 0, counts = {} }
    owner.failed_stacks = seen
  end
  local count = (seen.counts[stack] or 0) + 1
  seen.counts[stack] = count
  if count > 1 then
    return ("%s (failure %d with a traceback that was logged)"):format(errors.text_of(raised.err), count)
  end
  seen.n = seen.n + 1
  return raised.traceback
end

return log
