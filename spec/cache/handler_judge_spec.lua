--- What the judge of handlers objects to, see handler_judge.lua: each case is a history, and calls that a handler was
-- told of it.

local judging = require "spec.cache.handler_judge"

--- An informer without a server: its handler is called by hand.
local function new_informer()
  local informer = { gaps = 0, revision = 1, objects = {} }

  function informer.status() return { gaps = informer.gaps, revision = informer.revision } end

  function informer.add_handler(_, functions)
    informer.on = functions
    return {
      close = function() end,
      join = function() return true end,
      has_synced = function() return true end,
      status = function() return { queued = 0, has_synced = true } end,
    }
  end

  function informer.each()
    local key
    return function()
      local object
      key, object = next(informer.objects, key)
      return key, object
    end
  end

  return informer
end

local FUNCTIONS = { add = "added", update = "modified", delete = "deleted", error = "error" }

describe("the judge of handlers", function()
  local ledger, informer, judge

  before_each(function()
    ledger, informer = judging.new_ledger(), new_informer()
  end)

  local function begin(opts) judge = judging.open("spec", informer, ledger, opts or {}) end

  --- Writes: a key, a text or nil, a revision.
  local function write(key, text, revision)
    ledger:note(key, text, revision)
    informer.revision = revision
    informer.objects[key] = text and { text = text } or nil
  end

  --- Tells the handler: the name of a function, a key, a text, the old text, a revision, and more of the event.
  local function tell(name, key, text, old, revision, more)
    local change = ledger:change(ledger.epoch, key, revision) or {}
    local event = { type = FUNCTIONS[name], key = key, revision = revision, create_revision = change.create_revision }
    for field, value in pairs(more or {}) do event[field] = value end
    local object = text and { text = text }
    if name == "update" then return informer.on.update(key, object, { text = old }, event) end
    if name == "error" then return informer.on.error(key, { code = "malformed" }, event) end
    informer.on[name](key, object, event)
  end

  local function expect_objection(words)
    local ok, err = pcall(judge.judge, judge, true)
    assert.is_false(ok)
    assert(tostring(err):find(words, 1, true), err)
  end

  --- A handler that has synced with an object.
  local function synced(opts)
    write("a", "good 1", 2)
    begin(opts)
    tell("add", "a", "good 1", nil, 2, { initial = true })
    judge:judge(true)
  end

  it("agrees with what is right", function()
    for _, at_bound in ipairs { "wait", "coalesce" } do
      ledger, informer = judging.new_ledger(), new_informer()
      synced { at_bound = at_bound }
      write("a", "good 2", 3)
      write("b", "good 3", 4)
      write("a", nil, 5)
      tell("update", "a", "good 2", "good 1", 3)
      tell("add", "b", "good 3", nil, 4)
      tell("update", "b", "good 3", "good 3", 4, { resync = true })
      tell("delete", "a", "good 2", nil, 5)
      judge:judge(true)
      write("b", "bad 4", 6)
      informer.objects.b = { text = "good 3" }
      tell("error", "b", nil, nil, 6)
      judge:judge(true)
      write("b", "hidden 5", 7)
      informer.objects.b = nil
      tell("delete", "b", "good 3", nil, 7)
      judge:judge(true)
    end
  end)

  it("objects to a change that was not told", function()
    synced()
    write("a", "good 2", 3)
    write("a", "good 3", 4)
    tell("update", "a", "good 3", "good 1", 4)
    expect_objection("update good 2 (was good 1) at 3 was due")
  end)

  it("does not object to that in a gap, or where changes are coalesced", function()
    synced()
    write("a", "good 2", 3)
    write("a", "good 3", 4)
    informer.gaps = 1
    tell("update", "a", "good 3", "good 1", 4, { missed = true })
    judge:judge(true)
    ledger, informer = judging.new_ledger(), new_informer()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    write("a", "good 3", 4)
    tell("update", "a", "good 3", "good 1", 4)
    judge:judge(true)
  end)

  it("objects to the last change not told", function()
    synced()
    write("a", "good 2", 3)
    expect_objection("a was not told")
  end)

  it("objects to an object that came and went, and was not told", function()
    synced()
    write("b", "good 2", 3)
    write("b", nil, 4)
    expect_objection("b was not told: add good 2")
  end)

  it("objects to a change told twice", function()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    tell("update", "a", "good 2", "good 1", 3)
    tell("update", "a", "good 2", "good 2", 3)
    expect_objection("older than revision 3")
  end)

  it("objects to an older state after a newer one", function()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    write("a", "good 3", 4)
    tell("update", "a", "good 3", "good 1", 4)
    tell("update", "a", "good 2", "good 3", 3)
    expect_objection("older than revision 4")
  end)

  it("objects to what was never so", function()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    tell("update", "a", "good 9", "good 1", 3)
    expect_objection("this was never so")
  end)

  it("objects to an addition of what is there, and to changes of what is not", function()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    tell("add", "a", "good 2", nil, 3)
    expect_objection("it is there")
    for _, name in ipairs { "update", "delete" } do
      ledger, informer = judging.new_ledger(), new_informer()
      synced { at_bound = "coalesce" }
      write("b", "good 2", 3)
      tell(name, "b", "good 2", "good 1", 3)
      expect_objection("it is not there")
    end
  end)

  it("objects to an update of an object that was created anew", function()
    synced { at_bound = "coalesce" }
    write("a", nil, 3)
    write("a", "good 2", 4)
    tell("update", "a", "good 2", "good 1", 4)
    expect_objection("this is another object, created at 4 and not at 2")
  end)

  it("objects to an old state that is not the one told before", function()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    tell("update", "a", "good 2", "good 0", 3)
    expect_objection("the old state is good 0")
  end)

  it("objects to a resync of another state", function()
    synced()
    write("a", "good 2", 3)
    tell("update", "a", "good 2", "good 2", 3, { resync = true })
    expect_objection("a resync of what is not the last state")
  end)

  it("objects to a bad value that was not told, and to one told twice", function()
    synced()
    write("a", "bad 2", 3)
    informer.objects.a = { text = "good 1" }
    expect_objection("a was not told: error")
    ledger, informer = judging.new_ledger(), new_informer()
    synced()
    write("a", "bad 2", 3)
    informer.objects.a = { text = "good 1" }
    tell("error", "a", nil, nil, 3)
    tell("error", "a", nil, nil, 3)
    expect_objection("nothing was due")
  end)

  it("objects to changes of two keys in the wrong order", function()
    synced()
    write("b", "good 2", 3)
    write("c", "good 3", 4)
    tell("add", "c", "good 3", nil, 4)
    tell("add", "b", "good 2", nil, 3)
    expect_objection("out of order")
  end)

  it("objects to calls after close, and to content that was not told", function()
    synced()
    judge.is_closed = true
    write("a", "good 2", 3)
    tell("update", "a", "good 2", "good 1", 3)
    expect_objection("after close")
    ledger, informer = judging.new_ledger(), new_informer()
    synced { at_bound = "coalesce" }
    write("a", "good 2", 3)
    expect_objection("a is good 2, and good 1 was told")
    informer.objects.a = nil
    expect_objection("is not there")
  end)
end)
