-- SPDX-License-Identifier: MIT
--- driver: chooses the driver of this program. The driver runs tasks, and gives them time, sockets and signals. Every
-- module that waits uses only this interface, and does not know the loop behind it.
--
-- A driver is a table of these functions.
--
-- Tasks and time. lua/keywatch/driver/coroutines.lua makes all of these for a driver whose tasks are coroutines:
--
--   now()            Returns the seconds of a clock that never goes back.
--   sleep(seconds)   Waits. Called by keywatch.sleep.
--   spawn(fn, ...)   Starts a task. Returns it: task:join(timeout), task:cancel(). Called by keywatch.spawn, and by
--                    servers for every call that is answered in Lua.
--   spawn_own(fn, ...)
--                    Starts a task that the program did not ask for. This is never refused, and no error is reported if
--                    the loop never turns again and the task never runs. Called by clients that have a hook.
--   run(fn, ...)     Runs fn as a task, and the loop until fn has ended. Called by keywatch.run.
--   event()          Returns a new event: event:wait(timeout) returns true, or false after the timeout; event:set().
--   channel(capacity), select(objects), join(tasks), scope(fn, ...)
--                    Called by the functions of these names of keywatch: see channel.lua, selection.lua, task.lua and
--                    scope.lua.
--   shield(seconds, fn, ...)
--                    Calls fn(...). During the call a cancellation of the caller is delayed, for at most this many
--                    seconds. Called by keywatch.shield, and where something is released. See span.lua.
--   limit(span, fn, ...)
--                    Calls fn(...). Its waits raise "cancelled" from the time span.ends_at on, if that is set.
--   cut(task, span)  Ends a limit of a task now.
--   check_cancelled()
--                    Raises if each wait of the caller would raise. Called after functions of the program.
--   is_cancellation(err)
--                    True if an error is the cancellation of the caller: its code is "cancelled", and each wait of the
--                    caller raises.
--   can_park()       True if the caller is a task that can be suspended here, not inside a function that C calls.
--                    Called when a write of a durable store has to wait for the disk: if false, the wait blocks the
--                    program.
--   check_wait()     Raises, at the line that called keywatch, if the caller cannot wait here.
--   check_send()     Raises like check_wait and check_cancelled. Called before a request is sent, so that a
--                    request whose answer cannot be awaited is not sent.
--   current()        Returns the calling task, or nil.
--   expire(task)     Ends the current wait of a task, or of the top level if `task` is nil, as if its timeout had
--                    passed. Does nothing if there is no wait. Called when a session is lost, for its requests.
--   protect(undo, object, fn, ...)
--                    Optional. Calls fn(...), which waits, and returns the results of pcall. If the task is killed
--                    during the call, so that its code never resumes, undo(object) is called elsewhere. Called by
--                    driver.protect, instead of pcall, around waits whose caller has to clean up.
--   in_request()     Optional. True if the caller is a request, which may end while the program continues.
--   patience()       Optional. Returns the seconds that a request, or a wait, without a timeout may take here, or nil
--                    if there is no special limit.
--   enter()          Notices if the process is a child of the one that called last. Other functions do that,
--                    too, when necessary. Called before an attached poller counts one more waiter.
--   is_gone(co)      True if a coroutine is that of a task whose code never runs again, though it has not ended. Called
--                    to check whether the coroutine that reads a watch is still active.
--
-- Pollers. A poller is a table with the method poll(). The driver calls poll once in each turn of the loop, after the
-- ready tasks have run. poll does the poller's work that is due, sets events, and returns the seconds until it must be
-- called again, or nil; and true if it must also be called when the bell has rung:
--
--   attach(poller)   From now on the poller is polled, and keeps the loop turning while it returns seconds or true.
--                    Does nothing if the poller is attached.
--   detach(poller)   From now on the poller is not polled. Does nothing if it is not attached.
--
-- A poller may have the method after_fork(), which is called in the child after a fork; the method on_move(), which is
-- called when sockets have to be opened elsewhere from now on, for example in another nginx timer; and the method
-- close(), which is called when an nginx worker exits. One poller may have the method rested(), which is called when
-- the loop has stopped turning. poll may attach and detach any poller. A poller with the field is_steady = true has
-- nothing new to do before the loop has turned, or the seconds have passed: it need not be polled in between. The
-- driver sets its field poll_at, the time of the next poll; the poller sets the field to nil if a caller outside of the
-- loop's turns has given it work.
--
-- Sockets and threads:
--
--   check_serve(has_thread)
--                    Raises, at the line that called keywatch, if nothing here would turn the loop of a server, unless
--                    it will have a thread; or if threads are impossible. Called before a server begins to listen.
--   listen(server, address, context)
--                    Listens for connections to a server of the core. address: { host =, port = } with an IP address,
--                    or { path = }. context: that of keywatch.tls; nil: without TLS. Returns a listener:
--                    listener:address(), listener:close(); or nil, the text and the name of the error.
--   resolve(name)    Looks a host name up. Blocks. Returns a list of IP addresses; or nil, the text and
--                    the name of the error.
--   lookup(name)     Begins to look a host name up. Returns a lookup: lookup:result() returns nil while it is
--                    running, a list of IP addresses, or false, the text and the name of the error.
--   dial(client, address, context, host, cache_key)
--                    Begins to connect a client of the core. With a context of keywatch.tls the connection speaks TLS:
--                    `host` is the name that the server's certificate must be for, and sessions are kept for
--                    resumption under `cache_key`. Returns true; or nil, the text and the name of the error.
--                    The core's client is notified of the state of the connection, and gets its bytes.
--   is_prompt()      Optional: true if received bytes are handled as soon as they arrive, without polling.
--   turns()          Optional: returns a histogram of the times between two waits of the loop, in seconds, and the
--                    longest of them. Called for metrics. See add_histogram in metrics_text.lua.
--   look()           Checks the sockets once, without waiting: reads, writes, and passes the bytes to the core.
--                    Resumes no task. May be called anywhere, even in a task.
--   hosts(object)    True if a server has listeners or connections, or a client its connection.
--   release(object)  Closes the listeners and connections of a server, or the connection of a client, at once.
--   forget(object)   Called by finalizers: the next turn of the loop calls object:close().
--   bell()           Returns the bell of the loop. Any thread may ring it. Called when a durable store is first waited
--                    for: the store's threads ring it when a commit group is settled.
--   hear(thread)     From now on the end of a thread wakes the loop; in the thread itself, the request to end wakes
--                    its loop.
--   has_signals      Optional: false if there are no signals to catch, and the host ends the program.
--   signals(names)   Catches signals. Returns signals: signals:wait(timeout) returns a name, or nil and an error;
--                    signals:close(). Or nil and an error. Called by keywatch.signals.
--
-- A driver of virtual time also has:
--
--   check_disk()     Raises: a store on a disk has the time of the driver. Called before a store on a disk is opened
--                    with the option `now`.
--   random()         Returns a random number, at least 0 and less than 1, which depends only on the run's seed.
--                    Without this function math.random is used.
--   carry(store)     Moves the manual clock of a store with the driver's clock. Called for each store, and each replica
--                    of a cache, that is opened while this driver is that of the program, and has no clock of its own.
--   on_connect(client)
--                    Called with each new client, if the function is there. Set by the testing kit; nginx's driver has
--                    one, too.
--
-- Finalizers. A finalizer may call spawn, task:cancel, event:set, channel:close and forget, and send and receive with a
-- timeout of 0, whatever code it interrupts. It must not wait: neither in a task, because that cannot be suspended
-- there, nor while the loop turns.
--
-- Fork. In the child a driver begins empty: sockets, listeners and signals belong to the parent, and so do all tasks
-- except the one that has forked. In the child those tasks count as cancelled, and none of their code runs.

