-- SPDX-License-Identifier: MIT
--- ngx_phase: what keywatch may do in each nginx phase, as ngx.get_phase() names it.
--
--   start   nginx does not serve yet. A call may block, on a private loop, for a limited time.
--   wait    A call parks its handler, and nginx serves other requests.
--   read    A call must not wait: only data of the process can be read, for example a cache. A call that would wait
--           raises.

local phases = {
  -- name, kind, the directives whose code runs in the phase
  { "init", "start", "init_by_lua" },
  { "init_worker", "start", "init_worker_by_lua" },
  { "exit_worker", "read", "exit_worker_by_lua" },
  { "ssl_client_hello", "wait", "ssl_client_hello_by_lua" },
  { "ssl_cert", "wait", "ssl_certificate_by_lua" },
  { "ssl_session_fetch", "wait", "ssl_session_fetch_by_lua" },
  { "ssl_session_store", "read", "ssl_session_store_by_lua" },
  { "set", "read", "set_by_lua" },
  { "server_rewrite", "wait", "server_rewrite_by_lua" },
  { "rewrite", "wait", "rewrite_by_lua" },
  { "access", "wait", "access_by_lua" },
  { "content", "wait", "content_by_lua" },
  { "balancer", "read", "balancer_by_lua" },
  { "header_filter", "read", "header_filter_by_lua" },
  { "body_filter", "read", "body_filter_by_lua" },
  { "log", "read", "log_by_lua" },
  { "timer", "wait", "ngx.timer.at" },
  { "preread", "wait", "preread_by_lua" },
}

local kinds = {}
for _, phase in ipairs(phases) do kinds[phase[1]] = phase[2] end

--- Returns "start", "wait" or "read" for the name of a phase. An unknown phase counts as "read".
local function kind_of(name)
  return kinds[name] or "read"
end

local TEXT = "keywatch: %%s waits, which nginx's phase '%s' does not allow: read a cache here, or make the call in a "
  .. "phase that may wait (rewrite, access, content), in a timer, or in a task of keywatch.spawn"

--- Returns the error text for a call that would wait in a phase, with a %s for the name of the call.
local function refusal(name)
  return TEXT:format(name)
end

--- True if the arguments of nginx, each followed by a zero byte, request a test of the configuration.
local function is_test(arguments)
  local is_first, takes_value = true, false
  for word in arguments:gmatch("([^%z]*)%z") do
    local flags = not is_first and not takes_value and word:match("^%-(.*)")
    is_first, takes_value = false, false
    for flag in (flags or ""):gmatch(".") do
      if flag == "t" or flag == "T" then return true end
      if flag:find("[pegcs]") then
        takes_value = flags:sub(-1) == flag -- else the value follows in the same word
        break
      end
    end
  end
  return false
end

return { is_test = is_test, list = phases, kind_of = kind_of, refusal = refusal }
