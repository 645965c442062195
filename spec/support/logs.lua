--- Collects the log lines of a test, instead of writing them to stderr.

local log = require "keywatch.support.log"

local write_line = log.write

local logs = { lines = {} }

--- To be called before each test.
function logs.begin()
  logs.lines = {}
  log.write = function(level, format, ...)
    local text = select("#", ...) > 0 and format:format(...) or format
    table.insert(logs.lines, level .. " " .. text)
  end
end

--- To be called after each test.
function logs.finish() log.write = write_line end

--- The number of lines that contain a text.
function logs.count(text)
  local n = 0
  for _, line in ipairs(logs.lines) do
    if line:find(text, 1, true) then n = n + 1 end
  end
  return n
end

--- True if a line contains a text.
function logs.has(text) return logs.count(text) > 0 end

return logs
