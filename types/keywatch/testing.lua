---@meta keywatch.testing
-- SPDX-License-Identifier: MIT
-- The testing kit in LuaCATS annotations, for lua-language-server. This file is not executed.

---Virtual time, a network inside of the process, and faults on demand.
---@class keywatch.testing
local testing = {}

---Opens a world, runs fn in it as a task, and closes it.
---@param fn fun(world: keywatch.testing.World): ...
---@param opts? keywatch.testing.WorldOptions
---@return any ... what fn returns
function testing.run(fn, opts) end

---Opens a world. Its time is that of the program until it is closed.
---@param opts? keywatch.testing.WorldOptions
---@return keywatch.testing.World world
---@nodiscard
function testing.world(opts) end

---@class keywatch.testing.WorldOptions
---@field seed? integer on which all random numbers depend; 1
---@field now? number time at which the world begins; 0
---@field idle? number seconds after which a program in which all tasks wait has failed; 3600
---@field limit? number seconds after which a program that has not ended has failed; 86400
---@field turns? number turns of the loop at one moment, after which a program is taken for a hot loop; 100000
---@field leftovers? "fail"|"cancel" what happens if tasks are left over; "fail"

---A run in virtual time.
---@class keywatch.testing.World
---@field seed integer
---@field server keywatch.testing.Server the first server, made when it is first asked for
---@field counts table<string,integer> how often each fault has occurred
---@field log table[] the last 1,000 log lines: time, level, text, fields
---@field random fun(m?: integer, n?: integer): number as math.random, by the seed
local World = {}

---Runs fn as a task of the world, until it has ended.
---@param fn fun(world: keywatch.testing.World): ...
---@return any ... what fn returns
function World:run(fn) end

---Closes the world, with its clients, servers and tasks.
function World:close() end

---Returns a client of the world's server; or of the option `server`, one or a list. Other options are those of keywatch.connect.
---@param opts? table
---@return keywatch.Client? client
---@return keywatch.Error? err
---@nodiscard
function World:client(opts) end

---Makes another server, with a store of its own.
---@param opts? keywatch.testing.ServeOptions
---@return keywatch.testing.Server server
function World:serve(opts) end

---Adds a rule by which requests fail.
---@param rule keywatch.testing.RuleOptions
---@return keywatch.testing.Rule rule
function World:fault(rule) end

---Cuts the connections of a client. Returns how many there were.
---@param client keywatch.Client
---@return integer count
function World:cut(client) end

---Isolates a client: nothing arrives there, or from there, until `join`.
---@param client keywatch.Client
function World:isolate(client) end

---Ends the isolation of a client.
---@param client keywatch.Client
function World:join(client) end

---The whole process stands still for so long.
---@param seconds number
function World:pause(seconds) end

---@class keywatch.testing.ServeOptions
---@field url? string
---@field open? keywatch.OpenOptions of its store

---@class keywatch.testing.RuleOptions
---@field [1] "refuse"|"delay"|"hang"|"lose_request"|"lose_answer"|"mute"
---@field method? string|string[] names of methods, "read", "write", or paths; default: all
---@field key? string requests that touch it
---@field prefix? boolean `key` is a prefix
---@field client? keywatch.Client requests of it
---@field server? keywatch.testing.Server requests to it
---@field skip? integer requests that pass first
---@field count? integer times that the rule fires, at most
---@field chance? number from 0 to 1
---@field error? string|table of "refuse": a code, "no_leader", or { grpc_status =, message = }
---@field seconds? number|number[] of "delay": a number, or { least, most }

---A rule by which requests fail.
---@class keywatch.testing.Rule
---@field kind string
---@field hits integer how often it has fired
local Rule = {}

---Ends the rule.
function Rule:stop() end

---A server of a world.
---@class keywatch.testing.Server
---@field name string
---@field url string
---@field store keywatch.Store
local Server = {}

---Stops the server as a crash does: connections are lost, and new ones refused.
function Server:stop() end

---Serves again, with the same store. A stop or kill in another task ends a start that has not ended.
function Server:start() end

---Kills a server whose store has a disk: what is not durable is lost. `start` opens the store again.
function Server:kill() end

---Stops the server, and starts it `seconds` later, or at once.
---@param seconds? number
function Server:restart(seconds) end

---Cuts all connections. Returns how many there were.
---@return integer count
function Server:cut() end

---Isolates the server: nothing arrives there, or from there, until `join`.
function Server:isolate() end

---Ends the isolation.
function Server:join() end

---Sets how many seconds bytes take, each way: a number, or two between which it is random.
---@param least number
---@param most? number
function Server:slow(least, most) end

---Compacts up to a revision, or up to now.
---@param revision? integer
---@return table? result
---@return keywatch.Error? err
function Server:compact(revision) end

---Sets the server back to the state at a revision.
---@param revision integer
---@return boolean? ok
---@return keywatch.Error? err "compacted"
function Server:restore(revision) end

---Replaces the server by an empty one of another cluster.
function Server:replace() end

---Ends a lease with its keys.
---@param lease keywatch.Lease|integer|string
---@return boolean? ok
---@return keywatch.Error? err "lease_not_found"
function Server:lose_lease(lease) end

return testing
