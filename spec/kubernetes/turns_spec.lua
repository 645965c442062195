--- Many objects whose rows take long to make: other tasks run in between.

local http = require "keywatch.http"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local kube = require "spec.support.kube"

local ROWS = 20
local SECONDS = 0.001 -- that a row takes at least; a turn is over after 0.002
local MOST = 3 -- rows of a turn

describe("a table of many objects", function()
  local store, api, url, rows, most

  before_each(function()
    store, rows, most = keywatch.open(), 0, 0
    api = kubernetes.api { store = store, resources = { kube.WIDGET } }
    url = assert(api:serve { listen = "http://127.0.0.1:0" }):addresses()[1]
    api.resources[1].kind.columns[1].read = function()
      local since = keywatch.now()
      repeat until keywatch.now() - since >= SECONDS
      rows = rows + 1
      most = math.max(most, rows)
      return 1
    end
  end)

  after_each(function()
    api:close()
    store:close()
  end)

  --- Calls fn with a client, while another task counts the rows of each turn.
  local function expect_turns(fn)
    keywatch.run(function()
      local client = setmetatable({ http = http.client(), url = url }, kube)
      local revision = client:get(kube.ALL).body.metadata.resourceVersion -- the history begins here
      for i = 1, ROWS do client:create("w" .. i) end
      local is_done = false
      local ticker = keywatch.spawn(function()
        while not is_done do
          rows = 0
          keywatch.sleep(0)
        end
      end)
      local ok, err = pcall(fn, client, revision)
      is_done = true
      ticker:join()
      client.http:close()
      assert(ok, err)
    end)
    assert.is_true(most > 0 and most <= MOST, ("%d rows in a turn"):format(most))
  end

  --- Reads the rows of a watch.
  local function read_watch(client, query)
    local watch = client:watch(query, { accept = kube.TABLE })
    for _ = 1, ROWS do assert.equal("ADDED", watch:next().type) end
    watch:close()
  end

  it("is listed in many turns", function()
    expect_turns(function(client)
      assert.equal(ROWS, #client:get(kube.ALL, { accept = kube.TABLE }).body.rows)
    end)
  end)

  it("is the initial state of a watch in many turns", function()
    expect_turns(function(client) read_watch(client) end)
  end)

  it("is caught up with by a watch in many turns", function()
    expect_turns(function(client, revision) read_watch(client, "resourceVersion=" .. revision) end)
  end)
end)
