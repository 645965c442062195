--- The request of a lock through an object with the methods of a store that answers wrongly.

local check = require "keywatch.support.check"
local lock_requests = require "keywatch.concurrency.lock_requests"

--- An object with a store's methods whose transactions have this answer.
local function face_with(answer)
  return setmetatable({}, check.store_like { __name = "odd", __index = { txn = function() return answer end } })
end

describe("a claim", function()
  it("fails as in doubt if the answer has no oldest key", function()
    for _, own in ipairs { true, { create_revision = 2 } } do
      local created, err = lock_requests.create(face_with {
        succeeded = own == true, revision = 3, responses = { own, { kvs = {} } },
      }, "p/", "p/a", "", 1, false)
      assert.same({ nil, "malformed", true }, { created, err.code, err.maybe_done })
    end
  end)

  it("reports that the key was not created if the range is empty", function()
    assert.is_false((lock_requests.create(face_with {
      succeeded = false, revision = 3, responses = { false, { kvs = {} } },
    }, "p/", "p/a", "", 1, true)))
  end)
end)
