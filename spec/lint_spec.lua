local files = require "spec.support.files"
local shell = require "spec.support.shell"

--- What each floor may use, for a list of floors from the ground up: itself and those below. Names in one string stand
-- beside each other, and do not use each other.
local function floors(list)
  local uses, below = {}, {}
  for _, names in ipairs(list) do
    for name in names:gmatch("%S+") do
      uses[name] = { [name] = true }
      for other in pairs(below) do uses[name][other] = true end
    end
    for name in names:gmatch("%S+") do below[name] = true end
  end
  return uses
end

-- The loop and TLS stand apart, on base and face alone; HTTP/1.1, on base; and exec, on face.
local C = floors { "face", "base", "model", "codec", "disk", "store", "watch", "http", "h2", "rpc", "bind" }
C.http = { base = true, http = true }
C.uv = { face = true, base = true, uv = true }
C.tls = { face = true, base = true, tls = true }
C.exec = { face = true }

-- What builds for tests have in addition sees everything, and is seen by their hook alone.
C.probe = setmetatable({}, { __index = function() return true end })
local HOOK = 'csrc/base/hook.h:10:#include "probe/hook.h"'

-- A driver implements what tasks ask for, and is chosen by them. `init` is the public module.
local LUA = floors {
  "support", "json", "task driver", "store", "watch", "namespace", "concurrency", "client server", "http cache",
  "controller", "kubernetes", "init", "command testing",
}
LUA.task.driver, LUA.driver.task = true, true

local OBJECTS = { core = true, uv = true, tls = true, exec = true } -- modules in C, which every floor of Lua may use

describe("the tree #once", function()
  it("passes luacheck and clang-format, and has no long lines", function() shell.must("make lint") end)

  it("has no include of a higher floor", function()
    local wrong = {}
    local lines = shell.must([[grep -rnE '^#include "' csrc]])
    for line in lines:gmatch("[^\n]+") do
      local from, to = line:match('^csrc/(%w+)/.*#include "(%w+)/')
      if not (C[from] and C[from][to]) and line ~= HOOK then wrong[#wrong + 1] = line end
    end
    assert.same({}, wrong)
  end)

  it("knows about builds for tests in one C file", function()
    assert.equal("csrc/base/hook.h", shell.must("grep -rlw KW_PROBE csrc"))
  end)

  it("has no require of a higher floor, neither lazy nor computed", function()
    local wrong, n = {}, 0
    local lines = shell.must([[grep -rnE 'require *[(,]? *"keywatch|^local MODULE = ' lua/keywatch]])
    for line in lines:gmatch("[^\n]+") do
      local from, to = line:match("^lua/keywatch/(%w+)"), line:match('"keywatch%.([%a_]+)') or "init"
      if not (LUA[from] and (OBJECTS[to] or LUA[from][to])) then wrong[#wrong + 1] = line end
      n = n + 1
    end
    assert.same({}, wrong)
    assert(n > 100, "few modules are required: are they found?")
  end)

  it("has a line of help for each target that is not a file", function()
    local phony = shell.must("sed -n 's/^.PHONY: \\([a-z ]*\\)$/\\1/p' Makefile | xargs -n 1 | sort")
    assert.equal(phony, shell.must("make help | cut -d' ' -f1 | sort"))
  end)

  it("has no variables except those that spec/run or CONTRIBUTING.md name", function()
    local known = { KW_CERTIFICATES = true, KW_FAULT_CONTROL = true, KW_FAULT_DIR = true, KW_FAULT_SLOW = true,
      KW_HAUNTED = true } -- of a program of the specs and what it starts
    for name in shell.must("cat spec/run CONTRIBUTING.md"):gmatch("KW_%u+") do known[name] = true end
    local unknown = {}
    local lines = shell.must([[grep -rhoE 'getenv\(?"KW_[A-Z_]+|\$\{?KW_[A-Z_]+' spec bench fuzz examples bin]])
    for name in lines:gmatch("KW_[%u_]+") do
      if not known[name] then unknown[#unknown + 1] = name end
    end
    assert.same({}, unknown)
  end)

  it("has the text of each mutation once", function()
    for _, one in ipairs(require "spec.simulation.mutations") do
      local text = files.read(one.file)
      local _, stop = text:find(one.text, 1, true)
      assert.is_true(stop and not text:find(one.text, stop, true), one.name)
    end
  end)

  it("builds objects that export only what Lua opens", function()
    local symbols = shell.must("nm -D --defined-only build/lua5.4/lib/lua/5.4/keywatch/*.so "
      .. "build/luajit/lib/lua/5.1/keywatch/*.so | sed -n 's/.* T //p' | sort -u")
    assert.equal("luaopen_keywatch_core\nluaopen_keywatch_exec\nluaopen_keywatch_tls\nluaopen_keywatch_uv", symbols)
  end)
end)
