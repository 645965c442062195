--- Regular expressions: their syntax, against a plain matcher, and patterns and texts that explode elsewhere.

local pattern = require "keywatch.kubernetes.pattern"
local syntax = require "keywatch.kubernetes.pattern_syntax"

local dose = require "spec.support.dose"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local function matches(text, found)
  return assert(pattern.compile(text)):matches(found, pattern.budget())
end

describe("a pattern", function()
  -- Patterns, texts, and whether they match.
  local CASES = {
    { "a", "xay", true }, { "^a$", "a", true }, { "^a$", "aa", false }, { "", "", true }, { "", "x", true },
    { "^$", "", true }, { "^$", "x", false }, { "a|b", "c", false }, { "a|", "c", true }, { "^(a|b)*$", "abab", true },
    { "^(?:ab)+$", "abab", true }, { "^(?P<n>ab)$", "ab", true }, { "^(a*)*$", "aaa", true }, { "^(|a)+$", "aa", true },
    { "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "ab-c", true }, { "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "ab-", false },
    { "^a?$", "", true }, { "^a{2}$", "aa", true }, { "^a{2}$", "aaa", false }, { "^a{2,}$", "aaaa", true },
    { "^a{2,3}$", "aaaa", false }, { "^a{0}b$", "b", true }, { "^a+?b*?$", "aab", true }, { "^x{,3}$", "x{,3}", true },
    { "^a.c$", "a\nc", false }, { "(?s)^a.c$", "a\nc", true }, { "(?m)^b$", "a\nb\nc", true },
    { "^b$", "a\nb\nc", false },
    { "(?i)^Foo[x-z]$", "fOOY", true }, { "^(?i:a)b$", "Ab", true }, { "^(?i:a)b$", "AB", false },
    { "^(?:a(?i)b)c$", "aBc", true }, { "^(?:a(?i)b)c$", "aBC", false },
    { "^\\d\\D\\s\\S\\w\\W$", "1a b_-", true }, { "^[\\d\\-x]+$", "1-x", true }, { "^[^\\d]$", "1", false },
    { "\\bfoo\\b", "a foo b", true }, { "\\bfoo\\b", "afoo b", false }, { "o\\B", "foo", true }, { "^\\B$", "", true },
    { "\\Aa\\z", "a", true }, { "\\Aa\\z", "a\n", false }, { "^\\.\\/\\$$", "./$", true },
    { "^\\x41\\x{42}\\n\\t\\060$", "AB\n\t0", true }, { "^\\Qa.b\\E+$", "a.bbb", false },
    { "^\\Qa.b\\Ec$", "a.bc", true },
    { "^[]a]+$", "]a", true }, { "^[^]a]$", "]", false }, { "^[a-]+$", "a-", true },
    { "^[[:alpha:][:digit:]]+$", "aB3", true },
    { "^[[:^alpha:]]$", "a", false }, { "^[.*+?]$", "+", true },
    { "^.{2}$", "\195\164\226\130\172", true }, { "^[^/]$", "\240\159\152\128", true },
    { "^..$", "\240\159\152\128", false },
    { "^[\195\164-\195\188]$", "\195\182", true }, { "^[\195\164-\195\188]$", "\195\163", false },
    { "^[\\x{100}-\\x{10000}]$", "\240\144\128\128", true }, { "^[\\x{100}-\\x{10000}]$", "\240\144\128\129", false },
    { "^\195\164+$", "\195\164\195\164", true }, { "a\0b", "a\0b", true },
  }

  it("matches as in Go", function()
    for _, case in ipairs(CASES) do
      assert.equal(case[3], matches(case[1], case[2]), ("%q %q"):format(case[1], case[2]))
    end
  end)

  it("is refused with a reason if its syntax is unknown or not supported", function()
    for text, why in pairs {
      ["(?=a)"] = "has a lookahead or a lookbehind, which is not supported",
      ["(?<!a)"] = "has a lookahead or a lookbehind, which is not supported",
      ["(a)\\1"] = "has a back reference, which is not supported",
      ["\\pL"] = "has a class of Unicode, such as \\pL, which is not supported",
      ["\\y"] = "has an unknown escape: \\y",
      ["\\"] = "ends in a backslash",
      ["a**"] = "repeats a repetition before byte 4",
      ["*a"] = "repeats nothing at byte 1",
      ["a|+"] = "repeats nothing at byte 3",
      ["(a"] = "has a parenthesis that is not closed",
      ["a)"] = "has a ')' without '(' at byte 2",
      ["[a"] = "has a bracket that is not closed",
      ["[b-a]"] = "has a range whose end is before its beginning",
      ["[[:nope:]]"] = "has an unknown class: [:nope:]",
      ["a{1001}"] = "has a repetition that is not from 0 to 1000",
      ["a{3,2}"] = "has a repetition that is not from 0 to 1000",
      ["(?x)a"] = "has an unknown group: (?x",
      ["\\x{110000}"] = "has an escape of no character: \\x{110000}",
      ["\255"] = "is not UTF-8",
    } do
      assert.same({ nil, why }, { pattern.compile(text) })
    end
  end)

  it("is refused if it would take much memory", function()
    local huge = { "((a{100}){100}){100}", "((((){1000}){1000}){1000}){1000}", "[^/]{1000}{1000}", ("("):rep(300),
      ("a"):rep(20000), ("(a?"):rep(150) .. ("){9}"):rep(150) }
    for _, text in ipairs(huge) do
      local found, why = pattern.compile(text)
      assert.is_nil(found)
      assert.is_string(why)
    end
  end)
end)

