---@meta keywatch.controller
-- SPDX-License-Identifier: MIT
-- The module of controllers in LuaCATS annotations, for lua-language-server. This file is not executed.

---What controllers are built of: work queues, rate limiters, controllers, electors and managers.
---@class keywatch.controller
---@field limiter keywatch.controller.limiter
---@field ownership keywatch.controller.ownership
local controller = {}

---Returns a controller. It is idle.
---@param opts keywatch.controller.Options
---@return keywatch.controller.Controller controller
---@nodiscard
function controller.new(opts) end

---Returns a work queue.
---@param opts? keywatch.controller.WorkQueueOptions
---@return keywatch.controller.WorkQueue queue
---@nodiscard
function controller.work_queue(opts) end

---Rate limiters of retries.
---@class keywatch.controller.limiter
local limiters = {}

---Returns a limiter by which each item waits `first` seconds after its first failure, and twice as long after each other one.
---@param opts? keywatch.controller.ExponentialOptions
---@return keywatch.controller.Limiter limiter
---@nodiscard
function limiters.exponential(opts) end

---Returns a limiter by which all items together are tried `rate` times a second.
---@param opts? keywatch.controller.BucketOptions
---@return keywatch.controller.Limiter limiter
---@nodiscard
function limiters.bucket(opts) end

---Returns a limiter by which an item waits a short time after its first failures, and a long one after the others.
---@param opts? keywatch.controller.FastSlowOptions
---@return keywatch.controller.Limiter limiter
---@nodiscard
function limiters.fast_slow(opts) end

---Returns a limiter by which an item waits as long as the strictest limiter of a list wants.
---@param list keywatch.controller.Limiter[]
---@return keywatch.controller.Limiter limiter
---@nodiscard
function limiters.max(list) end

---Returns a limiter that is another one, but lets no item wait longer than `longest` seconds.
---@param limiter keywatch.controller.Limiter
---@param longest number seconds
---@return keywatch.controller.Limiter limiter
---@nodiscard
function limiters.at_most(limiter, longest) end

---@class keywatch.controller.WorkQueueOptions
---@field name? string for logs
---@field limiter? keywatch.controller.Limiter of retries; the longer of exponential() and bucket()

---@class keywatch.controller.ExponentialOptions
---@field first? number seconds after the first failure; 0.005
---@field longest? number seconds at most; 1000

---@class keywatch.controller.BucketOptions
---@field rate? number items in a second; 10
---@field burst? number items at once; 100

---@class keywatch.controller.FastSlowOptions
---@field fast? number seconds after each of the first failures; 0.005
---@field slow? number seconds after each later failure; 10
---@field tries? integer failures that count as the first ones; 3

---@class keywatch.controller.AddOptions
---@field after? number seconds until the item is due; 0
---@field priority? number items of a higher one come first; 0

---@class keywatch.controller.RetryOptions
---@field priority? number that with which the item was handed out

---Decides how long an item that has failed waits. A program may have limiters of its own: any object with these methods.
---@class keywatch.controller.Limiter
local Limiter = {}

---Counts a failure of an item. Returns the seconds to wait.
---@param item any
---@return number seconds
function Limiter:when(item) end

---Forgets the failures of an item.
---@param item any
function Limiter:forget(item) end

---Returns the failures of an item.
---@param item any
---@return integer count
function Limiter:retries(item) end

---Items that are to be worked on: each is there once, and is handed out to one worker at a time.
---@class keywatch.controller.WorkQueue
local WorkQueue = {}

---Adds an item. Returns false if the queue is closed.
---@param item any any value except nil and NaN
---@param opts? keywatch.controller.AddOptions
---@return boolean is_open
function WorkQueue:add(item, opts) end

---Adds an item that has failed, after a time that the limiter chooses. Returns the seconds, or false if the queue is closed.
---@param item any
---@param opts? keywatch.controller.RetryOptions
---@return number|false seconds
function WorkQueue:retry(item, opts) end

---Has the limiter forget the failures of an item.
---@param item any
function WorkQueue:forget(item) end

---Returns how often an item has failed since it was forgotten.
---@param item any
---@return integer count
function WorkQueue:retries(item) end

---Waits for the next item and returns it.
---@param timeout? number seconds
---@return any? item
---@return keywatch.Error? err "timeout", "closed"
function WorkQueue:get(timeout) end

---Ends the work on an item. If the item was added during the work, it is queued again.
---@param item any
function WorkQueue:done(item) end

