--- The same messages, read and written by Google's protobuf.

local core = require "keywatch.core"

local files = require "spec.support.files"
local schema = require "spec.support.schema"
local shell = require "spec.support.shell"
local wire = require "spec.support.wire"
local new_random = require("spec.support.random").new

local seed = tonumber(os.getenv("KW_SEED") or 1)

local function schema_lines()
  local lines = {}
  for name, values in pairs(schema.enums) do lines[#lines + 1] = "enum " .. name .. " " .. table.concat(values, " ") end
  for name, fields in pairs(schema.messages) do
    lines[#lines + 1] = "field " .. name
    for _, field in ipairs(fields) do
      local mark = field.is_list and "*" or field.is_choice and "?" or "-"
      lines[#lines + 1] = ("field %s %d %s %s %s"):format(name, field.number, field.name, field.type, mark)
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Returns protobuf's verdict for each item of a list of { name, bytes }.
local function ask(cases)
  local lines = { schema_lines() }
  for _, case in ipairs(cases) do lines[#lines + 1] = ("decode %s %s\n"):format(case[1], wire.hex(case[2])) end
  local path = files.write(os.tmpname(), table.concat(lines))
  local ok, printed = shell.run("/usr/bin/python3 spec/support/protobuf.py " .. path)
  os.remove(path)
  if not ok then error(printed:sub(-2000)) end
  local answers = {}
  for line in printed:gmatch("[^\n]+") do answers[#answers + 1] = line end
  assert.equal(#cases, #answers, printed)
  return answers
end

--- What we say to it, in the same form.
local function our_answer(name, bytes)
  local message = core.decode(name, bytes)
  return message and "good " .. wire.hex(core.encode(name, message)) or "bad"
end

-- Tags and lengths of more than five bytes are refused by protobuf, and taken by etcd and by us.
local LONG = ("[\128-\255]"):rep(5)

--- True if bytes may have a group: protobuf skips those, and we refuse them.
local function may_have_group(bytes)
  for i = 1, #bytes do
    local tag = bytes:byte(i)
    if tag % 8 == 3 and bytes:find(string.char(tag + 1), i + 1, true) then return true end
  end
  return false
end

local function compare(cases)
  local good = 0
  for i, theirs in ipairs(ask(cases)) do
    local name, bytes = cases[i][1], cases[i][2]
    local ours = our_answer(name, bytes)
    if theirs == "twice" then theirs, ours = "good", ours:sub(1, 4) end
    if theirs == "bad" and bytes:find(LONG) then theirs = ours end
    if ours == "bad" and may_have_group(bytes) then theirs = ours end
    assert.equal(theirs, ours, name .. " " .. wire.hex(bytes))
    if theirs ~= "bad" then good = good + 1 end
  end
  return good
end

--- Returns the bytes of a message in which a part is inserted, removed, changed or repeated.
local function mutate(random, bytes)
  local at, len = random:between(0, #bytes), random:between(0, 4)
  local before, here, after = bytes:sub(1, at), bytes:sub(at + 1, at + len), bytes:sub(at + 1 + len)
  return random:pick { before .. after, before .. here .. here .. after, before .. random:bytes(1) .. after,
    before .. random:bytes(1) .. here .. after, before, after .. before .. here,
    before .. wire.tag(random:between(1, 12), random:between(0, 5)) .. here .. after }
end

describe("protobuf #once #peer #slow", function()
  it("decodes what we encode, and encodes the same", function()
    local random = new_random(seed)
    local cases = {}
    for i = 1, 6000 do
      local name = schema.names[i % #schema.names + 1]
      cases[i] = { name, core.encode(name, wire.random(random, name, random:between(0, 3), random:one_in(2))) }
    end
    for i, answer in ipairs(ask(cases)) do
      assert.equal("good " .. wire.hex(cases[i][2]), answer, cases[i][1])
    end
    assert.equal(#cases, compare(cases))
  end)

  it("accepts and refuses the same bytes as we do, with the same content", function()
    local random = new_random(seed)
    local cases = {}
    for i = 1, 30000 do
      local name = random:pick(schema.names)
      local bytes = wire.encode(name, wire.random(random, name, random:between(0, 3)))
      for _ = 1, random:between(1, 3) do bytes = mutate(random, bytes) end
      cases[i] = { name, bytes }
    end
    local good = compare(cases)
    assert.is_true(good > 3000 and good < 27000, good)
  end)
end)
