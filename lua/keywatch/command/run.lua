-- SPDX-License-Identifier: MIT
--- run: the command `keywatch run`: runs the controllers of a file until a signal arrives.

local compat = require "keywatch.support.compat"
local controller = require "keywatch.controller"
local driver = require "keywatch.task.driver"
local exits = require "keywatch.task.exits"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local managers = require "keywatch.controller.manager"
local run_flags = require "keywatch.command.run_flags"
local start = require "keywatch.command.start"

local OK, FAILED = 0, 1 -- exit statuses

local METRICS_INTERVAL = 10 -- seconds between two writes of the file of metrics
local STOP_TIMEOUT = 30 -- seconds: default of --stop-timeout

--- Returns the function `on_state` for a client, which logs if the first attempt to connect fails. The client itself
-- logs lasting failures.
local function first_failure_logger(given)
  local is_known = false -- the outcome of the first attempt is known
  return function(state)
    if state.state == "waiting" and not is_known then
      log.warn("%s", ("%s waits for a server (%s): %s"):format(given.file,
        table.concat(run_flags.endpoints(given.values), ", "), state.why:gsub("^keywatch: ", "")))
    end
    is_known = is_known or state.state == "waiting" or state.state == "connected"
  end
end

--- Opens the store or the client that the flags choose. Returns the object; or nil and an error.
local function open_store(given)
  local values = given.values
  if values.memory then return keywatch.open() end
  if values["data-dir"] then return keywatch.open { path = values["data-dir"] } end
  local options = run_flags.options(values)
  options.on_state = first_failure_logger(given)
  return keywatch.connect(run_flags.endpoints(values), options)
end

--- Lets `require` find the modules beside a file.
local function add_directory(file)
  local directory = file:match("^(.*)/[^/]*$") or "."
  package.path = ("%s/?.lua;%s/?/init.lua;%s"):format(directory, directory, package.path)
end

-- {====== Metrics ======

--- Replaces a file atomically. Returns true; or nil and the reason.
local function write(path, text)
  local fresh = path .. ".tmp" -- in the same directory: a rename stays within a file system
  local file, why = io.open(fresh, "w")
  if not file then return nil, why end
  local ok, failed = file:write(text)
  local closed, late = file:close()
  if not ok or not closed then
    os.remove(fresh)
    return nil, failed or late
  end
  return os.rename(fresh, path)
end

--- Returns a function that writes the counters of a manager to a file. Logs when writing begins to fail, and when it
-- succeeds again.
local function metrics_writer(manager, path)
  local trouble
  return function()
    local ok, why = write(path, manager:metrics())
    if ok and trouble then log.info("%s", ("the metrics are written to %s again"):format(path)) end
    if not ok and why ~= trouble then
      log.warn("%s", ("the metrics cannot be written to %s: %s"):format(path, why))
    end
    trouble = not ok and why or nil
  end
end

--- Calls a function periodically.
local function repeat_call(fn)
  while true do
    fn()
    keywatch.sleep(METRICS_INTERVAL)
  end
end

-- }======

--- Logs when all components are started.
local function announce(manager, given)
  if not manager:wait_synced() then return end
  local election = given.values.election
  log.write("info", given.file .. " is running" .. (election and
    (", and takes part in the election '%s' as '%s'"):format(election, manager:status().id) or ""))
end

--- Runs a manager until it ends. Returns the exit status.
local function run_manager(manager, given, signals)
  local path = given.values["metrics-file"]
  local write_metrics = path and metrics_writer(manager, path)
  keywatch.spawn(announce, manager, given)
  if write_metrics then keywatch.spawn(repeat_call, write_metrics) end
  keywatch.spawn(managers.attend, { manager = manager, signals = signals })
  local ok, err = manager:run { signals = {} }
  if write_metrics then write_metrics() end
  if ok then
    log.info("%s has ended", given.file)
    return OK
  end
  io.stderr:write(("keywatch run: %s has failed: %s\n"):format(given.file, err.message))
  return FAILED
end

--- Ends the task that loads the file, after a signal. Returns the exit status, and true if the task has not ended in
-- time.
local function end_load(loading, manager, given, signals, name)
  managers.log_signal(manager, name)
  loading:cancel()
  local found, second = keywatch.select { loading, signals, timeout = manager.stop_timeout }
  if found == signals then managers.log_signal(manager, second, true) end
  if found ~= loading then log.warn("the function of %s ignores its cancellation, and is abandoned", given.file) end
  manager:stop(0)
  log.info("%s has ended", given.file)
  return OK, found ~= loading
end

--- Creates a manager for a store, loads the file and runs the manager. Returns the exit status, and true if the process
-- must exit even though the function of the file has not ended.
local function run_with(store, given, signals)
  local values = given.values
  local manager = controller.manager {
    store = store, election = values.election, id = values.id, ttl = values.ttl, stop_timeout = values["stop-timeout"],
    listen_metrics = values["listen-metrics-urls"], tls = run_flags.metrics_tls(values),
  }
  add_directory(given.file)
  local loading = keywatch.spawn(manager.load, manager, given.file, compat.unpack(given.arguments))
  local found, result, ok, err = keywatch.select { loading, signals }
  if found == signals then return end_load(loading, manager, given, signals, result) end
  if not result then error(ok, 0) end
  if ok then return run_manager(manager, given, signals) end
  io.stderr:write(("keywatch run: %s\n"):format(err.message:gsub("^keywatch: ", "")))
  return FAILED
end

--- Runs until a signal arrives. Returns the exit status.
local function run(given)
  for _, text in ipairs(run_flags.warnings(given)) do log.warn("%s", text) end
  local signals = assert(keywatch.signals { "INT", "TERM" })
  local store, err = open_store(given)
  if not store then
    local flags = { ca = "cacert", cert = "cert", key = "key" }
    io.stderr:write(("keywatch run: %s\n"):format(start.with_flags(err.message, flags)))
    return FAILED
  end
  local status, is_urgent = run_with(store, given, signals)
  exits.call_functions(driver.get(), given.values["stop-timeout"] or STOP_TIMEOUT)
  store:close()
  if is_urgent then os.exit(status) end -- the end of keywatch.run would wait for the shields of the function
  return status
end

--- Runs the command. Returns the exit status.
local function main(arguments)
  return start.main("run", run_flags, run, arguments)
end

return { main = main }
