---@meta keywatch
-- SPDX-License-Identifier: MIT
-- keywatch for editors: the public face in LuaCATS annotations, as lua-language-server reads them. Nothing runs.

---A versioned key-value store with etcd's semantics.
---@class keywatch
---@field _VERSION string
local keywatch = {}

---Opens a store: an empty one in memory, which fails only for lack of memory; or with `path`, one on a disk.
---@param opts? keywatch.OpenOptions
---@return keywatch.Store store
---@return keywatch.Error? err
---@nodiscard
function keywatch.open(opts) end

---A client of keywatch's server, or of etcd. Nothing is sent before it is used.
---@param endpoints string|string[] URLs: "http://host:port", "unix:/path"
---@param opts? keywatch.ConnectOptions
---@return keywatch.Client client
---@nodiscard
function keywatch.connect(endpoints, opts) end

---Serves a store to etcd's clients. It listens when this returns, and answers while the loop turns, until it is closed.
---With `thread` it answers always, until it is closed or forgotten.
---@param opts keywatch.ServeOptions
---@return keywatch.Server? server
---@return keywatch.Error? err "listen_failed", "thread_failed", or "out_of_memory"
function keywatch.serve(opts) end

---Calls `fn` as a task, and turns the loop until it has ended; the tasks that are left are then cancelled. Raises what
---fn failed with, or a task that nobody joined. For the top level only.
---@param fn fun(...: any): ...
---@param ... any for fn
---@return any ... what fn returned
function keywatch.run(fn, ...) end

---A task that calls `fn` when the loop turns next.
---@param fn fun(...: any): ...
---@param ... any for fn
---@return keywatch.Task task
function keywatch.spawn(fn, ...) end

---Waits. In a task others go on; 0 lets them go first.
---@param seconds number
function keywatch.sleep(seconds) end

---Seconds of a clock that never goes back. Its zero means nothing.
---@return number seconds
---@nodiscard
function keywatch.now() end

-- Words -------------------------------------------------------------------------------------------------------------

---A 64-bit id. On LuaJIT an id beyond 2^53 is a decimal string; both forms are accepted everywhere.
---@alias keywatch.Id integer|string

---@alias keywatch.SortOrder
---| "none" # the order of keys
---| "ascend"
---| "descend"

---@alias keywatch.SortTarget
---| "key"
---| "version"
---| "create" # create_revision
---| "mod" # mod_revision
---| "value"

---@alias keywatch.CompareOp
---| "=" # the default
---| "!="
---| ">"
---| "<"

---@alias keywatch.AlarmName
---| "no_space" # the quota is used up: puts and grants fail
---| "corrupt" # every write fails

---@alias keywatch.EventType
---| "put"
---| "delete"

---@alias keywatch.Filter
---| "no_put" # leave out puts
---| "no_delete" # leave out deletes

