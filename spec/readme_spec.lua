--- The README is true: its snippets do what they promise, its commands work, its tables agree with the code.
--
-- The Lua of one section is one program, so that what a snippet makes local serves the next. What a line prints is
-- promised behind `-->`, on the line itself or on lines of their own below it; white space counts as one blank.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local annotations = require "spec.support.annotations"
local keywatch_command = require "spec.support.command"
local directory = require "spec.support.directory"
local rpc = require "spec.support.rpc"
local shell = require "spec.support.shell"

local PATH = "README.md"

local lines = {}
for line in io.lines(PATH) do table.insert(lines, line) end

--- The fenced blocks: { language, section, first, last }, the last two being lines of the file. Also the headings.
local function read_blocks()
  local blocks, headings, open, section = {}, {}, nil, nil
  for n, line in ipairs(lines) do
    local fence = line:match("^```(.*)")
    if open and fence then
      open.last = n - 1
      open = nil
    elseif fence then
      open = { language = fence, section = section, first = n + 1 }
      table.insert(blocks, open)
    elseif not open and line:find("^#") then
      section = line:match("^#+ (.*)")
      headings[section:lower():gsub(" ", "-")] = section
    end
  end
  assert(not open, "a block is not closed")
  return blocks, headings
end

local blocks, headings = read_blocks()

local function blocks_of(language)
  local found = {}
  for _, block in ipairs(blocks) do
    if block.language == language then table.insert(found, block) end
  end
  return found
end

--- The text outside of blocks.
local function prose()
  local kept = {}
  for n, line in ipairs(lines) do kept[n] = line end
  for _, block in ipairs(blocks) do
    for n = block.first, block.last do kept[n] = "" end
  end
  return table.concat(kept, "\n")
end

-- Snippets ----------------------------------------------------------------------------------------------------------