-- {====== A plain matcher ======

--- True if a text matches: computes sets of positions from the tree of the pattern, character by character.
local function plainly(tree, text)
  local codes = { text:byte(1, -1) }
  local n = #codes

  local function is_word(i) return codes[i] ~= nil and string.char(codes[i]):find("^[%w_]$") ~= nil end

  local HOLDS = {
    ["begin"] = function(at) return at == 1 end,
    ["end"] = function(at) return at == n + 1 end,
    ["word"] = function(at) return is_word(at - 1) ~= is_word(at) end,
    ["not word"] = function(at) return is_word(at - 1) == is_word(at) end,
  }

  local ends

  local function of_all(node, positions)
    local found = {}
    for at in pairs(positions) do
      for stop in pairs(ends(node, at)) do found[stop] = true end
    end
    return found
  end

  local function repeated(node, at)
    local found, current = {}, { [at] = true }
    for i = 0, node.max or node.min + n + 1 do
      if i >= node.min then
        for stop in pairs(current) do found[stop] = true end
      end
      current = of_all(node[1], current)
    end
    return found
  end

  function ends(node, at)
    if node.op == "set" then
      for _, range in ipairs(node.ranges) do
        if codes[at] and codes[at] >= range[1] and codes[at] <= range[2] then return { [at + 1] = true } end
      end
      return {}
    end
    if node.op == "assert" then return HOLDS[node.kind](at) and { [at] = true } or {} end
    if node.op == "repeat" then return repeated(node, at) end
    local found = node.op == "cat" and { [at] = true } or {}
    for _, inner in ipairs(node) do
      if node.op == "cat" then
        found = of_all(inner, found)
      else
        for stop in pairs(ends(inner, at)) do found[stop] = true end
      end
    end
    return found
  end

  for at = 1, n + 1 do
    if next(ends(tree, at)) then return true end
  end
  return false
end

-- }======

describe("random patterns #slow", function()
  math.randomseed(seed)

  local ATOMS = { "a", "b", "c", "-", ".", "[ab]", "[^a]", "\\w", "\\b", "\\B", "^", "$" }
  local REPEATS = { "", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}" }

  local function random_pattern(depth)
    local parts = {}
    for i = 1, math.random(3) do
      local atom = ATOMS[math.random(#ATOMS)]
      if depth > 0 and math.random(3) == 1 then atom = "(" .. random_pattern(depth - 1) .. ")" end
      parts[i] = atom .. (atom:find("^[%^$\\]") and "" or REPEATS[math.random(#REPEATS)])
    end
    return table.concat(parts, math.random(5) == 1 and "|" or "")
  end

  local function random_text()
    local chars = {}
    for i = 1, math.random(0, 8) do chars[i] = ("abc-"):sub(math.random(4), -1):sub(1, 1) end
    return table.concat(chars)
  end

  it("match as a plain matcher says", function()
    local found = { [true] = 0, [false] = 0 }
    for _ = 1, dose.of(400, 4000) do
      local text = random_pattern(2)
      local tree, compiled = assert(syntax.parse(text)), assert(pattern.compile(text))
      for _ = 1, 5 do
        local subject = random_text()
        local expected = plainly(tree, subject)
        assert.equal(expected, compiled:matches(subject, pattern.budget()),
          ("seed %d: %q %q"):format(seed, text, subject))
        found[expected] = found[expected] + 1
      end
    end
    assert(found[true] > 100 and found[false] > 100)
  end)
end)

-- Slow where each byte is read under supervision: the texts are long.
describe("a budget of patterns #slow", function()
  it("suffices for texts on which backtracking explodes", function()
    local text = ("a"):rep(100000) .. "!"
    for _, one in ipairs { "^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "^(.*a){20}$", "^(a*)*b$", "(a+)+b" } do
      assert.is_false(matches(one, text), one)
    end
    assert.is_true(matches("(a|b)*a(a|b){21}$", ("abbab"):rep(20000)))
  end)

  it("ends the work on a pattern with exponentially many states, and bounds its memory", function()
    local letters = {}
    for i = 1, 100000 do letters[i] = math.random(2) == 1 and "a" or "b" end
    local compiled = assert(pattern.compile "(a|b)*a(a|b){100}c")
    for _ = 1, 5 do assert.is_nil(compiled:matches(table.concat(letters), pattern.budget())) end
    assert(compiled.known < 200000)
    assert.is_true(compiled:matches("a" .. ("b"):rep(100) .. "c", pattern.budget()))
  end)

  it("is shared by the texts of an object", function()
    local compiled, budget, n = assert(pattern.compile "^a*$"), pattern.budget(), 0
    local text = ("a"):rep(10000)
    while compiled:matches(text, budget) do n = n + 1 end
    assert(n > 50 and n < 1000)
    assert.is_nil(compiled:matches("a", budget))
  end)
end)
