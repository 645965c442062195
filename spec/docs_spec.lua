--- The documentation is true: the snippets of the README and of docs/ print what they promise, the commands work, the
-- tables agree with the code, and the links have targets. A block that no test runs is a failure.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local annotations = require "spec.support.annotations"
local directory = require "spec.support.directory"
local document = require "spec.support.document"
local files = require "spec.support.files"
local rpc = require "spec.support.rpc"
local session = require "spec.support.session"
local shell = require "spec.support.shell"
local snippet = require "spec.support.snippet"

local MOST_LINES, MOST_LINKS = 300, 5 -- of the README: details belong in docs/, the index in docs/README.md

local one_blank = document.one_blank

local paths = { "README.md" }
for path in shell.must("ls docs/*.md"):gmatch("%S+") do table.insert(paths, path) end

local pages = {} -- in the order of paths, and by path
for i, path in ipairs(paths) do
  pages[i] = document.read(path)
  pages[path] = pages[i]
end

--- Calls a function with each block of a language, and with its page.
local function each_block(language, fn)
  for _, page in ipairs(pages) do
    for _, block in ipairs(page:blocks_of(language)) do fn(block, page) end
  end
end

-- Snippets ----------------------------------------------------------------------------------------------------------

describe("the Lua of", function()
  for _, page in ipairs(pages) do
    for _, program in ipairs(snippet.programs(page)) do
      it(("%s does what is promised in: %s"):format(page.path, program.section), function()
        assert.are.same(snippet.promises(program), snippet.run(program))
      end)
    end
  end

  --- Runs a section of docs/server.md, and calls `look` with a client of the server that it has left open.
  local function with_client(section, look)
    local n = 0
    for _, program in ipairs(snippet.programs(pages["docs/server.md"])) do
      if program.section == section then
        snippet.run(program, function(server)
          local client = rpc.connect(server:addresses()[1])
          look(client, server.store)
          client:close()
          n = n + 1
        end)
      end
    end
    assert.are.equal(1, n)
  end

  it("docs/server.md makes services that answer", function()
    with_client("Your own services", function(client)
      assert.are.same({ nil, 5, "no such note" }, { client:unary("/demo.Notes/Read", "nothing") })
      local append = client:call("/demo.Notes/Append")
      client:send(append, "one")
      client:send(append, "two")
      client:half_close(append)
      assert.are.equal(0, (client:finish(append)))
      assert.are.same({ "3", "4" }, append.messages)
      assert.are.equal("two", client:unary("/demo.Notes/Read", "note"))
      local size = client:unary("/demo.Notes/Size", core.encode("RangeRequest", { key = "no" }))
      assert.are.equal(1, core.decode("RangeResponse", size).count)
    end)
  end)

  it("docs/server.md makes middleware that refuses", function()
    with_client("Middleware", function(client, store)
      assert.are.same({ nil, 16, "who are you?" }, { client:unary("/etcdserverpb.KV/Put", "") })
      client:wait(function() return store:get("failed/etcdserverpb.KV/Put") end)
      assert.are.equal("16", store:get("failed/etcdserverpb.KV/Put").value)
      local range = core.encode("RangeRequest", { key = "a" })
      assert.is_string(client:unary("/etcdserverpb.KV/Range", range, { user = "ann" }))
    end)
  end)
end)

--- Calls a function with a session, which ends afterwards.
local function with_session(fn)
  local one = session.new()
  local ok, err = pcall(fn, one)
  local closed, why = pcall(one.close, one)
  directory.remove_all()
  if not (ok and closed) then error(err or why, 0) end
end

describe("the program of", function()
  each_block("lua", function(block, page)
    if not block.output then return end
    it(("%s prints what is promised in: %s"):format(page.path, block.section), function()
      with_session(function(one)
        local source = table.concat(page:lines_of(block), "\n") .. "\n"
        local printed, expected = one:follow(source, page:lines_of(block.output))
        assert.are.equal(expected, printed)
      end)
    end)
  end)
end)

-- Commands ----------------------------------------------------------------------------------------------------------

