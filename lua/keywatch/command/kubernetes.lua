-- SPDX-License-Identifier: MIT
--- kubernetes: the command `keywatch kubernetes`: serves the resources of a file until a signal arrives.

local compat = require "keywatch.support.compat"
local json = require "keywatch.json"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"
local kubernetes_flags = require "keywatch.command.kubernetes_flags"
local log = require "keywatch.support.log"
local order = require "keywatch.support.order"
local run_flags = require "keywatch.command.run_flags"
local start = require "keywatch.command.start"
local yaml = require "keywatch.kubernetes.yaml"

local OK, FAILED = 0, 1 -- exit statuses
local DATA_DIR = "keywatch.data"
local GRACE = 5 -- seconds for clients to disconnect
local NO_LYAML = "reading YAML needs the library lyaml: luarocks install lyaml, or on Debian apt-get install lua-yaml"

-- {====== The file ======

--- Returns the text of a file; or nil and the reason.
local function read_all(path)
  local file, why = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text, why
end

--- Returns what a Lua file returns; or nil and the reason.
local function load_lua(path)
  local chunk, why = loadfile(path)
  if not chunk then return nil, why end
  local ok, found = pcall(chunk)
  if not ok then return nil, tostring(found) end
  if type(found) ~= "table" then return nil, path .. " must return a list of resources" end
  return found.resources and found or { resources = found }
end

--- Returns the documents of a text of JSON or YAML; or nil and the reason.
local function decode(path, text)
  if path:find "%.json$" then
    local document, err = json.decode(text)
    return document and { document }, err and err.message
  end
  local list, why = yaml.decode_all(text)
  return list, why or NO_LYAML
end

--- Returns the resources of a file: { resources = a list, and options of api:serve }; or nil and the reason.
local function load(path)
  if path:find "%.lua$" then return load_lua(path) end
  local text, why = read_all(path)
  if not text then return nil, why end
  local list
  list, why = decode(path, text)
  if not list then return nil, ("%s: %s"):format(path, why) end
  local resources = {}
  for _, document in ipairs(list) do
    if type(document) == "table" then resources[#resources + 1] = document end
  end
  return { resources = resources }
end

-- }======

--- Opens the store or the client that the flags choose. Returns the object; or nil and an error.
local function open_store(values)
  if values.memory then return keywatch.open() end
  if values.endpoints then return keywatch.connect(run_flags.endpoints(values), run_flags.options(values)) end
  return keywatch.open { path = values["data-dir"] or DATA_DIR }
end

--- Returns a list of resources with the built-in kinds behind them.
local function add_builtin(resources)
  local all = {}
  for i, resource in ipairs(resources) do all[i] = resource end
  for _, plural in ipairs(order.strings_first(kubernetes.builtin)) do all[#all + 1] = kubernetes.builtin[plural] end
  return all
end

--- Returns the API and its server; or nil and the reason.
local function serve(store, found, values)
  local resources = values.builtin and add_builtin(found.resources) or found.resources
  local ok, api = pcall(kubernetes.api, { store = store, resources = resources })
  if not ok then return nil, type(api) == "table" and api.message or tostring(api) end
  local server, err = api:serve { listen = kubernetes_flags.listen(values), tls = kubernetes_flags.server_tls(values),
    tokens = found.tokens, authorize = found.authorize, anonymous = found.anonymous, log_level = values["log-level"] }
  if server then return api, server end
  api:close()
  return nil, start.with_flags(err.message, kubernetes_flags.OF_TLS)
end

--- Ends the process at once at a second signal. That is safe, as answered writes are on the disk.
local function end_at_second(signals)
  local name = signals:wait()
  log.warn("SIG%s: ending at once", name)
  os.exit(FAILED)
end

--- Serves until a signal arrives.
local function attend(api, server, signals)
  log.write("info", "ready to serve Kubernetes' API on " .. table.concat(server:addresses(), ", "))
  local name = signals:wait()
  keywatch.spawn(end_at_second, signals)
  log.info("SIG%s: shutting down: no new connections are accepted, open ones have %d seconds to end", name, GRACE)
  server:shutdown(GRACE)
  api:close()
end

local function fail(why)
  io.stderr:write(("keywatch kubernetes: %s\n"):format((tostring(why):gsub("^keywatch: ", ""))))
  return FAILED
end

--- Runs the command. Returns the exit status.
local function run(given)
  compat.collect_in_steps()
  for _, text in ipairs(kubernetes_flags.warnings(given)) do log.warn("%s", text) end
  local found, why = load(given.file)
  if not found then return fail(why) end
  local signals = assert(keywatch.signals { "INT", "TERM" })
  local store, err = open_store(given.values)
  if not store then return fail(err.message) end
  local api, server = serve(store, found, given.values)
  if not api then
    store:close()
    return fail(server)
  end
  attend(api, server, signals)
  store:close()
  return OK
end

local function main(arguments)
  return start.main("kubernetes", kubernetes_flags, run, arguments)
end

return { main = main }
