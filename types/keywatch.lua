---@meta keywatch
-- SPDX-License-Identifier: MIT
-- The public API of keywatch in LuaCATS annotations, for lua-language-server. This file is not executed.

---A versioned key-value store with etcd's semantics.
---@class keywatch
---@field _VERSION string
local keywatch = {}

---Opens a store. Without `path` it is empty and in memory, and opening fails only if memory is short. With `path` it is durable.
---@param opts? keywatch.OpenOptions
---@return keywatch.Store store
---@return keywatch.Error? err
---@nodiscard
function keywatch.open(opts) end

---Returns a client for keywatch's server or for etcd. The first request opens the connection.
---@param endpoints string|string[] "host:port", "http://host:port" or "unix:/path"; a string may have several, with commas between
---@param opts? keywatch.ConnectOptions
---@return keywatch.Client? client
---@return keywatch.Error? err "failed_precondition" or "out_of_memory": a file or PEM text of the option tls is unusable
---@nodiscard
function keywatch.connect(endpoints, opts) end

---Serves a store to etcd's clients. The server listens when `serve` returns. It answers while the loop turns, until it is closed.
---With `thread` it answers at any time, until it is closed or garbage collected.
---@param opts keywatch.ServeOptions
---@return keywatch.Server? server
---@return keywatch.Error? err "listen_failed", "thread_failed", "failed_precondition" (a file of tls), or "out_of_memory"
function keywatch.serve(opts) end

---Calls `fn` as a task, and turns the loop until `fn` has ended. Then cancels the tasks that are left. Raises the error of
---fn, or of a task that was not joined. For the top level only.
---@param fn fun(...: any): ...
---@param ... any for fn
---@return any ... the results of fn
function keywatch.run(fn, ...) end

---Creates a task, which calls `fn` when the loop turns next.
---@param fn fun(...: any): ...
---@param ... any for fn
---@return keywatch.Task task
function keywatch.spawn(fn, ...) end

---Waits for the end of all tasks of a list. Returns true if all have succeeded; false, the error of the first task in the
---list that has failed, and a list of all failed tasks; or nil and the error "timeout".
---@param tasks keywatch.JoinOptions
---@return boolean? ok
---@return any err
---@return keywatch.Task[]? failed
function keywatch.join(tasks) end

---Calls `fn` with a scope, as a task, and waits until `fn` and all tasks of the scope have ended. The first failure cancels
---the others, and is raised.
---@param fn fun(scope: keywatch.Scope, ...: any): ...
---@param ... any for fn
---@return any ... the results of fn
function keywatch.scope(fn, ...) end

---Calls `fn`, which cleans up: if the task is cancelled, the waits in `fn` do not raise before `seconds` have passed. They
---count from the cancellation, or from this call, whichever is later.
---@param seconds number
---@param fn fun(...: any): ...
---@param ... any for fn
---@return any ... the results of fn
function keywatch.shield(seconds, fn, ...) end

---Registers a function, which is called once, as a task, at the end of `keywatch.run` or of `keywatch run`, or when
---an nginx worker exits.
---@param fn fun()
function keywatch.on_exit(fn) end

---Creates a channel.
---@param capacity? integer how many values it holds; 0 unless given: then a sender and a receiver wait for each other
---@return keywatch.Channel channel
---@nodiscard
function keywatch.channel(capacity) end

---Waits for the first of several objects that is ready: watches, object watches, channels, values to be sent, tasks, signals, kept leases,
---sessions, locks, leaderships, observers. Returns the object, and the results of its own call (`next`, `receive`, `send`,
---`join`, `wait`, `wait_lost`); or nil and the error "timeout". With a timeout of 0 it does not wait.
---@param objects keywatch.SelectOptions
---@return any object
---@return any ...
function keywatch.select(objects) end

---Waits. Other tasks run in between; 0 lets the ready tasks run first.
---@param seconds number
function keywatch.sleep(seconds) end

---Returns the seconds of a monotonic clock. Its zero has no meaning.
---@return number seconds
---@nodiscard
function keywatch.now() end

---Chooses the loop that runs the tasks which are spawned outside of `run`: "luv", the loop of luv or Neovim, which must be
---loaded; or "uv", only the private loop. Without a choice, luv's loop if luv is loaded.
---@param name? "uv"|"luv"
---@return "uv"|"luv" name the present choice
function keywatch.driver(name) end

---Returns a descriptor that becomes readable when there is something to do: for another event loop, which then calls `step`.
---@return integer fd
---@nodiscard
function keywatch.fd() end

---The same as `fd`, under the name that cqueues calls.
---@return integer fd
---@nodiscard
function keywatch.pollfd() end

---Returns the events of the descriptor that cqueues must wait for.
---@return string events "r"
---@nodiscard
function keywatch.events() end

---Returns the seconds for which another event loop may rest before it calls `step`; nil: until the descriptor is readable.
---@return number? seconds
---@nodiscard
function keywatch.timeout() end

---Does the work that is ready, for about a millisecond. Never waits. For another event loop; raises inside of tasks.
---@return number? seconds the result of `timeout` after that
function keywatch.step() end

---Sets the lowest level that is logged, and the function that gets the log lines of the whole library. The function must
---not wait. If it raises or waits, the line is written where lines are written without a handler: to vim.notify in
---Neovim, to error.log in nginx, to stderr elsewhere.
---@param opts keywatch.LogOptions
function keywatch.log(opts) end

---Catches signals of the process. Several objects may catch the same signal, and each gets it. Raises in nginx.
---@param names keywatch.SignalName[] with or without "SIG"
---@return keywatch.Signals? signals
---@return keywatch.Error? err "resource_exhausted"
---@nodiscard
function keywatch.signals(names) end

---Returns a selector of a text in Kubernetes' form, or of a table.
---@param given string|table|keywatch.Selector
---@param opts? keywatch.SelectorOptions
---@return keywatch.Selector selector
---@nodiscard
function keywatch.selector(given, opts) end

-- Words -------------------------------------------------------------------------------------------------------------

---A 64-bit id. On LuaJIT an id beyond 2^53 is a decimal string; both forms are accepted everywhere.
---@alias keywatch.Id integer|string

---@alias keywatch.SortOrder
---| "none" # the order of keys
---| "ascend"
---| "descend"

---@alias keywatch.BadValuePolicy
---| "fail" # the object watch fails
---| "skip" # the value is reported and skipped

---@alias keywatch.SortTarget
---| "key"
---| "version"
---| "create" # create_revision
---| "mod" # mod_revision
---| "value"

---@alias keywatch.SignalName
---| "HUP"
---| "INT"
---| "QUIT"
---| "TERM"
---| "USR1"
---| "USR2"
---| "WINCH"
---| "CONT"

---@alias keywatch.CompareOp
---| "=" # the default
---| "!="
---| ">"
---| "<"

---@alias keywatch.AlarmName
---| "no_space" # the quota or the disk is full: puts and grants of leases fail
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
---| "compacted" # the revision is older than the oldest readable one
---| "corrupt" # the alarm is armed, or a record on the disk is damaged
---| "duplicate_key" # a transaction writes one key twice
---| "duplicate_watch_id" # of a watch over the network
---| "empty_key"
---| "empty_range" # the range of the watch cannot contain a key
---| "full" # the queue of the watch is full: read from it first
---| "future_revision" # the revision is newer than the newest
---| "invalid_sort"
---| "key_not_found" # ignore_value or ignore_lease, and the key does not exist
---| "lease_exists" # another lease has this id
---| "lease_not_found" # the lease does not exist, or has ended
---| "lease_provided" # ignore_lease together with a lease
---| "lease_ttl_too_large"
---| "listen_failed" # a server could not listen on an address
---| "locked" # try_lock: another session holds the lock
---| "lost" # the lease, the lock or the leadership has ended; a fenced write has changed nothing
---| "malformed" # the received bytes are not a message of the expected type, or the text is not JSON
---| "stopped" # the server is shutting down
---| "thread_failed" # the thread of a server has ended, or could not start
---| "no_space" # the quota or the disk is full
---| "out_of_memory" # nothing has changed
---| "read_only" # a write to a replica
---| "request_too_large" # more than max_request_bytes
---| "stale_revision" # the replica has this revision already
---| "storage" # a sync has failed: the store is read-only until it is opened again; or the store cannot be opened
---| "timeout" # the time to wait has passed; nothing has failed
---| "too_many_ops" # more than max_txn_ops
---| "too_many_snapshots" # the server takes too many concurrent snapshots
---| "too_many_requests" # all connections hold more than quota_connection_bytes, and this connection more than its share
---| "value_provided" # ignore_value together with a value
---| "aborted" # the server has aborted the call
---| "already_exists"
---| "cluster_changed" # the server belongs to another cluster: the watch cannot resume
---| "data_loss"
---| "deadline_exceeded" # the deadline of the request has passed; a write may have been done
---| "failed_precondition"
---| "internal" # the server, or a proxy, violates the gRPC protocol
---| "invalid_argument"
---| "not_found"
---| "out_of_range"
---| "permission_denied" # the user lacks the permission
---| "regressed" # the server was set back to an older state: the watch cannot resume
---| "answer_too_large" # the response exceeds the client's max_message; the request has been done
---| "resource_exhausted" # a limit of the server or of a proxy is exceeded
---| "unauthenticated" # the server does not accept the credentials
---| "unavailable" # no server answers; maybe_done is true if a write may have been done
---| "unimplemented" # the server has no such method
---| "unknown"
---| "unsupported" # sync: the server sends progress ahead of events