--- The commands of a block, without comments.
local function commands(page, block)
  local list = {}
  for _, line in ipairs(page:lines_of(block)) do
    local command = line:gsub("%s+#.*", "")
    if command ~= "" then table.insert(list, command) end
  end
  return list
end

--- Expects that each target is listed by `make help`, and exists. The targets are not executed.
local function try_make(list)
  local help = shell.must("make help")
  for _, command in ipairs(list) do
    local target = assert(command:match("^make (%w+)$"), command)
    assert.matches("%f[%w]" .. target .. "%f[%W]", help)
    shell.must("make -n " .. target)
  end
end

local OPENRESTY = "/usr/local/openresty" -- the place of which is taken by a directory with the LuaJIT of this machine

--- Runs a block that installs, in a copy of the tree, as a user with an empty home. Nothing is optimized, which would
-- take minutes.
local function try_luarocks(list)
  local scratch = shell.must("mktemp -d")
  local ok, printed = shell.run(([[
    tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar -x -C %s
    cd %s
    mkdir -p home/.luarocks openresty/luajit/bin openresty/luajit/include
    for v in 5.1 5.4; do echo 'variables = { CFLAGS = "-O0 -fPIC" }' >home/.luarocks/config-$v.lua; done
    ln -s "$(command -v luajit)" openresty/luajit/bin/luajit
    ln -s /usr/include/luajit-2.1 openresty/luajit/include
    export HOME=$PWD/home
    %s]]):format(scratch, scratch, (table.concat(list, "\n"):gsub(OPENRESTY, scratch .. "/openresty"))))
  shell.must("rm -rf " .. scratch)
  assert(ok, printed)
  assert.matches(keywatch._VERSION .. "\n$", printed)
end

local TRIES = { make = try_make, luarocks = try_luarocks } -- by the first word of a block; all others are for a session

