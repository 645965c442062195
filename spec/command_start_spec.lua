--- Failed starts of `keywatch serve`: the error says what is missing, and where.

local command = require "spec.support.command"
local directory = require "spec.support.directory"
local fault = require "spec.support.fault"
local luv = require "spec.support.luv"
local process = require "spec.support.process"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local HTTP = "http://127.0.0.1:0"

describe("keywatch serve", function()
  local scratch

  before_each(function() scratch = directory.new() end)

  command.with_tests()

  --- Runs it behind another program, with some data directory. Returns the status and the output.
  local function run(before, ...)
    local argv = before
    local own = { vm.interpreter, luv.cwd() .. "/bin/keywatch", "serve", "--listen-client-urls", HTTP, ... }
    for _, argument in ipairs(own) do argv[#argv + 1] = argument end
    local server = process.start(argv, { env = vm.environment(), cwd = scratch })
    return server:wait(), server:stderr()
  end

  it("refuses a data directory of etcd, and names the command that converts it", function()
    local path = scratch .. "/etcd"
    for _, made in ipairs { "wal", "snap" } do -- etcd makes them one after the other
      shell.must("mkdir -p " .. path .. "/member/" .. made)
      assert.same({ 1, "keywatch: cannot open " .. path .. ": it is a data directory of etcd: make another one with "
        .. "keywatch restore --skip-hash-check, from its file member/snap/db\n" }, { run({}, "--data-dir", path) })
      assert.equal("member", shell.must("ls " .. path))
    end
  end)

  it("opens a directory that it has used before, also beside a directory of etcd", function()
    local path = scratch .. "/data"
    local server = command.start("serve", "--data-dir", path, "--listen-client-urls", HTTP)
    command.wait_until_ready(server)
    command.stop(server)
    shell.must("mkdir -p " .. path .. "/member/snap")
    command.wait_until_ready(command.start("serve", "--data-dir", path, "--listen-client-urls", HTTP))
  end)

  it("reports that it has too few descriptors", function()
    for _, limit in ipairs { 8, 12, 20 } do
      local status, got = run({ "prlimit", ("--nofile=%d:%d"):format(limit, limit) }, "--data-dir", "data")
      assert.equal(1, status)
      assert.matches("^keywatch: cannot serve data: %d+ file descriptors are free, and at least 32 are needed: "
        .. "raise the limit, see ulimit %-n\n$", got)
    end
  end)

  it("reports that the address space is too small for its database", function()
    if vm.is_sanitized then return end
    local status, got = run({ "prlimit", "--as=2000000000" }, "--data-dir", scratch .. "/data")
    assert.same({ 1, ("keywatch: cannot open %s/data: its map takes 4160 MiB of addresses: see ulimit -v, or lower the "
      .. "quota\n"):format(scratch) }, { status, got })
  end)

  it("names the flag of a number that is too large", function()
    local numbers = {
      ["quota-backend-bytes"] = "9223372036854775808", ["max-request-bytes"] = "9223372036854775808",
      ["max-txn-ops"] = "99999999999999999999", ["journal-segment-bytes"] = "9223372036854775808",
      ["max-concurrent-streams"] = "9223372036854775807", ["self-signed-cert-validity"] = "9223372036854775808",
      ["auto-compaction-retention"] = "9223372036854775807",
      ["watch-progress-notify-interval"] = "9223372036854775808h", ["grpc-keepalive-interval"] = "99999999999999h",
    }
    for name, number in pairs(numbers) do
      local status, got = run({}, "--memory", "--" .. name, number)
      assert.equal(2, status, got)
      assert.matches("^keywatch serve: %-%-" .. name:gsub("%-", "%%-") .. " must be [^\n]*\n$", got)
    end
  end)
end)

describe("keywatch serve on a full disk", function()
  local disk = fault.for_each_test()

  after_each(process.end_all)

  it("reports that, with the path, however little space there is", function()
    for _, kib in ipairs { 8, 64, 512, 3000 } do
      local argv = { "unshare", "--map-root-user", "--mount", "sh", "-c",
        ('mount -t tmpfs -o size=%dk tmpfs %s && exec "$@"'):format(kib, disk.directory), "sh", vm.interpreter,
        luv.cwd() .. "/bin/keywatch", "serve", "--listen-client-urls", HTTP, "--data-dir", disk.path }
      local server = process.start(argv, { env = vm.environment() })
      assert.equal(1, server:wait())
      local got = server:stderr()
      assert.is_truthy(got:find("^keywatch: cannot %a+ " .. disk.path:gsub("%p", "%%%0") .. ": "), got)
      local why = got:find("No space left on device", 1, true) or got:find("the disk or the quota is full", 1, true)
      assert.is_truthy(why, got)
    end
  end)
end)
