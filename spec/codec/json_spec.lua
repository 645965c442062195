--- JSON from and to Lua values.

local json = require "keywatch.json"

local compat = require "keywatch.support.compat"
local dose = require "spec.support.dose"
local starve = require "spec.support.starve"
local vm = require "spec.support.vm"

local HAS_INTEGERS = rawget(math, "type") ~= nil
local null, array = json.null, json.array

--- The value of a text.
local function decode(text, opts)
  local value, err = json.decode(text, opts)
  if err then error(text:sub(1, 200) .. ": " .. tostring(err), 2) end
  return value
end

--- The text of a value.
local function encode(value, opts) return (assert(json.encode(value, opts))) end

--- Expects that a text is refused, at the byte that cannot be there.
local function expect_refused(text, position, words, opts)
  local value, err = json.decode(text, opts)
  assert.is_nil(value, text)
  assert.equal("malformed", err.code, text)
  assert.equal(position, err.position, text .. ": " .. err.message)
  if words then assert.matches(words, err.message, 1, true) end
end

--- The subtype of a number in Lua 5.4.
local function kind_of(value) return HAS_INTEGERS and math.type(value) or type(value) end

-- The classes of JSONTestSuite --------------------------------------------------------------------------------------

describe("a JSON text", function()
  it("may be any value, with blanks around each token", function()
    for text, expected in pairs {
      ["1"] = 1, ["-7"] = -7, ["0"] = 0, ["2.5"] = 2.5, ["25e-1"] = 2.5, ["0.25E+1"] = 2.5, ["-0.5"] = -0.5,
      ["1E2"] = 100,
      ["0e0"] = 0, ["0.0"] = 0, ["1e-999"] = 0, ["true"] = true, ["false"] = false, ["null"] = null, ['""'] = "",
      ['"a"'] = "a", [' \t\r\n"a"\n\r\t '] = "a", ["123456789"] = 123456789, ["1.000000000000000005"] = 1,
      ['"\127"'] = "\127", ['"/"'] = "/", ['"\226\128\168"'] = "\226\128\168", ['"\239\191\191"'] = "\239\191\191",
    } do assert.equal(expected, decode(text), text) end
    for text, expected in pairs {
      ["[]"] = {}, ["{}"] = {}, [" [ ] "] = {}, [" { } "] = {}, ["[[]]"] = { {} }, ["[1,2]"] = { 1, 2 },
      ["[ 1 , [ 2 ] ]"] = { 1, { 2 } }, ['{"a":1}'] = { a = 1 }, ['{ "a" : { "b" : [ ] } }'] = { a = { b = {} } },
      ['{"":0}'] = { [""] = 0 }, ['{"a":1,"a":2}'] = { a = 2 }, ['{"a":1,"b":2,"a":null}'] = { a = null, b = 2 },
      ['{"\\u0061":1}'] = { a = 1 }, ['{"a\\u0000b":1}'] = { ["a\0b"] = 1 }, ['["a","a"]'] = { "a", "a" },
      ["[null,null]"] = { null, null }, ["[true,false]"] = { true, false }, ['{"1":1}'] = { ["1"] = 1 },
    } do assert.same(expected, decode(text), text) end
  end)

  it("may have every escape in its strings", function()
    for text, expected in pairs {
      ['"\\"\\\\\\/\\b\\f\\n\\r\\t"'] = '"\\/\b\f\n\r\t', ['"\\u0000"'] = "\0", ['"\\u007f"'] = "\127",
      ['"\\u0080"'] = "\194\128", ['"\\u07FF"'] = "\223\191", ['"\\u0800"'] = "\224\160\128",
      ['"\\uFfFf"'] = "\239\191\191", ['"\\uD800\\uDC00"'] = "\240\144\128\128",
      ['"\\udbff\\udfff"'] = "\244\143\191\191",
      ['"\\ud7ff\\ue000"'] = "\237\159\191\238\128\128", ['"a\\nb\\nc"'] = "a\nb\nc", ['"\\\\u0041"'] = "\\u0041",
      ['"\195\164\\u00e4"'] = "\195\164\195\164",
    } do assert.equal(expected, decode(text), text) end
  end)

  it("is refused where it ends too early", function()
    local whole = '{"a":[1.5e+3,true,"x\\u00e4\\n",{}],"b":null}'
    for n = 0, #whole - 1 do expect_refused(whole:sub(1, n), n + 1, "the text ends too early") end
  end)

  it("is refused at the byte that cannot be there", function()
    for text, case in pairs {
      ["}"] = { 1, "a value is expected" }, ["[1,]"] = { 4, "a value is expected" }, ["[,1]"] = { 2, "a value" },
      ["[1 2]"] = { 4, "',' or ']' is expected" }, ["[1}"] = { 3, "',' or ']'" }, ["{]"] = { 2, "a name in quotation" },
      ["{,}"] = { 2, "a name" }, ['{"a"}'] = { 5, "':' is expected" }, ['{"a":}'] = { 6, "a value" },
      ['{"a":1,}'] = { 8, "a name" }, ['{"a":1 "b":2}'] = { 8, "',' or '}' is expected" }, ["{a:1}"] = { 2, "a name" },
      ["{'a':1}"] = { 2, "a name" }, ['{"a"::1}'] = { 6, "a value" }, ['{"a",1}'] = { 5, "':'" },
      ["[1:2]"] = { 3, "','" },
      ["1 x"] = { 3, "text after the value" }, ["{}{}"] = { 3, "text after" }, ["[]]"] = { 3, "text after" },
      ["1\0"] = { 2, "text after" }, ["01"] = { 1, "must not begin with 0" }, ["-01"] = { 2, "must not begin with 0" },
      ["[1.]"] = { 4, "a digit" }, ["[.5]"] = { 2, "a value" }, ["[+1]"] = { 2, "a value" }, ["[-]"] = { 3, "a digit" },
      ["[1e]"] = { 4, "a digit" }, ["[1e+]"] = { 5, "a digit" }, ["[1.e1]"] = { 4, "a digit" },
      ["[--1]"] = { 3, "a digit" },
      ["[1e1.5]"] = { 5, "','" }, ["[0x10]"] = { 3, "','" }, ["[1_000]"] = { 3, "','" }, ["NaN"] = { 1, "a value" },
      ["[-NaN]"] = { 3, "a digit" }, ["[Infinity]"] = { 2, "a value" }, ["[-Infinity]"] = { 3, "a digit" },
      ["[nan]"] = { 3, "no such word" }, ["[nul]"] = { 5, "no such word" }, ["[tru1]"] = { 5, "no such word" },
      ["[truex]"] = { 6, "','" }, ["True"] = { 1, "a value" }, ["[1/*x*/]"] = { 3, "','" },
      ["//x\n1"] = { 1, "a value" },
      ['["a\nb"]'] = { 4, "control character" }, ['["\0"]'] = { 3, "control character" },
      ['["\31"]'] = { 3, "control" },
      ['["\\v"]'] = { 4, "no such escape" }, ['["\\\0"]'] = { 4, "no such escape" }, ['["\\U0041"]'] = { 4, "no such" },
      ['["\\u12g4"]'] = { 7, "hexadecimal" }, ['["\\u"]'] = { 5, "hexadecimal" },
      ['["\\u 123"]'] = { 5, "hexadecimal" },
      ['["\\u-123"]'] = { 5, "hexadecimal" }, ["\239\187\191{}"] = { 1, "byte order mark" }, ["\v1"] = { 1, "a value" },
      ["\194\160 1"] = { 1, "a value" }, ["[1]\f"] = { 4, "text after" }, ["\255\254[\0]\0"] = { 1, "a value" },
      ["'a'"] = { 1, "a value" }, ["[1,\n\n 2 3]"] = { 9, "line 3, column 4 (byte 9)" }, ["\0"] = { 1, "a value" },
    } do expect_refused(text, case[1], case[2]) end
  end)

  it("is refused if it is not UTF-8", function()
    for _, bytes in ipairs {
      "\128", "\191", "\192\128", "\193\191", "\194", "\194x", "\195\195", "\224\159\191", "\224\160", "\237\160\128",
      "\237\191\191", "\240\143\191\191", "\240\144\128", "\244\144\128\128", "\245\128\128\128", "\254", "\255",
    } do
      expect_refused('["' .. bytes .. '"]', 3, "not UTF-8")
      expect_refused('{"abcdefgh' .. bytes .. '":1}', 11, "not UTF-8")
    end
    for _, bytes in ipairs {
      "\194\128", "\223\191", "\224\160\128", "\236\191\191", "\237\159\191", "\238\128\128", "\239\191\191",
      "\240\144\128\128", "\243\191\191\191", "\244\143\191\191",
    } do
      for n = 0, 9 do -- at each place of a word of 8 bytes
        local text = ("x"):rep(n) .. bytes
        assert.equal(text, decode('"' .. text .. '"'))
        assert.equal('"' .. text .. '"', encode(text))
      end
    end
  end)

  it("is refused if it has half of a surrogate pair", function()
    for _, escape in ipairs { "\\ud800", "\\udbff", "\\udc00", "\\udfff", "\\ud800\\u0041", "\\ud800x",
      "\\ud800\\ud800", "\\ud800\\n", "\\udc00\\ud800" } do
      expect_refused('["' .. escape .. '"]', 3, "half of a surrogate pair")
    end
  end)

  it("with an invalid byte is refused at that byte, wherever in a word it is", function()
    for n = 0, 40 do
      local plain = ("a"):rep(n)
      assert.equal(plain, decode('"' .. plain .. '"'))
      assert.equal(plain .. "\n" .. plain, decode('"' .. plain .. "\\n" .. plain .. '"'))
      for _, byte in ipairs { "\0", "\1", "\31", "\128", "\255" } do
        expect_refused('"' .. plain .. byte .. plain .. '"', n + 2)
      end
    end
  end)

  it("may have max_bytes, and no more", function()
    assert.equal(0, decode(" 0", { max_bytes = 2 }))
    local value, err = json.decode("  0", { max_bytes = 2 })
    assert.same({ nil, "resource_exhausted" }, { value, err.code })
    assert.matches("has 3 bytes, more than max_bytes (2)", err.message, 1, true)
  end)
end)