local compat = require "keywatch.support.compat"
local errors = require "keywatch.support.errors"

local MAX_SEED = 2 ^ 31 -- of stores in virtual time
local GIVE_BACK = 5 -- seconds by which `finish` delays a cancellation

local current

--- True inside of nginx with its Lua module.
local function is_nginx()
  local ngx = rawget(_G, "ngx")
  return type(ngx) == "table" and ngx.get_phase ~= nil and ngx.timer ~= nil
end

--- Returns the driver of this program. The first call chooses it.
local function get()
  if not current then current = is_nginx() and require "keywatch.driver.ngx" or require "keywatch.driver.uv" end
  return current
end

--- Replaces the driver of this program. Returns the previous driver, or nil. For tests.
local function use(driver)
  local before = current
  current = driver
  return before
end

--- True if the caller is a task that can be suspended here. Does not choose a driver.
local function can_park()
  return current ~= nil and current.can_park()
end

--- Returns the deadline of a wait with a timeout; nil: none. If the driver limits all waits (`patience`), a wait
-- without a timeout has a deadline, too.
local function deadline_of(timeout)
  local d = get()
  local seconds = timeout or d.patience and d.patience()
  return seconds and d.now() + seconds
end

--- Returns the seconds until a deadline, or nil without a deadline.
local function time_left(deadline)
  return deadline and math.max(0, deadline - get().now())
