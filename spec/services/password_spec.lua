--- Passwords, as users have them: hashed.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local misuse = require "spec.support.misuse"
local process = require "spec.support.process"
local vm = require "spec.support.vm"

local CHEAP = 4 -- the least that bcrypt takes

-- At this cost the thread is at work for hours: until the process exits.
local FORKING = [[
local core = require "keywatch.core"
local fork = assert(package.loadlib("build/fault.so", "kw_fault_fork"))
local wait = assert(package.loadlib("build/fault.so", "kw_fault_wait"))
local hashing, parent = assert(core.begin_hash("secret", 31)), core.pid()
fork()
local is_child = core.pid() ~= parent
local hashed = hashing:result()
hashing:close()
if not is_child then wait() end
io.write(is_child and "child " or "parent ", tostring(hashed), "\n")
os.exit(0)
]]

describe("the hash of a password", function()
  it("is one of bcrypt, with its cost", function()
    assert.matches("^%$2b%$04%$" .. ("[%w./]"):rep(53) .. "$", core.hash_password("secret", CHEAP))
    assert.matches("^%$2b%$05%$", core.hash_password("", CHEAP + 1))
  end)

  it("has a salt of its own", function()
    assert.not_equal(core.hash_password("secret", CHEAP), core.hash_password("secret", CHEAP))
  end)

  it("is refused for a zero byte", function()
    assert.same({ nil, "keywatch: a password must not have a zero byte" }, { core.hash_password("a\0", CHEAP) })
  end)

  --- Waits for the result of a hashing.
  local function await(hashing)
    local hashed, why
    keywatch.run(function()
      repeat
        keywatch.sleep(0.001)
        hashed, why = hashing:result()
      until hashed ~= nil
    end)
    return hashed, why
  end

  it("may be made by a thread", function()
    local hashing = assert(core.begin_hash("secret", CHEAP))
    local hashed = await(hashing)
    assert.matches("^%$2b%$04%$" .. ("[%w./]"):rep(53) .. "$", hashed)
    assert.equal(hashed, hashing:result())
    hashing:close()
    hashing:close()
    misuse.raises(hashing.result, hashing)
    assert.same({ nil, "keywatch: a password must not have a zero byte" }, { core.begin_hash("a\0", CHEAP) })
  end)

  it("may be abandoned while a thread makes it", function()
    for i = 1, 20 do
      local hashing = assert(core.begin_hash("secret", CHEAP + i % 3))
      if i % 2 == 0 then hashing:close() end
    end
    collectgarbage()
    assert.matches("^%$2b%$04%$", await(core.begin_hash("secret", CHEAP)))
  end)

  it("fails in the child of a fork, and blocks no process that exits", function()
    local child = process.start({ vm.interpreter, "-e", FORKING }, { env = vm.environment() })
    child:wait()
    assert.equal("child false\nparent nil\n", child:stdout(), child:stderr())
  end)

  it("is refused with invalid arguments", function()
    for _, cost in ipairs { 3, 32, -1, 4.5, "x", {} } do misuse.raises(core.begin_hash, "secret", cost) end
    for _, cost in ipairs { 3, 32, -1, 4.5, "x", {} } do misuse.raises(core.hash_password, "secret", cost) end
    for _, text in ipairs { {}, true } do misuse.raises(core.hash_password, text, CHEAP) end
    misuse.raises(core.hash_password, "secret")
  end)
end)