---Closes the queue: nothing is added any more, delayed items are dropped, and workers get what is queued. Idempotent.
function WorkQueue:close() end

---Closes the queue, and waits until all work has ended.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err "timeout", "closed"
function WorkQueue:drain(timeout) end

---Returns the number of items that are queued.
---@return integer count
function WorkQueue:count() end

---Returns the status of the queue. Does not wait.
---@return keywatch.controller.WorkQueueStatus status
function WorkQueue:status() end

---@class keywatch.controller.WorkQueueStatus
---@field name? string
---@field depth integer items that are queued
---@field active integer items that are being worked on
---@field delayed integer items that are due later
---@field adds integer calls of add and retry
---@field gets integer items that were handed out
---@field retries integer calls of retry
---@field latency_seconds number that items have been queued, in sum
---@field longest_latency_seconds number
---@field work_seconds number that ended work has taken, in sum
---@field longest_work_seconds number
---@field unfinished_seconds number that the present work has taken, in sum
---@field longest_running_seconds number that the oldest present work has taken
---@field is_closed boolean

---Calls the function `reconcile` for the requests that its sources make of changes.
---@class keywatch.controller.Controller
---@field name string
local Controller = {}

---Starts the controller. Does not wait. Raises if it belongs to a manager.
---@param store? keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence what reconcile finds in its context in place of the store of the options
function Controller:start(store) end

---Stops the controller: works on what is queued, and cancels what has not ended after `timeout` seconds.
---@param timeout? number seconds; 30
---@return true? ok
---@return keywatch.Error? err "timeout"
function Controller:stop(timeout) end

---Waits until the controller has stopped.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err that the controller has ended with; "timeout"
function Controller:join(timeout) end

---Starts the controller, and waits until it has stopped.
---@return true? ok
---@return keywatch.Error? err that the controller has ended with
function Controller:run() end

---Adds a request. Returns false unless the controller is started.
---@param request any
---@param opts? keywatch.controller.AddOptions
---@return boolean is_added
function Controller:add(request, opts) end

---True if all sources have synced, and the workers run.
---@return boolean has_synced
function Controller:has_synced() end

---Returns the status of the controller. Does not wait.
---@return keywatch.controller.Status status
function Controller:status() end

---@class keywatch.controller.Options
---@field name string
---@field sources (keywatch.controller.Source|keywatch.Informer|keywatch.ObjectWatch|keywatch.Channel)[]
---@field reconcile fun(request: any, context: keywatch.controller.Context): keywatch.controller.Outcome|table|boolean?, any may return what a write returns
---@field workers? integer calls of reconcile at the same time, each for another request; 1
---@field timeout? number seconds after which a call is cancelled; never
---@field sync_timeout? number seconds after which a controller whose sources have not synced ends; 120
---@field limiter? keywatch.controller.Limiter of retries; the longer of exponential() and bucket()
---@field store? keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence what reconcile finds in its context

---Where requests come from: an informer, an object watch or a channel at index 1, or `every`.
---@class keywatch.controller.Source
---@field [1]? keywatch.Informer|keywatch.ObjectWatch|keywatch.Channel
---@field map? fun(object: any, key: string?, event: table): any makes requests: one, a list of them, or nil
---@field where? fun(event: table): boolean? changes for which this is false make no request
---@field owner? boolean the request is the key of the object's owner
---@field resync? number seconds, of an informer: all objects come again
---@field every? number seconds
---@field request? any of `every`

---@class keywatch.controller.Context
---@field request any
---@field retries integer failures of the request so far
---@field store any that of the options, or of start
---@field controller keywatch.controller.Controller

---What comes next for a request. One field.
---@class keywatch.controller.Outcome
---@field after? number seconds: the request is done, and comes again then
---@field again? boolean the request comes again, after a time that the limiter chooses
---@field never? any the reason: the request has failed, and does not come again by itself

---@class keywatch.controller.Status
---@field name string
---@field state "idle"|"syncing"|"running"|"stopping"
---@field workers integer
---@field busy integer workers that call reconcile now
---@field overdue integer calls that run now, for longer than the timeout
---@field calls integer calls of reconcile that have ended
---@field done integer calls after which the request was done
---@field later integer calls that have returned `after`
---@field again integer calls that have returned `again`
---@field failed integer calls that have failed, and whose request comes again
---@field raised integer calls that have raised; they count as failed, too
---@field late integer calls that have taken longer than the timeout
---@field given_up integer calls that have returned `never`
---@field source_failures integer calls of `map` and `where` that have failed
---@field seconds number that the calls have taken, in sum
---@field longest_call_seconds number that the oldest present call has taken
---@field stuck table seconds of calls that are stuck in its informers, by the name of the handler
---@field failure? keywatch.Error that the controller has ended with
---@field queue? keywatch.controller.WorkQueueStatus

