/* SPDX-License-Identifier: MIT
 *
 * lease_answer: an answer with a list of all leases, or with the keys of one. A short one is made at once, a long one
 * page by page. For this folder only.
 */
#ifndef KW_RPC_LEASE_ANSWER_H
#define KW_RPC_LEASE_ANSWER_H

#include "rpc/service.h"

/* Answers with all leases. */
void kw_lease_answer_leases(kw_server *server, kw_stream *stream);

/* Answers with a lease that exists, and its keys. If the lease ends before its keys are listed, the answer says that
 * there is no such lease. */
void kw_lease_answer_keys(kw_server *server, kw_stream *stream, const kw_lease_info *info);

/* The on_close of both methods. */
void kw_lease_answer_close(kw_server *server, kw_stream *stream);

#endif