-- Numbers ----------------------------------------------------------------------------------------------------------

describe("a JSON number", function()
  it("is exact in both directions", function()
    for _, text in ipairs { "0", "-1", "9007199254740992", "-9007199254740992", "0.1", "-0.0", "0.3333333333333333",
      "1.7976931348623157e308", "2.2250738585072014e-308", "123456.789", "5e-324", "1e22", "1.5e-7", "0.000123" } do
      local again = encode(decode(text))
      assert.equal(decode(text), decode(again))
      assert.equal(tonumber(text), tonumber(again), text)
      if text ~= "5e-324" then assert.equal(text, again) end
    end
    assert.equal("-0.0", encode(decode "-0"))
    assert.equal(-math.huge, 1 / decode "-0")
    assert.equal(-math.huge, 1 / decode "-0.0")
    assert.equal(math.huge, 1 / decode "0.0")
  end)

  it("is a whole number of 64 bits on Lua 5.4, and exact to 2^53 on LuaJIT", function()
    for _, text in ipairs { "9223372036854775807", "-9223372036854775808", "9007199254740993", "-9007199254740993" } do
      local value = decode(text)
      assert.equal(text, HAS_INTEGERS and encode(value) or value)
      assert.equal(HAS_INTEGERS and "integer" or "string", kind_of(value))
    end
    for _, text in ipairs { "9007199254740992", "1", "-1" } do
      assert.equal(HAS_INTEGERS and "integer" or "number", kind_of(decode(text)))
    end
    for _, text in ipairs { "1.0", "1e0", "-0", "10E-1" } do
      assert.equal(HAS_INTEGERS and "float" or "number", kind_of(decode(text)))
    end
    assert.equal(HAS_INTEGERS and "[1,1.0,1e15,1e300]" or "[1,1,1000000000000000,1e300]",
      (encode { 1, 2 / 2, 2 ^ 0 * 1e15, 1e300 }:gsub("1000000000000000%.0", "1e15")))
  end)

  it("that Lua cannot represent is decoded as the option integers says", function()
    local exact = HAS_INTEGERS and "9223372036854775807" or "9007199254740992"
    for _, text in ipairs { "9223372036854775808", "-9223372036854775809", "18446744073709551616", ("9"):rep(100) } do
      assert.equal(text, decode(text))
      assert.equal(text, decode(text, { integers = "string" }))
      assert.equal(tonumber(text .. ".0"), decode(text, { integers = "number" }))
      local value, err = json.decode("[0," .. text .. "]", { integers = "error" })
      assert.same({ nil, "out_of_range", 4 }, { value, err.code, err.position })
    end
    for _, way in ipairs { "string", "number", "error" } do
      assert.equal(tonumber(exact), decode(exact, { integers = way }))
    end
    local value, err = json.decode(("9"):rep(400), { integers = "number" })
    assert.same({ nil, "out_of_range" }, { value, err.code })
  end)

  it("with a fraction or an exponent is refused if it is too large for a double", function()
    for _, text in ipairs { "1e309", "-1e309", "1.8e308", "1e999999999999999999999", "0.1e310",
      ("9"):rep(400) .. ".0" } do
      local value, err = json.decode("[" .. text .. "]")
      assert.same({ nil, "out_of_range", 2 }, { value, err.code, err.position })
      assert.matches("too large", err.message)
    end
    assert.equal(0, decode "1e-999999999999999999999")
    assert.equal(0, decode "0e999999999999999999999")
    assert.equal(1, decode("0." .. ("0"):rep(1000) .. "1e1001"))
    assert.equal(1, decode("1" .. ("0"):rep(1000) .. "e-1000"))
  end)

  it("is rounded once, however many digits it has", function()
    local zeros = ("0"):rep(1000)
    for text, expected in pairs {
      ["9007199254740993.0"] = "9007199254740992", ["9007199254740995.0"] = "9007199254740996",
      ["9007199254740993." .. zeros .. "1"] = "9007199254740994", ["9007199254740993." .. zeros] = "9007199254740992",
      ["9007199254740992999" .. ("9"):rep(900) .. "e-903"] = "9007199254740992",
      ["90071992547409930" .. zeros .. "1e-1002"] = "9007199254740994",
    } do assert.equal(tonumber(expected), decode(text), text:sub(1, 30)) end
    assert.equal(2.2250738585072011e-308, decode "2.2250738585072011e-308")
    assert.equal(2 ^ -1074, decode "2.4703282292062328e-324")
    assert.equal(0, decode "2.4703282292062327e-324")
  end)
end)

