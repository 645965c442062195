--- Selectors: their texts and tables, the objects that they match, and the errors of invalid selectors.

local keywatch = require "keywatch"

local cjson = require "cjson"

local dose = require "spec.support.dose"

local function labels(given) return keywatch.selector(given) end
local function fields(given) return keywatch.selector(given, { kind = "fields" }) end

--- An object with labels.
local function labelled(found) return { metadata = { labels = found } } end

--- Returns the error of a selector's text.
local function refusal(make, given)
  local ok, err = pcall(make, given)
  assert.is_false(ok)
  return (err:gsub("^.-selector: ", ""))
end

describe("a label selector", function()
  -- Selectors, labels, and whether they match.
  local CASES = {
    { "", {}, true }, { "  ", { a = "b" }, true },
    { "a=b", { a = "b" }, true }, { "a=b", { a = "c" }, false }, { "a=b", {}, false },
    { "a==b", { a = "b" }, true }, { " a == b ", { a = "b" }, true },
    { "a=", { a = "" }, true }, { "a=", {}, false }, { "a=", { a = "b" }, false },
    { "a!=b", { a = "c" }, true }, { "a!=b", { a = "b" }, false }, { "a!=b", {}, true }, { "a!=", {}, true },
    { "a!=", { a = "" }, false },
    { "a in (b, c)", { a = "c" }, true }, { "a in (b,c)", { a = "d" }, false }, { "a in (b,c)", {}, false },
    { "a in ()", { a = "" }, true }, { "a in ()", {}, false }, { "a in (b,)", { a = "" }, true },
    { "a in (,b)", { a = "" }, true }, { "a in(b)", { a = "b" }, true },
    { "a notin (b,c)", { a = "d" }, true }, { "a notin (b,c)", { a = "b" }, false }, { "a notin (b)", {}, true },
    { "a", { a = "" }, true }, { "a", {}, false }, { "!a", {}, true }, { "!a", { a = "b" }, false },
    { "! a", {}, true }, { "a>3", { a = "4" }, true }, { "a>3", { a = "3" }, false }, { "a>3", { a = "x" }, false },
    { "a>3", {}, false }, { "a<3", { a = "-10" }, true }, { "a<3", { a = "3" }, false }, { "a<-3", { a = "-4" }, true },
    { "a>-3", { a = "0" }, true }, { "a>-3", { a = "-2" }, true }, { "a>09", { a = "10" }, true },
    { "a>9007199254740992", { a = "9007199254740993" }, true },
    { "a<9007199254740993", { a = "9007199254740993" }, false },
    { "a<9", { a = "99999999999999999999" }, false }, { "a>9", { a = "99999999999999999999" }, false },
    { "a>-9223372036854775808", { a = "-9223372036854775807" }, true }, { "a>1", { a = "1.5" }, false },
    { "a=b,c=d", { a = "b", c = "d" }, true }, { "a=b,c=d", { a = "b" }, false }, { "a=b,a!=b", { a = "b" }, false },
    { "a,!b, c in (x,y) ,d!=e", { a = "1", c = "y" }, true },
    { "in in (in,notin)", { ["in"] = "notin" }, true }, { "notin", { notin = "" }, true },
    { "example.com/app.name=web", { ["example.com/app.name"] = "web" }, true },
    { "example.com/app.name=web", { example = { ["com/app"] = { name = "web" } } }, false },
  }

  it("matches as its text says", function()
    for _, case in ipairs(CASES) do
      assert.equal(case[3], labels(case[1]):matches(labelled(case[2])), case[1] .. " " .. cjson.encode(case[2]))
    end
  end)

  it("reports where a text is malformed", function()
    for text, why in pairs {
      ["a,"] = "'a,' ends at byte 3, where a name is expected",
      [",a"] = "',a' has ',' at byte 1, where a name is expected",
      ["=b"] = "'=b' has '=' at byte 1, where a name is expected",
      ["a in b"] = "'a in b' has 'b' at byte 6, where '(' is expected",
      ["a in"] = "'a in' ends at byte 5, where '(' is expected",
      ["a in (b"] = "'a in (b' ends at byte 8, where ',' or ')' is expected",
      ["a in (b c)"] = "'a in (b c)' has 'c' at byte 9, where ',' or ')' is expected",
      ["a b"] = "'a b' has 'b' at byte 3, where ',' or the end is expected",
      ["a=b=c"] = "'a=b=c' has '=' at byte 4, where ',' or the end is expected",
      ["!"] = "'!' ends at byte 2, where a name is expected",
      ["!a=b"] = "'!a=b' has '=' at byte 3, where ',' or the end is expected",
      ["a>"] = "'a>' ends at byte 3, where a whole number is expected",
      ["a>1.5"] = "'a>1.5' has '1.5' at byte 3, where a whole number is expected",
      ["a<9223372036854775808"] = "'a<9223372036854775808' has '9223372036854775808' at byte 3, where a whole number "
        .. "is expected",
    } do assert.equal(why, refusal(labels, text)) end
  end)

  it("looks for labels in another place if that is set", function()
    local object = { labels = { a = "b" }, meta = { tags = { a = "c" } } }
    assert.is_true(keywatch.selector("a=b", { labels_at = "labels" }):matches(object))
    assert.is_true(keywatch.selector("a=c", { labels_at = "meta.tags" }):matches(object))
    assert.is_false(labels("a=b"):matches(object))
  end)

  it("does not match values that are not objects, unless the selector is empty", function()
    for _, object in ipairs { "text", 5, true, {}, { metadata = 5 }, { metadata = { labels = "x" } }, cjson.null } do
      assert.same({ false, true }, { labels("a=b"):matches(object), labels("a!=b"):matches(object) })
      assert.is_true(labels(""):matches(object))
    end
    assert.is_false(labels("a"):matches(nil))
  end)

  it("does not match an object that raises when its fields are read", function()
    local object = setmetatable({}, { __index = function() error("no") end })
    assert.same({ false, false }, { labels("a!=b"):matches(object), fields("a!=b"):matches(object) })
  end)

  it("prints as a text with the same meaning", function()
    for _, text in ipairs { "", "a=b", "a!=b", "a in (b,c)", "a notin (b,c)", "a", "!a", "a>3", "a<-3", "a=",
      "a=b,!c,d in (,x)" } do
      assert.equal(text, tostring(labels(text)))
    end
    assert.equal("a=b,c", tostring(labels(" a == b , c ")))
  end)
end)

