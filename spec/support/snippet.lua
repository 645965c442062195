--- Runs the Lua code of a page inside the spec.
--
-- All blocks of one section are one program, so that a local of one block can be used in the next. A comment `-->` is
-- the output of its line; it is on the same line, or on the lines below. Each run of white space counts as one blank.
-- spec/host/neovim_spec.lua runs the sections named "Neovim".

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local document = require "spec.support.document"

local snippet = {}

--- Returns the programs of a page, in order: { section, path, n, lines = { [line of the file] = text } }.
function snippet.programs(page)
  local list = {}
  for _, block in ipairs(page:blocks_of("lua")) do
    if not block.output and block.section ~= "Neovim" then
      local last = list[#list]
      if not last or last.section ~= block.section then
        last = { section = block.section, path = page.path, n = #page.lines, lines = {} }
        table.insert(list, last)
      end
      for n = block.first, block.last do last.lines[n] = page.lines[n] end
    end
  end
  return list
end

--- Returns the promised output of a program: { [line that prints] = list of outputs }.
function snippet.promises(program)
  local promised, printer = {}, nil
  for n = 1, program.n do
    local code, text = (program.lines[n] or ""):match("^(.-)%-%->(.*)")
    if (code or program.lines[n] or ""):find("%S") then printer = n end
    if text then
      promised[printer] = promised[printer] or {}
      table.insert(promised[printer], document.one_blank(text))
    end
  end
  return promised
end

--- Calls a function; and `look`, if given, with each server that the function has left open. Closes these servers.
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

--- Calls a function. Durable stores that it opens are in a directory that is removed afterwards.
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

local function run(program)
  local source, printed = {}, {}
  for n = 1, program.n do source[n] = program.lines[n] or "" end
  local env = setmetatable({}, { __index = _G })
  function env.print(...)
    local n, words = debug.getinfo(2, "l").currentline, {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    printed[n] = printed[n] or {}
    table.insert(printed[n], document.one_blank(table.concat(words, " ")))
  end
  assert(load(table.concat(source, "\n"), "@" .. program.path, "t", env))()
  return printed
end

--- Runs a program. Returns its output, in the form of snippet.promises. Line numbers in errors are those of the file.
-- `look` is called with each server that the program has left open.
function snippet.run(program, look)
  return with_servers(function()
    return with_directory(function() return run(program) end)
  end, look)
end

return snippet