--- The commands for sessions: one session for all of a section, since a command may need the files of another one.
local function sessions()
  local list = {}
  each_block("sh", function(block, page)
    local some, last = commands(page, block), list[#list]
    if TRIES[some[1]:match("^%S+")] then return end
    if not last or last.page ~= page or last.section ~= block.section then
      last = { page = page, section = block.section, commands = {} }
      table.insert(list, last)
    end
    for _, command in ipairs(some) do table.insert(last.commands, command) end
  end)
  return list
end

describe("the commands #once", function()
  each_block("sh", function(block, page)
    local list = commands(page, block)
    local try = TRIES[list[1]:match("^%S+")]
    local peer = try == try_luarocks and " #peer" or "" -- takes minutes
    if try then it(("of %s work: %s%s"):format(page.path, list[1], peer), function() try(list) end) end
  end)

  for _, some in ipairs(sessions()) do
    it(("of %s work in: %s"):format(some.page.path, some.section), function()
      with_session(function(one)
        for _, command in ipairs(some.commands) do one:type(command) end
      end)
    end)
  end

  --- The settings of a unit of systemd, by section and name.
  local function settings_of(page, block)
    local unit, section = {}, nil
    for _, line in ipairs(page:lines_of(block)) do
      section = line:match("^%[(%u%l+)%]$") or section
      local name, value = line:match("^(%u%a+)=(.+)$")
      assert(line == "" or name or line:find("^%["), line)
      if name then unit[section .. "." .. name] = value end
    end
    return unit
  end

  --- Has systemd check a unit, if it is there. The program of the unit is another one, which is there.
  local function verify(page, block)
    if not shell.run("command -v systemd-analyze") then return end
    local path = directory.new() .. "/unit.service"
    files.write(path, (table.concat(page:lines_of(block), "\n"):gsub("/usr/local/bin/keywatch", "/bin/true")) .. "\n")
    local ok, printed = shell.run("systemd-analyze verify " .. path .. " 2>&1")
    directory.remove_all()
    assert(ok and not printed:find("unit.service", 1, true), printed)
  end

  --- Checks the command line of a unit by `keywatch run`'s own rules.
  local function check_run(line)
    local words = {}
    for word in line:gmatch("%S+") do words[#words + 1] = word end
    local run_flags = require "keywatch.command.run_flags"
    local given = assert(run_flags.read(words))
    assert.is_nil(run_flags.find_fault(given))
    return given
  end

  each_block("ini", function(block, page)
    it("of the unit in " .. page.path .. " work", function()
      local unit = settings_of(page, block)
      local command, line = unit["Service.ExecStart"]:match("^/usr/local/bin/keywatch (%l+) (.*)$")
      verify(page, block)
      if command == "run" then
        local given = check_run(line)
        assert(tonumber(unit["Service.TimeoutStopSec"]) > given.values["stop-timeout"])
        return
      end
      assert.are.equal("serve", command)
      with_session(function(one) one:type("keywatch serve " .. line:gsub("/var/lib/keywatch/", "")) end)
    end)
  end)

  each_block("yaml", function(block, page)
    it("of the configuration file in " .. page.path .. " start a server", function()
      with_session(function(one)
        files.write(one.cwd .. "/config.yaml", (table.concat(page:lines_of(block), "\n"):gsub(":2379", ":0")) .. "\n")
        one:type("keywatch serve --config-file config.yaml")
      end)
    end)
  end)
end)

describe("the pages #once", function()
  -- text: pictures; nginx: run by spec/host/nginx_docs_spec.lua
  local RUN = { lua = true, sh = true, console = true, ini = true, yaml = true, text = true, nginx = true }

  it("have no block that is not run", function()
    for _, page in ipairs(pages) do
      for _, block in ipairs(page.blocks) do
        assert(RUN[block.language], ("%s:%d: what is it?"):format(page.path, block.first - 1))
      end
      assert(not page:prose():find("\n    "), page.path .. " has code that is indented, which is not run")
    end
  end)

  it("have no transcript without a program", function()
    for _, page in ipairs(pages) do
      local n = 0
      for _, block in ipairs(page.blocks) do
        if block.output then n = n + 1 end
      end
      assert.are.equal(#page:blocks_of("console"), n, page.path)
    end
  end)

  it("are listed once, in docs/README.md, as are the examples", function()
    local index, examples = pages["docs/README.md"]:prose(), shell.must("ls examples")
    local function expect_row(target)
      local from, to = index:find("](" .. target .. ") |", 1, true)
      assert(from and not index:find("](" .. target .. ") |", to, true), target .. " is not listed once")
    end
    for _, path in ipairs(paths) do
      local name = path:match("^docs/(.*)$")
      if name and name ~= "README.md" then expect_row(name) end
    end
    for name in examples:gmatch("%S+") do expect_row("../examples/" .. name) end
  end)

  it("are short in the README, which links to at most five of them", function()
    local readme, linked, n = pages["README.md"], {}, 0
    assert(#readme.lines <= MOST_LINES, ("it has %d lines"):format(#readme.lines))
    for target in readme:prose():gmatch("%]%(([^)#:]+%.md)") do
      if not linked[target] then linked[target], n = true, n + 1 end
    end
    assert(n >= 1 and n <= MOST_LINKS, ("it links to %d pages"):format(n))
  end)

  for name, kind in pairs { list_watch = { folder = "cache", least = 90 },
    controller_behaviours = { folder = "controller", least = 60 } } do
    it(("name specs that are there, in docs/%s.md"):format(name), function()
      local texts, n = {}, 0
      for _, line in ipairs(pages[("docs/%s.md"):format(name)].lines) do
        local file, title = line:match("^|.*| `([%l_/]+%.lua)` | (.-) |$")
        if file then
          local own = ("spec/%s/%s"):format(kind.folder, file)
          local path = shell.run("test -e " .. own) and own or "spec/" .. file
          texts[path] = texts[path] or files.read(path)
          local is_there = texts[path]:find('it("' .. title, 1, true) or texts[path]:find('it(("' .. title, 1, true)
          assert(is_there, ("%s has no '%s'"):format(path, title))
          n = n + 1
        end
      end
      assert(n > kind.least, "few specs are named: are they found?")
    end)
  end

  --- Returns a text about a broken link, or nil.
  local function trouble_with(page, target)
    if target:find("^https://") then return nil end
    local file, anchor = target:match("^([^#]*)#?(.*)$")
    local path = page.path
    if file ~= "" then path = (path:match("^(.*/)[^/]*$") or "") .. file end
    path = path:gsub("[^/]+/%.%./", "")
    local found = io.open(path)
    if not found then return "there is no " .. path end
    found:close()
    if anchor ~= "" and not document.read(path).anchors[anchor] then return "no such heading: " .. target end
  end

  it("have no broken links", function()
    local all = { document.read("ARCHITECTURE.md"), document.read("CHANGELOG.md"), document.read("CONTRIBUTING.md") }
    for _, page in ipairs(pages) do table.insert(all, page) end
    for _, page in ipairs(all) do
      for target in page:prose():gmatch("%]%(([^)]*)%)") do
        local trouble = trouble_with(page, target)
        assert(not trouble, ("%s: %s"):format(page.path, tostring(trouble)))
      end
    end
  end)

  --- True if a file or folder is there: at the root, in csrc/ or in lua/keywatch/.
  local function is_there(path)
    for _, root in ipairs { "", "csrc/", "lua/keywatch/" } do
      if shell.run("test -e " .. root .. path) then return true end
    end
    return false
  end

  it("have no missing files in ARCHITECTURE.md #once", function()
    local n = 0
    for path in document.read("ARCHITECTURE.md"):prose():gmatch("`([%w_./]+/[%w_./]+)`") do
      assert(is_there(path), "there is no " .. path)
      n = n + 1
    end
    assert(n > 40, "few files are named: are they found?")
  end)
end)

-- Tables ------------------------------------------------------------------------------------------------------------

local function quoted(cell)
  local list = {}
  for word in cell:gmatch("`([^`]*)`") do table.insert(list, word) end
  return list
end

describe("the reference", function()
  local types = annotations.read("types/keywatch.lua")
  local reference = pages["docs/reference.md"]

  local CLASSES = {
    store = "keywatch.Store", lease = "keywatch.Lease", watch = "keywatch.Watch", task = "keywatch.Task",
    server = "keywatch.Server", call = "keywatch.Call", client = "keywatch.Client", stream = "keywatch.Stream",
    tx = "keywatch.Tx", object_watch = "keywatch.ObjectWatch", selector = "keywatch.Selector",
    session = "keywatch.Session", lock = "keywatch.Lock", election = "keywatch.Election",
    observer = "keywatch.Observer", channel = "keywatch.Channel", scope = "keywatch.Scope",
    signals = "keywatch.Signals",
  }

  --- The names of a table, as a set.
  local function set_of(fields)
    local set = {}
    for name in pairs(fields) do set[name] = true end
    return set
  end

  --- What stands between backquotes in the first column of a table, as a set.
  local function first_column(page, section)
    local set = {}
    for _, row in ipairs(page:rows_of(section)) do
      for _, name in ipairs(quoted(row[1])) do set[name] = true end
    end
    return set
  end

  --- Expects on a page, between backquotes, the names of all fields and methods of some classes, and a call of each
  -- method of others, by the name of the object there.
  local function expect_names(page, read, prefix, classes, objects)
    local text, names = page:prose(), {}
    for quote in text:gmatch("`([^`]+)`") do
      for name in quote:gmatch("[%w_]+") do names[name] = true end
    end
    for _, class in ipairs(classes) do
      for name in pairs(read:fields(prefix .. class)) do assert(names[name], class .. "." .. name) end
      for name in pairs(read.classes[prefix .. class].methods) do assert(names[name], class .. ":" .. name) end
    end
    for class, object in pairs(objects) do
      for name in pairs(read.classes[prefix .. class].methods) do
        assert(text:find(("`%s:%s("):format(object, name), 1, true), class .. ":" .. name)
      end
    end
  end

  it("has every function of the module, and no page has another", function()
    local expected, found = {}, {}
    for name, value in pairs(keywatch) do expected[name] = type(value) == "function" or nil end
    for name in reference:prose():gmatch("`keywatch%.([%l_]+)%(") do found[name] = true end
    assert.are.same(expected, found)
    for _, page in ipairs(pages) do
      for name in page:prose():gmatch("`keywatch%.([%l_]+)%(") do assert(expected[name], page.path .. ": " .. name) end
    end
  end)

  local controllers = annotations.read("types/keywatch/controller.lua")
  local testing = annotations.read("types/keywatch/testing.lua")
  local json = annotations.read("types/keywatch/json.lua")
  local http = annotations.read("types/keywatch/http.lua")

  it("has every function of keywatch.controller, keywatch.http, keywatch.json and keywatch.testing", function()
    for name, read in pairs { controller = controllers, http = http, json = json, testing = testing } do
      local found = {}
      for method in reference:prose():gmatch("`" .. name .. "%.([%l_]+)%(") do found[method] = true end
      assert.are.same(set_of(read.classes["keywatch." .. name].methods), found)
    end
  end)

  it("has every method of the objects that the functions return", function()
    local found = {}
    for owner in pairs(CLASSES) do found[owner] = {} end
    for owner, name in reference:prose():gmatch("`([%l_]+):([%l_]+)%(") do
      if found[owner] then found[owner][name] = true end
    end
    for owner, class in pairs(CLASSES) do assert.are.same(set_of(types.classes[class].methods), found[owner]) end
  end)

  it("has every method that another page names", function()
    for _, page in ipairs(pages) do
      for owner, name in page:prose():gmatch("`([%l_]+):([%l_]+)%(") do
        local class = CLASSES[owner]
        assert(not class or types.classes[class].methods[name], ("%s: %s:%s"):format(page.path, owner, name))
      end
    end
  end)

  it("has every field of a call, and no other", function()
    local found = {}
    for name in pages["docs/server.md"]:prose():gmatch("`call%.([%l_]+)`") do found[name] = true end
    assert.are.same(set_of(types:fields("keywatch.Call")), found)
  end)

  it("has every field of an error, and no other", function()
    local expected = {}
    for name in pairs(types:fields("keywatch.Error")) do expected["err." .. name] = true end
    assert.are.same(expected, first_column(pages["docs/errors.md"], "Errors"))
  end)

  it("has every option of every call, and no other", function()
    local found, calls = {}, {}
    for _, row in ipairs(reference:rows_of("Options")) do
      if row[1] ~= "" then calls = quoted(row[1]) end
      for _, call in ipairs(calls) do
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

  it("has every option and counter of object watches, on their page", function()
    local page = pages["docs/object_watch.md"]
    for section, class in pairs { Options = "ObjectWatchOptions", ["Many object watches"] = "ObjectWatchStatus" } do
      local expected = set_of(types:fields("keywatch." .. class))
      expected.timeout, expected.deadline = nil, nil
      assert.are.same(expected, first_column(page, section))
    end
  end)

  it("has every option, field and call of caches and informers, on their pages", function()
    expect_names(pages["docs/cache.md"], types, "keywatch.", { "CacheOptions", "CacheStatus", "TableOptions" },
      { Cache = "cache" })
    expect_names(pages["docs/informer.md"], types, "keywatch.", {
      "InformerOptions", "HandlerOptions", "InformerEvent", "InformerStatus", "HandlerStatus",
    }, { Informer = "informer", Handler = "handler" })
  end)

  it("has every option, field and call of controllers, work queues and electors, on their pages", function()
    expect_names(pages["docs/controller.md"], controllers, "keywatch.controller.", {
      "Options", "Source", "Context", "Outcome", "Status", "WorkQueueOptions", "WorkQueueStatus", "AddOptions",
      "RetryOptions", "ExponentialOptions", "BucketOptions", "FastSlowOptions", "Limiter",
    }, { Controller = "one", WorkQueue = "queue" })
    expect_names(pages["docs/leading.md"], controllers, "keywatch.controller.", { "ElectorOptions", "ElectorStatus" },
      { Elector = "elector" })
  end)

  it("has every option, field and call of the testing kit, on its page", function()
    expect_names(pages["docs/testing.md"], testing, "keywatch.testing.", {
      "WorldOptions", "ServeOptions", "RuleOptions", "World", "Server", "Rule",
    }, {})
  end)

  it("has every option and call of the HTTP client, on its page", function()
    expect_names(pages["docs/http_client.md"], http, "keywatch.http.", {
      "ClientOptions", "RequestOptions", "OpenOptions", "Head", "Answer",
    }, { Client = "web", Exchange = "exchange" })
  end)

  it("has every JSON option, on its page", function()
    expect_names(pages["docs/json.md"], json, "keywatch.json.", { "DecodeOptions", "EncodeOptions" }, {})
  end)

  it("has every option and call of managers, every flag of keywatch run, and every metric, on their page", function()
    local page, expected = pages["docs/manager.md"], {}
    expect_names(page, controllers, "keywatch.controller.", {
      "ManagerOptions", "ManagerAddOptions", "ManagerRunOptions", "ManagerStatus", "ComponentStatus", "Component",
    }, { Manager = "manager" })
    for flag in pairs(require("keywatch.command.run_flags").FLAGS) do
      if flag ~= "h" then expected["--" .. flag] = true end
    end
    assert.are.same(expected, first_column(page, "keywatch run"))
    expected = {}
    for _, name in ipairs(require("keywatch.controller.metrics").names()) do expected[name] = true end
    assert.are.same(expected, first_column(page, "Health and metrics"))
  end)

  it("has every metric of a server, on the page for operation", function()
    local expected, found = {}, {}
    for _, name in ipairs(require("keywatch.server.metrics").names()) do expected[name] = true end
    for _, row in ipairs(pages["docs/operation.md"]:rows_of("Metrics")) do
      for _, name in ipairs(quoted(row[1])) do
        if name:find("^[%w_]+$") then found[name] = true end
      end
    end
    assert.are.same(expected, found)
  end)

  it("has every error with its status and message", function()
    local found = {}
    for _, row in ipairs(pages["docs/errors.md"]:rows_of("Codes")) do
      found[quoted(row[1])[1]] = { grpc_status = tonumber(row[2]), message = row[3] }
    end
    assert.are.same(core.errors, found)
  end)

  it("has the fields of results", function()
    for _, class in ipairs {
      "RangeResult", "PutResult", "DeleteResult", "TxnResult", "Hash", "Status", "KV", "Batch", "ServerStatus",
      "ClientState", "ClientCount",
    } do
      local fields = types:fields("keywatch." .. class)
      local is_there = false
      for list in one_blank(reference:prose()):gmatch("`{ ([^`]*) }`") do
        local all, n = true, 0
        for name in list:gmatch("[%w_]+") do all, n = all and fields[name] ~= nil, n + 1 end
        for _ in pairs(fields) do n = n - 1 end
        is_there = is_there or (all and n == 0)
      end
      assert(is_there, class)
    end
  end)

  it("has every flag of keywatch serve, with its default #once", function()
    local help = shell.must(("LUA_PATH='%s' LUA_CPATH='%s' %s bin/keywatch serve --help"):format(package.path,
      package.cpath, require("spec.support.vm").interpreter))
    local defaults, found = {}, {} -- by flag, as the help and the page have them
    for flag, text in (help .. "\n  --"):gsub("\n  %-%-", "\0--"):gmatch("%z(%-%-[%l-]+)(%Z*)") do
      defaults[flag] = one_blank(text:match("%(default: (.-)%)") or "")
    end
    defaults["--help"] = nil
    for _, row in ipairs(pages["docs/operation.md"]:rows_of("Flags")) do
      local flag, default = quoted(row[1])[1], quoted(row[2])[1]
      found[flag] = default or defaults[flag]
    end
    assert.are.same(defaults, found)
  end)
end)