---A failure of the outside world. Misuse raises a string instead.
---@class keywatch.Error
---@field code keywatch.ErrorCode
---@field message string etcd's own text, where etcd has the error
---@field grpc_status integer
---@field position? integer position of the unexpected byte, from 1 on, for errors of json.decode
---@field errno? string the system's name, such as "EADDRINUSE", for the code "listen_failed"
---@field where? string "file:line" of the call, for a store that could not be opened
---@field maybe_done? boolean true if a failed write may have been done, or may be done later
---@field compact_revision? integer the oldest readable revision, for the code "compacted"
---@field client? keywatch.ClientState the state of the client, from client:status
---@field traceback? string where a task raised it, once it has ended that task; tostring(err) ends with it
---@operator concat(any): string

-- Records and results -----------------------------------------------------------------------------------------------

---The state of a key at one revision.
---@class keywatch.KV
---@field key string
---@field value string "" with keys_only
---@field create_revision integer revision at which the key was created
---@field mod_revision integer revision of the last put
---@field version integer number of puts since the creation
---@field lease keywatch.Id 0 for none

---@class keywatch.RangeResult
---@field revision integer of the store
---@field kvs keywatch.KV[]
---@field count integer number of keys in the range, ignoring limit
---@field more boolean true if limit left kvs out

---@class keywatch.PutResult
---@field revision integer of this put
---@field prev_kv? keywatch.KV the previous kv, with the option prev_kv

---@class keywatch.DeleteResult
---@field revision integer of this delete, or of the store if nothing was deleted
---@field deleted integer number of deleted keys
---@field prev_kvs? keywatch.KV[] the deleted kvs, with the option prev_kv

---The result of the plain call; `false` for a get that found nothing.
---@alias keywatch.Response
---| keywatch.KV
---| keywatch.RangeResult
---| keywatch.PutResult
---| keywatch.DeleteResult
---| keywatch.TxnResult
---| false

---@class keywatch.TxnResult
---@field succeeded boolean true if every compare held
---@field revision integer
---@field responses keywatch.Response[] one for each executed operation

---@class keywatch.RevisionResult
---@field revision integer of the store

---@class keywatch.Status
---@field revision integer
---@field compact_revision integer the oldest readable revision; -1 before the first compaction
---@field keys integer number of existing keys
---@field leases integer number of leases
---@field db_size integer size of the database's file, in bytes, with what is allocated ahead of need
---@field db_size_in_use integer the part of it that holds data, which counts for the quota
---@field quota integer in bytes; 0 for none
---@field commits? integer of a durable store: number of commit groups on disk since the store was opened
---@field alarms keywatch.AlarmName[]
---@field has_failed boolean true if the storage has failed: writes fail until the store is opened again
---@field errors string[] why the storage has failed, or that its journal was missing after a crash

---@class keywatch.CacheStatus
---@field revision integer of the content; 0 before there is any
---@field compact_revision integer reads before this revision fail with "compacted"
---@field keys integer number of keys
---@field phase "reading"|"following"|"paused"|"closed"
---@field is_stale boolean there is content, and the server may have newer content
---@field age? number seconds since the server last confirmed the content; nil before that
---@field trouble? keywatch.Error why the content is not being updated now
---@field from_file boolean the content is that of the file, and has not arrived from the server yet

---@class keywatch.Hash
---@field hash integer etcd's HashKV
---@field revision integer of the store
---@field compact_revision integer
---@field hash_revision integer the last revision that is part of the hash

---@class keywatch.ServerStatus
---@field revision integer
---@field version string version of etcd; keywatch reports the version that it is compatible with
---@field endpoint? string URL of the endpoint that answered
---@field cluster_id string
---@field member_id string
---@field leader string
---@field raft_term? integer
---@field db_size integer in bytes
---@field db_size_in_use integer in bytes
---@field quota? integer in bytes, 0 for none; nil if the server does not report it, as etcd before 3.6
---@field storage_version? string version of the server's data; nil if the server does not report it
---@field downgrade_to? string version that the cluster is being downgraded to
---@field errors string[]
---@field client keywatch.ClientState the state of the client

---How many requests, watches or kept leases there are, and how many of them wait for a server.
---@class keywatch.ClientCount
---@field open integer
---@field waiting integer

---The state of a client.
---@class keywatch.ClientState
---@field state "idle"|"connecting"|"connected"|"waiting"|"closed"
---@field since number since when, in seconds on the clock of keywatch.now
---@field endpoint? string URL of the endpoint that the client is connected to
---@field why? string the text of the last error, in the states "waiting" and "idle"; nil if there is none
---@field failures? integer how often all endpoints have failed in a row, while the client waits for a connection
---@field retry_at? number time of the next attempt, unless one is under way
---@field requests keywatch.ClientCount
---@field watches keywatch.ClientCount
---@field leases keywatch.ClientCount

---A member of a cluster.
---@class keywatch.Member
---@field id string decimal
---@field name string "" if the member has not started
---@field peer_urls string[]
---@field client_urls string[]
---@field is_learner boolean

---The members of a cluster.
---@class keywatch.Members
---@field [integer] keywatch.Member
---@field cluster_id string decimal

---The health of an endpoint. Fields that the endpoint has not answered are nil.
---@class keywatch.EndpointHealth
---@field endpoint string
---@field is_healthy boolean it answers a linearizable read, and no alarm is raised
---@field seconds? number round trip of that read
---@field err? keywatch.Error why it is not healthy
---@field version? string
---@field leader? string decimal id of the leader; nil if there is none
---@field member_id? string decimal
---@field is_leader? boolean
---@field revision? integer
---@field db_size? integer in bytes
---@field errors? string[] alarms, a failed storage, and that there is no leader

---A request of a client that has ended.
---@class keywatch.ClientCall
---@field method string path of the gRPC method
---@field endpoint? string URL of the endpoint that it was sent to last
---@field seconds number from its beginning to its end, with all attempts
---@field status integer gRPC status; 0 for success
---@field code? keywatch.ErrorCode
---@field attempts integer how often it was sent
---@field err? keywatch.Error

-- Options -----------------------------------------------------------------------------------------------------------

---@class keywatch.OpenOptions
---@field path? string directory of a durable store, created if missing; without it the store is in memory
---@field on_progress? function called now and then with `done, total` records while a durable store is read
---@field max_request_bytes? integer maximum size of one write; 1572864
---@field max_txn_ops? integer maximum length of each list of a transaction; 128
---@field quota_backend_bytes? integer maximum size of all data; 2147483648 (0 means the same); negative: no quota
---@field min_lease_ttl? integer shortest lease, in seconds; 2
---@field step_records? integer number of records that one step of a compaction visits; 1000
---@field journal_segment_bytes? integer size of a new file of the journal, 65536 to 1073741824; 16777216
---@field progress_interval? number seconds after which an idle watch gets a progress event; 600, at least 0.1

---@class keywatch.ServeOptions
---@field store? keywatch.Store the store to serve; required without `thread`, not allowed with it
---@field thread? boolean serve in a thread, with a new store
---@field open? keywatch.OpenOptions options of that store; only with `thread`
---@field module? string name of a module that returns a function of the server and its store; only with `thread`
---@field listen? string|string[] URLs, http://host:port or unix://path, with TLS https:// or unixs://; "http://localhost:2379"
---@field listen_metrics? string|string[] further URLs, with only the endpoints of monitoring systems; none unless given
---@field tls? keywatch.ServeTLSOptions TLS for the URLs with https:// and unixs:, which need it
---@field name? string name of the member; "default" unless given
---@field advertise? string|string[] URLs announced to clients; the URLs of `listen` unless given
---@field peer_urls? string|string[] input for the ids of member and cluster; "http://localhost:2380" unless given
---@field cluster_token? string input for the ids; without it, each new store is a cluster of its own
---@field max_concurrent_streams? integer maximum number of streams of one connection; 65536 unless given
---@field quota_connection_bytes? integer maximum memory of all connections together; 536870912
---@field keepalive_min_time? number minimum seconds between two pings of a client; 5 unless given
---@field keepalive_interval? number seconds without data from a client until the server pings it; 7200 unless given
---@field keepalive_timeout? number seconds to wait for the answer to a ping; 20 unless given
---@field cors? string|string[] origins whose pages may use the server over HTTP, or "*"; none unless given
---@field host_whitelist? string|string[] host names for HTTP requests; loopback names unless given
---@field log_level? "debug"|"info"|"warn"|"error"|"panic"|"fatal" lowest level that is logged; "info" unless given
---@field on_log? function called with the level, the text and the fields of each log line; not with `thread`
---@field metrics? "basic"|"extensive" "extensive" also measures how long requests take; "basic" unless given
---@field auto_compaction_mode? "periodic"|"revision" unit of the retention; "periodic" unless given
---@field auto_compaction_retention? number history to keep, in seconds or revisions; everything unless given

