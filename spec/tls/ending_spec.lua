--- The end of a program whose threads speak TLS. OpenSSL frees what it shares between threads when the program calls
-- exit, while the threads continue.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local luv = require "spec.support.luv"
local process = require "spec.support.process"
local program = require "spec.support.program"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local SOCKETS = 4 -- that make handshakes at once

-- Delays the end of the process after all that OpenSSL does there: what was registered first is called last.
local LATE = [[
  #include <stdlib.h>
  #include <unistd.h>
  static void wait(void) { usleep(100000); }
  __attribute__((constructor)) static void begin(void) { atexit(wait); }
]]

local SERVE = [[
  local keywatch = require "keywatch"
  io.stdout:setvbuf("line")
  server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0", tls = { cert = %q, key = %q } })
  print(server:addresses()[1])
  io.read()
]]

describe("a program with a server in a thread that speaks TLS", function()
  local scratch, hello, is_over

  setup(function()
    scratch = shell.must("mktemp -d")
    files.compile(scratch, "late", LATE)
    local channel = assert(tls.client { verify = false }:connect("localhost"))
    channel:step()
    hello = channel:pending()
  end)

  teardown(function() shell.must("rm -rf " .. scratch) end)

  after_each(process.end_all)

  --- Has the server make a handshake up to its own certificate, again and again. Returns a table that counts them.
  local function hammer(port)
    local count = { n = 0 }
    local function begin()
      local socket = luv.new_tcp()
      socket:connect("127.0.0.1", port, function(err)
        if err then return socket:close() end
        socket:write(hello)
        socket:read_start(function(_, bytes)
          socket:close()
          if bytes then count.n = count.n + 1 end
          if not is_over then begin() end
        end)
      end)
    end
    for _ = 1, SOCKETS do begin() end
    return count
  end

  --- Runs a program that ends, by itself or by a signal, in the middle of handshakes. Returns its exit status, and what
  -- it wrote to stderr, without what is said of the clients, which cut their connections.
  local function run(text, signal)
    is_over = false
    local path = files.write(scratch .. "/program.lua", SERVE:format(certificates.paths("server")) .. text)
    local one = process.start({ vm.interpreter, path }, { env = vm.environment({}, scratch .. "/late.so") })
    local count = hammer(tonumber(one:expect("https://127.0.0.1:(%d+)\n")))
    assert(process.turn_until(function() return count.n > 20 end))
    if signal then one:signal(signal) else one:write("\n") end
    local status = one:wait()
    is_over = true
    luv.run("nowait")
    local said = one:stderr():gsub("[^\n]*the client has closed the connection without close_notify\n", "")
    return status, (said:gsub("[^\n]*further rejected connections: %d+\n", ""))
  end

  for name, ending in pairs { ["os.exit"] = "os.exit(3)", ["os.exit with its state"] = "os.exit(3, true)" } do
    it("ends well by " .. name .. " in the middle of handshakes", function()
      for _ = 1, 3 do assert.same({ 3, "" }, { run(ending) }) end
    end)
  end

  it("ends well by itself, by an error and by a signal in the middle of handshakes", function()
    assert.same({ 0, "" }, { run("") })
    local status, printed = run("error('a slip', 0)")
    assert.equal(1, status)
    assert.matches("a slip", printed)
    assert.same({ 143, "" }, { run("", "sigterm") })
  end)

  -- The other VM has no way to call fork. The allocator of AddressSanitizer does not survive one while another thread
  -- allocates: the child would wait forever for a lock without an owner.
  if jit and not vm.is_sanitized then
    it("forks in the middle of handshakes, and its children use TLS", function()
      local status, said = run [[
        local ffi = require "ffi"
        ffi.cdef "int fork(void); int waitpid(int pid, int *status, int options); void _exit(int status);"
        local tls = require "keywatch.tls"
        local cert, key = tls.self_sign { hosts = "localhost" }
        local function shake()
          local client = tls.client { ca = cert }:connect("localhost")
          local server = tls.server { cert = cert, key = key }:accept()
          for _ = 1, 3 do
            client:step()
            server:feed(client:pending())
            server:step()
            client:feed(server:pending())
          end
          return client:state().is_open and server:state().is_open
        end
        local result = ffi.new("int[1]")
        for _ = 1, 40 do
          local pid = ffi.C.fork()
          if pid == 0 then ffi.C._exit(shake() and 7 or 1) end
          ffi.C.waitpid(pid, result, 0)
          assert(result[0] == 7 * 256)
        end
        os.exit(3)
      ]]
      assert.same({ 3, "" }, { status, said })
    end)
  end

  if jit then -- the other VM has no way to call __cxa_atexit
    it("may use contexts and channels after OpenSSL's end, in its own exit handlers", function()
      local status, printed = program.run(([[
        local ffi = require "ffi"
        ffi.cdef "int __cxa_atexit(void (*handler)(void *), void *argument, void *object);"
        local at_exit
        ffi.C.__cxa_atexit(ffi.cast("void (*)(void *)", function() at_exit() end), nil, nil)
        local tls = require "keywatch.tls"
        local options = { cert = %q, key = %q }
        local client, server = tls.client { verify = false }:connect("localhost"), tls.server(options):accept()
        local context = assert(tls.server(options))
        client:step()
        server:feed(client:pending())
        at_exit = function()
          server:step()
          server:finish()
          print(server:state().has_work, server:pending() == "", client:write("x"), client:read())
          print(tls.client {})
          print(tls.self_sign { hosts = "localhost" })
          print(context:accept())
          print(context:certificate(), context:is_for("localhost"), context:refresh())
          client:close()
          context:close()
          io.stdout:flush()
        end
        os.exit(0)
      ]]):format(certificates.paths("server")))
      local refusal = "nil\tTLS can no longer be used: the process is exiting\tending\n"
      assert.same({ 0, "false\ttrue\t0\t\t0\n" .. refusal:rep(3) .. "nil\tfalse\t" .. refusal }, { status, printed })
    end)
  end
end)