-- Values -----------------------------------------------------------------------------------------------------------

describe("a Lua value", function()
  it("is encoded by its type", function()
    assert.equal('"a"', encode "a")
    assert.equal("true", encode(true))
    assert.equal("false", encode(false))
    assert.equal("null", encode(null))
    assert.equal("{}", encode {})
    assert.equal("[]", encode(array {}))
    assert.equal("[]", encode(array()))
    assert.equal("[1,[2],{}]", encode { 1, { 2 }, {} })
    assert.equal('{"a":{"b":[true]}}', encode { a = { b = { true } } })
    assert.equal('"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f/\127"', encode '"\\\b\f\n\r\t\0\31/\127')
  end)

  it("stays an array when it was decoded as one", function()
    assert.equal('{"a":[]}', encode(decode '{"a":[]}'))
    assert.equal("[{},[]]", encode(decode "[{},[]]"))
    local list = decode "[1]"
    table.remove(list)
    assert.equal("[]", encode(list))
    list[1] = "x"
    assert.equal('["x"]', encode(list))
    assert.equal("[]", encode(array(list)):sub(1, 1) .. "]")
  end)

  it("is an array of any order of creation", function()
    local list = {}
    for i = 9, 1, -1 do list[i] = i end
    assert.equal("[1,2,3,4,5,6,7,8,9]", encode(list))
    list = { 1, 2, nil, 4 }
    list[3] = 3
    assert.equal("[1,2,3,4]", encode(array(list)))
  end)

  it("has null in the form of other libraries", function()
    assert.equal(require("cjson").null, null)
    assert.equal("[null]", encode { require("cjson").null })
  end)

  it("is refused, with its path, if it has no form in JSON", function()
    local loop, coded = {}, {}
    loop.again = loop
    for i = 1, 300 do coded[i] = ("a"):rep(i % 20) end
    coded[200] = print
    for _, case in ipairs {
      { print, "value has the type function" }, { nil, "value has the type nil" }, { 0 / 0, "value is nan" },
      { { 1, 1 / 0 }, "value[2] is infinite" }, { { a = { -1 / 0 } }, "value.a[1] is infinite" },
      { { a = { ["b c"] = { true, print } } }, 'value.a["b c"][2] has' },
      { { a = io.stdout }, "value.a has the type userdata" },
      { { a = coroutine.create(print) }, "value.a has the type thread" }, { { "\255" }, "value[1] is not UTF-8" },
      { { a = { ["\255"] = 1 } }, "value.a has a name that is not UTF-8" }, { "\237\160\128", "value is not UTF-8" },
      { { 1, nil, 3, [7] = 1 }, "value is no array: its keys are not 1 to n" }, { { [2] = 1 }, "is no array" },
      { { x = { [1.5] = 1 } }, "value.x is no array" }, { { [0] = 1 }, "is no array" }, { { [-1] = 1 }, "is no array" },
      { { 1, a = 2 }, "value is no array" }, { { [true] = 1 }, "value has a key that is not a string" },
      { array { a = 1 }, "value is no array" }, { array { 1, nil, 3 }, "value is no array" },
      { { [1e300] = 1 }, "no array" },
      { coded, "value[200] has the type function" },
    } do
      local text, err = json.encode(case[1])
      assert.same({ nil, "invalid_argument" }, { text, err.code })
      assert.matches(case[2], err.message, 1, true)
    end
    local text, err = json.encode(loop)
    assert.same({ nil, "resource_exhausted" }, { text, err.code })
    assert.matches("^keywatch: value%.again%.again.*%.%.%. is nested too deep, or contains itself", err.message)
  end)

  it("is refused in the same way with sorted names", function()
    for value, words in pairs { [{ a = { [true] = 1, b = 2 } }] = "value.a has a key that is not a string",
      [{ a = { b = 1, ["\255"] = 2 } }] = "value.a has a name that is not UTF-8",
      [{ a = { b = print } }] = "value.a.b has" } do
      assert.matches(words, select(2, json.encode(value, { sort_keys = true })).message, 1, true)
    end
  end)

  it("is not changed, and its metamethods are not called", function()
    local function fail() error "called" end
    local value = setmetatable({ a = 1 }, { __index = fail, __newindex = fail, __len = fail, __pairs = fail })
    assert.equal('{"a":1}', encode(value))
    assert.equal(fail, getmetatable(value).__index)
  end)

  it("marked as an array is a table without another metatable", function()
    assert.is_false(pcall(array, 5))
    local ok, err = pcall(array, setmetatable({}, {}))
    assert.is_false(ok)
    assert.matches("json_spec.lua:%d+: array: the table has a metatable", err)
  end)
end)