---@class keywatch.LogOptions
---@field level? "debug"|"info"|"warn"|"error"|"panic"|"fatal" "info" unless given
---@field handler? function|false called with the level, the text and a table of fields; false: none

---Files, or PEM text with -----BEGIN in it. New connections use files that have changed.
---@class keywatch.ServeTLSOptions
---@field cert? string certificate of the server, followed by those between it and its authority; needs key
---@field key? string private key of cert, not encrypted
---@field auto? boolean make a certificate instead of using cert and key
---@field directory? string directory of that certificate; in memory unless given
---@field validity_years? integer years that such a certificate is valid; 1 unless given
---@field ca? string authorities of the certificates of clients, which then must have one
---@field client_cert_auth? boolean accept only clients with a certificate
---@field crl? string revoked certificates, of clients and of their authorities
---@field allowed_hostname? string names and addresses with commas between them: the certificate of a client must be for one of them
---@field cipher_suites? string names with commas between them
---@field min_version? "TLS1.2"|"TLS1.3" "TLS1.2" unless given
---@field max_version? "TLS1.2"|"TLS1.3" "TLS1.3" unless given

---How long a client waits between two attempts: a random part of a bound, which doubles with each failure.
---@class keywatch.Backoff
---@field first? number the first bound, in seconds; 0.1 unless given
---@field longest? number the last bound, in seconds; 3 unless given

---@class keywatch.ConnectOptions
---@field timeout? number default timeout of a request, in seconds; 10 unless given
---@field connect_timeout? number seconds to wait for each address; 2 unless given
---@field keepalive? number seconds without data until the client pings the server, while a call or a watch is open; 10
---@field keepalive_timeout? number seconds to wait for the answer to a ping; 5 unless given
---@field backoff? keywatch.Backoff how long to wait between two attempts
---@field prefer? "first"|"fastest"|"any" which endpoint to connect to; "first" unless given
---@field sync_endpoints? number seconds between two requests for the member list, which gives the endpoints; never unless given
---@field on_call? fun(call: keywatch.ClientCall) called after each request; must not wait
---@field on_state? fun(state: keywatch.ClientState) called after each change of the state, in a task of its own
---@field max_message? integer maximum size of one response, in bytes; 67108864 unless given
---@field tls? keywatch.ConnectTLSOptions|true TLS for endpoints with https:// and unixs:, and for those without a scheme
---@field user? string name of the user, for a server with authentication enabled
---@field password? string

---Files, or PEM text with -----BEGIN in it. Files that have changed are read again before the next connection.
---@class keywatch.ConnectTLSOptions
---@field ca? string certificates of the authorities that are trusted; those of the system unless given
---@field cert? string certificate of the client, followed by those between it and its authority; needs key
---@field key? string private key of cert, not encrypted
---@field crl? string revoked certificates, of servers and of their authorities
---@field server_name? string name or IP address that the server's certificate has to be for; that of the endpoint unless given
---@field verify? boolean false: trust any server; true unless given
---@field cipher_suites? string names with commas between them
---@field min_version? "TLS1.2"|"TLS1.3" "TLS1.2" unless given
---@field max_version? "TLS1.2"|"TLS1.3" "TLS1.3" unless given

---@class keywatch.StreamOptions: keywatch.CallOptions
---@field raw? boolean messages are strings, even if their types are known
---@field metadata? table<string, string> header fields that are sent with the call

---Options of every call. A store in this process answers at once and ignores them.
---@class keywatch.CallOptions
---@field timeout? number in seconds
---@field deadline? number in seconds, on the clock of keywatch.now

---@class keywatch.RequestOptions: keywatch.StreamOptions
---@field is_read? boolean the call may be repeated if its connection ends; known for the methods of etcd

---@class keywatch.GetOptions: keywatch.CallOptions
---@field revision? integer read the state at this revision
---@field serializable? boolean client: any member may answer with its own state
---@field keys_only? boolean leave out the value

---@class keywatch.MembersOptions: keywatch.CallOptions
---@field serializable? boolean any member may answer with the list that it knows

---@class keywatch.ExistsOptions: keywatch.CallOptions
---@field revision? integer look at the state at this revision
---@field serializable? boolean client: any member may answer with its own state

---At most one of the three may be set.
---@class keywatch.KeyOptions: keywatch.CallOptions
---@field prefix? boolean every key that begins with the key; every key if the key is ""
---@field range_end? string every key from the key on that is less than this; "\0" means no end
---@field from_key? boolean every key from the key on

---@class keywatch.PageOptions: keywatch.KeyOptions, keywatch.GetOptions
---@field limit? integer maximum number of kvs; 0 means no limit
---@field min_mod_revision? integer
---@field max_mod_revision? integer
---@field min_create_revision? integer
---@field max_create_revision? integer

---@class keywatch.RangeOptions: keywatch.PageOptions
---@field sort_order? keywatch.SortOrder
---@field sort_target? keywatch.SortTarget
---@field count_only? boolean return no kvs

---@class keywatch.EachOptions: keywatch.PageOptions
---@field page? integer kvs per page; 1000; without it a client gets the rest after the first page as a stream, if the server has streams

---@class keywatch.PutOptions: keywatch.CallOptions
---@field lease? keywatch.Id|keywatch.Lease the key is deleted when this lease ends
---@field prev_kv? boolean return the previous kv
---@field ignore_value? boolean keep the current value
---@field ignore_lease? boolean keep the current lease

---@class keywatch.DeleteOptions: keywatch.KeyOptions
---@field prev_kv? boolean return the deleted kvs

---@class keywatch.WatchOptions: keywatch.KeyOptions
---@field start_revision? integer the first revision to report; 0 or nil: the next one. Not together with initial
---@field initial? boolean begin with the keys that exist, then an event of type "synced"
---@field prev_kv? boolean add the previous kv to each event
---@field filters? keywatch.Filter[]
---@field progress? boolean return events of type "progress", too
---@field max_bytes? integer size of the queue of the watch, in bytes; 1048576
---@field require_leader? boolean client: the watch leaves a member of etcd that has no leader

---Options of object_watch. `timeout` and `deadline` are for opening it.
---@class keywatch.ObjectWatchOptions: keywatch.KeyOptions
---@field start_revision? integer the first revision to report; 0 or nil: the next one. Not together with initial
---@field initial? boolean begin with the objects that exist, then an event of type "synced"
---@field codec? "json"|keywatch.Codec how values become objects; nil: objects are the values
---@field include? function called with the key before a value is decoded; if it returns false or nil, the key is left out
---@field labels? string|table|keywatch.Selector only objects with these labels
---@field labels_at? string path of the labels in an object; "metadata.labels"
---@field fields? string|table|keywatch.Selector only objects with these fields
---@field where? function called with object and key; if it returns false or nil, the object does not match
---@field transform? function called with object and event; returns the value that is handed out instead of the object
---@field old? boolean add the previous object to each event of type "modified"
---@field on_bad_value? keywatch.BadValuePolicy the reaction to a value that cannot be decoded; "fail"
---@field on_error? function called with the error and the key of each bad value that is skipped
---@field bookmarks? boolean|number hand out progress as events of type "bookmark"; a number: and at least one in so many seconds
---@field lifetime? number seconds after which the object watch ends, with a last bookmark
---@field max_bytes? integer size of its queue, in bytes; 1048576
---@field require_leader? boolean client: the watch leaves a member of etcd that has no leader

---@class keywatch.InformerOptions
---@field codec? "json"|keywatch.Codec how values become objects; nil: objects are the values
---@field indexes? table functions by name: called with object and key; returns a value, a list of values, or nil
---@field include? function called with the key before a value is decoded; if it returns false or nil, the key is left out
---@field labels? string|table|keywatch.Selector only objects with these labels
---@field labels_at? string path of the labels in an object; "metadata.labels"
---@field fields? string|table|keywatch.Selector only objects with these fields
---@field where? function called with object and key; if it returns false or nil, the object does not match
---@field transform? function called with object and event, once for each value; returns the value that is kept instead of the object
---@field shared? boolean false: share with no other informer
---@field require_leader? boolean client: the watch leaves a member of etcd that has no leader

---Options of add_handler. At least one of the functions is needed.
---@class keywatch.HandlerOptions
---@field add? fun(key: string, object: any, event: keywatch.InformerEvent)
---@field update? fun(key: string, object: any, old: any, event: keywatch.InformerEvent)
---@field delete? fun(key: string, object: any, event: keywatch.InformerEvent)
---@field error? fun(key: string, err: keywatch.Error, event: keywatch.InformerEvent)
---@field name? string its name in the log, in metrics and in status; the position of its function unless given
---@field resync? number seconds after which the handler is called again for each object
---@field max_bytes? integer size of its queue, in bytes; 1048576
---@field at_bound? "wait"|"coalesce" what happens when the queue is full; "wait"