---@alias keywatch.ErrorCode
---| "cancelled" # the task that waited was cancelled
---| "closed" # the store, or the watch, was closed
---| "compacted" # the revision is older than the oldest that can be read
---| "corrupt" # the alarm is armed, or what is on the disk is damaged
---| "duplicate_key" # a transaction writes one key twice
---| "duplicate_watch_id" # of a watch that is made over the wire
---| "empty_key"
---| "empty_range" # no key could be in what is to be watched
---| "full" # the watch holds as much as it may
---| "future_revision" # the revision is newer than the newest
---| "invalid_sort"
---| "key_not_found" # ignore_value or ignore_lease, and no key to take it from
---| "lease_exists" # the id is taken
---| "lease_not_found" # there is no such lease, or not any more
---| "lease_provided" # ignore_lease together with a lease
---| "lease_ttl_too_large"
---| "listen_failed" # a server could not listen on an address
---| "malformed" # what came over the wire is no message
---| "stopped" # the server ends
---| "thread_failed" # the thread of a server has ended, or could not start
---| "no_space" # the quota is used up, or the disk
---| "out_of_memory" # nothing has changed
---| "read_only" # a write to a replica
---| "request_too_large" # more than max_request_bytes
---| "stale_revision" # a replica already is as far
---| "storage" # the disk has failed: the store can only be read until it is opened again; or it cannot be opened
---| "timeout" # the time to wait is over; nothing has failed
---| "too_many_ops" # more than max_txn_ops
---| "too_many_snapshots" # of a server, at once
---| "too_many_requests" # connections hold more than quota_connection_bytes, and this one more than its share
---| "value_provided" # ignore_value together with a value
---| "aborted" # the server has given it up
---| "already_exists"
---| "cluster_changed" # the server is one of another cluster: the watch does not go on
---| "data_loss"
---| "deadline_exceeded" # the time is over; a write may have been done
---| "failed_precondition"
---| "internal" # the server, or the way to it, does not speak gRPC as it should
---| "invalid_argument"
---| "not_found"
---| "out_of_range"
---| "permission_denied" # the user may not do that
---| "regressed" # the server has been set back to an older state: the watch does not go on
---| "answer_too_large" # above the client's max_message; what was asked for has been done
---| "resource_exhausted" # more than somebody on the way takes
---| "unauthenticated" # the server does not know who calls
---| "unavailable" # no server answers; a write may have been done, unless it says which endpoint cannot be reached
---| "unimplemented" # the server has no such method
---| "unknown"
---| "unsupported" # sync, with a server whose progress cannot be trusted

---What the world did wrong. Misuse raises a plain string instead.
---@class keywatch.Error
---@field code keywatch.ErrorCode
---@field message string etcd's own text, where etcd has the error
---@field grpc_status integer
---@field errno? string the system's name, such as "EADDRINUSE", for the code "listen_failed"
---@field maybe_done? boolean true if a write may have been done, or will be, though it failed
---@field compact_revision? integer the oldest revision that can be read, for the code "compacted"
---@operator concat(any): string

-- Records and results -----------------------------------------------------------------------------------------------

---A key as it was at one revision.
---@class keywatch.KV
---@field key string
---@field value string "" with keys_only
---@field create_revision integer when the key was last created
---@field mod_revision integer when it was last put
---@field version integer how often it was put since it was created
---@field lease keywatch.Id 0 for none

---@class keywatch.RangeResult
---@field revision integer of the store
---@field kvs keywatch.KV[]
---@field count integer of the keys in the range, with no regard to limit
---@field more boolean whether limit left some out

---@class keywatch.PutResult
---@field revision integer of this put
---@field prev_kv? keywatch.KV what the key was before, if prev_kv was asked for

---@class keywatch.DeleteResult
---@field revision integer of this delete, or of the store if nothing was deleted
---@field deleted integer
---@field prev_kvs? keywatch.KV[] what was deleted, if prev_kv was asked for

---A response is what the plain call would have returned; `false` for a get that found nothing.
---@alias keywatch.Response
---| keywatch.KV
---| keywatch.RangeResult
---| keywatch.PutResult
---| keywatch.DeleteResult
---| keywatch.TxnResult
---| false

---@class keywatch.TxnResult
---@field succeeded boolean whether every compare held
---@field revision integer
---@field responses keywatch.Response[] one for each op of the branch that ran

---@class keywatch.RevisionResult
---@field revision integer of the store

---@class keywatch.Status
---@field revision integer
---@field compact_revision integer the oldest revision that can be read; -1 before the first compaction
---@field keys integer that exist
---@field leases integer
---@field db_size integer in bytes
---@field db_size_in_use integer in bytes
---@field quota integer in bytes; 0 for none
---@field commits? integer of a durable store: groups of writes that have become durable since it was opened
---@field alarms keywatch.AlarmName[]

---@class keywatch.Hash
---@field hash integer etcd's HashKV
---@field revision integer of the store
---@field compact_revision integer
---@field hash_revision integer up to which the hash goes

