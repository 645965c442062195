-- SPDX-License-Identifier: MIT
--- log: lines for the people who run a program, on stderr.
--
--   2026-01-01T00:00:00.000Z info ready to serve client requests on http://127.0.0.1:2379
--
-- A line with a timestamp at its beginning was always written by this module: control bytes in a text are escaped, and
-- the further lines of a text, such as a traceback, are indented. Texts that a peer has sent are quoted, see log.quote.
--
-- The module is the logger of the program. log.new makes others, with their own level and their own destination.

local errors = require "keywatch.support.errors"

local LEVELS = { debug = 1, info = 2, warn = 3, error = 4, panic = 5, fatal = 6 } -- as in etcd

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

local destination -- a function that gets all lines of the program's logger; nil: stderr

--- Has a function get the lines, with the level and the text, in the place of stderr.
function log.to(fn)
  destination = fn
end

--- Writes a line, whatever the level.
function log.write(level, format, ...)
  local text = select("#", ...) > 0 and format:format(...) or format
  if destination then return destination(level, clean(text)) end
  local now = require("keywatch.uv").time() -- loaded late: not every program that loads this module has libuv
  local seconds = math.floor(now)
  io.stderr:write(("%s.%03dZ %s %s\n"):format(os.date("!%Y-%m-%dT%H:%M:%S", seconds),
    math.floor((now - seconds) * 1000), level, clean(text)))
end

--- Passes a text to a user's function. A function that raises is told of on stderr.
local function pass(write, level, text)
  local ok, err = pcall(write, level, text)
  if not ok then log.write("error", "%s", "the function for log lines has failed: " .. errors.text_of(err)) end
end

--- Adds the functions of a logger: debug, info, warn and error take a format and its values.
local function add_functions(logger, emit)
  for _, level in ipairs { "debug", "info", "warn", "error" } do
    logger[level] = function(...)
      if logger.has(level) then emit(level, ...) end
    end
  end
  return logger
end

--- True if the program's logger writes lines of a level.
function log.has(level)
  return LEVELS[level] >= least
end

add_functions(log, function(...) log.write(...) end)

--- Returns a logger. Its lowest level is `level`; if nil, the program's. Its lines go to the function `write`, with the
-- level and the text; if nil, to stderr.
function log.new(level, write)
  local logger = {}

  function logger.has(asked)
    return LEVELS[asked] >= (LEVELS[level] or least)
  end

  return add_functions(logger, function(of, format, ...)
    if not write then return log.write(of, format, ...) end
    pass(write, of, clean(select("#", ...) > 0 and format:format(...) or format))
  end)
end

return log
