-- SPDX-License-Identifier: MIT
--- tls: TLS contexts for clients and servers. The module keywatch.tls, which makes contexts, is in a separate rock. It
-- is loaded when a context is first made.

local check = require "keywatch.support.check"
local errors = require "keywatch.support.errors"

local ABSENT = "keywatch needs another rock for TLS: luarocks install keywatch-tls"

--- Returns the module keywatch.tls; or nil and the reason why it cannot be loaded.
local function load()
  local ok, found = pcall(require, "keywatch.tls")
  if ok then return found end
  local text = errors.text_of(found)
  if text:find("module 'keywatch.tls' not found", 1, true) then return nil, ABSENT end
  return nil, "keywatch.tls cannot be loaded: " .. text
end

--- Returns the module keywatch.tls. Raises if it cannot be loaded: `what` names what asks for TLS.
local function must_load(name, what)
  local tls, why = load()
  if not tls then check.misuse("%s: %s asks for TLS: %s", name, what, why) end
  return tls
end

--- Raises if the options of a server break a rule, regardless of the content of files. The rules are in
-- csrc/tls/context.c and csrc/tls/lua_context.c. `name` is the public function that was called.
local function check_server(options, name)
  local ok, text = must_load(name, "option 'tls'").check(options)
  if not ok then check.misuse("%s: %s", name, text) end
end

--- Returns a context of a kind, "client" or "server"; or nil and an error if a file, or PEM text, is unusable. Raises
-- if the options break a rule, or keywatch.tls cannot be loaded. `protocols` are those of tls.client.
local function new(kind, options, name, what, protocols)
  local context, text, fault = must_load(name, what)[kind](options, protocols)
  if context then return context end
  if fault == "option" then check.misuse("%s: %s", name, text) end
  return nil, errors.new(fault == "memory" and "out_of_memory" or "failed_precondition", "keywatch: " .. text)
end

return { load = load, check_server = check_server, new = new }