-- {====== Leading ======

---Returns an elector. It is idle.
---@param opts keywatch.controller.ElectorOptions
---@return keywatch.controller.Elector elector
---@nodiscard
function controller.elector(opts) end

---@class keywatch.controller.ElectorOptions
---@field store keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence
---@field name string of the election: its keys are below `name/`
---@field id? string what the others see; the host's name and the id of the process
---@field ttl? integer seconds after which a leader that is gone is replaced; 15
---@field on_lead? fun(fence: keywatch.Fence, leadership: keywatch.Leadership) called in a task, which is cancelled when the term ends
---@field on_lose? fun(err: any) called after each term, when its on_lead has ended
---@field on_leader? fun(id: string) called when another one leads than before

---Takes part in an election again and again.
---@class keywatch.controller.Elector
local Elector = {}

---Starts to take part. Does not wait.
function Elector:start() end

---Stops: on_lead is cancelled and waited for, the key is deleted, and on_lose is called. Called by a function of the elector, it does not wait.
---@param timeout? number seconds; 30
---@return boolean? ok
---@return keywatch.Error? err `timeout`; or why the key could not be deleted: it is deleted when its lease expires
function Elector:stop(timeout) end

---Waits until the elector is idle.
---@param timeout? number seconds
---@return boolean? ok
---@return keywatch.Error? err what the elector has ended with, or `timeout`
function Elector:join(timeout) end

---True if this process leads, as far as is known. Does not wait.
---@return boolean is_leader
function Elector:is_leader() end

---Returns the id of the leader that was observed last; nil if there is none, or none is known. Does not wait.
---@return string? id
function Elector:leader() end

---Returns an object with the methods of the store. Its writes are done only while this process leads, in whichever term; otherwise they fail with `lost`.
---@return keywatch.Fence fence
function Elector:fence() end

---Returns the status of the elector. Does not wait.
---@return keywatch.controller.ElectorStatus status
function Elector:status() end

---@class keywatch.controller.ElectorStatus
---@field name string of the election
---@field id string
---@field state "idle"|"waiting"|"leading"|"stopping"
---@field leader? string the id of the leader that was observed last
---@field terms integer how often this elector has led
---@field revision? integer of the key by which this process leads
---@field is_busy boolean on_lead has not returned
---@field trouble? any the error of the last campaign, or of on_lead, if it has failed
---@field failure? keywatch.Error that the elector has ended with

-- }======

-- {====== Ownership and deletion ======

---Owners, finalizers and the deletion of objects.
---@class keywatch.controller.ownership
local ownership = {}

---Requests the deletion of an object: deletes the key, or marks the object if it has finalizers.
---@param store keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence
---@param key string
---@param opts? keywatch.CallOptions
---@return boolean? done false if the key is gone, or the object is marked already
---@return keywatch.Error? err
function ownership.delete(store, key, opts) end

---Adds a finalizer to an object.
---@param store keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence
---@param key string
---@param name string
---@param opts? keywatch.CallOptions
---@return boolean? done false if the object has it, is being deleted, or does not exist
---@return keywatch.Error? err
function ownership.add_finalizer(store, key, name, opts) end

---Removes a finalizer from an object. The key of an object whose deletion was requested goes with the last one.
---@param store keywatch.Store|keywatch.Client|keywatch.Namespace|keywatch.Fence
---@param key string
---@param name string
---@param opts? keywatch.CallOptions
---@return boolean? done false if the object does not have it, or does not exist
---@return keywatch.Error? err
function ownership.remove_finalizer(store, key, name, opts) end

---True if an object has a finalizer.
---@param object any as the codec json decodes it
---@param name string
---@return boolean has_finalizer
function ownership.has_finalizer(object, name) end

---True if the deletion of an object was requested.
---@param object any as the codec json decodes it
---@return boolean is_deleting
function ownership.is_deleting(object) end

---Returns the key of the owner of an object.
---@param object any as the codec json decodes it
---@return string? key
function ownership.owner_of(object) end

-- }======

