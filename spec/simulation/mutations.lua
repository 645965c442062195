--- The mutations of `make mutations`: each has a name, a description of what it breaks, a file, a text that occurs once
-- in the file, and the replacement.

return {
  -- {====== Writes and disks ======

  { name = "journal-without-flush", breaks = "groups are acknowledged that the disk may lose",
    file = "csrc/disk/journal_segment.c", text = "do n = pwritev2(fd, &all, 1, at, RWF_DSYNC);",
    by = "do n = pwritev2(fd, &all, 1, at, 0);" },
  { name = "answer-before-flush", breaks = "writes are answered before their group is durable",
    file = "csrc/rpc/service.c", text = "finish_durable(server, room->stream, kw_store_ticket(server->store), KW_OK);",
    by = "finish_durable(server, room->stream, 0, KW_OK);" },
  { name = "replay-loses-group", breaks = "the first group that the database lacks is not read from the journal",
    file = "csrc/disk/journal_recovery.c", text = "f.frame.meta.sequence > r->expected->applied) {",
    by = "f.frame.meta.sequence > r->expected->applied + 1) {" },
  { name = "undo-forgets-delete", breaks = "a delete of a failed group is undone only in part",
    file = "csrc/store/write.c", text = "case KW_UNDO_DELETE: undo_delete(store, step->history); break;",
    by = "case KW_UNDO_DELETE: kw_key_history_pop(step->history); break;" },
  { name = "undo-keeps-revision", breaks = "the revisions of a failed group are not used again",
    file = "csrc/store/durability.c", text = "  store->applied = store->revision;\n", by = "" },
  { name = "events-of-undurable", breaks = "changes are visible too early", file = "csrc/store/durability.c",
    text = "kw_store_set_visible(store, meta->revision);", by = "kw_store_set_visible(store, store->applied);" },

  -- }======

  -- {====== Transactions and reads ======

  { name = "compare-ignored", breaks = "only the first compare of a transaction is evaluated",
    file = "csrc/store/txn.c", text = "while (*succeeded && txn->n_held < op->n_compares) {",
    by = "while (*succeeded && txn->n_held < op->n_compares && txn->n_held < 1) {" },
  { name = "compare-of-range-ends", breaks = "a compare of a range checks only its first key",
    file = "csrc/store/txn.c",
    text = "    txn->is_empty = false;\n    spend_compare(work, compare, kw_key_history_key(history));\n",
    by = "    txn->is_empty = false;\n    spend_compare(work, compare, kw_key_history_key(history));\n    break;\n" },
  { name = "version-wrong", breaks = "the first version of a key is 2", file = "csrc/store/txn.c",
    text = "  } else if (op->ignore_value || op->ignore_lease) {",
    by = "  } else if (!++kv.version || op->ignore_value || op->ignore_lease) {" },
  { name = "stale-read-of-cache", breaks = "a consistent read of a cache does not wait for the newest revision",
    file = "lua/keywatch/cache/feed.lua", text = "self.cache.replica:status().revision >= target)",
    by = "self.cache.replica:status().revision >= target - 1)" },
  { name = "compaction-takes-more", breaks = "compaction removes records that exist at its revision",
    file = "csrc/store/compaction.c", text = "first->main < until && first[1].main <= until;",
    by = "first->main < until && first[1].main <= until + 1;" },
  { name = "write-retried", breaks = "a write that may have been done is retried",
    file = "lua/keywatch/client/transport.lua",
    text = "return call.is_read and waiter.status == grpc_status.UNAVAILABLE or is_refused(waiter, call)",
    by = "return waiter.status == grpc_status.UNAVAILABLE or is_refused(waiter, call)" },
  { name = "doubt-untold", breaks = "a write that may have been done is reported as failed",
    file = "lua/keywatch/client/transport.lua",
    text = "  if not is_read then err.maybe_done = true end\n  return err\n", by = "  return err, is_read\n" },

  -- }======

  -- {====== Leases ======

  { name = "lease-ends-early", breaks = "leases expire after nine tenths of their ttl", file = "csrc/store/lease.c",
    text = "return now + ttl * 1000;", by = "return now + ttl * 900;" },
  { name = "lease-ends-late", breaks = "leases expire after a hundred times their ttl", file = "csrc/store/lease.c",
    text = "return now + ttl * 1000;", by = "return now + ttl * 100000;" },
  { name = "renewal-lost", breaks = "a renewed lease expires as if it was not renewed", file = "csrc/store/lessor.c",
    text = "  kw_leases_renew(&store->leases, lease, now);\n", by = "" },
  { name = "lease-keeps-key", breaks = "a key is deleted with its previous lease, too",
    file = "csrc/store/write.c", text = "    kw_lease_detach(&store->leases, old, history);\n",
    by = "    if (to == 0) kw_lease_detach(&store->leases, old, history);\n" },

  -- }======

  -- {====== Watches ======

  { name = "wake-up-lost", breaks = "a watcher whose reader was slow receives nothing more", file = "csrc/watch/hub.c",
    text = "  if (outlet->blocked.first != NULL) kw_watcher_unblock(outlet);\n", by = "" },
  { name = "lagging-skips", breaks = "a watcher with a full outlet continues one revision late",
    file = "csrc/watch/walk.c", text = "if (watcher->next_rev < rev) watcher->next_rev = rev;",
    by = "if (watcher->next_rev <= rev) watcher->next_rev = rev + 1;" },
  { name = "resumed-early", breaks = "a watch gets the last revision again after its connection was cut",
    file = "csrc/rpc/subscription.c",
    text = "  sub->unfinished = sub->torn = 0;\n  if (last >= sub->next) sub->next = last + 1;\n",
    by = "  sub->unfinished = sub->torn = 0;\n  if (last >= sub->next) sub->next = last;\n" },
  { name = "revision-split", breaks = "a client hands out a fragmented revision in parts",
    file = "csrc/rpc/watch_call.c", text = "bool has_more = found->fields.fragment;", by = "bool has_more = false;" },
  { name = "events-reordered", breaks = "the events of a batch are delivered out of order", file = "csrc/watch/walk.c",
    text = "for (uint32_t i = 0; i < pending->n; i++) {\n    kw_event event",
    by = "for (uint32_t i = pending->n; i-- > 0;) {\n    kw_event event" },
  { name = "progress-ahead", breaks = "progress overtakes undelivered events of a watcher",
    file = "csrc/watch/progress.c", text = "if (watcher->state != KW_WATCHER_SYNCED || hub->is_behind) return false;",
    by = "if (watcher->state == KW_WATCHER_FAILED) return false;" },
  { name = "gap-untold", breaks = "a watcher whose history was compacted continues without an error",
    file = "csrc/watch/catch_up.c", text = "if (watcher->next_rev < first_event) {",
    by = "if (watcher->next_rev < 0) {" },
  { name = "resumed-late", breaks = "a watch continues one revision late after its connection was cut",
    file = "csrc/rpc/watch_call.c",
    text = "int64_t start = sub->overlaps && sub->next > 1 ? sub->next - 1 : sub->next;",
    by = "int64_t start = sub->was_created ? sub->next + 1 : sub->next;" },
  { name = "prev-of-now", breaks = "a watch with prev_kv gets the kv of an older revision",
    file = "csrc/watch/walk.c", text = "kw_keyvalue_key(event->record), event->revision, compacted);",
    by = "kw_keyvalue_key(event->record), event->revision - 1, compacted);" },

  -- }======

  -- {====== Caches, informers, queues ======

  { name = "cache-without-diff", breaks = "a cache keeps keys that were deleted while it had no connection",
    file = "csrc/store/replica.c",
    text = "if (!push(fill, fill->rev, DELETE, (int64_t)(intptr_t)history)) return KW_ERR_NO_MEMORY;", by = "" },
  { name = "table-keeps-deleted", breaks = "a table that the core fills keeps deleted keys",
    file = "csrc/bind/lua_watch.c", text = "  if (event->is_delete) {\n    lua_pushnil(L);",
    by = "  if (event->is_delete) {\n    lua_pushliteral(L, \"\");" },
  { name = "coalesced-delete-lost", breaks = "a handler that coalesces misses a deletion",
    file = "lua/keywatch/cache/handler.lua", text = "if record and not record.create then unlink(self, record) end",
    by = "if record then unlink(self, record) end" },
  { name = "coalesced-state-old", breaks = "a handler that coalesces gets the previous object",
    file = "lua/keywatch/cache/handler.lua",
    text = [[now = new_event("modified", key, indexer.objects[slot], record.delivered,]],
    by = [[now = new_event("modified", key, record.delivered, record.delivered,]] },
  { name = "key-handed-out-twice", breaks = "a key in work is handed to a second worker",
    file = "lua/keywatch/controller/work_queue.lua",
    text = "  elseif self.taken[item] then\n    local before = self.again[item]",
    by = "  elseif self.taken[item] and lane.priority ~= 0 then\n    local before = self.again[item]" },
  { name = "dirty-key-forgotten", breaks = "a key that is added while it is in work is not handed out again",
    file = "lua/keywatch/controller/work_queue.lua",
    text = "if not before or priority > before then self.again[item] = priority end",
    by = "if before and priority > before then self.again[item] = priority end" },

  -- }======

  -- {====== Kubernetes' API ======

  { name = "api-evicts-untold", breaks = "a watch continues after a change that the history has evicted",
    file = "lua/keywatch/kubernetes/cursor.lua",
    text = "return history.epoch ~= self.epoch or self.seq < history.first",
    by = "return history.epoch ~= self.epoch" },
  { name = "api-gap-untold", breaks = "a history continues where the cache has skipped changes",
    file = "lua/keywatch/kubernetes/history.lua", text = "if gap.to > self.floor and gap.from < revision then",
    by = "if gap.to < 0 then" },
  { name = "api-begins-too-old", breaks = "a watch begins at a revision whose changes are gone",
    file = "lua/keywatch/kubernetes/history.lua",
    text = "if not self.floor or revision < self.floor then return nil end",
    by = "if not self.floor then return nil end" },
  { name = "api-ignores-old", breaks = "a selector is not applied to the state before a change",
    file = "lua/keywatch/kubernetes/transition.lua", text = "if not is_match(filter, old) then old = nil end",
    by = "if not new and not is_match(filter, old) then old = nil end" },
  { name = "api-watches-late", breaks = "a watch begins one revision late",
    file = "lua/keywatch/kubernetes/cursor.lua", text = "if change.revision > self.revision and",
    by = "if change.revision > self.revision + 1 and" },
  { name = "api-update-lost", breaks = "an update overwrites one that its writer has not seen",
    file = "lua/keywatch/kubernetes/registry.lua",
    text = [[if version ~= ("%d"):format(current.revision) then return]],
    by = [[if version == "0" then return]] },
  { name = "api-page-of-now", breaks = "the pages of a list are of several revisions",
    file = "lua/keywatch/kubernetes/reads.lua",
    text = "{ range_end = list.range_end, limit = list.page, revision = list.revision }",
    by = "{ range_end = list.range_end, limit = list.page }" },

  -- }======

  -- {====== Locks and elections ======

  { name = "fence-unlocked", breaks = "the writes of a fence do not check that the lock is held",
    file = "lua/keywatch/concurrency/fence.lua", text = "compare = { { key = key, create_revision = revision } },",
    by = "compare = {}," },
  { name = "lock-given-twice", breaks = "a lock is taken while the key before it still exists",
    file = "lua/keywatch/concurrency/entry.lua", text = "max_create_revision = created - 1,",
    by = "max_create_revision = created - 2," },
  { name = "session-kept", breaks = "a session continues after its lease was lost",
    file = "lua/keywatch/concurrency/session.lua", text = "  return lease.failure(self.lease)\n",
    by = "  return nil\n" },

  -- }======
}