---@class keywatch.ServerStatus
---@field revision integer
---@field version string of etcd, or the one that we are taken for
---@field endpoint? string that answered
---@field cluster_id string
---@field member_id string
---@field leader string
---@field raft_term? integer
---@field db_size integer in bytes
---@field db_size_in_use integer in bytes
---@field errors string[]

---@class keywatch.ServerHash
---@field hash integer etcd's HashKV
---@field revision integer of the store
---@field compact_revision integer

-- Options -----------------------------------------------------------------------------------------------------------

---@class keywatch.OpenOptions
---@field path? string the directory of a durable store, made if it is missing; without it the store is in memory
---@field on_progress? function of a durable store: told, now and then, how many records have been read, and of how many
---@field now? number a manual clock: time stands at `now` (seconds), and moves with store:step(now) alone
---@field max_request_bytes? integer of one write; 1572864
---@field max_txn_ops? integer of one list of a transaction; 128
---@field quota_backend_bytes? integer 2147483648 (0 means the same); negative: no quota
---@field min_lease_ttl? integer in seconds; 2
---@field step_records? integer how many records one step of a compaction visits; 1000
---@field progress_interval? number seconds after which an idle watch that wants progress gets it; 600, at least 0.1
---@field replica? boolean revisions come from upstream, through load, apply, advance and replace
---@field history_bytes? integer how much history a replica keeps; 67108864

---@class keywatch.ServeOptions
---@field store? keywatch.Store which it serves; not with `thread`, and needed without
---@field thread? boolean serve in a thread of its own, with a store of its own
---@field open? keywatch.OpenOptions of that store; with `thread` alone
---@field listen? string|string[] URLs, http://host:port or unix://path; "http://localhost:2379" unless given
---@field name? string of the member; "default" unless given
---@field advertise? string|string[] the URLs that clients are told; those that it listens on unless given
---@field peer_urls? string|string[] ids are made of them; "http://localhost:2380" unless given
---@field cluster_token? string ids are made of it; without it, each new store is a cluster of its own
---@field max_concurrent_streams? integer of one connection
---@field quota_connection_bytes? integer what all connections together may hold; 536870912
---@field keepalive_min_time? number seconds between two pings of a client; 5 unless given
---@field keepalive_interval? number seconds without a sign of a client, until it is pinged; 7200 unless given
---@field keepalive_timeout? number seconds for it to answer; 20 unless given
---@field auto_compaction_mode? "periodic"|"revision" what the next one counts; "periodic" unless given
---@field auto_compaction_retention? number how much of the past stays, in seconds or revisions; all unless given

---@class keywatch.ConnectOptions
---@field timeout? number seconds for a request that is not told otherwise; 10 unless given
---@field connect_timeout? number seconds for each address to answer; 2 unless given
---@field keepalive? number seconds without a sign of the server, until it is pinged while something is under way; 10
---@field keepalive_timeout? number seconds for it to answer; 5 unless given
---@field max_message? integer bytes of one answer; 67108864 unless given
---@field user? string who calls, where authentication is enabled
---@field password? string

---@class keywatch.StreamOptions: keywatch.CallOptions
---@field raw? boolean messages are strings, also where they are known
---@field metadata? table<string, string> that goes with the call

---What every call takes. A store in this process answers at once, and has no use for them.
---@class keywatch.CallOptions
---@field timeout? number in seconds
---@field deadline? number in seconds, on the clock of keywatch.now

---@class keywatch.RequestOptions: keywatch.StreamOptions
---@field is_read? boolean it may be made again if its connection ends; known of etcd's methods

---@class keywatch.GetOptions: keywatch.CallOptions
---@field revision? integer as it was at this revision
---@field serializable? boolean of a client: any member may answer, as far as it has come
---@field keys_only? boolean leave out the value

---At most one of the three.
---@class keywatch.KeyOptions: keywatch.CallOptions
---@field prefix? boolean every key that begins with the key; "" is all
---@field range_end? string the keys before this one; "\0" is no end
---@field from_key? boolean every key that is not less than the key

