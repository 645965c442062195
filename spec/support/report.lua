--- Busted output handler: a line for each spec file, every failure in full, and a report that spec/run adds up.
--
-- The report is written to the file KW_REPORT, line by line, so that it also shows where a run has crashed:
--   run NAME             a test begins
--   pass | fail          the test ended; an error outside of tests is one more fail, and a pending test is a fail
--   why PATH: NAME       the failed test; the next lines, each after a tab, are the beginning of the message
--   file SECONDS PATH    a spec file ended
--   end                  all spec files ended
-- An existing report is continued: spec/run makes a run in several parts, and adds them up.

local busted = require "busted"

local MESSAGE_LINES, MESSAGE_WIDTH = 6, 300 -- of a failure in the report

local label = os.getenv("KW_PASS")
label = label and "[" .. label .. "] " or ""

local report_path = os.getenv("KW_REPORT")
local report = assert(io.open(report_path or "/dev/null", "a"))

local function note(...)
  report:write(...)
  report:write("\n")
  report:flush()
end

local function say(...)
  io.stdout:write(label, ...)
  io.stdout:write("\n")
  io.stdout:flush()
end

--- Returns the names of an element and of the groups around it, from the outside in.
local function full_name(element)
  local names = {}
  while element and element.descriptor and element.descriptor ~= "file" do
    table.insert(names, 1, element.name or element.descriptor)
    element = busted.parent(element)
  end
  return #names > 0 and table.concat(names, " ") or "outside a test"
end

--- Returns the path of an element's file.
local function file_of(element)
  while element and element.descriptor ~= "file" do element = busted.parent(element) end
  return element and element.name or "outside a file"
end

local function note_failure(element, message)
  local rest = MESSAGE_LINES
  note("why ", file_of(element), ": ", full_name(element))
  for line in message:gmatch("[^\n]+") do
    if rest == 0 then break end
    note("\t", line:sub(1, MESSAGE_WIDTH))
    rest = rest - 1
  end
end

local passed, failed = 0, 0 -- in the whole run
local file_passed, file_failed = 0, 0

local function count(ok)
  note(ok and "pass" or "fail")
  if ok then file_passed = file_passed + 1 else file_failed = file_failed + 1 end
end

local function add_up()
  passed, failed = passed + file_passed, failed + file_failed
  file_passed, file_failed = 0, 0
end

local function on_trouble(element, _, message, trace)
  local where = trace and trace.short_src and ("%s:%d: "):format(trace.short_src, trace.currentline) or ""
  message = tostring(message)
  say("FAILED ", where, full_name(element), "\n", message, trace and trace.traceback or "")
  note_failure(element, message)
  if element.descriptor ~= "it" then count(false) end -- a test counts when it ends
  return nil, true
end

local function on_test_start(element)
  note("run ", full_name(element))
  return nil, true
end

local function on_test_end(element, _, status)
  if status == "pending" then
    say("PENDING ", full_name(element), ": no test may be skipped")
    note_failure(element, "pending: no test may be skipped")
  end
  count(status == "success")
  return nil, true
end

local function on_file_end(file)
  note(("file %.3f %s"):format(file.duration, file.name))
  if file_passed + file_failed > 0 then
    say(("%-40s %5d passed %s %7.2f s"):format(file.name, file_passed,
      file_failed > 0 and file_failed .. " FAILED" or "", file.duration))
  end
  add_up()
  return nil, true
end

local function on_suite_end(suite)
  add_up()
  if not report_path then say(("%d passed, %d failed in %.1f s"):format(passed, failed, suite.duration)) end
  note("end")
  return nil, true
end

local handler = {}

function handler.subscribe()
  require "busted.languages.en"
  busted.subscribe({ "test", "start" }, on_test_start)
  busted.subscribe({ "test", "end" }, on_test_end)
  busted.subscribe({ "error" }, on_trouble)
  busted.subscribe({ "failure" }, on_trouble)
  busted.subscribe({ "file", "end" }, on_file_end)
  busted.subscribe({ "suite", "end" }, on_suite_end)
end

return function() return handler end
