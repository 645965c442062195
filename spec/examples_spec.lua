--- The examples run as separate programs, on the VM of this run, and print the expected output.

local shell = require "spec.support.shell"

local expected = {
  ["quickstart.lua"] = [[

Every write has a revision.
  color = blue   at revision 2
  color = green  at revision 3

Every revision can be read.
  at revision 1 color was not there
  at revision 2 color was blue
  at revision 3 color was green

A transaction compares, then changes many keys in one revision.
  ann painted it red, at revision 4
  bob came late: ann was first

Keys bound to a lease go with it.
  at first there are 2
  after its end there are 0

In the end there is:
  color    = red    created at 2, changed at 4
  painter  = ann    created at 4, changed at 4
]],
  ["config_history.lua"] = [[
the key has changed since: retry
now: mode=fast workers=7
then: mode=safe workers=4
rolled back: mode=safe workers=4
revision 3: etcdserver: mvcc: required revision has been compacted (compacted)
]],
  ["watch_prefix.lua"] = [[
have    color = blue
have    size = 9
synced  at revision 3
put     color = green
delete  size
put     shape = round
at revision 6 it is green and round
the watch is closed
]],
  ["follow.lua"] = [[
have    color = blue
have    size = 9
synced  at revision 3
put     color = green
the server has gone
the server is back
put     color = red
delete  size
put     shape = round
]],
  ["config_follower.lua"] = [[
color	nil	->	blue
color	blue	->	green
size	nil	->	9
color	green	->	nil
now there is	size	9
]],
  ["live_table.lua"] = [[
-- revision 3, 1 objects
1        running    0
-- revision 4, 2 objects
1        running    0
2        waiting    1
-- revision 5, 3 objects
1        running    0
2        waiting    1
4        running    2
-- revision 6, 2 objects
2        waiting    1
4        running    2
-- revision 7, 1 objects
2        waiting    1
]],
  ["resume.lua"] = [[
The first reader:
  have   orders/1
  have   orders/2
  synced at 3
The second reader resumes there:
  put    orders/3
  delete orders/1
After a compaction:
  compacted: the oldest is 7, we have 5
So it begins again, with what exists:
  have   orders/3
  have   orders/4
  synced at 7
]],
  ["worker_pool.lua"] = [[
3 workers have done 8 jobs
0 jobs are left
1 squared is 1
2 squared is 4
3 squared is 9
4 squared is 16
5 squared is 25
6 squared is 36
7 squared is 49
8 squared is 64
]],
  ["react.lua"] = [[
/lamps/hall    on
/lamps/kitchen off
/lamps/kitchen off
/lamps/hall    is gone
]],
  ["job_runner.lua"] = [[
ann begins job 1
SWEEP by ann
ann begins job 2
ann's network fails
bob begins job 2
ann has lost job 2, and writes no result
WASH by bob
ann's network is back
0 jobs, 2 results
]],
  ["lease_expiry.lua"] = [[
web  is up at 10.0.0.1:80
db   is up at 10.0.0.2:5432
web  is gone; it was at 10.0.0.1:80
db   is gone; it was at 10.0.0.2:5432
no service is left
]],
  ["service.lua"] = [[
/demo.Notes/Write by ann has status 0
  red is stored at revision 2
  blue is stored at revision 3
  red is stored at revision 4
/demo.Notes/Read by ann has status 0
  third
/demo.Notes/Read by bob has status 5
/demo.Notes/List by bob has status 0
  notes/blue
  notes/red
/demo.Notes/Read by an unknown user has status 16
]],
  ["embedded_server.lua"] = [[
17984 primes up to 200000
in the same time, etcdctl:
OK
greeting
hello
1
nil	listen_failed	EADDRINUSE
it has ended well:	true
]],
}

--- The command that runs a file where this VM finds its modules. A leak would take seconds to look for, every time.
local function command(file)
  local lua = require("spec.support.vm").interpreter
  return ("export ASAN_OPTIONS=detect_leaks=0 LUA_PATH='%s' LUA_CPATH='%s' PATH=\"$PWD/spec/support/bin:$PATH\"\n"
    .. "exec env LD_PRELOAD='%s' %s examples/%s")
    :format(package.path, package.cpath, os.getenv("LD_PRELOAD") or "", lua, file)
end

describe("the example", function()
  for file, output in pairs(expected) do
    it(file .. " prints what it should", function()
      local ok, printed = shell.run(command(file))
      assert.are.equal(output, printed)
      assert.is_true(ok)
    end)
  end

  it("files are all tested #once", function()
    local elsewhere = { -- which other specs run
      ["replicas.lua"] = "spec/controller/examples_spec.lua", openresty = "spec/host/nginx_example_spec.lua",
    }
    for file in shell.must("ls examples"):gmatch("[^\n]+") do assert(expected[file] or elsewhere[file], file) end
  end)
end)
