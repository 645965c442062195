-- SPDX-License-Identifier: MIT
--- keywatch.controller: what controllers are built of. See docs/controller.md.

local controllers = require "keywatch.controller.controller"
local convention = require "keywatch.controller.convention"
local elector = require "keywatch.controller.elector"
local limiter = require "keywatch.controller.limiter"
local manager = require "keywatch.controller.manager"
local work_queue = require "keywatch.controller.work_queue"

return {
  new = controllers.new,
  work_queue = work_queue.new,
  elector = elector.new,
  manager = manager.new,
  limiter = {
    exponential = limiter.exponential,
    fast_slow = limiter.fast_slow,
    bucket = limiter.bucket,
    max = limiter.max,
    at_most = limiter.at_most,
  },
  ownership = {
    delete = convention.delete,
    add_finalizer = convention.add_finalizer,
    remove_finalizer = convention.remove_finalizer,
    has_finalizer = convention.has_finalizer,
    is_deleting = convention.is_deleting,
    owner_of = convention.owner_of,
  },
}
