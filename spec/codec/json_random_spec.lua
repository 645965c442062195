--- Random JSON: values in both directions, and texts beside lua-cjson and Python's json.

local cjson = require "cjson"
local json = require "keywatch.json"

local dose = require "spec.support.dose"
local files = require "spec.support.files"
local occurrences = require "spec.support.occurrences"
local shell = require "spec.support.shell"
local wire = require "spec.support.wire"
local new_random = require("spec.support.random").new

local seed = tonumber(os.getenv("KW_SEED") or 1)
local HAS_INTEGERS = rawget(math, "type") ~= nil
local EXACT = 2 ^ 53

-- {====== Random values ======

local CHARACTERS = { "a", "b", " ", '"', "\\", "/", "\0", "\n", "\31", "\127", "\195\164", "\226\130\172",
  "\240\159\152\128", "x", "abcdefgh", "0123456789abcdef" }

local function random_string(random)
  local parts = {}
  for i = 1, random:between(0, 6) do parts[i] = random:pick(CHARACTERS) end
  return table.concat(parts)
end

--- Returns a double of random bits.
local function random_double(random)
  local mantissa = random:between(0, 2 ^ 26) * 2 ^ 27 + random:between(0, 2 ^ 27)
  local x = mantissa * 2.0 ^ random:between(-1126, 970)
  return random:one_in(2) and -x or x
end

--- Returns a whole number, as an integer where there are some.
local function random_integer(random)
  local bits = random:between(1, HAS_INTEGERS and 63 or 53)
  local v = 0
  for _ = 1, bits do v = v * 2 + random:between(0, 1) end
  return random:one_in(2) and -v or v
end

local function random_number(random)
  local which = random:between(1, 4)
  if which == 1 then return random_integer(random) end
  if which == 2 then return random:between(-1000, 1000) / random:pick { 10, 100, 7, 1000 } end
  if which == 3 then return random:between(-9, 9) + 0.0 end
  return random_double(random)
end

local random_value

local function random_table(random, depth)
  local value, n, is_list = {}, random:between(0, 5), random:one_in(2)
  for i = 1, n do value[is_list and i or random_string(random)] = random_value(random, depth + 1) end
  return is_list and json.array(value) or value
end

function random_value(random, depth)
  local which = random:between(1, depth > 4 and 5 or 9)
  if which == 1 then return random:one_in(2) end
  if which == 2 then return json.null end
  if which == 3 then return random_string(random) end
  if which <= 5 then return random_number(random) end
  return random_table(random, depth)
end

-- }======