describe("a field selector", function()
  -- Selectors, objects, and whether they match.
  local CASES = {
    { "", {}, true }, { ",", {}, true },
    { "a=b", { a = "b" }, true }, { "a==b", { a = "b" }, true }, { "a=b", {}, false },
    { "a!=b", { a = "c" }, true }, { "a!=b", {}, true }, { "a!=b", { a = "b" }, false },
    { "a=", {}, true }, { "a=", { a = "" }, true }, { "a!=", {}, false }, { "a!=", { a = "x" }, true },
    { "spec.nodeName=n1", { spec = { nodeName = "n1" } }, true }, { "spec.nodeName=n1", { spec = "n1" }, false },
    { "spec.nodeName=", { spec = {} }, true }, { "spec.nodeName=n1,status.phase!=Done",
      { spec = { nodeName = "n1" }, status = { phase = "Running" } }, true },
    { "a=b\\,c", { a = "b,c" }, true }, { "a=b\\=c", { a = "b=c" }, true }, { "a=b\\\\c", { a = "b\\c" }, true },
    { "a=b c", { a = "b c" }, true }, { "a=b,  c=d", { a = "b", c = "d" }, true }, { "a=b ", { a = "b" }, false },
    { "a\\.b=c", { ["a.b"] = "c" }, true }, { "a\\.b=c", { a = { b = "c" } }, false },
    { "a=b!c", { a = "b!c" }, true }, { "spec=x", { spec = {} }, false }, { "spec!=x", { spec = {} }, true },
  }

  it("matches as its text says", function()
    for _, case in ipairs(CASES) do
      assert.equal(case[3], fields(case[1]):matches(case[2]), case[1] .. " " .. cjson.encode(case[2]))
    end
  end)

  it("reports where a text is malformed", function()
    for text, why in pairs {
      ["a"] = "'a' has 'a' at byte 1, which has no '=', '==' or '!='",
      ["a=b,c in (d)"] = "'a=b,c in (d)' has 'c in (d)' at byte 5, which has no '=', '==' or '!='",
      ["a>1"] = "'a>1' has 'a>1' at byte 1, which has no '=', '==' or '!='",
      ["a=b=c"] = "'a=b=c' has '=' at byte 4, which needs a backslash",
      ["a=\\x"] = "'a=\\x' has a backslash at byte 3, which stands only before ',', '=' and '\\'",
      ["a=b\\"] = "'a=b\\' has a backslash at byte 4, which stands only before ',', '=' and '\\'",
      ["=b"] = "'=b' has no name at byte 1",
    } do assert.equal(why, refusal(fields, text)) end
  end)

  it("treats a number as its text, the same on every VM", function()
    for _, case in ipairs {
      { "1", 1 }, { "1", 1.0 }, { "0", -0.0 }, { "-5", -5 }, { "9007199254740992", 2 ^ 53 }, { "0.1", 0.1 },
      { "1.5", 1.5 }, { "-9223372036854775808", -2 ^ 63 }, { "9.2233720368548e+18", 2 ^ 63 }, { "1e+300", 1e300 },
      { "inf", math.huge }, { "-inf", -math.huge }, { "nan", 0 / 0 }, { "nan", -(0 / 0) }, { "true", true },
      { "false", false },
    } do
      assert.is_true(fields({ n = case[1] }):matches { n = case[2] }, case[1])
      assert.is_true(fields("n=" .. case[1]):matches { n = case[2] }, case[1])
      assert.is_false(fields("n!=" .. case[1]):matches { n = case[2] }, case[1])
      assert.is_true(fields({ n = case[2] }):matches { n = case[2] }, case[1])
    end
    assert.is_false(fields("n=1.0"):matches { n = 1 })
  end)

  it("treats a JSON number as its text", function()
    local object = cjson.decode('{"n":1,"big":9007199254740992,"deep":{"x":[1],"y":1.50,"z":null},"e":1e300,"m":-0}')
    for _, text in ipairs { "n=1", "big=9007199254740992", "deep.y=1.5", "e=1e+300", "m=0", "deep.z=", "deep.w=",
      "deep.z!=null", "n!=1.0" } do
      assert.is_true(fields(text):matches(object), text)
    end
    assert.is_false(fields { ["deep.z"] = { exists = true } }:matches(object))
    assert.is_true(fields { ["deep.x"] = { exists = true } }:matches(object))
  end)

  it("prints as a text with the same meaning", function()
    for _, text in ipairs { "", "a=b", "a!=b", "a.b=c\\,d\\=e\\\\f,g=" } do
      assert.equal(text, tostring(fields(text)))
    end
  end)
end)