---@class keywatch.Codec
---@field decode function called with a value; returns an object; raises, or returns nil and a text, if there is none
---@field encode? function called with an object; returns a value

---@class keywatch.SelectorOptions
---@field kind? "labels"|"fields" "labels" unless given
---@field labels_at? string path of the labels in an object; "metadata.labels"

---@class keywatch.CacheOptions
---@field history_bytes? integer history that the cache keeps, in bytes; 67108864, 1048576 while nothing needs the past
---@field history_revisions? integer history that the cache keeps, in revisions with events; default: any
---@field history_age? number history that the cache keeps, in seconds; default: any
---@field slow_after? number seconds after which a watch ends that is not read while events wait; default: never
---@field file? string path of a file with the last known content, for a start without a server
---@field file_delay? number seconds from a change of the content until the file is written; 1
---@field timeout? number seconds until the content of the file is used, if none has arrived from the server; 1

---@class keywatch.CacheGetOptions: keywatch.GetOptions
---@field consistent? boolean be as new as the server is at the time of the call
---@field min_revision? integer be at least as new as this revision

---@class keywatch.CacheRangeOptions: keywatch.RangeOptions, keywatch.CacheGetOptions

---@class keywatch.CacheEachOptions: keywatch.EachOptions, keywatch.CacheGetOptions

---@class keywatch.CacheWatchOptions: keywatch.WatchOptions
---@field slow_after? number|false seconds, instead of the option of the cache; false: never

---@class keywatch.TableOptions
---@field decode? fun(value: string): any converts a value for the table; after nil, or an error, the table keeps the previous one
---@field on_change? fun(key: string, new: any, old: any) called after each change; must not wait
---@field on_error? fun(key: string, err: keywatch.Error) called for a value that cannot be decoded; must not wait
---@field relative? boolean the keys of the table are without the prefix of the cache

---@class keywatch.CompactOptions: keywatch.CallOptions
---@field physical? boolean return when the memory or disk space is free, not before

---@class keywatch.LeaseOptions: keywatch.CallOptions
---@field id? keywatch.Id id of the lease; the store chooses one unless given

---Options of session.
---@class keywatch.SessionOptions: keywatch.CallOptions
---@field ttl? integer seconds of the lease; 60 unless given
---@field lease? keywatch.Id|keywatch.Lease use this lease instead of a new one

---Options of lock and try_lock. `timeout` and `deadline` are for the whole wait.
---@class keywatch.LockOptions: keywatch.CallOptions
---@field session? keywatch.Session the default session of the owner unless given
---@field ttl? integer seconds of the lease of the owner's default session; 60 unless given

---Options of election.
---@class keywatch.ElectionOptions
---@field session? keywatch.Session the default session of the owner unless given
---@field ttl? integer seconds of the lease of the owner's default session; 60 unless given

---@alias keywatch.Isolation
---| "serializable_snapshot"
---| "serializable"
---| "repeatable_reads"
---| "read_committed"

---Options of stm. `timeout` and `deadline` are for all attempts together.
---@class keywatch.StmOptions: keywatch.CallOptions
---@field isolation? keywatch.Isolation "serializable_snapshot" unless given
---@field prefetch? string[] keys that are read in one request before the first attempt

---@class keywatch.TxPutOptions
---@field lease? keywatch.Id|keywatch.Lease the key is deleted when this lease ends

-- Transactions ------------------------------------------------------------------------------------------------------

---If every compare holds, the operations of `success` are executed, otherwise those of `failure`. All writes have one revision.
---@class keywatch.Txn: keywatch.CallOptions
---@field compare? keywatch.Compare[]
---@field success? keywatch.Op[]
---@field failure? keywatch.Op[]

---Exactly one of version, create_revision, mod_revision, value and lease must be set. With prefix, range_end or from_key the
---compare must hold for every key of the range. For a key that does not exist the numbers are 0, and there is no value.
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
---@field value? string required, unless ignore_value is set

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

-- Events ------------------------------------------------------------------------------------------------------------

---A put of a key; or, with `initial`, a key that existed when the watch began.
---@class keywatch.PutEvent: keywatch.KV
---@field type "put"
---@field initial? true the key existed when the watch began
---@field prev? keywatch.KV the previous kv, with the option prev_kv, if the kv is known

---@class keywatch.DeleteEvent
---@field type "delete"
---@field key string
---@field mod_revision integer of the delete
---@field prev? keywatch.KV the deleted kv, with the option prev_kv, if the kv is known

---Every key that existed has been returned. Comes once, with the option initial.
---@class keywatch.SyncedEvent
---@field type "synced"
---@field revision integer revision of the returned keys

---Every change up to a revision has been returned. Comes with the option progress.
---@class keywatch.ProgressEvent
---@field type "progress"
---@field revision integer

---@alias keywatch.WatchEvent
---| keywatch.PutEvent
---| keywatch.DeleteEvent
---| keywatch.SyncedEvent
---| keywatch.ProgressEvent

---All events of one revision; or one initial kv; or one synced or progress event.
---@class keywatch.Batch
---@field revision integer
---@field events keywatch.WatchEvent[]

---An object was added, modified or deleted. The object of a deleted one is its last state that matched.
---@class keywatch.ObjectChange
---@field type "added"|"modified"|"deleted"
---@field key string
---@field object any
---@field revision integer of the change
---@field create_revision integer
---@field version integer
---@field lease keywatch.Id
---@field initial? true the object existed when the object watch began
---@field old? any the previous object, with the option old

---Every object that existed has been returned.
---@class keywatch.ObjectsSynced
---@field type "synced"
---@field revision integer

---Every change up to a revision has been returned.
---@class keywatch.Bookmark
---@field type "bookmark"
---@field revision integer

---The object watch has failed. No event follows.
---@class keywatch.ObjectError
---@field type "error"
---@field error keywatch.Error
---@field key? string of the value that cannot be used
---@field revision integer of that value; or the revision up to which everything was handed out

---@alias keywatch.ObjectEvent
---| keywatch.ObjectChange
---| keywatch.ObjectsSynced
---| keywatch.Bookmark
---| keywatch.ObjectError

-- What stores, clients, namespaces and fences share ------------------------------------------------------------------

---The methods of stores, clients, namespaces and fences. They return `nil, err` if the outside world fails, and raise an
---error if they are used wrongly.
---@class keywatch.Keys
local Keys = {}

---Returns the kv of a key, or nil if the key does not exist.
---@param key string
---@param opts? keywatch.GetOptions
---@return keywatch.KV? kv
---@return keywatch.Error? err
---@nodiscard
function Keys:get(key, opts) end

---Returns whether a key exists. Does not read the value.
---@param key string
---@param opts? keywatch.ExistsOptions
---@return boolean? exists
---@return keywatch.Error? err
---@nodiscard
function Keys:exists(key, opts) end

---Returns the kvs of a range.
---@param key string
---@param opts? keywatch.RangeOptions
---@return keywatch.RangeResult? result
---@return keywatch.Error? err
---@nodiscard
function Keys:range(key, opts) end

---Returns an iterator over the kvs of a range, sorted by key. Reads page by page, all pages at one revision. The iterator
---raises the error of a page that cannot be read.
---@param key string
---@param opts? keywatch.EachOptions
---@return fun(): keywatch.KV?
---@nodiscard
function Keys:each(key, opts) end

---Puts a value, in a new revision.
---@param key string
---@param value? string nil only with ignore_value
---@param opts? keywatch.PutOptions
---@return keywatch.PutResult? result
---@return keywatch.Error? err
function Keys:put(key, value, opts) end

---Deletes a key, or the keys of a range.
---@param key string
---@param opts? keywatch.DeleteOptions
---@return keywatch.DeleteResult? result
---@return keywatch.Error? err
function Keys:delete(key, opts) end

---Executes a transaction: compares, then one of two lists of operations, in one revision.
---@param txn keywatch.Txn
---@param opts? keywatch.CallOptions
---@return keywatch.TxnResult? result
---@return keywatch.Error? err
function Keys:txn(txn, opts) end

---Watches a key or a range: every change, in order, without a gap. Fails only for an empty range or if memory is short.
---If the history was compacted, the first read of the watch fails.
---@param key string "" without prefix or from_key means the smallest key, "\0"
---@param opts? keywatch.WatchOptions
---@return keywatch.Watch? watch
---@return keywatch.Error? err
---@nodiscard
function Keys:watch(key, opts) end

---Watches objects: the values of keys, as a codec decodes them. See docs/object_watch.md.
---@param key string
---@param opts? keywatch.ObjectWatchOptions
---@return keywatch.ObjectWatch? watch
---@return keywatch.Error? err
---@nodiscard
function Keys:object_watch(key, opts) end

