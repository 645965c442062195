--- A strict parser of Prometheus' text format, version 0.0.4.

local NAME, LABEL = "^[%a_:][%w_:]*", "^[%a_][%w_]*"
local UNESCAPED = { ["\\\\"] = "\\", ['\\"'] = '"', ["\\n"] = "\n" }
local TYPES = { counter = true, gauge = true, histogram = true, summary = true, untyped = true }

--- Raises unless a text is valid UTF-8 without control characters.
local function check_text(text, line)
  assert(not text:find("%c"), "a control character in: " .. line)
  local rest = text
  while rest ~= "" do
    local n = #(rest:match("^[\1-\127]") or rest:match("^[\194-\223][\128-\191]")
      or rest:match("^[\224-\239][\128-\191][\128-\191]") or rest:match("^[\240-\244][\128-\191][\128-\191][\128-\191]")
      or error("not UTF-8: " .. line))
    rest = rest:sub(n + 1)
  end
end

--- Returns the value of a label whose opening quote is before `at`; and the position after the closing quote.
local function read_value(line, at)
  local parts = {}
  while true do
    local plain = line:match('^[^\\"]+', at)
    if plain then
      parts[#parts + 1], at = plain, at + #plain
    elseif line:sub(at, at) == '"' then
      return table.concat(parts), at + 1
    else
      local escaped = assert(UNESCAPED[line:sub(at, at + 1)], "a wrong escape, or no end, in: " .. line)
      parts[#parts + 1], at = escaped, at + 2
    end
  end
end

--- Returns the labels of a line whose "{" is at `at`; and the position after "}".
local function read_labels(line, at)
  local labels = {}
  at = at + 1
  while line:sub(at, at) ~= "}" do
    local name = assert(line:sub(at):match(LABEL), "no name of a label in: " .. line)
    at = at + #name
    assert(line:sub(at, at + 1) == '="', "no value of a label in: " .. line)
    assert(labels[name] == nil, "a label twice in: " .. line)
    labels[name], at = read_value(line, at + 2)
    local separator = line:sub(at, at)
    assert(separator == "," or separator == "}", "no end of labels in: " .. line)
    if separator == "," then at = at + 1 end
  end
  return labels, at + 1
end

local function read_number(text, line)
  if text == "NaN" then return 0 / 0 end
  if text == "+Inf" then return math.huge end
  if text == "-Inf" then return -math.huge end
  assert(text:find("^%-?%d+%.?%d*[eE]?[+-]?%d*$"), "no number in: " .. line)
  return assert(tonumber(text))
end

--- True if samples of a family may have a name.
local function is_name_of(family, name)
  if family.type ~= "histogram" then return name == family.name end
  local rest = name:sub(1, #family.name) == family.name and name:sub(#family.name + 1)
  return rest == "_bucket" or rest == "_sum" or rest == "_count"
end

--- Adds the sample of a line to the current family.
local function read_sample(family, line)
  local name = assert(line:match(NAME), "no name in: " .. line)
  assert(family and is_name_of(family, name), "a sample outside of its family: " .. line)
  local labels, at = {}, #name + 1
  if line:sub(at, at) == "{" then labels, at = read_labels(line, at) end
  local number = assert(line:sub(at):match("^ (%S+)$"), "no value in: " .. line)
  local key = line:sub(1, at - 1)
  assert(not family.keys[key], "a sample twice: " .. line)
  family.keys[key] = true
  table.insert(family.samples, { name = name, labels = labels, value = read_number(number, line) })
end

--- Raises unless each histogram of a family has cumulative buckets in rising order, and the last one has all values.
local function check_histograms(family)
  local bound, count = -math.huge, 0
  for _, sample in ipairs(family.samples) do
    if sample.name == family.name .. "_bucket" then
      local le = read_number(sample.labels.le, family.name)
      assert(le > bound and sample.value >= count, family.name .. " has wrong buckets")
      bound, count = le, sample.value
    elseif sample.name == family.name .. "_count" then
      assert(bound == math.huge and sample.value == count, family.name .. " has a wrong count")
      bound, count = -math.huge, 0
    end
  end
end

--- Returns the families of a text, in order and by name: { name, type, help, samples = { { name, labels, value } } }.
local function parse(text)
  assert(text == "" or text:sub(-1) == "\n", "the last line does not end")
  local families, family = {}, nil
  for line in text:gmatch("([^\n]*)\n") do
    check_text(line, line)
    local name, help = line:match("^# HELP (%S+) (.*)$")
    if name then
      assert(name:find(NAME .. "$") and not families[name], "a second HELP, or a wrong name: " .. line)
      assert(not help:gsub("\\[\\n]", ""):find("\\"), "a wrong escape: " .. line)
      family = { name = name, help = help, samples = {}, keys = {} }
      families[name], families[#families + 1] = family, family
    elseif line:find("^# TYPE ") then
      local of, kind = line:match("^# TYPE (%S+) (%S+)$")
      assert(family and of == family.name and not family.type and #family.samples == 0 and TYPES[kind],
        "a wrong TYPE: " .. line)
      family.type = kind
    else
      assert(family and family.type, "a sample without a type: " .. line)
      read_sample(family, line)
    end
  end
  for _, one in ipairs(families) do
    assert(#one.samples > 0, one.name .. " has no sample")
    local is_own = one.name:find("^keywatch_")
    assert(not is_own or (one.type == "counter") == (one.name:find("_total$") ~= nil),
      one.name .. " has a name of another type")
    if one.type == "histogram" then check_histograms(one) end
  end
  return families
end

--- Returns the value of the sample of a family that has these labels; of a histogram, with the name `part`.
local function value(families, name, labels, part)
  for _, sample in ipairs(assert(families[name], "there is no " .. name).samples) do
    local is_same = true
    for label, wanted in pairs(labels or {}) do is_same = is_same and sample.labels[label] == wanted end
    if is_same and (not part or sample.name == part) then return sample.value end
  end
end

return { parse = parse, value = value }