---@class keywatch.PageOptions: keywatch.KeyOptions, keywatch.GetOptions
---@field limit? integer at most so many kvs; 0 is no limit
---@field min_mod_revision? integer
---@field max_mod_revision? integer
---@field min_create_revision? integer
---@field max_create_revision? integer

---@class keywatch.RangeOptions: keywatch.PageOptions
---@field sort_order? keywatch.SortOrder
---@field sort_target? keywatch.SortTarget
---@field count_only? boolean no kvs, only count

---@class keywatch.EachOptions: keywatch.PageOptions
---@field page? integer kvs per page; 1000

---@class keywatch.PutOptions: keywatch.CallOptions
---@field lease? keywatch.Id|keywatch.Lease the key dies with it
---@field prev_kv? boolean return what the key was before
---@field ignore_value? boolean keep the value that the key has
---@field ignore_lease? boolean keep the lease that the key has

---@class keywatch.DeleteOptions: keywatch.KeyOptions
---@field prev_kv? boolean return what was deleted

---@class keywatch.WatchOptions: keywatch.KeyOptions
---@field start_revision? integer the first revision to tell of; 0 or nil: from now on. Not with initial
---@field initial? boolean begin with what exists, then a mark of type "synced"
---@field prev_kv? boolean give events what the key was before
---@field filters? keywatch.Filter[]
---@field progress? boolean give marks of type "progress", too
---@field max_bytes? integer how much is queued before the watch holds back; 1048576

---@class keywatch.CompactOptions: keywatch.CallOptions
---@field physical? boolean return after the records are gone, and not before

---@class keywatch.LeaseOptions: keywatch.CallOptions
---@field id? keywatch.Id chosen by the store unless given

-- Transactions ------------------------------------------------------------------------------------------------------

---If every compare holds, `success` runs, else `failure`: in one revision.
---@class keywatch.Txn: keywatch.CallOptions
---@field compare? keywatch.Compare[]
---@field success? keywatch.Op[]
---@field failure? keywatch.Op[]

---Exactly one target: version, create_revision, mod_revision, value or lease. With prefix, range_end or from_key it
---must hold for every key of the range. A key that does not exist has the numbers 0, and no value.
---@class keywatch.Compare
---@field key string
---@field op? keywatch.CompareOp
---@field version? integer
---@field create_revision? integer
---@field mod_revision? integer
---@field value? string
---@field lease? keywatch.Id|keywatch.Lease 0 for none
---@field prefix? boolean
---@field range_end? string
---@field from_key? boolean

---@class keywatch.PutOp: keywatch.PutOptions
---@field put string the key
---@field value? string required without ignore_value

---@class keywatch.DeleteOp: keywatch.DeleteOptions
---@field delete string the key

---@class keywatch.GetOp: keywatch.GetOptions
---@field get string the key

---@class keywatch.RangeOp: keywatch.RangeOptions
---@field range string the key

---@class keywatch.TxnOp
---@field txn keywatch.Txn

---@alias keywatch.Op
---| keywatch.PutOp
---| keywatch.DeleteOp
---| keywatch.GetOp
---| keywatch.RangeOp
---| keywatch.TxnOp

---What happened upstream, for a replica.
---@class keywatch.Event
---@field type keywatch.EventType
---@field key string
---@field value? string of a put, required
---@field create_revision? integer of a put, required
---@field mod_revision? integer the revision at which it is applied
---@field version? integer of a put, required
---@field lease? keywatch.Id
---@field prev? any accepted, and not read

---What exists upstream, for a replica.
---@class keywatch.BaseKV
---@field key string
---@field value string
---@field create_revision integer
---@field mod_revision integer
---@field version integer
---@field lease? keywatch.Id

-- Events ------------------------------------------------------------------------------------------------------------

---A key was given a value; or, with `initial`, has it.
---@class keywatch.PutEvent: keywatch.KV
---@field type "put"
---@field initial? true it existed when the watch began
---@field prev? keywatch.KV what the key was before, if prev_kv was asked for and it is known