describe("a selector of a very long text", function()
  local N = dose.is_small and 1e5 or 1e6 -- with a time that grows with the square, each of these takes hours

  it("is parsed quickly", function()
    local zeros, blanks = ("0"):rep(N), (" "):rep(N)
    assert.is_false(pcall(labels, "n>" .. zeros .. "x"))
    assert.is_true(labels("n<" .. zeros .. "2"):matches(labelled { n = 1 }))
    assert.is_true(fields(blanks .. "a b" .. blanks .. "= c"):matches { ["a b"] = " c" })
    assert.is_false(pcall(fields, blanks .. "a" .. blanks .. "b" .. blanks))
    assert.is_true(fields("a" .. blanks .. "b=c"):matches { ["a" .. blanks .. "b"] = "c" })
    assert.is_true(fields(zeros .. "=c"):matches { [zeros] = "c" })
  end)

  it("with very long values matches quickly", function()
    assert.is_false(labels("n>1"):matches(labelled { n = ("0"):rep(N) .. "x" }))
    assert.is_true(labels("n>1"):matches(labelled { n = ("0"):rep(N) .. "2" }))
  end)
end)

describe("a selector as a table", function()
  -- Tables, and the texts that mean the same.
  local CASES = {
    { { a = "b" }, "a=b" }, { { a = 1 }, "a=1" }, { { a = 1.0 }, "a=1" }, { { a = true }, "a=true" },
    { { a = false }, "a=false" }, { { a = { "b", "c" } }, "a in (b,c)" }, { { a = { "b" } }, "a=b" },
    { { a = { 1, true } }, "a in (1,true)" }, { { a = { not_in = { "b", "c" } } }, "a notin (b,c)" },
    { { a = { not_in = "b" } }, "a!=b" }, { { a = { exists = true } }, "a" }, { { a = { exists = false } }, "!a" },
    { { a = { above = 3 } }, "a>3" }, { { a = { below = "9" } }, "a<9" },
    { { a = { above = 3, below = 9 } }, "a<9,a>3" },
    { { b = "x", a = "y" }, "a=y,b=x" }, { {}, "" },
  }

  it("is the same as a text", function()
    for _, case in ipairs(CASES) do
      assert.equal(case[2], tostring(labels(case[1])))
      assert.equal(case[2], tostring(fields(case[1])))
    end
  end)

  it("is refused if it is malformed", function()
    for _, given in ipairs {
      { "a" }, { a = {} }, { a = { colour = 1 } }, { a = { above = 1.5 } }, { a = { above = "x" } },
      { a = { exists = 1 } }, { a = print }, { [""] = "x" }, { a = { {} } }, { a = { not_in = {}, b = 1 } },
      { a = { "x", exists = true } },
    } do assert.matches("^argument #1 has an invalid requirement for ", refusal(labels, given)) end
    assert.equal("argument #1 must be a text, a table or a selector, not 5", refusal(labels, 5))
  end)

  it("may be a selector, of the same kind", function()
    local one = labels("a=b")
    assert.equal(one, labels(one))
    assert.equal("argument #1 is a selector of labels", refusal(fields, one))
  end)
end)