describe("misuse of keywatch.json", function()
  it("raises", function()
    for _, case in ipairs {
      { json.decode, "string expected" }, { json.decode, 5, nil, "string expected" },
      { json.decode, "1", 5, "decode: options must be a table" },
      { json.decode, "1", { x = 1 }, "decode: there is no option 'x'" },
      { json.decode, "1", { depth = 0 }, "decode: option 'depth' must be from 1 to 1000" },
      { json.decode, "1", { depth = 1001 }, "from 1 to 1000" },
      { json.decode, "1", { integers = "float" }, "'integers'" },
      { json.decode, "1", { duplicates = true }, "'duplicates'" },
      { json.encode, "1", { max_bytes = 2 ^ 31 }, "'max_bytes'" },
      { json.encode, 1, { indent = 17 }, "encode: option 'indent' must be from 0 to 16" },
      { json.encode, 1, { sort_keys = 1 }, "'sort_keys'" }, { json.encode, 1, { depth = 0 }, "encode: option 'depth'" },
    } do
      local ok, err = pcall(case[1], case[2] ~= "string expected" and case[2] or nil, case[3])
      assert.is_false(ok)
      assert.matches(case[4] or "string expected", err, 1, true)
    end
    assert.is_false(pcall(json.encode))
  end)
end)