---@class keywatch.DeleteEvent
---@field type "delete"
---@field key string
---@field mod_revision integer of the delete
---@field prev? keywatch.KV what was deleted, if prev_kv was asked for and it is known

---All that existed has been given, with the option initial.
---@class keywatch.SyncedEvent
---@field type "synced"
---@field revision integer at which it existed

---Everything up to a revision has been given, with the option progress.
---@class keywatch.ProgressEvent
---@field type "progress"
---@field revision integer

---@alias keywatch.WatchEvent
---| keywatch.PutEvent
---| keywatch.DeleteEvent
---| keywatch.SyncedEvent
---| keywatch.ProgressEvent

---All of one revision that concerns a watch; or one event of what exists; or a mark.
---@class keywatch.Batch
---@field revision integer
---@field events keywatch.WatchEvent[]

-- The store ---------------------------------------------------------------------------------------------------------

---Methods return `nil, err` when the world is to blame, and raise when the caller is.
---@class keywatch.Store
local Store = {}

---The key, or nil if it does not exist.
---@param key string
---@param opts? keywatch.GetOptions
---@return keywatch.KV? kv
---@return keywatch.Error? err
---@nodiscard
function Store:get(key, opts) end

---The keys of a range.
---@param key string
---@param opts? keywatch.RangeOptions
---@return keywatch.RangeResult? result
---@return keywatch.Error? err
---@nodiscard
function Store:range(key, opts) end

---An iterator over the kvs of a range in the order of keys, read page by page at one revision. It raises the
---error of a page that cannot be read.
---@param key string
---@param opts? keywatch.EachOptions
---@return fun(): keywatch.KV?
---@nodiscard
function Store:each(key, opts) end

---Gives a key a value, in a new revision.
---@param key string
---@param value? string nil only with ignore_value
---@param opts? keywatch.PutOptions
---@return keywatch.PutResult? result
---@return keywatch.Error? err
function Store:put(key, value, opts) end

---Deletes a key, or the keys of a range.
---@param key string
---@param opts? keywatch.DeleteOptions
---@return keywatch.DeleteResult? result
---@return keywatch.Error? err
function Store:delete(key, opts) end

---Compares, then does one of two lists of ops, all in one revision.
---@param txn keywatch.Txn
---@param opts? keywatch.CallOptions
---@return keywatch.TxnResult? result
---@return keywatch.Error? err
function Store:txn(txn, opts) end

---Watches a key, or the keys of a range: everything that happens to them, in order, without a gap. Only an empty range
---and a lack of memory make it fail; that history was compacted is told by the watch.
---@param key string "" without prefix or from_key is the least key of all, "\0"
---@param opts? keywatch.WatchOptions
---@return keywatch.Watch? watch
---@return keywatch.Error? err
---@nodiscard
function Store:watch(key, opts) end

---Forgets the history before `revision`. At once for readers; memory, or the space of a durable store, comes back in
---steps, or at once with `physical`.
---@param revision integer
---@param opts? keywatch.CompactOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Store:compact(revision, opts) end

---Grants a lease of at least `ttl` seconds.
---@param ttl integer
---@param opts? keywatch.LeaseOptions
---@return keywatch.Lease? lease
---@return keywatch.Error? err
function Store:lease(ttl, opts) end

---The lease of an id. Whether it exists shows when it is used.
---@param id keywatch.Id
---@return keywatch.Lease lease
---@nodiscard
function Store:lease_by_id(id) end

---The ids of all leases, the soonest to end first.
---@return keywatch.Id[]? ids
---@return keywatch.Error? err
---@nodiscard
function Store:leases() end

---How large the store is, and how far it has come.
---@return keywatch.Status status
---@nodiscard
function Store:status() end

---etcd's HashKV: equal histories have equal hashes.
---@param revision? integer the newest unless given
---@return keywatch.Hash? hash
---@return keywatch.Error? err
---@nodiscard
function Store:hash_kv(revision) end