---Returns a manager. Nothing has been started.
---@param opts keywatch.controller.ManagerOptions
---@return keywatch.controller.Manager manager
---@nodiscard
function controller.manager(opts) end

---@class keywatch.controller.ManagerOptions
---@field store any a store, a client, a namespace or a fence
---@field election? string name of an election: components run while this process leads it; none
---@field id? string name of this process in the election; host:pid
---@field ttl? integer seconds after which another process leads if this one has died; 15
---@field stop_timeout? number seconds after which what has not stopped is cut short; 30
---@field sync_timeout? number seconds after which caches and informers that have not synced are a failure; 120
---@field listen_metrics? string|string[] URLs of the endpoints for monitoring systems; none unless given
---@field tls? keywatch.ServeTLSOptions TLS for those of them with https:// and unixs:, which need it

---Several controllers, caches and other components in one process, which are started and stopped in order.
---@class keywatch.controller.Manager
---@field store any that of the options; with an election its fence: reads always, writes while this process leads
local Manager = {}

---Adds a component. Returns it; or nil and an error if the manager is being stopped.
---@generic T: keywatch.controller.Controller|keywatch.controller.Elector|keywatch.Informer|keywatch.Cache|keywatch.controller.Component
---@param component T
---@param opts? keywatch.controller.ManagerAddOptions
---@return T? component
---@return keywatch.Error? err "closed"
function Manager:add(component, opts) end

---Runs a controller file: the file returns a function, which is called with the manager and the other arguments.
---@param path string
---@param ... any
---@return true? ok
---@return keywatch.Error? err "failed_precondition", "closed"
function Manager:load(path, ...) end

---Starts everything. Does not wait.
function Manager:start() end

---True if everything that may run has been started, and has synced.
---@return boolean has_synced
function Manager:has_synced() end

---Waits until has_synced is true.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err that the manager ends with; "closed", "timeout"
function Manager:wait_synced(timeout) end

---Waits until this process leads; without an election, until the manager is started.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err that the manager ends with; "closed", "timeout"
function Manager:wait_leading(timeout) end

---Stops everything in reverse order. What has not stopped after `timeout` seconds is cancelled.
---@param timeout? number seconds; stop_timeout of the options
---@return true? ok
---@return keywatch.Error? err "timeout"
function Manager:stop(timeout) end

---Waits until the manager has stopped.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err that the manager has ended with; "timeout"
function Manager:join(timeout) end

---Starts everything, and waits for a signal or a failure; then stops in order.
---@param opts? keywatch.controller.ManagerRunOptions
---@return true? ok
---@return keywatch.Error? err that the manager has ended with
function Manager:run(opts) end

---True if nothing is wrong; else false, and texts that say what is.
---@return boolean is_healthy
---@return string[] texts
function Manager:is_healthy() end

---Returns the status of the manager. Does not wait.
---@return keywatch.controller.ManagerStatus status
function Manager:status() end

---Returns the URLs of `listen_metrics`, with the ports that the kernel chose, from `start` until the manager has stopped.
---@return string[] urls
---@nodiscard
function Manager:addresses() end

---Returns all counters as Prometheus text.
---@return string text
function Manager:metrics() end

---@class keywatch.controller.ManagerAddOptions
---@field leader? boolean false: the component runs also while this process does not lead; true

---@class keywatch.controller.ManagerRunOptions
---@field signals? string[] INT and TERM

---What a program may add beside controllers: an object with these methods.
---@class keywatch.controller.Component
---@field name? string for logs
---@field start fun(self: any, store: any): any, any may wait; false, or nil and an error, is a failure
---@field stop fun(self: any, timeout: number): any, any may wait; may be called again, with 0
---@field has_synced? fun(self: any): boolean
---@field status? fun(self: any): table `failure`: the component has ended; `trouble`: what is wrong at the moment

---@class keywatch.controller.ManagerStatus
---@field state "new"|"started"|"stopping"|"stopped"
---@field has_synced boolean
---@field is_leader boolean components that need the leadership may run
---@field leader? string id of the leader that was observed
---@field id? string of this process in the election
---@field failure? keywatch.Error that the manager ends with
---@field components keywatch.controller.ComponentStatus[]

---@class keywatch.controller.ComponentStatus
---@field kind "controller"|"informer"|"cache"|"elector"|"component"
---@field name string
---@field state "idle"|"starting"|"started"|"stopping"|"stopped"|"failed"
---@field leader boolean whether it needs the leadership
---@field has_synced boolean
---@field status? any its own status

return controller
