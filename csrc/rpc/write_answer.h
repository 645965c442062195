/* SPDX-License-Identifier: MIT
 *
 * write_answer: the message that answers a long write. The records of the reply are encoded during the write, as fields
 * in chains. The chains become parts of the message, and are not copied. For this folder only.
 */
#ifndef KW_RPC_WRITE_ANSWER_H
#define KW_RPC_WRITE_ANSWER_H

#include "model/reply.h"

/* Encodes a record of the reply to an op, and adds it to `encoded`. is_own: only the answer references the record.
 * Returns false if memory is short. */
bool kw_write_answer_encode(kw_chain *encoded, const kw_op *op, const kw_blob *record, bool is_own);

/* Moves the encoded records of a reply to the end of another chain, which the caller frees later. */
void kw_write_answer_discard(const kw_reply *reply, kw_chain *discarded);

/* Returns the size of the message without its header, in bytes. Sets `size` of the reply and of all its responses. */
size_t kw_write_answer_measure(kw_reply *reply);

/* Adds the message of a reply, without its header, to `out`, and moves the encoded records there. The reply must have
 * been measured. Returns false if memory is short; a part of the message may have been added then. */
bool kw_write_answer_add(kw_chain *out, const kw_reply *reply);

#endif