---Keeps the objects below a prefix, and calls handlers when they change. See docs/informer.md.
---@param prefix string
---@param opts? keywatch.InformerOptions
---@return keywatch.Informer? informer
---@return keywatch.Error? err
---@nodiscard
function Keys:informer(prefix, opts) end

---Grants a lease of at least `ttl` seconds.
---@param ttl integer in seconds
---@param opts? keywatch.LeaseOptions
---@return keywatch.Lease? lease
---@return keywatch.Error? err
function Keys:lease(ttl, opts) end

---Returns an object for the lease with this id. Does not check that the lease exists.
---@param id keywatch.Id
---@return keywatch.Lease lease
---@nodiscard
function Keys:lease_by_id(id) end

---Grants a lease and renews it in the background. Locks and leaderships of the session end with it.
---@param opts? keywatch.SessionOptions
---@return keywatch.Session? session
---@return keywatch.Error? err
---@nodiscard
function Keys:session(opts) end

---Waits until the lock of a name is held. Compatible with etcd's clients and its Lock service.
---@param name string
---@param opts? keywatch.LockOptions
---@return keywatch.Lock? lock
---@return keywatch.Error? err "timeout"; "lost" if the session is lost during the wait
function Keys:lock(name, opts) end

---Takes the lock of a name if it is free.
---@param name string
---@param opts? keywatch.LockOptions
---@return keywatch.Lock? lock
---@return keywatch.Error? err "locked" if it is not free
function Keys:try_lock(name, opts) end

---Returns the election of a name. Compatible with etcd's clients and its Election service. Does not wait.
---@param name string
---@param opts? keywatch.ElectionOptions
---@return keywatch.Election election
---@nodiscard
function Keys:election(name, opts) end

---Calls fn(tx) until its reads and writes are committed in one transaction. Returns the results of fn; or nil and an
---error. Raises the errors of fn, and then writes nothing.
---@param fn fun(tx: keywatch.Tx): ...
---@param opts? keywatch.StmOptions
---@return any ...
function Keys:stm(fn, opts) end

---Returns the keys that begin with a prefix, under names without it: an object with the same methods.
---@param prefix string
---@return keywatch.Namespace namespace
---@nodiscard
function Keys:namespace(prefix) end

---Opens a cache of the keys that begin with a prefix. Does not wait.
---@param prefix string
---@param opts? keywatch.CacheOptions
---@return keywatch.Cache? cache
---@return keywatch.Error? err
---@nodiscard
function Keys:cache(prefix, opts) end

---Returns the ids of all leases. The lease that expires first comes first.
---@param opts? keywatch.CallOptions
---@return keywatch.Id[]? ids
---@return keywatch.Error? err
---@nodiscard
function Keys:leases(opts) end

---Returns the size and the revision of the store, or the status of the connected server.
---@param opts? keywatch.CallOptions
---@return keywatch.Status|keywatch.ServerStatus|nil status
---@return keywatch.Error? err
---@nodiscard
function Keys:status(opts) end

---Returns etcd's HashKV: equal histories have equal hashes.
---@param revision? integer the last revision that is part of the hash; the newest unless given
---@param opts? keywatch.CallOptions
---@return keywatch.Hash? hash
---@return keywatch.Error? err
---@nodiscard
function Keys:hash_kv(revision, opts) end

-- The store ---------------------------------------------------------------------------------------------------------

---A store in this process.
---@class keywatch.Store: keywatch.Keys
local Store = {}

---Removes the history before `revision`. Readers see that at once. Memory, or disk space, becomes free in steps; with
---`physical`, before the call returns.
---@param revision integer
---@param opts? keywatch.CompactOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Store:compact(revision, opts) end

---Returns the ids of all leases. The lease that expires first comes first.
---@return keywatch.Id[]? ids
---@return keywatch.Error? err
---@nodiscard
function Store:leases() end

---Returns the size and the revision of the store.
---@return keywatch.Status status
---@nodiscard
function Store:status() end

---Returns etcd's HashKV: equal histories have equal hashes.
---@param revision? integer the newest unless given
---@return keywatch.Hash? hash
---@return keywatch.Error? err
---@nodiscard
function Store:hash_kv(revision) end

---Returns unused disk space of a durable store to the file system. Writes wait during that. Does nothing for a store in
---memory.
---@return true? done
---@return keywatch.Error? err
function Store:defragment() end

---Returns the armed alarms, whether the store or a client of a server has armed them.
---@return keywatch.AlarmName[] names
---@nodiscard
function Store:alarms() end

---Disarms an alarm, whether the store or a client of a server has armed it.
---@param name keywatch.AlarmName
---@return true? done
---@return keywatch.Error? err
function Store:disarm(name) end

---Closes the store. May be called twice; any other use of a closed store raises an error.
function Store:close() end

-- Caches ------------------------------------------------------------------------------------------------------------

---A copy of the keys below a prefix, in this process, with the reading methods of a store.
---@class keywatch.Cache
---@field prefix string
local Cache = {}

---True if the cache has content. The content may be old, see `status`.
---@return boolean
---@nodiscard
function Cache:is_ready() end

---Waits until the cache has content.
---@param timeout? number seconds; default: the option `timeout` of the cache, or any time
---@return true? ok
---@return keywatch.Error? err "unavailable" after the timeout, with the reason
function Cache:wait_ready(timeout) end

---True once the content has arrived from the server, and not only from a file.
---@return boolean
---@nodiscard
function Cache:has_synced() end

---Waits until the content has arrived from the server.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err "unavailable" after the timeout, with the reason
function Cache:wait_synced(timeout) end

---Waits until the cache has reached a revision.
---@param revision integer
---@param timeout? number seconds
---@return integer? revision of the content
---@return keywatch.Error? err
function Cache:wait_for(revision, timeout) end

---Waits until the cache has every change that the server had when sync was called.
---@param timeout? number seconds
---@return integer? revision of the server at that time
---@return keywatch.Error? err "unsupported" if the progress of the server cannot be trusted
function Cache:sync(timeout) end

---Returns the kv of a key, or nil if there is none.
---@param key string
---@param opts? keywatch.CacheGetOptions
---@return keywatch.KV? kv
---@return keywatch.Error? err
---@nodiscard
function Cache:get(key, opts) end

---Reads a range of keys.
---@param key string
---@param opts? keywatch.CacheRangeOptions
---@return keywatch.RangeResult? result
---@return keywatch.Error? err
---@nodiscard
function Cache:range(key, opts) end

---Returns an iterator over the kvs of a range, all of one revision. Raises the error of a page.
---@param key string
---@param opts? keywatch.CacheEachOptions
---@return fun(): keywatch.KV?
---@nodiscard
function Cache:each(key, opts) end

---Watches keys of the cache. Costs nothing at the server.
---@param key string
---@param opts? keywatch.CacheWatchOptions
---@return keywatch.Watch? watch
---@return keywatch.Error? err
---@nodiscard
function Cache:watch(key, opts) end

---Returns the status of the cache. Makes no request, and does not wait.
---@return keywatch.CacheStatus status
---@nodiscard
function Cache:status() end

---Returns a plain table, key to value, that is kept equal to the content of the cache.
---@param opts? keywatch.TableOptions
---@return table? table
---@return keywatch.Error? err
---@nodiscard
function Cache:table(opts) end

---Watches objects: the values of keys, as a codec decodes them. See docs/object_watch.md.
---@param key string
---@param opts? keywatch.ObjectWatchOptions
---@return keywatch.ObjectWatch? watch
---@return keywatch.Error? err
---@nodiscard
function Cache:object_watch(key, opts) end

---Keeps the objects below a prefix, and calls handlers when they change. See docs/informer.md.
---@param prefix string
---@param opts? keywatch.InformerOptions
---@return keywatch.Informer? informer
---@return keywatch.Error? err
---@nodiscard
function Cache:informer(prefix, opts) end

---Ends the cache, its watches and its tables. May be called twice.
function Cache:close() end

-- Leases ------------------------------------------------------------------------------------------------------------

---A time to live for keys. Several objects may stand for the same lease.
---@class keywatch.Lease
---@field id keywatch.Id
---@field ttl? integer the granted time, in seconds; nil for a lease of lease_by_id
---@field private owner keywatch.Store
local Lease = {}

---Renews the lease: it has its full TTL again. Returns the TTL in seconds.
---@param opts? keywatch.CallOptions
---@return integer? ttl
---@return keywatch.Error? err
function Lease:keepalive(opts) end

---Returns the remaining whole seconds, rounded down.
---@param opts? keywatch.CallOptions
---@return integer? seconds
---@return keywatch.Error? err
---@nodiscard
function Lease:remaining(opts) end

---Returns the keys of the lease, sorted.
---@param opts? keywatch.CallOptions
---@return string[]? keys
---@return keywatch.Error? err
---@nodiscard
function Lease:keys(opts) end

---Ends the lease and deletes its keys, in one revision. If that fails, a kept lease is still kept.
---@param opts? keywatch.CallOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Lease:revoke(opts) end

---Renews the lease in the background while the loop turns, until it is lost, orphaned, revoked, or this object is
---collected. Does not wait. Does nothing if the lease is kept or lost. Returns the lease.
---@return keywatch.Lease lease
function Lease:keep() end