end

--- Waits until holds(object) is true, or the deadline (nil: none) has passed. The event object[name] is set whenever
-- the result of `holds` may have changed. Returns that result.
local function await(object, name, deadline, holds)
  while not holds(object) do
    if not object[name]:wait(time_left(deadline)) then return holds(object) end
  end
  return true
end

--- True if the caller is an nginx request, and not the program itself.
local function in_request()
  local d = get()
  return d.in_request ~= nil and d.in_request()
end

--- Calls fn(...), which waits, and returns the results of pcall. If the task that calls this is killed during the wait,
-- as nginx does, undo(object) is called elsewhere. undo must not wait. Does not choose a driver.
local function protect(undo, object, fn, ...)
  if not current or not current.protect then return pcall(fn, ...) end
  return current.protect(undo, object, fn, ...)
end

--- True if an error is the cancellation of the caller: its code is "cancelled", and each wait of the caller raises.
local function is_cancellation(err)
  return current ~= nil and current.is_cancellation(err)
end

--- Returns the results of errors.attempt. Raises the error if it is the cancellation of the caller.
local function settle(ok, ...)
  if not ok and is_cancellation((...).err) then error((...).err, 0) end
  return ok, ...
end

--- Calls fn(...), a function of the program. Returns true and its results; or false and { err =, traceback = }. Raises
-- the cancellation of the caller.
local function attempt(fn, ...)
  return settle(errors.attempt(fn, ...))
end

--- Calls fn(...), which releases something. Delays a cancellation of the caller during the call, for at most GIVE_BACK
-- seconds. Returns the results of fn. Does not choose a driver.
local function finish(fn, ...)
  if not current then return fn(...) end
  return current.shield(GIVE_BACK, fn, ...)
end

--- Calls fn(...), a function of the program that processes an item taken from a queue. Returns the first results of
-- pcall. If the caller is cancelled in fn, fn is called once more, in a shield, so that the item is not lost.
local function compute(fn, ...)
  local ok, found, why = pcall(fn, ...)
  if ok or not is_cancellation(found) then return ok, found, why end
  return finish(pcall, fn, ...)
end

--- True if a coroutine has ended, or its code never runs again.
local function has_ended(co)
  return compat.status(co) == "dead" or current ~= nil and current.is_gone(co)
end

--- Returns a random number, at least 0 and less than 1, from the driver or else from math.random.
local function random()
  return (current and current.random or math.random)()
end

--- Raises in virtual time, where a store on a disk has the time of the driver. Called before a store on a disk is
-- opened with the option `now`. Does not choose a driver.
local function check_disk()
  if current and current.check_disk then current.check_disk() end
end

--- Opens a store of the core by open(opts), and returns the results. In virtual time, unless the options have `now`,
-- the store has the time of the driver, no threads, and a seed that depends only on the seed of the run.
local function open_store(open, opts)
  local carry = current and current.carry
  if not carry or opts ~= nil and (type(opts) ~= "table" or rawget(opts, "now") ~= nil) then
    local store, err = open(opts)
    return store, err
  end
  local own = { now = current.now(), threads = false, seed = math.floor(current.random() * MAX_SEED) }
  for name, value in next, opts or {} do own[name] = value end
  local store, err = open(own)
  if store then carry(store) end
  return store, err
end

--- Passes a new client to the driver, if that has a function for it. Does not choose a driver, except in nginx.
local function introduce(client)
  if not current and is_nginx() then get() end
  if current and current.on_connect then current.on_connect(client) end
end

--- Called by finalizers: the next turn of the loop calls object:close(). Without a driver the object has nothing to
-- close.
local function forget(object)
  if current then current.forget(object) end
end

return {
  get = get, use = use, can_park = can_park, has_ended = has_ended, random = random, check_disk = check_disk,
  open_store = open_store, introduce = introduce, forget = forget, protect = protect,
  deadline_of = deadline_of, await = await, time_left = time_left,
  is_cancellation = is_cancellation, attempt = attempt, finish = finish, compute = compute,
  in_request = in_request,
}