---Gives the space of a durable store that is not in use back to the file system. Writes wait meanwhile. In memory there
---is nothing to do.
---@return true? done
---@return keywatch.Error? err
function Store:defragment() end

---The alarms that are armed, by the store itself or by clients of a server.
---@return keywatch.AlarmName[] names
---@nodiscard
function Store:alarms() end

---Arms an alarm, as a full store does by itself.
---@param name keywatch.AlarmName
---@return true? done
---@return keywatch.Error? err
function Store:arm(name) end

---Disarms an alarm, whoever armed it.
---@param name keywatch.AlarmName
---@return true? done
---@return keywatch.Error? err
function Store:disarm(name) end

---When step is next of use, in seconds on the clock of the store; nil if nothing is to come.
---@return number? deadline
---@nodiscard
function Store:deadline() end

---Does a bounded part of what is due: ends leases, and goes on with a compaction. With a manual clock, time is `now`
---from here on; it never goes back.
---@param now? number seconds
---@return boolean more whether more is due already
function Store:step(now) end

---Frees everything. Twice is fine; any other use of a closed store raises.
function Store:close() end

---Of a replica: what exists at `revision`, in the order of keys. Reads before `revision` fail with "compacted".
---@param revision integer not less than the replica's own
---@param kvs keywatch.BaseKV[]
---@return true? ok
---@return keywatch.Error? err
function Store:load(revision, kvs) end

---Of a replica: what happened at `revision`.
---@param revision integer greater than the replica's own
---@param events keywatch.Event[]
---@return true? ok
---@return keywatch.Error? err
function Store:apply(revision, events) end

---Of a replica: upstream has come to `revision`, and nothing happened.
---@param revision integer greater than the replica's own
---@return true? ok
---@return keywatch.Error? err
function Store:advance(revision) end

---Of a replica: forget everything, then load.
---@param revision integer
---@param kvs keywatch.BaseKV[]
---@return true? ok
---@return keywatch.Error? err
function Store:replace(revision, kvs) end

-- Leases ------------------------------------------------------------------------------------------------------------

---A time to live that keys can be bound to. Any number of objects may stand for the same lease.
---@class keywatch.Lease
---@field id keywatch.Id
---@field ttl? integer as granted, in seconds; nil where it is not known
---@field private owner keywatch.Store
local Lease = {}

---Gives the lease its whole time again, and returns it in seconds.
---@param opts? keywatch.CallOptions
---@return integer? ttl
---@return keywatch.Error? err
function Lease:keepalive(opts) end

---The whole seconds that remain, rounded down.
---@param opts? keywatch.CallOptions
---@return integer? seconds
---@return keywatch.Error? err
---@nodiscard
function Lease:remaining(opts) end

---The keys that are bound to the lease, in order.
---@param opts? keywatch.CallOptions
---@return string[]? keys
---@return keywatch.Error? err
---@nodiscard
function Lease:keys(opts) end

---Ends the lease and deletes its keys, in one revision.
---@param opts? keywatch.CallOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Lease:revoke(opts) end

-- Watches -----------------------------------------------------------------------------------------------------------

---What happens to some keys, to be read. A watch that is forgotten is cancelled by the garbage collector.
---@class keywatch.Watch
---@field revision integer everything up to it was handed out: another watch goes on at revision + 1
local Watch = {}

---The next event. Nil and an error if there is none: "timeout" is no failure, any other code ends the watch. Nil alone
---after close.
---@param timeout? number seconds to wait; 0 does not wait, nil waits as long as it takes
---@return keywatch.WatchEvent? event
---@return keywatch.Error? err
function Watch:next(timeout) end

---All events of the next revision; otherwise as next.
---@param timeout? number
---@return keywatch.Batch? batch
---@return keywatch.Error? err
function Watch:batch(timeout) end

---An iterator over events, which waits. It ends when the watch is closed, and raises what the watch fails with.
---@return fun(): keywatch.WatchEvent?
---@nodiscard
function Watch:events() end