--- The programs, in order: { section, lines = { [line of the file] = text } }.
local function programs()
  local list = {}
  for _, block in ipairs(blocks_of("lua")) do
    if not list[#list] or list[#list].section ~= block.section then
      table.insert(list, { section = block.section, lines = {} })
    end
    for n = block.first, block.last do list[#list].lines[n] = lines[n] end
  end
  return list
end

local function one_blank(text)
  return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

--- What is promised: [line that prints] = list of what it prints.
local function promises(program)
  local promised, printer = {}, nil
  for n = 1, #lines do
    local code, text = (program.lines[n] or ""):match("^(.-)%-%->(.*)")
    if (code or program.lines[n] or ""):find("%S") then printer = n end
    if text then
      promised[printer] = promised[printer] or {}
      table.insert(promised[printer], one_blank(text))
    end
  end
  return promised
end

--- Calls a function, and `look` with each server that it has left open; then these are closed.
local function with_servers(fn, look)
  local servers, serve = {}, keywatch.serve
  function keywatch.serve(...)
    local server, err = serve(...)
    table.insert(servers, server)
    return server, err
  end
  local ok, result = pcall(fn)
  keywatch.serve = serve
  for _, server in ipairs(servers) do
    if ok and look and not server.is_closed then ok, result = pcall(look, server) end
    server:close()
  end
  if not ok then error(result, 0) end
  return result
end

--- Calls a function. Durable stores that it opens are in a directory that goes again.
local function with_directory(fn)
  local path, open = directory.new(), keywatch.open
  function keywatch.open(opts)
    if opts and opts.path then opts.path = path .. "/" .. opts.path end
    return open(opts)
  end
  local ok, result = pcall(fn)
  keywatch.open = open
  directory.remove_all()
  if not ok then error(result, 0) end
  return result
end

--- What is printed, in the same form. Line numbers in errors are those of the file.
local function run(program)
  local source, printed = {}, {}
  for n = 1, #lines do source[n] = program.lines[n] or "" end
  local env = setmetatable({}, { __index = _G })
  function env.print(...)
    local n, words = debug.getinfo(2, "l").currentline, {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    printed[n] = printed[n] or {}
    table.insert(printed[n], one_blank(table.concat(words, " ")))
  end
  assert(load(table.concat(source, "\n"), "@" .. PATH, "t", env))()
  return printed
end

describe("the README's Lua", function()
  for _, program in ipairs(programs()) do
    it("does what is promised in: " .. program.section, function()
      local printed = with_servers(function()
        return with_directory(function() return run(program) end)
      end)
      assert.are.same(promises(program), printed)
    end)
  end

  local function program_of(section)
    for _, program in ipairs(programs()) do
      if program.section == section then return program end
    end
  end

  it("makes services that answer", function()
    local n = 0
    with_servers(function() run(program_of("Services in Lua")) end, function(server)
      n = n + 1
      local ann, client = { user = "ann" }, rpc.connect(server:addresses()[1])
      assert.are.same({ nil, 5, "no such note" }, { client:unary("/demo.Notes/Read", "note", ann) })
      local append = client:call("/demo.Notes/Append", ann)
      client:send(append, "one")
      client:send(append, "two")
      client:half_close(append)
      assert.are.equal(0, (client:finish(append)))
      assert.are.same({ "3", "4" }, append.messages)
      assert.are.equal("two", client:unary("/demo.Notes/Read", "note", ann))
      local size = client:unary("/demo.Notes/Size", core.encode("RangeRequest", { key = "no" }), ann)
      assert.are.equal(1, core.decode("RangeResponse", size).count)
      assert.are.same({ nil, 16, "who are you?" }, { client:unary("/demo.Notes/Read", "note") })
      assert.are.same({ nil, 16, "who are you?" }, { client:unary("/etcdserverpb.KV/Range", "") })
      client:wait(function() return server.store:get("failed/etcdserverpb.KV/Range") end)
      assert.are.equal("5", server.store:get("failed/demo.Notes/Read", { revision = 2 }).value)
      client:close()
    end)
    assert.are.equal(1, n)
  end)
end)

-- Commands ----------------------------------------------------------------------------------------------------------

--- The commands of a block, without comments.
local function commands(block)
  local list = {}
  for n = block.first, block.last do
    local command = lines[n]:gsub("%s*#.*", "")
    if command ~= "" then table.insert(list, command) end
  end
  return list
end

--- Targets must be there, and lead to something; `make test` itself has come here.
local function try_make(list)
  local help = shell.must("make help")
  for _, command in ipairs(list) do
    local target = assert(command:match("^make (%w+)$"), command)
    assert.matches("%f[%w]" .. target .. "%f[%W]", help)
    shell.must("make -n " .. target)
  end
end

--- Installs for a user whose home is empty, from a copy of the tree, and runs what the block ends with.
local function try_luarocks(list)
  local scratch = shell.must("mktemp -d")
  local ok, printed = shell.run(([[
    tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar -x -C %s
    cd %s
    mkdir home
    export HOME=$PWD/home
    %s]]):format(scratch, scratch, table.concat(list, "\n")))
  shell.must("rm -rf " .. scratch)
  assert(ok, printed)
  assert.matches(keywatch._VERSION .. "\n$", printed)
end

--- Starts each, at a port that the kernel chooses, and ends it when it is ready.
local function try_serve(list)
  for _, line in ipairs(list) do
    local arguments = {}
    for word in line:gsub(":2379", ":0"):gmatch("%S+") do table.insert(arguments, word) end
    if #arguments == 2 then table.insert(arguments, "--listen-client-urls=http://127.0.0.1:0") end
    local process = keywatch_command.start(table.unpack(arguments, 2))
    keywatch_command.wait_until_ready(process)
    process:signal("sigterm")
    assert.equal(0, process:wait())
    directory.remove_all()
  end
end

describe("the README's commands #once", function()
  for _, block in ipairs(blocks_of("sh")) do
    local list = commands(block)
    it("work: " .. list[1], function()
      if list[1]:find("^make ") then
        try_make(list)
      elseif list[1]:find("^luarocks ") then
        try_luarocks(list)
      elseif list[1]:find("^keywatch serve") then
        try_serve(list)
      else
        error("it is not known how to try this: " .. list[1])
      end
    end)
  end

  it("and snippets are marked as such", function()
    for _, block in ipairs(blocks) do
      assert(block.language == "lua" or block.language == "sh", ("%s:%d: what is it?"):format(PATH, block.first - 1))
    end
  end)
end)

-- Tables ------------------------------------------------------------------------------------------------------------

--- The rows of all tables in a section, as lists of cells.
local function rows_of(section)
  local rows, here = {}, false
  for _, line in ipairs(lines) do
    if line:find("^#") then here = line:match("^#+ (.*)") == section end
    if here and line:find("^|") and not line:find("^|%-") then
      local cells = {}
      for cell in line:gmatch("([^|]*)|") do table.insert(cells, one_blank(cell)) end
      table.remove(cells, 1)
      table.insert(rows, cells)
    end
  end
  assert(#rows > 0, section)
  return rows
end

local function quoted(cell)
  local list = {}
  for word in cell:gmatch("`([^`]*)`") do table.insert(list, word) end
  return list
end

describe("the README's reference", function()
  local types = annotations.read("types/keywatch.lua")

  it("has every function of the module, and no other", function()
    local expected, found = {}, {}
    for name, value in pairs(keywatch) do expected[name] = type(value) == "function" or nil end
    for name in prose():gmatch("`keywatch%.([%l_]+)%(") do found[name] = true end
    assert.are.same(expected, found)
  end)

  it("has every method of a store, a client, a stream, a lease, a watch, a server, a call and a task", function()
    local classes = {
      store = "keywatch.Store", lease = "keywatch.Lease", watch = "keywatch.Watch", task = "keywatch.Task",
      server = "keywatch.Server", call = "keywatch.Call", client = "keywatch.Client", stream = "keywatch.Stream",
    }
    local found = {}
    for owner in pairs(classes) do found[owner] = {} end
    for owner, name in prose():gmatch("`(%l+):([%l_]+)%(") do
      if found[owner] then found[owner][name] = true end
    end
    for owner, class in pairs(classes) do
      local expected = {}
      for name in pairs(types.classes[class].methods) do expected[name] = true end
      assert.are.same(expected, found[owner])
    end
  end)

  it("has every field of a call, and no other", function()
    local expected, found = {}, {}
    for name in pairs(types:fields("keywatch.Call")) do expected[name] = true end
    for name in prose():gmatch("`call%.([%l_]+)`") do found[name] = true end
    assert.are.same(expected, found)
  end)

  it("has every option of every call, and no other", function()
    local found, calls = {}, {}
    for i, row in ipairs(rows_of("Options")) do
      if row[1] ~= "" then calls = quoted(row[1]) end
      for _, call in ipairs(i > 1 and calls or {}) do
        found[call] = found[call] or {}
        for _, option in ipairs(quoted(row[2])) do found[call][option] = true end
      end
    end
    local common = types:fields("keywatch.CallOptions")
    for call, options in pairs(found) do
      call = call == "call" and "request" or call
      local expected = {}
      for option in pairs(types:fields(("keywatch.%sOptions"):format(call:gsub("^%l", string.upper)))) do
        if not common[option] or call == "connect" then expected[option] = true end
      end
      assert.are.same(expected, options, call)
    end
  end)

  it("has every error with its status and message", function()
    local found = {}
    for i, row in ipairs(rows_of("Errors")) do
      if i > 1 then found[quoted(row[1])[1]] = { grpc_status = tonumber(row[2]), message = row[3] } end
    end
    assert.are.same(core.errors, found)
  end)

  it("has the fields of results", function()
    for _, class in ipairs {
      "RangeResult", "PutResult", "DeleteResult", "TxnResult", "Hash", "Status", "KV", "Batch", "ServerStatus",
      "ServerHash",
    } do
      local fields = types:fields("keywatch." .. class)
      local is_there = false
      for list in one_blank(prose()):gmatch("`{ ([^`]*) }`") do
        local all, n = true, 0
        for name in list:gmatch("[%w_]+") do all, n = all and fields[name] ~= nil, n + 1 end
        for _ in pairs(fields) do n = n - 1 end
        is_there = is_there or (all and n == 0)
      end
      assert(is_there, class)
    end
  end)

  it("links to what is there", function()
    for target in prose():gmatch("%]%(([^)]*)%)") do
      local anchor = target:match("^#(.*)")
      if anchor then
        assert(headings[anchor], target)
      elseif not target:find("^https://") then
        assert(io.open(target), target):close()
      end
    end
  end)
end)
