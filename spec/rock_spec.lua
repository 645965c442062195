--- The rock, as packagers and users build it: in a scratch directory, from a clone of the sources.

local keywatch = require "keywatch"

local files = require "spec.support.files"
local process = require "spec.support.process"
local shell = require "spec.support.shell"

local ROCKSPEC = "keywatch-scm-1.rockspec"
local TLS_ROCKSPEC = "tls/keywatch-tls-scm-1.rockspec"

local PROGRAM = [[
local keywatch = require "keywatch"
local store = keywatch.open { now = 0 }
store:put("greeting", "hello")
print(jit and "luajit" or "lua" .. _VERSION:match("%d.%d"), store:get("greeting").value)
]]

local read, write = files.read, files.write

local function rockspec(path)
  local fields = {}
  loadfile(path or ROCKSPEC, "t", fields)()
  return fields
end

--- The files under a directory, without those of builds for tests, a line each, in the order of table.sort.
local function found(dir, pattern)
  return shell.must(("find %s -name '%s' ! -path 'csrc/probe/*' | LC_ALL=C sort"):format(dir, pattern))
end

describe("the rockspecs #once", function()
  it("lists every C file of the product and every Lua module, and ships docs, examples and types", function()
    local build, sources, modules = rockspec().build, {}, {}
    local is_listed = {} -- what several objects are built from counts once
    for _, list in ipairs { build.modules, rockspec(TLS_ROCKSPEC).build.modules } do
      for _, module in pairs(list) do
        if type(module) == "string" then
          table.insert(modules, module)
        else
          for _, source in ipairs(module.sources) do
            if not is_listed[source] then table.insert(sources, source) end
            is_listed[source] = true
          end
        end
      end
    end
    table.sort(sources)
    table.sort(modules)
    assert.are.equal(found("csrc", "*.c"), table.concat(sources, "\n"))
    assert.are.equal(found("lua", "*.lua"), table.concat(modules, "\n"))
    assert.are.equal(shell.must("ls -d docs/* examples/* types/* 2>/dev/null | cut -d/ -f1 | uniq"),
      table.concat(build.copy_directories or {}, "\n"))
  end)

  it("passes luarocks lint", function()
    shell.must("luarocks --lua-version=5.4 lint " .. ROCKSPEC)
    shell.must("luarocks --lua-version=5.4 lint " .. TLS_ROCKSPEC)
  end)
end)