---A revision up to which everything has been delivered. If another task reads the watch: once it was handed all of it. If
---the caller does: once all of it can be read without waiting.
---@param timeout? number
---@return integer? revision
---@return keywatch.Error? err "timeout", "full", or what the watch has failed with
function Watch:sync(timeout) end

---Ends the watch. Whoever waits for it is woken, and nothing comes any more. Twice is fine.
function Watch:close() end

---What the watch has failed with, or nil.
---@return keywatch.Error? err
---@nodiscard
function Watch:error() end

-- Servers -----------------------------------------------------------------------------------------------------------

---A store that etcd's clients can talk to.
---@class keywatch.Server
local Server = {}

---The URLs that it listens on, with the ports that the kernel chose.
---@return string[] urls
---@nodiscard
function Server:addresses() end

---Adds a service. A method is a function of request and call that returns the answer, or a table.
---@param service string its full name, such as "demo.Notes"
---@param methods table<string, keywatch.Method|keywatch.Handler>
function Server:mount(service, methods) end

---Adds what is to happen before and after every call of every service.
---@param middleware keywatch.Middleware
function Server:use(middleware) end

---Accepts no more, asks clients to go elsewhere, waits until they have gone, and closes. A server in a thread makes the
---whole program wait for that, unless it is called in a task.
---@param grace? number seconds to wait at most; 5 unless given
---@return true? ok
---@return keywatch.Error? err "thread_failed": its thread had ended before
function Server:shutdown(grace) end

---Accepts no more, and cuts off whoever is connected. The store stays open, if it is not in a thread. Twice is fine.
---@return true? ok
---@return keywatch.Error? err "thread_failed": its thread had ended before
function Server:close() end

-- Clients -----------------------------------------------------------------------------------------------------------

---A client of etcd's API with the methods of a store.
---@class keywatch.Client
local Client = {}

---The key, or nil if it does not exist.
---@param key string
---@param opts? keywatch.GetOptions
---@return keywatch.KV? kv
---@return keywatch.Error? err
---@nodiscard
function Client:get(key, opts) end

---The keys of a range.
---@param key string
---@param opts? keywatch.RangeOptions
---@return keywatch.RangeResult? result
---@return keywatch.Error? err
---@nodiscard
function Client:range(key, opts) end

---An iterator over the kvs of a range in the order of keys, read page by page at one revision. It raises the
---error of a page that cannot be read.
---@param key string
---@param opts? keywatch.EachOptions
---@return fun(): keywatch.KV?
---@nodiscard
function Client:each(key, opts) end

---@param key string
---@param value? string nil only with ignore_value
---@param opts? keywatch.PutOptions
---@return keywatch.PutResult? result
---@return keywatch.Error? err
function Client:put(key, value, opts) end

---@param key string
---@param opts? keywatch.DeleteOptions
---@return keywatch.DeleteResult? result
---@return keywatch.Error? err
function Client:delete(key, opts) end

---@param txn keywatch.Txn
---@param opts? keywatch.CallOptions
---@return keywatch.TxnResult? result
---@return keywatch.Error? err
function Client:txn(txn, opts) end

---Watches a key, or a range of keys, through lost connections and restarts. Waits until a server has heard of it.
---@param key string
---@param opts? keywatch.WatchOptions
---@return keywatch.Watch? watch
---@return keywatch.Error? err
---@nodiscard
function Client:watch(key, opts) end

---@param revision integer
---@param opts? keywatch.CompactOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Client:compact(revision, opts) end

---@param ttl integer in seconds
---@param opts? keywatch.LeaseOptions
---@return keywatch.Lease? lease
---@return keywatch.Error? err
function Client:lease(ttl, opts) end

---@param id keywatch.Id
---@return keywatch.Lease lease
---@nodiscard
function Client:lease_by_id(id) end

---@param opts? keywatch.CallOptions
---@return keywatch.Id[]? ids
---@return keywatch.Error? err
---@nodiscard
function Client:leases(opts) end

---What the server that is in use says of itself.
---@param opts? keywatch.CallOptions
---@return keywatch.ServerStatus? status
---@return keywatch.Error? err
---@nodiscard
function Client:status(opts) end

