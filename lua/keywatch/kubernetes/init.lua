-- SPDX-License-Identifier: MIT
--- keywatch.kubernetes: resources of your own, as Kubernetes' API serves them. See docs/kubernetes.md.

local api = require "keywatch.kubernetes.api"
local builtin = require "keywatch.kubernetes.builtin"

return { api = api.open, builtin = builtin }
