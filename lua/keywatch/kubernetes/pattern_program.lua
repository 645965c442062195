-- SPDX-License-Identifier: MIT
--- pattern_program: a nondeterministic automaton over the bytes of UTF-8, made from the tree of a pattern. Its states
-- are tables with one of these fields:
--
--   set, next     reads one byte of a set, whose bytes are keys, and continues
--   branches      continues in all states of a list, without reading
--   assert, next  continues if an assertion holds, without reading
--   is_match      the pattern matches
--
-- Each state has its number `id`.

local MAX_STEPS = 30000 -- of making: states, and copies of repeated nodes
local LAST_OF_LENGTH = { 0x7F, 0x7FF, 0xFFFF, 0x10FFFF } -- code points

-- {====== Ranges as bytes ======

--- Returns the bytes of a code point whose character has this many.
local function bytes_of(code, length)
  if length == 1 then return { code } end
  local bytes = {}
  for i = length, 2, -1 do
    bytes[i] = 0x80 + code % 64
    code = math.floor(code / 64)
  end
  bytes[1] = code + ({ [2] = 0xC0, [3] = 0xE0, [4] = 0xF0 })[length]
  return bytes
end

--- Calls fn(ranges) for sequences of ranges of bytes that together are all characters from one code point to another.
-- Both have `length` bytes.
local function split(from, to, length, fn)
  for i = 1, length - 1 do
    local unit = 64 ^ i -- characters that differ only in their last i bytes
    if math.floor(from / unit) ~= math.floor(to / unit) then
      local first_end, last_begin = from - from % unit + unit - 1, to - to % unit
      if from % unit ~= 0 then
        split(from, first_end, length, fn)
        return split(first_end + 1, to, length, fn)
      end
      if to % unit ~= unit - 1 then
        split(from, last_begin - 1, length, fn)
        return split(last_begin, to, length, fn)
      end
    end
  end
  local low, high, ranges = bytes_of(from, length), bytes_of(to, length), {}
  for i = 1, length do ranges[i] = { low[i], high[i] } end
  fn(ranges)
end

--- Calls fn like split, for a range of any characters.
local function each_sequence(from, to, fn)
  for length, last in ipairs(LAST_OF_LENGTH) do
    if from <= last then
      split(from, math.min(to, last), length, fn)
      from = last + 1
    end
    if from > to then return end
  end
end

-- }======

-- {====== States ======

--- Counts a step of making a program. Raises the reason if there were too many.
local function step(program)
  program.steps = program.steps + 1
  if program.steps > MAX_STEPS then error({ why = "is too large: its repetitions multiply" }, 0) end
end

--- Adds a state. Returns it.
local function add(program, state)
  step(program)
  program.n = program.n + 1
  state.id = program.n
  return state
end

--- Returns the set of the bytes of a range: the same table for the same range.
local function bytes_in(program, range)
  local key = range[1] * 256 + range[2]
  local set = program.sets[key]
  if not set then
    set = {}
    for byte = range[1], range[2] do set[byte] = true end
    program.sets[key] = set
  end
  return set
end

--- Sets `ascii` of a node, the set of its bytes that are a character; and `sequences`, the lists of sets of bytes that
-- are its other characters.
local function prepare(program, node)
  node.ascii, node.sequences = {}, {}
  local function add_sequence(ranges)
    if #ranges == 1 then
      for byte = ranges[1][1], ranges[1][2] do node.ascii[byte] = true end
    else
      for i, range in ipairs(ranges) do ranges[i] = bytes_in(program, range) end
      node.sequences[#node.sequences + 1] = ranges
    end
  end
  for _, range in ipairs(node.ranges) do each_sequence(range[1], range[2], add_sequence) end
end

--- Returns the state that reads a byte of a set, and continues in `next_state`. `known` has such states, by set, of one
-- node.
local function byte_state(program, set, next_state, known)
  local states = known[next_state] or {}
  known[next_state] = states
  states[set] = states[set] or add(program, { set = set, next = next_state })
  return states[set]
end

--- Returns the state that reads a character of a node.
local function set_state(program, node, next_state)
  if not node.sequences then prepare(program, node) end
  local branches, known, is_branch = {}, {}, {}
  for _, sequence in ipairs(node.sequences) do
    local state = next_state
    for i = #sequence, 1, -1 do state = byte_state(program, sequence[i], state, known) end
    if not is_branch[state] then branches[#branches + 1], is_branch[state] = state, true end
  end
  if next(node.ascii) then branches[#branches + 1] = add(program, { set = node.ascii, next = next_state }) end
  if #branches == 1 then return branches[1] end
  return add(program, { branches = branches })
end

-- }======

-- {====== Nodes ======

local make

-- By the op of a node: functions that return the state in which the node begins; it continues in `next`.
local makers = {}

function makers.set(program, node, next_state) return set_state(program, node, next_state) end

function makers.assert(program, node, next_state)
  program.asserts[node.kind] = true
  return add(program, { assert = node.kind, next = next_state })
end

function makers.cat(program, node, next_state)
  for i = #node, 1, -1 do next_state = make(program, node[i], next_state) end
  return next_state
end

function makers.alt(program, node, next_state)
  local branches = {}
  for i, inner in ipairs(node) do branches[i] = make(program, inner, next_state) end
  return add(program, { branches = branches })
end

makers["repeat"] = function(program, node, next_state)
  local inner, state = node[1], next_state
  if node.max then
    for _ = node.min + 1, node.max do
      state = add(program, { branches = { make(program, inner, state), next_state } })
    end
  else
    state = add(program, { branches = { next_state } })
    state.branches[2] = make(program, inner, state)
  end
  for _ = 1, node.min do state = make(program, inner, state) end
  return state
end

function make(program, node, next_state)
  step(program)
  return makers[node.op](program, node, next_state)
end

--- True if a node matches only at the beginning of the text.
local function is_anchored(node)
  if node.op == "assert" then return node.kind == "begin" end
  if node.op == "cat" then return node[1] ~= nil and is_anchored(node[1]) end
  if node.op == "repeat" then return node.min > 0 and is_anchored(node[1]) end
  if node.op ~= "alt" then return false end
  for _, inner in ipairs(node) do
    if not is_anchored(inner) then return false end
  end
  return true
end

-- }======

--- Returns the program of a tree: { first = a state, n = the number of states, asserts = the kinds of its assertions as
-- keys, is_anchored }; or nil and the reason why it is refused, as a predicate.
local function of(tree)
  local program = { n = 0, steps = 0, sets = {}, asserts = {}, is_anchored = is_anchored(tree) }
  local ok, found = pcall(make, program, tree, add(program, { is_match = true }))
  if ok then
    program.first = found
    return program
  end
  if type(found) ~= "table" or not found.why then error(found, 0) end
  return nil, found.why
end

return { of = of }