---Waits until a kept lease is lost. Returns why: an error of the code "lost". Or returns nil and an error: "timeout", or
---"closed" if orphan was called.
---@param timeout? number seconds
---@return keywatch.Error? lost
---@return keywatch.Error? err
function Lease:wait_lost(timeout) end

---Returns why a kept lease is lost, or nil. Does not wait.
---@return keywatch.Error? lost
---@nodiscard
function Lease:error() end

---Stops renewing the lease, without revoking it: the lease expires after its TTL.
function Lease:orphan() end

-- Watches -----------------------------------------------------------------------------------------------------------

---A stream of the changes of some keys. The garbage collector cancels a watch that is no longer referenced.
---@class keywatch.Watch
---@field revision integer the revision up to which everything was handed out; a new watch continues at revision + 1
local Watch = {}

---Returns the next event; or nil and an error: "timeout" is not a failure, with any other code the watch has failed; or only
---nil after close.
---@param timeout? number seconds to wait; 0 does not wait, nil waits without a limit
---@return keywatch.WatchEvent? event
---@return keywatch.Error? err
function Watch:next(timeout) end

---Returns all events of the next revision; otherwise like next.
---@param timeout? number
---@return keywatch.Batch? batch
---@return keywatch.Error? err
function Watch:batch(timeout) end

---Returns an iterator over events, which waits for each. The loop ends when the watch is closed, and raises the error of a failed watch.
---@return fun(): keywatch.WatchEvent?
---@nodiscard
function Watch:events() end

---Returns a revision up to which everything has been delivered. If another task reads the watch, waits until that task has
---got everything. Otherwise waits until everything can be read without waiting.
---@param timeout? number
---@return integer? revision
---@return keywatch.Error? err "timeout", "full", or the error of a failed watch
function Watch:sync(timeout) end

---Ends the watch and wakes its waiting readers. May be called twice.
function Watch:close() end

---Returns the error of a failed watch, or nil.
---@return keywatch.Error? err
---@nodiscard
function Watch:error() end

-- Object watches ----------------------------------------------------------------------------------------------------

---@class keywatch.ObjectWatch
---@field revision integer the revision up to which everything was handed out; a new one continues at revision + 1
local ObjectWatch = {}

---Returns the next event; or nil and an error: "timeout" is not a failure, with any other code the object watch has failed; or
---only nil after close, and after the lifetime.
---@param timeout? number seconds to wait; 0 does not wait, nil waits without a limit
---@return keywatch.ObjectEvent? event
---@return keywatch.Error? err
function ObjectWatch:next(timeout) end

---Returns an iterator over events, which waits for each. The loop ends after close and after the lifetime, and raises the
---error of an object watch that fails.
---@return fun(): keywatch.ObjectEvent?
---@nodiscard
function ObjectWatch:events() end

---Returns the error of an object watch that has failed, or nil.
---@return keywatch.Error? err
---@nodiscard
function ObjectWatch:error() end

---Returns counters, and high-water marks of the queue. Does not wait.
---@return keywatch.ObjectWatchStatus status
---@nodiscard
function ObjectWatch:status() end

---Ends the object watch and wakes its waiting readers. May be called twice.
function ObjectWatch:close() end

---@class keywatch.ObjectWatchStatus
---@field state string "open", "closed", "ended" or the code of its error
---@field revision integer
---@field queued integer changes that wait to be read
---@field most_queued integer high-water mark of `queued`
---@field queued_bytes integer memory of the queue, if it shares a watch
---@field most_queued_bytes integer high-water mark of `queued_bytes`
---@field received integer changes that it has read
---@field delivered integer events of changes that it has handed out
---@field filtered integer changes that made no event
---@field decoded integer values that it has decoded itself
---@field skipped integer bad values that it has skipped
---@field failed_tests integer calls of include, where and selectors that have raised
---@field bookmarks integer bookmarks that it has handed out
---@field times_behind integer how often it was left behind by the object watches that share its watch
---@field shared? keywatch.SharedStatus if it shares a watch

---@class keywatch.SharedStatus
---@field watches integer object watches that share the watch
---@field changes integer changes that have arrived
---@field decoded integer values that were decoded for all
---@field tested integer objects that were compared with the selectors of one object watch

-- Informers ---------------------------------------------------------------------------------------------------------

---@class keywatch.Informer
local Informer = {}

---True if all objects that existed have arrived once.
---@return boolean has_synced
---@nodiscard
function Informer:has_synced() end

---Waits until has_synced is true.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err "timeout", with the reason
function Informer:wait_synced(timeout) end

---Returns the object of a key and its revision, or nil. Raises an error before the informer has synced.
---@param key string
---@return any object
---@return integer? revision
---@nodiscard
function Informer:get(key) end

---Returns an iterator over keys and objects, in no order.
---@return fun(): string?, any
---@nodiscard
function Informer:each() end

---Returns the number of objects. Raises an error before the informer has synced.
---@return integer count
---@nodiscard
function Informer:count() end

---Adds an index.
---@param name string
---@param fn fun(object: any, key: string): any
---@return true? ok
---@return keywatch.Error? err
function Informer:add_index(name, fn) end

---Returns an iterator over the keys and objects that have a value in an index.
---@param name string
---@param value string|number|boolean
---@return fun(): string?, any
---@nodiscard
function Informer:by_index(name, value) end

---Returns an iterator over the values of an index, and how many objects have each.
---@param name string
---@return fun(): any, integer?
---@nodiscard
function Informer:index_values(name) end

---Returns the number of objects that have a value in an index. Raises an error before the informer has synced.
---@param name string
---@param value string|number|boolean
---@return integer count
---@nodiscard
function Informer:index_count(name, value) end

---Returns an iterator over the values that cannot be decoded now: key, error and value.
---@return fun(): string?, keywatch.Error?, string?
---@nodiscard
function Informer:bad_values() end

---Adds functions that are called for each existing object, and for each change.
---@param opts keywatch.HandlerOptions
---@return keywatch.Handler? handler
---@return keywatch.Error? err
function Informer:add_handler(opts) end

---Returns the status of the informer. Makes no request, and does not wait.
---@return keywatch.InformerStatus status
---@nodiscard
function Informer:status() end

---Returns why the informer has ended, or nil.
---@return keywatch.Error? err
---@nodiscard
function Informer:error() end

---Ends the informer and its handlers. May be called twice.
function Informer:close() end

---@class keywatch.InformerStatus
---@field phase "loading"|"following"|"retrying"|"closed"
---@field has_synced boolean
---@field is_stale boolean there are objects, and the server may have newer ones
---@field revision integer the revision up to which everything has arrived
---@field objects integer
---@field bad integer values that cannot be decoded now
---@field handlers integer of this informer
---@field users integer informers that share the objects
---@field gaps integer how often everything was read again
---@field trouble? keywatch.Error why the objects are not being updated now
---@field stuck table seconds of calls that do not return while changes wait, by the name of the handler

---@class keywatch.InformerEvent
---@field type "added"|"modified"|"deleted"|"error"
---@field key string
---@field object? any
---@field old? any
---@field revision integer of the change
---@field create_revision integer of the object
---@field initial? true the object existed when the handler began
---@field missed? true changes before this one were missed
---@field resync? true nothing has changed: a call of the option resync
---@field error? keywatch.Error of type "error"
---@field value? string of type "error"

---@class keywatch.Handler
local Handler = {}

---True if the functions have returned for all objects that existed when the handler began.
---@return boolean has_synced
---@nodiscard
function Handler:has_synced() end

---Waits until has_synced is true.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err
function Handler:wait_synced(timeout) end

---Ends the handler: no further call begins. May be called twice.
function Handler:close() end

---Waits until the handler is closed, and its last call has returned.
---@param timeout? number seconds
---@return true? ok
---@return keywatch.Error? err
function Handler:join(timeout) end

---Returns the status of the handler. Does not wait.
---@return keywatch.HandlerStatus status
---@nodiscard
function Handler:status() end

---@class keywatch.HandlerStatus
---@field state "waiting"|"syncing"|"following"|"closed"
---@field has_synced boolean
---@field queued integer changes that wait
---@field queued_bytes integer
---@field most_queued_bytes integer
---@field name string
---@field is_stuck boolean its call has not returned for 5 seconds, while changes wait
---@field calls integer
---@field failures integer calls that have raised
---@field coalesced integer changes that became part of another one
---@field overruns integer how often the informer has continued though the queue was full

---@class keywatch.Selector
local Selector = {}

---True if an object meets all requirements.
---@param object any
---@return boolean matches
---@nodiscard
function Selector:matches(object) end

-- Servers -----------------------------------------------------------------------------------------------------------

---A server that offers a store to etcd's clients.
---@class keywatch.Server
local Server = {}

---Returns the URLs that the server listens on, with the ports that the kernel chose; and those of `listen_metrics`.
---@return string[] urls
---@return string[] metrics_urls
---@nodiscard
function Server:addresses() end

