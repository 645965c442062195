--- A thread with a Lua state of its own, for the server in a thread.

local uv = require "keywatch.uv"

local files = require "spec.support.files"
local luv = require "spec.support.luv"
local shell = require "spec.support.shell"

local SECONDS = 120 -- after which a wait fails

describe("a thread", function()
  local directory

  before_each(function()
    directory = assert(luv.fs_mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/keywatch-thread-XXXXXX"))
  end)

  after_each(function() shell.must("rm -rf " .. directory) end)

  --- One whose main has this body.
  local function start(body, text)
    files.write(directory .. "/body.lua", ([[
      local uv = require "keywatch.uv"
      local this, loop = uv.this_thread(), uv.open()
      this:wakes(loop)

      local function wait()
        while not this:asked() do loop:turn() end
        return this:asked()
      end

      return { main = function() %s end }
    ]]):format(body))
    return assert(uv.start_thread("body", directory .. "/?.lua", package.cpath, text or ""))
  end

  it("gets a text, and reports one, of any bytes", function()
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    local text = table.concat(all):rep(100)
    for _, bytes in ipairs { "", text } do
      local thread = start("this:report(this:text())", bytes)
      assert.equal(bytes, thread:wait(SECONDS))
      assert.is_true(thread:join())
      assert.equal(bytes, thread:wait(0))
      assert.is_true(thread:has_ended())
      thread:close()
    end
  end)

  it("has its own package paths, and nothing of the state that has started it", function()
    rawset(_G, "keywatch_thread_spec", true)
    local thread = start "this:report(tostring(keywatch_thread_spec) .. package.path)"
    rawset(_G, "keywatch_thread_spec", nil)
    assert.equal("nil" .. directory .. "/?.lua", thread:wait(SECONDS))
    thread:close()
  end)

  it("gets its owner's request to end, with the grace", function()
    for _, grace in ipairs { 1.5, 0 } do
      local thread = start "this:report(tostring(wait() * 2))"
      assert.is_false(thread:has_ended())
      thread:stop(grace)
      assert.equal(grace * 2, tonumber(thread:wait(SECONDS)))
      thread:close()
    end
    local thread = start "this:report(tostring(wait() < 0))"
    thread:stop()
    assert.equal("true", thread:wait(SECONDS))
    thread:close()
  end)

  it("gets that request while its loop waits, and ends the wait of its owner's loop", function()
    local thread = start "this:report(tostring(loop:is_awaiting())) wait()"
    assert.equal("true", thread:wait(SECONDS))
    local loop = uv.open()
    assert.is_false(loop:is_awaiting())
    thread:wakes(loop)
    assert.is_true(loop:is_awaiting())
    thread:stop(0)
    while not thread:has_ended() do loop:turn() end
    thread:close()
    assert.is_false(loop:is_awaiting())
    loop:close()
  end)

  it("may end after the loop that it would wake", function()
    local thread = start "wait()"
    local loop = uv.open()
    thread:wakes(loop)
    loop:close()
    assert.error_matches(function() thread:wakes(loop) end, "the loop is closed")
    thread:stop()
    assert.is_true(thread:join())
    thread:close()
  end)

  it("reports its failure", function()
    for body, text in pairs {
      ["error('a slip', 0)"] = "a slip",
      ["error({})"] = "an error that is not a text",
      ["uv.open().turn()"] = "keywatch.uv.loop expected",
    } do
      local thread = start(body)
      assert.is_nil(thread:wait(SECONDS))
      local ok, failure = thread:join()
      assert.is_nil(ok)
      assert.matches(text, failure)
      thread:close()
    end
  end)

  it("can be abandoned", function()
    local thread = start "wait()"
    assert.is_nil(thread:wait(0))
    thread:abandon()
    for _, name in ipairs { "wait", "has_ended", "stop", "join", "wakes", "abandon" } do
      assert.error_matches(function() thread[name](thread) end, "the thread is closed")
    end
    assert.is_false(thread:is_here())
    thread:close()
  end)

  it("is `this` only in itself", function()
    assert.error_matches(uv.this_thread, "not a thread of keywatch.uv")
  end)
end)