describe("the rock #once #peer", function()
  local top = shell.must("pwd")
  local scratch, repo, server

  local luarocks = {
    ["lua5.4"] = "luarocks --lua-version=5.4",
    ["luajit"] = ("LUAROCKS_CONFIG=%s/build/luajit.config.lua luarocks --lua-version=5.1"):format(top),
  }
  local version = { ["lua5.4"] = "5.4", ["luajit"] = "5.1" }

  --- The environment in which a VM finds its modules in a tree.
  local function paths(tree, vm)
    local lua = ("%s/share/lua/%s"):format(tree, version[vm])
    return ("LUA_PATH='%s/?.lua;%s/?/init.lua' LUA_CPATH='%s/lib/lua/%s/?.so'"):format(lua, lua, tree, version[vm])
  end

  -- A repository with this tree as it is now, whose rock also has a program, packed into a directory that serves it.
  setup(function()
    scratch = shell.must("mktemp -d")
    repo, server = scratch .. "/repo", scratch .. "/server"
    shell.must(("mkdir %s %s && tar -c --exclude=./build --exclude=./.git . | tar -x -C %s"):format(repo, server, repo))
    write(repo .. "/program.lua", PROGRAM)
    write(repo .. "/" .. TLS_ROCKSPEC, read(TLS_ROCKSPEC) .. ("source.url = 'git+file://%s'\n"):format(repo))
    write(repo .. "/" .. ROCKSPEC, read(ROCKSPEC) ..
      ("source.url = 'git+file://%s'\nbuild.install.bin['kw-program'] = 'program.lua'\n"):format(repo))
    shell.must(("cd %s && git init -q && git add -A && git -c user.name=k -c user.email=k@localhost commit -qm rock")
      :format(repo))
    for _, name in ipairs { ROCKSPEC, TLS_ROCKSPEC } do
      shell.must(("cd %s && %s pack %s/%s"):format(server, luarocks["lua5.4"], repo, name))
    end
    shell.must(("cd %s && luarocks-admin make_manifest ."):format(server))
  end)

  teardown(function()
    if scratch then shell.must("rm -rf " .. scratch) end
  end)

  for _, vm in ipairs { "lua5.4", "luajit" } do
    describe("installed from a plain directory for " .. vm, function()
      local tree, log

      setup(function()
        tree = scratch .. "/" .. vm
        log = shell.must(("%s install --only-server=%s --tree=%s keywatch"):format(luarocks[vm], server, tree))
      end)

      it("is built with the user's flags and none of ours", function()
        assert.matches("%-O2 [^\n]*%-c csrc/", log)
        assert.not_matches("%-Werror", log)
      end)

      it("has a program that runs on " .. vm, function()
        assert.are.equal(vm .. "\thello", shell.must(tree .. "/bin/kw-program"))
      end)

      it("has the program keywatch", function()
        assert.are.equal(keywatch._VERSION, shell.must(tree .. "/bin/keywatch --version"))
      end)

      it("names the rock keywatch-tls where TLS is first used, and does not need it elsewhere", function()
        write(repo .. "/absent.lua", [[
          local keywatch = require "keywatch"
          local function try(name, ...) print((select(2, pcall(keywatch[name], ...)):gsub("^.-:%d+: ", ""))) end
          try("connect", "https://127.0.0.1:1")
          try("connect", "http://127.0.0.1:1", { tls = true })
          try("serve", { store = keywatch.open(), listen = "https://127.0.0.1:0", tls = { cert = "c", key = "k" } })
          local server = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
          print(keywatch.connect(server:addresses()[1]):put("a", "1").revision)
        ]])
        local absent = " asks for TLS: keywatch needs another rock for TLS: luarocks install keywatch-tls\n"
        assert.are.equal("connect: the endpoint 'https://127.0.0.1:1'" .. absent .. "connect: the option 'tls'"
          .. absent .. "serve: option 'tls'" .. absent .. "2",
          shell.must(("%s %s %s/absent.lua"):format(paths(tree, vm), vm, repo)))
        local ok, printed = shell.run(("timeout 60 %s/bin/keywatch serve --memory --cert-file=c --key-file=k "
          .. "--listen-client-urls=https://127.0.0.1:0"):format(tree))
        assert.is_false(ok)
        assert.matches("luarocks install keywatch%-tls", printed)
      end)

      it("works with the rock keywatch-tls", function()
        assert.is_nil(shell.must(("find %s -name tls.so"):format(tree)):match("."))
        shell.must(("%s install --only-server=%s --tree=%s keywatch-tls"):format(luarocks[vm], server, tree))
        write(repo .. "/secure.lua", 'print(type((require("keywatch.tls").self_sign { hosts = "a" })))')
        assert.are.equal("string", shell.must(("%s %s %s/secure.lua"):format(paths(tree, vm), vm, repo)))
      end)

      it("is found by " .. vm .. " in its tree", function()
        assert.are.equal(vm .. "\thello", shell.must(("%s %s %s/program.lua"):format(paths(tree, vm), vm, repo)))
      end)
    end)
  end

  it("is linked with OpenSSL in keywatch.tls alone, and there with libssl.so.3 and libcrypto.so.3", function()
    for vm, number in pairs(version) do
      for module, is_linked in pairs { core = false, uv = false, exec = false, tls = true } do
        local object = ("%s/build/%s/lib/lua/%s/keywatch/%s.so"):format(top, vm, number, module)
        local needed = shell.must("objdump -p " .. object .. " | sed -n 's/ *NEEDED *//p' | sort | tr '\\n' ' '")
        local all = "[" .. needed .. "] " .. object
        assert.equal(is_linked, needed:find("libssl.so.3 ", 1, true) ~= nil, all)
        assert.equal(is_linked, needed:find("libcrypto.so.3 ", 1, true) ~= nil, all)
      end
    end
  end)

  -- From the tree that was just made for LuaJIT. LuaRocks then knows of no LuaJIT, and starts programs with lua5.1.
  describe("packed for LuaJIT, and installed by a LuaRocks for Lua 5.1", function()
    local plain = "luarocks --lua-version=5.1"
    local tree, program

    setup(function()
      tree = scratch .. "/packed"
      program = tree .. "/bin/keywatch"
      shell.must(("cd %s && %s pack --tree=%s/luajit keywatch"):format(scratch, plain, scratch))
      shell.must(("%s install --tree=%s %s/keywatch-*.linux-*.rock"):format(plain, tree, scratch))
    end)

    after_each(process.end_all)

    it("has a program that LuaRocks starts with lua5.1", function()
      assert.matches("lua5%.1", read(program))
      assert.are.equal(keywatch._VERSION, shell.must(program .. " --version"))
    end)

    it("has a program with arguments and an exit status of its own", function()
      assert.matches("^keywatch: there is no command 'a  b%*'[^\n]*\nstatus 2$",
        shell.must(program .. " 'a  b*' c || echo status $?"))
    end)

    it("has a program that is LuaJIT's process, and ends in order by SIGTERM", function()
      local child = process.start { program, "serve", "--memory", "--listen-client-urls=http://127.0.0.1:0" }
      child:expect_error("ready to serve client requests")
      assert.matches("luajit[^/]*$", shell.must(("readlink /proc/%d/exe"):format(child.pid)))
      child:signal("sigterm")
      assert.are.equal(0, child:wait())
    end)

    it("has a program that reports that LuaJIT is missing", function()
      local bin = scratch .. "/bin"
      shell.must(("mkdir %s && cp $(readlink -f $(command -v lua5.1)) %s/lua5.1"):format(bin, bin))
      local code = read(program):match("%-e '(.-)' '/")
      local script = shell.must(("find %s/lib -path '*/bin/keywatch'"):format(tree))
      write(scratch .. "/paths.lua", code)
      local ok, printed = shell.run(("PATH=%s %s/lua5.1 -e 'dofile \"%s/paths.lua\"' %s --version"):format(bin, bin,
        scratch, script))
      assert.is_false(ok)
      assert.matches("^keywatch: [^\n]*PUC Lua 5%.1[^\n]*luajit[^\n]*PATH\n$", printed)
    end)
  end)

  for _, module in ipairs { "keywatch", "keywatch.core", "keywatch.uv", "keywatch.tls" } do
    it("refuses PUC Lua 5.1 with one sentence, from " .. module, function()
      local ok, message = shell.run(("%s lua5.1 -e 'local ok, message = pcall(require, \"%s\") print(message)'")
        :format(paths(top .. "/build/luajit", "luajit"), module))
      assert.is_true(ok)
      assert.matches("^keywatch [^\n]*Lua 5%.4[^\n]*LuaJIT[^\n]*\n$", message)
    end)
  end

  it("refuses the headers of PUC Lua 5.1 at compile time", function()
    local ok, log = shell.run(("cd %s && luarocks --lua-version=5.1 make --tree=%s/puc"):format(repo, scratch))
    assert.is_false(ok)
    assert.matches("#error[^\n]*keywatch [^\n]*Lua 5%.4[^\n]*LUA_INCDIR[^\n]*LuaJIT", log)
  end)

  describe("in a checkout with compiler warnings", function()
    local checkout, tree

    setup(function()
      checkout, tree = scratch .. "/checkout", scratch .. "/by-hand"
      shell.must(("git clone -q %s %s"):format(repo, checkout))
      local first = rockspec().build.modules["keywatch.core"].sources[1]
      write(checkout .. "/" .. first, read(first) .. "static int nobody_calls_this(void) { return 0; }\n")
    end)

    it("fails in a build by make", function()
      local ok, log = shell.run(("cd %s && make build/lua5.4/built"):format(checkout))
      assert.is_false(ok)
      assert.matches("nobody_calls_this", log)
    end)

    it("is built by a user's luarocks make, and so is keywatch-tls", function()
      shell.must(("cd %s && %s make --tree=%s"):format(checkout, luarocks["lua5.4"], tree))
      assert.are.equal("lua5.4\thello", shell.must(tree .. "/bin/kw-program"))
      shell.must(("cd %s && %s make --tree=%s %s"):format(checkout, luarocks["lua5.4"], tree, TLS_ROCKSPEC))
      write(repo .. "/secure.lua", [[
        local keywatch = require "keywatch"
        local cert, key = require("keywatch.tls").self_sign { hosts = "127.0.0.1" }
        local server = assert(keywatch.serve { store = keywatch.open(), listen = "https://127.0.0.1:0",
          tls = { cert = cert, key = key } })
        print(keywatch.connect(server:addresses()[1], { tls = { ca = cert } }):put("a", "1").revision)
      ]])
      assert.are.equal("2", shell.must(("%s lua5.4 %s/secure.lua"):format(paths(tree, "lua5.4"), repo)))
    end)
  end)
end)