-- Sizes ------------------------------------------------------------------------------------------------------------

--- A list of n numbers, and an object of n members, with their texts.
local function sized(n)
  local list, object, parts, members = {}, {}, {}, {}
  for i = 1, n do
    list[i], parts[i] = i, tostring(i)
    object["k" .. i], members[i] = i, ('"k%d":%d'):format(i, i)
  end
  return list, "[" .. table.concat(parts, ",") .. "]", object, "{" .. table.concat(members, ",") .. "}"
end

describe("JSON of any size", function()
  it("is complete, in arrays and objects, and at any depth", function()
    for _, n in ipairs { 0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000 } do
      local list, list_text, object, object_text = sized(n)
      for _, depth in ipairs { 0, 14, 15, 16, 17, 40 } do
        local open, close = ("[0,"):rep(depth), ("]"):rep(depth)
        local found_list, found_object = decode(open .. list_text .. close), decode(open .. object_text .. close)
        for _ = 1, depth do found_list, found_object = found_list[2], found_object[2] end
        assert.same(list, found_list)
        assert.same(object, found_object)
      end
      assert.equal(list_text, encode(array(list)))
      assert.same(object, decode(encode(object)))
      assert.equal(object_text, encode(decode(object_text, { ordered = true })))
    end
  end)

  it("is complete at every length of a text", function()
    for _, from in ipairs { 2030, 4080, 6130, 8180, 70000 } do
      for n = from, from + 40 do
        local text = '["' .. ("x"):rep(n) .. '\\n",1]'
        assert.equal(text, encode(decode(text)))
        assert.equal(text, encode(decode(text), { max_bytes = #text }))
        local found, err = json.encode(decode(text), { max_bytes = #text - 1 })
        assert.same({ nil, "resource_exhausted" }, { found, err.code })
      end
    end
    local long = {}
    for i = 1, dose.of(20000, 200000) do long[i] = "element " .. i end
    assert.same(long, decode(encode(long)))
  end)

  it("is at most as deep as the limit", function()
    local function nested(n) return ("["):rep(n) .. ("]"):rep(n) end
    local function in_objects(n) return ('{"a":'):rep(n) .. "1" .. ("}"):rep(n) end
    for _, opts in ipairs { {}, { ordered = true }, { duplicates = "error" }, { depth = 1000 } } do
      assert.equal(nested(1000), encode(decode(nested(1000), opts)))
      assert.equal(in_objects(1000), encode(decode(in_objects(1000), opts)))
    end
    for _, case in ipairs { { nested(1001), 1001 }, { ("["):rep(100000), 1001 }, { nested(100000), 1001 },
      { in_objects(1001), 5001 }, { ('{"a":'):rep(100000), 5001 }, { nested(4), 4, { depth = 3 } } } do
      local value, err = json.decode(case[1], case[3])
      assert.same({ nil, "resource_exhausted", case[2] }, { value, err.code, err.position })
      assert.matches("nested too deep", err.message)
    end
    assert.is_nil((json.encode({ {} }, { depth = 1 })))
    assert.equal("[{}]", encode({ {} }, { depth = 2 }))
    assert.is_nil((json.encode { decode(nested(1000)) }))
  end)

  it("needs no more stack than a coroutine has", function()
    local text = ("[1,"):rep(999) .. "[]" .. ("]"):rep(999)
    local co = coroutine.wrap(function() return encode(decode(text)) end)
    assert.equal(text, co())
    local function dive(n) return n == 0 and encode(decode(text)) or (dive(n - 1)) end
    assert.equal(text, dive(dose.of(50, 150)))
  end)

  it("takes memory in proportion to the text", function()
    if vm.how ~= "rock" then return end
    for pattern, factor in pairs { ["[]"] = 50, ["{}"] = 50, ["1"] = 50, ['{"a":1}'] = 50, ['"x"'] = 50, ["[[]]"] = 50,
      ["null"] = 50 } do
      local text = "[" .. (pattern .. ","):rep(100000) .. pattern .. "]"
      for _, is_ordered in ipairs { false, true } do
        collectgarbage()
        collectgarbage "stop"
        local before = collectgarbage "count"
        local value = decode(text, { ordered = is_ordered })
        local bytes = (collectgarbage "count" - before) * 1024
        collectgarbage "restart"
        assert.equal(100001, #value)
        local most = factor * (is_ordered and 2 or 1) * #text
        assert(bytes <= most, ("%s: %.1f bytes for each"):format(pattern, bytes / #text))
      end
    end
  end)

  it("is refused without much memory, if it is hostile", function()
    for _, text in ipairs { ("["):rep(1e6), ('{"a":'):rep(2e5), '"' .. ("\\u0041"):rep(2e5),
      "[" .. ("9"):rep(1e6) .. ".",
      '["' .. ("\\n"):rep(5e5) .. '\255"]' } do
      collectgarbage()
      local before = collectgarbage "count"
      assert.is_nil((json.decode(text)))
      assert(collectgarbage "count" - before < 1024)
    end
    local wide = {}
    for _ = 1, 40 do wide = { wide, wide } end
    local found, err = json.encode(wide, { max_bytes = 1e6 })
    assert.same({ nil, "resource_exhausted" }, { found, err.code })
  end)
end)

-- Options ----------------------------------------------------------------------------------------------------------

describe("the JSON options", function()
  it("sort names bytewise", function()
    local value = { b = { z = 1, a = 2 }, a = { { d = 1, c = 2 } }, [""] = 0, ["\195\164"] = 1, B = 2, aa = 3 }
    assert.equal('{"":0,"B":2,"a":[{"c":2,"d":1}],"aa":3,"b":{"a":2,"z":1},"\195\164":1}',
      encode(value, { sort_keys = true }))
    local _, _, many = sized(500)
    local names = {}
    for name in encode(many, { sort_keys = true }):gmatch '"(.-)"' do names[#names + 1] = name end
    assert.equal(500, #names)
    for i = 2, 500 do assert.is_true(names[i - 1] < names[i]) end
    assert.equal("[]", encode(array(), { sort_keys = true }))
    assert.equal("{}", encode({}, { sort_keys = true }))
  end)

  it("keep the order of members", function()
    for _, text in ipairs { '{"z":1,"a":{"y":[],"b":{}},"m":[{"q":1,"p":2}]}', "{}",
      '[{"b":1,"a":2},{"a":1,"b":2}]' } do
      assert.equal(text, encode(decode(text, { ordered = true })))
    end
    local value = decode('{"z":1,"a":2,"m":3}', { ordered = true })
    value.a, value.k, value.b = nil, 5, { 6 }
    assert.equal('{"z":1,"m":3,"b":[6],"k":5}', encode(value))
    assert.equal('{"b":[6],"k":5,"m":3,"z":1}', encode(value, { sort_keys = true }))
    value.a = null
    assert.equal('{"z":1,"a":null,"m":3,"b":[6],"k":5}', encode(value))
    value[1] = 1
    assert.is_nil((json.encode(value)))
    assert.equal('{"a":3,"b":2}', encode(decode('{"a":1,"b":2,"a":3}', { ordered = true })))
  end)

  it("refuse a name that occurs twice in an object", function()
    local opts = { duplicates = "error" }
    expect_refused('{"a":1,"b":2,"a":3}', 15, "the object has this name twice", opts)
    expect_refused('[{"x":{"a":null,"\\u0061":1}}]', 18, "twice", opts)
    expect_refused('{"":1,"":1}', 8, "twice", { duplicates = "error", ordered = true })
    assert.same({ a = { a = 1 }, b = { { a = 1 }, { a = 2 } } }, decode('{"a":{"a":1},"b":[{"a":1},{"a":2}]}', opts))
    assert.equal(3, decode('{"a":1,"a":2,"a":3}', { duplicates = "last" }).a)
  end)

  it("indent", function()
    assert.equal('{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}',
      encode({ a = { 1, {} }, b = array() }, { indent = 2, sort_keys = true }))
    assert.equal("[\n 1\n]", encode({ 1 }, { indent = 1 }))
    assert.equal("1", encode(1, { indent = 4 }))
  end)
end)

-- Memory and finalizers --------------------------------------------------------------------------------------------

local LONG = ("\\u00e4\\n"):rep(300)
local TEXT = '{"name":"' .. LONG .. '","list":[1,2.5,[],{},{"a":null,"b":[true,false]}],"' .. LONG .. '":"'
  .. LONG .. '"}'
local VALUE = { text = ("\n"):rep(5000), list = { 1, 2.5, {}, { c = 1, b = 2, a = 3 } } }

starve.declare("JSON", {
  function()
    local value, err = json.decode '{"a":[1,2,"\255'
    return not value and err.code == "malformed" or nil, err
  end,
  function()
    local text, err = json.encode { a = { 1, print } }
    return not text and err.code == "invalid_argument" or nil, err
  end,
  function()
    local object, err = json.decode('{"b":1,"a":2}', { ordered = true })
    if not object then return nil, err end
    object.c, object.d = 3, 4
    return json.encode(object, { indent = 4 })
  end,
  -- These are last, since each keeps memory for the next call.
  function() return json.decode(TEXT) end,
  function() return json.decode(TEXT, { ordered = true, duplicates = "error" }) end,
  function() return json.encode(VALUE, { sort_keys = true }) end,
})

describe("an object that changes while it is encoded", function()
  it("causes no crash", function()
    local value, is_over = {}, false
    local change = compat.interpreted(function()
      for i = 1, 50 do value["k" .. math.random(200)] = i % 3 > 0 and i or nil end
    end)
    local function haunt()
      compat.sentinel(function()
        if is_over then return end
        haunt()
        change()
      end)
    end
    haunt()
    for _ = 1, dose.of(200, 2000) do
      pcall(json.encode, value, { sort_keys = true, indent = 1 })
      pcall(json.encode, { value, value })
      pcall(json.encode, decode('{"k1":1,"k2":2}', { ordered = true }))
      collectgarbage "step"
    end
    is_over = true
  end)
end)