-- {====== Random texts ======

local NUMBERS = { "0", "-0", "1", "-12", "1.50", "1e3", "1E-2", "0.1e+1", "12345678901234567890", "9007199254740993",
  "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e308", "-1e309", "5e-324", "1e-400",
  "123456789012345678901234567890.123456789", "0.000000000000000000001", "-0.0", "9007199254740993.0", "1e22", "1e23" }
local STRINGS = { '""', '"x"', '"\\u0041"', '"\\ud83d\\ude00"', '"\195\164"', '"\\n"', '"\\\\"', '"]"',
  '"\\ud800"', '"a\nb"',
  '"\255"', '"\\u0000"', '"\\x"', '"12345678"', '"\237\160\128"' }
local WORDS = { "true", "false", "null", "nul", "NaN", "Infinity", "" }
local BLANKS = { "", "", "", "", " ", "\n", "\t\r", "\v" }

local random_text

local function random_items(random, depth, is_object)
  local parts = {}
  for i = 1, random:between(0, 4) do
    local name = is_object and random:pick { '"a"', '"b"', '"\\u0061"', '"\195\164"' } .. random:pick(BLANKS) ..
    ":" or ""
    parts[i] = name .. random_text(random, depth + 1)
  end
  return (is_object and "{%s}" or "[%s]"):format(table.concat(parts, random:one_in(60) and " " or ","))
end

function random_text(random, depth)
  local which = random:between(1, depth > 3 and 6 or 12)
  local text
  if which <= 3 then
    text = random:pick(NUMBERS)
  elseif which <= 5 then
    text = STRINGS[random:one_in(8) and random:between(1, #STRINGS) or random:between(1, 8)]
  elseif which == 6 then
    text = WORDS[random:one_in(8) and random:between(1, #WORDS) or random:between(1, 3)]
  else
    text = random_items(random, depth, which % 2 == 0)
  end
  local blanks = random:one_in(60) and "\v" or BLANKS[random:between(1, 7)]
  return blanks .. text .. BLANKS[random:between(1, 7)]
end

--- A text with a byte changed, removed, or put in.
local function mutate(random, text)
  local at = random:between(1, #text + 1)
  local byte = random:pick { "", "[", "]", "{", "}", ",", ":", '"', "\\", "0", "-", ".", "e", " ", "\0", "\255",
    "\195", "u" }
  return text:sub(1, at - 1) .. byte .. text:sub(at + random:between(0, 1))
end

-- }======

-- {====== The value in another form ======

local printed

--- Returns a double as a whole odd number times a power of 2: LuaJIT rounds the last of 17 digits in another way.
local function printed_double(x)
  if x == 0 then return 1 / x < 0 and "d-0" or "d0" end
  local odd, exponent = math.abs(x), 0
  while odd % 1 ~= 0 do odd, exponent = odd * 2, exponent - 1 end
  while odd % 2 == 0 do odd, exponent = odd / 2, exponent + 1 end
  return ("d%s%.0fp%d"):format(x < 0 and "-" or "", odd, exponent)
end

local function printed_number(x)
  if HAS_INTEGERS and math.type(x) == "integer" then return ("i%d"):format(x) end
  local is_whole = not HAS_INTEGERS and x % 1 == 0 and math.abs(x) <= EXACT and not (x == 0 and 1 / x < 0)
  return is_whole and ("i%.0f"):format(x) or printed_double(x)
end

local function printed_table(value)
  local parts = {}
  if getmetatable(value) then
    for i, item in ipairs(value) do parts[i] = printed(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for name, item in pairs(value) do parts[#parts + 1] = printed(name) .. ":" .. printed(item) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

--- Returns a value in the form of spec/support/json_referee.py.
function printed(value)
  if value == json.null then return "n" end
  if type(value) == "boolean" then return value and "t" or "f" end
  if type(value) == "string" then return "s" .. wire.hex(value) end
  if type(value) == "number" then return printed_number(value) end
  return printed_table(value)
end

-- }======

--- Returns the value of a text, which is JSON.
local function decode(text, opts)
  local value, err = json.decode(text, opts)
  if value == nil then error(("%s: %s"):format(text, err), 2) end
  return value
end

--- Returns Python's answers to texts.
local function ask_python(texts)
  local lines = {}
  for i, text in ipairs(texts) do lines[i] = wire.hex(text) .. "\n" end
  local path = files.write(os.tmpname(), table.concat(lines))
  local command = "/usr/bin/python3 spec/support/json_referee.py %s %s"
  local ok, output = shell.run(command:format(HAS_INTEGERS and "integers" or "doubles", path))
  os.remove(path)
  if not ok then error(output:sub(-2000)) end
  local answers = {}
  for line in output:gmatch("[^\n]+") do answers[#answers + 1] = line end
  assert.equal(#texts, #answers)
  return answers
end

--- Checks that two decoded values are the same, except for the subtypes of numbers.
local function expect_same(a, b)
  if type(a) ~= "table" then
    if type(a) == "number" then a = a + 0.0 end -- cjson has rounded it
    assert.equal(a, b)
    return
  end
  for name, value in pairs(a) do expect_same(value, b[name]) end
  for name in pairs(b) do assert(a[name] ~= nil, name) end
end

describe("random JSON", function()
  it("is the same value again, whatever the options", function()
    local random = new_random(seed)
    for _ = 1, dose.of(500, 10000) do
      local value = random_value(random, 0)
      local expected = printed(value)
      for _, opts in ipairs { {}, { sort_keys = true }, { indent = random:between(1, 3) } } do
        local text = assert(json.encode(value, opts))
        assert.equal(expected, printed(decode(text)))
        local ordered = decode(text, { ordered = true, duplicates = "error" })
        assert.equal(text, (assert(json.encode(ordered, { indent = opts.indent }))))
      end
      assert.equal(assert(json.encode(value, { sort_keys = true })),
        (assert(json.encode(decode((json.encode(value))), { sort_keys = true }))))
    end
  end)

  it("has numbers that Lua reads as the same ones", function()
    local random = new_random(seed + 1)
    for _ = 1, dose.of(5000, 100000) do
      local x = random_number(random)
      local text = assert(json.encode(x))
      assert.equal(printed_number(x), printed_number(decode(text)), text)
      assert.equal(x, tonumber(text), text)
    end
  end)

  it("has numbers of many digits that Lua reads as the same ones", function()
    local random = new_random(seed + 2)
    for _ = 1, dose.of(2000, 50000) do
      local digits = {}
      for i = 1, random:between(1, 40) do digits[i] = random:between(0, 9) end
      local text = ("%d.%se%d"):format(random:between(1, 9), table.concat(digits), random:between(-330, 300))
      assert.equal(tonumber(text), (json.decode(text)), text)
    end
  end)

  it("is read as cjson reads it", function()
    local random = new_random(seed + 3)
    for _ = 1, dose.of(500, 10000) do
      local text = assert(json.encode(random_table(random, 0)))
      expect_same(json.decode(text), cjson.decode(text))
    end
  end)

  it("is accepted, refused and understood as by Python", function()
    local random, texts = new_random(seed + 4), {}
    for i = 1, dose.of(2000, 40000) do
      local which = random:between(1, 4)
      if which == 1 then
        texts[i] = assert(json.encode(random_value(random, 0), { indent = random:between(0, 2) }))
      else
        texts[i] = random_text(random, 0)
        if which == 2 then texts[i] = mutate(random, texts[i]) end
      end
    end
    local answers, counts = ask_python(texts), {}
    for i, text in ipairs(texts) do
      local value, err = json.decode(text)
      local answer = value ~= nil and "good " .. printed(value) or "bad"
      assert.equal(answers[i], answer, text .. tostring(err))
      counts[i] = value ~= nil and "good" or err.code
    end
    occurrences.await({ "good", "malformed", "out_of_range" }, #texts, function(i) return counts[i] end, #texts)
  end)

  it("that is damaged is refused at a byte of it, or is JSON", function()
    local random = new_random(seed + 5)
    occurrences.await({ "good", "bad" }, dose.of(2000, 50000), function()
      local text = random_text(random, 0)
      for _ = 1, random:between(0, 3) do text = mutate(random, text) end
      local value, err = json.decode(text)
      if err then
        assert.is_true(err.position >= 1 and err.position <= #text + 1)
        return "bad"
      end
      assert.equal(printed(value), printed(decode((json.encode(value)))), text)
      return "good"
    end)
  end)
end)