---Adds a service. A method is a function that takes request and call and returns the response, or a table.
---@param service string its full name, such as "demo.Notes"
---@param methods table<string, keywatch.Method|keywatch.UnaryHandler>
function Server:mount(service, methods) end

---Adds functions that run before and after every call of every service.
---@param middleware keywatch.Middleware
function Server:use(middleware) end

---Returns what the server and its store count, as text in Prometheus' format.
---@return string? text nil only for a server in a thread
---@return keywatch.Error? err "thread_failed": the thread of the server has ended, or does not answer
---@nodiscard
function Server:metrics() end

---Adds a handler for HTTP requests, which runs as a task. It returns a status, a body and headers; or only a body; or nil
---and an error; or nothing, after it has sent the answer itself.
---@param method string such as "GET", which also answers HEAD
---@param path string such as "/users/{id}" or "/files/{path...}"
---@param handler fun(request: keywatch.Request): integer|string|nil, string|table|keywatch.Error|nil, table?
function Server:handle(method, path, handler) end

---Accepts no more connections, asks clients to leave, waits until they have left, and closes. For a server in a thread the
---whole program waits, unless the caller is a task.
---@param grace? number seconds to wait at most; 5 unless given
---@return true? ok
---@return keywatch.Error? err "thread_failed": the thread of the server had failed before
function Server:shutdown(grace) end

---Closes the server and its connections at once. The store stays open, unless the server is in a thread. May be called twice.
---@return true? ok
---@return keywatch.Error? err "thread_failed": the thread of the server had failed before
function Server:close() end

-- Clients -----------------------------------------------------------------------------------------------------------

---A client of etcd's API with the methods of a store.
---@class keywatch.Client: keywatch.Keys
local Client = {}

---Watches a key or a range, through lost connections and restarts. Waits until a server has confirmed the watch: without
---`timeout` and `deadline`, as long as it takes.
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

---Returns the status of the client. Makes no request, does not wait, and never fails.
---@return keywatch.ClientState state
---@nodiscard
function Client:state() end

---Returns the status of the connected server. In both cases the field `client` has the state of the client.
---@param opts? keywatch.CallOptions
---@return keywatch.ServerStatus? status
---@return keywatch.Error? err
---@nodiscard
function Client:status(opts) end

---Returns the members of the cluster.
---@param opts? keywatch.MembersOptions
---@return keywatch.Members? members
---@return keywatch.Error? err
---@nodiscard
function Client:members(opts) end

---Returns the health of each endpoint, in the order of the endpoints. Each is asked over a connection of its own.
---@param opts? keywatch.CallOptions
---@return keywatch.EndpointHealth[]? endpoints
---@return keywatch.Error? err
---@nodiscard
function Client:health(opts) end

---Makes the client URLs of the cluster's members the endpoints of the client, and returns them.
---@param opts? keywatch.CallOptions
---@return string[]? urls
---@return keywatch.Error? err
function Client:sync_endpoints(opts) end

---Calls any gRPC method with one request and one response. Messages of known types are tables, all others strings.
---@param path string such as "/etcdserverpb.Cluster/MemberList"
---@param message table|string
---@param opts? keywatch.RequestOptions
---@return any answer
---@return keywatch.Error? err
function Client:call(path, message, opts) end

---Calls any gRPC method with many messages. The stream belongs to one connection and ends with it.
---@param path string
---@param opts? keywatch.StreamOptions
---@return keywatch.Stream? stream
---@return keywatch.Error? err
function Client:stream(path, opts) end

---Closes the client. Requests under way and watches fail with "closed". May be called twice.
function Client:close() end

-- Sessions, locks, elections ----------------------------------------------------------------------------------------

---A lease that is renewed in the background, and the locks and leaderships that are bound to it. Can be selected: ready
---once it is lost.
---@class keywatch.Session
---@field lease keywatch.Lease
local Session = {}

---Like the owner's method, in this session.
---@param name string
---@param opts? keywatch.CallOptions
---@return keywatch.Lock? lock
---@return keywatch.Error? err
function Session:lock(name, opts) end

---Like the owner's method, in this session.
---@param name string
---@param opts? keywatch.CallOptions
---@return keywatch.Lock? lock
---@return keywatch.Error? err
function Session:try_lock(name, opts) end

---Like the owner's method, in this session.
---@param name string
---@return keywatch.Election election
---@nodiscard
function Session:election(name) end

---Waits until the session is lost. Returns why: an error of the code "lost"; or nil and the error "timeout".
---@param timeout? number seconds
---@return keywatch.Error? lost
---@return keywatch.Error? err
function Session:wait_lost(timeout) end

---Returns why the session is lost, or nil. Does not wait.
---@return keywatch.Error? lost
---@nodiscard
function Session:error() end

---Stops renewing the lease. For this program the session is lost; its keys stay until the lease expires.
function Session:orphan() end

---Revokes the lease, and with it all locks and leaderships. Returns true, also if the session was lost before.
---@param opts? keywatch.CallOptions
---@return true? done
---@return keywatch.Error? err
function Session:close(opts) end

---A lock that is held. Can be selected: ready once it is lost. A lock that is collected stays held until its session ends.
---@class keywatch.Lock
---@field key string the key of the lock
---@field revision integer the create revision of the key
---@field session keywatch.Session
local Lock = {}

---Releases the lock. Returns true, also if that was done before.
---@param opts? keywatch.CallOptions
---@return true? done
---@return keywatch.Error? err "lost" if it was no longer held; after any other error it is released in the background
function Lock:unlock(opts) end

---Waits until it is lost or released. Returns why: an error of the code "lost"; or nil and the error "timeout".
---@param timeout? number seconds
---@return keywatch.Error? lost
---@return keywatch.Error? err
function Lock:wait_lost(timeout) end

---Returns why it is lost, or nil. Does not wait, and makes no request.
---@return keywatch.Error? lost
---@nodiscard
function Lock:error() end

---Returns whether it is held, as far as is known. Does not wait.
---@return boolean is_held
---@nodiscard
function Lock:is_held() end

---Returns an object with the methods of a store, whose writes are done only while this is held.
---@return keywatch.Fence fence
---@nodiscard
function Lock:fence() end

---An election. At most one candidate leads at a time.
---@class keywatch.Election
---@field name string
local Election = {}

---Waits until the caller leads. The value is visible to all readers of the leader.
---@param value string
---@param opts? keywatch.CallOptions
---@return keywatch.Leadership? leadership
---@return keywatch.Error? err "timeout"; "lost" if the session is lost during the wait
function Election:campaign(value, opts) end

---Returns the kv of the leader, or nil if there is none.
---@param opts? keywatch.CallOptions
---@return keywatch.KV? leader
---@return keywatch.Error? err
---@nodiscard
function Election:leader(opts) end

---Returns an observer, which hands out the leader, every later one, and every new value of a leader, in order.
---@param opts? keywatch.CallOptions
---@return keywatch.Observer? observer
---@return keywatch.Error? err
---@nodiscard
function Election:observe(opts) end

---The leadership of an election. Can be selected: ready once it is lost. A leadership that is collected lasts until its session ends.
---@class keywatch.Leadership
---@field key string the key of the leader
---@field revision integer the create revision of the key
---@field session keywatch.Session
local Leadership = {}

---Announces a new value.
---@param value string
---@param opts? keywatch.CallOptions
---@return true? done
---@return keywatch.Error? err "lost" if the caller no longer leads
function Leadership:proclaim(value, opts) end

---Stops leading. Returns true, also if that was done before.
---@param opts? keywatch.CallOptions
---@return true? done
---@return keywatch.Error? err "lost" if the caller no longer led
function Leadership:resign(opts) end

---Waits until it is lost or released. Returns why: an error of the code "lost"; or nil and the error "timeout".
---@param timeout? number seconds
---@return keywatch.Error? lost
---@return keywatch.Error? err
function Leadership:wait_lost(timeout) end

---Returns why it is lost, or nil. Does not wait, and makes no request.
---@return keywatch.Error? lost
---@nodiscard
function Leadership:error() end

---Returns whether it is held, as far as is known. Does not wait.
---@return boolean is_held
---@nodiscard
function Leadership:is_held() end

---Returns an object with the methods of a store, whose writes are done only while this is held.
---@return keywatch.Fence fence
---@nodiscard
function Leadership:fence() end

---Follows an election. Can be selected.
---@class keywatch.Observer
local Observer = {}

---Waits for the next leader, or the next value of the leader. Returns nil after close.
---@param timeout? number seconds
---@return keywatch.KV? leader
---@return keywatch.Error? err after "timeout" the observer stays open
---@nodiscard
function Observer:next(timeout) end

---Returns an iterator over all leaders and values. It ends when the observer is closed, and raises the error that the
---observer fails with.
---@return fun(): keywatch.KV?
---@nodiscard
function Observer:leaders() end

---Ends the observer.
function Observer:close() end

