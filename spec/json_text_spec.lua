--- Members of JSON objects are changed in their text.

local cjson = require "cjson"
local json = require "keywatch.support.json_text"
local keywatch_json = require "keywatch.json"

local dose = require "spec.support.dose"
local randoms = require "spec.support.random"

local ROUNDS = dose.of(200, 1000)
local MAX_DEPTH = 1000 -- of nested values, as in keywatch.json

-- {====== Random texts ======

local NAMES = {
  '"a"', '"\\u0061"', '"metadata"', '"\\u006detadata"', '""', '"\195\164"', '"\\ud83d\\ude00"', '"a\\nb"', '"\\""',
}
local STRINGS = {
  '""', '"x"', '"}"', '"\\\\"', '"\\"],{"', '"\226\130\172"', '"\\u20ac"', '"\\ud834\\udd1e"', '"\127"',
}
local WORDS = {
  "true", "false", "null", "0", "-0", "1.50", "1e3", "1E-2", "12345678901234567890", "0.1e+1", "-7",
}
local BLANKS = { "", "", "", " ", "\n  ", "\t\r\n" }

local value

--- Returns the JSON of a list or an object of random items.
local function items(random, depth, is_object)
  local parts, n = {}, random:between(0, 4)
  for i = 1, n do
    local name = is_object and random:pick(NAMES) .. random:pick(BLANKS) .. ":" .. random:pick(BLANKS) or ""
    parts[i] = random:pick(BLANKS) .. name .. value(random, depth + 1) .. random:pick(BLANKS)
  end
  if n == 0 then parts[1] = random:pick(BLANKS) end
  return (is_object and "{%s}" or "[%s]"):format(table.concat(parts, ","))
end

function value(random, depth)
  local kind = depth > 4 and random:between(1, 2) or random:between(1, 4)
  if kind == 1 then return random:pick(STRINGS) end
  if kind == 2 then return random:pick(WORDS) end
  return items(random, depth, kind == 3)
end

local function object(random) return random:pick(BLANKS) .. items(random, 1, true) .. random:pick(BLANKS) end

-- }======

--- The texts of items.
local function texts_of(text, list)
  local all = {}
  for i, item in ipairs(list) do all[i] = text:sub(item.first, item.after - 1) end
  return all
end

