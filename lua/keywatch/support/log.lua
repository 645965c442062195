-- SPDX-License-Identifier: MIT
--- log: lines for the people who run a program. Every line of keywatch goes through this module.
--
--   2026-01-01T00:00:00.000Z info ready to serve client requests on http://127.0.0.1:2379
--
-- A line goes to the handler of keywatch.log; without a handler to vim.notify in Neovim, to error.log in nginx (see
-- driver/ngx.lua), and to stderr elsewhere. In a world of the testing kit the world keeps the lines, which have its
-- time.
--
-- On stderr a line with a timestamp at its beginning was always written by this module: control bytes in a text are
-- escaped, and the further lines of a text, such as a traceback, are indented. Texts that a peer has sent are quoted,
-- see log.quote.
--
-- The module is the logger of the program. log.new makes others, with their own level and their own destination. The
-- functions of a logger take a format and its values; in front of them may stand a table of fields for handlers.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local errors = require "keywatch.support.errors"

local LEVELS = { debug = 1, info = 2, warn = 3, error = 4, panic = 5, fatal = 6 } -- as in etcd
local MAY_NOT_WAIT = "the function for log lines has waited, which it may not: spawn a task for that"
local MAX_STACKS = 16 -- that are remembered of one owner, see log.failure

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

local CONTROLS = { ["\n"] = "\n    ", ["\t"] = "\t" } -- those that stay
for code = 0, 31 do
  local byte = string.char(code)
  CONTROLS[byte] = CONTROLS[byte] or escape(byte)
end
CONTROLS["\127"] = escape("\127")

--- Returns a text without control bytes, also without those of UTF-8, U+0080 to U+009F.
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
local destination -- a function that gets the lines in the place of stderr, or nil
local world       -- { lines =, now = } of the world of the testing kit that is open, or nil
local is_calling = false -- a function of the program is called with a line

--- Has a function get the lines, with the level and the text, in the place of stderr.
function log.to(fn)
  destination = fn
end

--- Has a world, { keep = function(level, text, fields), now = function }, keep the lines; nil: none does.
function log.use_world(found)
  world = found
end

--- Returns the time of a line in seconds since 1970; in a world that of the world.
local function now()
  if world then return world.now() end
  return require("keywatch.uv").time() -- loaded late: not every program that loads this module has libuv
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

--- Gives a line to where lines go without a handler.
local function write_default(level, text, is_report)
  local notify = destination or notifier()
  if notify then notify(level, text) else write_stderr(level, text, is_report) end
end

--- Calls a function of the program with a line, in a coroutine of its own: it may do anything except wait. Returns nil,
-- or the text of what it has done wrong. Lines that it logs itself go where lines go without a handler.
local function call(fn, level, text, fields)
  local own = check.copy(fields or {})
  own.time = own.time or now()
  local co = compat.create(fn)
  is_calling = true
  local ok, err = compat.resume(co, level, text, own)
  if not ok then return "the function for log lines has failed: " .. errors.text_of(err) end
  return compat.status(co) ~= "dead" and MAY_NOT_WAIT or nil
end

--- As `call`. Returns the text of an error that `call` itself has raised, too, such as a lack of memory.
local function fault_of(...)
  local ok, fault = pcall(call, ...)
  is_calling = false
  return fault ~= nil and (ok and fault or errors.text_of(fault)) or nil
end

--- Gives a line to the world, and to the handler; or else to where lines go without one. A line that the handler does
-- not take goes there, too.
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

--- Writes a line, whatever the level.
function log.write(level, ...)
  deliver(level, line_of(...))
end

--- Logs what would otherwise be silent, such as the failure of a task that was not joined.
function log.report(text)
  deliver("error", text:gsub("^keywatch: ", ""), nil, true)
end

--- keywatch.log: sets the lowest level, and the handler, which gets the level, the text and a table of fields of each
-- line. A handler of false is none.
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

--- Adds the functions of a logger: debug, info, warn and error take fields, which may be left out, a format and its
-- values.
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

--- Returns a logger. Its lowest level is `level`; if nil, the program's. Its lines go to the function `write`, which is
-- called like a handler; if nil, where the lines of the program go.
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

--- Returns the text of an error, { err =, traceback = }, for a line: with the traceback when this place fails for the
-- first time, and after that with the number of its failures. `owner` is a table that stands for what has failed.
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