---An object with the methods of a store, whose `put`, `delete` and `txn` are done only while a lock or a leadership is
---held. Otherwise they return the error "lost", and nothing is written.
---@class keywatch.Fence: keywatch.Keys
---@field owner any the store, client or namespace that has the keys
local Fence = {}

-- Namespaces --------------------------------------------------------------------------------------------------------

---The keys of a store or client that begin with a prefix, under names without it. `leases`, `status`, `hash_kv` and
---`compact` are about the whole store.
---@class keywatch.Namespace: keywatch.Keys
---@field owner any the store, client or fence that has the keys
---@field prefix string
local Namespace = {}

---@param revision integer
---@param opts? keywatch.CompactOptions
---@return keywatch.RevisionResult? result
---@return keywatch.Error? err
function Namespace:compact(revision, opts) end

---Closes the namespace: its methods fail with "closed". The owner stays open, and so do watches and leases.
function Namespace:close() end

-- Software transactions ---------------------------------------------------------------------------------------------

---The object by which the function of a software transaction reads and writes. Valid until the function returns.
---@class keywatch.Tx
local Tx = {}

---Returns the kv of a key, or nil. A key that this transaction has put has only the fields key, value and lease. A read
---that fails raises its error and ends the software transaction.
---@param key string
---@return keywatch.KV? kv
---@nodiscard
function Tx:get(key) end

---Returns the mod_revision of a key as it was read, 0 if the key does not exist. Own writes do not count.
---@param key string
---@return integer revision
---@nodiscard
function Tx:revision(key) end

---Makes the commit put a value.
---@param key string
---@param value string
---@param opts? keywatch.TxPutOptions
function Tx:put(key, value, opts) end

---Makes the commit delete a key.
---@param key string
function Tx:delete(key) end

---@class keywatch.Stream
local Stream = {}

---Sends a message. Waits while the server takes no more.
---@param message table|string
---@return true? ok
---@return keywatch.Error? err
function Stream:send(message) end

---Returns the next message; nil when the server has ended the call with success; nil and an error otherwise. After the error
---"timeout" the stream is still open.
---@param timeout? number
---@return any message
---@return keywatch.Error? err
function Stream:receive(timeout) end

---Returns an iterator over messages. It raises the error of the call.
---@return fun(): any
---@nodiscard
function Stream:messages() end

---Half-closes the stream: no more messages follow.
function Stream:finish() end

---Ends the call at once. May be called twice.
function Stream:close() end

-- Calls -------------------------------------------------------------------------------------------------------------

---Handler of a unary method. Returns the response, or nil and an error. An error with a grpc_status is sent to the client unchanged.
---@alias keywatch.UnaryHandler fun(request: any, call: keywatch.Call): any, any

---Handler of a streaming method. Its return ends the call: with an error if it returns nil and an error, otherwise with success.
---@alias keywatch.StreamHandler fun(call: keywatch.Call): any, any

---Encodes or decodes a message: the name of one of etcd's messages, or a function.
---@alias keywatch.MessageCodec string|fun(message: any): any

---@class keywatch.Method
---@field handler keywatch.UnaryHandler|keywatch.StreamHandler
---@field stream? boolean true if the method is streaming
---@field request? keywatch.MessageCodec decodes requests; without it they are strings
---@field response? keywatch.MessageCodec encodes responses; without it they are strings
---@field max_bytes? number the limit of a request in bytes; 65,536 unless given; math.huge: that of the store
---@field max_fields? number the limit of fields and list items of a request decoded by name; 4,096 unless given

---@class keywatch.Middleware
---@field before? fun(call: keywatch.Call): boolean?, any true or nothing: the call proceeds; false or an error: the call is refused
---@field message? fun(call: keywatch.Call, message: any): boolean?, any called with each message of a stream; the results mean the same
---@field after? fun(call: keywatch.Call, status: integer) called at the end of the call with its gRPC status

---An HTTP request, for its handler and for middleware.
---@class keywatch.Request
---@field method string such as "GET"
---@field scheme "http"|"https"
---@field host string the requested host, with its port if it has one; "" if an HTTP/1.0 client sends none
---@field path string still encoded, without the query
---@field params table<string, string> the parameters of the path, decoded
---@field query table<string, string> the parameters of the query, decoded; the first value if a name occurs twice
---@field query_text string the query, still encoded
---@field headers table<string, string> by name in lower case; several values are joined by commas
---@field peer string address of the client, or ""
---@field common_name? string of the client's certificate, if the server asks for certificates
---@field organizations? string[] of the client's certificate, if the server asks for certificates
---@field server keywatch.Server
local Request = {}

---Waits for the next part of the body, and returns it; nil at the end.
---@return string? part
---@nodiscard
function Request:read() end

---Waits for the whole body. Raises an error with HTTP status 413 if it is longer than max.
---@param max? integer bytes; 1572864 unless given
---@return string body
---@nodiscard
function Request:body(max) end

---Sends the head of the answer.
---@param status integer
---@param headers? table<string, string|string[]>
---@param length? integer bytes of the body, if the number is known
function Request:answer(status, headers, length) end

---Sends a part of the body, and waits while the client does not read. Returns true; or nil and the error "timeout", though
---the part stays queued.
---@param bytes string
---@param timeout? number seconds
---@return boolean? ok
---@return keywatch.Error? err
function Request:write(bytes, timeout) end

---A call of a method that is implemented in Lua, or that passes middleware.
---@class keywatch.Call
---@field path string such as "/demo.Notes/Read"
---@field peer string address of the client, or ""
---@field common_name? string of the client's certificate, if the server asks for certificates
---@field organizations? string[] of the client's certificate, if the server asks for certificates
---@field deadline? number when the client stops waiting, on the clock of keywatch.now
---@field metadata table<string, string>
---@field request? any in `before` of middleware: the first message of the client; reading this field waits for it
---@field server keywatch.Server
local Call = {}

---Waits for the next message and returns it; nil when the client sends no more. Only for streaming handlers.
---@return any message
---@nodiscard
function Call:receive() end

---Returns an iterator over messages. Only for streaming handlers.
---@return fun(): any
---@nodiscard
function Call:messages() end

---Sends a message, and waits while the client does not read. Returns true; or nil and the error "timeout", though the
---message stays queued. Only for streaming handlers.
---@param message any
---@param timeout? number seconds
---@return boolean? ok
---@return keywatch.Error? err
function Call:send(message, timeout) end

-- Tasks -------------------------------------------------------------------------------------------------------------

---A function that runs concurrently with other tasks. Other tasks run while it waits.
---@class keywatch.Task
local Task = {}

---Waits for the end of the task. Returns true and its results; false and its error; or nil and the error "timeout".
---@param timeout? number
---@return boolean? ok
---@return any ... results, or the error
function Task:join(timeout) end

---Cancels the task: from now on each of its waits raises an error with the code "cancelled". A task that has not begun
---never begins.
function Task:cancel() end

---Signals that are caught until the object is closed or garbage collected. Then they have their previous effect again.
---@class keywatch.Signals
local Signals = {}

---Waits for a signal. A signal that comes again before it was taken counts once.
---@param timeout? number
---@return keywatch.SignalName? name
---@return keywatch.Error? err "timeout", or "closed"
function Signals:wait(timeout) end

---Stops catching. Waiters get the error "closed".
function Signals:close() end

---A list of tasks.
---@class keywatch.JoinOptions
---@field [integer] keywatch.Task
---@field timeout? number seconds

---Tasks that end together.
---@class keywatch.Scope
local Scope = {}

---Creates a task that belongs to the scope.
---@param fn fun(...: any): ...
---@param ... any for fn
---@return keywatch.Task task
function Scope:spawn(fn, ...) end

---Cancels the tasks that were spawned in the scope. The function of the scope continues.
function Scope:cancel() end

---A bounded queue of values between tasks.
---@class keywatch.Channel
local Channel = {}

---Waits until a receiver takes the value, or the channel has room for it.
---@param value any not nil
---@param timeout? number
---@return boolean? ok
---@return keywatch.Error? err "timeout" or "closed"
function Channel:send(value, timeout) end

---Waits for the next value. Returns only nil once the channel is closed and empty.
---@param timeout? number
---@return any value
---@return keywatch.Error? err "timeout"
function Channel:receive(timeout) end

---Returns an iterator over the values. It ends when the channel is closed and empty.
---@return fun(): any
---@nodiscard
function Channel:values() end

---Returns an object for `keywatch.select` that sends the value. It is ready when the channel can take the value.
---@param value any not nil
---@return keywatch.Sending sending
---@nodiscard
function Channel:sending(value) end

---Returns the number of values that the channel holds.
---@return integer count
---@nodiscard
function Channel:count() end

---Closes the channel. Senders get the error "closed"; receivers get the values that are left, and then nil.
function Channel:close() end

---A value to be sent, for `keywatch.select`.
---@class keywatch.Sending

---A list of watches, channels, values to be sent, tasks, signals, kept leases, sessions, locks, leaderships, observers.
---@class keywatch.SelectOptions
---@field [integer] any
---@field timeout? number seconds; 0 does not wait

return keywatch