---@param revision? integer up to which; the newest unless given
---@param opts? keywatch.CallOptions
---@return keywatch.ServerHash? hash
---@return keywatch.Error? err
---@nodiscard
function Client:hash_kv(revision, opts) end

---A call of any method with one message each way: tables where its messages are known, strings elsewhere.
---@param path string such as "/etcdserverpb.Cluster/MemberList"
---@param message table|string
---@param opts? keywatch.RequestOptions
---@return any answer
---@return keywatch.Error? err
function Client:call(path, message, opts) end

---A call of any method with many messages. It belongs to one connection, and ends with it.
---@param path string
---@param opts? keywatch.StreamOptions
---@return keywatch.Stream? stream
---@return keywatch.Error? err
function Client:stream(path, opts) end

---Ends it: what is under way fails with "closed", and so do its watches. Twice is fine.
function Client:close() end

---@class keywatch.Stream
local Stream = {}

---Sends a message, and waits while the server takes no more.
---@param message table|string
---@return true? ok
---@return keywatch.Error? err
function Stream:send(message) end

---The next message; nil when the server has ended the call well; nil and an error otherwise, of which "timeout" ends
---nothing.
---@param timeout? number
---@return any message
---@return keywatch.Error? err
function Stream:receive(timeout) end

---An iterator over what comes. It raises what the call fails with.
---@return fun(): any
---@nodiscard
function Stream:messages() end

---Sends no more.
function Stream:finish() end

---Ends the call at once. Twice is fine.
function Stream:close() end

-- Calls -------------------------------------------------------------------------------------------------------------

---Of a unary method: returns the answer, or nil and an error. What has a grpc_status is told to the client as it is.
---@alias keywatch.Handler fun(request: any, call: keywatch.Call): any, any

---Of a stream; its return ends the call: with nil and an error, or well.
---@alias keywatch.StreamHandler fun(call: keywatch.Call): any, any

---How a message becomes bytes, or bytes a message: the name of one of etcd's messages, or a function.
---@alias keywatch.Codec string|fun(message: any): any

---@class keywatch.Method
---@field handler keywatch.Handler|keywatch.StreamHandler
---@field stream? boolean the handler receives and sends by itself
---@field request? keywatch.Codec of what is received; strings without it
---@field response? keywatch.Codec of what is sent; strings without it

---@class keywatch.Middleware
---@field before? fun(call: keywatch.Call): boolean?, any true or nothing: the call goes on; false, or an error: it is refused
---@field after? fun(call: keywatch.Call, status: integer) told of the end, and of gRPC's status

---One call of a method that is answered in Lua, or that middleware looks at.
---@class keywatch.Call
---@field path string such as "/demo.Notes/Read"
---@field peer string who calls, or ""
---@field deadline? number when the client stops waiting, on the clock of keywatch.now
---@field metadata table<string, string>
---@field server keywatch.Server
local Call = {}

---The next message, which is waited for; nil when the client sends no more. For handlers of streams, as all of these.
---@return any message
---@nodiscard
function Call:receive() end

---An iterator over what comes.
---@return fun(): any
---@nodiscard
function Call:messages() end

---Sends a message, and waits while the client takes no more: true; or nil and an error of code "timeout", though the
---message was sent.
---@param message any
---@param timeout? number
---@return boolean? ok
---@return keywatch.Error? err
function Call:send(message, timeout) end

-- Tasks -------------------------------------------------------------------------------------------------------------

---A function that runs beside others, and lets them go on while it waits.
---@class keywatch.Task
local Task = {}

---Waits for the end of the task: true and what it returned; false and what it failed with; nil and an error of code
---"timeout".
---@param timeout? number
---@return boolean? ok
---@return any ... results, or the error
function Task:join(timeout) end

---Asks the task to end: what it waits for, or will wait for next, raises an error of code "cancelled". One that has not
---begun never does.
function Task:cancel() end

return keywatch
