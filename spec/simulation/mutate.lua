--- The program of `make mutations`: breaks a copy of the sources on purpose, one mutation of mutations.lua after the
-- other, and looks for the first seed whose simulation fails.
--
--   mutate.lua --vm=VM --include=DIR [--only=NAME,…] [--seeds=N] [--jobs=J]
--
-- A C file is compiled with its change, and linked with the object files of the rock in build/VM; a Lua file is put
-- into the first folder of LUA_PATH. A mutation whose text does not occur exactly once in its file is an error. The
-- unchanged sources must pass the seed that fails with the mutation. The last line is "N passed, N failed".

local mutations = require "spec.simulation.mutations"
local files = require "spec.support.files"
local shell = require "spec.support.shell"

local FIRST, MOST = 4, 32      -- seeds of a round: of the first one, and at most
local SHOWN = 200              -- bytes of an objection
local LIBRARIES = "-lnghttp2 -llmdb -lcrypt -lpthread -lm"

local options = { seeds = 1000, jobs = 1 }
for _, word in ipairs(arg) do
  local name, value = word:match("^%-%-(%a+)=(.*)$")
  if not name then error("mutate: what is " .. word .. "?", 0) end
  if value ~= "" then options[name] = tonumber(value) or value end
end

local scratch = "build/mutations/" .. options.vm

--- Writes the file of a mutation, with its change, below a folder. Returns the path.
local function write_changed(one, folder)
  local text = files.read(one.file)
  local from, to = text:find(one.text, 1, true)
  if not from or text:find(one.text, to + 1, true) then
    error(("%s: the text is %s in %s"):format(one.name, from and "more than once" or "not", one.file), 0)
  end
  local path = folder .. "/" .. one.file
  shell.must("mkdir -p " .. path:match("^(.*)/"))
  return files.write(path, text:sub(1, from - 1) .. one.by .. text:sub(to + 1))
end

--- Builds keywatch.core with a changed C file. Warnings are off: the change may leave a function unused.
local function build_core(one, folder, path)
  local objects = {}
  local source = ("build/%s/src/csrc"):format(options.vm)
  local list = shell.must(("ls %s/*/*.o | grep -v -e /exec/ -e /tls/ -e /uv/"):format(source))
  local own = path:gsub("%.c$", ".o")
  for object in list:gmatch("%S+") do
    local is_changed = object == source .. one.file:match("^csrc(/.*)%.c$") .. ".o"
    objects[#objects + 1] = is_changed and own or object
  end
  shell.must(("mkdir -p %s/keywatch\nccache cc -O2 -fPIC -w -I%s -I%s -c %s -o %s"):format(folder, source,
    options.include, path, own))
  shell.must(("cc -shared %s -o %s/keywatch/core.so %s"):format(table.concat(objects, " "), folder, LIBRARIES))
end

--- Runs seeds with the changed files in a folder. Returns the lowest seed that fails, and its objection; or nil.
local function simulate(folder, seed, n)
  local pipe = assert(io.popen(([[exec env LUA_PATH="%s/lua/?.lua;$LUA_PATH" LUA_CPATH="%s/?.so;$LUA_CPATH" \
    %s spec/simulation/simulate.lua --seed=%d --seeds=%d --jobs=%d --shrink=0 --first=1 2>&1]]):format(folder, folder,
    options.vm, seed, n, options.jobs)))
  local lowest, objection, failed
  for line in pipe:lines() do
    local found, words = tonumber(line:match("^seed (%d+) FAILED:")), line:match("^  (%S.*)")
    if found then
      failed = found
    elseif failed and words and (not lowest or failed < lowest) then
      lowest, objection, failed = failed, words, nil
    end
  end
  pipe:close()
  return lowest, objection
end

--- Returns the first seed that fails, and its objection; or nil.
local function find(folder)
  local seed, n = 1, FIRST
  while seed <= options.seeds do
    n = math.min(n, options.seeds - seed + 1)
    local found, objection = simulate(folder, seed, n)
    if found then return found, objection end
    seed, n = seed + n, math.min(MOST, 2 * n)
  end
end

--- Tries a mutation. Returns true if a seed has failed because of it.
local function try(one)
  local folder = scratch .. "/" .. one.name
  shell.must("rm -rf " .. folder)
  local path = write_changed(one, folder)
  if one.file:find("^csrc/") then build_core(one, folder, path) end
  local began = os.time()
  local seed, objection = find(folder)
  shell.must("rm -rf " .. folder)
  if not seed then
    print(("%s NOT FOUND in %d seeds: %s"):format(one.name, options.seeds, one.breaks))
    return false
  end
  print(("%s found by seed %d, %d s: %s"):format(one.name, seed, os.time() - began, objection:sub(1, SHOWN)))
  local _, defect = simulate(folder, seed, 1)
  if defect then print("  and the seed fails without the mutation: " .. defect:sub(1, SHOWN)) end
  return not defect
end

local passed, failed = 0, 0
local function count(is_good)
  if is_good then passed = passed + 1 else failed = failed + 1 end
  io.stdout:flush()
end

local names = {}
for _, one in ipairs(mutations) do
  if names[one.name] then error("two mutations are called " .. one.name, 0) end
  names[one.name] = true
end
for name in (options.only or ""):gmatch("[^,]+") do
  if not names[name] then error("there is no mutation " .. name, 0) end
end
for _, one in ipairs(mutations) do
  if not options.only or ("," .. options.only .. ","):find("," .. one.name .. ",", 1, true) then count(try(one)) end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and passed > 0)
