-- SPDX-License-Identifier: MIT
local function compile() return { matches = function() return true end } end
return { compile = compile, budget = function() return {} end }