--- Checks that a text has these items, and the same bytes around them as another one.
local function check_items(before, after, expected)
  local old, new = assert(json.open(before)), assert(json.open(after), after)
  assert.same(expected, texts_of(after, new))
  if old[1] and new[1] then
    assert.equal(before:sub(1, old[1].first), after:sub(1, new[1].first))
    assert.equal(before:sub(old[#old].after), after:sub(new[#new].after))
  end
end

describe("a JSON object in its text", function()
  it("has the members that cjson finds", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1))
    for _ = 1, ROUNDS do
      local text = object(random)
      local list, decoded, found = assert(json.open(text), text), cjson.decode(text), {}
      for _, item in ipairs(list) do
        found[item.name] = cjson.decode("[" .. json.value_of(text, item) .. "]")[1]
        local string = json.string_of(text, item)
        assert.equal(type(found[item.name]) == "string" and found[item.name] or nil, string)
      end
      assert.same(decoded, found)
    end
  end)

  it("gets another value of a member, and nothing else changes", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1) + 1)
    for _ = 1, ROUNDS do
      local text, fresh = object(random), value(random, 3)
      local list, expected = json.open(text), cjson.decode(text)
      local name = cjson.decode("[" .. random:pick(NAMES) .. "]")[1]
      local member = json.find(list, name)
      if member then
        local changed = json.replace(text, member, fresh)
        expected[name] = cjson.decode("[" .. fresh .. "]")[1]
        assert.same(expected, cjson.decode(changed))
        local raw = texts_of(text, list)
        for i, item in ipairs(list) do
          if item == member then raw[i] = text:sub(item.first, item.value - 1) .. fresh end
        end
        check_items(text, changed, raw)
      else
        assert.is_nil(expected[name])
      end
    end
  end)

  it("gets another member at the end, and nothing else changes", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1) + 2)
    for i = 1, ROUNDS do
      local text, name, fresh = object(random), "new " .. i, value(random, 3)
      local list, expected = json.open(text), cjson.decode(text)
      local member = keywatch_json.encode(name) .. ":" .. fresh
      local changed = json.append(text, list, member)
      expected[name] = cjson.decode("[" .. fresh .. "]")[1]
      assert.same(expected, cjson.decode(changed))
      local raw = texts_of(text, list)
      raw[#raw + 1] = member
      assert.same(raw, texts_of(changed, json.open(changed)))
    end
  end)

  it("loses all members of a name, and nothing else changes", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1) + 3)
    for _ = 1, ROUNDS do
      local text, name = object(random), cjson.decode("[" .. random:pick(NAMES) .. "]")[1]
      local list, expected, raw = json.open(text), cjson.decode(text), {}
      local changed = json.remove(text, list, function(item) return item.name == name end)
      expected[name] = nil
      assert.same(expected, cjson.decode(changed))
      for _, item in ipairs(list) do
        if item.name ~= name then raw[#raw + 1] = text:sub(item.first, item.after - 1) end
      end
      check_items(text, changed, raw)
    end
  end)

  it("that is damaged is refused, or cjson reads the same", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1) + 4)
    local refused, accepted = 0, 0
    for _ = 1, ROUNDS do
      local text = object(random)
      for _ = 1, random:between(1, 3) do
        local at, kind = random:between(1, #text), random:between(1, 4)
        local byte = random:pick {
          '"', "{", "}", "[", "]", ",", ":", "\\", " ", "e", "-", "0", "\0", "\128", "u", "\31",
        }
        if kind == 1 then
          text = text:sub(1, at - 1) .. byte .. text:sub(at + 1)
        elseif kind == 2 then
          text = text:sub(1, at - 1) .. byte .. text:sub(at)
        elseif kind == 3 then
          text = text:sub(1, at - 1) .. text:sub(at + 1)
        else
          text = text:sub(1, at)
        end
        if text == "" then text = "{" end
      end
      local list = json.open(text)
      if list then
        accepted = accepted + 1
        local names, decoded = {}, cjson.decode(text) -- raises if that refuses
        for _, item in ipairs(list) do names[item.name] = true end
        for name in pairs(names) do assert.is_true(decoded[name] ~= nil) end
        for name in pairs(decoded) do assert.is_true(names[name]) end
      else
        refused = refused + 1
      end
    end
    assert.is_true(refused > 0 and accepted > 0)
  end)

  it("is refused if RFC 8259 does not allow it", function()
    for _, text in ipairs {
      "", " ", "[]", "1", '"a"', "null", "{", "}", "{}{}", "{} x", "{}\0", "\239\187\191{}", "{,}", '{"a"}', '{"a":}',
      '{"a":1,}',
      '{"a":1 "b":2}', '{a:1}', "{'a':1}", '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":+1}', '{"a":0x10}', '{"a":nan}',
      '{"a":Infinity}', '{"a":1e}', '{"a":1e5e}', '{"a":-}', '{"a":tru}', '{"a":truex}', '{"a":True}', '{"a":[1,]}',
      '{"a":[1}', '{"a":{]}', '{"a":"\\v"}', '{"a":"\\u12g4"}', '{"a":"\\ud800"}', '{"a":"\\udc00"}',
      '{"a":"\\ud800\\u0041"}', '{"a":"\n"}', '{"a":"\0"}', '{"a":"\31"}', '{"a":"b', '{"a":"b\\', '{"a":"b\\u00',
      '{"a":"\128"}', '{"a":"\192\128"}', '{"a":"\193\191"}', '{"a":"\195"}', '{"a":"\195x"}', '{"a":"\224\159\191"}',
      '{"a":"\237\160\128"}', '{"a":"\240\143\191\191"}', '{"a":"\244\144\128\128"}', '{"a":"\245\128\128\128"}',
      '{"a":"\255"}', '{"\255":1}', '{"a":1/*b*/}', '{"a":1}\v', '{"a":\194\160 1}',
    } do assert.is_nil(json.open(text), text) end
  end)

  it("may be as deep as cjson allows, and no text is too deep for the stack", function()
    local function nested(n) return '{"a":' .. ("["):rep(n - 1) .. ("]"):rep(n - 1) .. "}" end
    assert.is_truthy(json.open(nested(MAX_DEPTH)))
    assert.is_true((pcall(cjson.decode, nested(MAX_DEPTH))))
    assert.is_nil(json.open(nested(MAX_DEPTH + 1)))
    assert.is_false((pcall(cjson.decode, nested(MAX_DEPTH + 1))))
    assert.is_nil(json.open(('{"a":'):rep(1000000)))
    assert.is_nil(json.open('{"a":' .. ("["):rep(1000000)))
  end)
end)
